"""Results of hierarchical models: predictions, leave-one-out, summaries of levels, intraclass correlation, plots, report."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import tallbayes as tb
from tallbayes.testing import THRESHOLD, fit_from_draws

CHAINS, DRAWS, LEVELS = 2, 60, 7
EXPIT = lambda eta: 1.0 / (1.0 + np.exp(-eta))  # noqa: E731


def data_of(terms=None, n=90, response="binary", labels="abcdefg", seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, LEVELS - 1, n)  # the last level has no rows
    X = np.column_stack([np.ones(n), rng.standard_normal(n)])
    y = rng.integers(0, 2, n) if response == "binary" else rng.standard_normal(n)
    shop = pd.Categorical.from_codes(codes, list(labels))
    groups = {"shop": shop if terms is None else (shop, terms)}
    return X, np.asarray(shop), tb.Dataset.from_arrays(X, y, columns=["one", "x"], groups=groups)


def fit_of(model, seed=1, spread=1.0):
    """A fit with made-up draws, of which everything but the draws is as after sampling."""
    rng = np.random.default_rng(seed)
    theta = rng.uniform(0.3, 0.8, (CHAINS, DRAWS, model.dim))
    values = spread * rng.standard_normal((CHAINS, DRAWS, model.level_count))
    fit = fit_from_draws(model, theta, levels=values)
    fit.meta["sampler_name"] = "minibatch-gibbs"
    fit.setup["seconds"] = fit.warmup["seconds"] = fit.seconds["draws"] = fit.seconds["total"] = 1.0
    fit.warmup["iterations"] = fit.setup["passes"] = 1
    return fit


@pytest.fixture(scope="module")
def rows():
    return data_of()


@pytest.fixture(scope="module")
def fit(rows):
    return fit_of(tb.models.logistic(rows[2]))


@pytest.fixture(scope="module")
def slopes():
    X, shop, data = data_of(["1", "x"], response="real")
    model = tb.models.gaussian(data, sigma=0.5)
    return X, shop, model, fit_of(model)


def linear(fit, X, shop, z=None):
    """eta (rows, draws) of known levels."""
    flat = fit.theta.reshape(CHAINS * DRAWS, -1)
    code = np.array(["abcdefg".index(s) for s in shop])
    eta = X @ flat[:, :2].T
    for k, own in enumerate(fit.levels.values()):
        eta += (1.0 if k == 0 else X[:, [1]]) * own.values.reshape(CHAINS * DRAWS, -1)[:, code].T
    return eta


def test_known_levels_are_predicted_with_their_draws(fit, rows):
    X, shop, data = rows
    expected = EXPIT(linear(fit, X, shop))
    table = {"one": X[:, 0], "x": X[:, 1], "shop": shop}
    for new, options in ((X, {"groups": {"shop": shop}}), (table, {}), (pd.DataFrame(table), {}), (data, {})):
        found = fit.predict(new, draws=1000, prob=0.8, **options)
        np.testing.assert_allclose(found["mean"], expected.mean(1), rtol=1e-12)
        np.testing.assert_allclose(found["upper"], np.quantile(expected, 0.9, axis=1), rtol=1e-12)
    alone = fit.predict(table, draws=1000, groups=False)["mean"]
    np.testing.assert_allclose(alone, EXPIT(X @ fit.theta.reshape(-1, 3)[:, :2].T).mean(1), rtol=1e-12)
    np.testing.assert_allclose(fit.predict(X, draws=1000, groups=False)["mean"], alone, rtol=1e-12)


def test_random_slopes_are_predicted(slopes):
    X, shop, model, fit = slopes
    expected = linear(fit, X, shop).mean(1)
    for new, options in (
        (X, {"groups": {"shop": shop}}),
        (X, {"groups": {"shop": (shop, X)}}),
        ({"one": X[:, 0], "x": X[:, 1], "shop": shop}, {}),
        (model.data, {}),
    ):
        np.testing.assert_allclose(fit.predict(new, draws=1000, **options)["mean"], expected, rtol=1e-12)


def test_new_levels_come_from_the_population(slopes):
    fit = slopes[3]
    fixed = np.tile([0.0, 0.0, 0.5, 2.0, -0.8], (CHAINS, 5000, 1))
    many = replace(fit, theta=fixed, stats={"evals": np.zeros(fixed.shape[:2])})
    many.levels = {k: replace(v, values=np.zeros((CHAINS, 5000, LEVELS))) for k, v in fit.levels.items()}
    X = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, -1.0]])
    options = {"draws": 10_000, "groups": {"shop": ["new", "new", "new"]}}
    found = many.predict(X, prob=0.5, **options)
    variance = np.array([0.25, 0.25 + 4.0 - 1.6, 0.25 + 4.0 + 1.6])
    half = stats.norm.ppf(0.75) * np.sqrt(variance)
    error = np.sqrt(0.75 * 0.25 / 10_000) / stats.norm.pdf(stats.norm.ppf(0.75)) * np.sqrt(variance)
    assert (np.abs(found["upper"] - half) < THRESHOLD * error).all()
    assert (np.abs(found["mean"]) < THRESHOLD * np.sqrt(variance / 10_000)).all()
    both = many.predict(X[[0, 0, 0]], draws=50, groups={"shop": ["new", "other", "new"]})
    assert abs(both["mean"][0] - both["mean"][2]) < 1e-12 and abs(both["mean"][0] - both["mean"][1]) > 1e-6
    long = many.predict(np.tile(X[:1], (9000, 1)), draws=50, groups={"shop": ["new"] * 9000})  # several blocks
    np.testing.assert_allclose(long["mean"], both["mean"][0], rtol=1e-12)
    zero = many.predict(X, new_levels="zero", **options)
    assert (zero["upper"] == 0.0).all()
    with pytest.raises(tb.DataError, match="row 0: 'new' is not among the 7 levels of 'shop'"):
        many.predict(X, new_levels="error", **options)


def test_levels_of_numbers_are_known_by_their_value():
    X, shop, data = data_of(labels=range(LEVELS))
    fit = fit_of(tb.models.logistic(data))
    whole = fit.predict(X, groups={"shop": shop})["mean"]
    for given in (shop.astype(float), shop.astype(str), list(shop)):
        np.testing.assert_array_equal(fit.predict(X, groups={"shop": given}, new_levels="error")["mean"], whole)


@pytest.mark.parametrize(
    "new, options, error, message",
    [
        ("X", {}, tb.DataError, r"give groups=\{'shop': levels\}"),
        ("X", {"groups": {"shp": []}}, tb.DataError, "the model has effects of 'shop'"),
        ("X", {"groups": {"shop": ["a"]}}, tb.DataError, "one level for each of the 90 rows"),
        ("X", {"groups": {"shop": [None] * 90}}, tb.DataError, "row 0: the level of 'shop' is missing"),
        ("X", {"groups": "shop"}, tb.OptionError, "groups must be True or False or a dictionary"),
        ("X", {"groups": {"shop": ["a"] * 90}, "new_levels": "drop"}, tb.OptionError, "unknown new_levels 'drop'"),
        ("table", {}, tb.DataError, "no column 'shop' with the levels"),
        ("table", {"groups": {"shop": []}}, tb.DataError, "columns by name hold them"),
        ("data", {}, tb.DataError, "but the Dataset does not"),
    ],
)
def test_levels_that_are_missing_are_refused(fit, rows, new, options, error, message):
    X = rows[0]
    new = {"X": X, "table": {"one": X[:, 0], "x": X[:, 1]}, "data": tb.Dataset.from_arrays(X, X[:, 0], columns=["one", "x"])}[
        new
    ]
    with pytest.raises(error, match=message):
        fit.predict(new, **options)


def test_checks_and_refusals(fit, slopes, rows):
    check = fit.ppc(rows=40, draws=5)
    assert check.simulated.shape == (5, 40) and set(np.unique(check.simulated)) <= {0.0, 1.0}
    table = slopes[3].ppc(rows=40, draws=5)
    assert table.simulated.shape == (5, 40)
    with pytest.raises(tb.DataError, match="give data= as a Dataset with the groups of the fit"):
        fit.slopes("x", data={"one": [1.0], "x": [0.0]})
    with pytest.raises(tb.ModelError, match="prior_predictive does not support"):
        tb.prior_predictive(tb.models.logistic(rows[2]))


def test_average_effects_include_the_levels(fit, rows, slopes):
    X, shop, _ = rows
    eta = linear(fit, X, shop)
    options = {"rows": 90}
    np.testing.assert_allclose(fit.predictions(**options).posterior[:, 0], EXPIT(eta).mean(0), rtol=1e-10)
    beta = fit.theta.reshape(-1, 3)[:, 1]
    more = (EXPIT(eta + beta) - EXPIT(eta)).mean(0)
    np.testing.assert_allclose(fit.comparisons({"x": 1.0}, **options).posterior[:, 0], more, rtol=1e-10)
    X, shop, _, other = slopes
    slope = linear(other, np.column_stack([np.zeros(90), np.ones(90)]), shop) - linear(other, np.zeros((90, 2)), shop)
    np.testing.assert_allclose(other.slopes("x").posterior[:, 0], slope.mean(0), rtol=1e-6)


def test_average_effects_of_random_slopes_from_a_few_rows():
    X, shop, data = data_of(["1", "x"], n=3000)
    fit = fit_of(tb.models.logistic(data), spread=0.4)
    exact = EXPIT(linear(fit, X + np.array([0.0, 1.0]), shop)) - EXPIT(linear(fit, X, shop))
    whole = fit.comparisons({"x": 1.0}, rows=3000).posterior[:, 0]
    np.testing.assert_allclose(whole, exact.mean(0), rtol=1e-10)
    scores = []
    for seed in range(10):
        table = fit.comparisons({"x": 1.0}, rows=300, seed=seed)
        scores.append((table.posterior[:, 0] - whole) / table["rows_se"][0])
    assert 0.1 < np.abs(scores).mean() < 3.0 and np.abs(np.mean(scores, 0)).max() < THRESHOLD


def test_summaries_of_levels(fit, slopes):
    assert list(fit.summary().index) == ["one", "x", "1|shop_sigma"]
    table, draws = fit.summary("1|shop", prob=0.8), fit.draws("1|shop")
    assert list(table.index) == list("abcdefg") and "7 levels of shop" in repr(table)
    np.testing.assert_allclose(table["mean"], draws.mean((0, 1)))
    np.testing.assert_allclose(table["90%"], np.quantile(draws, 0.9, axis=(0, 1)))
    assert list(slopes[3].summary("shop_corr").index) == ["shop_corr"]
    np.testing.assert_allclose(fit.summary("x").loc["x", "mean"], fit.summary().loc["x", "mean"])
    with pytest.raises(tb.OptionError, match=r"unknown term '1\|sho'"):
        fit.summary("1|sho")


def test_long_tables_of_levels_print_their_ends(fit):
    rng, own = np.random.default_rng(0), fit.levels["1|shop"]
    many = replace(own, labels=np.arange(300), values=rng.standard_normal((CHAINS, DRAWS, 300)))
    table = replace(fit, levels={"1|shop": many}).summary("1|shop")
    text = repr(table).splitlines()
    assert len(text) == 1 + 1 + 21 + 1 and text[-1] == "20 of 300 rows"  # header, columns, rows with dots between, count
    head = repr(table.sort_values("mean").head(3)).splitlines()
    assert len(head) == 4 and "mcse_mean" in head[0] and "..." not in head[0]
    assert len(repr(fit.summary("1|shop")).splitlines()) == 2 + 7 and "<table" in table._repr_html_()


def test_the_intraclass_correlation(fit, slopes):
    tau = fit.draws("1|shop_sigma").reshape(-1) ** 2
    found = fit.icc(prob=0.5).loc["shop"]
    share = tau / (tau + np.pi**2 / 3)
    np.testing.assert_allclose([found["mean"], found["upper"]], [share.mean(), np.quantile(share, 0.75)])
    tau = slopes[3].draws("1|shop_sigma").reshape(-1) ** 2
    np.testing.assert_allclose(slopes[3].icc().loc["shop", "mean"], (tau / (tau + 0.25)).mean())
    _, _, data = data_of(response="real")
    unknown = fit_of(tb.models.gaussian(data))
    tau, sigma = unknown.draws("1|shop_sigma").reshape(-1) ** 2, unknown.draws("sigma").reshape(-1) ** 2
    np.testing.assert_allclose(unknown.icc().loc["shop", "mean"], (tau / (tau + sigma)).mean())
    poisson = fit_of(tb.models.poisson(data_of()[2]))
    with pytest.raises(tb.ModelError, match="depends on the mean of the response"):
        poisson.icc()
    with pytest.raises(tb.ModelError, match="needs a random intercept"):
        fit_of(tb.models.logistic(data_of(["x"])[2])).icc()


def test_plots_of_levels(fit, slopes):
    figure = fit.plot("levels")
    labels = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    order = np.argsort(fit.draws("1|shop").mean((0, 1)))
    assert labels == ["abcdefg"[k] for k in order]
    heights = slopes[3].plot("levels").axes[0].get_gridspec().get_height_ratios()
    assert heights[0] == heights[1] == pytest.approx(1.0 + 0.2 * LEVELS)
    assert len(slopes[3].plot("levels").axes) == 2 and len(slopes[3].plot("levels", names="x|shop").axes) == 1
    own = fit.levels["1|shop"]
    rng = np.random.default_rng(0)
    many = replace(own, labels=np.arange(1000), values=rng.standard_normal((CHAINS, DRAWS, 1000)) + np.linspace(-3, 3, 1000))
    figure = replace(fit, levels={"1|shop": many}).plot("levels")
    left, right = figure.axes
    assert "1,000 levels, 500 of them drawn" in left.get_title() and len(right.get_yticklabels()) == 30
    assert [t.get_text() for t in right.texts] == ["970 more"]
    with pytest.raises(tb.OptionError, match="unknown term with levels 'x'"):
        fit.plot("levels", names="x")
    with pytest.raises(tb.OptionError, match="a plot of levels needs group effects"):
        replace(fit, levels={}).plot("levels")


def test_the_report_shows_levels_folded(fit, tmp_path):
    text = fit.report(tmp_path / "report.html").read_text()
    assert "Group effects" in text and "Intraclass correlation" in text and "7 levels of shop" in text
    assert "<details><summary>1|shop: 7 levels</summary>" in text and 'alt="levels plot"' in text
    assert "y ~ x + (1 | shop)" in text
