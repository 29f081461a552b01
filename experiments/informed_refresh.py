"""How often LWA-MCMC replaces its window, for several readings of the paper: Maire, Friel and Alquier (2015), equation 14 and Table 2.

The refresh of the window does not depend on theta, so the chain on windows runs alone: 100 runs of 200,000 proposals from a uniform
start, the first 10,000 not counted. The weight of a window is Phi(-Delta / eps) with Phi "the Gaussian kernel"; the minus sign also
suits an exponential, or the normal distribution function. Statistics are S0, with autocorrelations or with autocovariances.

python -m experiments.informed_refresh --write
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from scipy.special import log_ndtr

from benchmarks.report import show
from experiments.informed_arma import PAPER, S0, simulate
from tallbayes.schemes.subset_statistics import summary_windows

SIZE, LAGS = 100, 5
LOCAL, RATE = 0.9, 0.1  # omega and lambda of equation 23
BANDWIDTHS = (1.0, 0.1, 0.01, 0.001, 0.0001)
KERNELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp(-Δ²/2ε²), as here": lambda x: -0.5 * x * x,
    "exp(-Δ/ε)": lambda x: -x,
    "normal distribution function of -Δ/ε": lambda x: log_ndtr(-x),
}


@numba.njit(nogil=True, cache=False)
def refreshes(rng, log_weight, draws, burn):
    """Share of the iterations after burn-in in which the window changed, and share of proposals of the same window."""
    starts = log_weight.size
    at, moved, same = int(rng.random() * starts), 0, 0
    for iteration in range(draws):
        if rng.random() < LOCAL:
            jump = int(-np.log(1.0 - rng.random()) / RATE) - int(-np.log(1.0 - rng.random()) / RATE)
            other = (at + jump) % starts
        else:
            other = int(rng.random() * starts)
        if np.log(1.0 - rng.random()) < log_weight[other] - log_weight[at]:
            if iteration >= burn:
                moved += other != at
                same += other == at
            at = other
    return moved / (draws - burn), same / (draws - burn)


@numba.njit(nogil=True, cache=False)
def exchange(y, whole, variance, squared):
    """In squared distances of all windows, put autocovariances in the place of autocorrelations."""
    for start in range(squared.size):
        window = y[start : start + SIZE]
        centred = window - window.mean()
        spread = (centred * centred).sum()
        for lag in range(1, LAGS + 1):
            total = 0.0
            for i in range(SIZE - lag):
                total += centred[i] * centred[i + lag]
            squared[start] -= (total / spread - whole[lag - 1] / variance) ** 2
            squared[start] += (total / SIZE - whole[lag - 1]) ** 2


def with_covariances(y: np.ndarray, correlated: np.ndarray) -> np.ndarray:
    """Distances for quantiles and autocovariances, from those of S0."""
    centred, squared = y - y.mean(), correlated**2
    whole = np.array([centred[k:] @ centred[:-k] for k in range(1, LAGS + 1)]) / y.size
    exchange(centred, whole, float(centred @ centred) / y.size, squared)
    return np.sqrt(np.maximum(squared, 0.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--draws", type=int, default=200_000)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.rows, args.runs, args.draws = 50_000, 3, 5_000
    y = simulate(args.rows)
    correlated = np.sqrt(summary_windows(y, S0, 0, SIZE).squared)
    distances = {"autocorrelations": correlated, "autocovariances": with_covariances(y, correlated)}
    rows: list[dict[str, Any]] = [{"statistics": "paper", "kernel": ""} | {f"ε = {e:g}": PAPER[f"{e:g}"] for e in BANDWIDTHS}]
    for statistics, distance in distances.items():
        for kernel, weight in KERNELS.items():
            row: dict[str, Any] = {"statistics": statistics, "kernel": kernel}
            for bandwidth in BANDWIDTHS:
                log_weight = weight(distance / bandwidth)
                rates = np.array(
                    [refreshes(np.random.default_rng(k), log_weight, args.draws, args.draws // 20) for k in range(args.runs)]
                )
                row[f"ε = {bandwidth:g}"] = f"{rates[:, 0].mean():.2g} ({np.median(rates[:, 0]):.2g})"
            rows.append(row | {"proposals of the same window": float(rates[:, 1].mean())})
            print(rows[-1], flush=True)
    note = (
        f"n = {args.rows:,}, m = {SIZE}; mean and, in brackets, median of {args.runs} runs of {args.draws:,} proposals, the first "
        f"{args.draws // 20:,} not counted. Mean distance of a window: "
        + ", ".join(f"{d.mean():.2f} with {k}" for k, d in distances.items())
        + "."
    )
    show("S4 Table 2, readings", rows, note, "lwa-readings" if args.write else None)


if __name__ == "__main__":
    main()
