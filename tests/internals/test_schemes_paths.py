"""Internals of `tallbayes.schemes.paths`; what users see of it is tested in test_zigzag.py."""

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.bounds.slopes import slope_rate
from tallbayes.samplers import ZigZag, advance
from tallbayes.schemes import paths
from tallbayes.schemes.minibatch_gradient import residual_gradient
from tallbayes.schemes.paths import candidate_time, path_square, squared_radius
from tallbayes.target import STATUS
from tallbayes.testing import THRESHOLD, exact_posterior, moment_scores


def skewed(rows=12, prior=None, weights=None):
    """A few rows: the posterior is far from normal, so that residuals of rows matter."""
    X, y = logistic_arrays(rows, (-1.0, 1.5), seed=4)
    return tb.models.logistic(tb.Dataset.from_arrays(X, y, weights=weights), prior or tb.priors.normal(2.0))


def test_candidate_times_solve_their_equation():
    rng = np.random.default_rng(2)
    for _ in range(200):
        d = int(rng.integers(1, 6))
        white, velocity = 2.0 * rng.standard_normal(d), rng.choice([-1.0, 1.0], d)
        square, cross, horizon = white @ white, white @ velocity, 0.5
        t = horizon * rng.random()
        assert squared_radius(square, cross, d, t) == pytest.approx(((white + velocity * t) ** 2).sum(), rel=1e-12)
        level = path_square(square, cross, d, t)
        assert candidate_time(level, square, cross, d, horizon) == pytest.approx(t, abs=1e-9)
        assert candidate_time(path_square(square, cross, d, horizon) * 1.01, square, cross, d, horizon) == horizon
        grid = (np.arange(20_000) + 0.5) * t / 20_000
        mean = ((white[:, None] + velocity[:, None] * grid) ** 2).sum(0).mean()
        assert level == pytest.approx(t * mean, rel=1e-6)


def interpreted_scores(starts=2500, time=1.5):
    """Invariance scores of interpreted paths from exact draws; None if a certificate failed."""
    model = skewed(rows=8)
    mode = tb.find_mode(model, progress=False)
    posterior = exact_posterior(model, points=301, width=12.0)
    sampler, rng = ZigZag(interval=time), np.random.default_rng(0)
    setup = sampler.setup(model, mode, 0, False)
    options, target = setup.policy.options(setup.policy.begin(), True), setup.target()
    ends, info = posterior.draw(rng, starts), np.zeros((1, len(sampler.columns)))
    for row in ends:
        advance.py_func(rng, target, options, setup.policy.blank(row), True, row[None, :], info, 1)
        if target.counters[STATUS]:
            return None
    return moment_scores(ends, posterior)


def test_the_interpreted_path_keeps_the_law_and_mutants_are_caught(monkeypatch):
    assert np.abs(interpreted_scores()).max() < THRESHOLD

    def caught():
        scores = interpreted_scores()
        return scores is None or np.abs(scores).max() > THRESHOLD

    with monkeypatch.context() as patch:  # rows never read: the law is the Laplace fit
        patch.setattr(paths, "slope_rate", lambda bound, reach, rates: 0.0)
        assert caught()
    with monkeypatch.context() as patch:  # the wrong half of the gradients turns
        original = paths.upper_times

        def reversed_sign(factor, vector, out):
            original(factor, vector, out)
            out *= -1.0

        patch.setattr(paths, "upper_times", reversed_sign)
        assert caught()


def test_coordinates_turn_at_their_rates_and_not_without_the_root_of_d(monkeypatch):
    """At one point, turns of each coordinate by candidates, against the sum of (v_k dR_ik)^+ over all rows.

    The mutant leaves sqrt(d) out of the rate of candidates: the coordinates of a gradient add up to more than its length.
    """
    X, y = logistic_arrays(30, (-0.5, 1.0, -1.0, 0.5), seed=2)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.cauchy(1.0))
    mode = tb.find_mode(model, progress=False)
    setup = ZigZag(bound="T6").setup(model, mode, 0, False)
    options, target, d = setup.policy.options(setup.policy.begin(), True), setup.target(), 4
    white, velocity = np.array([1.0, -0.8, 1.2, 0.9]), np.array([1.0, -1.0, 1.0, -1.0])
    theta, exact = mode.reference + mode.factor @ white, np.zeros(d)
    for i in range(30):
        raw = np.zeros(d)
        residual_gradient(target, np.array([i]), np.ones(1), theta, raw)
        exact += np.maximum(0.0, -velocity * (mode.factor.T @ raw))
    for j in range(d):
        part = np.empty(d)
        paths.prior_residual(options.prior, j, theta, part)
        exact += np.maximum(0.0, -velocity * part)
    rates, prior_rate = np.zeros(2), options.prior.weight.sum()
    data_rate = slope_rate(target.proxy.bound, 3.0, rates)

    def worst(count=15_000):
        rng, turned = np.random.default_rng(5), np.zeros(d)
        for _ in range(count):
            moved = velocity.copy()
            paths.turn(rng, target, options, rates, data_rate, prior_rate, white, moved, np.zeros(5))
            turned += moved != velocity
        whole = 3.0 * paths.spread(d) * (data_rate + prior_rate) * (white @ white)
        share = exact / whole
        return np.abs((turned / count - share) / np.sqrt(share * (1 - share) / count)).max()

    assert worst() < THRESHOLD
    monkeypatch.setattr(paths, "spread", lambda d: 1.0)
    assert worst() > THRESHOLD
