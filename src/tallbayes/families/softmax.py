"""Softmax (multinomial logistic) regression, y in {0 .. K-1}, one linear predictor a class: f(u) = u_y - log sum_k e^(u_k).

Gradient e_y - p, Hessian -(diag p - pp'). The third derivative is minus a third cumulant under p and does not see a common
shift of the predictors: |D^3 f[v, v, v]| <= 2^(3/2) |v|^3 / (6 sqrt 3) for centred v. theta holds K blocks, class by class;
K blocks are identified only through the prior, so a flat one is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.data.dataset import Dataset
from tallbayes.engine.arithmetic import exp, exp_remainder, log1p_excess
from tallbayes.engine.lower_gaps import has_centred_curvature, vector_lower_gap, vector_lower_jet, vector_lower_slope
from tallbayes.engine.several_functions import (
    CURVATURE,
    CURVATURE_ALONE,
    VALUE,
    tile_jet,
    vector_gradient,
    vector_hessian,
    vector_residual,
    vector_value,
)
from tallbayes.errors import DataError, ModelError, OptionError
from tallbayes.model import Family, Model, Tangent, no_terms
from tallbayes.named_priors import PriorLike
from tallbayes.priors import Prior
from tallbayes.validation import MOST_CLASSES, is_whole, shown

THIRD = 2.0**1.5 / (6.0 * math.sqrt(3.0))  # bound of the third derivative along a centred unit vector


class Softmax(NamedTuple):
    """K classes."""

    classes: int


@inlinable
def _probabilities(u: np.ndarray, out: np.ndarray) -> float:
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
def _value(family: Softmax, u: np.ndarray, y: float) -> float:
    top = u[0]
    for k in range(1, u.size):
        top = max(top, u[k])
    total = 0.0
    for k in range(u.size):
        total += math.exp(u[k] - top)
    return u[int(y)] - (top + math.log(total))


@vector_gradient.register(Softmax)
def _gradient(family: Softmax, u: np.ndarray, y: float, gradient: np.ndarray) -> float:
    level = _probabilities(u, gradient)
    for k in range(u.size):
        gradient[k] = -gradient[k]
    gradient[int(y)] += 1.0
    return u[int(y)] - level


@vector_hessian.register(Softmax)
def _hessian(family: Softmax, u: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    level = _probabilities(u, gradient)
    for k in range(u.size):
        for l in range(u.size):
            hessian[k, l] = gradient[k] * gradient[l]
        hessian[k, k] -= gradient[k]
    for k in range(u.size):
        gradient[k] = -gradient[k]
    gradient[int(y)] += 1.0
    return u[int(y)] - level


@tile_jet.register(Softmax)
def _tile_jet(
    family: Softmax, u: np.ndarray, y: np.ndarray, k: int, size: int, order: int, f: np.ndarray, g: np.ndarray, h: np.ndarray
) -> None:
    """The same of a tile, class by class: loops over rows vectorise."""
    top, total = u[:size].copy(), np.zeros(size)
    for a in range(1, k):
        for j in range(size):
            top[j] = max(top[j], u[a * size + j])
    probability = np.empty(size) if order == VALUE else g
    for a in range(k):
        part = probability[:size] if order == VALUE else probability[a * size : a * size + size]
        for j in range(size):
            part[j] = exp(u[a * size + j] - top[j])
            total[j] += part[j]
    if order <= CURVATURE:
        for j in range(size):
            f[j] = u[int(y[j]) * size + j] - top[j] - math.log(total[j])
    if order == VALUE:
        return
    for a in range(k):
        part = g[a * size : a * size + size]
        for j in range(size):
            part[j] /= total[j]
    if order in (CURVATURE, CURVATURE_ALONE):
        for a in range(k):
            for b in range(k):
                part, other, out = g[a * size : a * size + size], g[b * size : b * size + size], h[(a * k + b) * size :]
                for j in range(size):
                    out[j] = part[j] * other[j]
            part, out = g[a * size : a * size + size], h[(a * k + a) * size :]
            for j in range(size):
                out[j] -= part[j]
    for j in range(k * size):
        g[j] = -g[j]
    for j in range(size):
        g[int(y[j]) * size + j] += 1.0


@vector_residual.register(Softmax)
def _residual(family: Softmax, base: np.ndarray, shift: np.ndarray, y: float) -> float:
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
        there = np.empty(base.size)
        return level - _probabilities(base + shift, there) + mean + 0.5 * variance
    return -(third + log1p_excess(third + 0.5 * variance))


class Boehning(NamedTuple):
    """Quadratic bound of a row, tangent at the reference: A = (I - 11'/K)/2 dominates the curvature of every softmax."""


@has_centred_curvature.register(Boehning)
def _centred(kind: Boehning) -> bool:
    return True


@vector_lower_gap.register(Boehning)
def _lower_gap(kind: Boehning, family: Softmax, base: np.ndarray, shift: np.ndarray, y: float) -> float:
    """Third-order residual plus the excess of A over the curvature for small shifts; values for large ones."""
    q = base.size
    p = np.empty(q)
    level = _probabilities(base, p)
    mean, expected, square, largest = 0.0, 0.0, 0.0, 0.0
    for k in range(q):
        mean += shift[k] / q
    for k in range(q):
        v = shift[k] - mean
        expected += p[k] * v
        square += v * v
        largest = max(largest, abs(v))
    if largest > 1.0:
        return level - _shifted_level(base, shift) + mean + expected + 0.25 * square
    third, variance = 0.0, 0.0
    for k in range(q):
        v = shift[k] - mean - expected
        third += p[k] * exp_remainder(v)
        variance += p[k] * v * v
    return 0.25 * square - 0.5 * variance - (third + log1p_excess(third + 0.5 * variance))


@inlinable
def _shifted_level(base: np.ndarray, shift: np.ndarray) -> float:
    """log sum exp of base + shift."""
    top, total = base[0] + shift[0], 0.0
    for k in range(1, base.size):
        top = max(top, base[k] + shift[k])
    for k in range(base.size):
        total += math.exp(base[k] + shift[k] - top)
    return top + math.log(total)


@vector_lower_slope.register(Boehning)
def _lower_slope(kind: Boehning, family: Softmax, base: np.ndarray, shift: np.ndarray, y: float, gradient: np.ndarray) -> None:
    q = base.size
    _probabilities(base, gradient)
    level, mean = _shifted_level(base, shift), 0.0
    for k in range(q):
        mean += shift[k] / q
    for k in range(q):
        gradient[k] += 0.5 * (shift[k] - mean) - math.exp(base[k] + shift[k] - level)


@vector_lower_jet.register(Boehning)
def _lower_jet(kind: Boehning, family: Softmax, base: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    f = vector_gradient(family, base, y, gradient)
    q = base.size
    for k in range(q):
        for l in range(q):
            hessian[k, l] = 0.5 / q
        hessian[k, k] -= 0.5
    return f


def _mean(eta: np.ndarray) -> np.ndarray:
    return np.exp(eta - eta.max(-1, keepdims=True)) / np.exp(eta - eta.max(-1, keepdims=True)).sum(-1, keepdims=True)


def _simulate(rng: np.random.Generator, member: Softmax, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    return (_mean(eta).cumsum(-1)[..., :-1] < rng.random(eta.shape[:-1])[..., None]).sum(-1).astype(float)


FAMILY = Family(
    name="softmax",
    aliases=("categorical", "multinomial"),
    support="a class number 0, 1, ..., classes - 1",
    remedy="Recode the classes as whole numbers from 0, and set classes= to their number.",
    admits=lambda y: (y >= 0) & (y == np.floor(y)),
    mean=_mean,
    self_concordant=False,
    log_concave=True,
    examples=(Softmax(3),),
    responses=(0.0, 1.0, 2.0),
    response="class",
    link_name="log ratios",
    member_of=lambda classes: Softmax(int(classes)),
    predictors=lambda member: int(member.classes),
    row_options=lambda largest, intercept: {"classes": int(largest) + 1},
    log_normaliser=no_terms,
    simulate=_simulate,
    centred_third=THIRD,
    tangent=Tangent("Boehning", lambda xi: Boehning(), origin="at equal probabilities"),
)


def softmax(data: Dataset, prior: PriorLike = None, classes: int | None = None) -> Model:
    """Multinomial logistic regression; theta is K blocks of coefficients, class by class.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((6, 1)), [0, 1, 2, 0, 1, 2], columns=["one"])
    >>> tb.models.softmax(data, tb.priors.normal(1.0), classes=3).names
    ('one[0]', 'one[1]', 'one[2]')
    """
    largest = float(data.moments.high[data.d]) if isinstance(data, Dataset) else 1.0
    if classes is None:
        classes = int(FAMILY.row_options(largest, False)["classes"])
    if not is_whole(classes) or classes < 2:
        raise OptionError(f"softmax needs at least two classes, as a whole number; got classes={shown(classes)}.")
    if classes > MOST_CLASSES:
        raise OptionError(
            f"softmax serves at most {MOST_CLASSES:,} classes; got {shown(classes)}. Number the classes of the response 0, 1, 2, ..."
        )
    if largest >= classes:
        raise DataError(f"the response reaches class {largest:g}, but classes={classes} allows 0 to {classes - 1}.")
    given = prior.values() if isinstance(prior, Mapping) else (prior,)
    if any(isinstance(own, Prior) and not own.proper for own in given):
        raise ModelError(
            "softmax has one block of coefficients a class, so a common shift of all blocks changes nothing and a flat prior has no "
            "posterior. Use a proper prior such as tallbayes.priors.normal(10.0)."
        )
    return Model(data, FAMILY, Softmax(int(classes)), prior, options={"classes": int(classes)}, predictors=int(classes))
