"""Whether an expression can be a log density of y, and whether `mean=` is its mean: what can be told before any sampling.

The posterior does not need terms without parameters, so e^expression is p(y | eta) / h(y) with an unknown h. Three things are
known of it all the same:

* The score has mean zero, so the derivative with respect to a parameter cannot have one sign for all y.
* Two responses leave h two numbers, which must make the sum 1 at every eta.
* If e^expression can be integrated at every eta, the integral should be the same; on y > 0 it may be proportional to a power of
  e^eta, or constant in the measure dy/y, since h is a power of y then.

Where the derivative is linear in y, as in every exponential family, its root is the mean of y whatever h is. Otherwise the mean
is computed if the sum or integral is the same at every eta.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import logsumexp

from tallbayes.models.expressions.arrays import Density, log_density, mean_function
from tallbayes.models.expressions.simulate import log_total

LEVELS = (-0.7, 0.0, 1.1)  # of eta and log_scale at which the expression is looked at
STEP = 1e-4  # of a derivative
CONSTANT = 1e-4  # difference of two logarithms of integrals that is rounding
MEAN = 1e-3  # relative error of a mean that is worth a warning
POINTS = 16_001  # of an integral
_COUNTS = 20_000  # counts that are summed


def doubts(options: Mapping[str, Any], y: np.ndarray) -> list[str]:
    """What is wrong with an expression or its mean, in sentences, for a model of responses y.

    >>> doubts({"expression": "y*eta - exp(eta)", "support": "count", "mean": "exp(eta)"}, np.array([0.0, 3.0]))
    []
    >>> print(doubts({"expression": "-y*exp(-eta)", "support": "positive"}, np.array([0.5, 1.7]))[0][:63])
    the expression is not a log density of y: at eta = -0.7 it grow
    >>> print(doubts({"expression": "y*eta - exp(eta)", "support": "count", "mean": "eta"}, np.array([0.0, 3.0]))[0][:60])
    mean='eta' is -0.7 at eta = -0.7, but the expression gives y
    """
    density, scaled = log_density(options)
    support = options.get("support", "real")
    found = _one_sign(density, scaled, support)
    known = support != "real" or not bool((np.asarray(y) == np.floor(y)).all())  # whole numbers may be counts without support=
    totals = _totals(density, scaled, support) if known else {}
    found = found or _not_constant(density, totals, support)
    text = options.get("mean")
    return found if text is None else found + _wrong_mean(density, scaled, support, totals, text, options)


def _places(scaled: bool) -> list[tuple[float, float]]:
    return [(eta, tau) for eta in LEVELS for tau in (LEVELS if scaled else (0.0,))]


def _responses(support: str, eta: float) -> np.ndarray:
    """Responses from one end of the support to the other."""
    if support == "binary":
        return np.array([0.0, 1.0])
    if support == "count":
        return np.unique(np.concatenate([np.arange(50.0), np.geomspace(50.0, 1e9, 200).round()]))
    if support == "positive":
        return np.exp(np.linspace(-30.0, 30.0, 301))
    return eta + np.sinh(np.linspace(-14.0, 14.0, 301))


def _slopes(density: Density, eta: float, tau: float, y: np.ndarray, name: str) -> np.ndarray:
    """Derivatives with respect to eta or log_scale; zero where they are rounding, NaN where the expression is no number."""
    up, down = (
        (eta + STEP, tau) if name == "eta" else (eta, tau + STEP),
        (eta - STEP, tau) if name == "eta" else (eta, tau - STEP),
    )
    high, low = density(*up, y), density(*down, y)
    with np.errstate(invalid="ignore"):
        change = high - low
        rounding = 64 * np.finfo(float).eps * np.maximum(np.abs(high), np.abs(low))
    return np.where(np.abs(change) <= rounding, 0.0, change) / (2.0 * STEP)


def _one_sign(density: Density, scaled: bool, support: str) -> list[str]:
    for eta, tau in _places(scaled):
        for name in ("eta", "log_scale") if scaled else ("eta",):
            slopes = _slopes(density, eta, tau, _responses(support, eta), name)
            slopes = slopes[np.isfinite(slopes)]
            for sign, verb in ((1.0, "grows"), (-1.0, "falls")):
                if slopes.size > 1 and (sign * slopes >= 0.0).all() and (sign * slopes > 0.0).mean() >= 0.5:
                    return [
                        f"the expression is not a log density of y: at {_at(eta, tau, scaled)} it {verb} with {name} for every y of "
                        f"support {support!r}, so no model of the responses has this posterior. Add the terms that are missing, "
                        f"such as - {name}, or correct support=."
                    ]
    return []


def _totals(density: Density, scaled: bool, support: str) -> dict[tuple[float, float], float]:
    """Logarithms of sums or integrals over y; none if one of them does not exist. Counts are left to the sign of the score."""
    if support == "count":
        return {}
    found = {place: log_total(density, support, *place, POINTS) for place in _places(scaled)}
    return found if np.isfinite(list(found.values())).all() else {}


def _not_constant(density: Density, totals: dict[tuple[float, float], float], support: str) -> list[str]:
    if not totals or np.ptp(list(totals.values())) < CONSTANT:
        return []
    places, logs = list(totals), np.array(list(totals.values()))
    if support == "binary":
        table = np.exp([density(*place, np.array([0.0, 1.0])) for place in places])
        h, *_ = np.linalg.lstsq(table, np.ones(len(places)), rcond=None)
        if (h > 0.0).all() and np.abs(table @ h - 1.0).max() < CONSTANT:
            return []
    if support == "positive":
        power = np.polynomial.Polynomial.fit([eta for eta, _ in places], logs, 1)
        if np.abs(power([eta for eta, _ in places]) - logs).max() < CONSTANT:
            return []
        other = [log_total(lambda eta, tau, y: density(eta, tau, y) - np.log(y), support, *place, POINTS) for place in places]
        if np.isfinite(other).all() and np.ptp(other) < CONSTANT:
            return []
    low, high = int(np.argmin(logs)), int(np.argmax(logs))
    scaled = len(places) > len(LEVELS)
    ratio = np.exp(min(logs[high] - logs[low], 300.0))
    return [
        f"e^expression sums to {ratio:.4g} times more at {_at(*places[high], scaled)} than at {_at(*places[low], scaled)}, over y of "
        f"support {support!r}, as no density of y does. If a missing term contains eta or log_scale, the posterior is wrong: "
        "add the terms that make the sum the same everywhere, or correct support=."
    ]


def _wrong_mean(
    density: Density,
    scaled: bool,
    support: str,
    totals: dict[tuple[float, float], float],
    text: str,
    options: Mapping[str, Any],
) -> list[str]:
    claimed = mean_function(text, options.get("constants") or {})
    constant = bool(totals) and np.ptp(list(totals.values())) < CONSTANT
    for eta, tau in _places(scaled):
        mean = _linear_mean(density, support, eta, tau)
        if not np.isfinite(mean):
            mean = _computed_mean(density, support, eta, tau) if constant or support == "count" else np.nan
        given = float(claimed(np.array([eta]))[0])
        if np.isfinite(mean) and not abs(given - mean) <= MEAN * (1.0 + max(abs(given), abs(mean))):
            return [
                f"mean={text!r} is {given:.4g} at eta = {eta:g}, but the expression gives y a mean of {mean:.4g} at "
                f"{_at(eta, tau, scaled)}; predictions of the mean would be wrong. Correct mean=, or leave it out."
            ]
    return []


def _linear_mean(density: Density, support: str, eta: float, tau: float) -> float:
    """The root of the derivative with respect to eta if it is linear in y, NaN if it is not."""
    y = np.array([0.0, 1.0]) if support == "binary" else np.array([1.0, 2.0, 3.0, 4.5, 7.0])
    y = y if support != "count" else np.array([0.0, 1.0, 2.0, 3.0, 7.0])
    slopes = _slopes(density, eta, tau, y, "eta")
    rise = (slopes[1] - slopes[0]) / (y[1] - y[0])
    line = slopes[0] + rise * (y - y[0])
    if not np.isfinite(slopes).all() or not abs(rise) > 1e-6 * (1.0 + np.abs(slopes).max()):
        return float("nan")
    if np.abs(line - slopes).max() > 1e-5 * (1.0 + np.abs(slopes).max()):
        return float("nan")
    return float(y[0] - slopes[0] / rise)


def _computed_mean(density: Density, support: str, eta: float, tau: float) -> float:
    """The mean under a normalised density; NaN if the sum or integral does not settle, or is not 1 for counts."""
    if support == "count":
        y, heights = np.arange(_COUNTS, dtype=float), density(eta, tau, np.arange(_COUNTS, dtype=float))
        total = float(logsumexp(heights))
        if not abs(total) < CONSTANT or not y[-1] * np.exp(heights[-1]) < 1e-9:
            return float("nan")
        return float((y * np.exp(heights - total)).sum())
    t = np.linspace(-40.0, 40.0, POINTS)
    y, speed = (np.exp(t), np.exp(t)) if support == "positive" else (eta + np.sinh(t), np.cosh(t))
    with np.errstate(all="ignore"):
        heights = np.nan_to_num(density(eta, tau, y) + np.log(speed), nan=-np.inf)
    mass = np.exp(heights - logsumexp(heights))
    if max(abs(y[0]) * mass[0], abs(y[-1]) * mass[-1]) > 1e-9:
        return float("nan")  # no mean, or one that is beyond the grid
    return float((y * mass).sum())


def _at(eta: float, tau: float, scaled: bool) -> str:
    return f"eta = {eta:g}" + (f", log_scale = {tau:g}" if scaled else "")
