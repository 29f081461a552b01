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
from tallbayes.mode.laplace import Mode
from tallbayes.models.unknown_scales import UnknownScaleModel
from tallbayes.prior_terms import prior_gradient, prior_precision
from tallbayes.progress import Progress
from tallbayes.streams import Stream, generator

_ROUNDS = 6
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
    from tallbayes.mode.search import find_mode

    blocks, d, rng = model.blocks, model.coordinates, generator(seed, Stream.SURROGATE)
    shared = np.minimum(blocks.width, 1.0) ** 2
    scales = Scales(shared.copy(), np.ones(shared.size), np.ones(d), np.ones(d))
    first = np.where(blocks.home >= 0, blocks.weight / shared[np.maximum(blocks.home, 0)], 0.0)
    start = find_mode(model.conditional(first), seed=seed, progress=progress, cores=cores)
    point, count, evaluations = start.reference, start.passes, start.evaluations
    sweeps = int(np.clip(6 * d, 400, 3000))
    with Progress("finding the reference", None, progress) as bar:
        for _ in range(_ROUNDS):
            bar.update(f"full pass {count + 1}")
            value, gradient, hessian = passes.total_hessian(model.rows, point, cores)
            count, evaluations = count + 1, evaluations + model.data.n
            quadratic, slope, curvature = _surrogate(model, point, gradient, hessian)
            draws, means, squares = np.empty((sweeps, d)), np.empty((sweeps, d)), np.empty((sweeps, shared.size))
            explore(rng, quadratic, blocks, scales, point.copy(), draws, means, squares)
            late = slice(sweeps // 4, None)
            mean, covariance = means[late].mean(0), _covariance(draws[late])
            step = mean - point
            if np.sqrt(step @ np.linalg.solve(covariance, step)) < _NEAR:
                break
            point = mean
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


def _covariance(draws: np.ndarray) -> np.ndarray:
    """Of the draws, shrunk towards its diagonal by as much as their number asks for."""
    covariance = np.atleast_2d(np.cov(draws.T))
    share = min(0.5, draws.shape[1] / draws.shape[0])
    return (1.0 - share) * covariance + share * np.diag(np.diag(covariance))
