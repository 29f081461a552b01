"""What the Zig-Zag process needs before it starts: terms of the prior as rows, and the time between draws from warm-up."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.contract import Policy
from tallbayes.engine.student_density import student_third_supremum
from tallbayes.errors import ModelError
from tallbayes.mode.laplace import Mode
from tallbayes.moves import tuning as windows
from tallbayes.priors import LAPLACE, STUDENT
from tallbayes.schemes.paths import PriorRows, State, ZigZagOptions

CORRELATION = 0.5  # of successive draws that warm-up aims at
LONGER = 2.0  # time between draws that warm-up arrives at, for predictions


class IntervalTuning(NamedTuple):
    """What warm-up knows: sums of products of successive draws, and the time between draws."""

    products: np.ndarray
    squares: np.ndarray
    interval: float


class PathPolicy(Policy):
    """Warm-up sets the time between draws for a correlation of about one half; the process itself has nothing to tune."""

    def __init__(self, mode: Mode, centre: np.ndarray, prior: PriorRows, interval: float | None) -> None:
        self.laplace, self.centre, self.prior, self.interval = mode.laplace(), centre, prior, interval

    def begin(self) -> IntervalTuning:
        """Time 1 in units of the posterior standard deviation."""
        zeros = np.zeros(self.centre.size)
        return IntervalTuning(zeros, zeros.copy(), 1.0 if self.interval is None else self.interval)

    def window_ends(self, warmup: int) -> list[int]:
        """As for moves."""
        return windows.window_ends(warmup)

    def update(self, state: Any, draws: np.ndarray, info: dict[str, np.ndarray], end: int, warmup: int) -> IntervalTuning:
        """Half-way and at the end, from the largest lag-one correlation."""
        if self.interval is not None:
            return state
        white, begun = self.laplace.whiten(draws), end - draws.shape[0]
        products = state.products + (white[1:] * white[:-1]).sum(0)
        squares = state.squares + (white[1:] ** 2).sum(0)
        if not (begun < 0.5 * warmup <= end or end == warmup):
            return state._replace(products=products, squares=squares)
        ratio = np.divide(products, squares, out=np.zeros_like(products), where=squares > 0.0)
        largest = min(max(float(ratio.max()), 0.05), 0.95)
        change = min(max(math.log(CORRELATION) / math.log(largest), 0.25), 4.0)
        zeros = np.zeros(white.shape[1])
        return IntervalTuning(zeros, zeros.copy(), state.interval * change)

    def expected_time(self, iterations: int) -> float:
        """Length of a path of so many draws, about; warm-up may make the time between draws longer."""
        return iterations * (LONGER if self.interval is None else self.interval)

    def options(self, state: Any, final: bool) -> ZigZagOptions:
        """The interval, and what is fixed."""
        return ZigZagOptions(state.interval, self.centre, self.prior)

    def blank(self, theta: np.ndarray) -> State:
        """A state at rest."""
        return State(theta.copy(), np.zeros(theta.size), np.ones(theta.size))


def prior_rows(mode: Mode) -> PriorRows:
    """Terms of the prior that are not quadratic."""
    terms, d = mode.model.prior_terms, mode.model.dim
    if (terms.kind == LAPLACE).any() or (terms.kind > STUDENT).any():
        raise ModelError(
            "the Zig-Zag process needs a prior with bounded third derivatives: normal, flat, student_t or cauchy. Use "
            "'exact-minibatch' with other priors."
        )
    chosen = np.flatnonzero(terms.kind == STUDENT)
    direction = np.array([terms.centre if j == terms.intercept else np.eye(d)[j] for j in chosen]).reshape(-1, d)
    white = np.ascontiguousarray(direction @ mode.factor)
    supremum = [student_third_supremum(float(terms.df[j]), float(terms.scale[j])) for j in chosen]
    weight = np.asarray(supremum) * np.linalg.norm(white, axis=1) ** 3 / 6.0
    location, scale, df = (
        np.ascontiguousarray(values[chosen], np.float64) for values in (terms.location, terms.scale, terms.df)
    )
    return PriorRows(np.ascontiguousarray(direction), white, location, scale, df, direction @ mode.reference, weight)
