"""`fit.idata.posterior`: one variable per term, in the form that ArviZ and bambi users expect."""

import arviz_stats
import numpy as np
import pyarrow as pa
import pytest

import tallbayes as tb


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    columns = {"x": rng.uniform(1.0, 2.0, 200), "draw": rng.standard_normal(200)}
    levels = {"g": rng.choice(["a", "b", "c [x]"], 200), "h": rng.choice(["u", "v"], 200)}
    return pa.table({"y": rng.integers(0, 3, 200), **columns, **levels})


@pytest.fixture(scope="module")
def fit(rows):
    return tb.fit(
        "y ~ x + g + draw + I(1 / x)", rows, "poisson", tb.priors.normal(1.0), "mh", draws=40, warmup=20, seed=1, chains=2, progress=False
    )  # fmt: skip


def test_arviz_reads_a_fit(fit, tmp_path):
    table = arviz_stats.summary(fit.idata)
    assert list(table.index) == ["Intercept", "x", "g[b]", "g[c [x]]", "draw_", "I(1 \u2215 x)"]
    assert fit.draws("g").shape == (2, 40, 2)
    np.testing.assert_array_equal(fit.draws("g")[..., 1], fit.draws("g[T.c [x]]"))
    np.testing.assert_array_equal(fit.idata.posterior["g"].sel(g_dim="b"), fit.draws("g[T.b]"))
    again = tb.load(fit.save(tmp_path / "fit.nc"))
    assert again.idata.posterior.identical(fit.idata.posterior) and again.names == fit.names
    np.testing.assert_array_equal(again.theta, fit.theta)
    with pytest.raises(tb.OptionError, match=r"Valid: .*g"):
        fit.draws("gg")


def test_arviz_plots_draws_a_fit(fit):
    try:
        import arviz_plots as plots
    except (ImportError, AttributeError) as error:  # arviz-plots 0.8 needs a module that matplotlib 3.11 does not have
        pytest.skip(f"arviz-plots cannot be imported: {error}")
    plots.plot_forest(fit.idata, backend="none")
    plots.plot_trace(fit.idata, backend="none")
