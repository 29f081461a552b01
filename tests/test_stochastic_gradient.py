"""Stochastic gradients: unbiased for every family and order; stationary laws of SGLD, SGHMC and SGNHT against closed forms."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.errors import ModelError, OptionError, TallbayesWarning
from tallbayes.samplers import SGHMC, SGLD, SGNHT, Outcome, advance
from tallbayes.testing import THRESHOLD

CLASSES = (SGLD, SGHMC, SGNHT)
every_class = pytest.mark.parametrize("kind", CLASSES)


def made_up(name, rows=24, seed=5):
    """A small model of a family, with weights and offsets."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(rows), rng.standard_normal(rows)])
    options = {"weights": rng.uniform(0.5, 2.0, rows)}
    if name != "normal":
        options["offset"] = 0.2 * rng.standard_normal(rows)
    y = {
        "logistic": rng.integers(0, 2, rows),
        "probit": rng.integers(0, 2, rows),
        "poisson": rng.poisson(1.5, rows),
        "negbin": rng.poisson(1.5, rows),
        "gamma": rng.gamma(2.0, 1.0, rows),
        "softmax": rng.integers(0, 3, rows),
    }.get(name, rng.standard_normal(rows))
    if name == "softmax":
        y[:3] = [0, 1, 2]
    X = np.ones((rows, 1)) if name == "normal" else X
    data = tb.Dataset.from_arrays(X, y.astype(float), **options)
    family = {"student_t": {"nu": 4.0, "scale": 1.0}, "gamma": {"shape": 2.0}, "negbin": {"size": 3.0}}.get(name, {})
    return tb.models.build(name, data, tb.priors.normal(2.0), **family)


FAMILIES = ("logistic", "probit", "poisson", "negbin", "gamma", "gaussian", "student_t", "softmax")


def gaussian_model(rows=300, dim=1, seed=11):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(rows), rng.standard_normal((rows, dim - 1))])
    y = X @ np.ones(dim) + rng.standard_normal(rows)
    return tb.models.gaussian(tb.Dataset.from_arrays(X, y), tb.priors.flat(), sigma=1.0)


def noise_under(mode, order, subsample, covariance):
    """E V of uniform rows when w has mean 0 and a covariance: exact for a Gaussian model with sigma 1."""
    data = mode.model.data
    x, y = np.asarray(data.records[:, : data.d], float), np.asarray(data.records[:, data.d], float)
    if order == 2:
        return np.zeros((data.d, data.d))
    a, error = x @ mode.factor, y - x @ mode.reference if order == 0 else np.zeros(data.n)
    square = error**2 + ((a @ covariance) * a).sum(1)
    return (data.n * (a * square[:, None]).T @ a - covariance) / subsample


def self_consistent(sampler, mode, subsample, step):
    """Stationary covariance: the closed form at the noise that it itself brings about."""
    d = mode.model.dim
    covariance = np.eye(d)
    for _ in range(200):
        values, vectors = np.linalg.eigh(noise_under(mode, sampler.order, subsample, covariance))
        covariance = (vectors * sampler.variances(np.maximum(values, 0.0), step)) @ vectors.T
    return covariance


def long_run(sampler, mode, iterations, chains, seed=0):
    """Whitened draws (chains, iterations, d) of compiled chains with the options of the beginning, started at the mode."""
    setup = sampler.setup(mode.model, mode, seed, False)
    options, out = setup.policy.options(setup.policy.begin(), True), []
    for c in range(chains):
        theta, info = np.empty((iterations, mode.model.dim)), np.zeros((iterations, len(sampler.columns)))
        rng = np.random.default_rng((seed, c))
        advance(rng, setup.target(), options, setup.policy.blank(mode.reference), True, theta, info, 1)
        out.append(mode.laplace().whiten(theta[iterations // 20 :]))
    return np.stack(out)


def variance_score(white, expected, blocks=25):
    """z of the mean of w_j^2 over blocks of all chains, which are nearly independent, for each coordinate."""
    squares = np.concatenate([np.stack([b.mean(0) for b in np.array_split(chain**2, blocks)]) for chain in white])
    return (squares.mean(0) - expected) / (squares.std(0, ddof=1) / np.sqrt(squares.shape[0]))


RUNS = [
    (SGLD(order=0, subsample=150, step=0.3), 150_000),
    (SGLD(order=1, subsample=3, step=0.3), 300_000),
    (SGLD(order=2, subsample=2, step=0.3), 300_000),
    (SGHMC(order=0, subsample=50, step=0.15, steps=1, friction=1.0), 200_000),
    (SGHMC(order=1, subsample=3, step=0.3, steps=2, friction=1.5), 150_000),
    (SGHMC(order=1, subsample=3, step=0.2, steps=6, refresh=True), 60_000),
]


@pytest.mark.parametrize("sampler, iterations", RUNS, ids=lambda v: f"{v.name}-{v.order}" if hasattr(v, "order") else "")
def test_stationary_variances_are_the_closed_forms_and_not_the_posterior(sampler, iterations):
    mode = tb.find_mode(gaussian_model(dim=2), progress=False)
    expected = np.diag(self_consistent(sampler, mode, sampler.subsample, sampler.step))
    white = long_run(sampler, mode, iterations, 2)
    assert np.abs(variance_score(white, expected)).max() < THRESHOLD
    assert np.abs(variance_score(white, 1.0)).max() > THRESHOLD


def test_the_thermostat_absorbs_noise_and_leaves_its_own_error():
    mode = tb.find_mode(gaussian_model(rows=1000, dim=20), progress=False)
    sampler = SGNHT(order=0, subsample=100, step=0.1)
    expected = np.diag(self_consistent(sampler, mode, 100, 0.1))
    white = long_run(sampler, mode, 80_000, 2)[:, ::5]
    assert np.abs(variance_score(white, expected)).max() < THRESHOLD
    overall = np.sqrt((white**2).mean(-1, keepdims=True))
    assert abs(variance_score(overall, expected.mean())[0]) < THRESHOLD
    assert variance_score(overall, 1.0)[0] < -THRESHOLD
    inflated = SGHMC(order=0, subsample=100, step=0.1).variances(np.full(20, 10.0), 0.1).mean()
    assert inflated > 1.4 > 1.1 > 2.0 - expected.mean()


def test_corrected_noise_removes_the_predicted_inflation():
    mode = tb.find_mode(gaussian_model(dim=2), progress=False)
    plain = long_run(SGLD(order=0, subsample=150, step=0.3), mode, 100_000, 2)
    white = long_run(SGLD(order=0, subsample=150, step=0.3, corrected=True), mode, 100_000, 2)
    assert (plain**2).mean() > 1.2
    assert abs((white**2).mean() - 1.0) < 0.03
    assert np.all(SGLD(corrected=True).variances(np.array([1.0]), 0.3) == 1.0)
    assert np.isinf(SGLD(corrected=True).variances(np.array([100.0]), 0.3)).all()
    momentum = long_run(SGHMC(order=0, subsample=50, step=0.15, steps=1, corrected=True), mode, 100_000, 2)
    assert abs((momentum**2).mean() - 1.0) < 0.04


@every_class
def test_the_step_is_the_largest_within_the_tolerance(kind):
    for noise in (np.zeros(3), np.array([0.1, 0.2, 3.0]), np.full(3, 1000.0)):
        sampler = kind(tolerance=0.05)
        step = sampler.step_for(noise)
        assert sampler.error(noise, step) <= 0.05 < sampler.error(noise, 1.001 * step)
    assert kind(step=0.25).step_for(noise) == 0.25
    assert kind(tolerance=0.01).step_for(noise) < step


def test_refreshed_momenta_with_many_steps_approach_the_dynamics_without():
    """Over a long trajectory a refreshed momentum is forgotten."""
    noise = np.array([0.0, 5.0])
    kept = SGHMC(friction=1.0).variances(noise, 0.05)
    refreshed = SGHMC(friction=1.0, refresh=True, steps=2000).variances(noise, 0.05)
    np.testing.assert_allclose(refreshed, kept, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:the chains disagree")  # so few draws do
def test_a_fit_says_what_noise_and_step_imply(medium):
    fit = tb.sample(medium, SGLD(), draws=300, warmup=200, chains=2, seed=3, progress=False)
    notes = fit.meta["notes"]
    assert notes["predicted error of variances"] == pytest.approx(0.02, rel=0.05)
    assert notes["step"] == pytest.approx(4 * 0.02 / 1.02, rel=0.02) == fit.stats["step"][0, 0]
    assert "predicted error of variances 2 %" in fit.why and "order 2" in fit.why
    assert (fit.evals == 100).all() and "weight" not in fit.stats
    assert all("the chains disagree" in sentence for sentence in fit.meta["warnings"])
    assert fit.audit(medium, pairs=3, repeats=200).passed


@pytest.mark.filterwarnings("ignore:the chains disagree")  # so few draws do
def test_decreasing_steps_weight_the_draws(medium):
    sampler = SGLD(order=2, decay=1 / 3, delay=10.0, step=0.05)
    fit = tb.sample(medium, sampler, draws=300, warmup=0, chains=2, seed=3, progress=False)
    np.testing.assert_allclose(fit.weights, np.tile(0.05 * (1 + np.arange(300) / 10.0) ** (-1 / 3), (2, 1)), rtol=1e-12)
    np.testing.assert_array_equal(fit.weights, fit.stats["step"])
    flat, w = fit.theta.reshape(-1, 2), fit.weights.reshape(-1)
    np.testing.assert_allclose(fit.expect(lambda theta: theta), w @ flat / w.sum())
    assert fit.idata.attrs["weighted"] == 1


def test_noise_without_control_variates_is_called_hopeless(medium):
    with pytest.warns(TallbayesWarning, match="passes over the data"):
        fit = tb.sample(medium, SGLD(order=0), draws=60, warmup=60, chains=1, seed=3, progress=False)
    n, m = 20_000, 100
    assert fit.meta["notes"]["predicted evaluations per effective draw"] == pytest.approx((n + m) / 0.02, rel=0.4)


def test_a_step_too_large_for_the_noise_is_reported(medium):
    with pytest.warns(TallbayesWarning, match="above the tolerance"):
        fit = tb.sample(medium, SGLD(order=0, step=0.01), draws=60, warmup=0, chains=1, seed=3, progress=False)
    assert fit.meta["notes"]["predicted error of variances"] == pytest.approx(0.01 * 200 / 4, rel=0.4)


def test_noise_that_depends_on_theta_is_reported():
    sampler = SGLD(order=1, subsample=2)
    setup = sampler.setup(gaussian_model(dim=2), tb.find_mode(gaussian_model(dim=2), progress=False), 0, False)
    noise = np.full((1, 2000), float(setup.policy.noise.values.mean()))
    stats = {"noise": noise, "step": np.full((1, 2000), setup.policy.step(1.0))}
    assert sampler.diagnose(Outcome(setup, np.zeros((1, 2000, 2)), stats)).warnings == ()
    stats["noise"] = np.where(np.arange(2000) < 1000, 0.2, 1.8) * noise
    assert any(
        "depends on theta" in sentence for sentence in sampler.diagnose(Outcome(setup, np.zeros((1, 2000, 2)), stats)).warnings
    )
    chance = np.random.default_rng(0).chisquare(2, (1, 2000)) / 2 * noise
    stats["noise"] = chance * noise.mean() / chance.mean()
    assert sampler.diagnose(Outcome(setup, np.zeros((1, 2000, 2)), stats)).warnings == ()


def test_a_diverging_chain_stops_with_the_remedy():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(200), rng.standard_normal(200)])
    X[0] = [1.0, 100.0]  # its gradient, drawn once in a hundred steps, overshoots by a factor of 50
    model = tb.models.gaussian(tb.Dataset.from_arrays(X, rng.standard_normal(200)), tb.priors.flat(), sigma=1.0)
    with pytest.raises(ModelError, match="smaller step"):
        tb.sample(model, SGLD(order=1, subsample=2, step=1.0), draws=20_000, warmup=0, chains=1, seed=1, progress=False)


@every_class
@pytest.mark.parametrize(
    "options, words",
    [
        ({"order": 3}, "order must be 0"),
        ({"subsample": 1}, "at least 2"),
        ({"step": 0.0}, "step must be in"),
        ({"tolerance": 0.0}, "tolerance must be in"),
        ({"decay": 1.0}, "decay must be in"),
        ({"delay": 0.0}, "delay must be positive"),
        ({"rows": "some"}, "unknown rows 'some'"),
    ],
)
def test_wrong_options_are_refused(kind, options, words):
    with pytest.raises(OptionError, match=words):
        kind(**options)


def test_wrong_options_of_one_sampler_are_refused():
    for make, words in (
        (lambda: SGHMC(friction=0.0), "friction"),
        (lambda: SGHMC(time=0.0), "time"),
        (lambda: SGHMC(steps=0), "steps"),
        (lambda: SGNHT(injected=0.0), "injected"),
    ):
        with pytest.raises(OptionError, match=words):
            make()


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_means_agree_with_full_data_on_every_family(name):
    model = made_up(name, rows=2000)
    exact = tb.sample(model, "nuts", draws=1000, warmup=500, chains=2, seed=1, progress=False)
    fit = tb.sample(model, SGLD(tolerance=0.05), draws=20_000, warmup=1000, chains=2, seed=1, progress=False)
    sd = exact.theta.std((0, 1))
    error = sd * np.sqrt(1 / exact.ess + 1 / fit.ess)
    assert np.abs((fit.theta.mean((0, 1)) - exact.theta.mean((0, 1))) / error).max() < THRESHOLD
