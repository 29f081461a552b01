"""Responses of two columns as one number: censored times, and successes among trials."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.errors import DataError


def censored(time: Any, event: Any, first: int = 0) -> np.ndarray:
    """Times as survival families read them: t where the event was seen at t, -t where the row was censored at t.

    `first` is the number of the first row, for messages.

    >>> censored([2.0, 5.0, 1.0], event=[True, False, True])
    array([ 2., -5.,  1.])
    """
    times, seen = np.asarray(time, float), np.asarray(event)
    if times.shape != seen.shape or times.ndim != 1:
        raise DataError(f"time and event must be vectors of one length; got shapes {times.shape} and {seen.shape}.")
    if not np.isin(seen, (0, 1)).all():
        row = int(np.argmin(np.isin(seen, (0, 1))))
        raise DataError(
            f"row {first + row}: event is {seen[row]}, but event must be True or 1 where the event was seen, and False or 0 where the row "
            "is censored."
        )
    if not (np.isfinite(times) & (times > 0)).all():
        row = int(np.argmin(np.isfinite(times) & (times > 0)))
        raise DataError(f"row {first + row}: the time is {times[row]:g}, but times must be positive.")
    return np.where(seen.astype(bool), times, -times)


def proportion(successes: Any, trials: Any, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Successes among trials as a response and weights: the likelihood of a proportion to the power of the number of trials is binomial.

    `first` is the number of the first row, for messages.

    >>> proportion([1, 3], trials=[2, 4])
    (array([0.5 , 0.75]), array([2., 4.]))
    """
    counts, total = np.asarray(successes, float), np.asarray(trials, float)
    if counts.shape != total.shape or counts.ndim != 1:
        raise DataError(f"successes and trials must be vectors of one length; got shapes {counts.shape} and {total.shape}.")
    good = (total >= 1) & (total == np.floor(total)) & (counts >= 0) & (counts <= total) & (counts == np.floor(counts))
    if not good.all():
        row = int(np.argmin(good))
        raise DataError(
            f"row {first + row}: {counts[row]:g} successes in {total[row]:g} trials; use whole numbers, at most one success per trial."
        )
    return counts / total, total
