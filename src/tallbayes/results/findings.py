"""What a report says first: the formula, effects in units of the response, and a sentence for each of the strongest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.data.second_predictor import second_names
from tallbayes.errors import TallbayesError
from tallbayes.models import family_of
from tallbayes.results.links import LINKS, has_second

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit
    from tallbayes.results.table_text import Effects

MOST_ROWS = 2_000_000  # beyond, a report would read for minutes; fit.comparisons does so on request
MOST_VARIABLES = 20
MOST_SENTENCES = 5
_MOST_LEVELS = 20
_MOST_CURVED_ROWS = 200_000


def formula_of(fit: Fit) -> str:
    """The formula of a fit as far as it is known: response ~ terms."""
    plan, meta = fit.meta.get("plan") or {}, fit.meta
    second = plan.get("second", {})
    count = len(meta["columns"]) - len(second_names(plan))
    if "design" in plan:
        right = plan["design"]["formula"].removeprefix("1 + ")
    else:
        names = [c for k, c in enumerate(meta["columns"][:count]) if k != meta.get("intercept")]
        right = " + ".join(names[:20]) + (f" + … ({len(names) - 20} more)" if len(names) > 20 else "")
        right = right or "1"
        if meta.get("intercept") is None or meta["intercept"] >= count:
            right = "0 + " + right
    for name, own in meta["model"].get("groups", {}).items():
        right += f" + ({' + '.join(own['terms'])} | {own.get('factor', name)})"
    return f"{meta.get('response', 'y')} ~ {right}" + (f", {second['name']} {second['formula']}" if second else "")


def effects_of(fit: Fit) -> Effects | None:
    """Comparisons of every variable, numbers by one standard deviation; None if the rows are too many or not found."""
    from tallbayes.results.raw_columns import RawColumns

    if fit.meta["model"]["family"] not in LINKS or has_second(fit) or fit.meta["rows"] > MOST_ROWS:
        return None
    try:
        rows = RawColumns(fit)
        wanted: dict[str, Any] = {}
        for name in rows.design.variables[:MOST_VARIABLES]:
            if name in rows.design.levels:
                if len(rows.design.levels[name]) <= _MOST_LEVELS:
                    wanted[name] = None
            elif {"bs", "s"} & rows.design.transforms(name) or rows.spread(name).binary:
                wanted[name] = None
            else:
                wanted[name] = "sd"
        return fit.comparisons(wanted, draws=400) if wanted else None
    except TallbayesError:  # rows that are gone, or that do not tell a column: the rest of the report stands
        return None


def curved_variables(fit: Fit) -> list[str]:
    """Variables inside splines, smooths and polynomials, whose coefficients say little: at most three, and none of very many rows."""
    from tallbayes.results.raw_columns import RawColumns

    if fit.meta["rows"] > _MOST_CURVED_ROWS:
        return []
    design = RawColumns(fit).design
    curved = {"bs", "cr", "poly", "s"}
    return [name for name in design.variables if name not in design.levels and curved & design.transforms(name)][:3]


def sentences(fit: Fit, table: Effects) -> list[str]:
    """One sentence for each of the strongest effects whose interval does not contain zero."""
    sure = table[(table["lower"] > 0) | (table["upper"] < 0)]
    order = np.argsort(-sure["mean"].abs().to_numpy(), kind="stable")
    return [_sentence(fit, sure.iloc[k]) for k in order[:MOST_SENTENCES]]


def _sentence(fit: Fit, row: Any) -> str:
    binary = family_of(fit.meta["model"]).response == "binary"
    response = str(fit.meta.get("response", "y"))
    factor, unit = (100.0, " percentage points") if binary else (1.0, "")
    ends = sorted(abs(factor * row[c]) for c in ("lower", "upper"))
    size = abs(factor * row["mean"])
    direction = "higher" if row["mean"] > 0 else "lower"
    what = f"the probability of {response} = 1" if binary else f"the average {response}"
    contrast = str(row["contrast"])
    if contrast.startswith("+sd"):
        subject = f"{row['variable']} higher by one standard deviation {contrast.removeprefix('+sd ')}"
    else:
        subject = f"{row['variable']} = {contrast.replace(' vs ', ' instead of ')}"
    return (
        f"With {subject}, {what} is {size:.3g}{unit} {direction} "
        f"(89 % interval {ends[0]:.3g} to {ends[1]:.3g}), other things being equal."
    )
