"""Internals of `tallbayes.data.transform_state`; what users see of it is tested in test_formula.py."""

import numpy as np
import pytest

from tallbayes.data import transform_state


@pytest.fixture(autouse=True)
def stores(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TALLBAYES_STORE", str(tmp_path_factory.mktemp("stores")))


def test_quantiles_come_from_a_sample_when_there_are_many_rows(monkeypatch):
    monkeypatch.setattr(transform_state, "EXACT_ROWS", 5000)
    monkeypatch.setattr(transform_state, "SAMPLED_ROWS", 1000)
    values = np.random.default_rng(2).normal(size=20_000)
    knots = []
    for size in (100, 999):
        spline = transform_state.Spline("bs(x, df=6)", {"df": 6}, "bs")
        for start in range(0, values.size, size):
            spline.add(values[start : start + size])
        assert spline.kept <= 4 * 1000 + size
        knots.append(spline.state()["knots"])
    assert knots[0] == knots[1]
    assert (knots[0][0], knots[0][-1]) == (values.min(), values.max())
    shares = [(values < k).mean() for k in knots[0][4:-4]]
    np.testing.assert_allclose(shares, [0.25, 0.5, 0.75], atol=4.9 * 0.5 / np.sqrt(1000))
    assert shares != [0.25, 0.5, 0.75]
