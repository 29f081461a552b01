"""Internals of `tallbayes.schemes.minibatch_gradient`; what users see of it is tested in test_stochastic_gradient.py."""

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.samplers import SGHMC, SGLD, SGNHT, advance, sgld
from tallbayes.schemes.minibatch_gradient import make_controls, measure_noise, noisy_gradient, residual_gradient
from tallbayes.schemes.stochastic_gradient import largest_step
from tallbayes.target import Target, counters
from tallbayes.testing import THRESHOLD


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


def target_of(mode, order, rows="uniform"):
    return Target(mode.model.rows, mode.model.prior_terms, make_controls(mode, order, rows), counters())


FAMILIES = ("logistic", "probit", "poisson", "negbin", "gamma", "gaussian", "student_t", "softmax")


@pytest.mark.parametrize("order", (0, 1, 2))
@pytest.mark.parametrize("name", FAMILIES)
def test_the_gradient_is_unbiased_for_every_family_and_order(name, order):
    """The estimator is linear in the rows drawn: its expectation is the sum of p_i times what row i contributes, exactly."""
    model = made_up(name)
    mode = tb.find_mode(model, progress=False)
    theta = mode.laplace().draw(np.random.default_rng(1), 1)[0]
    exact = mode.factor.T @ model.gradient(theta)[1]
    for rows in ("uniform", "weighted") if name in ("logistic", "softmax") else ("uniform",):
        target = target_of(mode, order, rows)
        scheme, n = target.proxy.scheme, model.data.n
        p = np.full(n, 1.0 / n) if rows == "uniform" else scheme.table.weight / scheme.table.weight.sum()
        total = np.zeros(model.dim)
        for i in range(n):
            residual_gradient(target, np.array([i]), np.array([p[i] * (1.0 / p[i])]), theta, total)
        gradient = mode.factor.T @ total
        white = mode.laplace().whiten(theta)
        proxy = target.proxy.proxy
        assert proxy.order == order
        if order >= 1:
            gradient += proxy.numbers[: model.dim]
        if order >= 2:
            gradient += proxy.numbers[model.dim :].reshape(model.dim, -1) @ white
        prior = np.zeros(model.dim)
        tb.models.priors.prior_gradient(model.prior_terms, theta, prior)
        np.testing.assert_allclose(gradient + mode.factor.T @ prior, exact, rtol=1e-9, atol=1e-9)
        assert target.counters[0] == target.counters[2] == n


@pytest.mark.parametrize("rows", ("uniform", "weighted"))
@pytest.mark.parametrize("order", (0, 1, 2))
def test_minibatch_gradients_have_the_right_mean_and_the_measured_noise(order, rows, small):
    """Many minibatches, interpreted: mean against all rows, covariance against the measured V, halves against its trace."""
    rng = np.random.default_rng(2)
    mode, repeats, subsample = small.mode, 2500, 5
    white = np.array([1.5, -1.0])
    theta = mode.reference + mode.factor @ white
    target = target_of(mode, order, rows)
    estimates, levels = np.empty((repeats, 2)), np.empty(repeats)
    for k in range(repeats):
        levels[k] = noisy_gradient(rng, target, subsample, white, theta, estimates[k])
    exact = mode.factor.T @ small.model.gradient(theta)[1]
    z = (estimates.mean(0) - exact) / (estimates.std(0) / np.sqrt(repeats))
    assert np.abs(z).max() < THRESHOLD
    assert target.counters[0] == repeats * subsample
    spread = ((estimates - exact) ** 2).mean(1)
    gap = levels - spread
    assert abs(gap.mean()) < THRESHOLD * gap.std() / np.sqrt(repeats)
    noise = measure_noise(target, np.tile(theta, (100, 1)), subsample, rng)
    assert abs(noise.levels.mean() - spread.mean()) < THRESHOLD * np.hypot(
        spread.std() / np.sqrt(repeats), noise.levels.std() / 10.0
    )
    direction = noise.vectors[:, -1]
    along = ((estimates - exact) @ direction) ** 2
    assert abs(along.mean() - noise.values[-1]) < 2 * THRESHOLD * along.std() / np.sqrt(repeats)


def test_a_forgotten_factor_of_n_over_m_is_caught(small):
    """The mutant sums residual gradients without n/m: the mean is off."""
    rng = np.random.default_rng(3)
    target = target_of(small.mode, 1)
    theta = small.mode.reference + small.mode.factor @ np.array([1.5, -1.0])
    draws = np.empty((2000, 2))
    for k in range(2000):
        draws[k] = 0.0
        residual_gradient(target, rng.integers(0, 60, 5), np.ones(5), theta, draws[k])
    full = np.zeros(2)
    residual_gradient(target, np.arange(60), np.ones(60), theta, full)
    assert np.abs((draws.mean(0) - full) / (draws.std(0) / np.sqrt(2000))).max() > THRESHOLD


def gaussian_model(rows=300, dim=1, seed=11):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(rows), rng.standard_normal((rows, dim - 1))])
    y = X @ np.ones(dim) + rng.standard_normal(rows)
    return tb.models.gaussian(tb.Dataset.from_arrays(X, y), tb.priors.flat(), sigma=1.0)


def one_step(sampler, mode, starts, seed=0):
    """Whitened ends of one interpreted step from draws of the predicted stationary law."""
    rng = np.random.default_rng(seed)
    setup = sampler.setup(mode.model, mode, seed, False)
    options, target = setup.policy.options(setup.policy.begin(), True), setup.target()
    spread = np.sqrt(sampler.variances(np.zeros(1), sampler.step)[0])
    info = np.zeros((1, len(sampler.columns)))
    ends = mode.laplace().draw(rng, starts, spread)
    for row in ends:
        advance.py_func(rng, target, options, setup.policy.blank(row), True, row[None, :], info, 1)
    return mode.laplace().whiten(ends), spread**2


def test_a_drift_of_the_whole_step_is_caught(monkeypatch):
    """It targets the square of the posterior: half the variance. One step from the right law shows it."""
    mode = tb.find_mode(gaussian_model(rows=20), progress=False)
    sampler = SGLD(order=2, subsample=2, step=0.5)

    def score():
        ends, variance = one_step(sampler, mode, 3000)
        return (np.mean(ends**2) / variance - 1.0) / np.sqrt(2.0 / ends.size)

    assert abs(score()) < THRESHOLD
    monkeypatch.setattr(sgld, "DRIFT", 1.0)
    assert score() < -THRESHOLD


def test_the_mutant_of_the_drift_halves_the_variance():
    """The stationary variance of w' = (1 - drift) w + sqrt(step) xi for a drift of step and of step / 2."""
    step = 1e-3
    assert step / (1.0 - (1.0 - step) ** 2) == pytest.approx(0.5, rel=1e-3)
    assert step / (1.0 - (1.0 - sgld.DRIFT * step) ** 2) == pytest.approx(1.0, rel=1e-3)
    assert SGLD().variances(np.zeros(1), step)[0] == pytest.approx(step / (1.0 - (1.0 - 0.5 * step) ** 2), rel=1e-12)


def test_the_step_rules_agree_with_their_first_order_forms():
    tolerance, noise = 1e-3, np.array([7.0])
    assert SGLD(tolerance=tolerance).step_for(noise) == pytest.approx(4 * tolerance / 8.0, rel=2e-3)
    step = SGHMC(tolerance=tolerance, friction=2.0).step_for(noise)
    assert step * 7.0 / 4.0 + step**2 / 4 == pytest.approx(tolerance, rel=2e-2)
    step = SGNHT(tolerance=tolerance).step_for(noise)
    assert step * (1.0 + 3.5 * step) == pytest.approx(2 * tolerance, rel=2e-2)
    assert largest_step(lambda step: 0.0, 0.1) == 1.0


def test_weighted_rows_have_less_noise():
    X, y = logistic_arrays(2000, (0.0, 1.0, -1.0))
    X[:20] *= 8.0
    mode = tb.find_mode(tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(2.0)), progress=False)
    points = mode.laplace().draw(np.random.default_rng(0), 10)
    for order in (1, 2):
        levels = []
        for rows in ("uniform", "weighted"):
            levels.append(measure_noise(target_of(mode, order, rows), points, 50, np.random.default_rng(1)).values.mean())
        assert levels[1] < 0.9 * levels[0]


def test_control_variates_cut_the_noise(medium):
    mode = tb.find_mode(medium, progress=False)
    points = mode.laplace().draw(np.random.default_rng(0), 5)
    zero, one, two = (
        measure_noise(target_of(mode, order), points, 100, np.random.default_rng(1)).values[-1] for order in (0, 1, 2)
    )
    assert zero == pytest.approx(200.0, rel=0.3)  # n / m
    assert one < 1e-2 * zero and two < 1e-1 * one
