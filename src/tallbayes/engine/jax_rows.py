"""Rows whose log-likelihood is a function the user wrote in JAX: l_i(theta) = weight_i log_lik(theta, row_i).

Verbs gather records in NumPy, pad them to one of a few sizes, so that the number of compiled programs does not depend on n or on
the subsample, and run one jitted program for each verb and size. Everything is float64 by JAX's thread-local context; the global
switch is left alone. Taylor terms of a row are derivatives along theta - reference by forward mode: no Hessian of a row is formed.
Rows that stay the same along a trajectory are gathered once.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tallbayes.engine.gradients import control_gradient
from tallbayes.engine.jax_predictor import of_predictor, residual_predictors
from tallbayes.engine.residuals import add_curvatures, add_slopes, residual_slopes, residual_values, slope_count
from tallbayes.engine.rounding import ALLOWANCE, rounding
from tallbayes.engine.rows import (
    proxy_values,
    range_gradient,
    range_hessian,
    range_value,
    residual_differences,
    row_values,
    weighted_gradient,
)
from tallbayes.engine.survey import range_norms
from tallbayes.errors import ModelError, OptionError

SIZES = (16, 128, 512, 1024, 1536, 2048, 4096, 8192)  # batches are padded to one of these; longer ones are cut
FEW = 128  # rows that are cheaper to hand over again than to compare with those held


def import_jax() -> Any:
    """The module, or an error that says what to install."""
    try:
        import jax
    except ImportError:
        raise OptionError("models in JAX need the extra: pip install 'tallbayes[jax]'.") from None
    return jax


class Program:
    """The jitted functions of one log-likelihood; each takes a block of packed records (x, y, offset, weight)."""

    def __init__(self, log_lik: Callable[[Any, dict[str, Any]], Any], columns: tuple[str, ...], response: str) -> None:
        jax = import_jax()
        import jax.numpy as jnp

        self.jax, self.columns, self.response, self.log_lik = jax, columns, response, log_lik
        self.scale = 1.0  # largest |l_i| seen at the reference, for the rounding of residuals
        self.held = threading.local()  # blocks of this thread's last rows, by padded size
        batched = jax.vmap(self.one, (None, 0))
        d = len(columns)

        def weighted(theta: Any, block: Any) -> Any:
            return block[:, d + 2] * batched(theta, block)

        def total(theta: Any, block: Any, factors: Any) -> Any:
            return jnp.where(factors != 0.0, factors * weighted(theta, block), 0.0).sum()

        def along(block: Any, reference: Any, step: Any) -> tuple[Any, Any, Any]:
            def curve(t: Any) -> Any:
                return weighted(reference + t * step, block)

            def slope(t: Any) -> Any:
                return jax.jvp(curve, (t,), (1.0,))

            (value, first), (_, second) = jax.jvp(slope, (0.0,), (1.0,))
            return value, first, second

        def taylor(theta: Any, reference: Any, block: Any, order: int) -> Any:
            if order == 0:
                return weighted(reference, block)
            value, first, second = along(block, reference, theta - reference)
            return value + first + (0.5 * second if order == 2 else 0.0)

        def residual(theta: Any, reference: Any, block: Any, order: int) -> Any:
            return weighted(theta, block) - taylor(theta, reference, block, order)

        def residual_sum(theta: Any, reference: Any, block: Any, factors: Any, order: int) -> Any:
            return jnp.where(factors != 0.0, factors * residual(theta, reference, block, order), 0.0).sum()

        def split(block: Any) -> tuple[Any, ...]:
            return block[:, :d], block[:, d], block[:, d + 1], block[:, d + 2]

        def residual_slope(theta: Any, reference: Any, x: Any, y: Any, offset: Any, weight: Any, order: int) -> tuple[Any, Any]:
            def value(t: Any) -> Any:
                return weight * log_lik(t, self.named(x, y, offset))

            def directional(t: Any) -> tuple[Any, Any]:
                return jax.jvp(value, (t,), (step,))

            (there, slope), step = jax.value_and_grad(value)(theta), theta - reference
            if order == 0:
                return there - value(reference), slope
            if order == 1:
                base, along = directional(reference)
                return there - base - along, slope - jax.grad(value)(reference)
            (base, along), (_, second) = jax.jvp(
                directional, (reference,), (step,)
            )  # a number: step' H step would need H step stored
            first, change = jax.jvp(jax.grad(value), (reference,), (step,))
            return there - base - along - 0.5 * second, slope - first - change

        def residual_rows(theta: Any, reference: Any, parts: Any, order: int) -> tuple[Any, Any]:
            return jax.vmap(lambda x, y, z, w: residual_slope(theta, reference, x, y, z, w, order))(*parts)

        def curvature(theta: Any, block: Any, factors: Any) -> tuple[Any, Any, Any]:
            value, gradient = jax.value_and_grad(total)(theta, block, factors)
            return value, gradient, jax.hessian(total)(theta, block, factors)

        def third(theta: Any, direction: Any, block: Any) -> Any:
            def curve(t: Any) -> Any:
                return weighted(theta + t * direction, block)

            for _ in range(3):
                curve = functools.partial(lambda f, t: jax.jvp(f, (t,), (1.0,))[1], curve)
            return curve(0.0)

        def steepest_third(theta: Any, block: Any) -> Any:
            return jax.vmap(lambda record: third(theta, steepest(theta, record), record[None])[0])(block)

        def steepest(theta: Any, record: Any) -> Any:
            slope = jax.grad(self.one)(theta, record)
            size = jnp.sqrt(slope @ slope)
            return jnp.where(size > 0.0, slope / jnp.where(size > 0.0, size, 1.0), 1.0 / np.sqrt(theta.size))

        self.steepest_third = jax.jit(steepest_third)
        self.weighted, self.total, self.gradient = jax.jit(weighted), jax.jit(total), jax.jit(jax.value_and_grad(total))
        self.taylor, self.residual = jax.jit(taylor, static_argnums=3), jax.jit(residual, static_argnums=3)
        self.residual_gradient = jax.jit(jax.value_and_grad(residual_sum), static_argnums=4)
        self.residual_rows, self.split = jax.jit(residual_rows, static_argnums=3), jax.jit(split)
        self.of_predictor: dict[int, Any] = {}  # by the length of theta: the likelihood of a linear predictor, or None
        along_predictors = functools.partial(residual_predictors, jax, lambda *row: self.of_predictor[d](*row))
        self.residual_predictors = jax.jit(along_predictors, static_argnums=3)
        self.row_gradients = jax.jit(jax.vmap(jax.grad(self.one), (None, 0)))
        self.curvature, self.third = jax.jit(curvature), jax.jit(third)

    def one(self, theta: Any, record: Any) -> Any:
        """Log-likelihood of one packed record."""
        return self.log_lik(theta, self.row(record))

    def row(self, record: Any) -> dict[str, Any]:
        """The row as the user's function sees it: "x", "y", "offset" and every column by its name."""
        d = len(self.columns)
        return self.named(record[:d], record[d], record[d + 1])

    def named(self, x: Any, y: Any, offset: Any) -> dict[str, Any]:
        """The same from its parts."""
        return {**{name: x[j] for j, name in enumerate(self.columns)}, self.response: y, "x": x, "y": y, "offset": offset}

    def linear(self, dim: int) -> bool:
        """Whether the likelihood sees theta only through x . theta."""
        if dim not in self.of_predictor:

            def parted(theta: Any, x: Any, y: Any, offset: Any) -> Any:
                return self.log_lik(theta, self.named(x, y, offset))

            self.of_predictor[dim] = of_predictor(self.jax, parted, len(self.columns), dim)
        return self.of_predictor[dim] is not None

    def call(self, name: str, *arguments: Any) -> Any:
        """A jitted function in double precision, its results as NumPy arrays."""
        with self.jax.enable_x64(True):
            found = getattr(self, name)(*arguments)
            return tuple(np.asarray(v) for v in found) if isinstance(found, tuple) else np.asarray(found)

    def fingerprint(self, dim: int) -> str:
        """Hash of the traced program and of the numbers it closes over: equal for equal likelihoods."""
        with self.jax.enable_x64(True):
            record = np.zeros(len(self.columns) + 3)
            traced = self.jax.make_jaxpr(self.one)(np.zeros(dim), record)
        digest = hashlib.blake2b(str(traced.jaxpr).encode(), digest_size=16)
        for constant in traced.consts:
            digest.update(np.asarray(constant).tobytes())
        return digest.hexdigest()

    @property
    def programs(self) -> int:
        """How many programs have been compiled."""
        jitted = (v for v in vars(self).values() if hasattr(v, "_cache_size"))
        return sum(v._cache_size() for v in jitted)


class JaxRows(NamedTuple):
    """Rows of a model written in JAX."""

    program: Program
    records: np.ndarray
    columns: int
    dim: int

    @property
    def interpreted(self) -> bool:
        """Its verbs are Python functions: code that is given these runs interpreted."""
        return True


def batches(count: int) -> list[tuple[int, int, int]]:
    """(start, stop, padded size) of batches that cover `count` rows.

    >>> batches(9000)
    [(0, 8192, 8192), (8192, 9000, 1024)]
    """
    found = []
    for start in range(0, count, SIZES[-1]):
        stop = min(count, start + SIZES[-1])
        found.append((start, stop, next(s for s in SIZES if s >= stop - start)))
    return found


def gather(rows: JaxRows, index: np.ndarray, size: int) -> np.ndarray:
    """Records of the index in float64, the last repeated up to the padded size."""
    block = np.empty((size, rows.columns + 3))
    block[: index.size] = rows.records[index, : rows.columns + 3]
    block[index.size :] = block[index.size - 1]
    return block


def held_block(rows: JaxRows, index: np.ndarray, size: int) -> np.ndarray:
    """`gather`, kept while the index stays what it is. The few rows of a renewed block are not kept."""
    program = rows.program
    if size <= FEW:
        return gather(rows, index, size)
    if not hasattr(program.held, "blocks"):
        program.held.blocks, program.held.parts = {}, {}
    found = program.held.blocks.get(size)
    if found is None or found[0] is not rows.records or not np.array_equal(found[1], index):
        found = program.held.blocks[size] = rows.records, index.copy(), gather(rows, index, size)
        program.held.parts.pop(size, None)
    return found[2]


def held_parts(rows: JaxRows, index: np.ndarray, size: int) -> Any:
    """Columns, response, offset and weight of the same, kept by JAX as long: a trajectory reads the same rows at every step."""
    program, d = rows.program, rows.columns
    block = held_block(rows, index, size)
    if size <= FEW:
        return block[:, :d], block[:, d], block[:, d + 1], block[:, d + 2]
    if size not in program.held.parts:
        with program.jax.enable_x64(True):
            program.held.parts[size] = program.split(block)
    return program.held.parts[size]


def padded(values: np.ndarray, size: int) -> np.ndarray:
    """Zeros after the values."""
    out = np.zeros(size)
    out[: values.size] = values
    return out


def _slice(rows: JaxRows, start: int, stop: int, size: int) -> np.ndarray:
    return gather(rows, np.arange(start, stop), size)


@row_values.register(JaxRows)
def _row_values(rows: JaxRows, index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    for a, b, size in batches(index.size):
        out[a:b] = rows.program.call("weighted", theta, gather(rows, index[a:b], size))[: b - a]


@weighted_gradient.register(JaxRows)
def _weighted_gradient(rows: JaxRows, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, gradient: np.ndarray) -> float:
    total = 0.0
    for a, b, size in batches(index.size):
        value, slope = rows.program.call("gradient", theta, gather(rows, index[a:b], size), padded(factors[a:b], size))
        total += float(value)
        gradient += slope
    return total


@residual_differences.register(JaxRows)
def _residual_differences(
    rows: JaxRows, index: np.ndarray, theta: np.ndarray, other: np.ndarray, reference: np.ndarray, out: np.ndarray
) -> None:
    for a, b, size in batches(index.size):
        block = gather(rows, index[a:b], size)
        there = rows.program.call("residual", other, reference, block, 2)
        out[a:b] = (there - rows.program.call("residual", theta, reference, block, 2))[: b - a]


@proxy_values.register(JaxRows)
def _proxy_values(
    rows: JaxRows, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray
) -> None:
    for a, b, size in batches(index.size):
        out[a:b] = rows.program.call("taylor", theta, reference, gather(rows, index[a:b], size), order)[: b - a]


@range_value.register(JaxRows)
def _range_value(rows: JaxRows, start: int, stop: int, theta: np.ndarray) -> float:
    total = 0.0
    for a, b, size in batches(stop - start):
        block = _slice(rows, start + a, start + b, size)
        total += float(rows.program.call("total", theta, block, padded(np.ones(b - a), size)))
    return total


@range_gradient.register(JaxRows)
def _range_gradient(rows: JaxRows, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray) -> float:
    total = 0.0
    for a, b, size in batches(stop - start):
        block = _slice(rows, start + a, start + b, size)
        value, slope = rows.program.call("gradient", theta, block, padded(np.ones(b - a), size))
        total += float(value)
        gradient += slope
    return total


@range_hessian.register(JaxRows)
def _range_hessian(rows: JaxRows, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray, hessian: np.ndarray) -> float:
    total = 0.0
    for a, b, size in batches(stop - start):
        block = _slice(rows, start + a, start + b, size)
        value, slope, second = rows.program.call("curvature", theta, block, padded(np.ones(b - a), size))
        total += float(value)
        gradient += slope
        hessian += np.tril(second)
    return total


@rounding.register(JaxRows)
def _rounding(rows: JaxRows) -> float:
    return ALLOWANCE * rows.program.scale


@range_norms.register(JaxRows)
def _range_norms(rows: JaxRows, start: int, stop: int, factor: np.ndarray, out: np.ndarray) -> None:
    raise ModelError("a model written in JAX has no linear predictor by which to weight its rows; use rows='uniform'.")


@slope_count.register(JaxRows)
def _slope_count(rows: JaxRows) -> int:
    return 1 if rows.program.linear(rows.dim) else rows.dim


@residual_values.register(JaxRows)
def _residual_values(
    rows: JaxRows, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray
) -> None:
    for a, b, size in batches(index.size):
        out[a:b] = rows.program.call("residual", theta, reference, gather(rows, index[a:b], size), order)[: b - a]


@residual_slopes.register(JaxRows)
def _residual_slopes(
    rows: JaxRows, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray, slopes: np.ndarray
) -> None:
    linear = rows.program.linear(rows.dim)
    verb = "residual_predictors" if linear else "residual_rows"
    for a, b, size in batches(index.size):
        value, slope = rows.program.call(verb, theta, reference, held_parts(rows, index[a:b], size), order)
        out[a:b] = value[: b - a]
        slopes[a:b] = slope[: b - a, None] if linear else slope[: b - a]


@add_slopes.register(JaxRows)
def _add_slopes(rows: JaxRows, index: np.ndarray, slopes: np.ndarray, factors: np.ndarray, gradient: np.ndarray) -> None:
    if not rows.program.linear(rows.dim):
        gradient += factors @ slopes
        return
    for a, b, size in batches(index.size):
        gradient += (factors[a:b] * slopes[a:b, 0]) @ held_block(rows, index[a:b], size)[: b - a, : rows.columns]


@add_curvatures.register(JaxRows)
def _add_curvatures(rows: JaxRows, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, hessian: np.ndarray) -> None:
    for a, b, size in batches(index.size):
        block = gather(rows, index[a:b], size)
        hessian += np.tril(rows.program.call("curvature", theta, block, padded(factors[a:b], size))[2])


@control_gradient.register(JaxRows)
def _control_gradient(
    rows: JaxRows,
    index: np.ndarray,
    factors: np.ndarray,
    theta: np.ndarray,
    reference: np.ndarray,
    order: int,
    gradient: np.ndarray,
) -> None:
    for a, b, size in batches(index.size):
        block = gather(rows, index[a:b], size)
        gradient += rows.program.call("residual_gradient", theta, reference, block, padded(factors[a:b], size), order)[1]
