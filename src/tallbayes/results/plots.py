"""Plots people look at before they read numbers: traces, marginals against the Laplace fit, cost per iteration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import OptionError, TallbayesError, unknown

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

_CHAIN_COLOURS = ("#2a6fbb", "#d1603d", "#3d8f5f", "#8a5fbf", "#b8902c", "#4f6d7a")


def draw(fit: Fit, kind: str, path: str | Path | None, most: int) -> Any:
    """The figure of `Fit.plot`."""
    kinds = {"trace": _trace, "marginals": _marginals, "cost": _cost}
    if kind not in kinds:
        raise unknown("plot", kind, kinds)
    if kind in ("trace",) and "weight" in fit.stats:
        raise OptionError("a trace plot ignores the weights of this fit; plot 'marginals', or use fit.expect.")
    figure = kinds[kind](fit, most)
    if path is not None:
        figure.savefig(path, dpi=130)
    return figure


def _figure(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise TallbayesError("plots need matplotlib: pip install 'tallbayes[plot]'.") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def _title(fit: Fit, figure: Any, text: str, shown: int) -> None:
    more = f" (first {shown} of {len(fit.names)} parameters)" if shown < len(fit.names) else ""
    figure.suptitle(f"{text}{more}", fontsize=11)


def _trace(fit: Fit, most: int) -> Any:
    shown = min(most, len(fit.names))
    figure, axes = _figure(shown, 1, 9.0, 0.8 + 1.15 * shown)
    for j in range(shown):
        axis = axes[j, 0]
        step = max(1, fit.theta.shape[1] // 2000)
        for c in range(fit.theta.shape[0]):
            x = np.arange(0, fit.theta.shape[1], step)
            axis.plot(x, fit.theta[c, ::step, j], lw=0.5, alpha=0.8, color=_CHAIN_COLOURS[c % len(_CHAIN_COLOURS)])
        axis.set_title(fit.names[j], loc="left", fontsize=8, pad=2)
        _small_ticks(axis)
        axis.margins(x=0.01)
        if j < shown - 1:
            axis.set_xticklabels([])
    axes[-1, 0].set_xlabel("draw", fontsize=8)
    _title(fit, figure, f"{fit.meta['sampler_name']}: traces of {fit.theta.shape[0]} chains", shown)
    return figure


def _marginals(fit: Fit, most: int) -> Any:
    shown = min(most, len(fit.names))
    columns = min(4, shown)
    rows = -(-shown // columns)
    figure, axes = _figure(rows, columns, 2.6 * columns, 0.8 + 2.0 * rows)
    sd = np.sqrt((fit.laplace_factor**2).sum(1))
    weights = fit.weights.reshape(-1)
    for j in range(rows * columns):
        axis = axes[j // columns, j % columns]
        if j >= shown:
            axis.set_axis_off()
            continue
        values = fit.theta[:, :, j].reshape(-1)
        axis.hist(values, bins=40, density=True, weights=weights, color="#9dbfe3", edgecolor="none", label="draws")
        grid = np.linspace(
            min(values.min(), fit.laplace_mean[j] - 3.5 * sd[j]), max(values.max(), fit.laplace_mean[j] + 3.5 * sd[j]), 200
        )
        density = np.exp(-0.5 * ((grid - fit.laplace_mean[j]) / sd[j]) ** 2) / (sd[j] * np.sqrt(2 * np.pi))
        axis.plot(grid, density, color="#333333", lw=1.0, ls="--", label="Laplace fit")
        axis.set_title(fit.names[j], fontsize=9)
        axis.set_yticks([])
        _small_ticks(axis)
        axis.xaxis.set_major_locator(_ticks())
        if j == 0:
            axis.legend(fontsize=6.5, frameon=False, loc="upper left")
    _title(fit, figure, "Posterior marginals against the Laplace fit", shown)
    return figure


def _small_ticks(axis: Any) -> None:
    axis.tick_params(labelsize=7)
    axis.xaxis.get_offset_text().set_fontsize(6)
    axis.yaxis.get_offset_text().set_fontsize(6)


def _ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=4)


def _cost(fit: Fit, most: int) -> Any:
    figure, axes = _figure(1, 2, 9.0, 3.2)
    evals, n = fit.evals / fit.thin, fit.meta["rows"]
    left, right = axes[0]
    step = max(1, evals.shape[1] // 1000)
    for c in range(evals.shape[0]):
        x = np.arange(0, evals.shape[1], step)
        left.plot(x, evals[c, ::step], ".", ms=2, alpha=0.5, color=_CHAIN_COLOURS[c % len(_CHAIN_COLOURS)])
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
        _small_ticks(axis)
    figure.suptitle(
        f"Cost: {cost['draws']['evals_per_iteration']:,.3g} evaluations an iteration, {cost['evals_per_ess']:,.3g} per effective draw",
        fontsize=11,
    )
    return figure
