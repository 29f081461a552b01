"""Row verbs and full passes against dense NumPy; the scalar functions against the C library."""

import functools
import gc
import itertools
import math
import multiprocessing
import pickle
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.special import expit

from tallbayes.compile import SUMS, jit
from tallbayes.data import Dataset
from tallbayes.engine import passes
from tallbayes.engine.arithmetic import exp, log1p_unit
from tallbayes.engine.family_functions import jet1, jet2, residual, value
from tallbayes.engine.indexed_rows import tile_rows
from tallbayes.engine.outside import (
    ADD_CURVATURES,
    ADD_SLOPES,
    CONTROL_GRADIENT,
    PROXY_VALUES,
    RANGE_GRADIENT,
    RANGE_HESSIAN,
    RANGE_SCORES,
    RANGE_VALUE,
    RESIDUAL_DIFFERENCES,
    RESIDUAL_SLOPES,
    RESIDUAL_VALUES,
    ROW_VALUES,
    WEIGHTED_GRADIENT,
)
from tallbayes.engine.rows import (
    HERE,
    NUMBERED,
    Rows,
    range_gradient,
    range_hessian,
    range_value,
    residual_differences,
    row_values,
    rows_of,
    weighted_gradient,
)
from tallbayes.engine.several_functions import vector_hessian, vector_residual
from tallbayes.engine.survey import range_norms
from tallbayes.engine.verb_calls import FAILED, run_verb
from tallbayes.families.gaussian import PredictedScale
from tallbayes.families.logistic import Logistic
from tallbayes.families.softmax import Softmax
from tallbayes.models import gaussian, logistic, poisson
from tallbayes.pointers import held_by

CASES = ("logistic", "logistic-float32", "poisson", "gaussian", "gaussian-sigma")
SIZES = (0, 1, 255, 256, 257, 1000)
ROWS, COLUMNS = 40_451, 6  # the last of the blocks of 768 rows has two whole tiles and three rows


@cache
def problem(case):
    """Rows of a model, and the same numbers as float64 arrays: X, y, offset, weights, and a theta."""
    rng = np.random.default_rng(11)
    X = rng.standard_normal((ROWS, COLUMNS))
    theta = 0.4 * rng.standard_normal(COLUMNS)
    offset, weights = 0.5 * rng.standard_normal(ROWS), rng.gamma(2.0, size=ROWS)
    eta = X @ theta + offset
    dtype = "float32" if case.endswith("float32") else "float64"
    if case.startswith("logistic"):
        y, family, options = (rng.random(ROWS) < expit(eta)).astype(float), logistic, {}
    elif case == "poisson":
        y, family, options = rng.poisson(np.exp(eta)).astype(float), poisson, {}
    else:
        y, family = eta + 0.7 * rng.standard_normal(ROWS), gaussian
        options = {"sigma": 0.7} if case == "gaussian" else {}
    if case == "gaussian-sigma":
        theta = np.append(theta, -0.3)
    data = Dataset.from_arrays(X, y, offset, weights, dtype=dtype)
    stored = data.records[:, : COLUMNS + 3].astype(float)
    parts = stored[:, :COLUMNS], stored[:, COLUMNS], stored[:, COLUMNS + 1], stored[:, COLUMNS + 2]
    return family(data, **options).rows, *parts, theta


def row_jets(case, index, theta):
    """Log-likelihood of the indexed rows without weights, their gradients and Hessians in theta."""
    _, X, y, offset, _, _ = problem(case)
    x, y = X[index], y[index]
    eta = x @ theta[:COLUMNS] + offset[index]
    outer = np.einsum("ia,ib->iab", x, x)
    if case.startswith("logistic"):
        p = expit(eta)
        return y * eta - np.logaddexp(0.0, eta), (y - p)[:, None] * x, -(p * (1.0 - p))[:, None, None] * outer
    if case == "poisson":
        rate = np.exp(eta)
        return y * eta - rate, (y - rate)[:, None] * x, -rate[:, None, None] * outer
    if case == "gaussian":
        error = y - eta
        return -0.5 * (error / 0.7) ** 2, error[:, None] * x / 0.49, -outer / 0.49
    sigma = math.exp(theta[-1])
    z = (y - eta) / sigma
    gradient = np.column_stack([z[:, None] * x / sigma, z**2 - 1.0])
    hessian = np.empty((z.size, COLUMNS + 1, COLUMNS + 1))
    hessian[:, :-1, :-1] = -outer / sigma**2
    hessian[:, -1, :-1] = hessian[:, :-1, -1] = -2.0 * z[:, None] * x / sigma
    hessian[:, -1, -1] = -2.0 * z**2
    return -theta[-1] - 0.5 * z**2, gradient, hessian


def summed(weights, terms):
    """Weighted sum over rows, and the size its rounding error is relative to."""
    return np.tensordot(weights, terms, 1), np.tensordot(np.abs(weights), np.abs(terms), 1)


def agree(found, expected_and_size, relative=1e-10):
    expected, size = expected_and_size
    np.testing.assert_array_less(np.abs(found - expected), relative * size + 1e-300)


def indices(size, seed):
    return np.random.default_rng(seed).integers(0, ROWS, size)


@pytest.mark.parametrize("case", CASES)
def test_full_passes_agree_with_numpy(case):
    rows, _, _, _, weights, theta = problem(case)
    values, gradients, hessians = row_jets(case, slice(None), theta)
    agree(passes.total_value(rows, theta), summed(weights, values))
    value, gradient = passes.total_gradient(rows, theta)
    agree(value, summed(weights, values))
    agree(gradient, summed(weights, gradients))
    value, gradient, hessian = passes.total_hessian(rows, theta)
    agree(value, summed(weights, values))
    agree(gradient, summed(weights, gradients))
    agree(hessian, summed(weights, hessians))
    np.testing.assert_array_equal(hessian, hessian.T)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", SIZES)
def test_values_at_agree_with_numpy(case, size):
    rows, _, _, _, weights, theta = problem(case)
    index = indices(size, 12)
    expected = weights[index] * row_jets(case, index, theta)[0]
    np.testing.assert_allclose(passes.values_at(rows, index, theta), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", SIZES)
def test_gradient_at_agrees_with_numpy(case, size):
    rows, _, _, _, weights, theta = problem(case)
    index, factors = indices(size, 13), np.random.default_rng(14).standard_normal(size)
    values, gradients, _ = row_jets(case, index, theta)
    value, gradient = passes.gradient_at(rows, index, factors, theta)
    agree(value, summed(factors * weights[index], values))
    agree(gradient, summed(factors * weights[index], gradients))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", SIZES)
def test_residuals_at_agree_with_numpy(case, size):
    rows, _, _, _, weights, reference = problem(case)
    rng = np.random.default_rng(15)
    theta, other = reference + 0.3 * rng.standard_normal((2, reference.size))
    index = indices(size, 16)
    f, gradient, hessian = row_jets(case, index, reference)

    def remainder(point):
        h = point - reference
        return row_jets(case, index, point)[0] - f - gradient @ h - 0.5 * np.einsum("a,iab,b->i", h, hessian, h)

    expected = weights[index] * (remainder(other) - remainder(theta))
    size_of_terms = weights[index] * (1.0 + np.abs(f) + np.abs(gradient).sum(1) + np.abs(hessian).sum((1, 2)))
    found = passes.residuals_at(rows, index, theta, other, reference)
    np.testing.assert_array_less(np.abs(found - expected), 1e-12 * size_of_terms)


@pytest.mark.parametrize("case", CASES)
def test_whitened_norms_agree_with_numpy(case):
    rows, X, _, _, _, theta = problem(case)
    rng = np.random.default_rng(17)
    factor = np.tril(rng.standard_normal((theta.size, theta.size)))
    expected = np.linalg.norm(X @ factor[:COLUMNS], axis=1)
    if theta.size > COLUMNS:
        expected = np.hypot(expected, np.linalg.norm(factor[COLUMNS:]))
    np.testing.assert_allclose(passes.whitened_norms(rows, factor), expected, rtol=1e-12)


@pytest.mark.parametrize("case", ["logistic", "poisson"])
def test_a_survey_gives_norms_and_curvatures_of_a_range(case):
    rows, X, _, offset, weights, theta = problem(case)
    weightless = rows._replace(records=rows.records.copy())
    weightless.records[450, COLUMNS + 2] = 0.0
    factor = np.tril(np.random.default_rng(22).standard_normal((COLUMNS, COLUMNS)))
    norms, curvatures, suprema = passes.survey(weightless, 100, 903, factor, theta)
    weights = np.where(np.arange(ROWS) == 450, 0.0, weights)[100:903]
    eta = X[100:903] @ theta + offset[100:903]
    np.testing.assert_allclose(norms, np.linalg.norm(X[100:903] @ factor, axis=1), rtol=1e-12)
    bend = expit(eta) * expit(-eta) if case == "logistic" else np.exp(eta)
    np.testing.assert_allclose(curvatures, weights * bend, rtol=1e-12)
    largest = 1.0 / (6.0 * math.sqrt(3.0)) if case == "logistic" else math.inf
    np.testing.assert_allclose(suprema, [w * largest if w > 0.0 else 0.0 for w in weights], rtol=1e-12)


@pytest.mark.parametrize("case", ["logistic", "gaussian-sigma"])
def test_a_pass_gives_the_same_bits_on_any_number_of_cores(case):
    rows, _, _, _, _, theta = problem(case)
    assert len(passes.block_bounds(ROWS)) > 10
    factor = np.eye(theta.size)
    results = []
    for cores in (1, 2, 5):
        _, gradient, hessian = passes.total_hessian(rows, theta, cores)
        norms = passes.whitened_norms(rows, factor, cores)
        parts = [passes.total_value(rows, theta, cores), *passes.total_gradient(rows, theta, cores), gradient, hessian, norms]
        results.append([np.asarray(part).tobytes() for part in parts])
    assert results[0] == results[1] == results[2]


def test_blocks_run_on_several_threads():
    """The first block waits for the last one, which a single thread would never reach."""
    last = passes.block_bounds(ROWS)[-1][0]
    meeting = threading.Barrier(2, timeout=20.0)

    def work(start, stop):
        if start in (0, last):
            meeting.wait()
        return start

    assert passes.over_blocks(ROWS, work, 2) == [start for start, _ in passes.block_bounds(ROWS)]


@pytest.mark.parametrize("n", [1, 255, 256, 257, 600, 16_384, 16_385, 40_000, 1_000_003])
def test_blocks_cover_the_rows_once_in_whole_tiles(n):
    bounds = passes.block_bounds(n)
    assert bounds[0][0] == 0
    assert bounds[-1][1] == n
    assert all(a[1] == b[0] and b[0] % 256 == 0 for a, b in itertools.pairwise(bounds))
    assert len(bounds) <= passes.BLOCKS


@pytest.mark.parametrize("case", CASES)
def test_interpreted_verbs_agree_with_compiled_ones(case):
    rows, _, _, _, _, theta = problem(case)
    few = rows._replace(records=rows.records[:303])
    index, factors = indices(40, 18) % 303, np.random.default_rng(19).standard_normal(40)
    other = theta + 0.1

    values = np.empty(40)
    row_values(few, index, theta, values)
    np.testing.assert_allclose(values, passes.values_at(few, index, theta), rtol=1e-12)

    gradient = np.zeros(theta.size)
    value = weighted_gradient(few, index, factors, theta, gradient)
    compiled_value, compiled_gradient = passes.gradient_at(few, index, factors, theta)
    np.testing.assert_allclose(np.append(gradient, value), np.append(compiled_gradient, compiled_value), rtol=1e-10, atol=1e-12)

    residuals = np.empty(40)
    residual_differences(few, index, other, theta, theta, residuals)
    np.testing.assert_allclose(residuals, passes.residuals_at(few, index, other, theta, theta), rtol=1e-10, atol=1e-12)

    gradient, hessian = np.zeros(theta.size), np.zeros((theta.size, theta.size))
    second_value = range_hessian(few, 0, 303, theta, gradient, hessian)
    _, compiled_gradient, compiled_hessian = passes.total_hessian(few, theta)
    np.testing.assert_allclose(gradient, compiled_gradient, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(hessian, np.tril(compiled_hessian), rtol=1e-10, atol=1e-10)

    gradient = np.zeros(theta.size)
    first_value = range_gradient(few, 0, 303, theta, gradient)
    np.testing.assert_allclose(gradient, compiled_gradient, rtol=1e-10, atol=1e-10)
    assert second_value == pytest.approx(first_value, rel=1e-12)
    assert range_value(few, 0, 303, theta) == pytest.approx(first_value, rel=1e-12)

    norms = np.empty(303)
    range_norms(few, 0, 303, np.eye(theta.size), norms)
    np.testing.assert_allclose(norms, passes.whitened_norms(few, np.eye(theta.size)), rtol=1e-12)


def test_gradients_and_hessians_are_added_to_what_is_there():
    rows, _, _, _, _, theta = problem("logistic")
    gradient, hessian = np.zeros(theta.size), np.zeros((theta.size, theta.size))
    for start, stop in ((0, 300), (300, 1000)):
        passes._hessian(rows, start, stop, theta, gradient, hessian)
    _, whole, curvature = passes.total_hessian(rows._replace(records=rows.records[:1000]), theta)
    np.testing.assert_allclose(gradient, whole, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(hessian, np.tril(curvature), rtol=1e-10, atol=1e-10)


def test_an_infinite_likelihood_is_not_hidden():
    """Reordered sums must keep the meaning of NaN and infinity."""
    rows, _, _, _, _, theta = problem("gaussian")
    assert passes.total_value(rows, np.full(theta.size, 1e200)) == -np.inf
    assert np.isnan(passes.total_value(rows, np.full(theta.size, np.nan)))


@jit
def exp_all(x, out):
    for i in range(x.size):
        out[i] = exp(x[i])


@jit
def log1p_all(z, out):
    for i in range(z.size):
        out[i] = log1p_unit(z[i])


def both_speeds(function, x):
    compiled, interpreted = np.empty((2, x.size))
    function(x, compiled)
    function.py_func(x, interpreted)
    return compiled, interpreted


def test_exp_is_accurate_over_its_whole_range():
    rng = np.random.default_rng(20)
    tiny = rng.uniform(-1.0, 1.0, 5000) * 10.0 ** rng.uniform(-300.0, 0.0, 5000)
    x = np.concatenate([np.linspace(-707.999, 709.0, 10_001), rng.standard_normal(5000), tiny, [0.0, -0.0]])
    expected = np.array([math.exp(v) for v in x])
    for found in both_speeds(exp_all, x):
        np.testing.assert_allclose(found, expected, rtol=1e-15, atol=0.0)


def test_exp_saturates_and_keeps_nan():
    x = np.array([-np.inf, -1e300, -745.0, -708.0, 710.0, 1e300, np.inf, np.nan])
    top = math.exp(709.0)
    for found in both_speeds(exp_all, x):
        np.testing.assert_array_equal(found[:4], 0.0)
        np.testing.assert_allclose(found[4:7], top, rtol=1e-15)
        assert np.isnan(found[7])


def test_log1p_is_accurate_on_the_unit_interval():
    rng = np.random.default_rng(21)
    bend = math.sqrt(2.0) - 1.0
    around = [np.nextafter(bend, 0.0), bend, np.nextafter(bend, 1.0)]
    z = np.concatenate([np.linspace(0.0, 1.0, 10_001), 10.0 ** rng.uniform(-300.0, 0.0, 5000), around])
    expected = np.array([math.log1p(v) for v in z])
    for found in both_speeds(log1p_all, z):
        np.testing.assert_allclose(found, expected, rtol=1e-15, atol=0.0)


def test_log1p_keeps_nan():
    for found in both_speeds(log1p_all, np.array([np.nan])):
        assert np.isnan(found[0])


# Every verb for every layout of indices, at both speeds, against the derivatives of one row after the other

FOUR = 4  # columns
SCALE = PredictedScale(1)
LAYOUTS = {  # a member of a family, and of each index the first column, columns, first coordinate, whether it has the offset
    "one": (Logistic(), [(0, FOUR, 0, True)]),
    "one of some columns": (Logistic(), [(0, 3, 0, True)]),
    "one, a coordinate": (Logistic(), [(0, 0, 0, False)]),
    "two, shared columns": (SCALE, [(0, FOUR, 0, True), (0, FOUR, FOUR, False)]),
    "two, own columns": (SCALE, [(0, 3, 0, True), (3, 1, 3, True)]),
    "two, overlapping columns": (SCALE, [(0, 3, 0, True), (1, 3, 3, False)]),
    "two, a coordinate": (SCALE, [(0, FOUR, 0, True), (0, 0, FOUR, False)]),
    "two, a coordinate first": (SCALE, [(0, 0, 0, False), (1, 3, 1, True)]),
    "three": (Softmax(3), [(0, FOUR, FOUR * k, True) for k in range(3)]),
    "ten": (Softmax(10), [(0, FOUR, FOUR * k, k < 9) for k in range(10)]),
}
WIDEST = 772  # rows: three tiles of one index and four rows


class Layout(NamedTuple):
    """Rows of a layout, the same numbers as arrays, and points: theta, another and a reference."""

    rows: Any
    member: Any
    maps: np.ndarray  # (rows, K, dim)
    offsets: np.ndarray  # (rows, K)
    y: np.ndarray
    weights: np.ndarray
    points: np.ndarray


@cache
def layout_of_indices(name, dtype="float64"):
    member, blocks = LAYOUTS[name]
    k, rng = len(blocks), np.random.default_rng(31)
    dim = max(start + max(count, 1) for _, count, start, _ in blocks)
    X, offset = 0.5 * rng.standard_normal((WIDEST, FOUR)), 0.3 * rng.standard_normal(WIDEST)
    y = rng.integers(0, k, WIDEST) if isinstance(member, Softmax) else rng.integers(0, 2, WIDEST)
    weights = rng.gamma(2.0, size=WIDEST)
    weights[5::7] = 0.0
    records = Dataset.from_arrays(X, y, offset, weights, dtype=dtype).records
    stored = records[:, : FOUR + 3].astype(float)
    maps, offsets = np.zeros((WIDEST, k, dim)), np.zeros((WIDEST, k))
    for a, (column, count, start, shifted) in enumerate(blocks):
        maps[:, a, start : start + max(count, 1)] = stored[:, column : column + count] if count else 1.0
        offsets[:, a] = shifted * stored[:, FOUR + 1]
    points = 0.4 * rng.standard_normal((3, dim))
    rows = rows_of(member, records, FOUR, blocks)
    return Layout(rows, member, maps, offsets, stored[:, FOUR], stored[:, FOUR + 2], points)


@cache
def jets_at(name, dtype, point):
    """Values, gradients and Hessians in the indices of all rows without weights, and residuals from the reference."""
    layout = layout_of_indices(name, dtype)
    theta, reference = layout.points[point], layout.points[2]
    n, k = layout.offsets.shape
    u, base = layout.maps @ theta + layout.offsets, layout.maps @ reference + layout.offsets
    f, g, h, rest = np.empty(n), np.empty((n, k)), np.empty((n, k, k)), np.empty(n)
    for i in range(n):
        if k == 1:
            f[i], g[i, 0], h[i, 0, 0] = jet2(layout.member, u[i, 0], layout.y[i])
            rest[i] = residual(layout.member, base[i, 0], layout.y[i], u[i, 0] - base[i, 0])
        else:
            f[i] = vector_hessian(layout.member, u[i], layout.y[i], g[i], h[i])
            rest[i] = vector_residual(layout.member, base[i], u[i] - base[i], layout.y[i])
    return f, g, h, rest, u - base


def run_interpreted(rows, verb, index, limits, points, order, factors, out, table):
    total = np.zeros(1)
    run_verb(rows, verb, index, *limits, tuple(points), order, factors, total, out, table)
    return total[0]


@jit(options=SUMS)
def run_compiled(rows, verb, index, limits, points, order, factors, out, table):
    total, three = np.zeros(1), (points[0], points[1], points[2])
    run_verb(rows, verb, index, limits[0], limits[1], three, order, factors, total, out, table)
    return total[0]


def ask(run, layout, verb, index, limits=(0, 0), order=0, factors=None, table=None):
    """Total, `out` and `table` of a verb; what is added is added to ones."""
    dim, k = layout.points.shape[1], layout.offsets.shape[1]
    per_row = verb in (ROW_VALUES, RESIDUAL_DIFFERENCES, PROXY_VALUES, RESIDUAL_VALUES, RESIDUAL_SLOPES)
    out = np.ones(index.size if per_row else dim)
    if table is None:
        shape = {RESIDUAL_SLOPES: (index.size, k), RANGE_SCORES: (limits[1] - limits[0], dim)}.get(verb, (dim, dim))
        table = np.ones(shape)
    factors = np.ones(index.size) if factors is None else factors
    total = run(layout.rows, verb, index, limits, layout.points, order, factors, out, table)
    return total, out, table


def both_speeds_agree(layout, verb, index, **asked):
    """What a verb answers compiled; interpreted it is the same up to the order of its sums."""
    compiled, interpreted = (ask(run, layout, verb, index, **asked) for run in (run_compiled, run_interpreted))
    assert layout.rows.answers[FAILED] == 0.0
    for first, second in zip(compiled, interpreted, strict=True):
        largest = np.max(np.abs(second), initial=1.0)
        np.testing.assert_allclose(first, second, rtol=1e-14, atol=1e-14 * largest)
    return compiled


def tile_sizes(k):
    """Rows around the ends of the tiles of every verb."""
    tiles = sorted({tile_rows(k, each) for each in (k, 2 * k, k * k)})
    if k == 1:
        return (0, 1, 255, 256, 257, 769)
    if k == 10:
        return (1, tiles[0] + 1, tiles[-1] + 1)
    return (1, *(size for tile in tiles for size in (tile - 1, tile, tile + 1)), 2 * tiles[-1] + 5)


close = functools.partial(np.testing.assert_allclose, rtol=1e-11, atol=1e-11)
LAYOUT_CASES = [*((name, "float64") for name in LAYOUTS), ("one", "float32"), ("two, own columns", "float32")]


def sums_over(layout, jets, at, factors):
    """Value, gradient and the lower triangle of the Hessian of a weighted sum over rows, and ones to which they are added."""
    f, g, h = (part[at] for part in jets[:3])
    c, maps = factors * layout.weights[at], layout.maps[at]
    hessian = np.einsum("i,iad,iab,ibe->de", c, maps, h, maps, optimize=True)
    return c @ f, 1.0 + np.einsum("i,iad,ia->d", c, maps, g), 1.0 + np.tril(hessian)


@pytest.mark.parametrize("name, dtype", LAYOUT_CASES)
def test_verbs_on_an_index_are_sums_over_its_rows(name, dtype):
    layout = layout_of_indices(name, dtype)
    k, rng = layout.offsets.shape[1], np.random.default_rng(32)
    here, there, known = (jets_at(name, dtype, point) for point in range(3))
    for size in filter(None, tile_sizes(k)):  # of no rows nobody asks
        at, factors = rng.integers(0, WIDEST, size), rng.standard_normal(size)
        run, w, maps = functools.partial(both_speeds_agree, layout, index=at), layout.weights[at], layout.maps[at]
        value, gradient, hessian = sums_over(layout, here, at, factors)
        close(run(verb=ROW_VALUES)[1], w * here[0][at])
        total, out, _ = run(verb=WEIGHTED_GRADIENT, factors=factors)
        close(total, value)
        close(out, gradient)
        close(run(verb=RESIDUAL_DIFFERENCES, order=2)[1], w * (there[3] - here[3])[at])
        close(run(verb=ADD_CURVATURES, factors=factors)[2], hessian)
        f, g, h = (part[at] for part in known[:3])
        step = here[4][at]
        terms = [f, np.einsum("ia,ia->i", g, step), 0.5 * np.einsum("ia,iab,ib->i", step, h, step)]
        for order in (0, 1, 2):
            close(run(verb=PROXY_VALUES, order=order)[1], w * sum(terms[: order + 1]))
            rest = w * (here[3][at] + sum(terms[order + 1 :]))
            slopes = here[1][at] - (g if order > 0 else 0.0) - (np.einsum("iab,ib->ia", h, step) if order > 1 else 0.0)
            slopes = w[:, None] * slopes
            close(run(verb=RESIDUAL_VALUES, order=order)[1], rest)
            _, values, table = run(verb=RESIDUAL_SLOPES, order=order)
            close(values, rest)
            close(table, slopes)
            expected = 1.0 + np.einsum("i,iad,ia->d", factors, maps, slopes)
            close(run(verb=ADD_SLOPES, factors=factors, table=slopes)[1], expected)
            close(run(verb=CONTROL_GRADIENT, order=order, factors=factors)[1], expected)


@pytest.mark.parametrize("name, dtype", LAYOUT_CASES)
def test_verbs_on_a_range_are_sums_over_its_rows(name, dtype):
    layout, nothing = layout_of_indices(name, dtype), np.zeros(0, np.int64)
    jets, start = jets_at(name, dtype, 0), 2
    for size in tile_sizes(layout.offsets.shape[1]):
        limits, at = (start, start + size), slice(start, start + size)
        run = functools.partial(both_speeds_agree, layout, index=nothing, limits=limits)
        value, gradient, hessian = sums_over(layout, jets, at, 1.0)
        close(run(verb=RANGE_VALUE)[0], value)
        total, out, _ = run(verb=RANGE_GRADIENT)
        close(total, value)
        close(out, gradient)
        total, out, table = run(verb=RANGE_HESSIAN)
        close(total, value)
        close(out, gradient)
        close(table, hessian)
        scores = np.einsum("i,iad,ia->id", layout.weights[at], layout.maps[at], jets[1][at])
        close(run(verb=RANGE_SCORES)[2], scores)


# Rows in other processes


class Bent(NamedTuple):
    """A family that holds arrays: f = y eta - bend[y] eta^2 / 2 + shift[y]."""

    bend: np.ndarray
    inner: tuple[float, np.ndarray]


@value.register(Bent)
def _bent_value(family, eta, y):
    return y * eta - 0.5 * family.bend[int(y)] * eta * eta + family.inner[0] * family.inner[1][int(y)]


@jet1.register(Bent)
def _bent_jet1(family, eta, y):
    return value(family, eta, y), y - family.bend[int(y)] * eta


@jet2.register(Bent)
def _bent_jet2(family, eta, y):
    return value(family, eta, y), y - family.bend[int(y)] * eta, -family.bend[int(y)]


def bent_rows():
    member = Bent(np.array([0.5, 2.0]), (3.0, np.array([7, 11], np.uint16)))
    return rows_of(member, layout_of_indices("one").rows.records, FOUR, LAYOUTS["one"][1])


def values_of(rows, speeds=(True, True)):
    """What a process finds for the first rows: interpreted, and by the machine code at the addresses."""
    theta = np.linspace(-0.5, 0.5, 4)
    found = [range_value(rows, 0, 20, theta)] if speeds[0] else []
    return [*found, passes._value(rows, 0, 20, theta)] if speeds[1] else found


SENT = {
    "arrays": bent_rows,
    "several indices": lambda: layout_of_indices("two, own columns").rows,
    "float32": lambda: layout_of_indices("two, own columns", "float32").rows,
}


@pytest.mark.parametrize("name", SENT)
def test_rows_are_made_again_from_a_pickle(name):
    rows = SENT[name]()._replace(n=1000, most=7, place=NUMBERED, numbers=np.arange(5), answers=np.arange(3.0))
    expected, sent = values_of(SENT[name]()), pickle.dumps(rows)
    held, addresses = rows.p.copy(), rows.layout.copy()
    del rows
    gc.collect()
    again = pickle.loads(sent)
    assert (again.n, again.most, again.place) == (1000, 7, NUMBERED)
    assert (again.numbers.tolist(), again.answers.tolist()) == ([0, 1, 2, 3, 4], [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(again.layout, addresses)  # of functions, which this process has
    assert values_of(again._replace(place=HERE)) == expected
    if name == "arrays":
        assert held_by(again.p).bend.ctypes.data == again.p[0]
        assert values_of(pickle.loads(pickle.dumps(again))._replace(place=HERE)) == expected
    else:
        np.testing.assert_array_equal(again.p, held)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_rows_in_another_process_have_its_addresses(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("not on this system")
    if method == "fork" and "jax" in sys.modules:
        pytest.skip("JAX is loaded, and its threads do not survive a fork")
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
        for make in SENT.values():
            assert pool.submit(values_of, make()).result() == values_of(make())


def test_an_address_of_another_process_would_be_seen(monkeypatch):
    """The mutant: a pickle that keeps addresses. Interpreted, since machine code would end the process."""
    monkeypatch.setattr(Rows, "__reduce__", lambda rows: (Rows, tuple(rows)))
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool, pytest.raises((KeyError, BrokenProcessPool)):
        pool.submit(values_of, bent_rows(), (True, False)).result()
