"""The first hour of a new user: names from other packages, printed digits, time from the call, warnings at the line of the user."""

import time
import warnings

import arviz_stats
import numpy as np
import pyarrow as pa
import pytest
from support import known_fit

import tallbayes as tb

RUN = {"sampler": "hmc", "draws": 60, "warmup": 60, "chains": 2, "seed": 1, "progress": False}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    x = rng.uniform(1.0, 3.0, 400)
    return pa.table({"y": (rng.random(400) < 0.3 + 0.1 * x).astype(int), "x": x, "trials": np.full(400, 2)})


def test_binomial_with_single_trials_is_logistic_and_answers_like_it(rows):
    fit = tb.fit("y ~ x", rows, family="binomial", **RUN)
    assert fit.meta["model"]["family"] == "logistic"
    assert fit.comparisons("x", scale="odds")["mean"][0] > 0
    assert fit.ppc(rows=50, draws=20).simulated.shape == (20, 50) and len(fit.predict(rows.slice(0, 2), kind="response")) == 2
    several = tb.read(rows, "p(y, trials) ~ x", progress=False)
    assert tb.models.family_for("binomial", several) == "binomial"
    assert known_fit(several, "binomial").comparisons("x", scale="odds")["mean"][0] > 0


def test_functions_of_numpy_in_a_formula(rows):
    plain = tb.read(rows, "y ~ log(x) + I(sqrt(x) / 2)", progress=False)
    named = tb.read(rows, "y ~ np.log(x) + I(numpy.sqrt(x) / 2)", progress=False)
    assert plain.columns == named.columns and plain.fingerprint == named.fingerprint
    with pytest.raises(tb.DataError, match="not allowed"):
        tb.read(rows, "y ~ np.sin(x)", progress=False)


def test_printed_ends_of_intervals_differ_whatever_the_scale():
    data = tb.Dataset.from_arrays(np.ones((4, 1)), np.arange(4.0), columns=["level"])
    rng = np.random.default_rng(1)
    for center, sd in ((245_000.0, 12.0), (1e9, 0.5), (-3e-9, 1e-12), (0.0, 1.0)):
        fit = known_fit(data, "gaussian", center + sd * rng.standard_normal((2, 500, 1)))
        fit.seconds = {"draws": 1.0, "total": 1.0}
        table = fit.summary()
        shown = repr(table).splitlines()[-1].split()
        assert shown[0] == "level"
        mean, low, high = (float(shown[k]) for k in (1, 3, 4))
        assert low < mean < high and abs(low - table.loc["level", "5.5%"]) < 0.01 * sd
        assert shown[5].isdigit()  # effective draws are whole
        assert f">{shown[3]}<" in table._repr_html_()


def test_tables_of_models_are_printed_whole_and_arviz_compares_loo(rows):
    fits = {name: tb.fit(f"y ~ {name}", rows, family="logistic", **RUN) for name in ("x", "1")}
    table = tb.compare_models(fits, rows=100)
    assert "..." not in repr(table) and all(column in repr(table) for column in table.columns)
    direct = arviz_stats.compare({name: fit.loo(rows=100, pointwise=True) for name, fit in fits.items()}, method="pseudo-BMA")
    assert np.allclose(direct["elpd_diff"], table["elpd_diff"])


class Slow:
    """Rows that take a while to come."""

    def __init__(self, rows):
        self.rows = rows

    def __arrow_c_stream__(self, requested_schema=None):
        time.sleep(0.4)
        return self.rows.__arrow_c_stream__(requested_schema)


def test_time_counts_from_the_call_with_reading(rows):
    assert tb.fit("y ~ x", Slow(rows), family="logistic", **RUN).cost()["seconds"] > 0.4
    with pytest.raises(tb.StoppedError, match="time limit reached during setup"):
        tb.fit("y ~ x", Slow(rows), family="logistic", max_seconds=0.2, **RUN)


def test_warnings_point_at_the_line_of_the_user(rows):
    zeros = rows.set_column(0, "y", pa.array(np.zeros(400)))
    for call in (
        lambda: tb.fit("y ~ x", zeros, family="poisson", **RUN),
        lambda: tb.sample(tb.models.poisson(tb.read(zeros, "y ~ x", progress=False)), **RUN),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        ours = [w for w in caught if issubclass(w.category, tb.TallbayesWarning)]
        assert ours and {w.filename for w in ours} == {__file__}
