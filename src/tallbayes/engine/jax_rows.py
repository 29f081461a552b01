"""Rows whose log-likelihood is a function the user wrote in JAX: l_i(theta) = weight_i log_lik(theta, row_i).

Compiled code reaches them as any other likelihood outside: by the address of a function of all verbs, which calls Python. Those that see
theta only through the linear predictor have verbs of their own (`jax_predictor`). For the others records are gathered in NumPy and padded
to one of a few sizes, so that the number of compiled programs does not depend on n or on the subsample, and one jitted program runs
for each verb and size. Everything is float64 by JAX's thread-local context; the global switch is left alone. Taylor terms of a row
are derivatives along theta - reference by forward mode: no Hessian of a row is formed. Rows that stay the same along a trajectory are
gathered once.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import SUMS
from tallbayes.engine import outside
from tallbayes.engine.callbacks import BLOCK, ENTRANCE_WITH, call_python, numbered, view
from tallbayes.engine.jax_predictor import ENTRANCE, NUMBER, PredictorPrograms, of_predictor, predictor_pointer
from tallbayes.engine.rows import ALLOWANCE, Rows, outside_rows
from tallbayes.errors import OptionError
from tallbayes.pointers import pointer

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
        self.of_predictor: dict[int, PredictorPrograms | None] = {}  # by the length of theta; None if it enters in another way
        self.row_gradients = jax.jit(jax.vmap(jax.grad(self.one), (None, 0)))
        self.weighted_gradients = jax.jit(lambda theta, block: block[:, d + 2, None] * self.row_gradients(theta, block))
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

    def linear(self, dim: int) -> PredictorPrograms | None:
        """The programs of a likelihood that sees theta only through x . theta; None for others."""
        if dim not in self.of_predictor:

            def parted(theta: Any, x: Any, y: Any, offset: Any) -> Any:
                return self.log_lik(theta, self.named(x, y, offset))

            found = of_predictor(self.jax, parted, len(self.columns), dim)
            self.of_predictor[dim] = None if found is None else PredictorPrograms(self.jax, *found)
        return self.of_predictor[dim]

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
        return sum(v._cache_size() for v in jitted) + sum(len(p.programs) for p in self.of_predictor.values() if p)

    def __reduce__(self) -> Any:
        """Programs and what is held are those of a process."""
        return Program, (self.log_lik, self.columns, self.response)


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


class Asked(NamedTuple):
    """A verb and its arguments, as in `outside`."""

    records: np.ndarray
    verb: int
    numbers: np.ndarray
    theta: np.ndarray
    other: np.ndarray
    reference: np.ndarray
    order: int
    factors: np.ndarray
    total: np.ndarray
    out: np.ndarray
    table: np.ndarray


class Verbs:
    """The verbs of a likelihood on blocks of packed records."""

    def __init__(self, program: Program) -> None:
        self.program, self.d = program, len(program.columns)
        self.held = threading.local()  # of this thread's last rows, by padded size: which they were, the block, and its parts

    def call(self, block: Sequence[int]) -> None:
        """What a block of whole numbers asks for, as `verbs_in_python` writes it."""
        _, verb, order, start, stop, size, dim = block[:7]
        places = iter(block[7:])
        n, width, bytes_ = next(places), next(places), next(places)
        kind = np.float32 if bytes_ == 4 else np.float64
        records = view(next(places), (n, width), kind)
        indexed = view(next(places), (size,), np.int64).copy()
        index = indexed if stop == start else np.arange(start, stop)
        theta, other, reference = (view(next(places), (dim,), np.float64).copy() for _ in range(3))
        factors = view(next(places), (next(places),), np.float64).copy()
        total = view(next(places), (1,), np.float64)
        out = view(next(places), (next(places),), np.float64)
        table = view(next(places), (next(places), next(places)), np.float64)
        self.answer(Asked(records, verb, index, theta, other, reference, order, factors, total, out, table))

    def answer(self, asked: Asked) -> None:
        """Fill what was asked for, a batch of rows after the other."""
        verb, factors = asked.verb, asked.factors
        for a, b, size in batches(asked.numbers.size):
            index = asked.numbers[a:b]
            if verb == outside.RESIDUAL_SLOPES:
                value, slope = self.run(
                    "residual_rows", asked.theta, asked.reference, self.parts(asked, index, size), asked.order
                )
                asked.out[a:b], asked.table[a:b] = value[: b - a], slope[: b - a]
                continue
            block = self.gather(asked, index, size)
            if verb == outside.ROW_VALUES:
                asked.out[a:b] = self.run("weighted", asked.theta, block)[: b - a]
            elif verb == outside.RESIDUAL_VALUES:
                asked.out[a:b] = self.run("residual", asked.theta, asked.reference, block, asked.order)[: b - a]
            elif verb == outside.RESIDUAL_DIFFERENCES:
                there = self.run("residual", asked.other, asked.reference, block, 2)
                asked.out[a:b] = (there - self.run("residual", asked.theta, asked.reference, block, 2))[: b - a]
            elif verb == outside.PROXY_VALUES:
                asked.out[a:b] = self.run("taylor", asked.theta, asked.reference, block, asked.order)[: b - a]
            elif verb == outside.RANGE_SCORES:
                asked.table[a:b] = self.run("weighted_gradients", asked.theta, block)[: b - a]
            elif verb == outside.RANGE_VALUE:
                asked.total[0] += float(self.run("total", asked.theta, block, padded(np.ones(b - a), size)))
            elif verb == outside.CONTROL_GRADIENT:
                shares = padded(factors[a:b], size)
                asked.out[:] += self.run("residual_gradient", asked.theta, asked.reference, block, shares, asked.order)[1]
            else:
                ranged = verb in (outside.RANGE_GRADIENT, outside.RANGE_HESSIAN)
                shares = padded(np.ones(b - a) if ranged else factors[a:b], size)
                bent = verb in (outside.RANGE_HESSIAN, outside.ADD_CURVATURES)
                found = self.run("curvature" if bent else "gradient", asked.theta, block, shares)
                if verb != outside.ADD_CURVATURES:
                    asked.total[0] += float(found[0])
                    asked.out[:] += found[1]
                if bent:
                    asked.table[:] += np.tril(found[2])

    def run(self, name: str, *arguments: Any) -> Any:
        """A program, its results as arrays."""
        return self.program.call(name, *arguments)

    def gather(self, asked: Asked, index: np.ndarray, size: int) -> np.ndarray:
        """Records of the index in float64, the last repeated up to the padded size."""
        block = np.empty((size, self.d + 3))
        block[: index.size] = asked.records[index, : self.d + 3]
        block[index.size :] = block[index.size - 1]
        return block

    def parts(self, asked: Asked, index: np.ndarray, size: int) -> Any:
        """Columns, response, offset and weight of rows, kept by JAX while the index stays what it is: a trajectory reads the same rows at
        every step. The few rows of a renewed block are not kept."""
        d = self.d
        if size <= FEW:
            block = self.gather(asked, index, size)
            return block[:, :d], block[:, d], block[:, d + 1], block[:, d + 2]
        held = self.held.__dict__.setdefault("by_size", {})
        which = asked.records.ctypes.data, index.tobytes()
        if size not in held or held[size][0] != which:
            with self.program.jax.enable_x64(True):
                held[size] = which, self.program.split(self.gather(asked, index, size))
        return held[size][1]


def padded(values: np.ndarray, size: int) -> np.ndarray:
    """Zeros after the values."""
    out = np.zeros(size)
    out[: values.size] = values
    return out


def verbs_in_python(
    records: np.ndarray,
    layout: np.ndarray,
    p: np.ndarray,
    verb: int,
    index: np.ndarray,
    start: int,
    stop: int,
    theta: np.ndarray,
    other: np.ndarray,
    reference: np.ndarray,
    order: int,
    factors: np.ndarray,
    total: np.ndarray,
    out: np.ndarray,
    table: np.ndarray,
) -> int:
    """All verbs, by a call of Python; sums over gradients of rows that are known need none."""
    if verb == outside.ADD_SLOPES:
        for j in range(index.size):
            for c in range(out.size):
                out[c] += factors[j] * table[j, c]
        return 0
    block = np.empty(BLOCK, np.int64)
    block[0], block[1], block[2], block[3], block[4] = int(p[NUMBER]), verb, order, start, stop
    block[5], block[6] = index.size, theta.size
    block[7], block[8], block[9], block[10] = records.shape[0], records.shape[1], records.itemsize, records.ctypes.data
    block[11], block[12], block[13], block[14] = index.ctypes.data, theta.ctypes.data, other.ctypes.data, reference.ctypes.data
    block[15], block[16], block[17] = factors.ctypes.data, factors.size, total.ctypes.data
    block[18], block[19] = out.ctypes.data, out.size
    block[20], block[21], block[22] = table.ctypes.data, table.shape[0], table.shape[1]
    return call_python(int(p[ENTRANCE]), np.int64(block.ctypes.data))


@functools.cache
def python_pointer(single: bool) -> int:
    """The address of the verbs, for records of one precision or the other."""
    name = f"verbs in python {'single' if single else 'double'}"
    return pointer(verbs_in_python, outside.SINGLE if single else outside.DOUBLE, name, options=SUMS)


def jax_rows(program: Program, records: np.ndarray, columns: int, dim: int) -> Rows:
    """Rows of a model written in JAX."""
    single, linear = records.dtype == np.float32, program.linear(dim)
    if linear is None:
        p = numbered(Verbs(program).call, np.zeros(2))
        return outside_rows(records, columns, p, python_pointer(single), dim, ALLOWANCE)
    p = numbered(linear.call, np.array([0.0, 0.0, columns, linear.with_rows]), ENTRANCE_WITH)
    return outside_rows(records, columns, p, predictor_pointer(single), 1, ALLOWANCE)
