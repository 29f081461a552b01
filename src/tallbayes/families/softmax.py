"""Softmax (multinomial logistic) regression, y in {0 .. K-1}, one linear predictor a class: f(u) = u_y - log sum_k e^(u_k).

Gradient e_y - p, Hessian -(diag p - pp'). The third derivative is minus a third cumulant under p and does not see a common
shift of the predictors: |D^3 f[v, v, v]| <= 2^(3/2) |v|^3 / (6 sqrt 3) for centred v. theta holds K blocks, class by class;
K blocks are identified only through the prior, so a flat one is refused.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.data.dataset import Dataset
from tallbayes.engine.arithmetic import exp_remainder, log1p_excess
from tallbayes.engine.multi_index import vector_gradient, vector_hessian, vector_residual, vector_value
from tallbayes.errors import DataError, ModelError, OptionError
from tallbayes.model import Family, Model
from tallbayes.priors import Prior

THIRD = 2.0**1.5 / (6.0 * math.sqrt(3.0))  # bound of the third derivative along a centred unit vector


class Softmax(NamedTuple):
    """K classes."""

    classes: int


@inlinable
def _probabilities(u, out):
    """Softmax of u into `out`; returns log sum exp."""
    top = u[0]
    for k in range(1, u.size):
        top = max(top, u[k])
    total = 0.0
    for k in range(u.size):
        out[k] = math.exp(u[k] - top)
        total += out[k]
    for k in range(u.size):
        out[k] /= total
    return top + math.log(total)


@vector_value.register(Softmax)
def _value(family, u, y):
    top = u[0]
    for k in range(1, u.size):
        top = max(top, u[k])
    total = 0.0
    for k in range(u.size):
        total += math.exp(u[k] - top)
    return u[int(y)] - (top + math.log(total))


@vector_gradient.register(Softmax)
def _gradient(family, u, y, gradient):
    level = _probabilities(u, gradient)
    for k in range(u.size):
        gradient[k] = -gradient[k]
    gradient[int(y)] += 1.0
    return u[int(y)] - level


@vector_hessian.register(Softmax)
def _hessian(family, u, y, gradient, hessian):
    level = _probabilities(u, gradient)
    for k in range(u.size):
        for l in range(u.size):
            hessian[k, l] = gradient[k] * gradient[l]
        hessian[k, k] -= gradient[k]
    for k in range(u.size):
        gradient[k] = -gradient[k]
    gradient[int(y)] += 1.0
    return u[int(y)] - level


@vector_residual.register(Softmax)
def _residual(family, base, shift, y):
    """Minus the cumulant generating function of the shift under p less two terms: y drops out, nothing cancels.

    For large shifts its exponentials would swamp the rest, and the difference of values has nothing to lose.
    """
    p = np.empty(base.size)
    level = _probabilities(base, p)
    mean = 0.0
    for k in range(p.size):
        mean += p[k] * shift[k]
    third, variance, largest = 0.0, 0.0, 0.0
    for k in range(p.size):
        v = shift[k] - mean
        third += p[k] * exp_remainder(v)
        variance += p[k] * v * v
        largest = max(largest, v)
    if largest > 3.0:
        moved = np.empty(base.size)
        return level - _probabilities(base + shift, moved) + mean + 0.5 * variance
    return -(third + log1p_excess(third + 0.5 * variance))


FAMILY = Family(
    name="softmax",
    support="a class number 0, 1, ..., classes - 1",
    remedy="Recode the classes as whole numbers from 0, and set classes= to their number.",
    admits=lambda y: (y >= 0) & (y == np.floor(y)),
    mean=lambda eta: np.exp(eta - eta.max(-1, keepdims=True)) / np.exp(eta - eta.max(-1, keepdims=True)).sum(-1, keepdims=True),
    self_concordant=False,
    log_concave=True,
    examples=(Softmax(3),),
    responses=(0.0, 1.0, 2.0),
)


def softmax(data: Dataset, prior: Prior | None = None, classes: int | None = None) -> Model:
    """Multinomial logistic regression; theta is K blocks of coefficients, class by class.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((6, 1)), [0, 1, 2, 0, 1, 2], columns=["one"])
    >>> tb.models.softmax(data, tb.priors.normal(1.0), classes=3).names
    ('one[0]', 'one[1]', 'one[2]')
    """
    largest = float(data.moments.high[data.d]) if isinstance(data, Dataset) else 1.0
    if classes is None:
        classes = int(largest) + 1
    if classes < 2:
        raise OptionError(f"softmax needs at least two classes; got classes={classes}.")
    if largest >= classes:
        raise DataError(f"the response reaches class {largest:g}, but classes={classes} allows 0 to {classes - 1}.")
    if prior is not None and not prior.proper:
        raise ModelError(
            "softmax has one block of coefficients a class, so a common shift of all blocks changes nothing and a flat prior has no "
            "posterior. Use a proper prior such as tallbayes.priors.normal(10.0)."
        )
    return Model(data, FAMILY, Softmax(int(classes)), prior, options={"classes": int(classes)}, predictors=int(classes))
