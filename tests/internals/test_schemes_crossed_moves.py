"""Internals of `tallbayes.schemes.crossed_moves`; what users see of it is tested in test_crossed_factors.py."""

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest

import tallbayes as tb
from internals.test_schemes_level_moves import Script, kernel_error, natural_coefficients
from tallbayes.bounds.crossed_rates import (
    crossed_slope_factors,
    effect_products,
    row_effect_bound,
    row_slope_bound,
    slope_products,
)
from tallbayes.engine.covariances import correlation_factor
from tallbayes.engine.family_functions import value
from tallbayes.mode.pairs import factor_pairs
from tallbayes.priors import prior_value
from tallbayes.proxies import factor_cells
from tallbayes.samplers import MinibatchGibbs
from tallbayes.schemes import coefficient_moves, crossed_coefficients, crossed_moves, crossed_rows, level_replay
from tallbayes.schemes.coefficient_moves import CoefficientMove, free_shift, widened
from tallbayes.schemes.crossed_coefficients import move_crossed_coefficients, trade_factors, translate_coefficients
from tallbayes.schemes.crossed_moves import map_factor, move_factor_levels
from tallbayes.schemes.factor_surrogates import factor_means, furthest_level, rest_of_factor
from tallbayes.schemes.level_moves import whitened_radius
from tallbayes.target import STATUS
from tallbayes.testing import poisson_outcomes

OPTIONS = {"student_t": {"nu": 4.0, "scale": 1.0}, "gaussian": {"sigma": 0.8}}


def tiny(family="logistic", slopes=False, nested=False, rows=10, weight=4.0, prior=None, idle=0):
    """A few rows in two factors with weights and offsets. `idle` rows of zero weight keep levels from being read in full."""
    rng = np.random.default_rng(5)
    a = np.arange(rows) % 2
    b = 2 * a + (np.arange(rows) // 2) % 2 if nested else (np.arange(rows) // 3) % 3
    X = np.column_stack([np.ones(rows), rng.standard_normal(rows)])
    y = {
        "logistic": (np.arange(rows) % 3 == 0),
        "poisson": np.arange(rows) % 3,
        "student_t": rng.standard_normal(rows),
        "gaussian": rng.standard_normal(rows),
    }[family]
    weights = rng.uniform(0.5, 1.0, rows) * {"logistic": weight, "poisson": 0.2}.get(family, 1.0)
    if idle:
        X, y = np.concatenate([X, np.ones((idle, 2))]), np.concatenate([y, np.ones(idle)])
        a, b = (np.concatenate([codes, codes[np.arange(idle) % rows]]) for codes in (a, b))
        weights = np.concatenate([weights, np.zeros(idle)])
    offsets = 0.3 * rng.standard_normal(y.size)
    data = tb.Dataset.from_arrays(X, y.astype(float), offsets, weights, groups={"a": (a, ["1", "x1"]) if slopes else a, "b": b})
    return getattr(tb.models, family)(data, tb.priors.normal(2.0) if prior is None else prior, **OPTIONS.get(family, {}))


class Case(NamedTuple):
    """A target and a state."""

    model: object
    target: object
    beta: np.ndarray
    log_sd: list
    partial: list
    effects: np.ndarray


def case_of(model, spread=0.6, seed=0, cells=True):
    """`cells=False`: levels know the other factor by its mean alone, as if it had many."""
    mode = tb.find_mode(model, progress=False)
    with pytest.MonkeyPatch.context() as patch:
        if not cells:
            patch.setattr(factor_cells, "_CELLS", 0)
        target = MinibatchGibbs().setup(model, mode, 0, False).target()
    assert all(own.broad.any() != cells for own in target.proxy.factors)
    rng = np.random.default_rng(seed)
    beta = mode.coefficients + spread * rng.standard_normal(model.data.d)
    effects = spread * rng.standard_normal(target.rows.centres.size)
    log_sd = [np.log([0.9, 0.7])[: len(f.terms)] for f in model.factors]
    return Case(model, target, beta, log_sd, [np.full(len(f.terms) - 1, 0.3) for f in model.factors], effects)


def given_of(case, k):
    core = case.target.proxy.surrogate
    delta, shift = np.empty(core.free.size), np.empty(case.beta.size)
    free_shift(core, case.beta, delta)
    widened(core, delta, shift)
    return rest_of_factor(case.target.proxy, k, case.effects, delta, shift, whitened_radius(core.inverse, delta))


def covariance(log_sd, partial):
    factor = np.empty((log_sd.size, log_sd.size))
    correlation_factor(partial, factor)
    factor = np.exp(log_sd)[:, None] * factor
    return factor @ factor.T


def log_joint(case, beta, log_sd, partial, effects):
    """Log posterior of everything, from the rows: none of the code under test."""
    model, tables = case.model, case.target.proxy
    data, d = model.data, model.data.d
    X, y, offset, weight = data.records[:, :d], *data.records[:, d : d + 3].T
    natural = natural_coefficients(tables.surrogate, beta)
    eta = X @ natural + offset
    total = prior_value(model.coefficient_terms, natural)
    for k, (factor, own) in enumerate(zip(model.factors, tables.factors, strict=True)):
        q = len(factor.terms)
        c = own.centres + effects[own.start : own.start + factor.levels * q].reshape(-1, q)
        b = c - own.prior.carriers @ beta[own.carried]
        Z = np.ones((data.n, 1)) if factor.first < 0 else data.records[:, factor.first : factor.first + q]
        eta = eta + (Z * b[factor.codes]).sum(1)
        sigma = covariance(log_sd[k], partial[k])
        total -= 0.5 * np.einsum("ga,ab,gb->", b, np.linalg.inv(sigma), b) + 0.5 * len(b) * np.linalg.slogdet(sigma)[1]
        total += log_sd[k].sum()
        for prior, s in zip(model.scale_priors[k], np.exp(log_sd[k]), strict=True):
            total -= 0.5 * (prior.df + 1) * np.log1p((s / prior.scale) ** 2 / prior.df)
        if q == 2:
            total += np.log(1.0 - np.tanh(partial[k][0]) ** 2)
    return total + sum(w * value(model.member, e, r) for w, e, r in zip(weight, eta, y, strict=True))


def scripted(patch, script, mutate):
    def draw_candidate(rng, chosen, k, g, slopes, factors, parts):
        i = script.candidates.pop(0)
        others = crossed_rows.others_norm(chosen.shares, i, k, chosen.spread)
        products = slope_products if slopes else effect_products
        products(chosen.exponential, *chosen.shares[i, [1, 2, 0, 3 + k]], others, parts)
        script.bounds.append(float(factors @ parts))
        return i, script.bounds[-1]

    for module in (crossed_moves, crossed_coefficients):
        patch.setattr(module, "accepts", script.accepts)
        patch.setattr(module, "draw_count", script.draw_count)
        patch.setattr(module, "draw_candidate", draw_candidate)
        patch.setattr(module, "find_level", lambda cumulative, level: script.owner)
    patch.setattr(crossed_moves, "chi_square", lambda rng: 5.0)
    patch.setattr(coefficient_moves, "accepts", script.accepts)
    if mutate is not None:
        mutate(patch)


def acceptance(monkeypatch, run, rows, owners, mutate=None, inflation=1.0):
    """Probability that a move is accepted, Poisson numbers of all rows summed out."""

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
    trials = {} if not base.rate else {i: trial([i], owner) for i, owner in zip(rows, owners, strict=True)}
    own = {
        g: sum(trials[i].bounds[0] for i, owner in zip(rows, owners, strict=True) if owner == g) for g in set(owners) if trials
    }
    if trials and not math.isclose(inflation * sum(own.values()), base.rate):  # some levels are read in full
        own = {g: rate for g, rate in own.items() if rate < 2.0 * owners.count(g)}
        assert math.isclose(inflation * sum(own.values()), base.rate)
    probability, ratio = np.ones(1), np.full(1, start)
    for one, owner in zip(trials.values(), owners if trials else [], strict=True):
        if owner not in own:
            continue
        assert one.kept[-2] <= one.bounds[0] * (1 + 1e-12)
        rate = inflation * one.kept[-2] * one.kept[-1]
        outcomes = list(itertools.takewhile(lambda o: o[1] <= 1 or o[0] > 1e-17, poisson_outcomes(rate)))
        contribution = one.tests[-1] - start
        added = np.array([0.0 if count == 0 else count * contribution for _, count in outcomes])
        probability = (probability[:, None] * np.array([p for p, _ in outcomes])).reshape(-1)
        ratio = (ratio[:, None] + added).reshape(-1)
        likely = probability > 1e-16
        probability, ratio = probability[likely], ratio[likely]
        assert probability.size < 1_000_000
    return math.exp(min(0.0, first)) * float(probability @ np.exp(np.minimum(0.0, ratio)))


def weighted_rows(case, k, g=None):
    """Rows that have a weight, those of a level or all, and their levels."""
    codes, weight = case.target.rows.codes[:, k], case.model.data.records[:, case.model.data.d + 2]
    rows = [i for i in range(codes.size) if weight[i] > 0.0 and (g is None or codes[i] == g)]
    return rows, [int(codes[i]) for i in rows]


def level_error(monkeypatch, case, k, mutate=None, spread=0.9, whole=False):
    """Invariance error of moves of the first level of factor k on a grid of values."""
    tables = case.target.proxy
    own, given = tables.factors[k], given_of(case, k)
    if whole:
        monkeypatch.setattr(crossed_moves, "SKEWED", 0.0)
    q = own.centres.shape[1]
    grid = spread * np.random.default_rng(1).standard_normal((4, q))
    states = [case.effects.copy() for _ in grid]
    for state, eps in zip(states, grid, strict=True):
        state[own.start : own.start + q] = eps
    parts = ("centres", "slopes", "curvatures", "thirds", "stretch")
    only = own._replace(**{name: getattr(own, name)[:1] for name in parts})
    factors = tuple(only if m == k else f for m, f in enumerate(tables.factors))
    target = case.target._replace(proxy=tables._replace(factors=factors))
    precision = np.linalg.inv(covariance(case.log_sd[k], case.partial[k]))
    mean0 = (own.prior.carriers @ case.beta[own.carried])[0]
    factor, scratch = np.zeros((q, q)), np.zeros((q, q))
    crossed_moves.fit_factor(given.curvature[0], own.curvatures[0], own.stretch[0], precision, factor, scratch)
    factor = np.tril(factor)
    mean = np.linalg.solve(factor @ factor.T, given.slope[0] - precision @ (own.centres[0] - mean0))
    white = [factor.T @ (eps - mean) for eps in grid]
    log_density = np.array([-0.5 * (5 + q) * np.log1p(w @ w / (5 * 1.21)) for w in white])
    proposals = np.exp(log_density) / np.exp(log_density).sum()
    weights = [log_joint(case, case.beta, case.log_sd, case.partial, s) for s in states]

    def accept(i, j):
        def run(script):
            script.normals = list(white[j] / 1.1)  # the chi-square number is 5
            effects = states[i].copy()
            move_factor_levels(script, target, k, case.beta, case.log_sd[k], case.partial[k], effects, given)
            assert len(script.tests) == 1 or np.allclose(effects, states[j], atol=1e-12)
            assert target.counters[STATUS] == 0 or mutate is not None

        return acceptance(monkeypatch, run, *weighted_rows(case, k, 0), mutate)

    return kernel_error(weights, [proposals] * 4, accept)


FORMS = {
    "logistic": {},
    "slopes": {"slopes": True},
    "nested": {"nested": True},
    "poisson": {"family": "poisson"},
    "student_t": {"family": "student_t"},
    "gaussian": {"family": "gaussian"},
}
every_form = pytest.mark.parametrize("form", FORMS)


@every_form
@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("whole, cells", [(False, False), (False, True), (True, False)], ids=["means", "cells", "all rows"])
def test_moves_of_levels_leave_the_posterior_invariant(monkeypatch, form, k, whole, cells):
    case = case_of(tiny(**FORMS[form], idle=0 if whole else 40), cells=cells)
    assert level_error(monkeypatch, case, k, whole=whole) < 1e-12


def no_other_factor(patch):
    """The residual of a level without the product of two factors."""
    patch.setattr(crossed_rows, "jet2", lambda family, eta, y: (0.0, 0.0, 0.0))


def no_cubic_term(patch):
    patch.setattr(crossed_rows, "third", lambda family, eta, y: 0.0)


@pytest.mark.parametrize("mutate", [no_other_factor, no_cubic_term])
def test_wrong_moves_of_levels_are_caught(monkeypatch, mutate):
    assert level_error(monkeypatch, case_of(tiny(idle=40), cells=False), 0, mutate) > 1e-4


@pytest.mark.parametrize("part", ["seconds", "thirds"])
def test_surrogates_without_sums_of_cells_are_caught(monkeypatch, part):
    case = case_of(tiny(idle=40))
    own = case.target.proxy.factors[0]
    wrong = own._replace(cells=own.cells._replace(**{part: 0.9 * getattr(own.cells, part)}))
    proxy = case.target.proxy._replace(factors=(wrong, case.target.proxy.factors[1]))
    case = case._replace(target=case.target._replace(proxy=proxy))
    assert level_error(monkeypatch, case, 0) > 1e-6


def coefficient_error(monkeypatch, case, mutate=None, inflation=1.0):
    tables = case.target.proxy
    core, kernel, lead = tables.surrogate, CoefficientMove(1.0, 0.0, 1.0, inflation), tables.lead
    f = core.free.size
    grid = core.reference[core.free] + (core.factor @ np.random.default_rng(2).standard_normal((f, 4))).T * 1.2
    states = []
    for values in grid:
        beta = case.beta.copy()
        beta[core.free] = values
        states.append(beta)
    linear = np.empty(f)
    crossed_coefficients.crossed_linear_term(tables, case.effects, factor_means(tables, case.effects), linear)
    mean = coefficient_moves._proposal_mean(core, tables.prior, linear, case.beta, np.empty(f))
    normals = [core.inverse @ (v - core.reference[core.free] - mean) for v in grid]
    log_density = np.array([-0.5 * w @ w for w in normals])
    proposals = np.exp(log_density) / np.exp(log_density).sum()
    weights = [log_joint(case, s, case.log_sd, case.partial, case.effects) for s in states]

    def accept(i, j):
        def run(script):
            script.normals = list(normals[j])
            beta = states[i].copy()
            move_crossed_coefficients(script, case.target, kernel, beta, case.effects)
            assert len(script.tests) == 1 or np.allclose(beta, states[j])

        return acceptance(monkeypatch, run, *weighted_rows(case, lead), mutate, inflation)

    return kernel_error(weights, [proposals] * 4, accept)


@pytest.mark.parametrize("form", [name for name in FORMS if name != "slopes"])
def test_moves_of_coefficients_leave_the_posterior_invariant(monkeypatch, form):
    case = case_of(tiny(**FORMS[form], rows=6, weight=1.5, idle=60))
    assert case.target.proxy.surrogate.free.size == 1
    assert coefficient_error(monkeypatch, case) < 1e-11
    assert case.target.counters[STATUS] == 0


def test_inflated_rates_leave_the_posterior_invariant(monkeypatch):
    assert coefficient_error(monkeypatch, case_of(tiny(rows=6, weight=1.5, idle=60)), inflation=1.3) < 1e-11


def no_crossed_third(patch):
    """The bound without the terms f''' e_k e_l."""
    original = crossed_rows.effect_sizes_of_row
    patch.setattr(crossed_coefficients, "effect_sizes_of_row", lambda *a: (original(*a)[0], 0.0))


def test_the_bound_without_products_of_factors_is_exceeded(monkeypatch):
    """E = 0 and e_a = -e_b: a row whose only residual of third order is the product."""
    case = case_of(tiny(rows=6, weight=1.5, idle=60), spread=0.0)
    effects = case.effects
    for k, sign in enumerate((0.8, -0.8)):
        own = case.target.proxy.factors[k]
        effects[own.start : own.start + own.centres.size] = sign
    effects[case.target.proxy.factors[0].start] += 0.5
    effects[case.target.proxy.factors[1].start] -= 0.5
    assert coefficient_error(monkeypatch, case) < 1e-11
    assert case.target.counters[STATUS] == 0
    assert coefficient_error(monkeypatch, case, no_crossed_third) > 1e-6
    assert case.target.counters[STATUS] != 0


def test_coefficients_without_the_cubic_term_are_caught(monkeypatch):
    assert coefficient_error(monkeypatch, case_of(tiny(rows=6, weight=1.5, idle=60)), no_cubic_term) > 1e-4


# Map moves: states on an orbit, with the Jacobian of the map in their weights


def map_error(monkeypatch, case, k, kind, mutate=None, inflation=1.0):
    own, given = case.target.proxy.factors[k], given_of(case, k)

    def other_of(state):
        noise = np.random.default_rng(100 + state).standard_normal(6) * 0.5 * (state > 0)
        beta, log_sd, partial = case.beta.copy(), case.log_sd[k].copy(), case.partial[k].copy()
        if kind == "scale":
            log_sd, partial = log_sd + noise[: log_sd.size], partial + noise[4 : 4 + partial.size]
        else:
            beta[own.carried] += noise[: own.carried.size]
        return beta, log_sd, partial

    def mapped(effects, state):
        at = [case.beta.copy(), case.log_sd[k].copy(), case.partial[k].copy(), effects.copy()]
        script = Script()
        script.owner = 0
        with monkeypatch.context() as patch:
            scripted(patch, script, None)
            map_factor(script, case.target, k, *at, given, *other_of(state), inflation)
        return at

    def weight(at):
        log_sd, partial = list(case.log_sd), list(case.partial)
        log_sd[k], partial[k] = at[1], at[2]
        return log_joint(case, at[0], log_sd, partial, at[3])

    moved = np.arange(own.start, own.start + own.centres.size)
    states, weights = [], []
    for state in range(4):
        jacobian = np.empty((moved.size, moved.size))
        for c, position in enumerate(moved):
            step = 1e-3 * np.eye(case.effects.size)[position]
            ends = mapped(case.effects + step, state)[3][moved], mapped(case.effects - step, state)[3][moved]
            jacobian[:, c] = (ends[0] - ends[1]) / 2e-3
        states.append(mapped(case.effects, state))
        weights.append(weight(states[-1]) + np.linalg.slogdet(jacobian)[1])

    def accept(i, j):
        def run(script):
            at = [a.copy() for a in states[i]]
            map_factor(script, case.target, k, *at, given, *states[j][:3], inflation)
            assert len(script.tests) == 1 and all(np.allclose(a, b, atol=1e-9) for a, b in zip(at, states[j], strict=True))

        return acceptance(monkeypatch, run, *weighted_rows(case, k), mutate, inflation)

    return kernel_error(weights, [[0.25] * 4] * 4, accept)


@every_form
@pytest.mark.parametrize("k, kind", [(0, "scale"), (1, "scale"), (0, "shift")])
def test_map_moves_leave_the_posterior_invariant(monkeypatch, form, k, kind):
    assert map_error(monkeypatch, case_of(tiny(**FORMS[form]), cells=form == "nested"), k, kind) < 1e-10


def test_inflated_rates_of_map_moves_leave_the_posterior_invariant(monkeypatch):
    assert map_error(monkeypatch, case_of(tiny()), 0, "scale", inflation=1.6) < 1e-10


def no_prior_ratio(patch):
    patch.setattr(crossed_moves, "prior_value", lambda prior, theta: 0.0)


def no_covariance_prior(patch):
    """With the Jacobian of log sigma: the scale move without its log s."""
    patch.setattr(crossed_moves, "covariance_prior", lambda *a: 0.0)


@pytest.mark.parametrize(
    "kind, mutate", [("shift", no_prior_ratio), ("scale", no_covariance_prior), ("scale", no_other_factor)]
)
def test_wrong_map_moves_are_caught(monkeypatch, kind, mutate):
    assert map_error(monkeypatch, case_of(tiny(), cells=False), 0, kind, mutate) > 1e-5


# Moves that read no rows


def predictors(case, beta, effects):
    model, tables = case.model, case.target.proxy
    data = model.data
    eta = data.records[:, : data.d] @ natural_coefficients(tables.surrogate, beta)
    for factor, own in zip(model.factors, tables.factors, strict=True):
        q = len(factor.terms)
        c = own.centres + effects[own.start : own.start + factor.levels * q].reshape(-1, q)
        Z = np.ones((data.n, 1)) if factor.first < 0 else data.records[:, factor.first : factor.first + q]
        eta = eta + (Z * (c - own.prior.carriers @ beta[own.carried])[factor.codes]).sum(1)
    return eta


@every_form
@pytest.mark.parametrize("kind", ["translation", "trade"])
def test_translations_are_gibbs_draws_that_leave_linear_predictors_alone(form, kind):
    """log posterior + |z|^2/2 is constant over the normals z that are scripted: the draw is the conditional law."""
    case = case_of(tiny(**FORMS[form]))
    tables = case.target.proxy
    inverses = [np.linalg.inv(covariance(s, p)) for s, p in zip(case.log_sd, case.partial, strict=True)]
    moves = range(2) if kind == "translation" else range(tables.pairs.counts.size)
    tried = 0
    for move in moves:
        size = tables.factors[move].translated.size if kind == "translation" else int(tables.pairs.counts[move])
        if size == 0:
            continue
        tried += 1
        totals = []
        for seed in range(4):
            z = np.random.default_rng(seed).standard_normal(size)
            script, beta, effects = Script(), case.beta.copy(), case.effects.copy()
            script.normals = list(z)
            if kind == "translation":
                assert translate_coefficients(script, tables, move, inverses[move], beta, effects)
            else:
                trade_factors(script, tables, move, *inverses, beta, effects)
            np.testing.assert_allclose(predictors(case, beta, effects), predictors(case, case.beta, case.effects), atol=1e-12)
            totals.append(log_joint(case, beta, case.log_sd, case.partial, effects) + 0.5 * z @ z)
        np.testing.assert_allclose(totals, totals[0], atol=1e-9)
    assert tried


def test_a_translation_without_the_prior_ratio_is_caught(monkeypatch):
    """With a prior that is not Gaussian the draw is a proposal; its test must be on the ratio of that prior."""
    case = case_of(tiny(prior=tb.priors.cauchy(0.5)))
    tables, ratios = case.target.proxy, []
    inverse = np.linalg.inv(covariance(case.log_sd[1], case.partial[1]))
    totals = []
    for z in (-1.0, 0.0, 1.5):
        script, beta, effects = Script(), case.beta.copy(), case.effects.copy()
        script.normals = [z]
        monkeypatch.setattr(crossed_coefficients, "accepts", script.accepts)
        assert translate_coefficients(script, tables, 1, inverse, beta, effects)
        totals.append(log_joint(case, beta, case.log_sd, case.partial, effects) + 0.5 * z * z)
        ratios.append(script.tests[0])
    np.testing.assert_allclose(np.diff(totals), np.diff(ratios), atol=1e-9)
    assert np.abs(np.diff(totals)).min() > 1e-3


def test_parts_of_crossed_and_nested_factors():
    crossed, nested = factor_pairs(tiny()), factor_pairs(tiny(nested=True))
    assert crossed.counts.tolist() == [1] and nested.counts.tolist() == [2]
    assert nested.parts[0].tolist() == [0, 1, 0, 0, 1, 1]


# Bounds


@every_form
@pytest.mark.parametrize("cells", [False, True], ids=["means", "cells"])
def test_residuals_are_within_their_bounds(form, cells):
    case = case_of(tiny(**FORMS[form]), cells=cells)
    target, tables = case.target, case.target.proxy
    core, rng, largest = tables.surrogate, np.random.default_rng(2), 0.0
    parts, factors = np.empty(7), np.empty(7)
    for _ in range(60):
        size = np.exp(rng.uniform(-3.0, 0.5))
        effects = size * rng.standard_normal(case.effects.size)
        means = factor_means(tables, effects)
        white = size * rng.standard_normal((2, core.free.size))
        before, after = np.zeros(case.beta.size), np.zeros(case.beta.size)
        widened(core, core.factor @ white[0], before)
        widened(core, core.factor @ white[1], after)
        radius = np.linalg.norm(white[0])
        for k, own in enumerate(tables.factors):
            q = own.centres.shape[1]
            given = rest_of_factor(tables, k, effects, (core.factor @ white[0]), before, radius)
            for g in range(own.centres.shape[0]):
                start, end = size * rng.standard_normal((2, q))
                fixed = own.stretch[g], own.most[g], own.sums, g, radius, given.rest, given.reach
                _, segment = crossed_moves.level_gap_rate(tables.exponential, tables.ratio, *fixed, start, end, factors)
                for i in weighted_rows(case, k, g)[0]:
                    a, curve, load, zeta = tables.shares[i, [0, 1, 2, 3 + k]]
                    x, s = target.rows.records[i], given.level_shift
                    known, rest = crossed_rows.other_effects(target.rows, x, i, k, own.broad, s, effects)
                    row = tables.exponential, tables.ratio, curve, load, a, zeta
                    bound = row_effect_bound(*row, radius, abs(rest), abs(known), *segment)
                    others = crossed_rows.others_norm(tables.shares, i, k, own.spread)
                    effect_products(tables.exponential, curve, load, a, zeta, others, parts)
                    ends = known, rest, start, end
                    gap = crossed_rows.crossed_effect_gap(target.rows, i, k, core.reference, before, effects, *ends)
                    assert abs(gap) <= bound * (1 + 1e-9) + 1e-13
                    assert bound <= factors @ parts * (1 + 1e-12)
                    largest = max(largest, abs(gap) / (bound + 1e-12))
        if core.free.size == 0:
            continue
        lead = tables.factors[tables.lead]
        distance, inner = np.linalg.norm(white[1] - white[0]), white[0] @ white[1]
        square = (white[0] @ white[0] + inner + white[1] @ white[1]) / 3.0
        radius = np.linalg.norm(white, axis=1).max()
        rest = max(furthest_level(own, effects, means[m]) for m, own in enumerate(tables.factors) if m != tables.lead)
        for i, g in zip(*weighted_rows(case, tables.lead), strict=True):
            q = lead.centres.shape[1]
            eps = effects[lead.start + g * q : lead.start + (g + 1) * q].copy()
            eps[0] -= means[tables.lead]
            effect, shift = np.linalg.norm(lead.stretch[g].T @ eps), abs(means.sum()) / lead.spread
            ends = distance, square, radius
            crossed_slope_factors(tables.exponential, tables.ratio, *ends, effect, rest, shift, False, lead.most[g], factors)
            a, curve, load, zeta = tables.shares[i, [0, 1, 2, 3 + tables.lead]]
            total, products = crossed_rows.effect_sizes_of_row(target.rows, i, effects, means)
            bound = row_slope_bound(tables.exponential, tables.ratio, curve, load, a, *ends, total, products)
            others = crossed_rows.others_norm(tables.shares, i, tables.lead, lead.spread)
            slope_products(tables.exponential, curve, load, a, zeta, others, parts)
            gap = crossed_rows.crossed_slope_gap(target.rows, i, core.reference, effects, means, before, after)
            assert abs(gap) <= bound * (1 + 1e-9) + 1e-13
            assert bound <= factors @ parts * (1 + 1e-12)
    if form == "gaussian" and cells:
        assert largest < 1e-9  # nothing is left out
    else:
        assert largest > 0.2  # the bounds are not idle


# Whole sweeps


def crossed_model(n=600, family="logistic", slopes=False, nested=False, seed=1, third=False):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 8, n)
    b = 3 * a + rng.integers(0, 3, n) if nested else rng.integers(0, 12, n)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    groups = {"a": (a, ["1", "x1"]) if slopes else a, "b": b}
    eta = X @ [-0.2, 0.5, 0.3] + (0.7 * rng.standard_normal(8))[a] + (0.4 * rng.standard_normal(24))[b]
    if slopes:
        eta += (0.5 * rng.standard_normal(8))[a] * X[:, 1]
    if third:
        groups["c"] = rng.integers(0, 5, n)
        eta += (0.5 * rng.standard_normal(5))[groups["c"]]
    y = {
        "logistic": lambda: rng.random(n) < 1 / (1 + np.exp(-eta)),
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "gaussian": lambda: eta + 0.8 * rng.standard_normal(n),
    }[family]()
    data = tb.Dataset.from_arrays(X, y.astype(float), groups=groups)
    return getattr(tb.models, family)(data, tb.priors.normal(3.0), **OPTIONS.get(family, {}))


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True], ids=["one factor", "two factors"])
def test_an_audit_passes_and_finds_planted_faults(several, monkeypatch):
    model = crossed_model(2000)
    if not several:
        data = model.data
        groups = {"a": data.groups[0].codes}
        plain = tb.Dataset.from_arrays(data.records[:, :3].copy(), data.y.copy(), groups=groups)
        model = tb.models.logistic(plain, tb.priors.normal(3.0))
    fit = tb.sample(model, "minibatch-gibbs", draws=200, warmup=200, chains=2, seed=1, progress=False)
    found = fit.audit(model, pairs=3)
    assert found.passed, found
    assert found.facts["decisions on levels"].startswith("3 replayed on")
    assert found.facts["largest residual / bound over all rows of them"] > 1e-3
    honest = level_replay._log_likelihood
    with monkeypatch.context() as patch:
        patch.setattr(level_replay, "_log_likelihood", lambda *a: 1.001 * honest(*a))
        assert "do not add up" in repr(fit.audit(model, pairs=3))
    with monkeypatch.context() as patch:
        if several:
            rates = crossed_moves.level_gap_rate
            patch.setattr(crossed_moves, "level_gap_rate", lambda *a: (1.1 * rates(*a)[0], None))
        else:
            rates = level_replay.level_rate
            patch.setattr(level_replay, "level_rate", lambda *a: 1.1 * rates(*a))
        assert "not the sum of their bounds" in repr(fit.audit(model, pairs=3))
