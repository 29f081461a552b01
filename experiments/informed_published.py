"""LWA-MCMC by the letter of Maire, Friel and Alquier (2015), Algorithm 1: no search of a mode, any subset to begin with, and statistics
of the subsets that are proposed and of no others.

Part "budget": Figure 4 with a fixed step. Part "kernels": Figure 6 for other readings of equation 14. Part "arrival": Figure 9 from twenty
starts. Part "shares": Table 3 against time.

python -m experiments.informed_published [--part budget|kernels|arrival|shares] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from benchmarks.report import show
from experiments.informed_arma import LABELS, S0, simulate
from experiments.informed_arma import TRUTH as ARMA
from experiments.informed_classes import PAPER, V, sublhd
from experiments.informed_classes import TRUTH as CLASSES
from experiments.informed_classes import simulate as two_classes
from experiments.informed_refresh import BANDWIDTHS, LOCAL, RATE, with_covariances
from tallbayes.schemes.subset_statistics import summary_windows

LEAD = 40  # rows before a window on which its recursion is started
PRIOR = 10.0  # standard deviation of the prior on the ARMA coefficients
LEVELS, LAGS = np.array([0.2, 0.5, 0.8]), 5
START = np.array([-0.5, -0.5, 2.0])
STEPS = {"M-H": 0.0005, "LWA, m = 10,000": 0.0135, "LWA, m = 1,000": 0.04}  # table lwa-budget: accepts 30 to 40 % near the mode
NEAR = 0.1  # a chain has arrived when every coordinate is this close to the truth
STEP = 0.13  # of LWA with m = 100
STARTS = 20
GAUSSIAN, EXPONENTIAL = 0, 1
READINGS = {
    "exp(-Δ²/2ε²), autocorrelations, as above": (GAUSSIAN, "autocorrelations", BANDWIDTHS),
    "exp(-Δ/ε), autocorrelations": (EXPONENTIAL, "autocorrelations", BANDWIDTHS[:3]),
    "exp(-Δ/ε), autocovariances": (EXPONENTIAL, "autocovariances", BANDWIDTHS),
}
MORE, UNCERTAIN = 6, [("exp(-Δ/ε), autocovariances", 0.01)]  # times as many runs there


@numba.njit(nogil=True, cache=False, fastmath={"contract", "nsz"})
def density(y, first, stop, theta):
    """Log-likelihood of rows [first, stop) of an ARMA(1, 1) series with unit errors, and the prior."""
    a, b, c = theta[0], theta[1], theta[2]
    if not (abs(a) < 1.0 and abs(b) < 1.0):
        return -np.inf
    error = 0.0
    for i in range(max(1, first - LEAD), first):
        error = y[i] - a * y[i - 1] - c - b * error
    total = 0.0
    for i in range(first, stop):
        error = y[i] - a * y[i - 1] - c - b * error
        total += error * error
    return -0.5 * total - 0.5 * (a * a + b * b + c * c) / (PRIOR * PRIOR)


@numba.njit(nogil=True, cache=False)
def summaries(window, out):
    """Quantiles 0.2, 0.5 and 0.8, and autocorrelations at lags 1 to 5."""
    ordered = np.sort(window)
    for k in range(LEVELS.size):
        at = LEVELS[k] * (window.size - 1)
        low = int(at)
        out[k] = ordered[low] + (at - low) * (ordered[min(low + 1, window.size - 1)] - ordered[low])
    mean = window.mean()
    spread = 0.0
    for i in range(window.size):
        spread += (window[i] - mean) ** 2
    for lag in range(1, LAGS + 1):
        total = 0.0
        for i in range(window.size - lag):
            total += (window[i] - mean) * (window[i + lag] - mean)
        out[LEVELS.size + lag - 1] = total / spread


@numba.njit(nogil=True, cache=False)
def proposed(rng, at, starts):
    """Equation 23."""
    if rng.random() < LOCAL:
        return (at + int(-np.log(1.0 - rng.random()) / RATE) - int(-np.log(1.0 - rng.random()) / RATE)) % starts
    return int(rng.random() * starts)


@numba.njit(nogil=True, cache=False)
def walk(rng, y, size, whole, step, theta, at, out):
    """Iterations of LWA with windows of `size` rows, ε = 1 and the Gaussian kernel; of Metropolis-Hastings if `size` is the series.

    Returns the state, the start of the window and how often a move of theta was accepted.
    """
    everything = size == y.size
    starts = y.size - size
    found = np.empty(whole.size)
    gap = 0.0
    if not everything:
        summaries(y[1 + at : 1 + at + size], found)
        gap = ((found - whole) ** 2).sum()
    here = density(y, 1, y.size, theta) if everything else density(y, 1 + at, 1 + at + size, theta)
    accepted = 0
    for iteration in range(out.shape[0]):
        if not everything:
            other = proposed(rng, at, starts)
            summaries(y[1 + other : 1 + other + size], found)
            new = ((found - whole) ** 2).sum()
            if np.log(1.0 - rng.random()) < 0.5 * (gap - new):
                gap = new
                if other != at:
                    at = other
                    here = density(y, 1 + at, 1 + at + size, theta)
        candidate = theta.copy()
        for j in range(3):
            candidate[j] += step * rng.standard_normal()
        there = density(y, 1, y.size, candidate) if everything else density(y, 1 + at, 1 + at + size, candidate)
        if np.log(1.0 - rng.random()) < there - here:
            theta, here = candidate, there
            accepted += 1
        out[iteration] = theta
    return theta, at, accepted


def budget(args: argparse.Namespace) -> None:
    """Figure 4: every chain with the step at which it accepts 30 to 40 % near the mode, from the first iteration on."""
    y = simulate(args.rows)
    begun = time.perf_counter()
    whole = np.empty(LEVELS.size + LAGS)
    summaries(y, whole)
    waited = time.perf_counter() - begun
    for size in (y.size, 1000):  # compiled code is loaded
        walk(np.random.default_rng(0), y[:size] if size == y.size else y, size, whole, 0.01, ARMA, 0, np.empty((1, 3)))
    begun = time.perf_counter()
    summaries(y, whole)
    waited = min(waited, time.perf_counter() - begun)
    rows = []
    for name, step in STEPS.items():
        size = y.size if name == "M-H" else int(name.split("=")[1].replace(",", ""))
        if size > y.size:
            continue
        rng, theta, at, block = np.random.default_rng(1), START, int(0.4 * y.size) if size < y.size else 0, 20
        trial = np.empty((200 if size == y.size else 2000, 3))
        *_, near = walk(np.random.default_rng(2), y, size, whole, step, ARMA, at, trial)
        begun, made, accepted, arrived, distances = time.perf_counter(), 0, 0, math.nan, {}
        limit = args.seconds if size == y.size else args.seconds / 20.0
        while (elapsed := time.perf_counter() - begun) < limit:
            for mark in (1, 60, 300):
                if elapsed >= mark:
                    distances.setdefault(mark, float(np.abs(theta - ARMA).max()))
            out = np.empty((block, 3))
            theta, at, moved = walk(rng, y, size, whole, step, theta, at, out)
            inside = np.flatnonzero((np.abs(out - ARMA) < NEAR).all(axis=1))
            accepted += moved
            if inside.size:
                made += int(inside[0]) + 1
                arrived = (time.perf_counter() - begun) * made / (made - inside[0] - 1 + block)
                break
            made += block
        elapsed = time.perf_counter() - begun
        each = elapsed / max(made, 1)
        there = math.isfinite(arrived)
        rows.append(
            {
                "sampler": name,
                "step": step,
                "accepted near the mode": near / trial.shape[0],
                "accepted on the way": accepted / (math.ceil(made / block) * block),
                "seconds per iteration": each,
                "largest error after 1 s": distances.get(1, "arrived"),
                "after 60 s": distances.get(60, "arrived"),
                "after 300 s": distances.get(300, "arrived"),
                "iterations to come within 0.1 of θ": made if there else f"more than {made:,}",
                "seconds to come within 0.1 of θ": arrived if there else f"more than {elapsed:.0f}",
                "an hour is too short above, s per iteration": 3600.0 / made,
            }
        )
        print(rows[-1], flush=True)
    note = (
        f"n = {y.size:,}, started at (-0.5, -0.5, 2), ε = 1, the Gaussian kernel, the first window anywhere; steps are those at the end of "
        "the runs above. Both samplers are the same compiled loop, on one core. LWA also needs the statistics of the whole series: "
        f"{waited:.2g} s."
    )
    show("S4 Figure 4, fixed steps", rows, note, "lwa-fixed" if args.write else None)


@numba.njit(nogil=True, cache=False)
def chain(rng, y, size, squared, kernel, bandwidth, step, draws, burn, out):
    """LWA with a tabulated distance of every window: every tenth draw after burn-in is kept; returns the refresh rate."""
    starts = squared.size - 1
    theta = np.empty(3)
    while True:
        for j in range(3):
            theta[j] = PRIOR * rng.standard_normal()
        if abs(theta[0]) < 1.0 and abs(theta[1]) < 1.0:
            break
    at, moved = int(rng.random() * starts), 0
    here = density(y, 1 + at, 1 + at + size, theta)
    for iteration in range(draws):
        other = proposed(rng, at, starts)
        if kernel == GAUSSIAN:
            log_ratio = 0.5 * (squared[1 + at] - squared[1 + other]) / (bandwidth * bandwidth)
        else:
            log_ratio = (np.sqrt(squared[1 + at]) - np.sqrt(squared[1 + other])) / bandwidth
        if np.log(1.0 - rng.random()) < log_ratio and other != at:
            at = other
            here = density(y, 1 + at, 1 + at + size, theta)
            if iteration >= burn:
                moved += 1
        candidate = theta.copy()
        for j in range(3):
            candidate[j] += step * rng.standard_normal()
        there = density(y, 1 + at, 1 + at + size, candidate)
        if np.log(1.0 - rng.random()) < there - here:
            theta, here = candidate, there
        if iteration >= burn and (iteration - burn) % 10 == 0:
            out[(iteration - burn) // 10] = theta
    return moved / (draws - burn)


def kernels(args: argparse.Namespace) -> None:
    """Figure 6 for three readings of the weight of a window."""
    y = simulate(args.rows)
    correlated = np.sqrt(summary_windows(y, S0, 0, 100).squared)
    squared = {"autocorrelations": correlated**2, "autocovariances": with_covariances(y, correlated) ** 2}
    burn = args.draws // 20
    rows: list[dict[str, Any]] = []
    for reading, (kernel, statistics, bandwidths) in READINGS.items():
        for bandwidth in bandwidths:
            runs = args.runs * (MORE if (reading, bandwidth) in UNCERTAIN else 1)
            out = np.empty((runs, (args.draws - burn) // 10, 3))
            rates = [
                chain(np.random.default_rng(k), y, 100, squared[statistics], kernel, bandwidth, STEP, args.draws, burn, out[k])
                for k in range(runs)
            ]
            means = out.mean(axis=1)
            spread = out.std(axis=1).mean(axis=0)
            bias = np.abs(means.mean(axis=0) - ARMA)
            row = {
                "weight of a window": reading,
                "bandwidth": f"{bandwidth:g}",
                "runs": runs,
                "refresh rate": float(np.mean(rates)),
            }
            row |= {f"mean {name}": float(means[:, k].mean()) for k, name in enumerate(LABELS)}
            row |= {
                "largest bias": float(bias.max()),
                "standard error of a mean, largest": float((means.std(axis=0, ddof=1) / math.sqrt(runs)).max()),
                "largest bias, in sd of a run": float((bias / spread).max()),
                "sd of the means of runs, largest": float(means.std(axis=0, ddof=1).max()),
            }
            rows.append(row)
            print(row, flush=True)
    note = (
        f"n = {y.size:,}, m = 100, statistics S0, runs of {args.draws:,} iterations from the prior, the first {burn:,} discarded; "
        f"isotropic steps of {STEP:g}."
    )
    show("S4 Figure 6, readings", rows, note, "lwa-kernels" if args.write else None)


@numba.njit(nogil=True, cache=False)
def subset_density(x, y, index, k, theta, v):
    """Log-likelihood of the rows of one class in a subset."""
    total, precision = 0.0, np.exp(-2.0 * theta[4 + k])
    for i in index:
        if y[i] == k:
            total -= 2.0 * theta[4 + k]
            for j in range(2):
                total -= 0.5 * (x[i, j] - theta[2 * k + j]) ** 2 / v[j] * precision
    return total


@numba.njit(nogil=True, cache=False)
def light(rng, x, y, v, theta, step, share, bandwidth, index, out):
    """LWA on the two classes: a row of the subset is exchanged for any other, then one class's parameters make a step."""
    size = index.size
    ones = 0
    for i in index:
        ones += y[i]
    for iteration in range(out.shape[0]):
        place, row = int(rng.random() * size), int(rng.random() * y.size)
        count = ones + y[row] - y[index[place]]
        before, after = ones / size - share, count / size - share
        if np.log(1.0 - rng.random()) < (before * before - after * after) / (bandwidth * bandwidth):  # both classes: twice
            index[place], ones = row, count
        k = min(int(rng.random() * 2), 1)
        other = theta.copy()
        for j in range(2):
            other[2 * k + j] += step * rng.standard_normal()
        other[4 + k] += step * rng.standard_normal()
        if np.log(1.0 - rng.random()) < subset_density(x, y, index, k, other, v) - subset_density(x, y, index, k, theta, v):
            theta = other
        out[iteration] = theta
    return theta


def adapted(
    advance: Callable[[np.ndarray, float, np.ndarray], np.ndarray], start: np.ndarray, seconds: float, stay: bool
) -> Any:
    """Seconds until a chain is within 0.1 of the truth, and (seconds, transitions) of every block; ends there unless it is to `stay`.

    The step is adapted after every 20 transitions to accept 25 to 35 %.
    """
    theta, step, arrived, blocks = start.copy(), 0.1, math.inf, []
    begun = time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < seconds:
        out, before = np.empty((20, 6)), theta
        theta = advance(theta, step, out)
        moved = (np.diff(np.vstack([before, out]), axis=0) != 0.0).any(axis=1).mean()
        step *= 1.2 if moved > 0.35 else 1.0 / 1.2 if moved < 0.25 else 1.0
        inside = np.flatnonzero((np.abs(out - CLASSES) < NEAR).all(axis=1))
        now = time.perf_counter() - begun
        blocks.append(now)
        if inside.size and not math.isfinite(arrived):
            arrived = elapsed + (now - elapsed) * (inside[0] + 1) / 20.0
            if not stay:
                break
    return arrived, np.array(blocks)


def light_chain(x: np.ndarray, y: np.ndarray, share: float, seed: int) -> Callable[[np.ndarray, float, np.ndarray], np.ndarray]:
    """Blocks of LWA from a uniform subset of 1,000 rows."""
    rng = np.random.default_rng(seed)
    index = rng.integers(0, y.size, 1000)
    return lambda theta, step, out: light(rng, x, y, V, theta, step, share, 0.01, index, out)


def sublhd_chain(
    x: np.ndarray, y: np.ndarray, seed: int, used: list[np.ndarray]
) -> Callable[[Any, float, np.ndarray], np.ndarray]:
    """Blocks of MHSubLhd, whose rows read are appended to `used`."""
    rng, low, high = np.random.default_rng(seed), x.min(0), x.max(0)

    def advance(theta: np.ndarray, step: float, out: np.ndarray) -> np.ndarray:
        used.append(np.empty(out.shape[0]))
        return sublhd(rng, x, y, V, theta, step, 0.1, low, high, out, used[-1])

    return advance


def start_of(seed: int) -> np.ndarray:
    """Means some way apart and scales off by a factor of two, as in the table above."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(0.0, 1.5, 4), rng.normal(0.0, 0.7, 2)])


def three(values: np.ndarray) -> dict[str, Any]:
    """Least, median and largest."""
    found = {"least": values.min(), "median": np.median(values), "largest": values.max()}
    return {k: float(v) if math.isfinite(v) else "not reached" for k, v in found.items()}


def arrival(args: argparse.Namespace) -> None:
    """Figure 9 from many starts."""
    x, y = two_classes(args.rows, 0)
    begun = time.perf_counter()
    share = float(y.mean())
    waited = time.perf_counter() - begun
    seconds = args.seconds / 20.0
    for advance in (light_chain(x, y, share, 0), sublhd_chain(x, y, 0, [])):  # compiled code is loaded
        advance(CLASSES.copy(), 0.01, np.empty((1, 6)))
    reached = []
    for seed in range(10, 10 + (STARTS if not args.quick else 2)):
        used: list[np.ndarray] = []
        first, _ = adapted(light_chain(x, y, share, seed), start_of(seed), seconds, False)
        second, _ = adapted(sublhd_chain(x, y, seed, used), start_of(seed), seconds, False)
        reached.append((first, second, float(np.concatenate(used).mean()) / y.size))
        print(seed, reached[-1], flush=True)
    first, second, read = np.array(reached).T
    gains = second / first
    what = "seconds to come within 0.1 of θ"
    table = [
        {what: "LWA, m = 1,000"} | three(first),
        {what: "MHSubLhd"} | three(second),
        {what: "MHSubLhd over LWA"} | three(gains) | {"the paper": "22 in one of four"},
        {what: "share of the rows that MHSubLhd reads until then"} | three(read),
    ]
    late = int((~np.isfinite(second)).sum())
    note = (
        f"n = {y.size:,}, {len(reached)} starts, one core; both with steps of 0.1 at first, adapted to accept 25 to 35 %. MHSubLhd arrived "
        f"within {seconds:g} s from {len(reached) - late} of them, LWA from {int(np.isfinite(first).sum())}. LWA also needs the "
        f"proportions of the classes, {waited:.2g} s, and MHSubLhd the box that holds the rows."
    )
    show("S4 Figure 9, many starts", table, note, "lwa-arrival" if args.write else None)


def shares(args: argparse.Namespace) -> None:
    """Table 3 against time."""
    x, y = two_classes(args.rows, 0)
    seconds = args.seconds / 20.0
    marks = [m for m in (1.0, 3.0, 10.0, 30.0, 60.0) if m <= seconds] or [seconds]
    sublhd_chain(x, y, 0, [])(CLASSES.copy(), 0.01, np.empty((1, 6)))  # compiled code is loaded
    rows = []
    for scenario in range(4):
        used: list[np.ndarray] = []
        _, clock = adapted(sublhd_chain(x, y, 10 + scenario, used), start_of(10 + scenario), seconds, True)
        total = np.cumsum([block.sum() for block in used]) / (20.0 * np.arange(1, len(used) + 1)) / y.size
        row: dict[str, Any] = {"scenario": scenario + 1}
        for mark in marks:
            row[f"share of n until {mark:g} s"] = float(total[min(np.searchsorted(clock, mark), clock.size - 1)])
        row["paper"] = PAPER[scenario] / 1e7
        past = np.flatnonzero(total >= row["paper"])
        row["seconds until the share is the paper's"] = float(clock[past[0]]) if past.size else "not reached"
        rows.append(row)
        print(row, flush=True)
    note = f"n = {y.size:,}, δ = 0.1; rows read per transition over n, mean of all transitions up to a time."
    show("S4 Table 3 against time", rows, note, "lwa-shares" if args.write else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--draws", type=int, default=200_000)
    parser.add_argument(
        "--seconds", type=float, default=1200.0, help="of Metropolis-Hastings in Figure 4; a twentieth for the others"
    )
    parser.add_argument(
        "--part", choices=("budget", "kernels", "arrival", "shares"), help="one part alone; all of them by default"
    )
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.rows, args.runs, args.draws, args.seconds = 50_000, 2, 2_000, 4.0
    for name, part in {"budget": budget, "kernels": kernels, "arrival": arrival, "shares": shares}.items():
        if args.part in (None, name):
            part(args)


if __name__ == "__main__":
    main()
