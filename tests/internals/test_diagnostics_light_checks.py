"""Internals of `tallbayes.diagnostics.light_checks`; what users see of it is tested in test_firefly_warning.py."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.moves.normal_benchmark import least_inefficiency, normal_inefficiency
from tallbayes.samplers import Firefly, Outcome
from tallbayes.testing import effective_sizes


@pytest.mark.parametrize(
    "move, per_dimension",
    [
        (tb.moves.random_walk(acceptance=0.234), 4.0 / (2.38**2 * 0.234)),
        (tb.moves.slice(), 2.0),
        (tb.moves.slice(directions=4), 0.5),
    ],
)
def test_the_inefficiency_on_a_normal_density_is_that_of_theory(move, per_dimension):
    """4 d / (l^2 a) for the random walk (Roberts, Gelman and Gilks 1997); a renewed random direction has correlation 1 - 1/d."""
    for dim in (20, 40, 200):
        expected = per_dimension * dim
        assert expected / 1.25 < normal_inefficiency(move, dim) < expected * 1.25


def test_the_bound_of_theory_is_below_what_is_found():
    for move in (tb.moves.random_walk(), tb.moves.slice(), tb.moves.slice(directions=3), tb.moves.mala()):
        for dim in (1, 2, 7, 50):
            assert least_inefficiency(move, dim) <= normal_inefficiency(move, dim)
    assert normal_inefficiency(tb.moves.random_walk(blocks=[[0], [1]]), 2) is None
    assert normal_inefficiency(tb.moves.independence(), 2) is None


def logistic(n):
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(n), rng.normal(size=n)])
    y = (rng.random(n) < 1 / (1 + np.exp(-X @ [0.2, 0.5]))).astype(float)
    return tb.models.logistic(tb.Dataset.from_arrays(X, y))


def test_it_agrees_with_a_run_on_all_rows():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(2000), rng.normal(size=(2000, 5))])
    y = (rng.random(2000) < 1 / (1 + np.exp(-0.5 * X[:, 1]))).astype(float)
    fit = tb.sample(tb.models.logistic(tb.Dataset.from_arrays(X, y)), "mh", draws=8000, chains=2, seed=1, progress=False)
    found = 16_000 / np.median(effective_sizes(fit.theta))
    assert found == pytest.approx(normal_inefficiency(tb.moves.random_walk(), 6), rel=0.35)


def autoregressive(inefficiency, draws, dim, seed=0):
    """Two chains whose effective size is `draws` / `inefficiency`."""
    rng, rho = np.random.default_rng(seed), (inefficiency - 1.0) / (inefficiency + 1.0)
    theta = np.empty((2, draws, dim))
    theta[:, 0] = rng.normal(size=(2, dim))
    for k in range(1, draws):
        theta[:, k] = rho * theta[:, k - 1] + np.sqrt(1.0 - rho**2) * rng.normal(size=(2, dim))
    return theta


@pytest.mark.parametrize(
    "times, draws, thin, warned",
    [(1.0, 20_000, 1, False), (3.0, 20_000, 1, False), (12.0, 20_000, 1, True), (12.0, 300, 1, False), (3.0, 20_000, 4, True)],
)
def test_more_than_five_times_the_inefficiency_is_warned_of(times, draws, thin, warned):
    """In iterations: with every fourth kept, three times as many draws are twelve times as many iterations."""
    model, sampler = logistic(500), Firefly()
    setup = sampler.setup(model, tb.find_mode(model, progress=False), 0, False)
    theta = autoregressive(times * normal_inefficiency(sampler.move, 2), draws, 2)
    rng = np.random.default_rng(2)
    stats = {"bright": rng.poisson(5.0, (2, draws)).astype(float), "seen": np.full((2, draws), 400.0)}
    stats |= {"darkened": stats["bright"].copy()}
    notes, warnings = sampler.diagnose(Outcome(setup, theta, stats, thin))
    assert len(warnings) == warned
    if warned:
        assert "for the same move on all rows" in warnings[0] and "Raise excess" in warnings[0]
    if draws == 20_000:
        assert notes["theta_IF"] == pytest.approx(thin * times * normal_inefficiency(sampler.move, 2), rel=0.5)
        assert ("normal_IF" in notes) == (notes["theta_IF"] > 20.0)
