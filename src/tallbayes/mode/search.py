"""The posterior mode: Newton's method, its steps shortened where they fail, started from the mode of a random subsample.

The subsample (rows drawn uniformly, weights scaled up) brings the start within about sqrt(n / subsample) posterior standard
deviations, from where two or three full passes converge.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from tallbayes.engine import ledger, passes
from tallbayes.errors import ModelError, warn
from tallbayes.mode import several
from tallbayes.mode.centring import Centring, Frame, centring_of
from tallbayes.mode.kinks import kinks_of
from tallbayes.mode.laplace import Mode
from tallbayes.mode.messages import direction_names, exact_fit, no_maximum
from tallbayes.mode.newton import Point, evaluated, log_spread, newton, theta_direction, whole_precision
from tallbayes.mode.separation import sentences_on_responses
from tallbayes.model import Model
from tallbayes.progress import Progress
from tallbayes.streams import Stream, generator
from tallbayes.validation import require_cores, require_instance, require_positive, require_seed, require_switch

TOLERANCE = 1e-6  # on |L' gradient|: the distance to the mode in posterior standard deviations
_COLLINEAR = 1e-9  # the same of the rows' part of the precision, where a proper prior makes up for it
_RUNAWAY = 1e5  # posterior sd of a linear predictor that no data leave; Newton stops near 1 / TOLERANCE where f saturates


def find_mode(
    model: Model, *, seed: int = 0, progress: bool = True, cores: int | None = None, tolerance: float = TOLERANCE
) -> Mode:
    """The posterior mode, its precision and the Laplace approximation, in a few passes over the rows.

    `tolerance` is the distance to the mode in posterior standard deviations at which Newton's method stops. With a Laplace
    prior coordinates may be exactly at its location. A warning is issued for collinear columns that only the prior separates,
    and for a column that separates the response; columns that barely vary around a large mean are centred during the search.

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
    if model.unknown_scales:
        from tallbayes.mode.surrogate_reference import find_surrogate_reference

        return find_surrogate_reference(model, seed=seed, progress=progress, cores=cores)  # type: ignore[arg-type]
    if model.partitions is not None:
        return model.partitions.find_mode(tolerance, progress, model)
    if model.grouped:
        from tallbayes.mode.hierarchical import find_joint_mode
        from tallbayes.mode.linear_mixed import find_linear_mode

        if model.nuisances:  # unknown sigma of a Gaussian model
            return find_linear_mode(model, cores)  # type: ignore[arg-type]
        return find_joint_mode(model, progress=progress, cores=cores)  # type: ignore[arg-type]
    mode = _search(model, seed, progress, cores, tolerance)
    announce(mode, (*collinear_sentences(mode), *sentences_on_responses(model)))
    return mode


def announce(mode: Mode, sentences: tuple[str, ...]) -> None:
    """Warn, and keep the sentences with the mode and so with every fit that uses it."""
    mode.warnings += sentences
    for sentence in sentences:
        warn(sentence)


def mode_of_part(model: Model, cores: int | None, tolerance: float) -> Mode:
    """The same for a part of the rows, which need not tell all columns apart: without the warning."""
    return _search(model, 0, False, cores, tolerance)


def _search(model: Model, seed: int, progress: bool, cores: int | None, tolerance: float) -> Mode:
    theta, read = start(model), 0
    n, subsample, centring = model.data.n, _subsample_size(model), centring_of(model)
    total = passes.total_hessian if centring is None else centring.total_hessian
    with Progress("finding the mode", None, progress) as bar:
        if subsample < n and model.exchangeable:
            theta, read = _subsample_mode(model, theta, subsample, seed, bar, centring)
        mode = converge(model, lambda at: total(model.rows, at, cores), theta, tolerance, bar, centring)
        mode.evaluations += read
        if model.exchangeable and not several.one_mode_proven(model, mode):
            mode = _explore(model, mode, seed, cores, tolerance, bar, centring)
    return mode


def _explore(
    model: Model, first: Mode, seed: int, cores: int | None, tolerance: float, bar: Progress, centring: Centring | None
) -> Mode:
    """The mode of largest mass among those that searches from many starts find, with the others that may matter."""
    rng, n = generator(seed, Stream.MODES), model.data.n
    size = min(n, max(several.SUBSAMPLE, 10 * model.dim))
    index = np.arange(n) if size == n else np.sort(rng.integers(0, n, size))
    rows = model.rows._replace(records=np.ascontiguousarray(model.data.records[index]))
    total = passes.total_hessian if centring is None else centring.total_hessian
    bar.update(f"modes of {size:,} rows")

    def search(theta: np.ndarray) -> several.Candidate:
        mode = _mode_of(model, newton(model, lambda at: total(rows, at), theta, n / size, 1e-2, centring), centring)
        return several.Candidate(mode.reference, mode.log_posterior, mode.precision)

    with ledger.counting() as account:
        points = [first.reference, *several.starts(model, start(model), index, rng)]
        candidates = several.candidates(search, points)
        noise = several.noise_of(candidates, lambda theta: passes.values_at(rows, np.arange(size), theta), n)
    ledger.record(account.rows)
    modes, count = [first], first.passes
    for candidate in several.promising(candidates, noise, first):
        with suppress(ModelError):  # a mode of the subsample that all rows do not have
            mode = converge(model, lambda at: total(model.rows, at, cores), candidate.theta, tolerance, bar, centring)
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
    centring: Centring | None = None,
) -> Mode:
    """The mode by Newton's method from `theta`; `likelihood` gives value, gradient and Hessian on all rows, one pass each.

    With `centring` they are in its coordinates already.
    """
    if centring is None:
        centring = centring_of(model)
        likelihood = likelihood if centring is None else centring.of(likelihood)
    count = 0

    def full(at: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        nonlocal count
        count += 1
        bar.update(f"full pass {count}")
        return likelihood(at)

    mode = _mode_of(model, newton(model, full, theta, 1.0, tolerance, centring), centring)
    if tolerance > TOLERANCE and _widest(mode)[0] > 0.1 / tolerance:  # where f saturates Newton stops near 1 / tolerance
        mode = _mode_of(model, newton(model, full, mode.reference, 1.0, TOLERANCE, centring), centring)
    widest, culprit = _widest(mode)
    if widest > _RUNAWAY:
        raise ModelError(no_maximum(model, culprit))
    mode.passes, mode.evaluations = count, count * model.data.n
    return mode


def _mode_of(model: Model, point: Point, centring: Centring | None) -> Mode:
    if centring is not None:  # there are no kinks then
        back, frame = centring.inverse, Frame(centring, point.hessian, point.precision)
        gradient, hessian, precision = back.T @ point.gradient, back.T @ point.hessian @ back, back.T @ point.precision @ back
        return Mode(model, point.theta, point.value, gradient, hessian, precision, passes=0, evaluations=0, frame=frame)
    kinks, gradient = kinks_of(model.prior_terms), point.gradient.copy()
    gradient[kinks.where] -= kinks.slope * kinks.signs(point.theta)
    return Mode(
        model, point.theta, point.value, gradient, point.hessian, whole_precision(point, kinks), passes=0, evaluations=0
    )


def mode_at(model: Model, theta: np.ndarray) -> Mode:
    """A reference at `theta`, whether or not it is the mode: one pass."""
    centring = centring_of(model)
    if centring is not None:
        point = evaluated(model, centring.total_hessian(model.rows, theta), theta, 1.0, kinks_of(model.prior_terms), centring)
        mode = _mode_of(model, point, centring)
        mode.passes, mode.evaluations = 1, model.data.n
        return mode
    value, gradient, hessian, precision = model.curvature(theta)
    kinks, smooth = kinks_of(model.prior_terms), gradient.copy()
    smooth[kinks.where] += kinks.slope * kinks.signs(theta)
    whole = whole_precision(Point(theta, value, smooth, hessian, precision), kinks)
    return Mode(model, theta, value, gradient, hessian, whole, passes=1, evaluations=model.data.n)


def start(model: Model) -> np.ndarray:
    """Zero, with the intercept and log sigma at the values that fit the response's own mean and spread."""
    known = model.start()
    if known is not None:
        return known
    theta = np.zeros(model.dim)
    d, moments = model.data.d, model.data.moments
    if model.nuisances:
        theta[-1] = log_spread(model)
        if theta[-1] == -np.inf:
            raise ModelError(exact_fit(model))
    if model.predictors == 1 and model.data.intercept is not None:
        theta[model.data.intercept] = model.family.link(float(moments.mean[d])) - moments.mean[d + 1]
    return theta


def _subsample_size(model: Model) -> int:
    return max(20_000, 50 * model.dim, model.data.n // 20)


def _subsample_mode(
    model: Model, theta: np.ndarray, size: int, seed: int, bar: Progress, centring: Centring | None
) -> tuple[np.ndarray, int]:
    """The mode of a random subsample, or `theta` if it has none, and the evaluations that it took."""
    rng = generator(seed, Stream.SUBSAMPLE_MODE)
    n = model.data.n
    index = np.sort(rng.integers(0, n, min(size, n)))
    records = np.ascontiguousarray(model.data.records[index])
    rows = model.rows._replace(records=records)
    total = passes.total_hessian if centring is None else centring.total_hessian
    bar.update(f"mode of {index.size:,} rows")
    with ledger.counting() as account, suppress(ModelError):  # a part may be separable or collinear where the whole is not
        theta = newton(model, lambda at: total(rows, at), theta, n / index.size, 1e-2, centring).theta
    ledger.record(account.rows)  # also where the search as a whole is accounted for
    return theta, account.rows


def collinear_sentences(mode: Mode) -> tuple[str, ...]:
    """A sentence on columns that the rows cannot tell apart under a proper prior: along them the posterior is the prior."""
    model, frame = mode.model, mode.frame
    if not model.linear or model.row_limitation or model.predictors > 1 or model.dim >= model.data.n:
        return ()
    hessian, precision = (mode.hessian, mode.precision) if frame is None else (frame.hessian, frame.precision)
    size = np.abs(np.diag(hessian))
    scale = 1.0 / np.sqrt(np.where(size > 0.0, size, 1.0))
    values, vectors = np.linalg.eigh(-hessian * np.outer(scale, scale))
    least = int(np.argmin(np.abs(values)))
    direction = scale * vectors[:, least]
    told, known = abs(values[least]), float(direction @ precision @ direction)
    if told > _COLLINEAR or told > 0.1 * known:
        return ()
    direction = theta_direction(direction, None if frame is None else frame.centring)
    names = [repr(n) for n in sorted(direction_names(model, direction))]
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    what = f"{shown} are collinear" if len(names) > 1 else f"the rows carry no information about {shown}"
    return (f"{what}; only the prior determines this combination. Drop one of the columns unless this is intentional.",)


def _widest(mode: Mode) -> tuple[float, str]:
    """The largest posterior sd of a linear predictor over the range of one column, and the column; 0 where it may be any.

    Under a flat prior Newton 'converges' where the likelihood saturates: some linear predictor then has no bound.
    """
    model = mode.model
    if not model.linear or model.prior.proper or model.family.response_scale or model.predictors > 1 or model.second:
        return 0.0, ""
    d, moments, intercept = model.data.d, model.data.moments, model.data.intercept
    low, high, mean = moments.low[:d], moments.high[:d], moments.mean[:d]
    covariance = mode.covariance[:d, :d]
    reach = np.maximum(np.abs(low), np.abs(high)) if intercept is None else high - low
    sd = reach * np.sqrt(np.diag(covariance))
    if intercept is not None:
        sd[intercept] = np.sqrt(mean @ covariance @ mean)
    return float(sd.max()), model.names[int(np.argmax(sd))]
