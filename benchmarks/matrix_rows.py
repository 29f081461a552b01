"""Made-up rows with a response for every family, for the two matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

SEED = 7
SMALL_LEVELS = 5  # of the second factor


class Means(NamedTuple):
    """The linear predictor of every row, its exponential and its inverse logit."""

    eta: np.ndarray
    rate: np.ndarray
    share: np.ndarray


def _counts(rng: np.random.Generator, rate: np.ndarray) -> np.ndarray:
    return rng.negative_binomial(3, 3.0 / (3.0 + rate))


def _thinned(rng: np.random.Generator, values: np.ndarray) -> np.ndarray:
    """The values with a quarter of them replaced by zero."""
    return np.where(rng.random(values.size) < 0.25, 0, values)


def classes(rng: np.random.Generator, rate: np.ndarray) -> np.ndarray:
    """One of three classes with probabilities in the ratio 1 : rate : sqrt(rate)."""
    shares = np.cumsum(np.column_stack([np.ones(rate.size), rate, np.sqrt(rate)]), axis=1)
    return (rng.random(rate.size)[:, None] * shares[:, -1:] > shares[:, :-1]).sum(1)


RESPONSES: dict[str, Callable[[np.random.Generator, Means], np.ndarray]] = {
    "logistic": lambda rng, m: (rng.random(m.eta.size) < m.share).astype(int),
    "probit": lambda rng, m: (rng.random(m.eta.size) < m.share).astype(int),
    "poisson": lambda rng, m: rng.poisson(m.rate),
    "negbin": lambda rng, m: _counts(rng, m.rate),
    "gamma": lambda rng, m: rng.gamma(3.0, m.rate / 3.0),
    "gaussian": lambda rng, m: m.eta + rng.standard_normal(m.eta.size),
    "student_t": lambda rng, m: m.eta + rng.standard_t(4.0, m.eta.size),
    "inverse_gaussian": lambda rng, m: rng.wald(m.rate, 3.0),
    "beta": lambda rng, m: np.clip(rng.beta(5.0 * m.share, 5.0 * (1.0 - m.share)), 0.001, 0.999),
    "ordinal": lambda rng, m: np.digitize(m.eta + rng.logistic(size=m.eta.size), [-1.0, 0.5, 2.0]),
    "softmax": lambda rng, m: classes(rng, m.rate),
    "zero_inflated_poisson": lambda rng, m: _thinned(rng, rng.poisson(m.rate)),
    "zero_inflated_negbin": lambda rng, m: _thinned(rng, _counts(rng, m.rate)),
    "hurdle_poisson": lambda rng, m: _thinned(rng, 1 + rng.poisson(m.rate)),
    "hurdle_negbin": lambda rng, m: _thinned(rng, 1 + _counts(rng, m.rate)),
}


def table(n: int, levels: int) -> pd.DataFrame:
    """Rows with numeric columns x and z, a factor c, weights w, an offset o, groups g and h, and a column `y_family` per family.

    Survival times are `time`, of which the largest fifth is censored (`event` is 0); proportions are `successes` of `trials`.
    """
    rng = np.random.default_rng(SEED)
    x, z = rng.standard_normal(n), rng.uniform(-2.0, 2.0, n)
    g, h = rng.integers(0, levels, n), rng.integers(0, SMALL_LEVELS, n)
    effects = 0.4 * rng.standard_normal(levels)[g] + 0.3 * rng.standard_normal(SMALL_LEVELS)[h]
    eta = 0.3 + 0.5 * x + 0.3 * np.sin(z) + effects
    means = Means(eta, np.exp(np.clip(eta, -3.0, 3.0)), 1.0 / (1.0 + np.exp(-eta)))
    columns = {
        "x": x,
        "z": z,
        "c": rng.choice(["a", "b", "c"], n),
        "w": rng.uniform(0.5, 2.0, n),
        "o": rng.uniform(-0.2, 0.2, n),
        "g": [f"g{k}" for k in g],
        "h": [f"h{k}" for k in h],
    }
    time = means.rate * rng.weibull(1.5, n)
    end = np.quantile(time, 0.8)
    trials = rng.integers(1, 9, n)
    columns |= {"time": np.minimum(time, end), "event": (time < end).astype(int)}
    columns |= {"trials": trials, "successes": rng.binomial(trials, means.share)}
    columns |= {f"y_{family}": make(rng, means) for family, make in RESPONSES.items()}
    return pd.DataFrame(columns)


def response(family: str) -> str:
    """The left-hand side of a formula."""
    if family == "binomial":
        return "p(successes, trials)"
    return f"y_{family}" if family in RESPONSES else "censored(time, event)"
