"""Likelihoods in JAX that see theta only through the linear predictor x . theta.

Whether a likelihood is of this kind is read off its traced program: theta must enter one product with the whole design row, and nothing
else. Then all verbs are compiled code that finds the linear predictors of some rows, asks JAX for derivatives in them, and sums over
rows itself. No program sees theta or a gradient, and most see no column.

XLA runs a program in another thread unless it looks cheap, and the way there and back costs more than a few hundred rows. Hence programs
are loops over tiles whose number is an argument: one turn is cheap, and one program serves every number of rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tallbayes.compile import INLINED, SUMS, inlinable
from tallbayes.engine import outside
from tallbayes.engine.callbacks import call_python_with, view
from tallbayes.engine.indexed_rows import AHEAD, prefetch_row
from tallbayes.pointers import pointer

ENTRANCE, NUMBER, COLUMNS, WITH_ROWS = 0, 1, 2, 3  # in the numbers of the rows
JETS, RESIDUALS, RESIDUAL_SLOPES = 0, 3, 6  # what JAX is asked for: each of order 0, 1 and 2
BASE, SHIFT, RESPONSE, OFFSET, FIELDS = 0, 1, 2, 3, 4  # numbers of a row; its columns follow where the likelihood sees them
CAPACITIES = (16, 128, 1024, 8192)  # rows of a call at most
TILE = 16
LARGE_TILE = 128  # of programs that are not cheap even so
WIDE = {"xla_cpu_prefer_vector_width": "512"}  # a fifth faster where the processor has such registers; others do without
CHEAP = 900  # operations of a program up to which XLA runs it in the thread that calls


def of_predictor(jax: Any, log_lik: Callable[..., Any], columns: int, dim: int) -> tuple[Callable[..., Any], bool] | None:
    """The likelihood as a function of (predictor, x, y, offset), given that of (theta, x, y, offset), and whether x is used beside the
    predictor; None if it is not one.

    >>> import jax
    >>> found, with_rows = of_predictor(jax, lambda theta, x, y, offset: y * (x @ theta) + offset, 3, 3)
    >>> with jax.enable_x64(True):
    ...     float(found(2.0, np.zeros(3), 3.0, 0.5)), with_rows
    (6.5, False)
    >>> of_predictor(jax, lambda theta, x, y, offset: (x @ theta) * theta[0], 3, 3) is None
    True
    """
    if dim != columns:
        return None
    import jax.extend.core as core

    with jax.enable_x64(True):
        traced = jax.make_jaxpr(log_lik)(np.zeros(dim), np.zeros(columns), 0.0, 0.0)
    program = traced.jaxpr
    theta, x = program.invars[:2]
    uses = [k for k, equation in enumerate(program.eqns) if any(v is theta for v in equation.invars)]
    if len(uses) != 1 or any(v is theta for v in program.outvars):
        return None
    product = program.eqns[uses[0]]
    if product.primitive.name != "dot_general" or product.outvars[0].aval.shape != ():
        return None
    if not (any(v is x for v in product.invars) and product.outvars[0].aval.dtype == np.float64):
        return None
    rest = needed([equation for k, equation in enumerate(program.eqns) if k != uses[0]], program.outvars)
    reduced = program.replace(invars=[product.outvars[0], *program.invars[1:]], eqns=rest)
    run = core.jaxpr_as_fun(core.ClosedJaxpr(reduced, traced.consts))
    with_rows = any(v is x for equation in rest for v in equation.invars)
    return lambda predictor, x, y, offset: run(predictor, x, y, offset)[0], with_rows


def needed(equations: list[Any], results: list[Any]) -> list[Any]:
    """The equations of a program on which its results depend: columns are looked up by their names whether they are used or not."""
    wanted, kept = {id(v) for v in results}, []
    for equation in reversed(equations):
        if equation.effects or any(id(v) in wanted for v in equation.outvars):
            kept.append(equation)
            wanted.update(id(v) for v in equation.invars)
    return kept[::-1]


class PredictorPrograms:
    """The programs of a likelihood of a linear predictor, by what is asked for and the capacity; each takes numbers (fields, capacity)."""

    def __init__(self, jax: Any, log_lik: Callable[..., Any], with_rows: bool) -> None:
        self.jax, self.log_lik, self.with_rows = jax, log_lik, with_rows
        self.options: dict[str, str] | None = WIDE  # of the compiler; None if it does not know them
        self.programs: dict[tuple[int, int, int], tuple[Any, int, int, list[Any]]] = {}

    def call(self, block: Sequence[int]) -> None:
        """What is asked for: (number, what, rows, fields, capacity, address of the numbers, address of the answers)."""
        _, what, count, fields, capacity, numbers, answers = block
        given = view(numbers, (fields, capacity), np.float64)
        with self.jax.enable_x64(True):
            made = self.programs.get((what, fields, capacity))
            program, tile, kinds, turns = made or self.compiled(what, given.copy())
            found = np.asarray(program(given, turns[-(-count // tile)]))
        view(answers, (kinds, capacity), np.float64)[...] = found

    def compiled(self, what: int, given: np.ndarray) -> tuple[Any, int, int, list[Any]]:
        """A program, the rows of its tiles, how many numbers it gives for a row, and numbers of tiles as JAX has them."""
        tile = min(TILE, given.shape[1])
        program, cost = self.priced(what, given, tile)
        while cost >= CHEAP and tile > 1:  # in large steps: each of them compiles
            tile = max(1, int(0.9 * tile * CHEAP / cost) // 2 * 2)
            while given.shape[1] % tile:
                tile -= 1
            program, cost = self.priced(what, given, tile)
        if cost >= CHEAP:  # it goes to another thread in any case: long loops cost least
            tile = min(LARGE_TILE, given.shape[1])
            program, _ = self.priced(what, given, tile)
        turns = [self.jax.device_put(np.int64(k)) for k in range(given.shape[1] // tile + 1)]
        self.programs[what, *given.shape] = found = program, tile, kinds_of(what), turns
        return found

    def priced(self, what: int, given: np.ndarray, tile: int) -> tuple[Any, float]:
        """A program, and the operations of a turn as XLA counts them."""
        program = self.jax.jit(functools.partial(self.over_tiles, what, tile), compiler_options=self.options)
        try:
            compiled = program.lower(given, np.int64(1)).compile()
        except Exception:  # another compiler, which has other options; what is wrong besides will be raised again
            if self.options is None:
                raise
            self.options = None
            return self.priced(what, given, tile)
        return program, float((compiled.cost_analysis() or {}).get("flops", 0.0))

    def over_tiles(self, what: int, tile: int, given: Any, tiles: Any) -> Any:
        """Answers (kinds, capacity) of the first rows, tile after tile."""
        jax, lax, jnp = self.jax, self.jax.lax, self.jax.numpy
        if tile == given.shape[1]:
            return jnp.stack(jax.vmap(functools.partial(self.one, what), 1)(given))

        def turn(k: Any, found: Any) -> Any:
            part = lax.dynamic_slice(given, (0, k * tile), (given.shape[0], tile))
            answers = jnp.stack(jax.vmap(functools.partial(self.one, what), 1)(part))
            return lax.dynamic_update_slice(found, answers, (0, k * tile))

        return lax.fori_loop(0, tiles, turn, jnp.zeros((kinds_of(what), given.shape[1])))

    def one(self, what: int, row: Any) -> tuple[Any, ...]:
        """Answers for one row."""
        jax, order = self.jax, what % 3

        def value(predictor: Any) -> Any:
            return self.log_lik(predictor, row[FIELDS:], row[RESPONSE], row[OFFSET])

        both, base, shift = jax.value_and_grad(value), row[BASE], row[SHIFT]
        if what < RESIDUALS:
            if order < 2:
                return (value(base),) if order == 0 else both(base)
            (known, first), (_, second) = jax.jvp(both, (base,), (1.0,))
            return known, first, second
        slopes = what >= RESIDUAL_SLOPES
        there, slope = both(base + shift) if slopes else (value(base + shift), 0.0)
        if order == 0:
            there, slope = there - value(base), slope
        elif order == 1:
            known, first = both(base)
            there, slope = there - known - first * shift, slope - first
        else:
            (known, first), (_, second) = jax.jvp(both, (base,), (1.0,))
            there, slope = there - known - first * shift - 0.5 * second * shift * shift, slope - first - second * shift
        return (there, slope) if slopes else (there,)


def kinds_of(what: int) -> int:
    """How many numbers are answered for each row."""
    return what + 1 if what < RESIDUALS else 2 if what >= RESIDUAL_SLOPES else 1


@inlinable
def capacity_of(count: int) -> int:
    """The least capacity for some rows."""
    for capacity in CAPACITIES:
        if count <= capacity:
            return capacity
    return CAPACITIES[-1]


@inlinable(options={**SUMS, **INLINED})
def describe_rows(
    records: np.ndarray,
    d: int,
    index: np.ndarray,
    start: int,
    count: int,
    here: np.ndarray,
    change: np.ndarray,
    u: np.ndarray,
    capacity: int,
    at: int,
    with_rows: bool,
) -> None:
    """The numbers of rows, of an index or of a range if there is none, given to JAX from column `at` on."""
    base, shift = u[BASE * capacity + at :], u[SHIFT * capacity + at :]
    y, offset = u[RESPONSE * capacity + at :], u[OFFSET * capacity + at :]
    for j in range(count):
        row = start + j
        if index.size > 0:
            if row + AHEAD < index.size:
                prefetch_row(records, index[row + AHEAD])
            row = index[row]
        x = records[row]
        a, b = 0.0, 0.0
        for c in range(d):
            a += x[c] * here[c]
            b += x[c] * change[c]
        base[j], shift[j], y[j], offset[j] = a, b, x[d], x[d + 1]
        if with_rows:
            for c in range(d):
                u[(FIELDS + c) * capacity + at + j] = x[c]


@inlinable
def ask(p: np.ndarray, what: int, count: int, fields: int, capacity: int, u: np.ndarray, found: np.ndarray) -> int:
    """Call JAX; returns a status."""
    for at in range(count, min(capacity, -(-count // LARGE_TILE) * LARGE_TILE)):  # repeated, so that it has values
        for k in range(fields):
            u[k * capacity + at] = u[k * capacity]
    numbers, answers = np.int64(u.ctypes.data), np.int64(found.ctypes.data)
    return call_python_with(int(p[ENTRANCE]), int(p[NUMBER]), what, count, fields, capacity, numbers, answers)


def predictor_verbs(
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
    """All verbs of rows whose likelihood is one of a linear predictor."""
    d, rows = int(p[COLUMNS]), index.size if stop == start else stop - start
    if verb == outside.ADD_SLOPES:
        for j in range(rows):
            slope, x = factors[j] * table[j, 0], records[index[j]]
            for c in range(d):
                out[c] += slope * x[c]
        return 0
    if rows == 0:
        return 0
    here, change, what = theta, np.zeros(theta.size), JETS
    twice = 1
    if verb == outside.ROW_VALUES or verb == outside.RANGE_VALUE:
        what = JETS
    elif verb == outside.RANGE_HESSIAN or verb == outside.ADD_CURVATURES:
        what = JETS + 2
    elif verb == outside.PROXY_VALUES:
        what, here, change = JETS + order, reference, theta - reference
    elif verb == outside.RESIDUAL_VALUES:
        what, here, change = RESIDUALS + order, reference, theta - reference
    elif verb == outside.RESIDUAL_DIFFERENCES:
        what, here, change, twice = RESIDUALS + 2, reference, theta - reference, 2
    elif verb == outside.RESIDUAL_SLOPES or verb == outside.CONTROL_GRADIENT:
        what, here, change = RESIDUAL_SLOPES + order, reference, theta - reference
    else:  # WEIGHTED_GRADIENT, RANGE_GRADIENT, RANGE_SCORES
        what = JETS + 1
    with_rows = p[WITH_ROWS] != 0.0
    fields = FIELDS + (d if with_rows else 0)
    capacity = capacity_of(twice * rows)
    u, found, most = np.empty(fields * capacity), np.empty(3 * capacity), capacity // twice
    there = other - reference
    for first in range(0, rows, most):
        count = min(most, rows - first)
        begin = start + first if index.size == 0 else first
        describe_rows(records, d, index, begin, count, here, change, u, capacity, 0, with_rows)
        if twice == 2:
            describe_rows(records, d, index, begin, count, here, there, u, capacity, count, with_rows)
        status = ask(p, what, twice * count, fields, capacity, u, found)
        if status != 0:
            return status
        for j in range(count):
            x = records[begin + j if index.size == 0 else index[begin + j]]
            w, at = x[d + 2], first + j
            f, g, h = found[j], found[capacity + j], found[2 * capacity + j]
            if verb == outside.ROW_VALUES or verb == outside.RESIDUAL_VALUES:
                out[at] = w * f
            elif verb == outside.RESIDUAL_DIFFERENCES:
                out[at] = w * (found[count + j] - f)
            elif verb == outside.PROXY_VALUES:
                s = u[SHIFT * capacity + j]
                if order == 1:
                    f += g * s
                elif order == 2:
                    f += g * s + 0.5 * h * s * s
                out[at] = w * f
            elif verb == outside.RESIDUAL_SLOPES:
                out[at], table[at, 0] = w * f, w * g
            elif verb == outside.RANGE_SCORES:
                for c in range(d):
                    table[at, c] = w * g * x[c]
            else:
                if verb == outside.WEIGHTED_GRADIENT or verb == outside.CONTROL_GRADIENT or verb == outside.ADD_CURVATURES:
                    w *= factors[at]
                    if factors[at] == 0.0:
                        continue
                if verb != outside.CONTROL_GRADIENT and verb != outside.ADD_CURVATURES:
                    total[0] += w * f
                if verb != outside.RANGE_VALUE and verb != outside.ADD_CURVATURES:
                    for c in range(d):
                        out[c] += w * g * x[c]
                if what == JETS + 2:
                    for a in range(d):
                        bend = w * h * x[a]
                        for b in range(a + 1):
                            table[a, b] += bend * x[b]
    return 0


@functools.cache
def predictor_pointer(single: bool) -> int:
    """The address of the verbs, for records of one precision or the other."""
    name = f"jax predictor {'single' if single else 'double'}"
    return pointer(predictor_verbs, outside.SINGLE if single else outside.DOUBLE, name, options=SUMS)
