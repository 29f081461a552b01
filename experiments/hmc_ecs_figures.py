"""Figures 1 to 6 of Dang et al. (2019), drawn from fits that `experiments.hmc_ecs` and `experiments.stochastic_tables` made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

import tallbayes as tb
from experiments.shapes import bankruptcy_block, bankruptcy_covariates, blocks

matplotlib.use("Agg")
from matplotlib import pyplot as plt

FOLDER = Path(__file__).parent.parent / "docs" / "figures"
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e")


def _save(canvas: Any, name: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    canvas.savefig(FOLDER / name, dpi=80)
    plt.close(canvas)


def densities(shape: str, reference: tb.Fit, fits: Mapping[str, Any], file: str | None = None) -> None:
    """Means and variances of all parameters against the exact run (figures 2 and 5), and densities of four (1 and 4)."""
    flat = reference.theta.reshape(-1, len(reference.names))
    sd = flat.std(0)
    canvas, axes = plt.subplots(2, 3, figsize=(10, 6), constrained_layout=True)
    shown = np.linspace(1, len(reference.names) - 1, 4).astype(int)
    for axis, j in zip((axes[0, 0], axes[0, 1], axes[1, 0], axes[1, 1]), shown, strict=True):
        grid = np.linspace(*np.quantile(flat[:, j], (0.0005, 0.9995)), 45)
        axis.hist(flat[:, j], grid, density=True, color="#d9d9d9", label="exact run")
        for (name, fit), colour in zip(fits.items(), COLOURS[: len(fits)], strict=True):
            height, _ = np.histogram(fit.theta[..., j].reshape(-1), grid, weights=fit.weights.reshape(-1), density=True)
            axis.step(grid[:-1], height, where="post", color=colour, lw=1.2, label=name)
        axis.set_xlabel(reference.names[j])
        axis.set_yticks([])
    axes[0, 0].legend(fontsize=8, frameon=False)
    for (name, fit), colour in zip(fits.items(), COLOURS[: len(fits)], strict=True):
        w = fit.weights.reshape(-1) / fit.weights.sum()
        theta = fit.theta.reshape(-1, sd.size)
        mean = w @ theta
        axes[0, 2].plot((mean - flat.mean(0)) / sd, ".", color=colour, label=name)
        axes[1, 2].plot(w @ (theta - mean) ** 2 / sd**2, ".", color=colour, label=name)
    axes[0, 2].axhline(0.0, color="0.6", lw=0.8)
    low, high = axes[0, 2].get_ylim()
    axes[0, 2].set_ylim(min(low, -0.25), max(1.3 * high, 0.25))
    axes[0, 2].set_ylabel("difference of means, posterior sds")
    axes[1, 2].axhline(1.0, color="0.6", lw=0.8)
    low, high = axes[1, 2].get_ylim()
    if high > 10.0:
        axes[1, 2].set_yscale("log")
    else:
        axes[1, 2].set_ylim(min(low, 0.75), max(high, 1.25))
    axes[1, 2].set_ylabel("ratio of variances")
    for axis in axes[:, 2]:
        axis.set_xlabel("parameter")
    axes[0, 2].legend(fontsize=8, frameon=False)
    _save(canvas, file or f"hmc-ecs-{shape}.png")


def scores(fits: dict[str, tb.Fit], x: np.ndarray, y: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Predicted probabilities of unseen rows by every fit, signs included, and the labels."""
    return {name: (fit.predict(x)["mean"].to_numpy(), y) for name, fit in fits.items()}


def curve(score: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """False and true positive rates as the threshold falls."""
    hit = y[np.argsort(-score)]
    return np.cumsum(1.0 - hit) / (1.0 - hit).sum(), np.cumsum(hit) / hit.sum()


def area(score: np.ndarray, y: np.ndarray) -> float:
    """Area under the receiver operating characteristic."""
    false, true = curve(score, y)
    return float(np.trapezoid(true, false))


def receiver(found: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Figure 3: ROC curves of unseen rows, and their differences from the exact run, which are too small to see in them."""
    grid = np.linspace(0.0, 1.0, 201)
    curves = {name: np.interp(grid, *curve(*pair)) for name, pair in found.items()}
    labels = next(iter(found.values()))[1]
    canvas, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), constrained_layout=True)
    styles = dict(
        zip(curves, (("0.4", "-", 3.5), ("#1f77b4", "--", 1.6), ("#d62728", ":", 2.0), ("#2ca02c", "-.", 1.0)), strict=True)
    )
    for name, values in curves.items():
        colour, line, width = styles[name]
        left.plot(grid, values, line, color=colour, lw=width, label=name)
        if name != "exact":
            right.plot(grid, 1e4 * (values - curves["exact"]), line, color=colour, lw=1.2, label=name)
    left.plot([0, 1], [0, 1], color="0.8", lw=0.8)
    left.set_xlabel("false positive rate")
    left.set_ylabel("true positive rate")
    left.legend(fontsize=8, frameon=False, loc="lower right")
    error = 1e4 * np.sqrt(curves["exact"] * (1.0 - curves["exact"]) / labels.sum())
    right.fill_between(grid, -error, error, color="0.9", label="one standard error of the test rows")
    right.set_xlabel("false positive rate")
    right.set_ylim(-1.1 * error.max(), 1.7 * error.max())
    right.set_ylabel("difference of true positive rates, 1e-4")
    right.legend(fontsize=8, loc="upper right")
    _save(canvas, "hmc-ecs-roc.png")


def probabilities(fits: Mapping[str, Any], n: int, groups: int = 100, draws: int = 200, seed: int = 2019) -> None:
    """Figure 6: realised and predicted probabilities in groups of rows of equal size along the first covariate, 90 % bands."""
    parts = [bankruptcy_covariates(seed, k, rows) for k, rows in blocks(n)]
    u, y = np.concatenate([p[0][:, 0] for p in parts]), np.concatenate([p[1] for p in parts])
    group = np.empty(u.size, np.int64)
    group[np.argsort(u)] = np.arange(u.size) * groups // u.size
    size = np.bincount(group, minlength=groups)
    centre, realised = np.bincount(group, u) / size, np.bincount(group, y) / size
    canvas, axes = plt.subplots(1, len(fits), figsize=(9, 3.8), sharey=True, constrained_layout=True)
    for axis, (name, fit) in zip(axes, fits.items(), strict=True):
        flat = fit.theta.reshape(-1, fit.theta.shape[-1])
        theta = flat[np.linspace(0, flat.shape[0] - 1, draws).astype(int)]
        predicted, start = np.zeros((draws, groups)), 0
        for k, rows in blocks(n):
            x, here = bankruptcy_block(seed, k, rows)[0], group[start : start + rows]
            start += rows
            for part in np.array_split(np.arange(draws), 10):
                chance = 1.0 / (1.0 + np.exp(-x @ theta[part].T))
                predicted[part] += [np.bincount(here, column, minlength=groups) for column in chance.T]
        predicted /= size
        low, high = np.quantile(predicted, (0.05, 0.95), axis=0)
        axis.plot(centre, 100 * realised, ".", color="#1f77b4", ms=4, label="realised, groups of 1 %")
        axis.fill_between(centre, 100 * low, 100 * high, color="#f4b183", label="90 % interval")
        axis.plot(centre, 100 * predicted.mean(0), color="#c00000", lw=1.2, label="predicted")
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("first covariate, as a rank")
    axes[0].set_ylabel("events, % of rows")
    axes[0].legend(fontsize=8, frameon=False)
    _save(canvas, "hmc-ecs-bankruptcy-curve.png")
