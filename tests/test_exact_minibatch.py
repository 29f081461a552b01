"""Exact minibatch Metropolis-Hastings: enumerated, compared with quadrature, started from exact draws, and made to fail."""

import itertools
import math
import re
from functools import cache
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from support import logistic_arrays, run_chunks

import tallbayes as tb
from tallbayes.compile import jit
from tallbayes.engine import passes
from tallbayes.models.base import Model
from tallbayes.moves.proposals import propose
from tallbayes.proxies import remainder
from tallbayes.proxies.remainder import certify, rate_count, row_rate, row_rates, total_rate
from tallbayes.proxies.taylor import proxy_value, unwhiten, whiten
from tallbayes.results.cost import effective_sizes
from tallbayes.run.pack import flatten
from tallbayes.samplers import ExactMinibatch, advance
from tallbayes.samplers.base import init, step
from tallbayes.samplers.exact_minibatch import ALLOWANCE, INFO, MHSS, SMH, Tuna, dominating, thin
from tallbayes.target import BOUND_EXCEEDED, EVALS, ROW, STATUS, Target
from tallbayes.testing import (
    THRESHOLD,
    exact_posterior,
    invariance_error,
    invariance_scores,
    irreducible,
    poisson_outcomes,
    transition_matrix,
)

RATES = ("mh-ss", "tuna", "smh")
every_rate = pytest.mark.parametrize("rate", RATES)
both_stages = pytest.mark.parametrize("two_stage", [True, False], ids=["two stages", "one stage"])


# Enumeration: a few states, a few rows, every auxiliary variable summed out with the functions that the sampler uses.


class Enumerated(NamedTuple):
    """A target with a few states: whitened positions, thetas and the posterior restricted to them."""

    model: Model
    target: Target
    white: np.ndarray
    theta: np.ndarray
    law: np.ndarray


@cache
def enumerated(bound, idle=0, seed=5, columns=2):
    """Three rows with weights and offsets; `idle` rows of zero weight raise n, so that no pair reads all rows."""
    rng = np.random.default_rng(seed)
    rows = 3 + idle
    X = np.vstack([2.0 * rng.standard_normal((3, columns)), np.ones((idle, columns))])
    y, offset = np.arange(rows) % 2.0, np.append(rng.standard_normal(3), np.zeros(idle))
    weights = np.append(rng.uniform(0.5, 3.0, 3), np.zeros(idle))
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y, offset, weights), tb.priors.cauchy(2.0))
    mode = tb.find_mode(model, progress=False)
    target = ExactMinibatch(bound=bound).setup(model, mode, 0, False).target()
    certified = certify(mode, bound, indexed=True)[0]
    target = target._replace(proxy=target.proxy._replace(bound=certified))
    white = 1.2 * rng.standard_normal((4, columns))
    theta = np.empty_like(white)
    for w, t in zip(white, theta, strict=True):
        unwhiten(target.proxy.whitening, w, t)
    log_law = np.array([model.log_posterior(t) for t in theta])
    law = np.exp(log_law - log_law.max())
    return Enumerated(model, target, white, theta, law / law.sum())


PROPOSALS = {
    "symmetric": np.array([[0.1, 0.3, 0.2, 0.4], [0.3, 0.2, 0.4, 0.1], [0.2, 0.4, 0.1, 0.3], [0.4, 0.1, 0.3, 0.2]]),
    "asymmetric": np.array([[0.1, 0.5, 0.1, 0.3], [0.2, 0.2, 0.5, 0.1], [0.6, 0.1, 0.1, 0.2], [0.1, 0.2, 0.3, 0.4]]),
}


def first_ratio(case, i, j):
    """What the proxy and the prior say of i -> j."""

    def surrogate(k):
        return proxy_value(case.target.proxy.proxy, case.white[k]) + case.model.log_prior(case.theta[k])

    return surrogate(j) - surrogate(i)


def pair_rates(case, i, j):
    bound = case.target.proxy.bound
    rates = np.zeros(rate_count(bound))
    total = total_rate(bound, case.white[i], case.white[j], rates)
    return total, np.array([row_rate(bound, rates, row) for row in range(case.model.data.n)])


def residual_outcomes(case, rate, i, j, thin=thin, decides=None):
    """Probabilities and log ratios of all that i -> j can read; kept rows are independent Poisson counts."""
    n, reference = case.model.data.n, case.target.proxy.whitening.reference
    total, limit = pair_rates(case, i, j)
    expected = dominating(rate, total)
    gap = passes.residuals_at(case.model.rows, np.arange(n), case.theta[i], case.theta[j], reference)
    assert (np.abs(gap) <= limit * (1.0 + 1e-9) + ALLOWANCE).all()
    if not (expected if decides is None else decides(case, rate, i, j)) < n:
        proxies = [proxy_value(case.target.proxy.proxy, case.white[k]) for k in (i, j)]
        values = [passes.total_value(case.model.rows, case.theta[k]) for k in (i, j)]
        return np.ones(1), np.array([values[1] - values[0] - (proxies[1] - proxies[0])])
    probability, ratio = np.ones(1), np.zeros(1)
    for row in np.flatnonzero(limit):
        keep, contribution = thin(rate, min(1.0, max(-1.0, -gap[row] / limit[row])), total)
        outcomes = np.array(list(poisson_outcomes(expected * limit[row] / total * keep)))
        added = np.where(outcomes[:, 1] > 0, np.multiply(outcomes[:, 1], contribution, where=outcomes[:, 1] > 0, out=np.zeros(len(outcomes))), 0.0)
        probability = (probability[:, None] * outcomes[:, 0]).reshape(-1)
        ratio = (ratio[:, None] + added).reshape(-1)
        likely = probability > 1e-20
        probability, ratio = probability[likely], ratio[likely]
    return probability, ratio


def acceptance(case, rate, two_stage, i, j, proposals=0.0, reuse=False, **changes):
    """Probability that a proposed i -> j is accepted."""
    first = first_ratio(case, i, j) + proposals
    probability, ratio = residual_outcomes(case, rate, i, j, **changes)
    if two_stage:
        second = ratio + first if reuse else ratio
        return math.exp(min(0.0, first)) * (probability @ np.exp(np.minimum(0.0, second)))
    return probability @ np.exp(np.minimum(0.0, first + ratio))


def kernel(case, rate, two_stage, proposals, **changes):
    """The transition matrix on the states."""

    def outcomes(i):
        stay = 1.0
        for j in range(len(case.white)):
            if i != j:
                log_ratio = math.log(proposals[j, i] / proposals[i, j])
                moved = proposals[i, j] * acceptance(case, rate, two_stage, i, j, log_ratio, **changes)
                yield moved, j
                stay -= moved
        yield stay, i

    return transition_matrix(len(case.white), outcomes)


def options_of(rate, chi=0.4):
    return {"mh-ss": MHSS(), "tuna": Tuna(chi), "smh": SMH()}[rate]


def full_reads(case, rate):
    pairs = itertools.permutations(range(len(case.white)), 2)
    return [not dominating(rate, pair_rates(case, i, j)[0]) < case.model.data.n for i, j in pairs]


@pytest.mark.parametrize("proposals", PROPOSALS)
@both_stages
@every_rate
@pytest.mark.parametrize("idle", [0, 200], ids=["some pairs read all rows", "none does"])
@pytest.mark.parametrize("bound", ["T2", "T6", "T7", "T9"])
def test_the_enumerated_kernel_keeps_the_posterior(bound, idle, rate, two_stage, proposals):
    case = enumerated(bound, idle)
    matrix = kernel(case, options_of(rate), two_stage, PROPOSALS[proposals])
    assert invariance_error(matrix, case.law) < 1e-12
    assert irreducible(matrix) and np.diag(matrix).max() < 0.99
    flow = case.law[:, None] * matrix
    assert np.abs(flow - flow.T).max() < 1e-12
    assert any(full_reads(case, options_of(rate))) == (idle == 0)


def test_some_pairs_of_the_enumeration_do_not_read_all_rows():
    for bound in ("T6", "T9"):
        for rate in RATES:
            assert not all(full_reads(enumerated(bound), options_of(rate)))


def test_the_three_rates_are_three_kernels():
    case = enumerated("T9", 200)
    rates = [np.trace(kernel(case, options_of(rate), False, PROPOSALS["symmetric"])) for rate in RATES]
    assert rates[1] < rates[0] < rates[2]  # tuna with a large chi accepts most, smh least


def wrong_sign(rate, share, total):
    return thin(rate, -share, total)


@both_stages
@every_rate
def test_the_sign_of_the_residual_matters(rate, two_stage):
    case = enumerated("T9", 200)
    matrix = kernel(case, options_of(rate), two_stage, PROPOSALS["symmetric"], thin=wrong_sign)
    assert invariance_error(matrix, case.law) > 1e-3


@every_rate
@pytest.mark.parametrize("idle", [0, 200])
def test_the_plain_ratio_in_the_second_stage_fails(rate, idle):
    case = enumerated("T6", idle)
    assert invariance_error(kernel(case, options_of(rate), True, PROPOSALS["symmetric"], reuse=True), case.law) > 1e-3


@both_stages
def test_the_proposal_ratio_matters(two_stage):
    case = enumerated("T6", 200)

    def symmetric_in_error(i):
        stay, proposals = 1.0, PROPOSALS["asymmetric"]
        for j in range(4):
            if i != j:
                moved = proposals[i, j] * acceptance(case, MHSS(), two_stage, i, j)
                yield moved, j
                stay -= moved
        yield stay, i

    assert invariance_error(transition_matrix(4, symmetric_in_error), case.law) > 1e-3


def anchored(first, second):
    """g on a grid of directions that starts at `first`: valid both ways, not the same both ways."""
    length = math.sqrt(first @ first)
    along = second @ first / length
    across = math.sqrt(max(0.0, second @ second - along**2))
    angle = np.arange(48) * math.pi / 48
    return remainder.PAD * np.abs((along * np.cos(angle) + across * np.sin(angle)) ** 3 - (length * np.cos(angle)) ** 3).max()


@both_stages
@pytest.mark.parametrize("rate", ["mh-ss", "tuna"])
def test_a_grid_anchored_at_the_current_position_fails(rate, two_stage, monkeypatch):
    """Its g is a valid bound, but 0.3 % larger one way than the other: no longer the same kernel seen from both ends."""
    case = enumerated("T6", 200)
    assert invariance_error(kernel(case, options_of(rate), two_stage, PROPOSALS["symmetric"]), case.law) < 1e-14
    monkeypatch.setattr(remainder, "angular", anchored)
    assert invariance_error(kernel(case, options_of(rate), two_stage, PROPOSALS["symmetric"]), case.law) > 1e-7


def one_sided(case, rate, i, j):
    """A rate from the current position alone."""
    return dominating(rate, 2.0 * pair_rates(case, i, i)[0])


@both_stages
@every_rate
def test_reading_all_rows_must_not_depend_on_the_direction(rate, two_stage):
    case = enumerated("T2")  # whose rate is a sum of cubes of the two positions
    matrix = kernel(case, options_of(rate), two_stage, PROPOSALS["symmetric"], decides=one_sided)
    assert invariance_error(matrix, case.law) > 1e-4


# The step itself against the enumeration.


class Forced(NamedTuple):
    """Proposes one position, whatever the present one, with a symmetric ratio."""

    white: np.ndarray


@propose.register(Forced)
def _forced(rng, kernel, white, proposal):
    proposal[:] = kernel.white
    return 0.0, 0


class Options(NamedTuple):
    """Those of the sampler, with a forced proposal."""

    kernel: Forced
    rate: tuple
    two_stage: bool


@jit
def decisions(rng, target, options, theta, out):
    """What independent steps from theta report: accepted, first stage passed, rows."""
    state, info = init(rng, target, options, theta), np.zeros(8)
    for k in range(out.shape[0]):
        step(rng, target, options, state, info)
        out[k, 0], out[k, 1], out[k, 2] = info[0], info[3], info[5]


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "interpreted"])
@every_rate
def test_the_step_accepts_as_enumerated(rate, compiled):
    case, rate = enumerated("T9", 200), options_of(rate)
    rng = np.random.default_rng(8)
    run, steps = (decisions, 200_000) if compiled else (decisions.py_func, 3000)
    told_apart = 0
    for i, j in ((0, 1), (1, 0), (3, 2), (2, 3)):
        for two_stage in (True, False):
            options = tb.samplers.exact_minibatch.MinibatchOptions(Forced(case.white[j]), rate, two_stage)
            out = np.empty((steps, 3))
            run(rng, case.target, options, case.theta[i], out)
            wanted = acceptance(case, rate, two_stage, i, j)
            error = math.sqrt(wanted * (1.0 - wanted) / steps)
            assert abs(out[:, 0].mean() - wanted) < THRESHOLD * error
            expected = dominating(rate, pair_rates(case, i, j)[0])
            passed = math.exp(min(0.0, first_ratio(case, i, j))) if two_stage else 1.0
            assert abs(out[:, 2].mean() - passed * expected) < THRESHOLD * math.sqrt(passed * (expected + expected**2) / steps)
            wrong = acceptance(case, rate, two_stage, i, j, thin=wrong_sign)
            told_apart += abs(out[:, 0].mean() - wrong) > THRESHOLD * error
        assert case.target.counters[STATUS] == 0
    assert told_apart >= (8 if compiled else 4)
