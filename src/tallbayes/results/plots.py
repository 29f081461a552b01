"""Plots of a fit: traces, marginals against the Laplace fit, cost per iteration; `answer_plots` has those about the world."""

from __future__ import annotations

import fnmatch
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import OptionError, TallbayesError, unknown
from tallbayes.validation import require_whole

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

CHAIN_COLOURS = ("#2a6fbb", "#d1603d", "#3d8f5f", "#8a5fbf", "#b8902c", "#4f6d7a")
_CURVED = re.compile(r"(?:s|bs|cr|poly)\(.*\)\[")  # coefficients that mean something only together: "effect" draws the curve
_POINTS = 400  # of each chain in a trace: more is a block of ink


def draw(
    fit: Fit,
    kind: str,
    path: str | Path | None,
    most: int,
    names: str | Sequence[str] | None = None,
    data: Any = None,
    prob: float = 0.89,
) -> Any:
    """The figure of `Fit.plot`."""
    from tallbayes.results import answer_plots, level_plots

    of_parameters = {"forest": answer_plots.forest, "marginals": _marginals, "trace": _trace}
    others = {
        "effect": answer_plots.effect,
        "ppc": answer_plots.ppc,
        "levels": level_plots.caterpillar,
        "calibration": answer_plots.calibration,
    }
    if kind not in (*of_parameters, *others, "cost"):
        raise unknown("plot", kind, (*of_parameters, *others, "cost"))
    if kind == "trace" and "weight" in fit.stats:
        raise OptionError("a trace plot ignores the weights of this fit; plot 'marginals', or use fit.expect.")
    if names is not None and kind in ("ppc", "calibration", "cost"):
        raise OptionError(f"names= selects parameters or variables; a {kind} plot has none.")
    if not 0.0 < prob < 1.0:
        raise OptionError(f"prob is the probability of the interval, between 0 and 1; got {prob}.")
    if kind in of_parameters:
        chosen = select(fit, names, most, kind)
        figure = of_parameters[kind](fit, chosen, prob)
        more = len(fit.names) - len(chosen)
        if names is None and more and kind != "forest":
            figure.suptitle(f"{figure.get_suptitle()} ({len(chosen)} of {len(fit.names)} parameters)", fontsize=11)
    elif kind == "cost":
        figure = _cost(fit)
    else:
        figure = others[kind](fit, names, data, prob)
    if path is not None:
        figure.savefig(path, dpi=130)
    return figure


def _is_intercept(fit: Fit, j: int) -> bool:
    """Whether a parameter is the intercept, or that of a class."""
    return j == fit.meta.get("intercept") or re.fullmatch(r"Intercept\[.*\]", fit.names[j]) is not None


def select(fit: Fit, names: str | Sequence[str] | None, most: int, kind: str) -> list[int]:
    """Positions of the parameters to show."""
    require_whole("most", most, 1)
    if names is not None and len(names) == 0:
        raise OptionError("names= is empty; name at least one parameter, or leave it out.")
    if names is None:
        every = list(range(len(fit.names)))
        if kind == "forest":  # the intercept and log sigma have other scales
            other = {"log_sigma", *fit.meta.get("nuisances", [])}
            effects = [j for j in every if not _is_intercept(fit, j) and fit.names[j] not in other]
            effects = [j for j in effects if not _CURVED.match(fit.names[j])] or effects
            return (effects or every)[: max(most, 30)]
        return every[:most]
    chosen: list[int] = []
    for name in [names] if isinstance(names, str) else names:
        found = [j for j, n in enumerate(fit.names) if n == name]
        if not found:
            found = [j for j, n in enumerate(fit.names) if fnmatch.fnmatchcase(n, str(name).replace("[", "[[]"))]
        if not found:
            raise unknown("parameter", name, fit.names)
        chosen += [j for j in found if j not in chosen]
    return chosen


def new_figure(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    """A figure that notebooks show without pyplot, and its axes."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise TallbayesError("plots need matplotlib: pip install 'tallbayes[plot]'.") from None

    class Picture(Figure):
        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png", dpi=110)
            return file.getvalue()

    figure = Picture(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def _trace(fit: Fit, chosen: list[int], prob: float) -> Any:
    from matplotlib.gridspec import GridSpec

    figure, axes = new_figure(len(chosen), 2, 9.0, 0.8 + 1.25 * len(chosen))
    grid = GridSpec(len(chosen), 2, figure=figure, width_ratios=[1, 3])
    step = max(1, fit.theta.shape[1] // _POINTS)
    x = np.arange(0, fit.theta.shape[1], step)
    for k, j in enumerate(chosen):
        left, right = axes[k]
        left.set_subplotspec(grid[k, 0])
        right.set_subplotspec(grid[k, 1])
        bins = np.linspace(fit.theta[:, :, j].min(), fit.theta[:, :, j].max() + 1e-300, 31)
        for c in range(fit.theta.shape[0]):
            colour = CHAIN_COLOURS[c % len(CHAIN_COLOURS)]
            counts = np.histogram(fit.theta[c, :, j], bins)[0]
            left.plot((bins[1:] + bins[:-1]) / 2, counts, color=colour, lw=1.0)
            right.plot(x, fit.theta[c, ::step, j], lw=0.6, alpha=0.75, color=colour)
        left.set_title(fit.names[j], loc="left", fontsize=8, pad=2)
        left.set_yticks([])
        left.xaxis.set_major_locator(few_ticks())
        for axis in (left, right):
            small_ticks(axis)
        right.margins(x=0.01)
        if k < len(chosen) - 1:
            right.set_xticklabels([])
    axes[-1, 1].set_xlabel("draw", fontsize=8)
    figure.suptitle(f"{fit.meta['sampler_name']}: {fit.theta.shape[0]} chains, each in its colour", fontsize=11)
    return figure


def _marginals(fit: Fit, chosen: list[int], prob: float) -> Any:
    columns = min(4, len(chosen))
    rows = -(-len(chosen) // columns)
    figure, axes = new_figure(rows, columns, max(5.0, 2.6 * columns), 0.8 + 2.0 * rows)
    sd = np.sqrt((fit.laplace_factor**2).sum(1))
    weights = fit.weights.reshape(-1)
    for k in range(rows * columns):
        axis = axes[k // columns, k % columns]
        if k >= len(chosen):
            axis.set_axis_off()
            continue
        j = chosen[k]
        values = fit.theta[:, :, j].reshape(-1)
        axis.hist(values, bins=40, density=True, weights=weights, color="#9dbfe3", edgecolor="none", label="draws")
        grid = np.linspace(
            min(values.min(), fit.laplace_mean[j] - 3.5 * sd[j]), max(values.max(), fit.laplace_mean[j] + 3.5 * sd[j]), 200
        )
        density = np.exp(-0.5 * ((grid - fit.laplace_mean[j]) / sd[j]) ** 2) / (sd[j] * np.sqrt(2 * np.pi))
        axis.plot(grid, density, color="#333333", lw=1.0, ls="--", label="Laplace fit")
        if grid[0] < 0.0 < grid[-1]:
            axis.axvline(0.0, color="#a33a16", lw=0.8)
        axis.set_title(fit.names[j], fontsize=9)
        axis.set_yticks([])
        small_ticks(axis)
        axis.xaxis.set_major_locator(few_ticks())
        if k == 0:
            axis.legend(fontsize=6.5, frameon=False, loc="upper left")
    figure.suptitle("Posterior marginals against the Laplace fit", fontsize=11)
    return figure


def small_ticks(axis: Any) -> None:
    """Ticks that leave the room to the picture."""
    axis.tick_params(labelsize=7)
    axis.xaxis.get_offset_text().set_fontsize(6)
    axis.yaxis.get_offset_text().set_fontsize(6)


def few_ticks() -> Any:
    """A locator of at most four ticks."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=4)


def _cost(fit: Fit) -> Any:
    figure, axes = new_figure(1, 2, 9.0, 3.2)
    evals, n = fit.evals / fit.thin, fit.meta["rows"]
    left, right = axes[0]
    step = max(1, evals.shape[1] // 1000)
    for c in range(evals.shape[0]):
        x = np.arange(0, evals.shape[1], step)
        left.plot(x, evals[c, ::step], ".", ms=2, alpha=0.5, color=CHAIN_COLOURS[c % len(CHAIN_COLOURS)])
    left.axhline(n, color="#333333", lw=0.8, ls="--")
    left.annotate(
        "n: one pass over the data",
        (0.01, n),
        xycoords=("axes fraction", "data"),
        xytext=(0, 2),
        textcoords="offset points",
        fontsize=7,
        va="bottom",
    )
    left.set_yscale("symlog", linthresh=1.0)
    left.set_ylim(0, max(5.0 * n, 2.0 * evals.max()))
    left.set_xlabel("draw", fontsize=8)
    left.set_ylabel("evaluations in the iteration", fontsize=8)
    cost = fit.cost()
    bars = {
        "setup": cost["setup"]["evals"],
        "warm-up": cost["warmup"]["evals"],
        "draws": cost["draws"]["evals"],
    }
    drawn = right.barh(list(bars)[::-1], [v / n for v in bars.values()][::-1], color=["#2a6fbb", "#d1603d", "#3d8f5f"])
    right.bar_label(drawn, [f"{v / n:,.3g}" for v in bars.values()][::-1], padding=3, fontsize=7)
    right.margins(x=0.15)
    right.set_xlabel("passes over the data (evaluations / n)", fontsize=8)
    for axis in (left, right):
        small_ticks(axis)
    figure.suptitle(
        f"Cost: {cost['draws']['evals_per_iteration']:,.3g} evaluations per iteration, {cost['evals_per_ess']:,.3g} per effective draw",
        fontsize=11,
    )
    return figure
