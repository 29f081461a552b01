"""Minibatch Gibbs: every kind of move enumerated with the code that runs, made to fail, and compared with exact and NUTS posteriors."""

import itertools
import math
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

import tallbayes as tb
from tallbayes.bounds import level_rates
from tallbayes.bounds.level_rates import product
from tallbayes.engine.covariances import correlation_factor
from tallbayes.engine.family_functions import third, third_supremum, value
from tallbayes.engine.grouped_rows import level_sums
from tallbayes.priors import prior_value
from tallbayes.samplers import MinibatchGibbs, Setup
from tallbayes.schemes import coefficient_moves, level_moves, level_rows, level_vectors, map_proposals
from tallbayes.schemes.coefficient_moves import CoefficientMove, draw_carried, free_shift, move_coefficients, widened
from tallbayes.schemes.covariance_slice import draw_covariance
from tallbayes.schemes.level_moves import OneEffect, RestOfLevels, level_surrogates, map_move, move_levels, whitened_radius
from tallbayes.schemes.level_vectors import ManyEffects
from tallbayes.target import STATUS
from tallbayes.testing import THRESHOLD, invariance_error, poisson_outcomes

SIGMA = np.array([0.9, 0.7])
PARTIAL = np.array([0.3])


OPTIONS = {"student_t": {"nu": 4.0, "scale": 1.0}, "negbin": {"size": 1.0}}


def tiny(family="logistic", slopes=False, rows=9, weight=8.0, carried=True, prior=None, idle=0):
    """A few rows in three levels, the last of them empty, with weights, offsets and a column that varies within levels.

    `idle` rows of zero weight raise the number of rows, so that no level is read in full for its rate.
    """
    rng = np.random.default_rng(5)
    codes = np.sort(np.arange(rows) % 2)
    one = np.ones(rows) if carried else rng.standard_normal(rows)
    X = np.column_stack([one, rng.standard_normal(rows)])
    y = {"logistic": (np.arange(rows) % 3 == 0), "poisson": np.arange(rows) % 3, "student_t": rng.standard_normal(rows)}[family]
    grouping = pd.Categorical.from_codes(codes, categories=["a", "b", "none"])
    groups = {"g": (grouping, ["1", "x1"]) if slopes else grouping}
    weights = rng.uniform(0.5, 1.0, rows) * (weight if family == "logistic" else 1.0)
    if idle:
        more = np.arange(idle) % 2
        X, y, codes = np.concatenate([X, np.ones((idle, 2))]), np.concatenate([y, np.ones(idle)]), np.concatenate([codes, more])
        weights, rows = np.concatenate([weights, np.zeros(idle)]), rows + idle
        grouping = pd.Categorical.from_codes(codes, categories=["a", "b", "none"])
        groups = {"g": (grouping, ["1", "x1"]) if slopes else grouping}
    data = tb.Dataset.from_arrays(X, y.astype(float), 0.3 * rng.standard_normal(rows), weights, groups=groups)
    return tb.models.build(family, data, tb.priors.normal(2.0) if prior is None else prior, **OPTIONS.get(family, {}))


class Case(NamedTuple):
    """A target and what is held fixed."""

    model: object
    setup: Setup
    target: object
    form: object
    beta: np.ndarray
    log_sd: np.ndarray
    partial: np.ndarray
    levels: np.ndarray


@pytest.fixture(autouse=True)
def empty_levels_are_meant(recwarn):
    return recwarn


def case_of(model, spread=0.8, seed=0):
    with pytest.warns(tb.TallbayesWarning, match="the rows carry no information about 1 of 3 levels"):
        mode = tb.find_mode(model, progress=False)
    setup = MinibatchGibbs().setup(model, mode, 0, False)
    target, rng = setup.target(), np.random.default_rng(seed)
    q = len(model.factors[0].terms)
    beta = mode.coefficients + spread * rng.standard_normal(model.data.d)
    centres = target.proxy.surrogate.centres
    levels = centres + spread * rng.standard_normal(centres.shape)
    return Case(
        model, setup, target, OneEffect() if q == 1 else ManyEffects(), beta, np.log(SIGMA[:q]), PARTIAL[: q - 1], levels
    )


def given_of(case, beta=None):
    surrogate = case.target.proxy.surrogate
    beta = case.beta if beta is None else beta
    delta, shift = np.empty(surrogate.free.size), np.empty(beta.size)
    free_shift(surrogate, beta, delta)
    widened(surrogate, delta, shift)
    return RestOfLevels(shift, whitened_radius(surrogate.inverse, delta), *level_surrogates(case.form, surrogate, delta))


def covariance(log_sd, partial):
    q = log_sd.size
    factor = np.empty((q, q))
    correlation_factor(partial, factor)
    factor = np.exp(log_sd)[:, None] * factor
    return factor @ factor.T


def natural_coefficients(surrogate, beta):
    """beta of a state, which has the intercept at the means of the other columns."""
    out = beta.copy()
    if surrogate.constant >= 0:
        assert surrogate.free.size == 0 or surrogate.means.any()
        out[surrogate.constant] -= surrogate.means @ beta
    return out


def log_joint(case, beta, log_sd, partial, levels):
    """Log posterior of everything in (beta, log sigma, y, c), from the rows: none of the code under test."""
    model = case.model
    factor, data, surrogate = model.factors[0], model.data, case.target.proxy.surrogate
    d, q = data.d, len(factor.terms)
    X, y, offset, weight = data.records[:, :d], data.records[:, d], data.records[:, d + 1], data.records[:, d + 2]
    Z = np.ones((data.n, 1)) if factor.first < 0 else data.records[:, factor.first : factor.first + q]
    b = levels - case.target.proxy.prior.carriers @ beta[surrogate.carried]
    natural = natural_coefficients(surrogate, beta)
    eta = X @ natural + offset + (Z * b[factor.codes]).sum(1)
    total = sum(w * value(model.member, e, r) for w, e, r in zip(weight, eta, y, strict=True))
    sigma = covariance(log_sd, partial)
    total -= 0.5 * np.einsum("ga,ab,gb->", b, np.linalg.inv(sigma), b) + 0.5 * len(b) * np.linalg.slogdet(sigma)[1]
    total += prior_value(model.coefficient_terms, natural) + log_sd.sum()
    for prior, s in zip(model.scale_priors[0], np.exp(log_sd), strict=True):
        assert prior.name == "half_student_t"
        total -= 0.5 * (prior.df + 1) * np.log1p((s / prior.scale) ** 2 / prior.df)
    if q == 2:  # LKJ(1) in y
        total += np.log(1.0 - np.tanh(partial[0]) ** 2)
    return total


# The code under test runs interpreted with a generator that records every test and decides as told.


class Uniform:
    """A uniform number whose comparisons are recorded and true: candidate rows are kept."""

    def __init__(self, script):
        self.script = script

    def __lt__(self, other):
        self.script.kept.append(other)
        return True

    def __mul__(self, other):
        return self


class Script:
    """A generator that proposes what it is told, accepts everything, and reads the candidate rows that it is told."""

    def __init__(self, candidates=()):
        self.normals, self.candidates = [], list(candidates)
        self.tests, self.kept, self.bounds, self.rate, self.heavy = [], [], [], None, True

    def random(self):
        return Uniform(self)

    def standard_normal(self):
        return self.normals.pop(0)

    def accepts(self, rng, ratio):
        self.tests.append(ratio)
        return True

    def draw_count(self, rng, rate):
        self.rate = rate
        return len(self.candidates)

    def draw_events(self, rng, left, rate):
        self.rate = rate
        return len(self.candidates), left

    def draw_position(self, rng, shares, g, first, size, factors):
        position = self.candidates.pop(0)
        zeta = 1.0 if shares.zetas.size == 0 else shares.zetas[position]
        row = (shares.loads[position], shares.norms[position], zeta)
        bound = sum(factors[k] * product(shares.exponential, k, *row) for k in range(4))
        self.bounds.append(bound)
        return position, bound


MODULES = (coefficient_moves, level_moves, level_vectors)


def scripted(monkeypatch, script, mutate=None):
    for module in MODULES:
        for name in ("accepts", "draw_count", "draw_position"):
            monkeypatch.setattr(module, name, getattr(script, name))
    monkeypatch.setattr(level_moves, "draw_events", script.draw_events)
    monkeypatch.setattr(level_moves, "waiting_time", lambda rng: 0.0)
    monkeypatch.setattr(level_moves, "heavy_tails", lambda rng: script.heavy)
    for module in (level_moves, level_vectors):
        monkeypatch.setattr(module, "chi_square", lambda rng: 5.0)
    for module in (coefficient_moves, level_moves):
        monkeypatch.setattr(module, "prefetch_row", lambda records, row: None)
        monkeypatch.setattr(module, "find_level", lambda cumulative, level: script.owner)
    if mutate is not None:
        mutate(monkeypatch, script)


def acceptance(monkeypatch, run, positions, owners, mutate=None, inflation=1.0):
    """Probability that a move is accepted: the stages of `run(script)`, all that the Poisson numbers can be summed out."""

    def trial(candidates, owner=0):
        script = Script(candidates=candidates)
        script.owner = owner
        with monkeypatch.context() as patch:
            scripted(patch, script, mutate)
            run(script)
        return script

    base = trial([])
    if len(base.tests) == 1 and base.rate is None:
        return math.exp(min(0.0, base.tests[0]))
    first, start = base.tests if len(base.tests) == 2 else (0.0, base.tests[0])  # map moves have one test
    trials = {} if base.rate is None else {p: trial([p], owner) for p, owner in zip(positions, owners, strict=True)}
    pairs = list(zip(positions, owners, strict=True)) if trials else []
    own = {g: sum(trials[p].bounds[0] for p, owner in pairs if owner == g) for g in set(owners)}
    if trials and not math.isclose(inflation * sum(own.values()), base.rate):  # some levels are read in full
        own = {g: rate for g, rate in own.items() if rate < owners.count(g)}
        assert math.isclose(inflation * sum(own.values()), base.rate)
    probability, ratio = np.ones(1), np.full(1, start)
    for position, one in trials.items():
        if owners[positions.index(position)] not in own:
            continue
        rate = inflation * one.bounds[0] * one.kept[-1]
        outcomes = list(itertools.takewhile(lambda o: o[1] <= 1 or o[0] > 1e-17, poisson_outcomes(rate)))
        contribution = one.tests[-1] - start
        added = np.array([0.0 if count == 0 else count * contribution for _, count in outcomes])
        probability = (probability[:, None] * np.array([p for p, _ in outcomes])).reshape(-1)
        ratio = (ratio[:, None] + added).reshape(-1)
        likely = probability > 1e-18
        probability, ratio = probability[likely], ratio[likely]
    return math.exp(min(0.0, first)) * float(probability @ np.exp(np.minimum(0.0, ratio)))


def kernel_error(weights, proposals, accept):
    """|pi P - pi| for states with log weights, proposal matrix and acceptance probabilities."""
    law = np.exp(weights - np.max(weights))
    law /= law.sum()
    count = law.size
    matrix = np.zeros((count, count))
    for i in range(count):
        for j in range(count):
            if i != j:
                matrix[i, j] = proposals[i][j] * accept(i, j)
        matrix[i, i] = 1.0 - matrix[i].sum()
    assert (matrix > -1e-12).all()
    return invariance_error(matrix, law)


def level_positions(case, g):
    """Rows of a level that have a weight."""
    offsets, loads = case.target.rows.offsets, case.target.proxy.shares.loads
    return [p for p in range(offsets[g], offsets[g + 1]) if loads[p] > 0.0]


# Levels given the rest


def level_error(monkeypatch, case, mutate=None, spread=1.2, whole=False, heavy=True):
    """Invariance error of the moves of levels on a grid of values of the first level; the others stay where they are."""
    surrogate, given = case.target.proxy.surrogate, given_of(case)
    if whole:
        monkeypatch.setattr(level_moves, "SKEWED", 0.0)
        monkeypatch.setattr(level_vectors, "SKEWED", 0.0)
    if not heavy:
        monkeypatch.setattr(level_moves, "SYMMETRIC", math.inf)
    q = case.log_sd.size
    rng = np.random.default_rng(1)
    grid = surrogate.centres[0] + spread * rng.standard_normal((4, q))
    states = [np.concatenate([c[None], case.levels[1:]]) for c in grid]
    only = surrogate._replace(
        **{k: getattr(surrogate, k)[:1] for k in ("centres", "slopes", "curvatures", "thirds", "stretch")}
    )
    target = case.target._replace(proxy=case.target.proxy._replace(surrogate=only))
    given = given._replace(slope=given.slope[:1], curvature=given.curvature[:1])

    def densities():
        """Log density of the proposal at every state, and the normals that lead there, from the moves' own means and factors."""
        precision = np.linalg.inv(covariance(case.log_sd, case.partial))
        mean0 = (case.target.proxy.prior.carriers @ case.beta[surrogate.carried])[0]
        if q == 1:
            factor = np.sqrt(
                np.array([[level_moves.fit_precision(given.curvature[0], surrogate.curvatures[0, 0, 0], precision[0, 0])]])
            )
        else:
            factor, scratch = np.zeros((2, 2)), np.zeros((2, 2))
            parts = given.curvature[0], surrogate.curvatures[0], surrogate.stretch[0]
            level_vectors.fit_factor(*parts, precision, factor, scratch)
            factor = np.tril(factor)
        slope = np.atleast_1d(given.slope[0])
        mean = np.linalg.solve(factor @ factor.T, slope - precision @ (surrogate.centres[0] - mean0))
        white = [factor.T @ (c - surrogate.centres[0] - mean) for c in grid]
        if not heavy:
            assert math.isclose(factor[0, 0] ** 2, given.curvature[0] + precision[0, 0])
            return np.array([-0.5 * w @ w for w in white]), white
        log_density = [-0.5 * (5 + q) * np.log1p(w @ w / (5 * 1.21)) for w in white]
        return np.array(log_density), [w / 1.1 for w in white]  # the chi-square number is 5

    log_density, normals = densities()
    proposals = np.exp(log_density) / np.exp(log_density).sum()
    weights = [log_joint(case, case.beta, case.log_sd, case.partial, s) for s in states]

    def accept(i, j):
        def run(script):
            script.normals, script.heavy = list(normals[j]), heavy
            levels = states[i][:1].copy()
            move_levels(case.form, script, target, case.beta, case.log_sd, case.partial, levels, given)
            assert script.tests and (len(script.tests) == 1 or np.allclose(levels[0], grid[j], atol=1e-12))
            assert target.counters[STATUS] == 0 or mutate is not None

        positions = level_positions(case, 0)
        return acceptance(monkeypatch, run, positions, [0] * len(positions), mutate)

    return kernel_error(weights, [proposals] * 4, accept)


FORMS = [("logistic", False), ("logistic", True), ("poisson", False), ("poisson", True), ("student_t", False)]
every_form = pytest.mark.parametrize("family, slopes", FORMS)


@every_form
@pytest.mark.parametrize("whole", [False, True], ids=["some rows", "all rows"])
def test_moves_of_levels_leave_the_posterior_invariant(monkeypatch, family, slopes, whole):
    case = case_of(tiny(family, slopes))
    assert level_error(monkeypatch, case, whole=whole) < 1e-12
    case.target.counters[:] = 0


@pytest.mark.parametrize("family", ["logistic", "poisson"])
@pytest.mark.parametrize("whole", [False, True], ids=["some rows", "all rows"])
def test_gaussian_proposals_of_levels_leave_the_posterior_invariant(monkeypatch, family, whole):
    assert level_error(monkeypatch, case_of(tiny(family)), whole=whole, heavy=False) < 1e-12


def asymmetric_bound(patch, script):
    for module, name in ((level_moves, "effect_factors"), (level_vectors, "effects_factors")):
        original = getattr(level_rates, name)
        patch.setattr(
            module, name, lambda *a, original=original: tuple(f * (20.0 if a[3] < a[-3] else 1.0) for f in original(*a))
        )


def asymmetric_threshold(patch, script):
    seen = []
    original, rate = level_rates.effect_factors, level_rows.level_rate

    def factors(*arguments):
        seen.append(arguments[3] < arguments[4])
        return original(*arguments)

    patch.setattr(level_moves, "effect_factors", factors)
    patch.setattr(level_moves, "level_rate", lambda sums, g, f: math.inf if seen[-1] else rate(sums, g, f))


def no_cubic_term(patch, script):
    patch.setattr(level_rows, "third", lambda family, eta, y: 0.0)


def no_proposal_ratio(patch, script):
    patch.setattr(level_moves, "_log_t_ratio", lambda *a: 0.0)


@pytest.mark.parametrize("mutate", [asymmetric_bound, asymmetric_threshold, no_cubic_term, no_proposal_ratio])
def test_wrong_moves_of_levels_are_caught(monkeypatch, mutate):
    least = 1e-7 if mutate is asymmetric_bound else 1e-4  # another rate is another acceptance, by a little
    assert level_error(monkeypatch, case_of(tiny(idle=200)), mutate, spread=1.8) > least


def no_cubic_proposal(patch, script):
    patch.setattr(level_moves, "_fit_gap", lambda *a: 0.0)


@pytest.mark.parametrize("mutate", [asymmetric_bound, asymmetric_threshold, no_cubic_term, no_cubic_proposal])
def test_wrong_gaussian_proposals_are_caught(monkeypatch, mutate):
    least = 1e-7 if mutate is asymmetric_bound else 1e-4
    assert level_error(monkeypatch, case_of(tiny(idle=200)), mutate, spread=1.8, heavy=False) > least


# Coefficients given the levels


def coefficient_error(monkeypatch, case, mutate=None, inflation=1.0):
    surrogate, kernel = case.target.proxy.surrogate, CoefficientMove(1.0, 0.0, 1.0, inflation)
    rng = np.random.default_rng(2)
    f = surrogate.free.size
    grid = surrogate.reference[surrogate.free] + (surrogate.factor @ rng.standard_normal((f, 4))).T * 1.2
    states = []
    for values in grid:
        beta = case.beta.copy()
        beta[surrogate.free] = values
        states.append(beta)
    linear = np.empty(f)
    coefficient_moves.linear_term(surrogate, case.levels, linear)
    mean = coefficient_moves._proposal_mean(surrogate, case.target.proxy.prior, linear, case.beta, np.empty(f))
    normals = [surrogate.inverse @ (v - surrogate.reference[surrogate.free] - mean) for v in grid]
    log_density = np.array([-0.5 * w @ w for w in normals])
    proposals = np.exp(log_density) / np.exp(log_density).sum()
    weights = [log_joint(case, s, case.log_sd, case.partial, case.levels) for s in states]

    def accept(i, j):
        def run(script):
            script.normals = list(normals[j])
            beta = states[i].copy()
            move_coefficients(script, case.target, kernel, beta, case.levels)
            assert len(script.tests) == 1 or np.allclose(beta, states[j])

        owners = [g for g in range(3) for _ in level_positions(case, g)]
        return acceptance(monkeypatch, run, list(range(case.model.data.n)), owners, mutate, inflation)

    return kernel_error(weights, [proposals] * 4, accept)


@every_form
def test_moves_of_coefficients_leave_the_posterior_invariant(monkeypatch, family, slopes):
    assert coefficient_error(monkeypatch, case_of(tiny(family, slopes, carried=not slopes))) < 1e-12


def test_inflated_rates_leave_the_posterior_invariant(monkeypatch):
    assert coefficient_error(monkeypatch, case_of(tiny()), inflation=1.3) < 1e-12


def test_wrong_moves_of_coefficients_are_caught(monkeypatch):
    assert coefficient_error(monkeypatch, case_of(tiny()), no_cubic_term) > 1e-4


# Map moves: states on an orbit, with the Jacobian of the map in their weights


def orbit(case, other_of):
    """States reached by the map from the levels of the case, and their log weights, by numerical differentiation of the map."""
    given, states, weights = given_of(case), [], []

    def mapped(levels, k):
        beta, log_sd, partial = other_of(k)
        at = [case.beta.copy(), case.log_sd.copy(), case.partial.copy(), levels.copy()]
        script = Script()
        script.owner = 0
        with pytest.MonkeyPatch.context() as patch:
            scripted(patch, script)
            map_move(case.form, script, case.target, *at, given, beta, log_sd, partial)
        return at

    for k in range(4):
        at = mapped(case.levels, k)
        flat = case.levels.reshape(-1)
        jacobian = np.empty((flat.size, flat.size))
        for c in range(flat.size):
            up, down = flat.copy(), flat.copy()
            up[c] += 1e-3
            down[c] -= 1e-3
            ends = [mapped(p.reshape(case.levels.shape), k)[3].reshape(-1) for p in (up, down)]
            jacobian[:, c] = (ends[0] - ends[1]) / 2e-3  # the map is affine
        states.append(at)
        weights.append(log_joint(case, *at) + np.linalg.slogdet(jacobian)[1])
    return states, weights


def map_error(monkeypatch, case, kind, mutate=None, inflation=1.0, density=(0.0, 0.0, 0.0, 0.0), corrected=True):
    """Invariance error on an orbit; states are proposed with log densities `density`, which the ratio corrects for."""
    carried = case.target.proxy.surrogate.carried

    def other_of(k):
        noise = np.random.default_rng(100 + k).standard_normal(6) * 0.5 * (k > 0)
        beta, log_sd, partial = case.beta.copy(), case.log_sd.copy(), case.partial.copy()
        if kind == "scale":
            log_sd, partial = log_sd + noise[: log_sd.size], partial + noise[4 : 4 + partial.size]
        else:
            beta[carried] += noise[: carried.size]
        return beta, log_sd, partial

    states, weights = orbit(case, other_of)
    given = given_of(case)._replace(inflation=inflation)
    proposals = [(np.exp(density) / np.exp(density).sum()).tolist()] * 4

    def accept(i, j):
        def run(script):
            at = [a.copy() for a in states[i]]
            own = given._replace(correction=density[i] - density[j] if corrected else 0.0)
            map_move(case.form, script, case.target, *at, own, *states[j][:3])
            assert len(script.tests) == 1 and all(np.allclose(a, b, atol=1e-9) for a, b in zip(at, states[j], strict=True))

        offsets = case.target.rows.offsets
        owners = [g for g in range(3) for _ in range(offsets[g], offsets[g + 1])]
        return acceptance(monkeypatch, run, list(range(case.model.data.n)), owners, mutate, inflation)

    return kernel_error(weights, proposals, accept)


@every_form
@pytest.mark.parametrize("kind", ["scale", "shift"])
def test_map_moves_leave_the_posterior_invariant(monkeypatch, family, slopes, kind):
    assert map_error(monkeypatch, case_of(tiny(family, slopes)), kind) < 1e-10


def test_inflated_rates_of_map_moves_leave_the_posterior_invariant(monkeypatch):
    assert map_error(monkeypatch, case_of(tiny()), "scale", inflation=1.6) < 1e-10


@pytest.mark.parametrize("slopes", [False, True])
def test_independent_proposals_of_map_moves_leave_the_posterior_invariant(monkeypatch, slopes):
    case, density = case_of(tiny(slopes=slopes)), (0.3, -0.6, 0.9, -1.2)
    assert map_error(monkeypatch, case, "scale", density=density) < 1e-10
    assert map_error(monkeypatch, case, "scale", density=density, corrected=False) > 1e-4


@pytest.mark.parametrize("carried", [0, 1])
def test_independent_proposals_are_normal_and_know_their_density(carried):
    rng = np.random.default_rng(3)
    size = carried + 3
    seen = rng.standard_normal((200, size)) @ rng.standard_normal((size, size)) + 1.0
    halves = map_proposals.collect(map_proposals.collect(map_proposals.nothing_seen(size), seen[:60]), seen[60:])
    np.testing.assert_allclose(halves.mean, seen.mean(0))
    np.testing.assert_allclose(halves.products / 199.0, np.cov(seen.T))
    centre, root = map_proposals.fitted_proposal(halves)
    np.testing.assert_allclose(np.diag(root @ root.T), 1.44 * seen.var(0, ddof=1))
    assert not map_proposals.fitted_proposal(map_proposals.collect(map_proposals.nothing_seen(size), seen[:30]))[0].size
    maps = map_proposals.MapMoves(1.0, 0.0, 1.0, 0.1, np.eye(carried), centre, root, np.linalg.inv(root))
    law, drawn, columns = multivariate_normal(centre, root @ root.T), [], np.arange(1, 1 + carried)
    for _ in range(4000):
        beta, log_sd, partial = np.zeros(3), np.zeros(2), np.zeros(1)
        before = np.concatenate([beta[columns], log_sd, partial])
        correction = map_proposals.propose_map(rng, maps, map_proposals.JOINT, columns, beta, log_sd, partial)
        after = np.concatenate([beta[columns], log_sd, partial])
        assert math.isclose(correction, law.logpdf(before) - law.logpdf(after), rel_tol=1e-6, abs_tol=1e-9)
        drawn.append(np.linalg.solve(root, after - centre))
    assert np.abs(np.mean(drawn, 0)).max() < THRESHOLD / math.sqrt(4000)
    assert np.abs(np.cov(np.array(drawn).T) - np.eye(size)).max() < THRESHOLD * math.sqrt(2.0 / 4000)


def no_jacobian(patch, script):
    patch.setattr(level_moves, "math", SimpleNamespace(sqrt=math.sqrt, exp=math.exp, log=lambda x: 0.0))


def no_prior_ratio(patch, script):
    patch.setattr(level_moves, "prior_value", lambda prior, theta: 0.0)


@pytest.mark.parametrize("kind, mutate", [("scale", no_jacobian), ("shift", no_prior_ratio), ("scale", no_cubic_term)])
def test_wrong_map_moves_are_caught(monkeypatch, kind, mutate):
    assert map_error(monkeypatch, case_of(tiny()), kind, mutate) > 1e-5


# Draws that need no rows


def test_a_prior_that_is_not_gaussian_decides_on_its_ratio(monkeypatch):
    """The carried intercept on a grid, its Gaussian draws scripted; without the ratio the law is wrong."""
    case = case_of(tiny(prior=tb.priors.cauchy(0.5)))
    surrogate, prior = case.target.proxy.surrogate, case.target.proxy.prior
    precision = np.linalg.inv(covariance(case.log_sd, case.partial))
    of_levels = prior.carriers, prior.carrier_products
    total = prior.carrier_products[0, 0] * precision[0, 0]
    mean = np.linalg.solve(total, prior.carriers[:, 0].T @ case.levels[:, 0] * precision[0, 0])
    grid = mean + np.array([[-0.9], [-0.2], [0.3], [1.1]])
    normals = [np.linalg.cholesky(total).T @ (v - mean) for v in grid]
    log_density = np.array([-0.5 * w @ w for w in normals])
    states = [np.where(np.isin(np.arange(2), surrogate.carried), v[0], case.beta) for v in grid]
    weights = [log_joint(case, s, case.log_sd, case.partial, case.levels) for s in states]

    def error(prior):
        def accept(i, j):
            script, beta = Script(), states[i].copy()
            script.normals = list(normals[j])
            monkeypatch.setattr(coefficient_moves, "accepts", script.accepts)
            assert draw_carried(script, surrogate.carried, surrogate.free, prior, *of_levels, precision, beta, case.levels)
            np.testing.assert_allclose(beta, states[j], atol=1e-12)
            return math.exp(min(0.0, script.tests[0])) if script.tests else 1.0

        return kernel_error(weights, [np.exp(log_density) / np.exp(log_density).sum()] * 4, accept)

    assert error(prior) < 1e-12
    assert error(prior._replace(gaussian=True)) > 1e-3


@pytest.mark.parametrize("q", [1, 2])
def test_covariances_given_effects(q):
    """Slice sampling of (log sigma, y) against the means of a grid, from S that is fixed."""
    rng = np.random.default_rng(4)
    scatter, levels, eta = np.array([[6.0, 2.0], [2.0, 4.0]])[:q, :q], 7, 1.5
    scales = np.array([[1.0, 2.5, 3.0], [2.0, 1.0, 1.0]])[:q]
    log_sd, partial, draws = np.zeros(q), np.zeros(q - 1), []
    for _ in range(6000):
        draw_covariance(rng, scales, eta, levels, scatter, log_sd, partial)
        draws.append(np.concatenate([log_sd, partial]))
    draws = np.array(draws)
    axes = np.meshgrid(*([np.linspace(-2.0, 2.5, 80)] * q + [np.linspace(-2.5, 2.5, 80)] * (q - 1)), indexing="ij")
    points = np.stack([a.reshape(-1) for a in axes], axis=1)
    first, last = points[:, 0], points[:, q - 1]
    r = np.tanh(points[:, 2]) if q == 2 else 0.0
    spread = scatter[0, 0] * np.exp(-2 * first)
    if q == 2:
        spread = (spread + scatter[1, 1] * np.exp(-2 * last) - 2 * r * scatter[0, 1] * np.exp(-first - last)) / (1 - r**2)
    log_density = points[:, :q].sum(1) * (1.0 - levels) - 0.5 * spread - 2.0 * np.log1p(np.exp(2 * first) / (3 * 2.5**2))
    if q == 2:
        log_density += -0.5 * levels * np.log(1 - r**2) - np.exp(last) + eta * np.log(1 - r**2)
    weight = np.exp(log_density - log_density.max())
    mean = weight @ points / weight.sum()
    square = weight @ points**2 / weight.sum()
    for expected, values in ((mean, draws), (square, draws**2)):
        batches = values.reshape(60, -1, values.shape[1]).mean(1)
        score = (batches.mean(0) - expected) / (batches.std(0, ddof=1) / np.sqrt(60))
        assert np.abs(score).max() < THRESHOLD


# Parts


def test_counts_are_poisson():
    rng = np.random.default_rng(0)
    for rate in (0.01, 0.7, 3.0, 8.0):
        counts = np.bincount([level_rows.draw_count(rng, rate) for _ in range(20_000)], minlength=30)[:6]
        expected = 20_000 * np.array([math.exp(-rate) * rate**k / math.factorial(k) for k in range(6)])
        assert (np.abs(counts - expected) < THRESHOLD * np.sqrt(expected) + 3).all()


def test_events_of_stretches_are_poisson():
    """Counts in stretches of several lengths that share one process: as `test_counts_are_poisson`, and uncorrelated."""
    rng = np.random.default_rng(0)
    left, rates, drawn = level_rows.waiting_time(rng), (0.05, 0.7, 3.0), []
    for _ in range(20_000):
        counts = []
        for rate in rates:
            count, left = level_rows.draw_events(rng, left, rate)
            counts.append(count)
        drawn.append(counts)
    drawn = np.array(drawn)
    for k, rate in enumerate(rates):
        found = np.bincount(drawn[:, k], minlength=6)[:6]
        expected = 20_000 * np.array([math.exp(-rate) * rate**c / math.factorial(c) for c in range(6)])
        assert (np.abs(found - expected) < THRESHOLD * np.sqrt(expected) + 3).all()
    assert np.abs(np.corrcoef(drawn.T)[np.triu_indices(3, 1)]).max() < THRESHOLD / math.sqrt(20_000)


def test_acceptance_tests_are_those_of_the_exponential():
    for ratio in (-3.0, -0.7, -0.01, -1e-12, 0.0, 0.5):
        rng = np.random.default_rng(1)
        mean = np.mean([level_rows.accepts(rng, ratio) for _ in range(20_000)])
        p = min(1.0, math.exp(ratio))
        assert abs(mean - p) <= THRESHOLD * math.sqrt(p * (1.0 - p) / 20_000) + 1e-12
    assert not level_rows.accepts(np.random.default_rng(1), -math.inf)
    assert not level_rows.accepts(np.random.default_rng(1), math.nan)


def test_t_proposals_have_five_degrees_of_freedom():
    rng = np.random.default_rng(0)
    chi = np.array([level_moves.chi_square(rng) for _ in range(20_000)])
    assert abs(chi.mean() - 5.0) < THRESHOLD * math.sqrt(10.0 / 20_000)
    assert abs(chi.var() - 10.0) < THRESHOLD * math.sqrt((2 * 100 + 12 * 8 * 5) / 20_000)


@every_form
def test_rows_are_drawn_in_proportion_to_their_bounds(family, slopes):
    case = case_of(tiny(family, slopes))
    shares, offsets, rng = case.target.proxy.shares, case.target.rows.offsets, np.random.default_rng(1)
    factors = (0.0, 0.0, 0.3, 0.7) if shares.exponential else (0.3, 0.2, 0.1, 0.4)
    drawn = [level_rows.draw_position(rng, shares, 0, offsets[0], offsets[1] - offsets[0], factors) for _ in range(20_000)]
    bounds = dict(drawn)
    total = sum(bounds.values())
    assert math.isclose(total, level_rows.level_rate(shares.sums, 0, factors), rel_tol=1e-12)
    counts = np.bincount([p for p, _ in drawn], minlength=offsets[1])
    for position in range(offsets[0], offsets[1]):
        expected = 20_000 * bounds[position] / total
        assert abs(counts[position] - expected) < THRESHOLD * math.sqrt(expected)


def test_levels_are_found_by_their_rates():
    cumulative = np.array([0.0, 1.0, 1.0, 3.0, 3.0])
    assert [level_rows.find_level(cumulative, v) for v in (0.0, 0.999, 1.0, 2.9, 3.0)] == [1, 1, 3, 3, 3]


@every_form
def test_residuals_are_within_their_bounds(family, slopes):
    case = case_of(tiny(family, slopes), spread=1.5)
    rows, surrogate, shares = case.target.rows, case.target.proxy.surrogate, case.target.proxy.shares
    rng, largest = np.random.default_rng(2), 0.0
    for _ in range(300):
        size = np.exp(rng.uniform(-3.0, 0.7))
        delta, other = (size * surrogate.factor @ rng.standard_normal(surrogate.free.size) for _ in range(2))
        before, after = np.zeros(2), np.zeros(2)
        widened(surrogate, delta, before)
        widened(surrogate, other, after)
        white = [surrogate.inverse @ v for v in (delta, other)]
        square = (white[0] @ white[0] + white[0] @ white[1] + white[1] @ white[1]) / 3.0
        ends = np.linalg.norm(white[1] - white[0]), square, max(np.linalg.norm(w) for w in white)
        for g in range(2):
            start, end = size * rng.standard_normal((2, case.log_sd.size))
            length = np.linalg.norm(surrogate.stretch[g].T @ start)
            radius = np.linalg.norm(white[0])
            moved = level_rates.coefficient_factors(shares.exponential, shares.ratio, *ends, length, *shares.most[g])
            swept = level_moves.level_factors(case.form, shares, surrogate.stretch, g, radius, start, end)
            for position in level_positions(case, g):
                zeta = 1.0 if shares.zetas.size == 0 else shares.zetas[position]
                row = shares.loads[position], shares.norms[position], zeta
                record, centre = rows.records[position], surrogate.centres[g]
                gaps = (
                    level_rows.coefficient_gap(rows, record, surrogate.reference, centre, before, after, start),
                    level_rows.effect_gap(rows, record, surrogate.reference, centre, before, start, end),
                )
                for gap, factors in zip(gaps, (moved, swept), strict=True):
                    bound = sum(factors[k] * product(shares.exponential, k, *row) for k in range(4))
                    assert abs(gap) <= bound * (1 + 1e-9) + 1e-13
                    largest = max(largest, abs(gap) / (bound + 1e-12))
    assert largest > 0.2  # the bounds are not idle


@pytest.mark.parametrize("family", ["logistic", "probit", "negbin", "student_t"])
def test_suprema_of_fourth_derivatives(family):
    model = tb.models.build(family, tb.Dataset.from_arrays(np.ones((2, 1)), [0.0, 1.0]), **OPTIONS.get(family, {}))
    family, member = model.family, model.member
    for y in (0.0, 1.0):
        eta = np.linspace(-8.0, 8.0, 4001)
        slope = np.array([(third(member, e + 1e-4, y) - third(member, e - 1e-4, y)) / 2e-4 for e in eta])
        bound = family.fourth_ratio(member) * third_supremum(member, y)
        assert np.abs(slope).max() <= bound * (1 + 1e-6)
        assert np.abs(slope).max() > 0.99 * bound


def test_sums_of_levels_without_rows_are_zero():
    """Sums by level against sums over rows; `np.add.reduceat` gives an empty level the value of the row that follows."""
    case = case_of(tiny(slopes=True))
    model, rows = case.model, case.target.rows
    rng = np.random.default_rng(0)
    effects, beta = rng.standard_normal((3, 2)), rng.standard_normal(2)
    sums = level_sums(rows, beta, effects, np.empty(0), True)
    d, factor = model.data.d, model.factors[0]
    X, y, o, w = model.data.records[:, :d], *model.data.records[:, d : d + 3].T
    Z = model.data.records[:, factor.first : factor.first + 2]
    p = 1 / (1 + np.exp(-(X @ beta + o + (Z * effects[factor.codes]).sum(1))))
    f1, f2, f3 = w * (y - p), w * p * (1 - p), -w * p * (1 - p) * (1 - 2 * p)
    for g in range(3):
        own = factor.codes == g
        np.testing.assert_allclose(sums.slopes[g], (f1[own, None] * Z[own]).sum(0), atol=1e-12)
        np.testing.assert_allclose(sums.curvatures[g], np.einsum("i,ia,ib->ab", f2[own], Z[own], Z[own]), atol=1e-12)
        np.testing.assert_allclose(sums.crossed[g], np.einsum("i,ij,ia->ja", f2[own], X[own], Z[own]), atol=1e-12)
        np.testing.assert_allclose(
            sums.crossed_third[g], np.einsum("i,ij,ia,ib->jab", f3[own], X[own], Z[own], Z[own]), atol=1e-12
        )
        np.testing.assert_allclose(sums.thirds[g], np.einsum("i,ia,ib,ic->abc", f3[own], Z[own], Z[own], Z[own]), atol=1e-12)
    np.testing.assert_allclose(sums.information, np.einsum("i,ij,ik->jk", f2, X, X), atol=1e-12)
    assert not sums.slopes[2].any()
    assert np.add.reduceat(np.append(f1, 1.0), rows.offsets[:-1])[2] != 0.0
