"""Lower bounds B_i <= L_i whose product over all rows costs O(d^2): what Firefly Monte Carlo needs.

| bound | log B_i | families |
|---|---|---|
| Jaakkola-Jordan | yη - η/2 - log 2cosh(ξ/2) - λ(ξ)(η^2 - ξ^2), λ(ξ) = tanh(ξ/2)/(4ξ) | logistic |
| Student-t tangent | -(ν+1)/2 [log(1 + ξ^2/ν) + (r^2 - ξ^2)/(ν + ξ^2)], r = (y - η)/s | Student-t |
| Boehning | f(η*) + (e_y - p*)'δ - δ'Aδ/2, A = (I - 11'/K)/2, δ = η - η* | softmax |
| Taylor-Lagrange | q_i - c_i |w|^3, c_i = m_i |a_i|^3 / 6 | any with sup |f'''| < inf |

The first three are the `Tangent` of their families, and live in their files.

The first two are tangents of functions that are convex in η^2 and in r^2 (ξ fixed, or tuned: its value at the mode, where the
bound touches the likelihood); A dominates the curvature of every softmax. The last takes its remainder from `remainder.T6`;
for Gaussian rows with unknown sigma the remainder is known in closed form and c_i |w|^3 becomes three such terms.

log B_i is quadratic in theta up to these terms, so the sum needs a value, a gradient and a weighted Gram matrix: one pass.
Gaps log L_i - log B_i are computed without cancellation and raised by `MARGIN`, which lowers every bound by that much and keeps
rounding from making a gap negative.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.catalogue import certify
from tallbayes.compile import INLINED, SCALAR, SUMS, inlinable, jit
from tallbayes.engine import passes
from tallbayes.engine.lower_gaps import (
    Floor,
    add_gaps,
    add_log_odds_gradient,
    floor_of,
    has_centred_curvature,
    lower_rows,
    reference_predictors,
)
from tallbayes.errors import ModelError, OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.priors import NORMAL, PriorTerms, prior_gradient, prior_precision
from tallbayes.proxies.lower_penalties import (
    PenaltyTerms,
    TaylorKind,
    add_penalty_gradient,
    no_penalty,
    penalty_of,
    penalty_terms,
)
from tallbayes.streams import Stream, generator

MARGIN = 1e-10  # far above rounding of a gap, and n times it far below one bright row
NAMES = ("tuned", "untuned", "taylor", "taylor-uniform")


class LowerBound(NamedTuple):
    """A bound of every row, and the sum of log B_i: value, gradient and Hessian at the reference, less the penalties.

    `known` has the linear predictors at the reference of all rows, or of none (`with_known_predictors`). Rows whose Hessian is
    -A (x) S, A = (I - 11'/K)/2, have their Gram matrix S of `gram` columns. `prior` tells whether the sum includes the log prior
    (`with_prior`).
    """

    floor: Floor
    value: float
    sums: np.ndarray  # the reference, the gradient, the Hessian, then S or the factor of the penalties, row after row
    penalty: PenaltyTerms
    known: np.ndarray
    gram: int = 0
    prior: bool = False


GRADIENT, HESSIAN = 1, 2  # rows of `LowerBound.sums`


@inlinable
def touching(bound: LowerBound) -> np.ndarray:
    """The reference: where bounds touch."""
    return bound.sums[0]


@inlinable
def _further(bound: LowerBound) -> np.ndarray:
    """The Gram matrix, or the factor of the penalties."""
    return bound.sums[HESSIAN + bound.sums.shape[1] :]


def hessian_of(bound: LowerBound) -> np.ndarray:
    """The Hessian of the sum at the reference, less the penalties."""
    return bound.sums[HESSIAN : HESSIAN + bound.sums.shape[1]]


@inlinable(options={**SUMS, **INLINED})
def _quadratic_value(bound: LowerBound, change: np.ndarray) -> float:
    """Value of the quadratic part: half of the symmetric Hessian is read."""
    if bound.gram > 0:
        return _kronecker(bound, change, np.empty(change.size))
    total, sums = bound.value, bound.sums
    for j in range(change.size):
        inner = sums[GRADIENT, j] + 0.5 * sums[HESSIAN + j, j] * change[j]
        for k in range(j):
            inner += sums[HESSIAN + j, k] * change[k]
        total += inner * change[j]
    return total


@inlinable(options={**SUMS, **INLINED})
def _kronecker(bound: LowerBound, change: np.ndarray, slope: np.ndarray) -> float:
    """Value and gradient for a Hessian -A (x) S: A centres the K blocks of theta and halves them, so S alone is read."""
    total, d, sums, gram = bound.value, bound.gram, bound.sums, _further(bound)
    blocks = change.size // d
    centred = change.copy()
    for c in range(d):
        mean = 0.0
        for k in range(blocks):
            mean += change[k * d + c] / blocks
        for k in range(blocks):
            centred[k * d + c] -= mean
    for j in range(d):
        for k in range(blocks):
            at, inner = k * d + j, 0.0
            for c in range(d):
                inner += gram[j, c] * centred[k * d + c]
            slope[at] = sums[GRADIENT, at] - 0.5 * inner
            total += sums[GRADIENT, at] * change[at] - 0.25 * inner * centred[at]
    return total


@inlinable(options={**SUMS, **INLINED})
def _quadratic(bound: LowerBound, change: np.ndarray, slope: np.ndarray) -> float:
    """Value of the quadratic part; its gradient is written to `slope`."""
    if bound.gram > 0:
        return _kronecker(bound, change, slope)
    total, d, sums = bound.value, change.size, bound.sums
    for j in range(d):
        inner = 0.0
        for k in range(d):
            inner += sums[HESSIAN + j, k] * change[k]
        slope[j] = sums[GRADIENT, j] + inner
        total += (sums[GRADIENT, j] + 0.5 * inner) * change[j]
    return total


@inlinable(options=SCALAR)
def bound_value(bound: LowerBound, theta: np.ndarray) -> float:
    """sum_i log B_i(theta), up to the margin: reads no row."""
    change = theta - touching(bound)
    total = _quadratic_value(bound, change)
    count = bound.penalty.terms
    if count > 0:
        terms = np.empty(count)
        penalty_terms(bound.penalty, _further(bound), change, terms)
        for m in range(count):
            total -= bound.penalty.total[m] * terms[m]
    return total


@inlinable(options=SCALAR)
def bound_gradient(bound: LowerBound, theta: np.ndarray, gradient: np.ndarray) -> float:
    """The same; its gradient is added to `gradient`."""
    change, slope = theta - touching(bound), np.empty(theta.size)
    total = _quadratic(bound, change, slope)
    for j in range(theta.size):
        gradient[j] += slope[j]
    count = bound.penalty.terms
    if count > 0:
        terms = np.empty(count)
        penalty_terms(bound.penalty, _further(bound), change, terms)
        for m in range(count):
            total -= bound.penalty.total[m] * terms[m]
            terms[m] = -bound.penalty.total[m]
        add_penalty_gradient(bound.penalty, _further(bound), change, terms, gradient)
    return total


@inlinable(options=SCALAR)
def gaps(rows: Any, bound: Any, index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    """out[j] = log L - log B of row index[j], the margin included; 0 for a row of zero weight."""
    _start_with_penalties(bound, index, theta, out)
    add_gaps(rows, bound.floor, touching(bound), bound.known, index, theta, out)


@inlinable(options=SCALAR)
def log_odds_gradient(
    rows: Any, bound: Any, index: np.ndarray, sign: np.ndarray, theta: np.ndarray, out: np.ndarray, gradient: np.ndarray
) -> None:
    """The same, and the gradient of sum_j sign[j] log(L/B - 1) added to `gradient`."""
    _start_with_penalties(bound, index, theta, out)
    add_log_odds_gradient(rows, bound.floor, touching(bound), bound.known, index, sign, theta, out, gradient)
    count = bound.penalty.terms
    if count > 0:
        factors = np.zeros(count)
        for j in range(index.size):
            if out[j] > 0.0:
                share = sign[j] / -math.expm1(-out[j])
                for m in range(count):
                    factors[m] += share * bound.penalty.coefficient[index[j], m]
        add_penalty_gradient(bound.penalty, _further(bound), theta - touching(bound), factors, gradient)


@inlinable(options=SCALAR)
def _start_with_penalties(bound: Any, index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    out[:] = MARGIN
    count = bound.penalty.terms
    if count > 0:
        terms = np.empty(count)
        penalty_terms(bound.penalty, _further(bound), theta - touching(bound), terms)
        for j in range(index.size):
            for m in range(count):
                out[j] += bound.penalty.coefficient[index[j], m] * terms[m]


@jit
def _all_gaps(rows: Any, bound: Any, start: int, theta: np.ndarray, out: np.ndarray) -> None:
    index = np.arange(start, start + out.size)
    gaps(rows, bound, index, theta, out)


def gaps_at(rows: Any, bound: LowerBound, theta: np.ndarray) -> np.ndarray:
    """Gaps of all rows: one pass."""
    out = np.empty(passes.row_count(rows))
    theta = np.ascontiguousarray(theta, np.float64)
    passes.over_chunks(out.size, 1 << 14, lambda a, b: _all_gaps(rows, bound, a, theta, out[a:b]))
    return out


def brightness(mode: Mode, bound: LowerBound, draws: int = 16, seed: int = 0) -> np.ndarray:
    """Expected 1 - B_i/L_i of every row over draws from the Laplace fit: how often Firefly will find it bright."""
    total = np.zeros(mode.model.data.n)
    for theta in mode.laplace().draw(generator(seed, Stream.BRIGHTNESS), draws):
        total -= np.expm1(-gaps_at(mode.model.rows, bound, theta))
    return total / draws


def predicted_brightness(mode: Mode, bound: LowerBound) -> float:
    """Second-order expected number of bright rows of a tuned bound, from the two Hessians alone: tr((H - H_B) P^-1) / 2."""
    return 0.5 * float(np.sum((mode.hessian - hessian_of(bound)) * mode.covariance))


def lower_bound(mode: Mode, name: str = "tuned", xi: float | None = None) -> tuple[LowerBound, str]:
    """The bound of a model: "tuned" touches the likelihood of every row at the mode, "untuned" at one xi for all rows (1.5 for
    logistic and 0 for Student-t rows unless given; at equal probabilities for softmax), "taylor" is Taylor-Lagrange. "taylor-uniform"
    has the largest remainder of all rows in every row, as Bardenet, Doucet and Holmes had it: looser, and much so in heavy tails.

    Families without a tangent bound of their own have "taylor" alone; "tuned" means that there. One or two passes.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.proxies.lower_bounds import gaps_at, lower_bound
    >>> X = np.column_stack([np.ones(6), [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]])
    >>> mode = tb.find_mode(tb.models.logistic(tb.Dataset.from_arrays(X, [0, 1, 0, 1, 0, 1]), tb.priors.normal(5.0)))
    >>> bound, label = lower_bound(mode)
    >>> label, bool(np.abs(gaps_at(mode.model.rows, bound, mode.reference)).max() < 1e-9)
    ('Jaakkola-Jordan, tuned', True)
    """
    if name not in NAMES:
        raise unknown("bound", name, NAMES)
    model = mode.model
    tangent = None if model.nuisances or model.second else model.family.tangent  # tangents are in the linear predictor alone
    if xi is not None and (name != "untuned" or tangent is None or tangent.xi is None):
        raise OptionError("xi applies only to bound='untuned' of logistic and Student-t models; omit it.")
    if xi is not None and not (xi >= 0.0 and math.isfinite(xi)):
        raise OptionError(f"xi is the point at which the bounds of all rows are tight and must be at least 0; got {xi}.")
    if name == "tuned" and tangent is not None:
        return _collapsed(mode, tangent.kind(None), mode.reference), f"{tangent.name}, tuned"
    if name == "untuned":
        if tangent is None:
            raise ModelError(f"{model.family.name} has no untuned bound; use bound='taylor'.")
        if tangent.xi is None:
            return _collapsed(mode, tangent.kind(None), np.zeros(model.dim)), f"{tangent.name}, {tangent.origin}"
        place = float(tangent.xi if xi is None else xi)
        return _collapsed(mode, tangent.kind(place), mode.reference), f"{tangent.name}, xi = {place:g}"
    uniform = name == "taylor-uniform"
    return _taylor_lagrange(mode, uniform), "uniform Taylor-Lagrange" if uniform else "Taylor-Lagrange"


def _collapsed(mode: Mode, kind: Any, reference: np.ndarray) -> LowerBound:
    """Value, gradient and Hessian of the sum of quadratic bounds: a pass with the bound in place of the family."""
    rows = mode.model.rows
    value, gradient, hessian = passes.total_hessian(lower_rows(rows, kind, mode.model.member), reference)
    sums, gram = np.ascontiguousarray(np.vstack([reference, gradient, hessian])), 0
    if has_centred_curvature(kind):
        gram, classes = mode.model.data.d, mode.model.predictors
        sums = _followed(sums, hessian[:gram, :gram] * (-2.0 * classes / (classes - 1.0)))
    floor = floor_of(kind, mode.model.member, rows.indices > 1)
    return LowerBound(floor, value, sums, no_penalty(), np.zeros((0, 0)), gram)


def _followed(sums: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Sums with a square matrix in further rows."""
    return np.ascontiguousarray(np.vstack([sums, np.pad(matrix, ((0, 0), (0, sums.shape[1] - matrix.shape[1])))]))


@jit
def _predictors(rows: Any, reference: np.ndarray, start: int, out: np.ndarray) -> None:
    reference_predictors(rows, reference, start, out)


def with_known_predictors(model: Model, bound: LowerBound) -> LowerBound:
    """The bound with the linear predictors of all rows at its reference, so that a gap takes one dot product: one pass."""
    rows = model.rows
    known = np.empty((model.data.n, rows.indices))
    passes.over_chunks(model.data.n, 1 << 14, lambda a, b: _predictors(rows, touching(bound), a, known[a:b]))
    return bound._replace(known=known)


def with_prior(model: Model, bound: LowerBound) -> LowerBound:
    """The bound with a normal or flat prior in its sum, the paper's pseudo-prior; the bound as it is under any other prior."""
    terms = model.prior_terms
    if bound.gram > 0 or not isinstance(terms, PriorTerms) or (terms.kind > NORMAL).any():
        return bound
    reference, sums = touching(bound), bound.sums.copy()
    value = prior_gradient(terms, reference, sums[GRADIENT])
    sums[HESSIAN : HESSIAN + reference.size] -= prior_precision(terms, reference)
    return bound._replace(value=bound.value + value, sums=sums, prior=True)


def _taylor_lagrange(mode: Mode, uniform: bool) -> LowerBound:
    model = mode.model
    if not model.linear:
        raise ModelError(
            "Firefly sums its bounds through the columns of a linear predictor, which a model written in JAX does not have; "
            "use 'exact-minibatch' with a bound, or 'hmc-ecs'."
        )
    if model.unit_scale_member is not None:
        penalty, factor = _scale_penalty(mode)
    else:
        try:
            coefficient = certify(mode, "T6")[0].table.weight
        except ModelError as error:
            raise ModelError(
                f"Firefly needs a lower bound of each likelihood, and {model.family.name} has no bounded third derivative from "
                "which to build one; use 'exact-minibatch' or a full-data sampler such as 'nuts'."
            ) from error
        factor, penalty = mode.factor, penalty_of(coefficient.reshape(-1, 1), [math.fsum(coefficient)])
    if uniform:
        every = np.where(model.rows.records[:, [model.data.d + 2]] > 0.0, penalty.coefficient.max(0), 0.0)
        penalty = penalty_of(every, every.sum(0))
    bound = _collapsed(mode, TaylorKind(), mode.reference)
    return bound._replace(sums=_followed(bound.sums, factor), penalty=penalty)


def _scale_penalty(mode: Mode) -> tuple[PenaltyTerms, np.ndarray]:
    """The penalties of rows with unknown sigma, and their factor."""
    model, d = mode.model, mode.model.data.d
    factor = np.ascontiguousarray(mode.factor[:d, :d])
    sigma, coefficient = math.exp(mode.reference[-1]), np.empty((model.data.n, 3))

    def work(start: int, stop: int) -> np.ndarray:
        x, y, offset, weight = passes.block(model.rows, start, stop)
        z = np.abs(y - offset - x @ mode.reference[:d]) / sigma
        norm = np.sqrt(((x @ factor) ** 2).sum(1)) / sigma
        coefficient[start:stop] = weight[:, None] * np.column_stack([0.5 * z * z, z * norm, 0.5 * norm * norm])
        return coefficient[start:stop].sum(0)

    total = np.sum(passes.over_chunks(model.data.n, 1 << 16, work), axis=0)
    return penalty_of(coefficient, total), factor
