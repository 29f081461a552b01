"""The contract of a move, run for every move of the package: invariance, two speeds, chunks; and mutants that must fail."""

import importlib
import inspect
import math
import pkgutil
import textwrap
from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import kstest, multivariate_t, norm
from scipy.stats import t as student
from support import logistic_arrays

import tallbayes as tb
from tallbayes.compile import inlinable
from tallbayes.errors import OptionError
from tallbayes.moves import MOVES, PROPOSALS, Move
from tallbayes.moves.move import log_density_gradient, move, start
from tallbayes.moves.proposals import propose
from tallbayes.samplers import FullData
from tallbayes.testing import THRESHOLD, invariance_scores, run_chunks

MODULES = {m.name: importlib.import_module(f"tallbayes.moves.{m.name}") for m in pkgutil.iter_modules(tb.moves.__path__)}
CASES = {
    **{name: make() for name, make in MOVES.items()},
    "random_walk-blocks": tb.moves.random_walk(blocks=[[1], [0]]),
    "random_walk-isotropic": tb.moves.random_walk(isotropic=True),
    "mala-isotropic": tb.moves.mala(isotropic=True),
    "hmc-diagonal": tb.moves.hmc(mass="diagonal"),
    "independence": tb.moves.independence(),
    "independence-t": tb.moves.independence(df=4),
    "pcn": tb.moves.pcn(),
}
hamiltonian, no_u_turn = MODULES["hmc"], MODULES["nuts"]

every_move = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def test_every_move_of_the_package_has_a_name():
    kinds = {kind for module in MODULES.values() for kind in vars(module).values() if inspect.isclass(kind)}
    concrete = {kind for kind in kinds if issubclass(kind, Move) and not inspect.isabstract(kind)}
    assert {"random_walk", "hmc", "nuts"} <= set(MOVES)
    assert {kind.name for kind in concrete} == {*MOVES, *PROPOSALS, "surrogate"}
    assert all(MOVES[kind.name]() == kind() for kind in concrete if kind.name in MOVES)


@every_move
def test_exact_draws_stay_exact(case, small):
    scores = invariance_scores(FullData(case), small.model, small.posterior, mode=small.mode)
    assert np.abs(scores).max() < THRESHOLD


@every_move
def test_a_tempered_target_is_rejected(case, small):
    scores = invariance_scores(FullData(case), small.tempered, small.posterior, mode=small.mode, starts=12_000)
    assert np.abs(scores).max() > THRESHOLD


@pytest.fixture(scope="module")
def thirty():
    model = tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(30)), tb.priors.normal(2.0))
    return model, tb.find_mode(model, progress=False)


@every_move
def test_compiled_and_interpreted_draw_the_same(case, thirty):
    theta, info, state = run_chunks(FullData(case), *thirty, [20])
    interpreted, interpreted_info, interpreted_state = run_chunks(FullData(case), *thirty, [20], compiled=False)
    assert np.unique(theta, axis=0).shape[0] > 5
    np.testing.assert_allclose(theta, interpreted, rtol=0, atol=1e-10)
    np.testing.assert_allclose(info, interpreted_info, rtol=0, atol=1e-8)
    for name, value in state.items():
        np.testing.assert_allclose(value, interpreted_state[name], rtol=0, atol=1e-8)


@every_move
def test_chunks_never_change_draws(case, small):
    whole, whole_info, whole_state = run_chunks(FullData(case), small.model, small.mode, [20])
    parts, parts_info, parts_state = run_chunks(FullData(case), small.model, small.mode, [7, 13])
    np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(whole_info, parts_info)
    for name, value in whole_state.items():
        np.testing.assert_array_equal(value, parts_state[name])


@every_move
def test_what_is_reported_belongs_to_the_draw(case, small):
    theta, info, _ = run_chunks(FullData(case), small.model, small.mode, [50])
    report = dict(zip(FullData(case).columns, info.T, strict=True))
    np.testing.assert_allclose(report["lp"], [small.model.log_posterior(t) for t in theta], rtol=1e-12)
    assert (report["acceptance_rate"] > 0.0).any() and (report["acceptance_rate"] <= 1.0).all()
    assert (report["n_steps"] >= 1).all() and not report["diverging"].any()
    assert (report["n_steps"] < 2.0 ** (report["tree_depth"] + 1)).all() or case.name != "nuts"


def test_a_hopeless_step_is_reported_as_diverging_and_never_taken(small):
    for case in (tb.moves.hmc(), tb.moves.nuts()):
        kernel = case.kernel(1e6 * small.mode.covariance, 1e3)
        density = tb.samplers.full_data.FullPosterior(FullData(case).setup(small.model, small.mode, 0, False).target())
        point = start(kernel, density, small.mode.reference)
        info = np.zeros(5)
        moved = move(np.random.default_rng(0), kernel, density, point, info)
        np.testing.assert_array_equal(moved.theta, small.mode.reference)
        assert info[3] == 1.0 and info[1] < 1e-6


@pytest.mark.parametrize("make", [tb.moves.random_walk, tb.moves.mala])
def test_isotropic_steps_have_one_scale_that_the_narrow_directions_set(make):
    covariance = np.array([[9.0, 1.0, 0.0], [1.0, 0.01 + 1.0 / 9.0, 0.0], [0.0, 0.0, 1.0]])
    factor, shaped = make(isotropic=True).kernel(covariance, 0.5).factor, make().kernel(covariance, 0.5).factor
    scale = (3.0 / (1.0 / np.linalg.eigvalsh(covariance)).sum()) ** 0.5
    unit = 0.5 * 2.38 / 3.0**0.5 if make is tb.moves.random_walk else 1.0
    np.testing.assert_allclose(factor, np.full((1, 3), unit * scale), atol=1e-12)  # a diagonal
    np.testing.assert_allclose(shaped @ shaped.T, unit**2 * covariance, atol=1e-12)


@pytest.mark.parametrize("make", [tb.moves.random_walk, tb.moves.mala])
def test_a_diagonal_factor_moves_like_the_same_matrix(make, small):
    density = tb.samplers.full_data.FullPosterior(FullData(make()).setup(small.model, small.mode, 0, False).target())
    kernel = make(isotropic=True).kernel(small.mode.covariance, 0.7)
    whole = kernel._replace(factor=np.diag(kernel.factor[0]))
    begun, travelled = start(kernel, density, small.mode.reference), 0
    for seed in range(10):
        own, other = (move(np.random.default_rng(seed), k, density, begun, np.zeros(5)) for k in (kernel, whole))
        np.testing.assert_array_equal(own.theta, other.theta)
        assert own.log_density == other.log_density
        travelled += (own.theta != begun.theta).any()
    assert travelled > 0


def test_isotropic_blocks_have_a_scale_each():
    covariance = np.array([[4.0, 1.0, 0.5], [1.0, 2.0, 0.3], [0.5, 0.3, 1.0]])
    kernel, precision = (
        tb.moves.random_walk(blocks=[[0, 2], [1]], isotropic=True).kernel(covariance, 1.0),
        np.linalg.inv(covariance),
    )
    pair, single = (2.0 / (precision[0, 0] + precision[2, 2])) ** 0.5 * 2.38 / 2**0.5, precision[1, 1] ** -0.5 * 2.38
    np.testing.assert_allclose(kernel.factor, np.diag([pair, single, pair]), atol=1e-12)


def test_isotropic_is_a_switch_that_whitened_proposals_refuse():
    for make in (tb.moves.random_walk, tb.moves.mala):
        with pytest.raises(OptionError, match="isotropic must be True"):
            make(isotropic="yes")
    with pytest.raises(OptionError, match="whitened by the Laplace fit"):
        tb.samplers.Austerity(move=tb.moves.random_walk(isotropic=True)).check()


@pytest.mark.parametrize("proposal", [tb.moves.independence(), tb.moves.pcn(0.7), tb.moves.pcn(0.7, share=0.3)], ids=repr)
def test_the_ratio_of_a_proposal_is_that_of_its_densities(proposal):
    kernel, rng, white = proposal.kernel(np.eye(2), 0.9), np.random.default_rng(4), np.array([0.4, -1.3])
    used = set()
    for _ in range(30):
        other = np.empty(2)
        ratio, component = propose(rng, kernel, white, other)
        used.add(component)
        centre, sd = (proposal.rho, (1 - proposal.rho**2) ** 0.5) if component == 0 else (1.0, 0.9 * 2.38 / 2**0.5)
        backward, forward = norm(centre * other, sd).logpdf(white).sum(), norm(centre * white, sd).logpdf(other).sum()
        assert abs(ratio - (backward - forward)) < 1e-12
        assert np.abs((other - centre * white) / sd).max() < 6.0
    assert used == {0, 1}


def test_the_ratio_of_heavy_tailed_proposals_is_that_of_their_densities():
    kernel, rng, white = (
        tb.moves.independence(share=1.0, df=3).kernel(np.eye(2), 1.0),
        np.random.default_rng(4),
        np.array([0.4, -1.3]),
    )
    law, others = multivariate_t(np.zeros(2), np.eye(2), df=3), np.empty((2000, 2))
    for other in others:
        ratio, component = propose(rng, kernel, white, other)
        assert component == 0 and abs(ratio - (law.logpdf(white) - law.logpdf(other))) < 1e-10
    assert kstest(others[:, 0], student(3).cdf).pvalue > 1e-5


def test_heavy_tailed_proposals_without_their_ratio_are_rejected(small, monkeypatch):
    class Careless(NamedTuple):
        df: float

    @propose.register(Careless)
    def _careless(rng, kernel, white, proposal):
        spread = math.sqrt(kernel.df / rng.chisquare(kernel.df))
        for j in range(white.size):
            proposal[j] = spread * rng.standard_normal()
        return 0.0, 0

    proposals = MODULES["proposals"]
    monkeypatch.setattr(proposals, "HeavyTailed", Careless)
    try:
        scores = invariance_scores(
            FullData(tb.moves.independence(df=4)), small.model, small.posterior, mode=small.mode, starts=12_000
        )
    finally:
        propose.registry.pop(Careless)
    assert np.abs(scores).max() > THRESHOLD


@pytest.mark.parametrize("df", [0.0, -1.0, np.inf, np.nan])
def test_degrees_of_freedom_that_make_no_sense_are_refused(df):
    with pytest.raises(OptionError, match="degrees of freedom"):
        tb.moves.independence(df=df)
    with pytest.raises(OptionError, match="rho must be 0"):
        tb.moves.PROPOSALS["independence-t"](rho=0.5)


class Banana(NamedTuple):
    """log pi = -x^2 / 2 - (y - x^2)^2 / 2 - y^4 / 40: curved, and not symmetric."""


@log_density_gradient.register(Banana)
def _banana(density, theta, gradient):
    x, y = theta
    gradient[0] = -x + 2.0 * x * (y - x * x)
    gradient[1] = -(y - x * x) - y**3 / 10.0
    return -0.5 * x * x - 0.5 * (y - x * x) ** 2 - y**4 / 40.0


FACTOR = np.array([[0.9, 0.0], [-0.4, 1.3]])
PHASE = np.array([0.7, -0.3, 0.5, 1.1])  # position and momentum


def flow(phase, steps, step, leapfrog=hamiltonian.leapfrog):
    """Position and momentum after leapfrog steps on the banana, and the energy there."""
    theta, momentum, gradient, scratch = phase[:2].copy(), phase[2:].copy(), np.empty(2), np.empty(2)
    value = log_density_gradient(Banana(), theta, gradient)
    for _ in range(steps):
        value = leapfrog(Banana(), FACTOR, step, theta, momentum, gradient, scratch)
    return np.concatenate([theta, momentum]), 0.5 * momentum @ momentum - value


def returned(leapfrog=hamiltonian.leapfrog):
    """Where a trajectory comes back to when its momentum is turned round."""
    turn = np.array([1.0, 1.0, -1.0, -1.0])
    there, _ = flow(PHASE, 9, 0.2, leapfrog)
    return turn * flow(turn * there, 9, 0.2, leapfrog)[0]


def test_leapfrog_is_reversible():
    np.testing.assert_allclose(returned(), PHASE, rtol=0, atol=1e-12)


def test_leapfrog_preserves_volume():
    width = 1e-5
    columns = [(flow(PHASE + width * e, 9, 0.2)[0] - flow(PHASE - width * e, 9, 0.2)[0]) / (2 * width) for e in np.eye(4)]
    jacobian = np.column_stack(columns)
    assert np.abs(jacobian - np.eye(4)).max() > 0.5
    assert abs(np.linalg.det(jacobian) - 1.0) < 1e-7


def test_leapfrog_is_of_second_order():
    _, exact = flow(PHASE, 0, 0.0)
    coarse, fine = (abs(flow(PHASE, round(1.2 / step), step)[1] - exact) for step in (0.02, 0.01))
    assert 3.8 < coarse / fine < 4.2


def mutated(function, change=None, **replaced):
    """The function with one piece of its source, or some of the functions that it calls, replaced."""
    source = textwrap.dedent(inspect.getsource(function))
    if change is not None:
        assert source.count(change[0]) == 1
        source = source.replace(*change)
    namespace = {**function.__globals__, **replaced}
    exec(source[source.index("def ") :], namespace)
    return namespace[function.__name__]


HALF_KICK = """    kick(factor, step, gradient, momentum, scratch)
    return value
"""
CHECK = ("if not _subtrees_straight(momenta, sums, leaf):", "if False:")
KEEP = (
    """        if not straight:
            break
""",
    """        if not straight:
            if math.log(1.0 - rng.random()) < new_weight - log_weight:
                chosen = candidate
            break
""",
)


class UnkickedLeapfrog(NamedTuple):
    """Hamiltonian with a leapfrog that lacks its final half-kick."""

    factor: np.ndarray
    step: float
    time: float


class UncheckedSubtrees(NamedTuple):
    """NoUTurn that tests the criterion on the whole tree only."""

    factor: np.ndarray
    step: float
    max_depth: int


class KeptSubtree(NamedTuple):
    """NoUTurn that takes draws from a new half that turned inside."""

    factor: np.ndarray
    step: float
    max_depth: int


unkicked = inlinable(mutated(hamiltonian.leapfrog, (HALF_KICK, "    return value\n")))
MUTANTS = {
    UnkickedLeapfrog: (tb.moves.hmc(), mutated(hamiltonian._move, leapfrog=unkicked)),
    UncheckedSubtrees: (tb.moves.nuts(), mutated(no_u_turn._move, CHECK)),
    KeptSubtree: (tb.moves.nuts(), mutated(no_u_turn._move, KEEP)),
}


class MutantMove(Move):
    """A move of the package with another kernel, and a step that needs deep trees."""

    name = "mutant"

    def __init__(self, original, kind):
        object.__setattr__(self, "original", original)
        object.__setattr__(self, "kind", kind)

    def kernel(self, covariance, step):
        return self.kind(*self.original.kernel(covariance, step))

    def first_step(self, dim):
        return 0.5

    def target_acceptance(self, dim):
        return 0.8


def test_leapfrog_without_its_final_half_kick_is_not_reversible():
    assert np.abs(returned(unkicked) - PHASE).max() > 0.01


@pytest.mark.parametrize("kind", [None, *MUTANTS], ids=lambda kind: kind.__name__ if kind else "NoUTurn")
def test_mutants_are_rejected_and_the_original_is_not(kind, small):
    original, function = MUTANTS[kind] if kind else (tb.moves.nuts(), no_u_turn._move)
    kernel = kind or no_u_turn.NoUTurn
    start.register(kernel)(hamiltonian._start)
    move.register(kernel)(function)
    sampler = FullData(MutantMove(original, kernel))
    scores = invariance_scores(sampler, small.model, small.posterior, starts=4000, mode=small.mode)
    assert (np.abs(scores).max() > THRESHOLD) == (kind is not None)
