"""Expressions as functions of NumPy arrays: the mean of a family and its log density, for predictions and leave-one-out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import sympy as sp

from tallbayes.errors import ModelError
from tallbayes.models.expressions.grammar import ETA, LOG_SCALE, Y, parse
from tallbayes.models.expressions.stabilise import stabilised

Density = Callable[[Any, Any, Any], np.ndarray]


def mean_function(text: str | None, constants: Mapping[str, float]) -> Callable[[np.ndarray], np.ndarray]:
    """E[y | eta] from its expression, for arrays."""
    if text is None:

        def missing(eta: np.ndarray) -> np.ndarray:
            raise ModelError("this model has no mean: give mean= with an expression in eta, such as mean='exp(eta)'.")

        return missing
    expression = stabilised(parse(text, constants, "mean", response=False))
    values = {s: sp.Float(constants[s.name]) for s in expression.free_symbols if s != ETA}
    evaluate = sp.lambdify(ETA, expression.subs(values), [NUMPY, "numpy"])
    return lambda eta: np.asarray(evaluate(np.asarray(eta, float)), float) + np.zeros(np.shape(eta))


def _numpy() -> dict[str, Callable[..., Any]]:
    from scipy import special

    return {
        "softplus": lambda x: np.logaddexp(0.0, x),
        "expit": special.expit,
        "log1mexp": lambda x: np.log(-np.expm1(-x)),
        "log1p": np.log1p,
        "expm1": np.expm1,
        "ndtr": special.ndtr,
        "log_ndtr": special.log_ndtr,
        "loggamma": special.gammaln,
        "minimum": np.minimum,
        "maximum": np.maximum,
    }


NUMPY = _numpy()


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
