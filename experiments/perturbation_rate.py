"""Dang et al. (2019), equation 13: total variation between the perturbed posterior of HMC-ECS and the posterior, in n and in m.

python -m experiments.perturbation_rate [--quick] [--write]

L-hat = exp(l-hat - v-hat / 2) with m rows drawn with replacement is biased, v-hat being an estimate. Its expectation is an integral in
one dimension: with x_i the centred residuals of the control variates,

    log E L-hat - l = log int phi(z) [mean_i exp((n/m)(1 + z / sqrt m) x_i - (n/m)^2 x_i^2 / 2)]^m dz,

so the perturbed posterior is known without a chain. Logistic regression with two columns; expectations over the posterior on a grid.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, logsumexp, roots_hermitenorm

from benchmarks.report import show

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "perturbation-rate.png"
NODES, WEIGHTS = roots_hermitenorm(31)


def two_columns(n: int) -> tuple[np.ndarray, np.ndarray]:
    """A unit Gaussian for each class."""
    rng = np.random.default_rng(n)
    y = rng.random(n) < 0.5
    x = rng.standard_normal((n, 2))
    x[:, 0] += np.where(y, 1.0, -1.0)
    return x, y.astype(float)


def mode_of(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Newton's method with a N(0, 100) prior; the mode and a factor of the covariance there."""
    theta = np.zeros(2)
    for _ in range(50):
        p = expit(x @ theta)
        precision = (x * (p * (1.0 - p))[:, None]).T @ x + 0.01 * np.eye(2)
        theta = theta + np.linalg.solve(precision, x.T @ (y - p) - 0.01 * theta)
    return theta, np.linalg.cholesky(np.linalg.inv(precision))


def residuals(x: np.ndarray, y: np.ndarray, centre: np.ndarray, theta: np.ndarray, order: int) -> tuple[np.ndarray, float]:
    """Residuals of the Taylor proxies of given order at `centre`, and the log-likelihood."""
    here, there = x @ centre, x @ theta
    values = y * there - np.logaddexp(0.0, there)
    p, gap = expit(here), there - here
    proxy = y * here - np.logaddexp(0.0, here) + (y - p) * gap
    if order == 2:
        proxy -= 0.5 * p * (1.0 - p) * gap**2
    return values - proxy, float(values.sum())


def log_bias(d: np.ndarray, m: int) -> float:
    """log E L-hat less the log-likelihood, by Gauss and Hermite's rule."""
    scale = d.size / m
    x = d - d.mean()
    inner = [np.log1p(np.expm1(scale * (1.0 + z / np.sqrt(m)) * x - 0.5 * scale**2 * x**2).mean()) for z in NODES]
    return float(logsumexp(m * np.array(inner), b=WEIGHTS / WEIGHTS.sum()))


def variation(n: int, sizes: tuple[int, ...], order: int, points: int) -> list[float]:
    """Total variation between the perturbed posterior and the posterior for each m, on a grid within four posterior sds."""
    x, y = two_columns(n)
    centre, factor = mode_of(x, y)
    side = np.linspace(-4.0, 4.0, points)
    grid = [centre + factor @ np.array([a, b]) for a in side for b in side]
    log_posterior, bias = np.empty(len(grid)), np.empty((len(sizes), len(grid)))
    for k, theta in enumerate(grid):
        d, value = residuals(x, y, centre, theta, order)
        log_posterior[k] = value - 0.005 * theta @ theta
        bias[:, k] = [log_bias(d, m) for m in sizes]
    weight = np.exp(log_posterior - logsumexp(log_posterior))
    found = []
    for b in bias:
        perturbed = np.exp(log_posterior + b - logsumexp(log_posterior + b))
        found.append(float(0.5 * np.abs(perturbed - weight).sum()))
    return found


def slope(a: np.ndarray, b: np.ndarray) -> float:
    """Of log b against log a."""
    return float(np.polyfit(np.log(a), np.log(b), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows_of, points = ((300, 1000), 7) if options.quick else ((300, 1000, 3000, 10_000), 13)
    sizes = (20, 40, 80, 160)
    table: list[dict[str, Any]] = []
    found: dict[int, np.ndarray] = {}
    for order in (1, 2):
        found[order] = np.array([variation(n, sizes, order, points) for n in rows_of])
        for n, values in zip(rows_of, found[order], strict=True):
            row: dict[str, Any] = {"order of the control variates": order, "n": n}
            row |= {f"m = {m}": f"{v:.2e}" for m, v in zip(sizes, values, strict=True)}
            table.append(row | {"slope in m": slope(np.array(sizes), values)})
        row = {"order of the control variates": order, "n": "slope in n"}
        table.append(
            row | {f"m = {m}": f"{slope(np.array(rows_of), v):.2f}" for m, v in zip(sizes, found[order].T, strict=True)}
        )
    note = (
        "Total variation between the perturbed posterior and the posterior, by quadrature; logistic regression, two columns, reference at "
        "the mode. Equation 13 has slopes of at most -2 in m and -1 in n for control variates of order 2."
    )
    show("Perturbed posterior", table, note, "perturbation-rate" if options.write else None)
    if options.write:
        draw(rows_of, sizes, found)


def draw(rows_of: tuple[int, ...], sizes: tuple[int, ...], found: dict[int, np.ndarray]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    canvas, axes = plt.subplots(1, 2, figsize=(8.5, 3.4), constrained_layout=True, sharey=True)
    for axis, (order, values) in zip(axes, found.items(), strict=True):
        for n, line in zip(rows_of, values, strict=True):
            axis.plot(sizes, line, "o-", ms=3, label=f"n = {n:,}")
        axis.plot(sizes, values[0, 0] * (np.array(sizes) / sizes[0]) ** -2.0, "k:", lw=1, label="slope -2")
        axis.set(xscale="log", yscale="log", xlabel="m", title=f"control variates of order {order}")
        axis.set_xticks(sizes, [str(m) for m in sizes])
        axis.minorticks_off()
    axes[0].set_ylabel("total variation")
    axes[1].legend(frameon=False, fontsize=8)
    FIGURE.parent.mkdir(exist_ok=True)
    canvas.savefig(FIGURE, dpi=80)


if __name__ == "__main__":
    main()
