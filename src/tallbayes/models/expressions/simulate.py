"""Responses drawn from the expression of a family, read as the log density of y given eta (and log_scale).

An expression may lack terms without eta: the posterior does not need them, a law of y does. So nothing is drawn before the
expression has been seen to be a normalised density: its sum over the counts, or its integral, is 1. Counts are drawn by
summing their probabilities from 0, binary responses by their probability of 1. Other responses are drawn by the inverse of a
tabulated distribution function where one table serves all rows,

    y = eta + Q(u),    y = eta + e^log_scale Q(u),    or    y = e^eta Q(u),

which is checked at random points. Leave-one-out needs less: where the sum or integral is the same at all eta, that number is
all that the expression lacks of a density.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.special import expit, logsumexp

from tallbayes.errors import ModelError
from tallbayes.models.expressions.arrays import Density, log_density

REMEDY = "Give function=, a function of (key, theta, row) in JAX that draws a response, or use kind='mean'."
_MOST = 100_000  # counts whose probabilities are summed
_NORMALISED = 1e-6  # distance of a sum or integral from 1
_LEVELS = (-2.0, -0.7, 0.0, 0.4, 1.1, 2.5)  # of eta and log_scale at which integrals are compared
_NEGLIGIBLE = 30.0  # how far the log of an integrand falls to its ends


def simulator(options: Mapping[str, Any]) -> Callable[[np.random.Generator, np.ndarray, np.ndarray], np.ndarray]:
    """A function of a generator, eta and log_scale (arrays of one shape) that draws responses.

    >>> draw = simulator({"expression": "y*eta - exp(eta) - lgamma(y + 1)", "support": "count"})
    >>> draw(np.random.default_rng(0), np.full(5, 1.0), np.zeros(5))
    array([3., 2., 0., 0., 4.])
    >>> simulator({"expression": "y*eta - exp(eta)", "support": "count"})(np.random.default_rng(0), np.zeros(1), np.zeros(1))
    Traceback (most recent call last):
    ...
    tallbayes.errors.ModelError: the expression is not a density of y: the probabilities of the counts sum to ... at eta = 0, not to 1. ...
    """
    density, scaled = log_density(options)
    if options.get("support") == "binary":
        return lambda rng, eta, scale: (rng.random(eta.shape) < _share_of_ones(density, eta, scale)).astype(float)
    if options.get("support") == "count":
        return lambda rng, eta, scale: _counts(density, rng, eta, scale)
    form = _form(density, scaled, positive=options.get("support") == "positive")
    cumulative, places = _table(density, form)

    def draw(rng: np.random.Generator, eta: np.ndarray, scale: np.ndarray) -> np.ndarray:
        standard = np.interp(rng.random(eta.shape) * cumulative[-1], cumulative, places)
        if form == "scale":
            return np.exp(eta) * standard
        return eta + (np.exp(scale) * standard if scaled else standard)

    return draw


def family_simulator(
    options: Mapping[str, Any],
) -> Callable[[np.random.Generator, Any, np.ndarray, np.ndarray], np.ndarray]:
    """`Family.simulate` of an expression; the law is looked into at the first call, which may refuse."""
    draw = functools.cache(lambda: simulator(options))

    def simulate(rng: np.random.Generator, member: Any, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
        scale = nuisances[:, 0] if nuisances.shape[1] else np.zeros(nuisances.shape[0])
        return draw()(rng, eta, np.broadcast_to(scale, eta.shape))

    return simulate


def family_normaliser(options: Mapping[str, Any]) -> Callable[[Any, np.ndarray], np.ndarray]:
    """`Family.log_normaliser` of an expression: one number, computed at the first call, which may refuse."""
    constant = functools.cache(lambda: log_constant(options))
    return lambda member, y: np.full(np.shape(y), constant())


def log_constant(options: Mapping[str, Any]) -> float:
    """Minus the log of the sum or integral of e^expression over y, which must be the same at all eta and log_scale.

    >>> round(log_constant({"expression": "-(y - eta)**2/2"}), 6)  # -log(2 pi)/2
    -0.918939
    >>> log_constant({"expression": "y*eta - exp(eta)", "support": "count"})
    Traceback (most recent call last):
    ...
    tallbayes.errors.ModelError: leave-one-out needs a density of y, and e^expression sums to ... times more at eta = ...
    """
    density, scaled = log_density(options)
    support = options.get("support", "real")
    totals = {}
    for eta in _LEVELS:
        for tau in _LEVELS if scaled else (0.0,):
            totals[eta, tau] = log_total(density, support, eta, tau)
    first = totals[_LEVELS[0], _LEVELS[0] if scaled else 0.0]
    for (eta, tau), total in totals.items():
        if not np.isfinite(total):
            raise ModelError(
                f"leave-one-out needs a density of y, and e^expression has no sum or integral over y of support {support!r} at eta = "
                f"{eta:g}. Add the terms without eta, such as - lgamma(y + 1), or give support=."
            )
        if not abs(total - first) < _NORMALISED:
            with np.errstate(over="ignore"):
                ratio = float(np.exp(total - first))
            raise ModelError(
                f"leave-one-out needs a density of y, and e^expression sums to {ratio:.4g} times more at eta = {eta:g}"
                f"{f', log_scale = {tau:g}' if scaled else ''} than at eta = {_LEVELS[0]:g}, over y of support {support!r}. Add the terms "
                "without eta, such as - lgamma(y + 1), or give support=."
            )
    return -first


def log_total(density: Density, support: str, eta: float, tau: float, points: int = 160_001) -> float:
    """Log of the sum or integral over y, by the trapezoidal rule in log y or asinh y; NaN if it is not settled."""
    if support in ("binary", "count"):
        y = np.arange(2 if support == "binary" else _MOST, dtype=float)
        return float(logsumexp(density(eta, tau, y)))
    before = np.nan
    for unit in 10.0 ** np.arange(-1, 3):
        t = np.linspace(-80.0, 80.0, points)
        if support == "positive":
            y, speed = np.exp(t), np.exp(t)
        else:
            y, speed = eta + unit * np.sinh(t), unit * np.cosh(t)
        with np.errstate(all="ignore"):
            height = np.nan_to_num(density(eta, tau, y) + np.log(speed), nan=-np.inf, posinf=np.inf)
        if max(height[0], height[-1]) > -_NEGLIGIBLE + height.max():
            return np.nan  # no integral, or one whose tails are beyond the grid
        total = float(logsumexp(height) + np.log(t[1] - t[0]))
        if support == "positive" or abs(total - before) < _NORMALISED:
            return total
        before = total
    return np.nan


def _share_of_ones(density: Density, eta: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return expit(density(eta, scale, 1.0) - density(eta, scale, 0.0))


def _counts(density: Density, rng: np.random.Generator, eta: np.ndarray, scale: np.ndarray) -> np.ndarray:
    levels = np.quantile(eta, (0.0, 0.25, 0.5, 0.75, 1.0), method="nearest")
    for level in np.unique(levels):
        tau = float(scale[np.unravel_index(np.argmin(np.abs(eta - level)), eta.shape)])
        with np.errstate(over="ignore"):
            total = float(np.exp(density(level, tau, np.arange(_MOST, dtype=float))).sum())
        if not abs(total - 1.0) < _NORMALISED:
            raise ModelError(
                f"the expression is not a density of y: the probabilities of the counts sum to {total:.4g} at eta = {level:.4g}, not "
                f"to 1. Add the terms without eta, such as - lgamma(y + 1). {REMEDY}"
            )
    out, left = np.full(eta.size, -1.0), rng.random(eta.size)
    todo = np.arange(eta.size)
    flat, scales = eta.ravel(), scale.ravel()
    for y in range(_MOST):
        left[todo] -= np.exp(density(flat[todo], scales[todo], float(y)))
        done = left[todo] < 0.0
        out[todo[done]] = y
        todo = todo[~done]
        if todo.size == 0:
            return out.reshape(eta.shape)
    raise ModelError(f"a predicted count exceeds {_MOST:,}: a new row is far outside the rows of the fit; check its units.")


def _form(density: Density, scaled: bool, positive: bool) -> str:
    """Which change of variable takes every row to one law; checked at random points."""
    rng = np.random.default_rng(0)
    eta, tau, z = rng.standard_normal((3, 200))
    tau = tau if scaled else np.zeros(200)
    if positive and not scaled:
        z = np.exp(z)
        here, wanted, name = density(eta, tau, z * np.exp(eta)), density(0.0, 0.0, z) - eta, "scale"
    else:
        here, wanted, name = density(eta, tau, eta + np.exp(tau) * z), density(0.0, 0.0, z) - tau, "location"
    if not np.allclose(here, wanted, rtol=1e-9, atol=1e-9):
        raise ModelError(
            "responses are drawn from an expression of y - eta, (y - eta)/exp(log_scale) or, for support='positive', y/exp(eta), with "
            f"all terms of the density; this one is none of these. {REMEDY}"
        )
    return name


def _table(density: Density, form: str) -> tuple[np.ndarray, np.ndarray]:
    """The distribution function at eta = log_scale = 0 on a grid, by the trapezoidal rule in log y or asinh y.

    Both are smooth changes of variable with which the integrand vanishes at both ends, so that the rule converges fast.
    """
    total = np.nan
    for size in 10.0 ** np.arange(0, 13) if form == "location" else (1.0,):
        for unit in (size, 1.0 / size):
            if form == "scale":
                t = np.linspace(-80.0, 80.0, 160_001)
                places = speed = np.exp(t)
            else:
                t = np.linspace(-60.0, 60.0, 120_001)
                places, speed = unit * np.sinh(t), unit * np.cosh(t)
            with np.errstate(all="ignore"):
                height = np.nan_to_num(np.exp(density(0.0, 0.0, places)) * speed, nan=0.0, posinf=np.inf)
            cumulative = np.concatenate([[0.0], np.cumsum(0.5 * (height[1:] + height[:-1]) * np.diff(t))])
            if abs(cumulative[-1] - 1.0) < _NORMALISED:
                return cumulative, places
            total = float(cumulative[-1]) if size == 1.0 else total
    raise ModelError(
        f"the expression is not a density of y: its integral is {total:.4g}, not 1. Add the terms without eta, such as - log(2*pi)/2. "
        f"{REMEDY}"
    )
