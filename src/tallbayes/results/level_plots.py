"""Caterpillar plots: the effects of levels in order, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import OptionError, unknown
from tallbayes.results.answer_plots import BLUE, RED
from tallbayes.results.level_summaries import level_table
from tallbayes.results.plots import few_ticks, new_figure, small_ticks

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

GREY = "#8b96a3"
NAMED = 40  # levels that are all named
ENDS = 15  # levels named at either end, if there are more
DRAWN = 500  # levels drawn at most, evenly spaced in their order


def caterpillar(fit: Fit, names: str | Sequence[str] | None, data: Any, prob: float) -> Any:
    """Effects of the levels of each term from lowest to highest; those whose interval contains zero are grey."""
    if not fit.levels:
        raise OptionError("a plot of levels needs group effects, and the model has none; plot 'forest' instead.")
    terms = list(fit.levels)[:4] if names is None else [names] if isinstance(names, str) else list(names)
    for name in terms:
        if name not in fit.levels:
            raise unknown("term with levels", name, list(fit.levels))
    tables = {name: level_table(fit.levels[name], prob).sort_values("mean", kind="stable") for name in terms}
    lines = [len(t) if len(t) <= NAMED else 2 * ENDS + 1 for t in tables.values()]
    wide = any(len(t) > NAMED for t in tables.values())
    figure, axes = new_figure(len(terms), 2 if wide else 1, 9.0 if wide else 6.0, sum(1.0 + 0.2 * k for k in lines))
    axes[0, 0].get_gridspec().set_height_ratios([1.0 + 0.2 * k for k in lines])
    for row, (name, table) in zip(axes, tables.items(), strict=True):
        if len(table) <= NAMED:
            _named(row[0], table, list(range(len(table))), name)
            for empty in row[1:]:
                empty.set_axis_off()
            continue
        _overview(row[0], table, name)
        _named(row[1], table, [*range(ENDS), *range(len(table) - ENDS, len(table))], name)
        row[1].set_title(f"the {ENDS} lowest and the {ENDS} highest", fontsize=8)
    figure.suptitle(f"Effects of levels: posterior means and {100 * prob:.3g} % intervals", fontsize=11)
    return figure


def _colours(low: np.ndarray, high: np.ndarray) -> list[str]:
    return [BLUE if a > 0.0 or b < 0.0 else GREY for a, b in zip(low, high, strict=True)]


def _named(axis: Any, table: Any, places: list[int], name: str) -> None:
    """Levels one below the other, the highest at the top, with a gap where some are left out."""
    part = table.iloc[places]
    height = np.array([k if p == k else k + 1 for k, p in enumerate(places)], float)
    low, high = (part.iloc[:, k].to_numpy() for k in (2, 3))
    colours = _colours(low, high)
    axis.axvline(0.0, color=RED, lw=0.9)
    axis.hlines(height, low, high, color=colours, lw=1.4)
    axis.scatter(part["mean"], height, c=colours, s=14, zorder=3)
    axis.set_yticks(height, [_short(str(label)) for label in part.index])
    if len(places) < len(table):
        axis.text(0.5, ENDS, f"{len(table) - len(places):,} more", transform=axis.get_yaxis_transform(), fontsize=7, color=GREY,
                  ha="center", va="center", bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})  # fmt: skip
    axis.set_ylim(-0.7, height[-1] + 0.7)
    axis.set_xlabel(name, fontsize=8)
    small_ticks(axis)
    axis.tick_params(axis="y", length=0)
    axis.xaxis.set_major_locator(few_ticks())
    _plain(axis)


def _overview(axis: Any, table: Any, name: str) -> None:
    """All levels by rank, thinned if they are very many."""
    places = np.unique(np.linspace(0, len(table) - 1, min(DRAWN, len(table))).round().astype(int))
    part = table.iloc[places]
    low, high = (part.iloc[:, k].to_numpy() for k in (2, 3))
    colours = _colours(low, high)
    axis.axvline(0.0, color=RED, lw=0.9)
    axis.hlines(places + 1, low, high, color=colours, lw=max(0.4, min(1.4, 160.0 / len(places))))
    axis.scatter(part["mean"], places + 1, c="#1d232b", s=1.5, zorder=3, lw=0)
    clear = int(((table.iloc[:, 2] > 0) | (table.iloc[:, 3] < 0)).sum())
    thinned = "" if len(places) == len(table) else f", {len(places)} of them drawn"
    axis.set_title(f"{len(table):,} levels{thinned}; the intervals of {clear:,} exclude zero", fontsize=8)
    axis.set_ylabel("rank", fontsize=8)
    axis.set_ylim(-0.02 * len(table), 1.02 * len(table))
    axis.set_xlabel(name, fontsize=8)
    small_ticks(axis)
    axis.xaxis.set_major_locator(few_ticks())
    _plain(axis)


def _plain(axis: Any) -> None:
    axis.grid(axis="x", color="#e3e7ec", lw=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)


def _short(label: str, most: int = 24) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"
