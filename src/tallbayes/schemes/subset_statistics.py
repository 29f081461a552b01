"""How well a subset of rows represents all of them: summary statistics, computed once for every row or every window.

Delta(U) = S(U) - S(all rows). For subsets of independent rows S is a mean of row features, and Delta is kept up to date by
adding and subtracting features. For windows the squared distance |Delta|^2 of every window is tabulated: 8 bytes a window.

The default statistics are scores at the reference in posterior standard deviations: features L' grad l_i(theta*), times n.
Delta(U) is then, to first order, where the mode of the scaled sub-posterior lies in standard deviations of the posterior.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import SUMS, inlinable, jit
from tallbayes.engine import passes
from tallbayes.engine.ledger import record
from tallbayes.errors import OptionError
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model

SUMMARIES: dict[str, tuple[tuple[float, ...], int]] = {
    "quantiles-autocorrelations": ((0.2, 0.5, 0.8), 5),
    "autocorrelations": ((), 15),
    "extremes": ((0.0, 1.0), 0),
}
"""Summaries of a window of a series: levels of its quantiles, and lags of its autocorrelations."""

_CHUNK = 1 << 16
_ELEMENTS = 1 << 22  # of the windows that a function of the user sees at a time
_RENEW = 1024  # windows after which sliding sums are computed afresh, so that rounding cannot build up


class RowFeatures(NamedTuple):
    """Features of every row, less their mean: Delta of a subset is their mean over it."""

    values: np.ndarray  # (n, statistics)


class WindowDistances(NamedTuple):
    """|Delta|^2 of the window that starts at each row, from the first one on."""

    squared: np.ndarray


def score_features(mode: Mode, first: int = 0) -> np.ndarray:
    """n L' grad l_i(theta*) of every row, less the mean: one pass. Rows before `first` have no likelihood."""
    scores = passes.scores(mode.model.rows, mode.reference) @ mode.factor
    scores[first:] -= scores[first:].mean(axis=0)
    return scores * (mode.model.data.n - first)


def row_features(model: Model, function: Callable[[np.ndarray, np.ndarray], Any]) -> np.ndarray:
    """`function(x, y)` of chunks of rows, less the mean over all rows."""
    parts = []
    record(model.data.n)
    for start in range(0, model.data.n, _CHUNK):
        x, y, _, _ = passes.block(model.rows, start, min(model.data.n, start + _CHUNK))
        parts.append(_table(function(x, y), x.shape[0], "rows"))
    features = np.concatenate(parts)
    return features - features.mean(axis=0)


def feature_windows(features: np.ndarray, first: int, size: int) -> WindowDistances:
    """Squared distances of all windows, statistics being means of centred features."""
    squared = np.empty(features.shape[0] - first - size + 1)
    _feature_windows(np.ascontiguousarray(features[first:]), size, squared)
    return WindowDistances(squared)


def require_lags(name: str, size: int) -> None:
    """Refuse windows that are shorter than the lags of one of SUMMARIES."""
    lags = SUMMARIES[name][1]
    if lags >= size:
        raise OptionError(f"{name} needs windows longer than {lags}; subsample is {size}.")


def summary_windows(y: np.ndarray, name: str, first: int, size: int, combine: np.ndarray | None = None) -> WindowDistances:
    """Squared distances of all windows of a series for one of SUMMARIES, or for combinations of its statistics."""
    require_lags(name, size)
    levels, lags = SUMMARIES[name]
    series = np.asarray(y, float) - np.mean(y, dtype=float)  # products of small numbers cancel less
    whole = np.concatenate([np.quantile(series, levels) if levels else [], autocorrelations(series, lags)])
    squared = np.empty(series.size - first - size + 1)
    weights = np.eye(whole.size) if combine is None else np.ascontiguousarray(combine)
    _summary_windows(series[first:], size, np.asarray(levels, float), lags, whole, weights, squared)
    return WindowDistances(squared)


def window_summaries(windows: np.ndarray, function: Callable[[np.ndarray], Any]) -> np.ndarray:
    """`function(windows)`, checked."""
    return _table(function(windows), windows.shape[0], "windows")


def function_windows(
    y: np.ndarray, function: Callable[[np.ndarray], Any], first: int, size: int, combine: np.ndarray | None = None
) -> WindowDistances:
    """Squared distances of all windows for `function(windows)`, windows (count, size), or for combinations of its statistics; the
    whole series is one window."""
    series = np.ascontiguousarray(y, float)
    whole = window_summaries(series[None, :], function)
    views = np.lib.stride_tricks.sliding_window_view(series[first:], size)
    step = max(1, _ELEMENTS // size)
    parts = []
    for start in range(0, views.shape[0], step):
        part = views[start : start + step]
        gaps = window_summaries(part, function) - whole
        parts.append(((gaps if combine is None else gaps @ combine.T) ** 2).sum(axis=1))
    return WindowDistances(np.concatenate(parts))


def autocorrelations(y: np.ndarray, lags: int) -> np.ndarray:
    """Sample autocorrelations at lags 1 to `lags`.

    >>> autocorrelations(np.array([1.0, -1.0, 1.0, -1.0]), 2)
    array([-0.75,  0.5 ])
    """
    centred = y - y.mean()
    return np.array([centred[k:] @ centred[: y.size - k] for k in range(1, lags + 1)]) / (centred @ centred)


def effective_windows(table: WindowDistances, penalty: float) -> tuple[float, float]:
    """Effective number of windows under weights exp(-penalty |Delta|^2), and the mean of |Delta|^2 under them."""
    weight = np.exp(-penalty * (table.squared - table.squared.min()))
    total = weight.sum()
    return float(total**2 / (weight @ weight)), float(weight @ table.squared / total)


def first_penalty(table: RowFeatures | WindowDistances, n: int, m: int) -> float:
    """The inverse temperature at which a uniform subset of m of n rows has weight exp(-1/2) or so: where tuning starts."""
    if isinstance(table, WindowDistances):
        typical = float(np.median(table.squared))
    else:
        typical = float((table.values**2).mean(axis=0).sum()) * (1.0 / m - 1.0 / n)
    if not typical > 0.0:
        raise OptionError("bandwidth='adaptive' needs statistics that vary between subsets; give others.")
    return 0.5 / typical


def mildest(table: WindowDistances, least: float, most: float) -> float:
    """The largest inverse temperature up to `most` that leaves an effective number of at least `least` windows."""
    if effective_windows(table, most)[0] >= least:
        return most
    low, high = 0.0, most
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective_windows(table, middle)[0] >= least else (low, middle)
    return low


def _table(values: Any, count: int, what: str) -> np.ndarray:
    table = np.asarray(values, float)
    if table.ndim == 1 and table.size == count:
        table = table[:, None]
    if table.ndim != 2 or table.shape[0] != count or not table.shape[1]:
        raise OptionError(
            f"statistics must return an array with one line for each of the {count} {what} it was given; got shape {table.shape}."
        )
    if not np.isfinite(table).all():
        raise OptionError("statistics returned a value that is not finite.")
    return table


@jit(options=SUMS)
def _feature_windows(features: np.ndarray, size: int, out: np.ndarray) -> None:
    s = features.shape[1]
    sums = np.zeros(s)
    for start in range(out.size):
        if start % _RENEW == 0:
            sums[:] = 0.0
            for i in range(start, start + size):
                for c in range(s):
                    sums[c] += features[i, c]
        else:
            for c in range(s):
                sums[c] += features[start + size - 1, c] - features[start - 1, c]
        total = 0.0
        for c in range(s):
            total += (sums[c] / size) ** 2
        out[start] = total


@jit
def _summary_windows(
    y: np.ndarray, size: int, levels: np.ndarray, lags: int, whole: np.ndarray, weights: np.ndarray, out: np.ndarray
) -> None:
    """A sorted copy of the window and its sums of products slide along; statistics are the weighted sums of the summaries."""
    ordered, products, gaps = np.empty(size), np.empty(lags), np.empty(whole.size)
    total, squares = 0.0, 0.0
    for start in range(out.size):
        if start % _RENEW == 0:
            ordered[:] = np.sort(y[start : start + size])
            total, squares = 0.0, 0.0
            for i in range(start, start + size):
                total += y[i]
                squares += y[i] * y[i]
            for k in range(lags):
                products[k] = 0.0
                for i in range(start, start + size - k - 1):
                    products[k] += y[i] * y[i + k + 1]
        else:
            old, new = y[start - 1], y[start + size - 1]
            total += new - old
            squares += new * new - old * old
            for k in range(lags):
                products[k] += y[start + size - 2 - k] * new - old * y[start + k]
            if levels.size > 0:
                _replace(ordered, old, new)
        for l in range(levels.size):
            at = levels[l] * (size - 1)
            below = min(int(at), size - 1)
            above = min(below + 1, size - 1)
            quantile = ordered[below] + (at - below) * (ordered[above] - ordered[below])
            gaps[l] = quantile - whole[l]
        mean = total / size
        spread = squares - total * mean
        ends = 0.0
        for k in range(lags):
            ends += y[start + k] + y[start + size - 1 - k]
            covered = products[k] - mean * (2.0 * total - ends) + (size - k - 1) * mean * mean
            gaps[levels.size + k] = covered / spread - whole[levels.size + k]
        squared = 0.0
        for j in range(weights.shape[0]):
            statistic = 0.0
            for k in range(gaps.size):
                statistic += weights[j, k] * gaps[k]
            squared += statistic**2
        out[start] = squared


@inlinable
def _replace(ordered: np.ndarray, old: float, new: float) -> None:
    """Replace one value of a sorted array, which stays sorted."""
    at = np.searchsorted(ordered, old)
    while at + 1 < ordered.size and ordered[at + 1] < new:
        ordered[at] = ordered[at + 1]
        at += 1
    while at > 0 and ordered[at - 1] > new:
        ordered[at] = ordered[at - 1]
        at -= 1
    ordered[at] = new
