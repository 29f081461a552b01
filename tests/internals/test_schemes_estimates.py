"""Internals of `tallbayes.schemes.estimates`; what users see of it is tested in test_hmc_ecs.py."""

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.engine.random_rows import UniformRows
from tallbayes.engine.residuals import control_residuals
from tallbayes.moves.hmc import Hamiltonian, leapfrog
from tallbayes.moves.move import log_density_gradient, move, start
from tallbayes.moves.nuts import NoUTurn
from tallbayes.proxies.difference import PenaltyEstimator, combine, difference, proxy_sum
from tallbayes.samplers import HMCECS, Outcome, resolve
from tallbayes.samplers.full_data import FullPosterior
from tallbayes.samplers.hmc_ecs import SubsamplingOptions, _kernel
from tallbayes.schemes.estimates import EstimatedPosterior, assemble, control_slopes, first_rows, inside, pulled_in
from tallbayes.target import Target, counters
from tallbayes.testing import (
    THRESHOLD,
    exact_posterior,
    invariance_error,
    run_chunks,
    transition_matrix,
)


class Quad(NamedTuple):
    """Two parameters and 200 rows, with the posterior known from a grid."""

    model: tb.models.Model
    mode: object
    posterior: object


@pytest.fixture(scope="module")
def quad():
    X, y = logistic_arrays(200)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(10.0))
    return Quad(model, tb.find_mode(model, progress=False), exact_posterior(model))


def density_of(model, mode, m=12, order=2, seed=0, radius=np.inf):
    target = Target(model.rows, model.prior_terms, difference(mode, order, UniformRows(model.data.n), radius), counters())
    rng = np.random.default_rng(seed)
    rows = first_rows(rng, target, PenaltyEstimator(m, 1), mode.reference)
    return EstimatedPosterior(target, PenaltyEstimator(m, 1), rows, np.zeros(model.dim), np.zeros(4))


@pytest.mark.parametrize("kernel", ["hmc", "nuts"])
def test_a_gaussian_model_with_second_order_proxies_is_exact_hmc(kernel):
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(300), rng.standard_normal((300, 4))])
    model = tb.models.gaussian(tb.Dataset.from_arrays(x, x @ np.arange(5.0) + rng.standard_normal(300)), sigma=1.0)
    mode = tb.find_mode(model, progress=False)
    factor = np.ascontiguousarray(mode.factor)
    built = Hamiltonian(factor, 0.3, 1.2) if kernel == "hmc" else NoUTurn(factor, 0.3, 6)
    estimated, full = density_of(model, mode, m=12), FullPosterior(Target(model.rows, model.prior_terms, None, counters()))
    first = start(built, estimated, mode.reference + factor @ np.ones(5))
    second = start(built, full, mode.reference + factor @ np.ones(5))
    one, two, info = np.random.default_rng(1), np.random.default_rng(1), np.zeros(9)
    for _ in range(20):
        first, second = move(one, built, estimated, first, info), move(two, built, full, second, info)
        np.testing.assert_allclose(first.theta, second.theta, atol=1e-10)
        assert abs(first.log_density - second.log_density) < 1e-8
    assert estimated.marks[2] < 1e-20  # the variance


def energy_error(quad, steps, gradient_of=None, value_of=None, renew=False):
    """|H - H0| after a trajectory of length 1.2 in so many steps, of the estimated posterior or a mutant of it."""
    model, mode = quad.model, quad.mode
    density = density_of(model, mode, m=12, order=1, seed=3)
    rng, factor = np.random.default_rng(5), np.ascontiguousarray(mode.factor)

    class Mutant(NamedTuple):
        inner: EstimatedPosterior

    def evaluate(mutant, theta, gradient):
        if renew:
            density.rows.indices[:] = rng.integers(0, 200, 12)
        value = log_density_gradient(density, theta, gradient)
        if gradient_of is not None:
            gradient[:] = gradient_of(density, theta)
        return value if value_of is None else value_of(theta)

    log_density_gradient.register(Mutant)(evaluate)
    theta = mode.reference + factor @ np.array([1.0, -1.5])
    momentum, gradient, scratch = np.array([0.7, -0.4]), np.empty(2), np.empty(2)
    before = log_density_gradient(Mutant(density), theta, gradient) - 0.5 * momentum @ momentum
    for _ in range(steps):
        value = leapfrog(Mutant(density), factor, 1.2 / steps, theta, momentum, gradient, scratch)
    return abs(value - 0.5 * momentum @ momentum - before)


def test_energy_is_conserved_with_rows_fixed_and_by_no_mutant(quad):
    errors = [energy_error(quad, steps) for steps in (20, 40, 80)]
    assert errors[2] < 1e-3
    assert 3.0 < errors[0] / errors[1] < 5.0 and 3.0 < errors[1] / errors[2] < 5.0  # second order in the step

    def without_variance(density, theta):
        """The gradient of the estimate less that of its variance term."""
        rows, gradient = density.rows, np.empty(2)
        control_slopes(density.target, rows.indices, theta, rows.values, rows.slopes)
        assemble(density.target, density.estimator, rows, theta, gradient, np.zeros(4))
        z = rows.values * rows.scale
        correction = np.zeros(2)
        for k, i in enumerate(rows.indices):
            factor = (z[k] - z.mean()) / z.size**2 * rows.scale[k] * rows.slopes[k, 0]
            correction += factor * quad.model.rows.records[i, :2]
        return gradient + correction

    assert energy_error(quad, 80, gradient_of=without_variance) > 1e-2
    assert energy_error(quad, 80, value_of=quad.model.log_posterior) > 1e-2
    assert energy_error(quad, 80, renew=True) > 1e-2


def test_the_conditional_mass_is_the_curvature_of_the_rows_in_use(quad):
    sampler = HMCECS(order=1, mass="conditional", subsample=30)
    setup = sampler.setup(quad.model, quad.mode, 0, False)
    options, target = setup.policy.options(setup.policy.begin(), True), setup.target()
    rows = first_rows(np.random.default_rng(0), target, options.estimator, quad.mode.reference)
    factor = _kernel(target, options, rows).factor
    x = quad.model.rows.records[rows.indices, :2]
    p = 1 / (1 + np.exp(-x @ quad.mode.reference))
    precision = 200 / 30 * (x.T * (p * (1 - p))) @ x + np.eye(2) / 100
    np.testing.assert_allclose(factor @ factor.T, np.linalg.inv(precision), rtol=1e-9)
    fixed = SubsamplingOptions(options.kernel, options.estimator, np.zeros((0, 0)))
    assert (_kernel(target, fixed, rows).factor == options.kernel.factor).all()


def test_the_stored_estimate_is_that_of_the_state(quad):
    _, info, state = run_chunks(HMCECS(subsample=40, blocks=10), quad.model, quad.mode, [60])
    names = resolve("hmc-ecs").columns
    report = dict(zip(names, info[-1], strict=True))
    values = state["state.rows.values"]
    z = values * state["state.rows.scale"]
    proxy = difference(quad.mode, 2, UniformRows(200), np.inf)
    fresh = control_residuals(quad.model.rows, state["state.rows.indices"], state["state.theta"], quad.mode.reference, 2)
    np.testing.assert_allclose(values, fresh, atol=1e-14)
    total = (
        proxy_sum(proxy, state["state.theta"]) + combine(PenaltyEstimator(40, 10), np.zeros(0, np.int64), z, np.empty(40))[0]
    )
    assert abs(total - report["log_likelihood"]) < 1e-9
    assert abs(total + quad.model.log_prior(state["state.theta"]) - report["lp"]) < 1e-9


def test_beyond_the_wall_the_density_is_zero(quad):
    density = density_of(quad.model, quad.mode, radius=3.0)
    gradient = np.empty(2)
    inner, outer = (quad.mode.reference + r * quad.mode.factor @ np.array([0.6, 0.8]) for r in (2.99, 3.01))
    assert inside(density.target, inner) and not inside(density.target, outer)
    assert np.isfinite(log_density_gradient(density, inner, gradient))
    assert log_density_gradient(density, outer, gradient) == -np.inf and density.marks[3] == 1.0
    assert inside(density.target, pulled_in(density.target, outer))
    assert (pulled_in(density.target, inner) == inner).all()


def test_the_joint_kernel_of_parameter_and_rows_is_exact_by_enumeration():
    """Three states, two rows, m = 2: the pair (theta, u) moves as the block pseudo-marginal sampler moves it."""
    residual = np.array([[0.0, 0.8, -0.5], [0.3, -0.6, 0.9]])  # of two rows at three states
    pairs = list(itertools.product(range(2), repeat=2))

    def estimate(state, u):
        z = 2.0 * residual[list(u), state]
        return math.exp(combine(PenaltyEstimator(2, 2), np.zeros(0, np.int64), z, np.empty(2))[0])

    def outcomes(at, fresh=False):
        state, u = divmod(at, 4)
        here = pairs[u]
        for block, row, other in itertools.product(range(2), range(2), {0, 1, 2} - {state}):
            new = tuple(row if k == block else here[k] for k in range(2))
            for base in pairs if fresh else [here]:  # the mutant estimates the current state anew
                accept = min(1.0, estimate(other, new) / estimate(state, base))
                weight = 0.5 * 0.5 * 0.5 / (4 if fresh else 1)
                yield weight * accept, other * 4 + pairs.index(new)
                yield weight * (1.0 - accept), at

    law = np.array([estimate(s, u) for s in range(3) for u in pairs])
    law /= law.sum()
    assert invariance_error(transition_matrix(12, outcomes), law) < 1e-12
    assert invariance_error(transition_matrix(12, lambda at: outcomes(at, fresh=True)), law) > 1e-4


@pytest.mark.parametrize("thin", [1, 5])
def test_a_round_of_block_updates_renews_the_rows(quad, thin):
    """With every update accepted a share 1/e of the blocks, hence of the autocorrelation, is left after a round."""
    blocks, draws = 10, 4000
    setup = HMCECS(subsample=20, blocks=blocks).setup(quad.model, quad.mode, 0, False)
    rng = np.random.default_rng(0)
    parts, error = rng.standard_normal((2, blocks)), np.empty((2, draws * thin))
    for k in range(draws * thin):
        for chain in range(2):
            parts[chain, rng.integers(blocks)] = rng.standard_normal()
        error[:, k] = parts.sum(1) * math.sqrt(2.0 / blocks)
    theta = quad.mode.laplace().draw(rng, 2 * draws).reshape(2, draws, 2)
    sums = np.array([[proxy_sum(setup.proxy, t) for t in chain] for chain in theta])
    stats = {"variance": np.full((2, draws), 2.0), "u_accepted": np.ones((2, draws)), "wall": np.zeros((2, draws))}
    outcome = Outcome(setup, theta, stats | {"log_likelihood": sums + error[:, ::thin]}, thin)
    notes, told = HMCECS().diagnose(outcome)
    assert not told and notes["renewal_lag"] == blocks // thin
    left = (1.0 - 1.0 / blocks) ** blocks
    assert abs(notes["renewal_autocorrelation"] - left) < THRESHOLD * math.sqrt(2 * blocks / (2 * draws * thin))
    stuck = np.repeat(error[:, : draws // 200], 200, axis=1)
    stats |= {"log_likelihood": sums + stuck, "u_accepted": np.zeros((2, draws))}
    told = HMCECS().diagnose(Outcome(setup, theta, stats, thin)).warnings
    assert len(told) == 1 and "replaced slowly" in told[0]
