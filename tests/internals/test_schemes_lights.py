"""Internals of `tallbayes.schemes.lights`; what users see of it is tested in test_firefly.py."""

import itertools
import math
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.compile import jit
from tallbayes.proxies.lower_bounds import bound_value, gaps_at, touching
from tallbayes.samplers import Firefly
from tallbayes.samplers.firefly import FireflyOptions
from tallbayes.schemes.lights import (
    SWEEP,
    WITH,
    WITHOUT,
    Changes,
    Explicit,
    Implicit,
    Lights,
    brighten,
    classes_of,
    darken,
    first_lights,
    log_odds,
    lower_gaps,
    marked_rows,
    resample,
    single_rate,
    with_room,
)
from tallbayes.target import EVALS
from tallbayes.testing import THRESHOLD, invariance_error, invariance_scores, irreducible, run_chunks

LIGHTS = list(itertools.product((0, 1), repeat=3))


class Three(NamedTuple):
    """Three rows under a loose bound, three states of theta: gaps, and the joint law of theta and z."""

    target: object
    theta: np.ndarray
    gap: np.ndarray
    joint: np.ndarray  # (states, lights)
    posterior: np.ndarray


@cache
def three():
    X = np.array([[1.0, 0.4], [1.0, -1.3], [1.0, 2.0]])
    data = tb.Dataset.from_arrays(X, [1.0, 0.0, 0.0], [0.2, 0.0, -0.3], [1.0, 2.5, 0.7])
    model = tb.models.logistic(data, tb.priors.cauchy(2.0))
    mode = tb.find_mode(model, progress=False)
    target = Firefly(bound="untuned", xi=4.0).setup(model, mode, 0, False).target()
    theta = np.array([[0.3, -1.0], [-0.5, 0.6], [1.2, 0.4]])
    gap = np.array([gaps_at(model.rows, target.proxy, t) for t in theta])
    base = np.array([bound_value(target.proxy, t) + model.log_prior(t) for t in theta])
    joint = np.exp(
        np.array([[b + sum(log_odds(g[i]) for i in range(3) if z[i]) for z in LIGHTS] for b, g in zip(base, gap, strict=True)])
    )
    log_posterior = np.array([model.log_posterior(t) for t in theta])
    posterior = np.exp(log_posterior - log_posterior.max())
    return Three(target, theta, gap, joint / joint.sum(), posterior / posterior.sum())


def test_the_marginal_of_the_joint_law_is_the_posterior():
    case = three()
    np.testing.assert_allclose(case.joint.sum(1), case.posterior, rtol=1e-9)
    bright = -np.expm1(-case.gap)
    assert bright.min() > 0.01 and bright.max() > 0.3  # z matters


def light_matrix(chance):
    """Transition matrix of three independent lights, given P(z' = 1 | z) of each as (when dark, when bright)."""
    matrix = np.ones((8, 8))
    for (i, z), (j, new) in itertools.product(enumerate(LIGHTS), enumerate(LIGHTS)):
        for row in range(3):
            p = chance[row][z[row]]
            matrix[i, j] *= p if new[row] else 1.0 - p
    return matrix


def implicit_chance(gap, rate):
    odds = np.expm1(gap)
    return [(q * min(1.0, o / q), 1.0 - min(1.0, q / o)) for q, o in zip(rate, odds, strict=True)]


def typo_chance(gap, rate):
    """Line 10 of the paper's Algorithm 2 as printed: brighten if L~/q < u."""
    odds = np.expm1(gap)
    return [(q * max(0.0, 1.0 - o / q), 1.0 - min(1.0, q / o)) for q, o in zip(rate, odds, strict=True)]


def sequential_chance(gap, rate):
    """Rows that were just darkened are tried again."""
    dark = [c[0] for c in implicit_chance(gap, rate)]
    return [(d, c[1] + (1.0 - c[1]) * d) for d, c in zip(dark, implicit_chance(gap, rate), strict=True)]


RATES = {"one rate": np.full(3, 0.2), "one rate per row": np.array([0.5, 0.06, 0.3])}


@pytest.mark.parametrize("rate", RATES.values(), ids=RATES)
def test_implicit_resampling_enumerated_and_its_mutants(rate):
    case = three()
    for state in range(3):
        law = case.joint[state] / case.joint[state].sum()
        right = light_matrix(implicit_chance(case.gap[state], rate))
        assert invariance_error(right, law) < 1e-15 and irreducible(right)
        assert invariance_error(light_matrix(typo_chance(case.gap[state], rate)), law) > 1e-2
        assert invariance_error(light_matrix(sequential_chance(case.gap[state], rate)), law) > 1e-3


def test_a_whole_iteration_enumerated():
    """Metropolis on theta given z, then implicit resampling: the joint law is invariant, and theta's marginal is the posterior."""
    case, rate = three(), RATES["one rate per row"]
    law = case.joint.reshape(-1)
    move = np.zeros((24, 24))
    for s, z in itertools.product(range(3), range(8)):
        for t in range(3):
            if t != s:
                move[s * 8 + z, t * 8 + z] = min(1.0, case.joint[t, z] / case.joint[s, z]) / 3.0
        move[s * 8 + z, s * 8 + z] = 1.0 - move[s * 8 + z].sum()
    lights = np.zeros((24, 24))
    for s in range(3):
        lights[s * 8 : s * 8 + 8, s * 8 : s * 8 + 8] = light_matrix(implicit_chance(case.gap[s], rate))
    for moves in (1, 2, 5):
        whole = np.linalg.matrix_power(move, moves) @ lights
        assert invariance_error(whole, law) < 1e-15 and irreducible(whole)
    stale = np.zeros((24, 24))  # the mutant: z is resampled with the gaps of before the last move
    for s, t in itertools.product(range(3), repeat=2):
        block = move[s * 8 : s * 8 + 8, t * 8 : t * 8 + 8]
        stale[s * 8 : s * 8 + 8, t * 8 : t * 8 + 8] = block @ light_matrix(implicit_chance(case.gap[s], rate))
    assert invariance_error(move @ stale, law) > 1e-3


@jit
def _transitions(rng, target, scheme, theta, gap, code, repeats, counts):
    """How often resampling takes the lights `code` to each of the eight states."""
    for _ in range(repeats):
        lights = Lights(
            np.arange(3).astype(np.int32),
            np.arange(3).astype(np.int32),
            np.zeros(3),
            np.zeros(3, np.uint8),
            np.arange(3).astype(np.int32),
            np.zeros(3, np.int64),
        )
        for row in range(3):
            if code >> (2 - row) & 1:
                brighten(lights, row, gap[row])
        lights, changes = resample(rng, target, scheme, theta, lights)
        new = 0
        for at in range(lights.tally[0]):
            new |= 1 << (2 - lights.order[at])
            if lights.gap[at] != gap[lights.order[at]] or lights.place[lights.order[at]] != at:
                new = 8  # the structure is broken
        for k in range(changes.row.size):
            code_of = 1 << (2 - changes.row[k])
            if (changes.sign[k] > 0.0) != ((new & code_of) != 0) and scheme_is_single(scheme):
                new = 8
        counts[new] += 1


@tb.compile.generic
def scheme_is_single(scheme):
    """Whether a row changes at most once."""
    return True


@scheme_is_single.register(Explicit)
def _explicit_is_single(scheme):
    return scheme.scheme != 0


def observed(scheme, state, code, repeats=40_000):
    case, counts = three(), np.zeros(9, np.int64)
    _transitions(np.random.default_rng(code), case.target, scheme, case.theta[state], case.gap[state], code, repeats, counts)
    assert counts[8] == 0
    return counts[:8] / repeats, repeats


def agrees(found, repeats, expected):
    spread = np.sqrt(np.maximum(expected * (1.0 - expected), 1e-12) / repeats)
    return (np.abs(found - expected) < THRESHOLD * spread + 2.0 / repeats).all()


@pytest.mark.parametrize("name", RATES)
def test_implicit_resampling_has_the_enumerated_probabilities(name):
    rate = RATES[name]
    scheme = single_rate(0.2, 3) if name == "one rate" else classes_of(rate)
    mutants = 0
    for state, code in ((0, 0), (0, 5), (1, 7), (2, 2)):
        found, repeats = observed(scheme, state, code)
        assert agrees(found, repeats, light_matrix(implicit_chance(three().gap[state], rate))[code])
        mutants += not agrees(found, repeats, light_matrix(sequential_chance(three().gap[state], rate))[code])
    assert mutants >= 2


def explicit_matrix(gap, size, scheme):
    """Mean over the choices of rows of the product of single Gibbs draws."""
    lit = -np.expm1(-gap)
    one = [light_matrix([(lit[r], lit[r]) if r == row else (0.0, 1.0) for r in range(3)]) for row in range(3)]
    if scheme == SWEEP:
        return np.linalg.multi_dot([*one[:size], np.eye(8)])
    choices = itertools.product(range(3), repeat=size) if scheme == WITH else itertools.permutations(range(3), size)
    products = [np.linalg.multi_dot([*(one[r] for r in choice), np.eye(8)]) for choice in choices]
    return np.mean(products, axis=0)


@pytest.mark.parametrize("scheme", [WITH, WITHOUT, SWEEP], ids=["with", "without", "sweep"])
def test_explicit_resampling_has_the_enumerated_probabilities(scheme):
    for state, code in ((0, 0), (1, 7), (2, 2)):
        matrix = explicit_matrix(three().gap[state], 2, scheme)
        law = three().joint[state] / three().joint[state].sum()
        assert invariance_error(matrix, law) < 1e-15
        found, repeats = observed(Explicit(2, scheme), state, code)
        assert agrees(found, repeats, matrix[code])


def test_the_first_lights_have_their_law_given_theta():
    case, rng = three(), np.random.default_rng(1)
    counts = np.zeros(8)
    for _ in range(3000):
        lights = first_lights(rng, case.target, case.theta[1], False)
        counts[sum(1 << (2 - row) for row in lights.order[: lights.tally[0]])] += 1
    assert agrees(counts / 3000, 3000, case.joint[1] / case.joint[1].sum())


def test_the_structure_of_lights():
    rng = np.random.default_rng(2)
    n = 50
    index = np.arange(n, dtype=np.int32)
    lights = Lights(index.copy(), index.copy(), np.zeros(1), np.zeros(n, np.uint8), index[:0], np.zeros(3, np.int64))
    truth = {}
    for _ in range(2000):
        row = int(rng.integers(n))
        if row in truth:
            del truth[row]
            darken(lights, lights.place[row])
        else:
            truth[row] = float(rng.random())
            lights = with_room(lights, 1)
            brighten(lights, row, truth[row])
        count = lights.tally[0]
        assert {int(r): float(g) for r, g in zip(lights.order[:count], lights.gap[:count], strict=True)} == truth
        np.testing.assert_array_equal(lights.order[lights.place], index)


def test_marked_rows_are_marked_at_their_rates():
    rng = np.random.default_rng(3)
    rate = np.concatenate([[1.0, 0.7], rng.uniform(0.001, 0.3, 60), np.full(40, 1e-4)])
    classes = classes_of(rate)
    assert classes.top.size <= 8 and sorted(classes.member) == list(range(rate.size))
    counts = np.zeros(rate.size)
    for _ in range(6000):
        rows = marked_rows(rng, classes)
        assert np.unique(rows).size == rows.size
        counts[rows] += 1
    spread = np.sqrt(rate * (1 - rate) / 6000)
    assert (np.abs(counts / 6000 - rate) < 5.5 * spread + 1e-3).all()


# Whole chains from exact draws, with a bound so loose that z matters.


class Wrong(NamedTuple):
    """Implicit resampling with one of the known errors."""

    rate: float
    typo: bool


@resample.register(Wrong)
def _wrong(rng, target, scheme, theta, lights):
    n, made = lights.order.size, 0
    row, sign, change = np.empty(2 * n, np.int32), np.empty(2 * n), np.empty(2 * n)
    gap, before = np.empty(n), np.zeros(n, np.uint8)
    lower_gaps(target, np.arange(n), theta, gap)
    for at in range(lights.tally[0] - 1, -1, -1):
        before[lights.order[at]] = 1
        if rng.random() * math.expm1(lights.gap[at]) < scheme.rate:
            row[made], sign[made], change[made] = lights.order[at], -1.0, lights.gap[at]
            made += 1
            darken(lights, at)
    lights = with_room(lights, n)
    for i in range(n):
        if lights.place[i] >= lights.tally[0] and (not scheme.typo or before[i] == 0) and rng.random() < scheme.rate:
            u = rng.random() * scheme.rate
            if (math.expm1(gap[i]) < u) == scheme.typo:
                row[made], sign[made], change[made] = i, 1.0, gap[i]
                made += 1
                brighten(lights, i, gap[i])
    return lights, Changes(row[:made], sign[:made], change[:made], n)


class MutantFirefly(Firefly):
    """Firefly whose lights are resampled wrongly."""

    typo = True

    def setup(self, model, mode, seed, progress):
        setup = super().setup(model, mode, seed, progress)
        setup.policy.scheme = Wrong(0.1, self.typo)
        return setup


class SequentialFirefly(MutantFirefly):
    """The same with the other error."""

    typo = False


class StaleFirefly(Firefly):
    """Firefly that resamples as if theta had not moved: it forgets to renew the gaps of bright rows."""

    def setup(self, model, mode, seed, progress):
        setup = super().setup(model, mode, seed, progress)
        setup.policy.scheme = Stale(setup.policy.scheme)
        return setup


class Stale(NamedTuple):
    """Resampling with gaps of bright rows at the reference."""

    inner: Implicit


@resample.register(Stale)
def _stale(rng, target, scheme, theta, lights):
    gap = np.empty(lights.tally[0])
    lower_gaps(target, lights.order[: gap.size], touching(target.proxy), gap)
    lights.gap[: gap.size] = gap
    return resample(rng, target, scheme.inner, theta, lights)


def test_several_moves_of_theta_keep_exact_draws_and_old_gaps_do_not(small):
    for sampler, right in ((Firefly, True), (StaleFirefly, False)):
        several = sampler(bound="untuned", xi=0.1, rate=0.1, theta_moves=4)
        scores = invariance_scores(several, small.model, small.posterior, starts=10_000, steps=10, mode=small.mode)
        assert (np.abs(scores).max() < THRESHOLD) == right


@pytest.mark.parametrize("mutant", [MutantFirefly, SequentialFirefly])
def test_a_wrong_resampling_is_caught(mutant, small):
    sampler = mutant(bound="untuned", xi=0.1)
    scores = invariance_scores(sampler, small.model, small.posterior, starts=20_000, steps=60, mode=small.mode)
    assert np.abs(scores).max() > THRESHOLD


def test_the_joint_density_reported_belongs_to_the_draw(small):
    """After long runs the density kept along with the lights is what a fresh evaluation gives, for moves with and without gradient."""
    for move in (tb.moves.random_walk(), tb.moves.mala()):
        sampler = Firefly(move=move, bound="untuned", xi=0.1, rate=0.1)
        theta, info, state = run_chunks(sampler, small.model, small.mode, [300])
        proxy = sampler.setup(small.model, small.mode, 3, False).proxy
        lit = state["state.lights.order"][: state["state.lights.tally"][0]]
        gap = gaps_at(small.model.rows, proxy, theta[-1])
        np.testing.assert_allclose(state["state.lights.gap"][: lit.size], gap[lit], rtol=1e-12)
        assert proxy.prior  # is in the sum of the bounds
        value = bound_value(proxy, theta[-1]) + sum(log_odds(g) for g in gap[lit])
        report = dict(zip(sampler.columns, info.T, strict=True))
        assert report["joint"][-1] == pytest.approx(value, rel=1e-10)
        assert report["bright"][-1] == lit.size
        np.testing.assert_array_equal(np.diff(report["bright"]), (report["brightened"] - report["darkened"])[1:])
        assert 0 < report["seen"][0] <= report["seen"][-1] <= 60
        if move.name == "random_walk":
            np.testing.assert_array_equal(report["evals"][1:], report["bright"][:-1] + report["looked"][1:])
            assert not report["evals_gradient"].any()
        else:
            change = state["state.gradient"].copy()
            density_gradient(proxy, small.model, theta[-1], lit, change)
            assert np.abs(change).max() < 1e-8


def density_gradient(proxy, model, theta, lit, gradient):
    """Subtract the gradient of the joint density, by central differences, to see that nothing is left."""
    for j in range(theta.size):
        step = np.eye(theta.size)[j] * 1e-6

        def value(at):
            gap = gaps_at(model.rows, proxy, at)
            return bound_value(proxy, at) + sum(log_odds(g) for g in gap[lit])

        gradient[j] -= (value(theta + step) - value(theta - step)) / 2e-6
        gradient[j] = gradient[j] if abs(gradient[j]) > 1e-4 else 0.0


# What users meet.


def test_counters_and_frozen_options(small):
    setup = Firefly().setup(small.model, small.mode, 0, False)
    options = setup.policy.options(setup.policy.begin(), True)
    assert isinstance(options, FireflyOptions) and isinstance(options.scheme, Implicit)
    target = setup.target()
    first_lights(np.random.default_rng(0), target, small.mode.reference, False)
    assert target.counters[EVALS] == 60
