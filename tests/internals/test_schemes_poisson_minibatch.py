"""Internals of `tallbayes.schemes.poisson_minibatch`."""

import itertools
import math
from functools import cache
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom
from support import logistic_arrays

import tallbayes as tb
from tallbayes.bounds import pair_functions, tables
from tallbayes.bounds.bound import certificate_of
from tallbayes.bounds.catalogue import certify
from tallbayes.bounds.tables import rate_count, row_rate, row_rates, total_rate
from tallbayes.compile import jit
from tallbayes.contract import init, step
from tallbayes.engine import passes
from tallbayes.engine.rounding import ALLOWANCE
from tallbayes.models import Model
from tallbayes.moves.proposals import propose
from tallbayes.proxies.taylor import proxy_value, reference_of, unwhiten, whiten
from tallbayes.run.flattening import flatten
from tallbayes.samplers import ExactMinibatch, advance
from tallbayes.samplers.exact_minibatch import MinibatchOptions
from tallbayes.schemes import poisson_minibatch
from tallbayes.schemes.poisson_minibatch import MHSS, SMH, Tuna, dominating, tail_excess, tail_excesses, thin
from tallbayes.shards import Partitions
from tallbayes.target import BOUND_EXCEEDED, EVALS, ROW, STATUS, Target
from tallbayes.testing import (
    THRESHOLD,
    counting_rows,
    exact_posterior,
    invariance_error,
    invariance_scores,
    irreducible,
    poisson_outcomes,
    run_chunks,
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


# a handful of rows can be separated by a column; the enumeration does not mind
pytestmark = pytest.mark.filterwarnings("ignore:column 'x1' separates the response")


@cache
def enumerated(bound, idle=0):
    """Three rows with weights and offsets; `idle` rows of zero weight raise n, so that no pair reads all rows."""
    rng = np.random.default_rng(46)  # rates from 0.3 to 7; T7 and T9 take each of their forms for some pair
    X, y = np.ones((3 + idle, 2)), np.zeros(3 + idle)
    X[:3], y[0] = rng.standard_normal((3, 2)), 1.0
    offset, weights = np.zeros(3 + idle), np.zeros(3 + idle)
    offset[:3] = rng.standard_normal(3) - 2.0
    weights[:3] = rng.uniform(0.5, 1.0, 3) * np.array([2.0, 20.0, 10.0])
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y, offset, weights), tb.priors.cauchy(2.0))
    mode = tb.find_mode(model, progress=False)
    target = ExactMinibatch(bound=bound).setup(model, mode, 0, False).target()
    certified = certify(mode, bound, indexed=True)[0]
    target = target._replace(proxy=target.proxy._replace(bound=certified))
    white = 1.2 * rng.standard_normal((4, 2))
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


def poisson_law(rate):
    """(probability, count) of all counts that matter; rounding may keep the sum of probabilities short of one for ever."""
    return np.array(list(itertools.takewhile(lambda outcome: outcome[1] <= rate or outcome[0] > 1e-17, poisson_outcomes(rate))))


def residual_outcomes(case, rate, i, j, thin=thin, decides=None):
    """Probabilities and log ratios of all that i -> j can read; kept rows are independent Poisson counts."""
    n, reference = case.model.data.n, reference_of(case.target.proxy.whitening)
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
        outcomes = poisson_law(expected * limit[row] / total * keep)
        added = np.array([count * contribution if count else 0.0 for count in outcomes[:, 1]])
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


def options_of(rate, chi=0.1):
    return {"mh-ss": MHSS(), "tuna": Tuna(chi), "smh": SMH()}[rate]


def full_reads(case, rate):
    pairs = itertools.permutations(range(len(case.white)), 2)
    return [not dominating(rate, pair_rates(case, i, j)[0]) < case.model.data.n for i, j in pairs]


@pytest.mark.parametrize("proposals", PROPOSALS)
@both_stages
@every_rate
@pytest.mark.parametrize("idle", [0, 200], ids=["some pairs read all rows", "none does"])
@pytest.mark.parametrize("bound", ["T2", "T6", "T7", "T9", "T10"])
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


@pytest.mark.parametrize("rate", [MHSS(), SMH(), Tuna(0.0), Tuna(0.3)], ids=repr)
def test_rates_of_the_two_directions_differ_by_the_residual(rate):
    """phi(theta, theta') - phi(theta', theta) = dU, 0 <= phi <= the dominating rate: all that exactness asks of a rate."""
    for total in (1e-9, 0.3, 40.0):
        scale = dominating(rate, total) / total
        for share in (-1.0, np.nextafter(-1.0, 0.0), -0.4, -1e-9, 0.0, 1e-9, 0.4, np.nextafter(1.0, 0.0), 1.0):
            (forward, ratio), (backward, inverse) = thin(rate, share, total), thin(rate, -share, total)
            assert 0.0 <= forward <= 1.0
            assert abs(scale * (forward - backward) - share) < 1e-15 * (1.0 + scale)
            if forward > 0.0:
                assert ratio == -np.inf if backward == 0.0 else abs(math.exp(ratio) * forward - backward) < 1e-14
            if forward > 0.0 and backward > 0.0:
                assert ratio == -inverse


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
    return (
        pair_functions.PAD * np.abs((along * np.cos(angle) + across * np.sin(angle)) ** 3 - (length * np.cos(angle)) ** 3).max()
    )


@both_stages
@pytest.mark.parametrize("rate", ["mh-ss", "tuna"])
def test_a_grid_anchored_at_the_current_position_fails(rate, two_stage, monkeypatch):
    """Its g is a valid bound, but 0.3 % larger one way than the other: no longer the same kernel seen from both ends."""
    case = enumerated("T6", 200)
    assert invariance_error(kernel(case, options_of(rate), two_stage, PROPOSALS["symmetric"]), case.law) < 1e-14
    monkeypatch.setattr(tables, "angular", anchored)
    assert invariance_error(kernel(case, options_of(rate), two_stage, PROPOSALS["symmetric"]), case.law) > 1e-7


def one_sided(case, rate, i, j):
    """A rate from the current position alone."""
    return dominating(rate, 2.0 * pair_rates(case, i, i)[0])


@both_stages
@every_rate
def test_reading_all_rows_must_not_depend_on_the_direction(rate, two_stage):
    case = enumerated("T2")  # whose rate is a sum of cubes of the two positions
    matrix = kernel(case, options_of(rate), two_stage, PROPOSALS["asymmetric"], decides=one_sided)
    assert invariance_error(matrix, case.law) > 1e-3


# The step itself against the enumeration.


class Forced(NamedTuple):
    """Proposes one position, whatever the present one, with a symmetric ratio."""

    white: np.ndarray


@propose.register(Forced)
def _forced(rng, kernel, white, proposal):
    proposal[:] = kernel.white
    return 0.0, 0


@jit
def decisions(rng, target, options, theta, out):
    """What independent steps from theta report: accepted, first stage passed, rows."""
    state, info = init(rng, target, options, theta), np.zeros(8)
    for k in range(out.shape[0]):
        step(rng, target, options, state, info)
        out[k, 0], out[k, 1], out[k, 2] = info[0], info[3], info[5]


def surprise(successes, trials, probability):
    """Two-sided probability of a number of successes as extreme as this one."""
    law = binom(trials, min(1.0, probability))
    return 2.0 * min(law.cdf(successes), law.sf(successes - 1))


@pytest.mark.parametrize(
    "rate, compiled",
    [*itertools.product(RATES, [False]), ("mh-ss", True), ("tuna", True), pytest.param("smh", True, marks=pytest.mark.slow)],
)
def test_the_step_accepts_as_enumerated(rate, compiled):
    rng, rate = np.random.default_rng(8), options_of(rate)
    run, steps = (decisions, 30_000) if compiled else (decisions.py_func, 1500)
    pairs = list(itertools.permutations(range(4), 2)) if compiled else [(0, 1), (2, 3)]
    told_apart = []
    for idle, (i, j), two_stage in itertools.product((200, 0) if compiled else (200,), pairs, (True, False)):
        case = enumerated("T9", idle)
        out = np.empty((steps, 3))
        run(rng, case.target, MinibatchOptions(Forced(case.white[j]), rate, two_stage), case.theta[i], out)
        accepted = int(out[:, 0].sum())
        assert surprise(accepted, steps, acceptance(case, rate, two_stage, i, j)) > 1e-6
        expected = dominating(rate, pair_rates(case, i, j)[0])
        passed = math.exp(min(0.0, first_ratio(case, i, j))) if two_stage else 1.0
        rows, square = (expected, expected + expected**2) if expected < case.model.data.n else (3.0, 9.0)
        error = math.sqrt(max(0.0, passed * square - (passed * rows) ** 2) / steps)
        assert abs(out[:, 2].mean() - passed * rows) <= THRESHOLD * error + 1e-9
        if idle:
            told_apart.append(surprise(accepted, steps, acceptance(case, rate, two_stage, i, j, thin=wrong_sign)) < 1e-6)
        assert case.target.counters[STATUS] == 0
    assert np.mean(told_apart) > 0.7


# Invariance from exact draws.


def watched(sampler, model, posterior):
    """z-scores of an invariance test, and the counters of its target; the run must not have been stopped."""
    setup = sampler.setup(model, tb.find_mode(model, progress=False), 0, False)
    target = setup.target()
    object.__setattr__(setup, "target", lambda: target)  # one target for all chains, to look at its counters
    stand_in = SimpleNamespace(setup=lambda *_: setup, columns=sampler.columns)
    scores = invariance_scores(stand_in, model, posterior, mode=object(), steps=20)
    assert target.counters[STATUS] == 0
    return np.abs(scores).max(), target.counters


MOVES = {"independence": tb.moves.independence(), "pcn": tb.moves.pcn(0.6), "random walk": tb.moves.random_walk()}
SOME = [
    ("mh-ss", "T6", True, "independence"),
    ("tuna", "T9", True, "random walk"),
    ("smh", "T6", False, "pcn"),
]
ALL = [
    pytest.param(*case, marks=pytest.mark.slow)
    for case in itertools.product(RATES, ("T6", "T9"), (True, False), MOVES)
    if case not in SOME
]


@pytest.mark.parametrize("rate, bound, two_stage, move", SOME + ALL)
def test_exact_draws_stay_exact_and_tempered_ones_do_not(rate, bound, two_stage, move, small):
    sampler = ExactMinibatch(rate, MOVES[move], bound, two_stage)
    score, counters = watched(sampler, small.model, small.posterior)
    assert score < THRESHOLD and counters[EVALS] > 10_000
    score, _ = watched(sampler, small.tempered, small.posterior)
    assert score > THRESHOLD


def counts_model(power=1.0):
    rng = np.random.default_rng(31)
    X, offset = np.column_stack([np.ones(40), rng.standard_normal(40)]), np.log(rng.uniform(0.5, 4.0, 40))
    y, weights = rng.poisson(np.exp(X @ [-0.5, 0.6] + offset)).astype(float), rng.gamma(1.0, 1.0, 40)
    weights[3] = 0.0
    return tb.models.poisson(tb.Dataset.from_arrays(X, y, offset, power * weights), tb.priors.laplace(2.0))


def test_exact_draws_of_counts_with_offsets_and_weights_stay_exact():
    posterior = exact_posterior(counts_model(), points=161, width=10.0)
    score, counters = watched(ExactMinibatch(), counts_model(), posterior)
    assert score < THRESHOLD and counters[EVALS] > 10_000
    score, _ = watched(ExactMinibatch(), counts_model(1.1), posterior)
    assert score > THRESHOLD


def normal_model(sigma, power=1.0):
    rng = np.random.default_rng(13)
    X = rng.standard_normal((25, 1)) if sigma is None else np.column_stack([np.ones(25), rng.standard_normal(25)])
    y, offset, weights = X[:, 0] + rng.standard_normal(25), rng.standard_normal(25), rng.gamma(3.0, 0.5, 25)
    return tb.models.gaussian(tb.Dataset.from_arrays(X, y, offset, power * weights), tb.priors.cauchy(1.0), sigma)


@pytest.mark.parametrize("sigma", [None, pytest.param(0.8, marks=pytest.mark.slow)], ids=["unknown sigma", "known sigma"])
def test_gaussian_draws_stay_exact_and_read_no_row(sigma):
    model = normal_model(sigma)
    posterior = exact_posterior(model, points=161, width=10.0)
    score, counters = watched(ExactMinibatch(), model, posterior)
    assert score < THRESHOLD and counters[EVALS] == 0
    score, _ = watched(ExactMinibatch(), normal_model(sigma, 1.1), posterior)
    assert score > THRESHOLD
    fit = tb.sample(model, ExactMinibatch(), draws=200, warmup=100, chains=2, seed=1, progress=False)
    assert fit.evals.sum() == 0 and np.unique(fit.theta[0, :, 0]).size > 50
    assert ("sufficient statistics" in fit.why) == (sigma is None)


# Long runs against quadrature.


def errors_of(fit, posterior, batches=25):
    """Errors of means and variances against exact ones, and their standard errors from batches of the chains."""
    chains, draws, d = fit.theta.shape
    centred = fit.theta[:, : draws // batches * batches].reshape(chains * batches, -1, d) - posterior.mean
    parts = np.concatenate([centred.mean(1), (centred**2).mean(1) - np.diag(posterior.covariance)], axis=1)
    return parts.mean(0), parts.std(0, ddof=1) / math.sqrt(chains * batches)


# The hard error.


def test_the_row_that_is_named_is_the_row_that_failed(small):
    """One row alone has too small a bound; it is read with others."""
    sampler = ExactMinibatch(bound="T1", two_stage=False)
    setup = sampler.setup(small.model, small.mode, 0, False)
    culprit = int(np.argmax(setup.proxy.bound.table.weight))
    setup.proxy.bound.table.weight[culprit] *= 1e-3  # after its alias table was built, so that it is still drawn
    options = setup.policy.options(setup.policy.begin(), True)
    rows = []
    for seed in range(30):
        target, state = setup.target(), setup.policy.blank(small.mode.reference)
        theta, info = np.empty((10_000, 2)), np.zeros((10_000, len(sampler.columns)))
        _, made = advance(np.random.default_rng(seed), target, options, state, True, theta, info, 1)
        assert made < 10_000 and target.counters[STATUS] == BOUND_EXCEEDED and target.counters[ROW] == culprit
        rows.append(report_of(sampler, info)["rows"][made])
    assert max(rows) > 2


def test_a_residual_that_is_not_a_number_is_an_error_too(small, monkeypatch):
    sampler = ExactMinibatch(bound="T6")
    setup = sampler.setup(small.model, small.mode, 0, False)
    target, options = setup.target(), setup.policy.options(setup.policy.begin(), True)
    monkeypatch.setattr(poisson_minibatch, "residual_gaps", lambda target, index, theta, other, out: out.fill(np.nan))
    theta, info = np.empty((2000, 2)), np.zeros((2000, len(sampler.columns)))
    state = setup.policy.blank(small.mode.reference)
    _, made = advance.py_func(np.random.default_rng(1), target, options, state, True, theta, info, 1)
    assert made < 2000 and target.counters[STATUS] == BOUND_EXCEEDED


def within_bounds(mode, bound, pairs, allowance=ALLOWANCE):
    """Whether all rows of all pairs are within their bounds, as the sampler checks the rows that it reads."""
    model = mode.model
    rates, limit = np.zeros(rate_count(bound)), np.empty(model.data.n)
    good = True
    for white, other in pairs:
        theta = [mode.reference + mode.factor @ w for w in (white, other)]
        total_rate(bound, white, other, rates)
        row_rates(bound, rates, 0, limit)
        gap = passes.residuals_at(model.rows, np.arange(model.data.n), *theta, mode.reference)
        good &= bool((np.abs(gap) <= limit * (1.0 + 1e-9) + allowance).all())
    return good


def close_pairs(d, count=30):
    rng = np.random.default_rng(3)
    for size in np.geomspace(0.01, 10.0, count):
        w, v = size * rng.standard_normal((2, d))
        yield w, v
        yield w, w + 1e-3 * v
        yield w, -w


def test_rounding_never_looks_like_a_violation_on_300_000_short_rows():
    """Here bounds are nearly attained; differences of the log-likelihoods themselves would exceed them."""
    n = 300_000
    y = np.random.default_rng(2).random(n) < 1.0 / (1.0 + math.exp(-1.317))
    mode = tb.find_mode(tb.models.logistic(tb.Dataset.from_arrays(np.ones((n, 1)), y), tb.priors.normal(10.0)), progress=False)
    for name in ("T5", "T6"):
        bound, _ = certify(mode, name)
        assert within_bounds(mode, bound, close_pairs(1), allowance=0.0)
    eta, shift = mode.reference[0], mode.factor[0, 0] * np.geomspace(0.01, 10.0, 1000)
    p = 1.0 / (1.0 + math.exp(-eta))
    naive = np.logaddexp(0.0, eta + shift) - np.logaddexp(0.0, eta) - p * shift - 0.5 * p * (1.0 - p) * shift**2
    assert (np.abs(naive) > 1.01 * shift**3 / (36.0 * math.sqrt(3.0))).any()
    fit = tb.sample(
        mode.model, ExactMinibatch(bound="T6"), draws=20_000, warmup=100, chains=2, seed=1, progress=False, mode=mode
    )
    assert fit.stats["largest_ratio"].max() <= 1.0


@pytest.mark.parametrize("intercept, centre", [(False, 1e6), (True, 1e5)])
def test_columns_far_from_zero_are_no_violation(intercept, centre):
    rng = np.random.default_rng(5)
    X = centre + rng.standard_normal((5000, 1))
    X = np.column_stack([np.ones(5000), X]) if intercept else X
    model = tb.models.logistic(tb.Dataset.from_arrays(X, rng.random(5000) < 0.3))
    mode = tb.find_mode(model, progress=False)
    for name in ("T5", "T6"):
        assert within_bounds(mode, certify(mode, name)[0], close_pairs(model.dim))
    fit = tb.sample(model, ExactMinibatch(bound="T6"), draws=2000, warmup=200, chains=2, seed=1, progress=False, mode=mode)
    assert fit.stats["accepted"].mean() > 0.5 and (fit.r_hat < 1.05).all()


# Accounting, reproducibility, storage.


def report_of(sampler, info):
    return dict(zip(sampler.columns, info.T, strict=True))


def test_the_state_holds_what_its_position_implies(small):
    """Whitened position and surrogate are carried along, not computed anew: they must not drift."""
    sampler = ExactMinibatch(bound="T6")
    theta, _, state = run_chunks(sampler, small.model, small.mode, [20_000])
    proxy = sampler.setup(small.model, small.mode, 0, False).proxy
    np.testing.assert_array_equal(state["state.theta"], theta[-1])
    np.testing.assert_allclose(whiten(proxy.whitening, theta[-1]), state["state.white"], rtol=0, atol=1e-13)
    wanted = proxy_value(proxy.proxy, state["state.white"]) + small.model.log_prior(theta[-1])
    assert abs(state["state.surrogate"] - wanted) < 1e-13


def test_reference_and_tables_are_frozen(small):
    sampler = ExactMinibatch(bound="T9")
    setup = sampler.setup(small.model, small.mode, 0, False)
    np.testing.assert_array_equal(reference_of(setup.proxy.whitening), small.mode.reference)
    target, options = setup.target(), setup.policy.options(setup.policy.begin(), True)
    assert certificate_of(target.proxy.bound) is setup.proxy.bound  # what compiled code reads
    before = {name: value.copy() for name, value in flatten((setup.proxy, target.proxy)).items()}
    theta, info = np.empty((5000, 2)), np.zeros((5000, len(sampler.columns)))
    advance(np.random.default_rng(1), target, options, setup.policy.blank(small.mode.reference), True, theta, info, 1)
    for name, value in flatten((setup.proxy, target.proxy)).items():
        np.testing.assert_array_equal(value, before[name])


@pytest.fixture(scope="module")
def table():
    X, y = logistic_arrays(3000)
    return pa.table({"y": y, "x": X[:, 1], "w": np.random.default_rng(1).gamma(2.0, 0.5, 3000)})


def read(table, folder, dtype):
    data = tb.read(table, "y ~ x", weights="w", store=folder, memory="disk", dtype=dtype, progress=False)
    assert data.store is not None and data.records.dtype == dtype
    return tb.models.logistic(data, tb.priors.normal(2.0))


@pytest.mark.slow
def test_float32_rows_on_disk_are_sampled_exactly(table, tmp_path):
    model = read(table, tmp_path, "float32")
    mode = tb.find_mode(model, progress=False)
    assert within_bounds(mode, certify(mode, "T6")[0], close_pairs(2, 10))
    fit = tb.sample(model, ExactMinibatch(bound="T6"), draws=5000, warmup=300, seed=3, progress=False, mode=mode)
    error, scale = errors_of(fit, exact_posterior(model, points=101))
    assert (np.abs(error) < THRESHOLD * scale).all()
    assert 0.0 < fit.stats["largest_ratio"].max() <= 1.0 and fit.evals.sum() > 100


def leverage_model(size):
    """Four rows far out: with 1,000 standard deviations the posterior of the slope has an exponential tail."""
    rng = np.random.default_rng(5)
    x, u = rng.standard_normal(500), rng.random(500)
    y = (u < 1.0 / (1.0 + np.exp(0.5 - x))).astype(float)
    x[:4], y[:4] = np.array([1.0, -1.0, 0.7, -0.4]) * size, [1.0, 0.0, 0.0, 0.0]
    return tb.models.logistic(tb.Dataset.from_arrays(np.column_stack([np.ones(500), x]), y), tb.priors.normal(2.0))


@pytest.mark.parametrize("rows", [400, 1000])
def test_the_excess_is_estimated_without_bias_and_counted(rows):
    model = leverage_model(1e3)
    mode = tb.find_mode(model, progress=False)
    setup = tb.samplers.ExactMinibatch().setup(model, mode, 0, False)
    white = np.array([0.5, 4.0])
    theta = mode.reference + mode.factor @ white
    exact = model.log_posterior(theta) - model.log_posterior(mode.reference) + 0.5 * white @ white
    with counting_rows() as account:
        found, error = tail_excess(setup, white, rows)
    assert exact > 3.0 and abs(found - exact) < max(THRESHOLD * error, 1e-6)
    assert account.rows == 2 * min(rows, 500)
    assert (error > 0.0) == (rows == 400)


@pytest.mark.parametrize("size", [1e3, 2.0])
def test_of_rows_in_partitions_the_excess_is_one_pass_unless_the_bound_excludes_it(size):
    model = leverage_model(size)
    table = pa.table({"y": model.data.y, "x": model.data.records[:, 1]})
    rows = Partitions.open([table.slice(0, 200), table.slice(200)], "y ~ x", prior=tb.priors.normal(2.0))
    mode = rows.find_mode(progress=False)
    setup = tb.samplers.ExactMinibatch().setup(rows.model, mode, 0, False)
    points = np.array([[0.0, 0.1], [0.5, 4.0], [1.0, 3.0]])
    thetas, before = mode.reference + points @ mode.factor.T, rows.passes
    exact = [model.log_posterior(t) - model.log_posterior(mode.reference) for t in thetas] + 0.5 * (points**2).sum(1)
    found = list(tail_excesses(setup, points))
    assert [f[0] for f in found] == pytest.approx(exact, abs=1e-6) and rows.passes == before + 1
    spared = list(tail_excesses(setup, points, enough=2.0))
    read = np.array([error == 0.0 for _, error in spared])
    assert rows.passes == before + 2 and read.tolist() == [False, True, size > 2.0]
    assert len(list(tail_excesses(setup, points[:1], enough=2.0))) == 1 and rows.passes == before + 2
    assert all(
        abs(ratio - e) <= error + 1e-6 and (error == 0.0 or e <= 2.0) for (ratio, error), e in zip(spared, exact, strict=True)
    )
