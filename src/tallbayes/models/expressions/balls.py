"""Rigorous enclosures of derivatives by ball arithmetic (Arb, through python-flint).

On a cell X = [c - r, c + r] Taylor's theorem gives, for f^(k) / k! = a_k,

    f'''(c + t) / 6 = sum_{j < K} C(j + 3, 3) a_{j+3}(c) t^j + C(K + 3, 3) a_{K+3}(xi) t^K,   xi in X.

The a_k at the point c are balls of radius 2^-PRECISION or so, and only a_{K+3} is enclosed over the whole cell, where r^K
makes up for the excess of interval arithmetic. Cells whose bound is not tight are halved. Arb's rounding is outward
throughout, so a bound holds as a theorem, not as a sample.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sympy as sp
from flint import arb, arb_series, ctx

from tallbayes.errors import ModelError
from tallbayes.models.expressions import special_functions as own
from tallbayes.models.expressions.grammar import ETA, Y

PRECISION = 192
ORDER = 8  # K
_MOST_CELLS = 4000  # of one depth, in a search for a supremum
_LOCK = threading.RLock()  # the precision of Arb is a property of the process


@contextmanager
def arithmetic(precision: int = PRECISION) -> Iterator[None]:
    """Arb at this precision, series of the length needed; as before afterwards."""
    with _LOCK:
        before = ctx.prec, ctx.cap
        ctx.prec, ctx.cap = precision, ORDER + 4
        try:
            yield
        finally:
            ctx.prec, ctx.cap = before


def rational(number: Any) -> Any:
    """A ball around a rational number."""
    return arb(int(number.p)) / int(number.q)


def _stable_log1mexp(s: Any) -> Any:
    """log(1 - e^-s), the constant term of 1 - e^-s without cancellation."""
    if isinstance(s, arb):
        return (-((-s).expm1())).log()
    grown = 1 - (-s).exp()
    return arb_series([-((-s[0]).expm1()), *(grown[k] for k in range(1, ctx.cap))]).log()


def _tanh(s: Any) -> Any:
    return s.tanh() if isinstance(s, arb) else 1 - 2 / ((2 * s).exp() + 1)


def _half_erfc(s: Any) -> Any:
    return (s * (-arb(2).rsqrt())).erfc() / 2


def _mills(z: Any) -> tuple[Any, Any]:
    """m = phi(z) / Phi(z) and z + m at a point."""
    m = (-z * z / 2).exp() / (2 * arb.pi()).sqrt() / _half_erfc(z)
    return m, z + m


def _log_ndtr(s: Any) -> Any:
    """log Phi: with m = phi/Phi and c = z + m, m' = -m c and c' = 1 + m'. m falls and c grows in z: ends enclose both."""
    if isinstance(s, arb):
        return _half_erfc(s).log()
    z = s[0]
    at_low, at_high = _mills(arb(z.lower())), _mills(arb(z.upper()))
    m, c = ([at_low[k].union(at_high[k])] for k in (0, 1))
    for n in range(ctx.cap - 1):
        m.append(-sum((m[k] * c[n - k] for k in range(n + 1)), arb(0)) / (n + 1))
        c.append(m[n + 1] + (1 if n == 0 else 0))
    outer = arb_series([_half_erfc(z).log(), *(m[k] / (k + 1) for k in range(ctx.cap - 1))])
    return outer(arb_series([0, *(s[k] for k in range(1, ctx.cap))]))


_UNARY: dict[Any, Any] = {
    sp.exp: lambda s: s.exp(),
    sp.log: lambda s: s.log(),
    sp.sin: lambda s: s.sin(),
    sp.cos: lambda s: s.cos(),
    sp.atan: lambda s: s.atan(),
    sp.sinh: lambda s: (s.exp() - (-s).exp()) / 2,
    sp.cosh: lambda s: (s.exp() + (-s).exp()) / 2,
    sp.tanh: _tanh,
    sp.loggamma: lambda s: s.lgamma(),
    sp.Abs: lambda s: abs(s),
    own.softplus: lambda s: (1 + s.exp()).log(),
    own.expit: lambda s: 1 / (1 + (-s).exp()),
    own.log1mexp: _stable_log1mexp,
    own.log1p: lambda s: (1 + s).log(),
    own.expm1: lambda s: s.exp() - 1,
    own.ndtr: _half_erfc,
    own.log_ndtr: _log_ndtr,
}


class BallProgram:
    """An expression without conditions as a list of steps over balls or series of balls."""

    def __init__(self, expression: Any, constants: Mapping[str, float] | None = None) -> None:
        self.constants = dict(constants or {})
        self.steps: list[tuple[Any, tuple[int, ...]]] = []
        self.moving: list[bool] = []  # whether a step depends on eta
        self._places: dict[Any, int] = {}
        self.result = self._place(expression)
        self._y: Any = None
        self._fixed: list[Any] = []  # values of the steps that do not depend on eta, at that y

    def _place(self, node: Any) -> int:
        if node not in self._places:
            self._places[node] = self._add(node)
        return self._places[node]

    def _step(self, function: Any, *inputs: int) -> int:
        self.steps.append((function, inputs))
        self.moving.append(function == "eta" or any(self.moving[k] for k in inputs))
        return len(self.steps) - 1

    def _add(self, node: Any) -> int:
        if node == ETA:
            return self._step("eta")
        if node == Y:
            return self._step("y")
        if node.is_Symbol:
            value = self.constants[node.name]
            return self._step(lambda: arb(value))
        if node.is_Rational:
            return self._step(lambda: rational(node))
        if node == sp.pi:
            return self._step(lambda: arb.pi())
        if node == sp.E:
            return self._step(lambda: arb(1).exp())
        if node.is_Add or node.is_Mul:
            places = [self._place(a) for a in node.args]
            combine = (lambda a, b: a + b) if node.is_Add else (lambda a, b: a * b)
            total = places[0]
            for place in places[1:]:
                total = self._step(combine, total, place)
            return total
        if node.is_Pow:
            return self._power(node)
        if isinstance(node, sp.Min | sp.Max):
            choose = (lambda a, b: a.min(b)) if isinstance(node, sp.Min) else (lambda a, b: a.max(b))
            total = self._place(node.args[0])
            for a in node.args[1:]:
                total = self._step(choose, total, self._place(a))
            return total
        if type(node) in _UNARY:
            return self._step(_UNARY[type(node)], self._place(node.args[0]))
        raise ModelError(
            f"{type(node).__name__} has no enclosure in ball arithmetic; write the expression with the listed functions."
        )

    def _power(self, node: Any) -> int:
        base = self._place(node.base)
        if node.exp.is_Integer:
            n = abs(int(node.exp))
            power = self._step(lambda a: _integer_power(a, n), base)
            return self._step(lambda a: 1 / a, power) if node.exp < 0 else power
        if node.exp == sp.Rational(1, 2):
            return self._step(lambda a: a.sqrt(), base)
        return self._step(lambda a, p: (p * a.log()).exp(), base, self._place(node.exp))

    def run(self, eta: Any, y: Any) -> Any:
        """The value at eta and y, balls or series."""
        if self._y is not y:
            self._fixed = []
            for (function, inputs), moving in zip(self.steps, self.moving, strict=True):
                known = None if moving else y if function == "y" else function(*(self._fixed[k] for k in inputs))
                self._fixed.append(known)
            self._y = y
        values = self._fixed.copy()
        for k, (function, inputs) in enumerate(self.steps):
            if self.moving[k]:
                values[k] = eta if function == "eta" else function(*[values[j] for j in inputs])
        return values[self.result]

    def series(self, eta: Any, y: Any) -> list[Any]:
        """a_0 .. a_(K+3) at a ball of eta."""
        try:
            series = self.run(arb_series([eta, 1]), y)
        except ValueError:  # a series that starts with a ball around 0 was inverted
            return [arb.nan()] * (ORDER + 4)
        if isinstance(series, arb):
            series = arb_series([series])
        return [series[k] for k in range(ORDER + 4)]


def _integer_power(a: Any, n: int) -> Any:
    total = None
    while n:
        if n & 1:
            total = a if total is None else total * a
        n >>= 1
        if n:
            a = a * a
    return arb(1) if total is None else total


def ball(low: float, high: float) -> Any:
    """A ball that contains [low, high]."""
    if low == high:
        return arb(low)
    middle = 0.5 * low + 0.5 * high
    return arb(middle, max(math.nextafter(high - middle, math.inf), math.nextafter(middle - low, math.inf)))


def upper(x: Any) -> float:
    """A float at or above |x|; infinite if x is not a finite ball."""
    if not x.is_finite():
        return math.inf
    top = float(abs(x).upper())
    if top == 0.0 and x.is_zero():
        return 0.0
    return math.nextafter(top, math.inf) if math.isfinite(top) else math.inf


def lower(x: Any) -> float:
    """A float at or below |x|."""
    if not x.is_finite():
        return 0.0
    return max(0.0, math.nextafter(float(abs(x).lower()), -math.inf))


_WEIGHT = [6.0 * math.comb(j + 3, 3) for j in range(ORDER + 1)]


class Cell:
    """What is proven of f on one cell: an upper bound of |f'''|, a lower bound of its supremum, and the sign of f''."""

    __slots__ = ("above", "below", "bend", "high", "low")

    def __init__(self, program: BallProgram, low: float, high: float, y: Any) -> None:
        self.low, self.high = low, high
        middle = 0.5 * low + 0.5 * high
        point = program.series(arb(middle), y)
        radius = (
            arb(max(math.nextafter(high - middle, math.inf), math.nextafter(middle - low, math.inf))) if high > low else arb(0)
        )
        self.below = lower(6 * point[3])
        self.above, self.bend = math.inf, (-math.inf, math.inf)
        if not all(a.is_finite() for a in point):
            return
        last = program.series(ball(low, high), y)[ORDER + 3] if high > low else arb(0)
        if not last.is_finite():
            return
        even, odd, total, power = arb(0), arb(0), arb(0), arb(1)
        for j in range(ORDER):
            term = _WEIGHT[j] * point[j + 3] * power
            total += abs(term)
            if j % 2:
                odd += term
            else:
                even += term
            power *= radius
        remainder = _WEIGHT[ORDER] * abs(last) * power
        total += remainder
        self.above = upper(total)
        at_ends = abs(even) + abs(odd) - remainder  # the larger of |f'''| at c - r and c + r
        self.below = max(self.below, math.nextafter(float(at_ends.lower()), -math.inf))
        slope = total * radius  # f'' changes by at most this within the cell
        bend = 2 * point[2]
        self.bend = (
            math.nextafter(float((bend - slope).lower()), -math.inf),
            math.nextafter(float((bend + slope).upper()), math.inf),
        )

    @property
    def split(self) -> float:
        """Where to halve the cell."""
        return 0.5 * self.low + 0.5 * self.high


def refine(program: BallProgram, low: float, high: float, y: Any, tolerance: float, floor: float, depth: int) -> list[Cell]:
    """Cells that cover [low, high], halved until their bounds are tight, negligible beside `floor`, or `depth` is used up."""
    cell = Cell(program, low, high, y)
    if depth == 0 or cell.above <= max((1.0 + tolerance) * cell.below, floor) or not low < cell.split < high:
        return [cell]
    left = refine(program, low, cell.split, y, tolerance, floor, depth - 1)
    return left + refine(program, cell.split, high, y, tolerance, floor, depth - 1)


def supremum(
    program: BallProgram,
    low: float,
    high: float,
    y_low: float,
    y_high: float | None = None,
    tolerance: float = 1e-3,
    depth: int = 18,
) -> tuple[float, float]:
    """Proven bounds (below, above) of sup |f'''| over eta in [low, high] and y in [y_low, y_high].

    >>> from tallbayes.models.expressions.grammar import parse
    >>> below, above = supremum(BallProgram(parse("y*eta - log(1 + exp(eta))")), -6.0, 6.0, 1.0)
    >>> below <= 1 / (6 * 3**0.5) <= above <= 1.001 * below
    True
    """
    with arithmetic():
        y = ball(y_low, y_low if y_high is None else y_high)
        cells = [Cell(program, low, high, y)]
        below = cells[0].below
        done = 0.0
        for _ in range(depth):
            waiting = []
            for cell in cells:
                if cell.above <= max((1.0 + tolerance) * below, 1e-300) or not cell.low < cell.split < cell.high:
                    done = max(done, cell.above)
                    continue
                for a, b in ((cell.low, cell.split), (cell.split, cell.high)):
                    waiting.append(Cell(program, a, b, y))
                    below = max(below, waiting[-1].below)
            cells = waiting
            if not cells or len(cells) > _MOST_CELLS:
                break
        return below, max([done, *(cell.above for cell in cells)])
