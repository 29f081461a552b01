"""Mode jumping leaves the posterior invariant, shares of modes included. Truth: quadrature in one dimension."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.samplers import ModeJumping
from tallbayes.testing import effective_sizes


def two_sided(n=20, nu=2.0, scale=0.5, centre=3.0, seed=0):
    rng = np.random.default_rng(seed)
    y = np.r_[rng.normal(-centre, 1.0, n // 2), rng.normal(centre, 1.0, n // 2)]
    return tb.models.student_t(tb.Dataset.from_arrays(np.ones((n, 1)), y), nu=nu, scale=scale)


def exact(model, grid):
    """Masses of the cells around the points of a grid."""
    heights = np.array([model.log_posterior(np.array([g])) for g in grid])
    mass = np.exp(heights - heights.max())
    return mass / mass.sum()


GRID = np.linspace(-8.0, 8.0, 8001)


def deviation(fit, mass):
    """The largest standardised error of the shares of five regions, two of them on each side of zero."""
    theta = fit.theta[:, :, 0]
    worst = 0.0
    for low, high in ((-9.0, -2.9), (-2.9, 0.0), (0.0, 2.6), (2.6, 2.9), (2.9, 9.0)):
        inside = ((theta > low) & (theta <= high)).astype(float)
        truth = mass[(low < GRID) & (high >= GRID)].sum()
        size = effective_sizes(inside[:, :, None])[0]
        worst = max(worst, abs(inside.mean() - truth) / np.sqrt(truth * (1 - truth) / size))
    return worst


def sampled(model, sampler=None, seed=3, draws=20_000):
    return tb.sample(model, sampler or ModeJumping(), draws=draws, warmup=500, chains=2, seed=seed, progress=False)


@pytest.mark.parametrize("options", [{}, {"two_stage": False}, {"jump": 0.9}], ids=str)
def test_shares_of_modes_and_of_their_parts_are_those_of_quadrature(options):
    model = two_sided()
    fit = sampled(model, ModeJumping(**options))
    assert fit.meta["notes"]["changes_of_mode"] > 1000 and fit.meta["warnings"] == []
    assert deviation(fit, exact(model, GRID)) < 5.0
    assert fit.evals.mean() < model.data.n


def changed_setup(sampler, change):
    """The sampler with its setup changed: a mutant."""

    class Mutant(type(sampler)):
        def prepare(self, model, mode, seed, progress):
            setup = super().prepare(model, mode, seed, progress)
            return type(setup)(setup.model, setup.policy, change(setup.proxy), setup.why, setup.notes)

    return Mutant()


MUTANTS = {
    "level forgotten": lambda homes: homes._replace(weights=homes.weights * [[0.0], [1.0], [1.0]]),
    "weights of one direction": lambda homes: homes._replace(weights=np.array([*homes.weights[:2], [0.2, 1.0]])),
    "determinants forgotten": lambda homes: homes._replace(
        weights=homes.weights + np.array([[0.0, 0.0], [0.0, 0.7], [0.0, 0.0]])
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mistake_in_what_is_known_of_the_modes_is_seen(mutant):
    model = two_sided()
    assert deviation(sampled(model, changed_setup(ModeJumping(), MUTANTS[mutant])), exact(model, GRID)) > 8.0


def test_residuals_of_both_modes_decide():
    """Few rows and heavy tails: residuals are large. Without those of the mode that is left the shares are off by 20 standard errors."""
    model = two_sided(n=6, nu=1.5, scale=0.4)
    assert deviation(sampled(model, draws=40_000), exact(model, GRID)) < 5.0


def test_a_model_without_a_bound_reads_all_rows():
    y = np.random.default_rng(2).normal(9.0, 1.0, 30)
    data = tb.Dataset.from_arrays(np.ones((30, 1)), y)
    model = tb.models.from_jax(
        lambda theta, row: -0.5 * (row["y"] - theta[0] ** 2) ** 2, data, prior=tb.priors.normal(10.0), dim=1
    )
    fit = tb.sample(model, draws=300, warmup=100, chains=2, seed=1, progress=False)
    assert fit.meta["sampler_name"] == "mode-jumping" and "reads all rows" in fit.why
    assert fit.meta["notes"]["changes_of_mode"] > 30 and fit.meta["warnings"] == []
    assert abs((fit.theta > 0).mean() - 0.5) < 0.25


def test_with_one_mode_it_is_exact_minibatch():
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(5_000), rng.standard_normal(5_000)])
    model = tb.models.logistic(tb.Dataset.from_arrays(X, rng.random(5_000) < 1 / (1 + np.exp(-X[:, 1]))))
    fit = tb.sample(model, "mode-jumping", draws=1_000, chains=2, seed=1, progress=False)
    assert (fit.stats["home"] == 0).all() and "one mode" in fit.why
    assert (
        np.abs((fit.theta.mean((0, 1)) - fit.laplace_mean) / np.sqrt(np.diag(fit.laplace_factor @ fit.laplace_factor.T))).max()
        < 0.2
    )


@pytest.mark.parametrize("jump", [0.0, 1.0, -0.5])
def test_jump_is_a_probability(jump):
    with pytest.raises(tb.OptionError, match="jump must be between 0 and 1"):
        ModeJumping(jump=jump)
