"""`Fit.hypothesis`, `Fit.draws` and `Fit.odds_ratios`: statements about parameters, from the draws."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tallbayes.errors import ModelError, OptionError
from tallbayes.models import family_of
from tallbayes.notebook import facts_table
from tallbayes.results.cost import effective_sizes, quantiles, weighted_sizes
from tallbayes.results.parameter_names import named_draws, nearest

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

_ARITHMETIC: dict[type, Callable] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable] = {"exp": np.exp, "log": np.log, "sqrt": np.sqrt, "abs": np.abs}
_ORDERS: dict[type, Callable] = {ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le}
_LONGEST = 2000


@dataclass(frozen=True)
class Hypothesis:
    """What the draws say about a statement.

    `probability` is its posterior probability with the Monte Carlo standard error `mcse`; `evidence_ratio` is
    probability / (1 - probability), infinite if every draw agrees. `mean`, `sd`, `lower` and `upper` describe the left-hand side
    less the right-hand side.
    """

    statement: str
    probability: float
    mcse: float
    evidence_ratio: float
    mean: float
    sd: float
    lower: float
    upper: float

    def __repr__(self) -> str:
        ratio = "all draws agree" if math.isinf(self.evidence_ratio) else f"evidence ratio {self.evidence_ratio:.4g}"
        return (
            f"{self.statement}: probability {self.probability:.4g} (Monte Carlo error {self.mcse:.2g}), {ratio}; "
            f"difference {self.mean:.4g} [{self.lower:.4g}, {self.upper:.4g}]"
        )

    def _repr_html_(self) -> str:
        names = ("probability", "mcse", "evidence_ratio", "mean", "sd", "lower", "upper")
        return facts_table(self.statement, {name: f"{getattr(self, name):.4g}" for name in names})


def hypothesis(fit: Fit, statement: str, prob: float) -> Hypothesis:
    """The result of `Fit.hypothesis`."""
    if not 0.0 < prob < 1.0:
        raise OptionError(f"prob is the probability of the interval, between 0 and 1; got {prob}.")
    if not isinstance(statement, str) or len(statement) > _LONGEST:
        raise OptionError(f"a hypothesis is a text such as 'x > 0', of at most {_LONGEST:,} characters; got {statement!r}.")
    tree, values, names = _parsed(statement, named_draws(fit))
    try:
        sides = [_evaluated(side, values, statement) for side in (tree.left, *tree.comparators)]
    except _UnknownNameError as error:
        raise _refusal(fit, statement, re.sub(r"_p\d+_", lambda m: names.get(m[0], m[0]), error.name)) from None
    holds = np.ones(fit.theta.shape[:2], bool)
    for order, left, right in zip(tree.ops, sides[:-1], sides[1:], strict=True):
        holds &= _ORDERS[type(order)](left, right)
    weights = fit.weights
    gap = np.broadcast_to(np.asarray(sides[0] - sides[1], float), holds.shape)
    share = holds.astype(float)
    probability = float(np.clip((weights * share).sum() / weights.sum(), 0.0, 1.0))
    size = _size(share, fit.stats.get("weight"))
    mean = float(np.average(gap, weights=weights))
    ends = quantiles(gap.reshape(-1), weights.reshape(-1), (0.5 - prob / 2, 0.5 + prob / 2))
    return Hypothesis(
        statement,
        probability,
        math.sqrt(probability * (1.0 - probability) / size) if size > 0 else float("nan"),
        probability / (1.0 - probability) if probability < 1.0 else math.inf,
        mean,
        float(np.sqrt(max(0.0, np.average((gap - mean) ** 2, weights=weights)))),
        float(ends[0]),
        float(ends[1]),
    )


def _size(share: np.ndarray, weights: np.ndarray | None) -> float:
    if np.ptp(share) == 0.0 or share.shape[1] < 4:
        return float(share.size)
    values = share[:, :, None]
    sizes = effective_sizes(values) if weights is None else weighted_sizes(values, weights)
    return float(sizes[0])


class _UnknownNameError(Exception):
    """A name in a statement that is not a parameter."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _refusal(fit: Fit, statement: str, name: str) -> OptionError:
    """The error for a name in a statement that is not a parameter."""
    listed = list(fit.names) + [other for other in fit.derived() if other not in fit.names]
    text = f"{statement!r}: {name!r} is not a parameter{nearest(name, listed)}"
    own = [other for other in fit.names if other.startswith(f"{name}[")]
    if len(own) > 1:
        text += f". {name!r} has {len(own)} coefficients: name one of them, or compare two, such as '{own[1]} > {own[0]}'"
    return OptionError(f"{text}. Put unusual names in backquotes.")


def _parsed(statement: str, known: dict[str, np.ndarray]) -> tuple[ast.Compare, dict[str, np.ndarray], dict[str, str]]:
    """The statement as a checked comparison over placeholders, and their draws and names.

    Longest names first: a name may hold brackets and operators.
    """
    values: dict[str, np.ndarray] = {}
    given: dict[str, str] = {}

    def placed(match: re.Match) -> str:
        key = f"_p{len(values)}_"
        given[key] = match[0].strip("`")
        values[key] = known[given[key]]
        return f" {key} "

    names = sorted((name for name in known if name in statement), key=len, reverse=True)
    choices = "|".join(rf"`{re.escape(n)}`|(?<![\w.]){re.escape(n)}(?![\w\[(.:])" for n in names)
    source = re.sub(choices, placed, statement) if names else statement
    source = re.sub(r"(?<![<>=!])=(?!=)", "==", source)  # as in brms; refused with a reason below
    try:
        tree = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise OptionError(
            f"{statement!r} cannot be read as a hypothesis; write a comparison of parameters such as 'x > 0' or '2 * a < b'."
        ) from None
    if not isinstance(tree, ast.Compare):
        raise OptionError(f"{statement!r} compares nothing; write a statement such as 'x > 0'.")
    for order in tree.ops:
        if type(order) not in _ORDERS:
            raise OptionError(
                f"{statement!r}: use <, <=, > or >=. A single value has probability zero; ask for a range such as "
                "'-0.1 < x < 0.1'."
            )
    return tree, values, given


def _evaluated(node: ast.AST, values: dict[str, np.ndarray], statement: str) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return float(node.value)
    if isinstance(node, ast.Name):
        if node.id in values:
            return values[node.id]
        raise _UnknownNameError(node.id)
    root: Any = node
    while isinstance(root, ast.Subscript):
        root = root.value
    if isinstance(root, ast.Name) and root is not node and root.id not in values:
        raise _UnknownNameError(ast.unparse(node).replace(" == ", "="))
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](_evaluated(node.left, values, statement), _evaluated(node.right, values, statement))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](_evaluated(node.operand, values, statement))
    called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
    if isinstance(node, ast.Call) and called in _FUNCTIONS and len(node.args) == 1 and not node.keywords:
        return _FUNCTIONS[called](_evaluated(node.args[0], values, statement))
    raise OptionError(
        f"{statement!r}: {type(node).__name__} is not understood; use parameters, numbers, + - * / and {', '.join(_FUNCTIONS)}."
    )


def ratios(fit: Fit, prob: float) -> pd.DataFrame:
    """The table of `Fit.odds_ratios`."""
    family = family_of(fit.meta["model"])
    if not family.ratio:
        raise ModelError(
            f"e^coefficient is not a ratio for the family {family.name!r}, whose link is neither a logit nor a logarithm. Use "
            "fit.comparisons."
        )
    if not 0.0 < prob < 1.0:
        raise OptionError(f"prob is the probability of the interval, between 0 and 1; got {prob}.")
    weights = fit.weights.reshape(-1)
    rows = {}
    for j, name in enumerate(fit.meta["columns"]):
        if j == fit.meta.get("intercept"):
            continue
        values = fit.theta[:, :, j].reshape(-1)
        with np.errstate(over="ignore"):  # a coefficient without a limit has an infinite ratio
            middle, low, high = np.exp(quantiles(values, weights, (0.5, 0.5 - prob / 2, 0.5 + prob / 2)))
        above = float(np.clip(np.average(values > 0, weights=weights), 0.0, 1.0))
        rows[name] = {family.ratio: middle, "lower": low, "upper": high, "P(>1)": above}
    if not rows:
        raise ModelError("the model has no coefficient besides the intercept.")
    return pd.DataFrame.from_dict(rows, orient="index")
