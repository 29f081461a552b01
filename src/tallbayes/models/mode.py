"""The posterior mode: Newton's method with a line search, started from the mode of a random subsample.

The subsample (rows drawn uniformly, weights scaled up) brings the start within about sqrt(n / subsample) posterior standard
deviations, from where two or three full passes converge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, solve_triangular

from tallbayes.engine import passes
from tallbayes.errors import ModelError
from tallbayes.models.base import Model
from tallbayes.models.priors import LAPLACE, prior_gradient, prior_precision
from tallbayes.progress import Progress

TOLERANCE = 1e-6  # on |L' gradient|: the distance to the mode in posterior standard deviations
_MAX_STEPS = 100
_CORNER = 0.5  # standard deviations over which the corner of a Laplace prior is rounded in the search
_FLAT = 1e-11  # relative size of an eigenvalue of the scaled precision that counts as zero
_EXACT = -25.0  # log of sigma relative to the response: errors of 1e-11 are rounding
_RUNAWAY = 1e5  # posterior sd of a linear predictor that no data leave; Newton stops near 1 / TOLERANCE where f saturates


@dataclass(eq=False)
class Mode:
    """The reference of a posterior: its mode theta*, the curvature there, and the Laplace fit."""

    model: Model
    reference: np.ndarray
    log_posterior: float
    gradient: np.ndarray  # of the log posterior at the reference: nearly zero
    hessian: np.ndarray  # of the log-likelihood at the reference
    precision: np.ndarray  # minus the Hessian of the log posterior
    passes: int  # full passes over the rows

    @cached_property
    def factor(self) -> np.ndarray:
        """L with L L' = covariance, lower triangular."""
        return cholesky(self.covariance, lower=True)

    @cached_property
    def covariance(self) -> np.ndarray:
        """Inverse of the precision."""
        scale = 1.0 / np.sqrt(np.diag(self.precision))
        inner = cho_solve(cho_factor(self.precision * np.outer(scale, scale)), np.eye(scale.size))
        return inner * np.outer(scale, scale)

    @cached_property
    def norms(self) -> np.ndarray:
        """|L' x_i| of every row: one more pass."""
        self.passes += 1
        return passes.whitened_norms(self.model.rows, self.factor)

    def laplace(self) -> Laplace:
        """The normal approximation of the posterior at the mode."""
        return Laplace(self.reference, self.factor, self.model.names)


@dataclass(frozen=True, eq=False)
class Laplace:
    """N(mean, factor factor')."""

    mean: np.ndarray
    factor: np.ndarray
    names: tuple[str, ...]

    @property
    def covariance(self) -> np.ndarray:
        """Covariance matrix."""
        return self.factor @ self.factor.T

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations."""
        return np.sqrt(np.diag(self.covariance))

    def draw(self, rng: np.random.Generator, count: int, spread: float = 1.0) -> np.ndarray:
        """`count` draws, with standard deviations multiplied by `spread`."""
        return self.mean + spread * rng.standard_normal((count, self.mean.size)) @ self.factor.T

    def whiten(self, theta: np.ndarray) -> np.ndarray:
        """Coordinates in which the approximation is standard normal."""
        shifted = np.asarray(theta) - self.mean
        flat = shifted.reshape(-1, self.mean.size)
        return solve_triangular(self.factor, flat.T, lower=True).T.reshape(shifted.shape)


def find_mode(
    model: Model, *, seed: int = 0, progress: bool = True, cores: int | None = None, tolerance: float = TOLERANCE
) -> Mode:
    """The posterior mode, its precision and the Laplace approximation, in a few passes over the rows.

    `tolerance` is the distance to the mode in posterior standard deviations at which Newton's method stops. With a Laplace
    prior the mode of a density with slightly rounded corners is found.

    >>> import numpy as np, tallbayes as tb
    >>> X = np.column_stack([np.ones(6), [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]])
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, [0, 1, 0, 1, 0, 1]), tb.priors.normal(5.0))
    >>> mode = tb.find_mode(model)
    >>> bool(np.abs(model.gradient(mode.reference)[1]).max() < 1e-6)
    True
    >>> mode.laplace().sd.round(1)
    array([0.9, 0.5])
    """
    theta = start(model)
    n, subsample = model.data.n, _subsample_size(model)
    with Progress("finding the mode", None, progress) as bar:
        if subsample < n and model.independent_rows:
            theta = _subsample_mode(model, theta, subsample, seed, bar)
        return converge(model, lambda at: passes.total_hessian(model.rows, at, cores), theta, tolerance, bar)


def converge(
    model: Model,
    likelihood: Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]],
    theta: np.ndarray,
    tolerance: float,
    bar: Progress,
) -> Mode:
    """The mode by Newton's method from `theta`; `likelihood` gives value, gradient and Hessian on all rows, one pass each."""
    count = 0

    def full(at: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        nonlocal count
        count += 1
        bar.update(f"full pass {count}")
        return likelihood(at)

    mode = Mode(model, *_newton(model, full, theta, 1.0, tolerance), passes=0)
    if tolerance > TOLERANCE and _widest(mode)[0] > 0.1 / tolerance:  # where f saturates Newton stops near 1 / tolerance
        mode = Mode(model, *_newton(model, full, mode.reference, 1.0, TOLERANCE), passes=0)
    widest, culprit = _widest(mode)
    if widest > _RUNAWAY:
        raise ModelError(_no_maximum(model, culprit))
    mode.passes = count
    return mode


def mode_at(model: Model, theta: np.ndarray) -> Mode:
    """A reference at `theta`, whether or not it is the mode: one pass."""
    return Mode(model, theta, *model.curvature(theta), passes=1)


def start(model: Model) -> np.ndarray:
    """Zero, with the intercept and log sigma at the values that fit the response's own mean and spread."""
    known = model.start()
    if known is not None:
        return known
    theta = np.zeros(model.dim)
    d, moments = model.data.d, model.data.moments
    if model.nuisances:
        theta[-1] = _log_spread(model)
        if theta[-1] == -np.inf:
            raise ModelError(_exact_fit(model))
    if model.predictors == 1 and model.data.intercept is not None:
        theta[model.data.intercept] = model.family.link(float(moments.mean[d])) - moments.mean[d + 1]
    return theta


def _log_spread(model: Model) -> float:
    """Log spread of response less offset, about its mean if an intercept can take that, else about zero."""
    d, moments = model.data.d, model.data.moments
    centre = moments.mean[d] - moments.mean[d + 1] if model.data.intercept is None else 0.0
    if (moments.low[d : d + 2] == moments.high[d : d + 2]).all() and centre == 0.0:
        return -np.inf
    return float(np.log(np.hypot(np.hypot(moments.sd[d], moments.sd[d + 1]), centre)))


def _subsample_size(model: Model) -> int:
    return max(20_000, 50 * model.dim, model.data.n // 20)


def _subsample_mode(model: Model, theta: np.ndarray, size: int, seed: int, bar: Progress) -> np.ndarray:
    rng = np.random.default_rng(seed)
    n = model.data.n
    chosen = np.sort(rng.integers(0, n, min(size, n)))
    records = np.ascontiguousarray(model.data.records[chosen])
    rows = model.rows._replace(records=records)
    bar.update(f"mode of {chosen.size:,} rows")
    try:
        return _newton(model, lambda at: passes.total_hessian(rows, at), theta, n / chosen.size, 1e-2)[0]
    except ModelError:  # a subsample may be separable or collinear when the whole data set is not
        return theta


def _newton(
    model: Model,
    likelihood: Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]],
    theta: np.ndarray,
    scale: float,
    tolerance: float,
) -> tuple[np.ndarray, float, np.ndarray, np.ndarray, np.ndarray]:
    """Maximise scale * likelihood + log prior; returns theta, value, gradient, likelihood Hessian, precision."""

    corner: np.ndarray | None = None

    def evaluate(at: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        nonlocal corner
        value, gradient, hessian = likelihood(at)
        value, gradient, hessian = value * scale, gradient * scale, hessian * scale
        if corner is None:
            corner = _CORNER / np.sqrt(np.maximum(-np.diag(hessian), 1e-300))
        value += prior_gradient(model.prior_terms, at, gradient)
        precision = prior_precision(model.prior_terms, at) - hessian
        return value + _round_corners(model, at, corner, gradient, precision), gradient, hessian, precision

    state = evaluate(theta)
    for _ in range(_MAX_STEPS):
        value, gradient, hessian, precision = state
        if not (np.isfinite(value) and np.isfinite(precision).all()):
            raise ModelError("the log posterior or its curvature is not finite; rescale columns with very large values.")
        step, decrement = _newton_step(model, precision, gradient)
        if decrement < tolerance:
            _require_definite(model, precision)
            return theta, value, gradient, hessian, precision
        length = 1.0
        while True:
            candidate = theta + length * step
            moved = evaluate(candidate)
            slack = 1e-10 * (1.0 + abs(value))  # rounding of a sum over many rows
            if moved[0] >= value + 1e-4 * length * (step @ gradient) - slack:
                break
            length *= 0.5
            if length < 1e-12:
                raise ModelError(
                    "the search for the mode stalled: no step along the Newton direction increases the log posterior. "
                    + (model.family.trouble or "Rescale columns with very large or very small values.")
                )
        theta, state = candidate, moved
        if model.nuisances and theta[-1] < _log_spread(model) + _EXACT:
            raise ModelError(_exact_fit(model))
        if np.abs(theta).max() > 1e12:
            break
    raise ModelError(_divergence(model, theta))


def _round_corners(model: Model, theta: np.ndarray, corner: np.ndarray, gradient: np.ndarray, precision: np.ndarray) -> float:
    """Replace |z| of a Laplace prior by sqrt(z^2 + c^2), in place of gradient and precision; returns the change of value.

    A mode may sit on a corner of the density, where no derivative vanishes; rounded over a fraction of a standard deviation
    the search has a smooth goal, and the reference, which need not be the mode, gets a curvature.
    """
    prior, change = model.prior_terms, 0.0
    for j in np.flatnonzero(prior.kind == LAPLACE):
        z, width, s = theta[j] - prior.location[j], corner[j], prior.scale[j]
        round_ = np.hypot(z, width)
        change += (abs(z) - round_) / s
        gradient[j] += (np.sign(z) - z / round_) / s
        precision[j, j] += width**2 / round_**3 / s
    return float(change)


def _newton_step(model: Model, precision: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, float]:
    """Direction of ascent and its length in posterior standard deviations; curvature is made positive where it is not."""
    diagonal = np.abs(np.diag(precision))
    if (diagonal == 0).any():
        _name_flat_direction(model, np.eye(diagonal.size)[int(np.argmin(diagonal))])
    scale = 1.0 / np.sqrt(diagonal)
    scaled = precision * np.outer(scale, scale)
    try:
        inner = cho_solve(cho_factor(scaled), scale * gradient)
        if not np.isfinite(inner).all():
            raise LinAlgError
    except LinAlgError:
        eigenvalues, vectors = np.linalg.eigh(scaled)
        if np.abs(eigenvalues).min() < _FLAT and not model.prior.proper:  # type: ignore[union-attr]
            _name_flat_direction(model, scale * vectors[:, int(np.argmin(np.abs(eigenvalues)))])
        positive = np.maximum(np.abs(eigenvalues), 1e-8 * np.abs(eigenvalues).max())
        inner = vectors @ ((vectors.T @ (scale * gradient)) / positive)
    step = scale * inner
    return step, float(np.sqrt(max(0.0, step @ gradient)))


def _require_definite(model: Model, precision: np.ndarray) -> None:
    scale = 1.0 / np.sqrt(np.abs(np.diag(precision)))
    eigenvalues, vectors = np.linalg.eigh(precision * np.outer(scale, scale))
    if eigenvalues[0] < _FLAT:
        _name_flat_direction(model, scale * vectors[:, 0])


def _name_flat_direction(model: Model, direction: np.ndarray) -> None:
    if not model.linear:
        involved = [n for n, size in zip(model.names, np.abs(direction), strict=True) if size > 1e-3 * np.abs(direction).max()]
        raise ModelError(
            f"the posterior is flat, or has no maximum, along {', '.join(involved)} near theta = the last point of the search. Give "
            "start= nearer to the mode, or a prior that tells these parameters apart."
        )
    moments = model.data.moments
    spread = np.ones(direction.size)
    typical = np.sqrt(moments.mean[: model.data.d] ** 2 + moments.sd[: model.data.d] ** 2)
    spread[: model.data.d] = np.where(typical > 0, typical, 1.0)
    size = np.abs(direction) * spread
    involved = [model.names[j] for j in np.argsort(-size) if size[j] > 1e-3 * size.max()]
    constant = [
        model.data.columns[j] for j in range(model.data.d) if moments.low[j] == moments.high[j] and j != model.data.intercept
    ]
    if set(involved) <= set(model.nuisances):
        raise ModelError(_exact_fit(model))
    if model.family.trouble:
        raise ModelError(f"the data cannot tell {', '.join(map(repr, sorted(involved)))} apart. {model.family.trouble}")
    if len(involved) == 1:
        what = f"the data say nothing about {involved[0]!r}: its column is zero or has no effect on any row"
    else:
        what = f"the columns {', '.join(repr(c) for c in sorted(involved))} are collinear"
    if constant:
        what += f" (constant: {', '.join(repr(c) for c in constant)})"
    raise ModelError(f"{what}. Drop a column, or use a proper prior such as tallbayes.priors.normal(10.0).")


def _divergence(model: Model, theta: np.ndarray) -> str:
    if model.family.name == "logistic" and not model.prior.proper:  # type: ignore[union-attr]
        spread = np.abs(theta) * np.maximum(model.data.moments.sd[: model.dim], 1e-300)
        return _no_maximum(model, model.names[int(np.argmax(spread))])
    worst = model.names[int(np.argmax(np.abs(theta)))]
    return (
        f"the search for the mode did not converge in {_MAX_STEPS} steps; {worst!r} runs away. Use a proper prior such as "
        "tallbayes.priors.normal(10.0), or rescale its column."
    )


def _exact_fit(model: Model) -> str:
    return (
        f"{', '.join(map(repr, model.nuisances))} has no finite mode: the columns fit the response exactly (or it is "
        "constant). Give sigma=, or leave out the column that repeats the response."
    )


def _no_maximum(model: Model, culprit: str) -> str:
    low, high = model.data.moments.low[model.data.d], model.data.moments.high[model.data.d]
    if low == high:
        why = f"every response is {low:g}"
    elif model.family.name in ("logistic", "probit"):
        why = f"the response is separable (first by {culprit!r}): some combination of columns tells 0 from 1 without error"
    else:
        why = f"{culprit!r} has no finite estimate: the rows that tell about it all have extreme responses"
    return f"{why}, so a flat prior has no posterior. Use tallbayes.priors.weakly_informative() or normal(2.5)."


def _widest(mode: Mode) -> tuple[float, str]:
    """The largest posterior sd of a linear predictor over the range of one column, and the column; 0 where it may be any.

    Under a flat prior Newton 'converges' where the likelihood saturates: some linear predictor then has no bound.
    """
    model = mode.model
    if not model.linear or model.prior.proper or model.family.response_scale or model.predictors > 1:  # type: ignore[union-attr]
        return 0.0, ""
    d, moments, intercept = model.data.d, model.data.moments, model.data.intercept
    low, high, mean = moments.low[:d], moments.high[:d], moments.mean[:d]
    covariance = mode.covariance[:d, :d]
    reach = np.maximum(np.abs(low), np.abs(high)) if intercept is None else high - low
    sd = reach * np.sqrt(np.diag(covariance))
    if intercept is not None:
        sd[intercept] = np.sqrt(mean @ covariance @ mean)
    return float(sd.max()), model.names[int(np.argmax(sd))]
