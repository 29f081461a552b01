"""Predictive checks of censored times: Kaplan-Meier curves of the data beside those of simulated times that are censored alike.

A simulated time T of a row counts as an event at T if T is at most the censoring time C of the row, and as censored at C otherwise. C is
known for the rows that were censored. For a row with an event at t it is only known that C >= t: every simulation draws it, given C >= t,
from the Kaplan-Meier estimate of the censoring times of the rows with a similar linear predictor, and beyond their last time from that of
all rows; what this leaves is a row that is not censored. T depends on the columns through the linear predictor alone, so it is enough that
the censoring times are right given that: censoring may depend on the columns. Data and simulations have been through the same
censoring, and differ by chance alone if the model is right and T and C are independent given the columns, as the likelihood assumes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tallbayes.results.predictive_checks import PredictiveCheck, compared
from tallbayes.streams import Stream, generator

if TYPE_CHECKING:
    import pandas as pd

_ALIKE = 50  # rows of similar linear predictor whose censoring times are taken to be alike
_QUARTERS = (0.25, 0.5, 0.75)  # of the observed times, where survival is compared


class Curve(NamedTuple):
    """A Kaplan-Meier estimate: the share without an event after each of the times, which are in order."""

    times: np.ndarray
    survival: np.ndarray

    def at(self, where: np.ndarray) -> np.ndarray:
        """The share at other times; that after the last time stays as it is."""
        return np.append(1.0, self.survival)[np.searchsorted(self.times, where, side="right")]


def kaplan_meier(y: np.ndarray) -> Curve:
    """The estimate from times t of events and -t of censored rows, which are at risk until after the events at t.

    >>> curve = kaplan_meier(np.array([1.0, 2.0, -2.0, 3.0]))
    >>> curve.times, curve.survival
    (array([1., 2., 3.]), array([0.75, 0.5 , 0.  ]))
    """
    return _product_limit(np.abs(y), y > 0.0)


def censoring_times(y: np.ndarray) -> Curve:
    """The estimate of P(C > t) from the same rows: events at t leave before the rows censored at t do.

    >>> censoring_times(np.array([1.0, 2.0, -2.0, -3.0])).survival
    array([0.5, 0. ])
    """
    times, position = np.unique(np.abs(y), return_inverse=True)
    events = np.bincount(position, weights=y > 0.0, minlength=times.size)
    lost = np.bincount(position, weights=y < 0.0, minlength=times.size)
    at_risk = y.size - np.concatenate([[0.0], np.cumsum(events + lost)[:-1]]) - events
    where = lost > 0
    return Curve(times[where], np.cumprod(1.0 - lost[where] / at_risk[where]))


def _product_limit(times: np.ndarray, event: np.ndarray) -> Curve:
    distinct, position = np.unique(times, return_inverse=True)
    events = np.bincount(position, weights=event, minlength=distinct.size)
    at_risk = times.size - np.concatenate([[0], np.cumsum(np.bincount(position, minlength=distinct.size))[:-1]])
    where = events > 0
    return Curve(distinct[where], np.cumprod(1.0 - events[where] / at_risk[where]))


def draw_limits(y: np.ndarray, score: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A censoring time of each row: its own if it was censored, else one at or after its event, like those of rows of similar score.

    Infinite where there is none.
    """
    whole, out = censoring_times(y), np.abs(y)
    for rows in np.array_split(np.argsort(score, kind="stable"), max(1, y.size // _ALIKE)):
        own = censoring_times(y[rows])
        last = np.nextafter(own.times[-1], np.inf) if own.times.size else 0.0
        limits = draw_from(own, out[rows], rng)
        limits = np.where(np.isinf(limits), draw_from(whole, np.maximum(out[rows], last), rng), limits)
        out[rows] = np.where(y[rows] < 0.0, out[rows], limits)
    return out


def draw_from(curve: Curve, least: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Times from an estimated law, each given that it is at least so much; infinite with the probability that the law leaves."""
    before = np.append(1.0, curve.survival)[np.searchsorted(curve.times, least, side="left")]  # P(C >= least)
    level = before * (1.0 - rng.random(least.size))  # uniform on (0, P(C >= least)]
    place = np.searchsorted(-curve.survival, -level, side="right")  # of the first time c with P(C > c) < level
    return np.append(curve.times, np.inf)[place]


def censor(times: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Times of events as they are seen: t up to the limit, -limit beyond.

    >>> censor(np.array([1.0, 4.0]), np.array([2.0, 3.0]))
    array([ 1., -3.])
    """
    return np.where(times <= limits, times, -limits)


@dataclass(frozen=True, eq=False, repr=False)
class SurvivalCheck(PredictiveCheck):
    """Observed times of some rows beside simulated ones, both censored: t is an event at t, and -t a row censored at t.

    `statistics` compares the Kaplan-Meier share of rows without an event at the quartiles of the observed times, the
    mean time without an event up to the last observed time, and the times of the first and the last event. `curve` is the
    Kaplan-Meier estimate of the data, `curves` has those of the simulations at the same times.

    >>> y = np.array([1.0, 2.0, -2.5, 4.0, -5.0])  # two rows are censored
    >>> times = 3.0 * np.random.default_rng(0).standard_exponential((20, 5))
    >>> check = censored_alike(y, times, np.zeros((20, 5)), np.arange(5), "posterior", np.arange(20))
    >>> check.curve.times, check.curve.survival.round(2), check.curves.shape
    (array([1., 2., 4.]), array([0.8, 0.6, 0.3]), (20, 3))
    >>> check.survival_at(np.array([0.0, 3.0])).mean(0).round(1).tolist(), check.statistics.index[0]
    ([1.0, 0.5], 'no event until 2')
    """

    @cached_property
    def curve(self) -> Curve:
        """The Kaplan-Meier estimate of the observed times."""
        return kaplan_meier(self.observed)

    @cached_property
    def curves(self) -> np.ndarray:
        """The estimates of the simulations at the times of `curve`, (simulations, times)."""
        return self.survival_at(self.curve.times)

    def survival_at(self, times: np.ndarray) -> np.ndarray:
        """The estimates of the simulations at some times, (simulations, times)."""
        return np.stack([kaplan_meier(row).at(times) for row in self.simulated])

    @property
    def statistics(self) -> pd.DataFrame:
        """Statistics of the observed times among those of the simulated ones."""
        every = np.abs(self.observed)
        quarters, end = np.quantile(every, _QUARTERS), float(every.max())
        table: dict[str, tuple[float, np.ndarray]] = {}
        simulated = self.survival_at(quarters)
        for k, time in enumerate(quarters):
            table[f"no event until {time:.3g}"] = float(self.curve.at(time)), simulated[:, k]
        table[f"mean time up to {end:.3g}"] = (
            restricted_mean(self.curve, end),
            np.array([restricted_mean(kaplan_meier(row), end) for row in self.simulated]),
        )
        if (self.observed > 0).any() and (self.simulated > 0).any(1).all():
            for name, of in (("first event", np.min), ("last event", np.max)):
                each = np.array([of(row[row > 0]) for row in self.simulated])
                table[name] = float(of(self.observed[self.observed > 0])), each
        return compared(table)


def censored_alike(
    y: np.ndarray, times: np.ndarray, scores: np.ndarray, rows: np.ndarray, kind: str, seeds: np.ndarray
) -> SurvivalCheck:
    """The check of observed times y beside simulated times of events, which are censored here.

    `times` and `scores`, linear predictors, are (simulations, rows).
    """
    rngs = [generator(int(seed), Stream.CHECKED_RESPONSES) for seed in seeds]
    limits = [draw_limits(y, score, rng) for score, rng in zip(scores, rngs, strict=True)]
    return SurvivalCheck(y, censor(times, np.stack(limits)), rows, kind)


def restricted_mean(curve: Curve, end: float) -> float:
    """The area under a survival curve from 0 to `end`.

    >>> restricted_mean(Curve(np.array([1.0, 3.0]), np.array([0.5, 0.0])), 2.0)
    1.5
    """
    inside = curve.times < end
    ends = np.concatenate([[0.0], curve.times[inside], [end]])
    return float(np.diff(ends) @ np.append(1.0, curve.survival[inside]))
