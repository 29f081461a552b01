"""Internals of `tallbayes.moves.move`; what users see of it is tested in test_moves.py."""

import importlib
import inspect
import pkgutil
import textwrap
from typing import NamedTuple

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.compile import inlinable
from tallbayes.moves import Move
from tallbayes.moves.move import move, start
from tallbayes.samplers import FullData
from tallbayes.testing import THRESHOLD, invariance_scores

MODULES = {m.name: importlib.import_module(f"tallbayes.moves.{m.name}") for m in pkgutil.iter_modules(tb.moves.__path__)}
hamiltonian, no_u_turn = MODULES["hmc"], MODULES["nuts"]


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


@pytest.mark.parametrize("kind", [None, *MUTANTS], ids=lambda kind: kind.__name__ if kind else "NoUTurn")
def test_mutants_are_rejected_and_the_original_is_not(kind, small):
    original, function = MUTANTS[kind] if kind else (tb.moves.nuts(), no_u_turn._move)
    kernel = kind or no_u_turn.NoUTurn
    start.register(kernel)(hamiltonian._start)
    move.register(kernel)(function)
    sampler = FullData(MutantMove(original, kernel))
    scores = invariance_scores(sampler, small.model, small.posterior, starts=4000, mode=small.mode)
    assert (np.abs(scores).max() > THRESHOLD) == (kind is not None)
