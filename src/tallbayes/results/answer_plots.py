"""Plots about the world: intervals of parameters, effects of variables, predictive checks, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import OptionError
from tallbayes.results.cost import quantiles
from tallbayes.results.plots import few_ticks, new_figure, small_ticks
from tallbayes.results.table_text import decimals
from tallbayes.streams import Stream, generator

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit
    from tallbayes.results.survival_checks import SurvivalCheck

BLUE, PALE, DARK, RED = "#2a6fbb", "#9dbfe3", "#333333", "#a33a16"
_GRID = 21  # values of a variable at which its effect is drawn
_MOST_LEVELS = 30
_MOST_COUNTS = 30  # different responses that are drawn as bars
_CURVES, _MARKS = 20, 100  # simulated curves and marks of censored rows that are drawn
_CALIBRATED = 50_000  # rows of a calibration plot


def forest(fit: Fit, chosen: list[int], prob: float) -> Any:
    """Medians with 50 % and `prob` intervals of the chosen parameters, and a line at zero."""
    longest = max(len(fit.names[j]) for j in chosen)
    figure, axes = new_figure(1, 1, 7.2 + min(3.0, 0.06 * longest), 1.0 + 0.28 * len(chosen))
    axis, weights = axes[0, 0], fit.weights.reshape(-1)
    axis.axvline(0.0, color=RED, lw=0.9)
    for k, j in enumerate(chosen):
        values = fit.theta[:, :, j].reshape(-1)
        low, high = quantiles(values, weights, (0.5 - prob / 2, 0.5 + prob / 2))
        inner, outer = quantiles(values, weights, (0.25, 0.75))
        axis.plot([low, high], [-k, -k], color=BLUE, lw=1.2, solid_capstyle="butt")
        axis.plot([inner, outer], [-k, -k], color=BLUE, lw=4.0, solid_capstyle="butt")
        median = quantiles(values, weights, (0.5, 0.5))[0]
        axis.plot(median, -k, "o", color="white", mec=BLUE, ms=4.5)
        text = decimals((median, low, high), float(np.sqrt(np.cov(values, aweights=np.abs(weights)))))
        axis.annotate(f"{text[0]}  [{text[1]}, {text[2]}]", (1.0, -k), xycoords=("axes fraction", "data"), xytext=(6, 0),
                      textcoords="offset points", va="center", fontsize=7)  # fmt: skip
    axis.set_yticks([-k for k in range(len(chosen))], [fit.names[j] for j in chosen])
    axis.set_ylim(-len(chosen) + 0.4, 0.6)
    small_ticks(axis)
    axis.tick_params(axis="y", labelsize=8, length=0)
    axis.grid(axis="x", color="#e3e7ec", lw=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    figure.suptitle(f"Posterior medians, 50 % and {100 * prob:.3g} % intervals", fontsize=11)
    return figure


def effect(fit: Fit, names: str | Sequence[str] | None, data: Any, prob: float) -> Any:
    """The average prediction as each variable changes, all other columns as they are."""
    from tallbayes.results.raw_columns import RawColumns

    rows = RawColumns(fit, data)
    design = rows.design
    wanted = list(design.variables[:6]) if names is None else [names] if isinstance(names, str) else list(names)
    if not wanted:
        raise OptionError("the model has no variable; it is an intercept alone.")
    columns = min(3, len(wanted))
    lines = -(-len(wanted) // columns)
    figure, axes = new_figure(lines, columns, max(5.0, 3.2 * columns), 0.6 + 2.6 * lines)
    for k in range(lines * columns):
        axis = axes[k // columns, k % columns]
        if k >= len(wanted):
            axis.set_axis_off()
            continue
        name = wanted[k]
        design.check(name)
        if name in design.levels:
            _levels(fit, axis, name, design.levels[name][:_MOST_LEVELS], data, prob)
        else:
            spread = rows.spread(name)
            if spread.binary:
                _levels(fit, axis, name, [0, 1], data, prob)
            else:
                _curve(fit, axis, name, (spread.low, spread.high, spread.mean, spread.sd), data, prob)
        axis.set_xlabel(name, fontsize=8)
        small_ticks(axis)
        axis.grid(color="#e3e7ec", lw=0.6)
        axis.set_axisbelow(True)
    drawn = [axis for axis in axes.reshape(-1) if axis.axison]
    low, high = min(axis.get_ylim()[0] for axis in drawn), max(axis.get_ylim()[1] for axis in drawn)
    for axis in drawn:  # effects of different variables compare
        axis.set_ylim(low, high)
    axes[0, 0].set_ylabel(f"average {fit.meta.get('response', 'response')}", fontsize=8)
    figure.suptitle(f"Average prediction as a variable changes, {100 * prob:.3g} % intervals", fontsize=11)
    return figure


def _levels(fit: Fit, axis: Any, name: str, levels: list[Any], data: Any, prob: float) -> None:
    table = fit.predictions({name: levels}, data=data, prob=prob, draws=400)
    place = np.arange(len(levels))
    axis.vlines(place, table["lower"], table["upper"], color=BLUE, lw=2.0)
    axis.plot(place, table["mean"], "o", color="white", mec=BLUE, ms=5)
    axis.set_xticks(place, [str(v) for v in levels], rotation=0 if len(levels) < 7 else 90)
    axis.set_xlim(-0.5, len(levels) - 0.5)


def _curve(fit: Fit, axis: Any, name: str, spread: tuple[float, float, float, float], data: Any, prob: float) -> None:
    low, high, mean, sd = spread
    low, high = max(low, mean - 3.0 * sd), min(high, mean + 3.0 * sd)  # beyond, there are hardly any rows
    values = np.linspace(low, high, _GRID)
    table = fit.predictions({name: values}, data=data, prob=prob, draws=400)
    axis.fill_between(values, table["lower"].to_numpy(), table["upper"].to_numpy(), color=PALE, lw=0)
    axis.plot(values, table["mean"], color=BLUE, lw=1.5)
    axis.xaxis.set_major_locator(few_ticks())


def ppc(fit: Fit, names: Any, data: Any, prob: float) -> Any:
    """Simulated responses beside the observed ones: bars of counts, densities, or Kaplan-Meier curves of censored times."""
    from tallbayes.results.survival_checks import SurvivalCheck

    check = fit.ppc(data=data)
    figure, axes = new_figure(1, 1, 6.5, 3.6)
    axis = axes[0, 0]
    values = np.unique(np.concatenate([check.observed, check.simulated.reshape(-1)[:100_000]]))
    if isinstance(check, SurvivalCheck):
        _survival(axis, check, prob)
    elif (values == np.round(values)).all():
        _bars(axis, check, prob)
    else:
        _densities(axis, check)
    axis.set_xlabel(str(fit.meta.get("response", "response")), fontsize=8)
    small_ticks(axis)
    axis.legend(fontsize=7, frameon=False)
    draws, rows = check.simulated.shape
    figure.suptitle(f"Posterior predictive check: {rows:,} rows, {draws} simulations", fontsize=11)
    return figure


def _bars(axis: Any, check: Any, prob: float) -> None:
    low = min(check.observed.min(), check.simulated.min())
    top = min(np.quantile(np.append(check.observed, check.simulated.reshape(-1)), 0.999), low + _MOST_COUNTS)
    counts = np.arange(low, top + 1)
    seen = np.array([(check.observed == v).mean() for v in counts])
    each = np.stack([(check.simulated == v).mean(1) for v in counts], axis=1)
    ends = np.quantile(each, (0.5 - prob / 2, 0.5 + prob / 2), axis=0)
    axis.bar(counts, seen, width=0.8, color=PALE, label="observed")
    axis.errorbar(
        counts, each.mean(0), yerr=np.abs(ends - each.mean(0)), fmt="o", ms=3.5, color=DARK, lw=1.0,
        label=f"simulated, {100 * prob:.3g} %",
    )  # fmt: skip
    axis.set_ylabel("share of rows", fontsize=8)
    if counts.size <= 12:
        axis.set_xticks(counts)


def _survival(axis: Any, check: SurvivalCheck, prob: float) -> None:
    """Kaplan-Meier curves with marks where rows are censored."""
    every = np.abs(check.observed)
    end = float(every.max()) if every.max() < 3.0 * np.quantile(every, 0.95) else float(np.quantile(every, 0.99))
    grid = np.linspace(0.0, end, 400)
    each = check.survival_at(grid)
    low, high = np.quantile(each, (0.5 - prob / 2, 0.5 + prob / 2), axis=0)
    axis.fill_between(grid, low, high, color=PALE, lw=0, label=f"simulated, {100 * prob:.3g} %")
    for curve in each[:_CURVES]:
        axis.plot(grid, curve, color=BLUE, lw=0.5, alpha=0.25)
    axis.plot(grid, check.curve.at(grid), color=DARK, lw=1.4, label="observed (Kaplan-Meier)")
    lost = np.sort(every[(check.observed < 0) & (every <= end)])
    lost = lost[:: max(1, lost.size // _MARKS)]
    axis.plot(lost, check.curve.at(lost), "|", color=DARK, ms=6, mew=0.7, label="censored")
    axis.set_xlim(0.0, end)
    axis.set_ylim(0.0, 1.02)
    axis.set_ylabel("share without an event", fontsize=8)


def _densities(axis: Any, check: Any) -> None:
    low, high = np.quantile(np.append(check.observed, check.simulated.reshape(-1)), (0.002, 0.998))
    bins = np.linspace(low, high, 27)
    middle = (bins[1:] + bins[:-1]) / 2
    for k, simulated in enumerate(check.simulated[:40]):
        axis.plot(
            middle, np.histogram(simulated, bins, density=True)[0], color=PALE, lw=0.6, label="simulated" if k == 0 else None
        )
    axis.plot(middle, np.histogram(check.observed, bins, density=True)[0], color=DARK, lw=1.6, label="observed")
    axis.set_yticks([])


def calibration(fit: Fit, names: Any, data: Any, prob: float) -> Any:
    """Observed shares against predicted probabilities, in bins."""
    from scipy import stats

    from tallbayes.results.group_predictions import levels_of_rows
    from tallbayes.results.rebuild import dataset_of
    from tallbayes.results.scores import calibration as binned

    if fit.meta["model"]["family"] not in ("logistic", "probit"):
        raise OptionError("a calibration plot needs a response of 0 and 1; plot 'ppc' instead.")
    found = dataset_of(fit, data)
    index = np.sort(generator(0, Stream.CALIBRATED_ROWS).choice(found.n, min(found.n, _CALIBRATED), replace=False))
    records = found.records[index].astype(float)
    offset = records[:, found.d + 1] if found.has_offset else None
    p = fit.predict(records[:, : found.d], offset=offset, groups=levels_of_rows(found, index))["mean"].to_numpy()
    table = binned(records[:, found.d], np.clip(p, 0.0, 1.0), bins=10 if found.n < 20_000 else 20)
    ones = table["observed"] * table["rows"]
    tail = (1.0 - prob) / 2
    low = stats.beta.ppf(tail, ones + 0.5, table["rows"] - ones + 0.5)
    high = stats.beta.ppf(1.0 - tail, ones + 0.5, table["rows"] - ones + 0.5)
    figure, axes = new_figure(2, 1, 4.8, 5.4)
    figure.get_layout_engine().set(hspace=0.04)
    axis, below = axes[0, 0], axes[1, 0]
    from matplotlib.gridspec import GridSpec

    grid = GridSpec(2, 1, figure=figure, height_ratios=[4, 1])
    axis.set_subplotspec(grid[0])
    below.set_subplotspec(grid[1])
    axis.plot([0, 1], [0, 1], color=DARK, lw=0.8, ls="--")
    axis.vlines(table["predicted"], low, high, color=BLUE, lw=1.5)
    axis.plot(table["predicted"], table["observed"], "o", color="white", mec=BLUE, ms=5)
    axis.set_ylabel("observed share of ones", fontsize=8)
    below.bar((table["low"] + table["high"]) / 2, table["rows"], width=0.9 * (table["high"] - table["low"]), color=PALE)
    below.set_ylabel("rows", fontsize=8)
    below.set_xlabel("predicted probability", fontsize=8)
    for part in (axis, below):
        part.set_xlim(-0.02, 1.02)
        small_ticks(part)
    figure.suptitle(f"Calibration on {index.size:,} rows", fontsize=11)
    return figure
