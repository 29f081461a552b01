"""Likelihoods in JAX that see theta only through the linear predictor x . theta.

For these the derivative of a row in its predictor says all about its gradient, so that a batch returns one number for each row
instead of one for each row and coordinate. Whether a likelihood is of this kind is read off its traced program: theta must enter one
product with the whole design row, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def of_predictor(jax: Any, log_lik: Callable[..., Any], columns: int, dim: int) -> Callable[..., Any] | None:
    """The likelihood as a function of (predictor, x, y, offset), given that of (theta, x, y, offset); None if it is not one.

    >>> import jax
    >>> found = of_predictor(jax, lambda theta, x, y, offset: y * (x @ theta) + offset, 3, 3)
    >>> with jax.enable_x64(True):
    ...     float(found(2.0, np.zeros(3), 3.0, 0.5))
    6.5
    >>> of_predictor(jax, lambda theta, x, y, offset: (x @ theta) * theta[0], 3, 3) is None
    True
    """
    if dim != columns:
        return None
    import jax.extend.core as core

    with jax.enable_x64(True):
        traced = jax.make_jaxpr(log_lik)(np.zeros(dim), np.zeros(columns), 0.0, 0.0)
    program = traced.jaxpr
    theta, x = program.invars[:2]
    uses = [k for k, equation in enumerate(program.eqns) if any(v is theta for v in equation.invars)]
    if len(uses) != 1 or any(v is theta for v in program.outvars):
        return None
    product = program.eqns[uses[0]]
    if product.primitive.name != "dot_general" or product.outvars[0].aval.shape != ():
        return None
    if not (any(v is x for v in product.invars) and product.outvars[0].aval.dtype == np.float64):
        return None
    rest = [equation for k, equation in enumerate(program.eqns) if k != uses[0]]
    reduced = program.replace(invars=[product.outvars[0], *program.invars[1:]], eqns=rest)
    run = core.jaxpr_as_fun(core.ClosedJaxpr(reduced, traced.consts))
    return lambda predictor, x, y, offset: run(predictor, x, y, offset)[0]


def residual_predictors(
    jax: Any, log_lik: Callable[..., Any], theta: Any, reference: Any, parts: Any, order: int
) -> tuple[Any, Any]:
    """Taylor residuals of rows, parts (x, y, offset, weight), and their derivatives in the linear predictor."""

    def one(base: Any, shift: Any, x: Any, y: Any, offset: Any, weight: Any) -> tuple[Any, Any]:
        def value(predictor: Any) -> Any:
            return weight * log_lik(predictor, x, y, offset)

        both = jax.value_and_grad(value)
        there, slope = both(base + shift)
        if order == 0:
            return there - value(base), slope
        (known, first), (_, second) = jax.jvp(both, (base,), (1.0,))
        if order == 1:
            return there - known - first * shift, slope - first
        return there - known - first * shift - 0.5 * second * shift * shift, slope - first - second * shift

    return jax.vmap(one)(parts[0] @ reference, parts[0] @ (theta - reference), *parts)
