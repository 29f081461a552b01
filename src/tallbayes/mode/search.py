"""The posterior mode: Newton's method, its steps shortened where they fail, started from the mode of a random subsample.

The subsample (rows drawn uniformly, weights scaled up) brings the start within about sqrt(n / subsample) posterior standard
deviations, from where two or three full passes converge.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tallbayes.engine import ledger, passes
from tallbayes.errors import ModelError, TallbayesWarning
from tallbayes.mode import several
from tallbayes.mode.ascent import LocalModel
from tallbayes.mode.kinks import Kinks, kink_curvature, kinks_of
from tallbayes.mode.laplace import Mode
from tallbayes.mode.messages import direction_names, exact_fit, name_flat_direction, no_maximum, separable
from tallbayes.model import Model
from tallbayes.priors import prior_gradient, prior_precision
from tallbayes.progress import Progress
from tallbayes.streams import Stream, generator
from tallbayes.validation import require_cores, require_instance, require_positive, require_seed, require_switch

TOLERANCE = 1e-6  # on |L' gradient|: the distance to the mode in posterior standard deviations
_MAX_STEPS = 100
_COLLINEAR = 1e-9  # the same of the rows' part of the precision, where a proper prior makes up for it
_FLAT = 1e-11  # relative size of an eigenvalue of the scaled precision that counts as zero
_EXACT = -25.0  # log of sigma relative to the response: errors of 1e-11 are rounding
_RUNAWAY = 1e5  # posterior sd of a linear predictor that no data leave; Newton stops near 1 / TOLERANCE where f saturates


def find_mode(
    model: Model, *, seed: int = 0, progress: bool = True, cores: int | None = None, tolerance: float = TOLERANCE
) -> Mode:
    """The posterior mode, its precision and the Laplace approximation, in a few passes over the rows.

    `tolerance` is the distance to the mode in posterior standard deviations at which Newton's method stops. With a Laplace
    prior coordinates may be exactly at its location. Warns of collinear columns that only the prior tells apart.

    >>> import numpy as np, tallbayes as tb
    >>> X = np.column_stack([np.ones(6), [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]])
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, [0, 1, 0, 1, 0, 1]), tb.priors.normal(5.0))
    >>> mode = tb.find_mode(model)
    >>> bool(np.abs(model.gradient(mode.reference)[1]).max() < 1e-6)
    True
    >>> mode.laplace().sd.round(1)
    array([0.9, 0.5])
    """
    require_instance("model", model, Model, "a model such as tallbayes.models.logistic(data)")
    require_seed(seed, fresh=False)
    require_switch("progress", progress)
    require_cores(cores)
    require_positive("tolerance", tolerance)
    if model.grouped:
        from tallbayes.mode.hierarchical import find_joint_mode
        from tallbayes.mode.linear_mixed import find_linear_mode

        if model.nuisances:  # unknown sigma of a Gaussian model
            return find_linear_mode(model, cores)  # type: ignore[arg-type]
        return find_joint_mode(model, progress=progress, cores=cores)  # type: ignore[arg-type]
    if model.hyper:
        from tallbayes.mode.shrinkage import find_shrinkage_mode

        return find_shrinkage_mode(model, lambda plain: _search(plain, seed, progress, cores, tolerance), seed)  # type: ignore[arg-type]
    mode = _search(model, seed, progress, cores, tolerance)
    warn_of_collinear(mode)
    return mode


def mode_of_part(model: Model, cores: int | None, tolerance: float) -> Mode:
    """The same for a part of the rows, which need not tell all columns apart: without the warning."""
    return _search(model, 0, False, cores, tolerance)


def _search(model: Model, seed: int, progress: bool, cores: int | None, tolerance: float) -> Mode:
    theta, read = start(model), 0
    n, subsample = model.data.n, _subsample_size(model)
    with Progress("finding the mode", None, progress) as bar:
        if subsample < n and model.exchangeable:
            theta, read = _subsample_mode(model, theta, subsample, seed, bar)
        mode = converge(model, lambda at: passes.total_hessian(model.rows, at, cores), theta, tolerance, bar)
        mode.evaluations += read
        if model.exchangeable and not several.one_mode_proven(model, mode):
            mode = _explore(model, mode, seed, cores, tolerance, bar)
    return mode


def _explore(model: Model, first: Mode, seed: int, cores: int | None, tolerance: float, bar: Progress) -> Mode:
    """The mode of largest mass among those that searches from many starts find, with the others that may matter."""
    rng, n = generator(seed, Stream.MODES), model.data.n
    size = min(n, max(several.SUBSAMPLE, 10 * model.dim))
    index = np.arange(n) if size == n else np.sort(rng.integers(0, n, size))
    rows = model.rows._replace(records=np.ascontiguousarray(model.data.records[index]))
    bar.update(f"modes of {size:,} rows")

    def search(theta: np.ndarray) -> several.Candidate:
        point = _newton(model, lambda at: passes.total_hessian(rows, at), theta, n / size, 1e-2)
        return several.Candidate(point.theta, point.value, point.precision)

    with ledger.counting() as account:
        points = [first.reference, *several.starts(model, start(model), index, rng)]
        candidates = several.candidates(search, points)
        noise = several.noise_of(candidates, lambda theta: passes.values_at(rows, np.arange(size), theta), n)
    ledger.record(account.rows)
    modes, count = [first], first.passes
    for candidate in several.promising(candidates, noise, first):
        with suppress(ModelError):  # a mode of the subsample that all rows do not have
            mode = converge(model, lambda at: passes.total_hessian(model.rows, at, cores), candidate.theta, tolerance, bar)
            count += mode.passes
            modes.append(mode)
    best, *others = several.distinct(modes)
    evaluations = first.evaluations + account.rows + (count - first.passes) * n
    return replace(best, passes=count, evaluations=evaluations, others=tuple(others), searches=len(points))


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

    mode = _mode_of(model, _newton(model, full, theta, 1.0, tolerance))
    if tolerance > TOLERANCE and _widest(mode)[0] > 0.1 / tolerance:  # where f saturates Newton stops near 1 / tolerance
        mode = _mode_of(model, _newton(model, full, mode.reference, 1.0, TOLERANCE))
    widest, culprit = _widest(mode)
    if widest > _RUNAWAY:
        raise ModelError(no_maximum(model, culprit))
    mode.passes, mode.evaluations = count, count * model.data.n
    return mode


def _mode_of(model: Model, point: _Point) -> Mode:
    kinks, gradient = kinks_of(model.prior_terms), point.gradient.copy()
    gradient[kinks.where] -= kinks.slope * kinks.signs(point.theta)
    return Mode(
        model, point.theta, point.value, gradient, point.hessian, _whole_precision(point, kinks), passes=0, evaluations=0
    )


def mode_at(model: Model, theta: np.ndarray) -> Mode:
    """A reference at `theta`, whether or not it is the mode: one pass."""
    value, gradient, hessian, precision = model.curvature(theta)
    kinks, smooth = kinks_of(model.prior_terms), gradient.copy()
    smooth[kinks.where] += kinks.slope * kinks.signs(theta)
    whole = _whole_precision(_Point(theta, value, smooth, hessian, precision), kinks)
    return Mode(model, theta, value, gradient, hessian, whole, passes=1, evaluations=model.data.n)


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
            raise ModelError(exact_fit(model))
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


def _subsample_mode(model: Model, theta: np.ndarray, size: int, seed: int, bar: Progress) -> tuple[np.ndarray, int]:
    """The mode of a random subsample, or `theta` if it has none, and the evaluations that it took."""
    rng = generator(seed, Stream.SUBSAMPLE_MODE)
    n = model.data.n
    index = np.sort(rng.integers(0, n, min(size, n)))
    records = np.ascontiguousarray(model.data.records[index])
    rows = model.rows._replace(records=records)
    bar.update(f"mode of {index.size:,} rows")
    with ledger.counting() as account, suppress(ModelError):  # a part may be separable or collinear where the whole is not
        theta = _newton(model, lambda at: passes.total_hessian(rows, at), theta, n / index.size, 1e-2).theta
    ledger.record(account.rows)  # also where the search as a whole is accounted for
    return theta, account.rows


class _Point(NamedTuple):
    """The log posterior at theta; gradient and precision are of all but the kinks of a Laplace prior."""

    theta: np.ndarray
    value: float
    gradient: np.ndarray
    hessian: np.ndarray  # of the log-likelihood
    precision: np.ndarray


def _newton(
    model: Model,
    likelihood: Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]],
    theta: np.ndarray,
    scale: float,
    tolerance: float,
) -> _Point:
    """Maximise scale * likelihood + log prior by Newton's steps, of limited length once one of them has failed."""
    kinks = kinks_of(model.prior_terms)

    def evaluate(at: np.ndarray) -> _Point:
        value, gradient, hessian = likelihood(at)
        value, gradient, hessian = value * scale, gradient * scale, hessian * scale
        value += prior_gradient(model.prior_terms, at, gradient)
        gradient[kinks.where] += kinks.slope * kinks.signs(at)
        return _Point(at, value, gradient, hessian, prior_precision(model.prior_terms, at) - hessian)

    point, radius, distance = evaluate(theta), np.inf, np.inf
    for _ in range(_MAX_STEPS):
        if not (np.isfinite(point.value) and np.isfinite(point.precision).all()):
            raise ModelError("the log posterior or its curvature is not finite; rescale columns with very large values.")
        local = _local_model(model, point, kinks)
        slack = 1e-10 * (1.0 + abs(point.value))  # rounding of a sum over many rows
        goal, reach = local.step()
        distance = np.sqrt(local.curved(goal))
        if distance < tolerance:
            rising = local.rising()
            higher = None if rising is None else _climb(evaluate, point, rising, slack)
            if higher is None:
                if not kinks.where.size:  # a Laplace prior is proper
                    _require_definite(model, point.precision)
                return point
            point = higher
            continue
        while True:
            if reach > radius:
                goal, reach = local.step(radius)
            moved, gain = evaluate(goal), local.gain(goal)
            if moved.value >= point.value + 1e-4 * gain - slack:
                break
            radius = 0.5 * reach
            if radius < 1e-12:
                raise ModelError(
                    "the search for the mode stalled: no step along the Newton direction increases the log posterior. "
                    + (model.family.mode_advice or "Rescale columns with very large or very small values.")
                )
        if moved.value >= point.value + 0.5 * gain:
            radius *= 4.0
        point = moved
        if model.nuisances and point.theta[-1] < _log_spread(model) + _EXACT:
            raise ModelError(exact_fit(model))
        if np.abs(point.theta).max() > 1e12:
            break
    raise ModelError(_divergence(model, point, distance))


def _local_model(model: Model, point: _Point, kinks: Kinks) -> LocalModel:
    flat = np.diag(point.precision) == 0.0
    flat[kinks.where] = False
    if flat.any():
        name_flat_direction(model, np.eye(flat.size)[int(np.argmax(flat))])
    local = LocalModel(point.theta, point.gradient, point.precision, kinks)
    if local.newton is None and not model.prior.proper:  # type: ignore[union-attr]
        values, vectors = local.eigen
        least = int(np.argmin(np.abs(values)))
        if abs(values[least]) < _FLAT:
            name_flat_direction(model, local.scale * vectors[:, least])
    return local


def _climb(evaluate: Callable[[np.ndarray], _Point], point: _Point, rising: np.ndarray, slack: float) -> _Point | None:
    """A point higher than a saddle or minimum, in a direction that curves upwards; None if there is none."""
    for size in (1.0, 0.25, 1 / 16, 1 / 64):
        for step in (size * rising, -size * rising):
            moved = evaluate(point.theta + step)
            if moved.value > point.value + slack:
                return moved
    return None


def _whole_precision(point: _Point, kinks: Kinks) -> np.ndarray:
    """The precision with the curvature that stands in for kinks."""
    if not kinks.where.size:
        return point.precision
    local = LocalModel(point.theta, point.gradient, point.precision, kinks)
    smooth = local.definite()
    smooth[kinks.where, kinks.where] += kink_curvature(smooth, point.gradient, kinks, point.theta)
    return smooth


def _require_definite(model: Model, precision: np.ndarray) -> None:
    scale = 1.0 / np.sqrt(np.abs(np.diag(precision)))
    eigenvalues, vectors = np.linalg.eigh(precision * np.outer(scale, scale))
    if eigenvalues[0] < _FLAT:
        name_flat_direction(model, scale * vectors[:, 0])


def warn_of_collinear(mode: Mode) -> None:
    """A sentence on columns that the rows cannot tell apart under a proper prior: along them the posterior is the prior."""
    model = mode.model
    if not model.linear or model.row_limitation or model.predictors > 1 or model.dim >= model.data.n:
        return
    size = np.abs(np.diag(mode.hessian))
    scale = 1.0 / np.sqrt(np.where(size > 0.0, size, 1.0))
    values, vectors = np.linalg.eigh(-mode.hessian * np.outer(scale, scale))
    least = int(np.argmin(np.abs(values)))
    direction = scale * vectors[:, least]
    told, known = abs(values[least]), float(direction @ mode.precision @ direction)
    if told > _COLLINEAR or told > 0.1 * known:
        return
    names = [repr(n) for n in sorted(direction_names(model, direction))]
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    what = f"the rows cannot tell {shown} apart" if len(names) > 1 else f"the rows say nothing about {shown}"
    warnings.warn(
        f"{what}: along that combination the posterior is the prior. Drop a column unless that is meant.",
        TallbayesWarning,
        stacklevel=3,
    )


def _divergence(model: Model, point: _Point, distance: float) -> str:
    if separable(model) and not model.prior.proper:  # type: ignore[union-attr]
        spread = np.abs(point.theta) * np.maximum(model.data.moments.sd[: model.dim], 1e-300)
        return no_maximum(model, model.names[int(np.argmax(spread))])
    text = f"the search for the mode did not converge in {_MAX_STEPS} steps: "
    if np.abs(point.theta).max() > 1e12:
        worst = model.names[int(np.argmax(np.abs(point.theta)))]
        return f"{text}{worst!r} runs away. Use a proper prior such as tallbayes.priors.normal(10.0), or rescale its column."
    remedy = (
        model.family.mode_advice or "Rescale columns, drop those that repeat others, or widen a narrow scale of the errors."
    )
    return f"{text}it is still about {distance:.2g} posterior standard deviations away. {remedy}"


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
