"""Bardenet, Doucet and Holmes (2014), Figs 5 to 7(a), with rows that lie in random order and are read on from a random one.

Metropolis-Hastings and MHSubLhd are the same compiled loop here: both read consecutive rows, so that an evaluation costs them about the
same, which the experiment in `mhsublhd_scaling` does not have. Twenty starts.

python -m experiments.mhsublhd_blocks [--quick] [--write]
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import numba
import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.acceptance_tools import arguments, covtype_columns, percent, standardised
from experiments.confidence_scaling import two_classes
from experiments.mhsublhd_scaling import DELTA, FIRST, GAMMA, P
from tallbayes.engine import passes
from tallbayes.schemes.sequential_tests import empirical_bernstein_serfling, look_level

STARTS = 20
BLOCK = 5  # iterations after which the step is adapted


class Rows(NamedTuple):
    """Rows in random order, labels, the longest row, and the scales of the Cauchy prior."""

    x: np.ndarray
    y: np.ndarray
    longest: float
    scales: np.ndarray


@numba.njit(nogil=True, cache=False)
def log_likelihood(x, y, theta):
    """Of one row."""
    eta = 0.0
    for j in range(theta.size):
        eta += x[j] * theta[j]
    return y * eta - (max(eta, 0.0) + np.log1p(np.exp(-abs(eta))))


@numba.njit(nogil=True, cache=False)
def log_prior(scales, theta):
    """Independent Cauchy laws."""
    total = 0.0
    for j in range(theta.size):
        total -= np.log1p((theta[j] / scales[j]) ** 2)
    return total


@numba.njit(nogil=True, cache=False)
def metropolis(rng, rows, factor, theta, here, out, evals):
    """Metropolis-Hastings; `here` is the log-likelihood of theta. One evaluation per row."""
    n, d = rows.x.shape
    for iteration in range(out.shape[0]):
        other = theta + factor @ rng.standard_normal(d)
        there = 0.0
        for i in range(n):
            there += log_likelihood(rows.x[i], rows.y[i], other)
        ratio = there - here + log_prior(rows.scales, other) - log_prior(rows.scales, theta)
        if np.log(1.0 - rng.random()) < ratio:
            theta, here = other, there
        out[iteration], evals[iteration] = theta, n
    return theta, here


@numba.njit(nogil=True, cache=False)
def subsampled(rng, rows, factor, theta, here, out, evals):
    """MHSubLhd with the Lipschitz range and empirical Bernstein-Serfling; two evaluations per row."""
    n, d = rows.x.shape
    for iteration in range(out.shape[0]):
        other = theta + factor @ rng.standard_normal(d)
        limit = rows.longest * np.sqrt(((other - theta) ** 2).sum())
        psi = (np.log(1.0 - rng.random()) + log_prior(rows.scales, theta) - log_prior(rows.scales, other)) / n
        first, t, size, look, total, squares = int(rng.random() * n), 0, 1, 0, 0.0, 0.0
        while True:
            look += 1
            for k in range(t, size):
                row = first + k if first + k < n else first + k - n
                value = log_likelihood(rows.x[row], rows.y[row], other) - log_likelihood(rows.x[row], rows.y[row], theta)
                total += value
                squares += value * value
            t = size
            mean = total / t
            if t == n:
                break
            deviation = np.sqrt(max(0.0, squares / t - mean * mean))
            if abs(mean - psi) >= empirical_bernstein_serfling(deviation, 2.0 * limit, t, n, look_level(DELTA, look, P)):
                break
            size = min(n, int(np.ceil(GAMMA * t)))
        if mean > psi:
            theta = other
        out[iteration], evals[iteration] = theta, 2 * t
    return theta, here


@numba.njit(nogil=True, cache=False)
def full(rows, theta):
    """Log-likelihood of all rows."""
    total = 0.0
    for i in range(rows.x.shape[0]):
        total += log_likelihood(rows.x[i], rows.y[i], theta)
    return total


class Path(NamedTuple):
    """Seconds, evaluations and iterations until a chain arrived; the evaluations of every iteration; seconds of the whole run."""

    seconds: float
    evals: float
    iterations: float
    each: np.ndarray
    lasted: float


def follow(
    advance: Any,
    rows: Rows,
    mode: Any,
    start: np.ndarray,
    band: tuple[float, float],
    limit: float,
    seed: int,
    first: float,
    until: int = 0,
) -> Path:
    """A chain whose step is adapted after every few iterations, until its whitened distance is a tenth of the first one, or for
    `until` iterations."""
    rng, theta, scale = np.random.default_rng(seed), start, first * 2.38 / math.sqrt(start.size)
    far = float(np.linalg.norm(mode.laplace().whiten(start)))
    here, each, clock = full(rows, theta), [], 0.0
    while clock < limit and (not until or BLOCK * len(each) < until):
        out, evals, before = np.empty((BLOCK, start.size)), np.empty(BLOCK), theta
        begun = time.perf_counter()
        theta, here = advance(rng, rows, scale * mode.factor, theta, here, out, evals)
        lasted = time.perf_counter() - begun
        near = np.flatnonzero(np.linalg.norm(mode.laplace().whiten(out), axis=1) <= 0.1 * far) if not until else np.empty(0)
        if near.size:
            at = int(near[0]) + 1
            done = np.concatenate([*each, evals[:at]])
            return Path(clock + lasted * at / BLOCK, float(done.sum()), float(done.size), done, clock + lasted * at / BLOCK)
        clock += lasted
        each.append(evals)
        moved = (np.diff(np.vstack([before, out]), axis=0) != 0.0).any(axis=1).mean()
        scale *= 1.2 if moved > band[1] else 1.0 / 1.2 if moved < band[0] else 1.0
    return Path(math.inf, math.inf, math.inf, np.concatenate(each), clock)


def spread(values: Any) -> str:
    """Median, least and largest."""
    found = np.asarray(values)
    return f"{np.median(found):.2g} ({found.min():.2g} to {found.max():.2g})"


def study(
    title: str, x: np.ndarray, y: np.ndarray, acceptance: float, limit: float, starts: int, settled: int
) -> dict[str, Any]:
    """One line: both samplers from the same starts, then MHSubLhd at equilibrium."""
    model = tb.models.logistic(tb.Dataset.from_arrays(x, y))
    mode = tb.find_mode(model, progress=False)
    x, y = passes.block(model.rows, 0, model.data.n)[:2]
    order = np.random.default_rng(0).permutation(y.size)
    scales = np.where((x[:100] == 1.0).all(axis=0), 10.0, 2.5)
    rows = Rows(np.ascontiguousarray(x[order]), y[order].astype(float), float(np.sqrt((x**2).sum(1).max())), scales)
    begins = mode.reference + 0.5 * np.random.default_rng(1).standard_normal((starts, model.dim))
    band = (acceptance - 0.05, acceptance + 0.05)
    found: dict[str, list[Path]] = {}
    for name, advance in {"MH": metropolis, "MHSubLhd": subsampled}.items():
        few = Rows(rows.x[:100], rows.y[:100], rows.longest, scales)
        advance(np.random.default_rng(0), few, mode.factor, mode.reference, 0.0, np.empty((1, model.dim)), np.empty(1))
        found[name] = []
        for k, start in enumerate(begins):
            far = float(np.linalg.norm(mode.laplace().whiten(start)))
            found[name].append(follow(advance, rows, mode, start, band, limit, k + 1, FIRST * far))
        print(title, name, [f"{path.seconds:.3g}" for path in found[name]], flush=True)
    pairs = [(a, b) for a, b in zip(found["MH"], found["MHSubLhd"], strict=True) if math.isfinite(a.seconds + b.seconds)]
    late = follow(subsampled, rows, mode, mode.reference, band, math.inf, 1, 1.0, settled)
    rest = late.each[settled // 2 :] / 2.0 / y.size
    costs = [np.median([path.lasted / path.each.sum() for path in found[name]]) for name in ("MH", "MHSubLhd")]
    return {
        "task": title,
        "n": y.size,
        "starts from which both arrived": f"{len(pairs)} of {starts}",
        "seconds of MH over those of MHSubLhd": spread([a.seconds / b.seconds for a, b in pairs]),
        "sum of the seconds of MH over that of MHSubLhd": sum(a.seconds for a, _ in pairs) / sum(b.seconds for _, b in pairs),
        "evaluations of MH over those of MHSubLhd": spread([a.evals / b.evals for a, b in pairs]),
        "iterations": spread([a.iterations / b.iterations for a, b in pairs]),
        "seconds per iteration": spread([a.seconds / a.iterations / (b.seconds / b.iterations) for a, b in pairs]),
        "seconds per evaluation, MHSubLhd over MH": costs[1] / costs[0],
        "rows read on the way": percent(float(np.concatenate([b.each for _, b in pairs]).mean() / 2.0 / y.size)),
        "rows read at equilibrium": percent(float(rest.mean())),
    }


def main() -> None:
    options = arguments(__doc__)
    x, y, _ = covtype_columns()
    train, starts = (400_000, STARTS) if not options.quick else (20_000, 2)
    synthetic = two_classes(10_000_000 if not options.quick else 20_000)
    design, labels = passes.block(synthetic.rows, 0, synthetic.data.n)[:2]
    table = [
        study("covtype, 2 columns (Fig. 5; up to 3 times)", standardised(x[:train, :2]), y[:train], 0.25, 12.0, starts, 200),
        study("covtype, 10 columns (Fig. 7a)", standardised(x[:train]), y[:train], 0.25, 20.0, starts, 200),
        study("two Gaussian classes (Fig. 6; up to 5 times)", design, labels, 0.5, 40.0, starts // 2, 60),
    ]
    note = (
        "Starts with normal errors of 0.5 in each coordinate, proposals and their adaptation as above; each chain until its distance from "
        "the mode, in posterior standard deviations, is a tenth of what it was. Ratios: median (least to largest) of the starts from "
        "which both arrived. MH evaluates a row once per iteration, MHSubLhd every row that it reads twice."
    )
    show("MHSubLhd, rows in blocks", table, note, "mhsublhd-blocks" if options.write else None)


if __name__ == "__main__":
    main()
