"""Responses drawn from the expression of a family, read as the log density of y given eta (and log_scale).

An expression may lack terms without eta: the posterior does not need them, a law of y does. So nothing is drawn before the
expression has been seen to be a normalised density: its sum over the counts, or its integral, is 1. Counts are drawn by
summing their probabilities from 0. Other responses are drawn by the inverse of a tabulated distribution function where one
table serves all rows,

    y = eta + Q(u),    y = eta + e^log_scale Q(u),    or    y = e^eta Q(u),

which is checked at random points. Binary responses need no density: their mean is their law.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import sympy as sp

from tallbayes.errors import ModelError
from tallbayes.models.expressions.builder import NUMPY
from tallbayes.models.expressions.grammar import ETA, LOG_SCALE, Y, parse
from tallbayes.models.expressions.stabilise import stabilised

Density = Callable[[Any, Any, Any], np.ndarray]
REMEDY = "Give function=, a function of (key, theta, row) in JAX that draws a response, or use kind='mean'."
_MOST = 100_000  # counts whose probabilities are summed
_NORMALISED = 1e-6  # distance of a sum or integral from 1


def log_density(options: Mapping[str, Any]) -> tuple[Density, bool]:
    """The expression as a function of arrays (eta, log_scale, y), and whether it has a log_scale."""
    constants = options.get("constants") or {}
    expression = stabilised(parse(options["expression"], constants))
    for kind, name in ((sp.Min, "minimum"), (sp.Max, "maximum")):
        expression = expression.replace(kind, sp.Function(name))
    values = {s: sp.Float(constants[s.name]) for s in expression.free_symbols if s not in (ETA, LOG_SCALE, Y)}
    evaluate = sp.lambdify((ETA, LOG_SCALE, Y), expression.subs(values), [NUMPY, "numpy"])

    def density(eta: Any, scale: Any, y: Any) -> np.ndarray:
        shape = np.broadcast_shapes(np.shape(eta), np.shape(scale), np.shape(y))
        eta, scale, y = (np.broadcast_to(np.asarray(v, float), shape) for v in (eta, scale, y))
        with np.errstate(all="ignore"):
            return np.asarray(evaluate(eta, scale, y), float) + np.zeros(shape)

    return density, expression.has(LOG_SCALE)


def simulator(options: Mapping[str, Any]) -> Callable[[np.random.Generator, np.ndarray, np.ndarray], np.ndarray]:
    """A function of a generator, eta and log_scale (arrays of one shape) that draws responses.

    >>> draw = simulator({"expression": "y*eta - exp(eta) - lgamma(y + 1)", "support": "count"})
    >>> draw(np.random.default_rng(0), np.full(5, 1.0), np.zeros(5))
    array([3., 2., 0., 0., 4.])
    >>> simulator({"expression": "y*eta - exp(eta)", "support": "count"})(np.random.default_rng(0), np.zeros(1), np.zeros(1))
    Traceback (most recent call last):
    ...
    tallbayes.errors.ModelError: the expression is no density of y: the probabilities of the counts sum to ... at eta = 0, not to 1. ...
    """
    density, scaled = log_density(options)
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


def _counts(density: Density, rng: np.random.Generator, eta: np.ndarray, scale: np.ndarray) -> np.ndarray:
    levels = np.quantile(eta, (0.0, 0.25, 0.5, 0.75, 1.0), method="nearest")
    for level in np.unique(levels):
        tau = float(scale[np.unravel_index(np.argmin(np.abs(eta - level)), eta.shape)])
        with np.errstate(over="ignore"):
            total = float(np.exp(density(level, tau, np.arange(_MOST, dtype=float))).sum())
        if not abs(total - 1.0) < _NORMALISED:
            raise ModelError(
                f"the expression is no density of y: the probabilities of the counts sum to {total:.4g} at eta = {level:.4g}, not "
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
        found, wanted, name = density(eta, tau, z * np.exp(eta)), density(0.0, 0.0, z) - eta, "scale"
    else:
        found, wanted, name = density(eta, tau, eta + np.exp(tau) * z), density(0.0, 0.0, z) - tau, "location"
    if not np.allclose(found, wanted, rtol=1e-9, atol=1e-9):
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
        f"the expression is no density of y: its integral is {total:.4g}, not 1. Add the terms without eta, such as - log(2*pi)/2. "
        f"{REMEDY}"
    )
