"""Internals of `tallbayes.results.findings`; what users see of it is tested in test_second_predictor.py."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tallbayes as tb
from tallbayes.results.findings import formula_of


def columns_of(n, seed=1):
    rng = np.random.default_rng(seed)
    return rng, np.column_stack([np.ones(n), rng.standard_normal(n)]), np.column_stack([np.ones(n), rng.standard_normal(n)])


def counts_of(name, n, seed=1):
    """Responses, and both designs."""
    rng, X, Z = columns_of(n, seed)
    rate = np.exp(X @ [0.5, 0.4])
    rate = rate if name.endswith("poisson") else rate * rng.standard_gamma(2.0, n) / 2.0
    y, zero = rng.poisson(rate), rng.random(n) < 1.0 / (1.0 + np.exp(0.5 - 0.8 * Z[:, 1]))
    if name.startswith("hurdle"):
        y = np.where(y == 0, 1 + (rng.random(n) < 0.2), y)
    return np.where(zero, 0, y), X, Z


def table_of(n=600, seed=5):
    y, X, Z = counts_of("zero_inflated_poisson", n, seed)
    group = np.array(["a", "b", "c"])[np.random.default_rng(seed).integers(0, 3, n)]
    return pa.table({"y": y, "x": X[:, 1], "z": Z[:, 1], "g": group})


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """One fit of a formula with levels and a transform in the second predictor."""
    folder = tmp_path_factory.mktemp("counts")
    pq.write_table(table_of(), folder / "rows.parquet")
    options = {"draws": 200, "warmup": 200, "chains": 2, "seed": 1, "progress": False}
    fit = tb.fit("y ~ x", folder / "rows.parquet", "zero_inflated_poisson", sampler="nuts", zi="~ C(g) + center(z)", **options)
    return folder, fit


def test_a_fit_of_two_formulas(fitted):
    folder, fit = fitted
    assert fit.names == ("Intercept", "x", "zi_Intercept", "zi_C(g)[T.b]", "zi_C(g)[T.c]", "zi_center(z)")
    assert fit.meta["model"]["options"]["zi"] == list(fit.names[2:])
    assert set(fit.idata.posterior.data_vars) == {"Intercept", "x", "zi_Intercept", "zi_C(g)", "zi_center(z)"}
    assert formula_of(fit) == "y ~ x, zi ~ C(g) + center(z)"
    flat, rows = fit.theta.reshape(-1, 6), table_of().slice(0, 7)
    g, z = np.asarray(rows["g"]), np.asarray(rows["z"]) - np.asarray(table_of()["z"]).mean()
    x = np.column_stack([np.ones(7), rows["x"]]) @ flat[:, :2].T
    a = np.column_stack([np.ones(7), g == "b", g == "c", z]) @ flat[:, 2:].T
    expected = (np.exp(x) / (1.0 + np.exp(a))).mean(1)
    fit.save(folder / "fit.nc")
    for each in (fit, tb.load(folder / "fit.nc")):
        assert each.predict(rows, draws=flat.shape[0])["mean"].to_numpy() == pytest.approx(expected, rel=1e-9)
    drawn = fit.predict(rows, kind="response", seed=1)
    assert (drawn["lower"] == 0).all() and (drawn["upper"] >= drawn["mean"]).all()
    check = fit.ppc(rows=400, draws=100)
    assert "share of zeros" not in check.surprises
    assert np.isfinite(fit.loo().elpd)
    with pytest.raises(tb.ModelError, match="families with one linear predictor"):
        fit.comparisons()
    with pytest.raises(tb.DataError, match="no column 'z'"):
        fit.predict({"x": [0.0], "g": ["a"]})
