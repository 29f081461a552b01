"""The reference of a model with unknown prior scales: the mean of the coefficients under the surrogate posterior of everything.

Joint modes of coefficients and scales do not exist (the density is unbounded where a scale is 0), and modes given the scales are not
typical of sparse priors. So a chain runs on the surrogate, which reads no rows; its mean is the next point at which the surrogate is made,
one pass each, until the point stays within a fraction of the posterior standard deviations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallbayes.engine import passes
from tallbayes.engine.scale_sweeps import Quadratic, Scales, explore
from tallbayes.errors import ModelError
from tallbayes.mode.laplace import Mode
from tallbayes.models.unknown_scales import UnknownScaleModel
from tallbayes.prior_terms import prior_gradient, prior_precision
from tallbayes.progress import Progress
from tallbayes.streams import Stream, generator

_ROUNDS = 6
_ROUGH = 0.05  # tolerance of the first point, in posterior standard deviations, where a step is a pass over partitions
_CONVEX = 1e-8  # curvature upwards, relative to the diagonal, that is rounding
_AVERAGED = 60  # conditional covariances
_NEAR = 0.5  # distance between two points, in posterior standard deviations of the whole step, at which the search ends


@dataclass(eq=False)
class SurrogateMode(Mode):
    """`reference` has coefficients and shared scales; `inner` is the reference of the coefficients alone."""

    inner: Mode | None = None
    quadratic: Quadratic | None = None
    fixed_gradient: np.ndarray | None = None  # of the fixed prior at the reference
    fixed_information: np.ndarray | None = None  # minus its curvature, not below zero


def find_surrogate_reference(
    model: UnknownScaleModel, *, seed: int = 0, progress: bool = True, cores: int | None = None
) -> SurrogateMode:
    """The reference, in about ten passes over the rows."""
    from tallbayes.mode.search import TOLERANCE, find_mode

    blocks, d, rng = model.blocks, model.coordinates, generator(seed, Stream.SURROGATE)
    shared = np.minimum(blocks.width, 1.0) ** 2
    scales = Scales(shared.copy(), np.ones(shared.size), np.ones(d), np.ones(d))
    first = np.where(blocks.home >= 0, blocks.weight / shared[np.maximum(blocks.home, 0)], 0.0)
    near = TOLERANCE if model.partitions is None else _ROUGH
    start = find_mode(model.conditional(first), seed=seed, progress=progress, cores=cores, tolerance=near)
    point, count, evaluations = start.reference, start.passes, start.evaluations
    sweeps = int(np.clip(6 * d, 400, 3000))
    with Progress("finding the reference", None, progress) as bar:
        for _ in range(_ROUNDS):
            bar.update(f"full pass {count + 1}")
            value, gradient, hessian = passes.total_hessian(model.rows, point, cores)
            count, evaluations = count + 1, evaluations + model.data.n
            quadratic, slope, curvature = _surrogate(model, point, gradient, hessian)
            means, precisions, squares = np.empty((sweeps, d)), np.empty((sweeps, d)), np.empty((sweeps, shared.size))
            explore(rng, quadratic, blocks, scales, point.copy(), means, precisions, squares)
            if not np.isfinite(means).all():
                raise ModelError(
                    "a combination of the coefficients, such as a common shift of those of all classes, is left to a prior whose scales "
                    "may be any size, and the search for a reference overflows; bound them with tallbayes.priors.horseshoe(slab=2.0), "
                    "or give the coefficients a prior such as tallbayes.priors.normal(1.0)."
                )
            late = slice(sweeps // 4, None)
            mean, covariance = means[late].mean(0), _covariance(quadratic, means[late], precisions[late])
            step = mean - point
            if np.sqrt(step @ np.linalg.solve(covariance, step)) < _NEAR:
                break
            point = mean
    _require_concave(model, quadratic)
    inner_model = model.conditional(np.zeros(d))
    own = gradient.copy()
    prior_value_at = prior_gradient(model.prior_terms, point, own)
    precision = np.linalg.inv(covariance)
    inner = Mode(inner_model, point, value + prior_value_at, own, hessian, 0.5 * (precision + precision.T), count, evaluations)
    sigma = np.sqrt(squares[late])
    typical, spread = np.median(sigma, axis=0), np.maximum(sigma.std(0), 1e-3 * np.median(sigma, axis=0))
    spread = np.minimum(spread, 0.4 * typical)
    whole = np.zeros((model.dim, model.dim))
    whole[:d, :d], whole[range(d, model.dim), range(d, model.dim)] = inner.precision, 1.0 / spread**2
    pad = np.zeros((model.dim, model.dim))
    pad[:d, :d] = hessian
    return SurrogateMode(
        model,
        np.concatenate([point, typical]),
        inner.log_posterior,
        np.concatenate([own, np.zeros(shared.size)]),
        pad,
        whole,
        count,
        evaluations,
        inner=inner,
        quadratic=quadratic,
        fixed_gradient=slope,
        fixed_information=curvature,
    )


def _surrogate(
    model: UnknownScaleModel, point: np.ndarray, gradient: np.ndarray, hessian: np.ndarray
) -> tuple[Quadratic, np.ndarray, np.ndarray]:
    """Second-order expansion of the likelihood and of the fixed prior at a point; a prior that curves upwards counts as flat."""
    slope = np.zeros(point.size)
    prior_gradient(model.prior_terms, point, slope)
    curvature = prior_precision(model.prior_terms, point)
    values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    curvature = (vectors * np.maximum(values, 0.0)) @ vectors.T
    information = curvature - hessian
    pull = information @ point + gradient + slope
    return Quadratic(np.ascontiguousarray(information), pull), slope, np.ascontiguousarray(curvature)


def _require_concave(model: UnknownScaleModel, quadratic: Quadratic) -> None:
    """Refuse a surrogate that is no Gaussian where the scales are large: it could not be drawn from."""
    information = quadratic.information
    unit = np.sqrt(np.maximum(np.abs(np.diag(information)), 1e-300))
    values, vectors = np.linalg.eigh(information / np.outer(unit, unit))
    if values[0] < -_CONVEX:
        largest = int(np.abs(vectors[:, 0]).argmax())
        raise ModelError(
            f"the likelihood is not concave at the reference, mostly in {model.names[largest]!r}, so that its second-order expansion is no "
            "surrogate for priors with unknown scales; give the coefficients a prior such as tallbayes.priors.normal(1.0)."
        )


def _covariance(quadratic: Quadratic, means: np.ndarray, precisions: np.ndarray) -> np.ndarray:
    """Of the coefficients: the average of their conditional covariances given the scales, and the covariance of the conditional means.

    Far less noisy than that of draws, and it keeps the directions that the rows determine as narrow as they are.
    """
    chosen = precisions[np.linspace(0, len(precisions) - 1, min(_AVERAGED, len(precisions))).astype(int)]
    within = np.mean([np.linalg.inv(quadratic.information + np.diag(p)) for p in chosen], axis=0)
    return within + np.atleast_2d(np.cov(means.T))
