"""Gradients of minibatches, read in bursts of records: against dense NumPy, and what the compiled code asks the memory for."""

import re
from functools import cache

import numpy as np
import pytest
from scipy.special import expit

import tallbayes.compile
from tallbayes.compile import jit
from tallbayes.data import Dataset
from tallbayes.engine.bursts import BURST, burst_rows
from tallbayes.engine.gradients import control_gradient, expect_rows
from tallbayes.models import logistic

WIDE = 300  # columns of a row of which a burst has fewer than BURST


@jit
def compiled_gradient(rows, index, factors, theta, reference, order, gradient):
    expect_rows(rows, index)
    control_gradient(rows, index, factors, theta, reference, order, gradient)


@cache
def problem(columns, dtype):
    """Rows, and their numbers as float64."""
    rng = np.random.default_rng(columns)
    X = rng.standard_normal((500, columns)) / np.sqrt(columns)
    data = Dataset.from_arrays(X, rng.random(500) < 0.4, rng.standard_normal(500), rng.gamma(2.0, size=500), dtype=dtype)
    stored = data.records[:, : columns + 3].astype(float)
    return logistic(data).rows, stored[:, :columns], *stored[:, columns:].T


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("columns, dtype", [(1, "float64"), (29, "float64"), (29, "float32"), (WIDE, "float64")])
def test_gradients_read_in_bursts_agree_with_numpy(columns, dtype, order):
    rows, X, y, offset, weight = problem(columns, dtype)
    rng = np.random.default_rng(5)
    reference = rng.standard_normal(columns)
    theta = reference + 0.3 * rng.standard_normal(columns)
    for size in (0, 1, BURST - 1, BURST, BURST + 1, 2 * BURST, 5 * BURST + 3):
        index, factors = rng.integers(0, 500, size), rng.gamma(3.0, size=size)
        x = X[index]
        base = expit(x @ reference + offset[index])
        there = y[index] - expit(x @ theta + offset[index])
        slopes = there - (order > 0) * (y[index] - base) + (order > 1) * base * (1.0 - base) * (x @ (theta - reference))
        gradient = np.arange(columns, dtype=float)
        compiled_gradient(rows, index, factors, theta, reference, order, gradient)
        expected = np.arange(columns) + (factors * weight[index] * slopes) @ x
        np.testing.assert_allclose(gradient, expected, rtol=1e-10, atol=1e-10 * (1.0 + np.abs(expected).max()))


def test_a_burst_of_wide_rows_is_shorter():
    assert burst_rows(problem(29, "float64")[0].records) == BURST
    assert 4 <= burst_rows(problem(WIDE, "float64")[0].records) < BURST
    assert burst_rows(np.empty((1, 1 << 20))) == 4


def test_bursts_go_to_the_second_level_cache(monkeypatch):
    """An instruction that asked for the first would be correct, and slower."""
    monkeypatch.setattr(tallbayes.compile, "CACHED", False)  # code that was read from disk cannot be looked at
    rows, compiled = problem(29, "float64")[0], jit(compiled_gradient.py_func)
    compiled(rows, np.zeros(3, np.int64), np.ones(3), np.zeros(29), np.zeros(29), 1, np.zeros(29))
    code = "".join(compiled.inspect_llvm().values())
    levels = re.findall(r"call void @llvm\.prefetch\.p0(?:i8)?\(.*?, i32 0, i32 (\d), i32 1\)", code)  # p0i8 up to LLVM 15
    assert set(levels) == {"2"}
