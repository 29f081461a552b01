"""Predictive checks of censored times: estimates against direct computation, calibration under the model, and what they find."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.results.survival_checks import Curve, censored_alike, censoring_times, draw_from, draw_limits, kaplan_meier

FAMILIES = {
    "weibull": lambda rng, n: np.log(rng.standard_exponential(n)),
    "loglogistic": lambda rng, n: rng.logistic(size=n),
    "lognormal": lambda rng, n: rng.standard_normal(n),
}
THETA = np.array([0.5, 0.4, np.log(0.6)])


def observed(family, seed, n=400, limit="uniform", theta=THETA):
    """Rows of the model with known parameters; limits are uniform, one fixed end of study, or shorter for large x."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    times = np.exp(theta[0] + theta[1] * x + np.exp(theta[2]) * FAMILIES[family](rng, n))
    limits = {"uniform": rng.uniform(0.5, 6.0, n), "fixed": np.full(n, 2.5), "by x": np.where(x > 0, 1.5, 4.0)}[limit]
    y = tb.data.censored(np.minimum(times, limits), times <= limits)
    return tb.Dataset.from_arrays(np.column_stack([np.ones(n), x]), y, columns=["Intercept", "x"])


def fit_at(data, family, theta=THETA, draws=50):
    """A fit whose draws are these parameters: an exact posterior would only blur what is tested."""
    model = tb.models.build(family, data, tb.priors.normal(3.0))
    fit = tb.sample(model, "hmc", draws=4, warmup=100, chains=1, seed=1, progress=False)
    fit.theta = np.tile(theta, (1, draws, 1))
    fit.stats = {}
    return fit


@pytest.mark.parametrize("seed", range(5))
def test_the_estimates_are_products_over_distinct_times(seed):
    """Row by row, with many ties: events at t come before what is censored at t."""
    rng = np.random.default_rng(seed)
    y = rng.integers(1, 8, 60) * np.where(rng.random(60) < 0.6, 1.0, -1.0)
    where = np.linspace(0.0, 9.0, 37)
    survival, uncensored = [], []
    for t in where:
        events, lost = np.unique(y[(y > 0) & (y <= t)]), np.unique(-y[(y < 0) & (-y <= t)])
        survival.append(np.prod([1 - (y == s).sum() / (np.abs(y) >= s).sum() for s in events]))
        uncensored.append(np.prod([1 - (y == -s).sum() / ((np.abs(y) >= s) & (y != s)).sum() for s in lost]))
    assert kaplan_meier(y).at(where) == pytest.approx(np.array(survival))
    assert censoring_times(y).at(where) == pytest.approx(np.array(uncensored))


def test_without_censoring_the_estimate_is_the_empirical_survival():
    y = np.random.default_rng(0).standard_exponential(200)
    where = np.linspace(0, 4, 50)
    assert kaplan_meier(y).at(where) == pytest.approx((y[None] > where[:, None]).mean(1))


def test_times_are_drawn_from_the_rest_of_a_curve():
    curve = Curve(np.array([1.0, 2.0, 4.0]), np.array([0.8, 0.5, 0.2]))
    limits = draw_from(curve, np.tile([0.5, 2.0, 3.0, 5.0], 40_000), np.random.default_rng(0)).reshape(-1, 4)
    assert np.isinf(limits[:, 3]).all()
    expected = {0: (0.2, 0.3, 0.3, 0.2), 1: (0.0, 0.3 / 0.8, 0.3 / 0.8, 0.25), 2: (0.0, 0.0, 0.6, 0.4)}
    for column, law in expected.items():
        for value, p in zip((1.0, 2.0, 4.0, np.inf), law, strict=True):
            share = (limits[:, column] == value).mean()
            assert abs(share - p) <= 4.9 * np.sqrt(p * (1 - p) / 40_000), (column, value)


def test_limits_are_those_of_rows_with_a_similar_score():
    """Rows of low score are censored at 1 and those of high score at 5; events that no censored row outlived go to all rows."""
    rng = np.random.default_rng(0)
    n = 1000
    score = rng.permutation(n).astype(float)
    high = score >= n / 2
    times = rng.uniform(0.0, 2.0, n) + 4.0 * high * (rng.random(n) < 0.5)
    y = tb.data.censored(np.minimum(times, np.where(high, 5.0, 1.0)), times <= np.where(high, 5.0, 1.0))
    limits = draw_limits(y, score, rng)
    assert (limits >= np.abs(y)).all() and (limits[y < 0] == -y[y < 0]).all()
    assert (limits[~high] == 1.0).all() and (limits[high] == 5.0).all()
    alone = draw_limits(np.where(high, np.abs(y), y), score, rng)  # nobody of high score is censored
    assert np.isinf(alone[high & (np.abs(y) > 1.0)]).all()
    early = alone[high & (np.abs(y) < 1.0)]
    assert set(early) == {1.0, np.inf} and (alone[~high] == limits[~high]).all()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("limit", ["uniform", "fixed", "by x"])
def test_simulated_times_are_censored_alike(family, limit):
    data = observed(family, 1, limit=limit)
    check = fit_at(data, family).ppc(rows=400, draws=60, seed=3)
    y = data.y[check.rows]
    assert (check.observed == y).all() and check.simulated.shape == (60, 400)
    known = y < 0
    assert (np.abs(check.simulated[:, known]) <= -y[known]).all()  # nobody is observed longer than the limit
    own = check.simulated[:, known]
    assert (own[own < 0] == np.tile(y[known], (60, 1))[own < 0]).all()
    lost = -check.simulated[check.simulated < 0]
    assert np.isin(lost, -y[known]).all() and lost.size > 0
    assert check.curve.survival == pytest.approx(kaplan_meier(y).survival)
    assert check.curves.shape == (60, check.curve.times.size)


@pytest.mark.parametrize("limit", ["uniform", "fixed", "by x"])
def test_p_values_are_those_of_chance_under_the_model(limit):
    """Over data sets from the model p-values have the mean one half, also if censoring depends on x; under a wrong model they do not."""
    good, wrong = [], []
    for seed in range(60):
        data = observed("weibull", seed, limit=limit)
        fit = fit_at(data, "weibull")
        for theta, found in ((THETA, good), (np.add(THETA, (0.25, 0.0, 0.0)), wrong)):
            fit.theta = np.tile(theta, (1, 50, 1))
            p = fit.ppc(rows=400, draws=40, seed=seed).statistics["p"]
            p.index = [name.partition(" up to")[0] for name in p.index]
            found.append([p.iloc[0], p.iloc[1], p["mean time"], p["last event"]])
    error = 4.9 * np.sqrt(1 / 12 / 60)
    assert (np.abs(np.mean(good, 0) - 0.5) < error).all()
    assert np.mean(wrong, 0)[2] > 0.95


def test_reading_censored_times_as_events_is_found():
    """A negative control: the same times with every row an event."""
    check = fit_at(observed("weibull", 4), "weibull").ppc(rows=400, draws=60)
    assert check.statistics["p"].iloc[2] > 0.005
    ended = type(check)(check.observed, np.abs(check.simulated), check.rows)
    assert ended.statistics["p"].iloc[2] == 0.0 and ended.surprises


def test_a_wrong_family_is_found():
    rng = np.random.default_rng(3)
    n = 4000
    x = rng.standard_normal(n)
    times = np.exp(0.5 + 0.4 * x) * rng.standard_exponential(n) ** 0.3
    limits = rng.uniform(0.5, 4.0, n)
    y = tb.data.censored(np.minimum(times, limits), times <= limits)
    data = tb.Dataset.from_arrays(np.column_stack([np.ones(n), x]), y)
    found = {}
    for family in ("weibull", "lognormal"):
        model = tb.models.build(family, data, tb.priors.normal(3.0))
        fit = tb.sample(model, draws=100, warmup=200, chains=2, seed=1, progress=False)
        found[family] = fit.ppc(rows=4000, draws=60).statistics["p"]
    assert "no event until" in " ".join(found["weibull"].index)
    assert found["weibull"].drop(["first event", "last event"]).between(0.005, 0.995).all()
    assert ((found["lognormal"] < 0.005) | (found["lognormal"] > 0.995)).any()


def test_uncensored_times_have_the_check_of_numbers():
    data = tb.Dataset.from_arrays(np.ones((50, 1)), np.random.default_rng(0).standard_exponential(50), columns=["Intercept"])
    fit = fit_at(data, "weibull", np.array([0.0, 0.0]))
    assert "mean" in fit.ppc().statistics.index and fit.ppc().observed.min() > 0


def test_no_event_at_all_and_no_simulated_one():
    limits = np.linspace(0.5, 1.0, 50)
    check = censored_alike(-limits, np.full((5, 50), 7.0), np.zeros((5, 50)), np.arange(50), "posterior", np.arange(5))
    assert (check.simulated == -limits).all() and "first event" not in check.statistics.index
    assert "simulations" in repr(check) and (check.curve.at(np.array([1.0])) == 1.0).all() and check.curves.shape == (5, 0)
    some = censored_alike(-limits, np.full((5, 50), 0.1), np.zeros((5, 50)), np.arange(50), "posterior", np.arange(5))
    assert (some.simulated == 0.1).all() and (some.statistics["p"] == 0.0).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_plot_draws_the_curves(family, tmp_path):
    data = observed(family, 2)
    fit = fit_at(data, family)
    figure = fit.plot("ppc", tmp_path / "ppc.png", prob=0.8)
    axis, check = figure.axes[0], fit.ppc()
    lines = {line.get_label(): line for line in axis.lines}
    x, shown = lines["observed (Kaplan-Meier)"].get_data()
    assert shown == pytest.approx(check.curve.at(x)) and (np.diff(shown) <= 0).all()
    x, marks = lines["censored"].get_data()
    assert np.isin(x, -check.observed[check.observed < 0]).all() and marks == pytest.approx(check.curve.at(np.asarray(x)))
    band = next(c for c in axis.collections if "80 %" in str(c.get_label()))
    ends = np.quantile(check.survival_at(np.array([1.0])), (0.1, 0.9))
    path = band.get_paths()[0].vertices
    near = path[np.abs(path[:, 0] - 1.0) < 0.02, 1]
    assert near.min() <= ends[0] + 0.02 and near.max() >= ends[1] - 0.02
    assert axis.get_ylabel() == "share without an event" and (tmp_path / "ppc.png").stat().st_size > 10_000


def test_prior_predictive_of_censored_times():
    data = observed("weibull", 6)
    check = tb.prior_predictive(tb.models.weibull(data, tb.priors.normal(0.3)), draws=30)
    assert check.kind == "prior" and "prior predictive" in repr(check)
    assert (np.abs(check.simulated[:, check.observed < 0]) <= -check.observed[check.observed < 0]).all()
