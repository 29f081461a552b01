"""`Fit.predictions`, `Fit.comparisons` and `Fit.slopes`: what a model says in units of the response, averaged over rows.

Each line is a contrast of one or two averages of E[y | x] over the rows of the data, with some columns set to other values
(`results/row_averages.py` computes them). A slope is a contrast over a small step. Ratios are ratios of averages, as
marginaleffects' "ratioavg" and "lnoravg".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tallbayes.errors import DataError, OptionError, unknown
from tallbayes.results.cost import quantiles
from tallbayes.results.design_terms import DesignTerms
from tallbayes.results.levels import joint_draws
from tallbayes.results.links import LINKS, mean_of, require_link, slope_of
from tallbayes.results.raw_columns import RawBlock, RawColumns
from tallbayes.results.row_averages import AverageBlock, Averages, Contrast, Function, LevelTerm, Variant, average
from tallbayes.results.table_text import Effects
from tallbayes.validation import check_probability, require_whole, shown
from tallbayes.validation import number as as_number

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

SCALES = {
    "predictions": ("response", "link", "odds", "log"),
    "comparisons": ("response", "link", "ratio", "odds", "log"),
    "slopes": ("response", "link", "log", "elasticity"),
}
MOST_GROUPS = 200
MOST_LINES = 2000
STEADY = {"center", "scale", "poly"}  # transforms that are defined and smooth everywhere
_STEP = 1e-5  # of a slope, in standard deviations of the column

Operation = tuple[str, float]  # "set", "add", "multiply", "from", "to"


@dataclass
class Line:
    """A line of the table before its numbers: labels, and the changes of columns on both sides."""

    labels: dict[str, Any]
    high: dict[str, tuple[Operation, ...]]
    low: dict[str, tuple[Operation, ...]] | None = None
    divisor: float = 1.0


@dataclass
class Request:
    """What the three methods have in common."""

    fit: Fit
    at: Mapping[str, Any] | None
    by: str | Sequence[str] | None
    scale: str
    data: Any
    prob: float
    draws: int
    rows: int | None
    seed: int
    method: str = ""
    columns: RawColumns = field(init=False)

    def __post_init__(self) -> None:
        family = require_link(self.fit)
        if self.scale not in SCALES[self.method]:
            raise unknown(f"scale of {self.method}", self.scale, SCALES[self.method])
        if self.scale == "odds" and family not in ("logistic", "probit", "binomial"):
            raise OptionError(f"odds need a response of 0 and 1; for {family!r} use scale='ratio'.")
        if self.scale in ("log", "ratio", "elasticity") and LINKS[family] == "identity":
            raise OptionError(f"scale={self.scale!r} needs a positive mean, which {family!r} does not ensure; use 'response'.")
        check_probability(self.prob)
        require_whole("draws", self.draws, 2)
        if self.rows is not None:
            require_whole("rows", self.rows, 2)
        self.columns = RawColumns(self.fit, self.data)

    @property
    def design(self) -> DesignTerms:
        """What the design is made of."""
        return self.columns.design

    def settings(self) -> list[dict[str, Any]]:
        """Every combination of the values of `at`."""
        at = dict(self.at or {})
        for name in at:
            self.design.check(name)
        values = [list(v) if isinstance(v, list | tuple | range | np.ndarray | pd.Series) else [v] for v in at.values()]
        return [dict(zip(at, combination, strict=True)) for combination in itertools.product(*values)]

    def fixed(self, setting: Mapping[str, Any]) -> dict[str, tuple[Operation, ...]]:
        """The changes of a combination of values."""
        return {name: (("set", self.number(name, value)),) for name, value in setting.items()}

    def number(self, name: str, value: Any) -> float:
        """A value of a column as a number: of a level, its position."""
        levels = self.design.levels.get(name)
        if levels is None:
            found = as_number(+value if isinstance(value, bool) else value)
            if not np.isfinite(found):
                raise DataError(f"{name!r} is a number; got {shown(value)}.")
            return found
        if np.ndim(value) or value not in levels:
            raise DataError(str(unknown(f"level of {name}", str(value), [str(v) for v in levels])))
        return float(levels.index(value))


def predictions(request: Request) -> Effects:
    """The table of `Fit.predictions`."""
    lines = [Line(dict(setting), request.fixed(setting)) for setting in request.settings()]
    return _table(request, lines)


def comparisons(request: Request, variables: Any) -> Effects:
    """The table of `Fit.comparisons`."""
    given = variables if isinstance(variables, Mapping) else dict.fromkeys(_names(variables, request.design.variables))
    if not given:
        raise OptionError("the model has no variable to compare; it is an intercept alone.")
    lines = []
    for name, values in given.items():
        request.design.check(name)
        for label, high, low in _changes(request, name, values):
            for setting in request.settings():
                base = {k: v for k, v in request.fixed(setting).items() if k != name}
                start = request.fixed(setting).get(name, ())
                lines.append(
                    Line(
                        {"variable": name, "contrast": label, **setting},
                        {**base, name: (*start, high)},
                        {**base, name: (*start, low)} if low[0] != "add" or start else base,
                    )
                )
    return _table(request, lines)


def slopes(request: Request, variables: Any) -> Effects:
    """The table of `Fit.slopes`."""
    numeric = [v for v in request.design.variables if v not in request.design.levels]
    if variables is None and not numeric:
        raise OptionError("no column of the model is a number, so there is no slope; use fit.comparisons for levels.")
    lines = []
    for name in _names(variables, numeric if variables is None else request.design.variables):
        request.design.check(name)
        if name in request.design.levels:
            raise OptionError(f"{name!r} has levels and no slope; use fit.comparisons({name!r}).")
        spread = request.columns.spread(name)
        step = _STEP * (spread.sd or 1.0)
        inside: tuple[Operation, ...] = ()
        margin = step if request.scale != "elasticity" else 2.0 * _STEP * max(abs(spread.low), abs(spread.high))
        if request.design.transforms(name) - STEADY and spread.high - spread.low > 4 * margin:
            inside = (("from", spread.low + margin), ("to", spread.high - margin))
        for setting in request.settings():
            fixed = request.fixed(setting)
            start = (*fixed.get(name, ()), *inside)
            if request.scale == "elasticity":
                ends, divisor = (("multiply", 1.0 + _STEP), ("multiply", 1.0 - _STEP)), 2.0 * _STEP
            else:
                ends, divisor = (("add", step), ("add", -step)), 2.0 * step
            sides = [{**fixed, name: (*start, end)} for end in ends]
            lines.append(Line({"variable": name, "contrast": "slope", **setting}, sides[0], sides[1], divisor))
    return _table(request, lines)


def _names(variables: Any, every: Sequence[str]) -> list[str]:
    if variables is None:
        return list(every)
    names = [variables] if isinstance(variables, str) else list(variables)
    if not names:
        raise OptionError(f"variables= is empty; name at least one of {', '.join(every)}.")
    return names


def _changes(request: Request, name: str, values: Any) -> Iterator[tuple[str, Operation, Operation]]:
    """What is compared: a label, and the change on either side."""
    levels = request.design.levels.get(name)
    if levels is not None:
        yield from _level_changes(request, name, levels, values)
        return
    if isinstance(values, list | tuple):
        low, high = _pair(name, values)
        yield f"{high:g} vs {low:g}", ("set", request.number(name, high)), ("set", request.number(name, low))
        return
    if values is None or isinstance(values, str):
        low, high, mean, sd, binary = request.columns.spread(name)
        if values is None and {"bs", "s"} & request.design.transforms(name):  # a step might leave the range of the spline
            low, high, values = mean - sd / 2, mean + sd / 2, "minmax"
        if values == "minmax" or (values is None and binary):
            yield f"{high:.4g} vs {low:.4g}", ("set", high), ("set", low)
            return
        if values not in (None, "sd", "2sd"):
            raise OptionError(f"compare {name!r} by a number, a pair of values, 'sd', '2sd' or 'minmax'; got {values!r}.")
        step = {None: 1.0, "sd": sd, "2sd": 2.0 * sd}[values]
        yield f"+{step:.4g}" if values is None else f"+{values} ({step:.4g})", ("add", step), ("add", 0.0)
        return
    if not isinstance(values, int | float | np.number) or not np.isfinite(values) or values == 0:
        raise OptionError(f"compare {name!r} by a number other than 0, or a pair of values; got {values!r}.")
    yield f"{float(values):+g}", ("add", float(values)), ("add", 0.0)


def _level_changes(request: Request, name: str, levels: list[Any], values: Any) -> Iterator[tuple[str, Operation, Operation]]:
    if values is None or values == "reference":
        pairs = [(levels[0], v) for v in levels[1:]]
    elif values == "pairwise":
        pairs = list(itertools.combinations(levels, 2))
    elif values == "sequential":
        pairs = list(itertools.pairwise(levels))
    elif isinstance(values, list | tuple):
        pairs = [_pair(name, values)]
    else:
        raise OptionError(f"compare levels of {name!r} by 'reference', 'pairwise', 'sequential' or a pair; got {values!r}.")
    for low, high in pairs:
        yield f"{high} vs {low}", ("set", request.number(name, high)), ("set", request.number(name, low))


def _pair(name: str, values: Sequence[Any]) -> tuple[Any, Any]:
    if len(values) != 2:
        raise OptionError(f"compare {name!r} at two values, (from, to); got {list(values)!r}.")
    return values[0], values[1]


def _functions(request: Request) -> tuple[Function, Function, str]:
    """What is averaged over rows, its derivative, and what is made of two averages."""
    family = request.fit.meta["model"]["family"]
    mean = mean_of(family)
    slope = slope_of(LINKS[family], mean)
    if request.scale == "link":
        return (lambda eta: eta), np.ones_like, "difference"
    if request.method == "slopes" and request.scale != "response":
        return (lambda eta: np.log(mean(eta))), (lambda eta: slope(eta) / mean(eta)), "difference"
    return mean, slope, "difference" if request.scale == "response" else request.scale


def _table(request: Request, lines: list[Line]) -> Effects:
    groups, labels, encode = _groups(request)
    if len(lines) * groups > MOST_LINES:
        raise OptionError(
            f"{len(lines) * groups:,} effects are more than {MOST_LINES:,}; name fewer variables, values or groups."
        )
    function, derivative, kind = _functions(request)
    keys: dict[tuple, int] = {}
    specs: list[dict[str, tuple[Operation, ...]]] = []

    def place(changes: dict[str, tuple[Operation, ...]]) -> int:
        key = tuple(sorted(changes.items()))
        if key not in keys:
            keys[key] = len(specs)
            specs.append(changes)
        return keys[key]

    contrasts = [Contrast(place(v.high), None if v.low is None else place(v.low), kind, v.divisor) for v in lines]
    theta, weights, levels = _draws(request)
    blocks = _blocks(request, specs, encode)
    with np.errstate(over="ignore"):
        result = average(blocks, theta, weights, function, derivative, contrasts, groups, request.rows, request.seed, levels)
    return _filled(request, lines, labels, result, weights)


def _groups(request: Request) -> tuple[int, list[dict[str, Any]], dict[str, list[Any]]]:
    names = [] if request.by is None else [request.by] if isinstance(request.by, str) else list(request.by)
    levels = {name: request.columns.distinct(name, MOST_GROUPS) for name in names}
    combinations = list(itertools.product(*levels.values()))
    if len(combinations) > MOST_GROUPS:
        raise OptionError(f"by= makes {len(combinations):,} groups; at most {MOST_GROUPS} are possible.")
    return len(combinations), [dict(zip(names, c, strict=True)) for c in combinations], levels


def _blocks(
    request: Request, specs: list[dict[str, tuple[Operation, ...]]], by: dict[str, list[Any]]
) -> Iterator[AverageBlock]:
    design = request.design
    constant = [design.needed(set(s)) <= {k for k, ops in s.items() if ops and ops[0][0] == "set"} for s in specs]
    wanted = set(by)
    for spec, same in zip(specs, constant, strict=True):
        if not same:
            wanted |= {c for c in design.needed(set(spec)) if not (spec.get(c) and spec[c][0][0] == "set")}
    once: dict[int, Variant] = {}
    for block in request.columns.blocks(wanted):
        variants = []
        for k, spec in enumerate(specs):
            if k not in once:
                variant = _variant(design, block, spec, 1 if constant[k] else block.x.shape[0])
                if constant[k]:
                    once[k] = variant
            variants.append(once[k] if constant[k] else variant)
        yield AverageBlock(block.x, block.offset, block.weights, _codes(request, block, by), variants, block.levels)


def _variant(design: DesignTerms, block: RawBlock, spec: dict[str, tuple[Operation, ...]], rows: int) -> Variant:
    changed = set(spec)
    where = design.touched(changed)
    if not where.size:
        return Variant(where, np.empty((1, 0)))
    columns = {}
    for name in design.needed(changed):
        values = block.columns.get(name, np.zeros(rows))
        columns[name] = _changed(np.broadcast_to(values, rows) if rows > 1 else values[:1], spec.get(name, ()))
    return Variant(where, design.values(columns, changed, rows))


def _changed(values: np.ndarray, operations: tuple[Operation, ...]) -> np.ndarray:
    for kind, number in operations:
        if kind == "set":
            values = np.full(values.shape, number)
        elif kind == "add":
            values = values + number
        elif kind == "multiply":
            values = values * number
        else:
            values = np.maximum(values, number) if kind == "from" else np.minimum(values, number)
    return values


def _codes(request: Request, block: RawBlock, by: dict[str, list[Any]]) -> np.ndarray | None:
    if not by:
        return None
    codes = np.zeros(block.x.shape[0], int)
    for name, levels in by.items():
        own = block.columns[name]
        coded = name in request.design.levels or name in request.columns.texts
        codes = codes * len(levels) + (own.astype(int) if coded else np.searchsorted(np.asarray(levels, float), own))
    return codes


def _draws(request: Request) -> tuple[np.ndarray, np.ndarray, list[LevelTerm]]:
    fit, d = request.fit, len(request.design.names)
    index = joint_draws(fit)
    if index.size > request.draws:
        index = index[np.linspace(0, index.size - 1, request.draws).round().astype(int)]
    theta, weights = fit.theta[:, :, :d].reshape(-1, d)[index], fit.weights.reshape(-1)[index]
    levels = []
    for name, own in fit.levels.items():
        term, values = name.removesuffix(f"|{own.factor}"), own.at(index, fit.theta.shape[1])
        column = request.design.names.index(term) if term in request.design.names else -1
        levels.append(LevelTerm(values, column, weights @ values / weights.sum()))
    return np.ascontiguousarray(theta), weights, levels


def _filled(
    request: Request, lines: list[Line], labels: list[dict[str, Any]], result: Averages, weights: np.ndarray
) -> Effects:
    levels = (0.5 - request.prob / 2, 0.5 + request.prob / 2)
    rows, posterior = [], []
    for k, line in enumerate(lines):
        for g, label in enumerate(labels):
            if result.rows[g] == 0:
                continue
            values, errors = result.values[:, g, k], result.errors[:, g, k]
            mean = np.average(values, weights=weights)
            sd = np.sqrt(max(0.0, np.average((values - mean) ** 2, weights=weights)))
            ends = quantiles(values, weights, levels)
            rows.append({**line.labels, **label, "mean": mean, "sd": sd, "lower": ends[0], "upper": ends[1]})
            rows[-1]["rows_se"] = float(np.sqrt((errors**2).mean()))
            posterior.append(values)
    table = Effects(rows)
    table.posterior = np.stack(posterior, axis=1)
    table.header = _header(request, result, table)
    return table


def _header(request: Request, result: Averages, table: Effects) -> list[str]:
    scale = {"response": "in units of the response", "link": "on the scale of the linear predictor", "ratio": "ratios of means",
             "odds": "odds" if request.method == "predictions" else "odds ratios", "log": "logarithms of means",
             "elasticity": "elasticities"}[request.scale]  # fmt: skip
    share = float(np.nanmax(np.where(table["sd"] > 0, table["rows_se"] / table["sd"].where(table["sd"] > 0, 1.0), 0.0)))
    weighted = ", weighted" if request.columns.weighted else ""
    lines = [
        f"{request.method} {scale}, averaged over {int(result.rows.sum()):,} rows{weighted}; "
        f"{result.values.shape[0]:,} draws, {100 * request.prob:.4g} % intervals"
    ]
    if (result.sampled < result.rows).any():
        lines.append(
            f"tangents of all rows and remainders of {int(result.sampled.sum()):,}; the rows left out add at most "
            f"{100 * share:.2g} % of a posterior sd (rows_se)"
        )
    return lines
