"""What is proven of a family given by an expression: a table of sup |f'''| by response and interval of eta, and global facts.

Knots are responses with a row in the table. Where responses are few each is a knot. Where f is affine in y, so is f''', hence
sup |f'''| is convex in y and below its chord between two knots. Where f depends on y - eta alone one row serves all. Else
the response is cut into cells, and a knot has the larger row of its two cells, so that chords are above both.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import sympy as sp

from tallbayes.errors import ModelError
from tallbayes.models.expressions.asymptotes import Tail, as_rational, exact, never_positive
from tallbayes.models.expressions.balls import BallProgram, Cell, arithmetic, ball, refine, supremum
from tallbayes.models.expressions.grammar import ETA, Y
from tallbayes.models.expressions.special_functions import elementary

FEW = 64  # responses that get a row each
_CHORDS = 17  # knots of each of two kinds where f is affine in y
_CELLS = 12  # the same where it is not
_NEGLIGIBLE = 1e-7  # share of the largest |f'''| of a row below which an entry need not be tight
_MOST_PROOFS = 16  # responses for which roots are counted
_TIGHT = 0.02  # relative excess at which a cell is left as it is
_ROUNDING = 1.0 + 1e-12  # of the arithmetic on entries of the table
_OPERATIONS = {
    sp.Eq: operator.eq,
    sp.Ne: operator.ne,
    sp.Lt: operator.lt,
    sp.Le: operator.le,
    sp.Gt: operator.gt,
    sp.Ge: operator.ge,
}


class Tables(NamedTuple):
    """The part of a certificate that compiled code reads."""

    knots: np.ndarray
    linked: np.ndarray  # 1 where responses between a knot and the next are covered by the chord
    edges: np.ndarray  # of intervals of eta, or of eta - y for a location family
    table: np.ndarray  # (knots, edges + 1): sup |f'''| on each interval, the first and last being the tails
    everywhere: np.ndarray
    location: bool


@dataclass(frozen=True)
class Certificate:
    """What was proven, to be read by a user.

    `supremum` bounds |f'''| for all eta and all responses of the data; infinite if there is no bound or none was proven.
    `log_concave` and `self_concordant` are True where proven for all eta, else a sentence says what is known.
    """

    supremum: float
    log_concave: bool
    self_concordant: bool
    curvature: str
    responses: str
    eta_range: tuple[float, float]
    pieces: Any = field(repr=False)

    def third_supremum(self, low: float, high: float, y: float, y_high: float | None = None) -> float:
        """A proven bound of |f'''| over eta in [low, high] for a response, or for all responses from y to y_high."""
        if not (math.isfinite(low) and math.isfinite(high) and low <= high and y <= (y if y_high is None else y_high)):
            raise ModelError(f"a finite interval of eta and of y is needed; got eta in [{low}, {high}], y in [{y}, {y_high}].")
        pieces: Pieces = self.pieces
        ends = {y, y if y_high is None else y_high, *(t for t in pieces.thresholds if y_high is not None and y <= t <= y_high)}
        inner = sorted(ends)
        numbers = {pieces.number(v) for v in inner}
        numbers |= {pieces.number(0.5 * a + 0.5 * b) for a, b in itertools.pairwise(inner)}
        return max(supremum(pieces.programs[k], low, high, y, y_high)[1] for k in numbers)

    def __str__(self) -> str:
        size = f"{self.supremum:.6g}" if math.isfinite(self.supremum) else "no bound proven"
        return (
            f"sup |f'''| over all eta: {size}; {self.curvature}; "
            f"{'self-concordant' if self.self_concordant else 'not proven self-concordant'}; table for {self.responses} and "
            f"eta from {self.eta_range[0]:.4g} to {self.eta_range[1]:.4g}"
        )


class Responses(NamedTuple):
    """What the data say of y: its distinct values if they are few, else a grid of quantiles."""

    distinct: np.ndarray | None
    grid: np.ndarray
    spread: float


def survey_responses(y: np.ndarray, chunk: int = 1 << 20) -> Responses:
    """Distinct values or quantiles of the response, in one pass."""
    distinct: np.ndarray | None = np.empty(0)
    low, high = math.inf, -math.inf
    for start in range(0, y.size, chunk):
        part = np.asarray(y[start : start + chunk], float)
        low, high = min(low, float(part.min())), max(high, float(part.max()))
        if distinct is not None:
            distinct = np.union1d(distinct, part)
            distinct = distinct if distinct.size <= FEW else None
    sample = np.asarray(y[:: max(1, y.size // 100_000)], float)
    quantiles = np.quantile(sample, np.linspace(0.0, 1.0, 65))
    spread = float(quantiles[48] - quantiles[16]) or float(high - low) or 1.0
    return Responses(distinct, np.unique([low, *quantiles, high]), spread)


class Pieces:
    """The branches of the conditions in y: for each combination that occurs, the expression without conditions."""

    def __init__(self, expression: Any, constants: Mapping[str, float]) -> None:
        self.expression, self.constants = expression, dict(constants)
        conditions = {c for p in expression.atoms(sp.Piecewise) for _, c in p.args if c is not sp.true}
        self.thresholds = sorted({self._float(c.rhs) for c in conditions})
        self.formulas: list[Any] = []
        self.programs: list[BallProgram] = []

    def _float(self, number: Any) -> float:
        return float(number.subs({s: self.constants[s.name] for s in number.free_symbols}))

    def resolved(self, y: float) -> Any:
        """The expression for one response, y still a symbol in it."""

        def choose(*branches: Any) -> Any:
            for value, condition in branches:
                if condition is sp.true or _OPERATIONS[condition.func](y, self._float(condition.rhs)):
                    return value
            raise ModelError(f"no branch of the expression holds for y = {y:g}.")

        return self.expression.replace(lambda e: isinstance(e, sp.Piecewise), lambda e: choose(*e.args))

    def number(self, y: float) -> int:
        """Number of the piece that a response belongs to."""
        formula = self.resolved(y)
        if formula not in self.formulas:
            self.formulas.append(formula)
            self.programs.append(BallProgram(formula, self.constants))
        return self.formulas.index(formula)


def is_location(expression: Any) -> bool:
    """Whether an expression depends on eta and y through y - eta alone.

    >>> is_location(-((Y - ETA) ** 2)), is_location(Y * ETA)
    (True, False)
    """
    moved = expression.subs(Y, ETA + sp.Symbol("r", real=True))
    return not moved.has(ETA) or not sp.expand(moved).has(ETA)


def is_affine(expression: Any) -> bool:
    """Whether an expression is a straight line in y."""
    return sp.expand(sp.diff(expression, Y, 2)) == 0


def _link_edges(largest: float) -> np.ndarray:
    """Intervals of 1/8 up to 32, then growing to where exp overflows, or to the largest response."""
    far = [32.0]
    while far[-1] < max(750.0, largest):
        far.append(far[-1] * 1.05)
    core = np.arange(-256, 257) / 8.0
    return np.concatenate([-np.array(far[:0:-1]), core, far[1:]])


def _location_edges(spread: float) -> np.ndarray:
    """Intervals of about 6 % of their distance from 0, from a thousandth of the spread of y to a thousand times it."""
    steps = np.arange(-244, 245) / 16.0
    return 1e-3 * spread * np.sinh(steps)


def _knots(responses: Responses, pieces: Pieces, affine: bool) -> np.ndarray:
    low, high = float(responses.grid[0]), float(responses.grid[-1])
    count = _CHORDS if affine else _CELLS
    quantiles = responses.grid[np.linspace(0, responses.grid.size - 1, count).round().astype(int)]
    inside = [t for t in pieces.thresholds if low <= t <= high]
    apart = [math.nextafter(t, way) for t in inside for way in (-math.inf, math.inf)]
    return np.unique([*quantiles, *np.linspace(low, high, count), *inside, *(t for t in apart if low <= t <= high)])


def certified(
    expression: Any, original: Any, constants: Mapping[str, float], responses: Responses
) -> tuple[Tables, Certificate, Builder]:
    """Tables and facts of an expression (stable) over the responses of a data set, and what made them, for further proofs.

    `original` is the same expression as SymPy wrote it.
    """
    with arithmetic():
        return _certify(expression, original, constants, responses)


def _certify(
    expression: Any, original: Any, constants: Mapping[str, float], responses: Responses
) -> tuple[Tables, Certificate, Builder]:
    pieces = Pieces(expression, constants)
    probe = responses.grid if responses.distinct is None else responses.distinct
    formulas = {pieces.resolved(float(v)) for v in (*probe, *(t for t in pieces.thresholds if probe[0] <= t <= probe[-1]))}
    location = is_location(original) and probe.size > 8
    affine = responses.distinct is not None or all(is_affine(f) for f in formulas)
    edges = _link_edges(4.0 * float(np.abs(probe[[0, -1]]).max()))
    if location:
        knots, linked, kind = np.zeros(1), np.zeros(1), "all responses (f depends on y - eta)"
        edges = _location_edges(responses.spread)
    elif len(formulas) == 1 and probe.size > 1 and not sp.expand(sp.diff(*formulas, ETA, 2)).has(Y):
        knots, linked, kind = probe[[0, -1]], np.array([1.0, 0.0]), "all responses (f'' does not depend on y)"
    elif responses.distinct is not None:
        knots, linked = responses.distinct, np.zeros(responses.distinct.size)
        kind = f"the {knots.size} responses of the data"
    else:
        knots = _knots(responses, pieces, affine)
        linked = np.array([_same_piece(pieces, a, b) for a, b in itertools.pairwise(knots.tolist())] + [0.0])
        kind = f"responses from {knots[0]:g} to {knots[-1]:g}"
    cells_of_y = not location and not affine
    shared = kind.startswith("all")
    builder = Builder(pieces, original, edges, knots, linked, cells_of_y, shared, location)
    table = builder.table() * _ROUNDING
    everywhere = table.max(1)
    curvature, concave, concordant = builder.curvature()
    tables = Tables(knots.astype(float), linked, edges, table, everywhere, location)
    report = Certificate(
        float(everywhere.max()), concave, concordant, curvature, kind, (float(edges[0]), float(edges[-1])), pieces
    )
    return tables, report, builder


def _same_piece(pieces: Pieces, low: float, high: float) -> float:
    """1 if every response from low to high has the same formula."""
    if any(low < t < high for t in pieces.thresholds):
        return 0.0
    return float(pieces.number(low) == pieces.number(high) == pieces.number(0.5 * low + 0.5 * high))


class Builder:
    """Fills the table, row by row, and proves what holds for all eta."""

    def __init__(
        self,
        pieces: Pieces,
        original: Any,
        edges: np.ndarray,
        knots: np.ndarray,
        linked: np.ndarray,
        cells_of_y: bool,
        shared: bool,
        location: bool,
    ) -> None:
        self.pieces, self.edges, self.knots, self.linked, self.location = pieces, edges, knots, linked, location
        self.cells_of_y, self.shared = cells_of_y, shared
        self.plain = Pieces(original, pieces.constants)
        self.tails: dict[Any, Tail | None] = {}
        self.bends = np.full((2, edges.size - 1), -math.inf)  # of each interval, over knots: a value f'' reaches, and a bound
        self.core = 8.0 if not location else 1e3 * abs(float(edges[edges.size // 2 + 1]))

    def table(self) -> np.ndarray:
        """sup |f'''| on every interval for every knot."""
        if self.shared:
            return np.tile(self._row(float(self.knots[0]), float(self.knots[0])), (self.knots.size, 1))
        if not self.cells_of_y:
            return np.stack([self._row(float(k), float(k)) for k in self.knots])
        rows = np.zeros((self.knots.size, self.edges.size + 1))
        for k, knot in enumerate(self.knots):
            if not (self.linked[k] or (k and self.linked[k - 1])):
                rows[k] = self._row(float(knot), float(knot))
            if self.linked[k]:
                between = self._row(float(knot), float(self.knots[k + 1]))
                rows[k] = np.maximum(rows[k], between)
                rows[k + 1] = np.maximum(rows[k + 1], between)
        return rows

    def _row(self, y_low: float, y_high: float) -> np.ndarray:
        program = self.pieces.programs[self.pieces.number(y_low)]
        y = ball(y_low, y_high)
        tight, deepest = (_TIGHT, 6) if y_low == y_high else (0.1, 2)
        tail = self._tail(y_low)
        middle = [Cell(program, e, e, y).below for e in self.edges[:: max(1, self.edges.size // 64)].tolist()]
        floor = _NEGLIGIBLE * max(middle)
        row = np.empty(self.edges.size + 1)
        last = float(self.edges[-1])
        row[0], row[-1] = (math.inf if tail is None else tail.bound(side, last, y) for side in (-1, 1))
        for k, (low, high) in enumerate(zip(self.edges[:-1].tolist(), self.edges[1:].tolist(), strict=True)):
            nearest = max(low, -high)
            beyond = math.inf if tail is None or nearest <= 0.0 else tail.bound(1 if low > 0.0 else -1, nearest, y)
            if beyond <= floor:
                row[k + 1], self.bends[1, k] = beyond, math.inf
                continue
            cells = refine(program, low, high, y, tight, floor, deepest if self.location or nearest < 32.0 else 2)
            if not all(math.isfinite(c.above) for c in cells) and max(abs(low), abs(high)) <= self.core:
                cells = refine(program, low, high, y, math.inf, floor, 14)
                bad = next((c for c in cells if not math.isfinite(c.above)), None)
                if bad is not None:
                    raise ModelError(self._pole(bad, y_low))
            row[k + 1] = min(beyond, max(c.above for c in cells))
            self.bends[0, k] = max(self.bends[0, k], *(c.bend[0] for c in cells))
            self.bends[1, k] = max(self.bends[1, k], *(c.bend[1] for c in cells))
        return row

    def _pole(self, cell: Cell, y: float) -> str:
        where = f"y - eta near {-cell.split:.4g}" if self.location else f"eta near {cell.split:.4g} (y = {y:g})"
        return (
            f"the expression has a pole, or is not defined or not proven smooth, at {where}. A linear predictor can take any value: "
            "use a form that is defined for all eta, such as exp(eta) for a positive parameter or expit(eta) for a probability."
        )

    def _tail(self, response: float) -> Tail | None:
        formula = self.plain.resolved(response)
        if self.location:
            formula = formula.subs(Y, 0)
        if formula not in self.tails:
            third = exact(sp.diff(elementary(formula), ETA, 3), self.pieces.constants)
            function = as_rational(third)
            self.tails[formula] = None if function is None else Tail(function, self.pieces.constants)
        return self.tails[formula]

    def curvature(self) -> tuple[str, bool, bool]:
        """A sentence about the sign of f'', and whether log-concavity and self-concordance are proven for all eta."""
        variable = "eta - y" if self.location else "eta"
        reached = int(np.argmax(self.bends[0]))
        if self.bends[0, reached] > 0.0:
            where = 0.5 * (self.edges[reached] + self.edges[reached + 1])
            return f"not log-concave (f'' > 0 at {variable} near {where:.3g})", False, False
        extremes = self.extremes()
        concave = concordant = bool(extremes)
        for y in extremes:
            formula = exact(elementary(self.plain.resolved(y)), self.pieces.constants, y)
            second = sp.diff(formula, ETA, 2)
            third = sp.diff(second, ETA)
            concave = concave and never_positive(second)
            concordant = concordant and concave and never_positive(second + third) and never_positive(second - third)
        if concave:
            return "log-concave, proven for all eta", True, concordant
        bent = np.flatnonzero(~(self.bends[1] <= 0.0))
        middle = self.edges.size // 2
        low, high = bent[bent < middle].max(initial=-1) + 1, bent[bent >= middle].min(initial=self.edges.size - 1)
        if low < high:
            return f"log-concave, proven for {variable} from {self.edges[low]:.3g} to {self.edges[high]:.3g}", False, False
        return "log-concavity not decided", False, False

    def extremes(self) -> list[float]:
        """Responses whose proof covers all; none if they are too many.

        f'' is affine in y where f is: the ends of a run of knots cover it. Else every response must be a knot.
        """
        groups: dict[int, list[float]] = {}
        for y in self.knots.tolist():
            groups.setdefault(self.pieces.number(y), []).append(y)
        places: list[float] = []
        for number, ys in groups.items():
            if self.location or is_affine(elementary(self.pieces.formulas[number])):
                places += sorted({ys[0], ys[-1]})
            elif self.linked.any() and not self.shared:
                return []
            else:
                places += ys
        return places if len(places) <= _MOST_PROOFS else []
