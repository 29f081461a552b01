"""Responses of two columns in formulas: the rows they make are those of the array functions, and they are read again."""

import numpy as np
import pyarrow as pa
import pytest

import tallbayes as tb


def table(n=200):
    rng = np.random.default_rng(1)
    trials = rng.integers(1, 6, n)
    times, event = rng.exponential(2.0, n), rng.random(n) < 0.7
    x = rng.standard_normal(n)
    return pa.table(
        {"x": x, "time of": times, "event": event, "k": rng.binomial(trials, 0.4), "m": trials, "e": np.full(n, 2.0)}
    )


def test_censored_times():
    rows = table()
    data = tb.read(rows, "censored(`time of`, event) ~ x", offset="log(e)", progress=False)
    expected = tb.data.censored(rows["time of"].to_numpy(), rows["event"].to_numpy(zero_copy_only=False))
    assert (data.y == expected).all() and data.columns == ("Intercept", "x") and not data.has_weights
    assert data.total_weight == 200.0 and data.moments.mean[2] == pytest.approx(expected.mean())
    assert tb.models.weibull(data).names == ("Intercept", "x", "log_sigma")


def test_what_is_refused():
    rows = table()
    with pytest.raises(tb.DataError, match="event must be True or 1"):
        tb.read(rows, "censored(m, e) ~ x", progress=False)
    with pytest.raises(tb.DataError, match="did you mean 'event'"):
        tb.read(rows, "censored(m, evnt) ~ x", progress=False)
    with pytest.raises(tb.DataError, match="successes in"):
        tb.read(rows, "p(m, k) ~ x", progress=False)
