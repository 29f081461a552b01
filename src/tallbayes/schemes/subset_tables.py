"""The table of statistics that subsets are weighted by, from the options `statistics` and `candidates`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.errors import OptionError
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.schemes import semi_automatic, subset_statistics
from tallbayes.schemes.semi_automatic import Fitted
from tallbayes.schemes.subset_statistics import RowFeatures, WindowDistances

SCORE, SEMI_AUTOMATIC = "score", "semi-automatic"
SCALED = (SCORE, SEMI_AUTOMATIC)  # statistics in posterior standard deviations
NAMES = (*SCALED, *subset_statistics.SUMMARIES)


def swap_table(
    model: Model, mode: Mode, statistics: Any, candidates: Any, m: int, seed: int
) -> tuple[RowFeatures, Fitted | None]:
    """Features of independent rows, and the regression behind them, if there is one."""
    if statistics == SEMI_AUTOMATIC:
        features = semi_automatic.candidate_features(model, mode, candidates)
        fitted = semi_automatic.fit_swaps(model, mode, features, m, seed)
        return RowFeatures(np.ascontiguousarray(features @ fitted.weights.T)), fitted
    return RowFeatures(_features(model, mode, statistics)), None


def window_table(
    model: Model, mode: Mode, statistics: Any, candidates: Any, first: int, m: int, seed: int
) -> tuple[WindowDistances, Fitted | None]:
    """Squared distances of windows, and the regression behind them, if there is one."""
    if statistics == SEMI_AUTOMATIC:
        return _semi_automatic_windows(model, mode, candidates, first, m, seed)
    if model.exchangeable:
        return subset_statistics.feature_windows(_features(model, mode, statistics), 0, m), None
    if statistics == SCORE:
        return subset_statistics.feature_windows(subset_statistics.score_features(mode, first), first, m), None
    if isinstance(statistics, str):
        return subset_statistics.summary_windows(model.data.y, statistics, first, m), None
    return subset_statistics.function_windows(model.data.y, statistics, first, m), None


def _features(model: Model, mode: Mode, statistics: Any) -> np.ndarray:
    if statistics == SCORE:
        return subset_statistics.score_features(mode)
    if isinstance(statistics, str):
        raise OptionError(f"statistics={statistics!r} apply only to a series; for independent rows use f(x, y).")
    return subset_statistics.row_features(model, statistics)


def _semi_automatic_windows(
    model: Model, mode: Mode, candidates: Any, first: int, m: int, seed: int
) -> tuple[WindowDistances, Fitted]:
    if model.exchangeable:
        features = semi_automatic.candidate_features(model, mode, candidates)
        sums = np.concatenate([np.zeros((1, features.shape[1])), features.cumsum(axis=0)])

        def means(starts: np.ndarray) -> np.ndarray:
            return (sums[starts + m] - sums[starts]) / m

        fitted = semi_automatic.fit_windows(model, mode, means, features.shape[1], 0, m, seed)
        return subset_statistics.feature_windows(features @ fitted.weights.T, 0, m), fitted
    function = semi_automatic.series_summaries(model, candidates)
    y = np.ascontiguousarray(model.data.y, float)
    whole = subset_statistics.window_summaries(y[None, :], function)
    if isinstance(candidates, str) or candidates is None:
        subset_statistics.require_lags(candidates or "quantiles-autocorrelations", m)

    def differences(starts: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(y, m)[starts]
        return subset_statistics.window_summaries(windows, function) - whole

    fitted = semi_automatic.fit_windows(model, mode, differences, whole.shape[1], first, m, seed)
    if callable(candidates):
        return subset_statistics.function_windows(y, candidates, first, m, fitted.weights), fitted
    name = "quantiles-autocorrelations" if candidates is None else candidates
    return subset_statistics.summary_windows(y, name, first, m, fitted.weights), fitted
