"""How good predicted probabilities of a yes-or-no response are: discrimination (ROC) and calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import DataError, OptionError

if TYPE_CHECKING:
    import pandas as pd


def roc(y: Any, p: Any) -> tuple[np.ndarray, np.ndarray, float]:
    """False positive rate and true positive rate at every threshold, from (0, 0) to (1, 1), and the area under the curve.

    >>> fpr, tpr, auc = roc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> fpr.tolist(), tpr.tolist(), auc
    ([0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0], 0.75)
    """
    y, p = _pair(y, p)
    positives, n = y.sum(), y.size
    if positives in (0, n):
        raise DataError("a ROC curve needs both responses, 0 and 1; y has only one of them.")
    order = np.argsort(-p, kind="stable")
    last = np.append(np.flatnonzero(np.diff(p[order])), n - 1)  # where ties end
    hits = np.concatenate([[0.0], np.cumsum(y[order])[last]])
    seen = np.concatenate([[0.0], last + 1.0])
    tpr, fpr = hits / positives, (seen - hits) / (n - positives)
    return fpr, tpr, float(np.trapezoid(tpr, fpr))


def calibration(y: Any, p: Any, bins: int = 10) -> pd.DataFrame:
    """Mean predicted probability and observed share of ones in bins of equal width; bins without rows are left out.

    `z` is the difference in standard deviations of the observed share if the probabilities are right: beyond 3 they are not.

    >>> calibration([0, 1, 1, 1], [0.2, 0.3, 0.7, 0.9], bins=2)[["low", "high", "rows", "predicted", "observed"]]
       low  high  rows  predicted  observed
    0  0.0   0.5     2       0.25       0.5
    1  0.5   1.0     2       0.80       1.0
    """
    import pandas as pd

    y, p = _pair(y, p)
    if not isinstance(bins, int | np.integer) or bins < 1:
        raise OptionError(f"bins must be a whole number of at least 1; got {bins!r}.")
    if p.min() < 0.0 or p.max() > 1.0:
        raise DataError("p must hold probabilities between 0 and 1, such as fit.predict(new)['mean'].")
    edges = np.linspace(0.0, 1.0, bins + 1)
    index = np.searchsorted(edges[1:-1], p)
    rows = np.bincount(index, minlength=bins)
    kept = np.flatnonzero(rows)

    def mean(values: np.ndarray) -> np.ndarray:
        return np.bincount(index, values, minlength=bins)[kept] / rows[kept]

    predicted, observed = mean(p), mean(y)
    spread = np.sqrt(mean(p * (1.0 - p)) / rows[kept])
    gap = observed - predicted
    z = np.divide(gap, spread, out=np.where(gap == 0.0, 0.0, np.sign(gap) * np.inf), where=spread > 0)
    return pd.DataFrame(
        {"low": edges[kept], "high": edges[kept + 1], "rows": rows[kept], "predicted": predicted, "observed": observed, "z": z}
    )


def _pair(y: Any, p: Any) -> tuple[np.ndarray, np.ndarray]:
    y, p = np.asarray(y, float), np.asarray(p, float)
    if y.ndim != 1 or y.shape != p.shape or y.size == 0:
        raise DataError(f"y and p must be two vectors of the same length; their shapes are {y.shape} and {p.shape}.")
    if not (np.isfinite(p).all() and np.isin(y, (0.0, 1.0)).all()):
        raise DataError("y must be 0 or 1 in every row, and p a number; drop rows with missing values first.")
    return y, p
