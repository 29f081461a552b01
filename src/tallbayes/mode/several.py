"""Several modes: where the posterior is not proven to have one, Newton's method may end in an inferior one.

Searches from many starts on a subsample find candidates, and those that may matter are searched on all rows. The mass of a mode is
that of its Laplace fit,

    log m = log posterior(theta*) + (d / 2) log 2 pi + log det L,    L L' = covariance at theta*.

Modes whose share of the total mass is below `NEGLIGIBLE` are reported and otherwise left alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tallbayes.errors import ModelError, OptionError
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.priors import STUDENT

STARTS = 24  # searches on the subsample
FEWEST = 4  # of them, however many columns there are
_AFFORDABLE = 2e10  # multiplications of all searches: about twenty seconds
_STEPS = 12.0  # of Newton's method in a search, each with a Hessian
SUBSAMPLE = 5_000  # rows of these searches
MOST = 6  # modes that are searched on all rows
APART = 4.0  # posterior standard deviations, beyond sqrt(d), between two modes
HOPELESS = 50.0  # log posterior below the highest candidate, beyond eight standard errors
NEGLIGIBLE = 1e-6  # share of the total mass below which a mode does not matter
DOMINATED = 0.1  # curvature of a heavy-tailed prior relative to that of the posterior below which it cannot make a second mode
_ROBUST = (0.02, 0.16, 0.5, 0.84, 0.98)  # quantiles of the response at which an intercept starts


class Candidate(NamedTuple):
    """A mode of the posterior of a subsample, its likelihood to the power n / m."""

    theta: np.ndarray
    value: float
    precision: np.ndarray


def log_mass(mode: Mode) -> float:
    """Log of the posterior mass near a mode, by its Laplace fit, up to the constant that all modes share.

    >>> import numpy as np, tallbayes as tb
    >>> model = tb.models.gaussian(tb.Dataset.from_arrays(np.ones((4, 1)), [0.0, 1.0, 2.0, 3.0]), tb.priors.flat(), sigma=1.0)
    >>> mode = tb.find_mode(model, progress=False)
    >>> round(log_mass(mode) - mode.log_posterior, 6) == round(0.5 * math.log(2 * math.pi / 4), 6)
    True
    """
    return mode.log_posterior + 0.5 * mode.reference.size * math.log(2.0 * math.pi) + float(np.log(np.diag(mode.factor)).sum())


def one_mode_proven(model: Model, mode: Mode) -> bool:
    """Whether family and prior are log-concave, or the rows dominate what of the prior is not."""
    if not (model.linear and model.family.log_concave):
        return False
    bulge = _convexity(model)
    return bulge.size == 0 or bool(np.linalg.norm(bulge @ mode.factor, 2) ** 2 < DOMINATED)


def _convexity(model: Model) -> np.ndarray:
    """Lines b with log prior'' <= sum b b' everywhere: a t density is convex by at most (df + 1) / (8 df scale^2) in its tails."""
    terms, d = model.prior_terms, model.dim
    heavy = np.flatnonzero(terms.kind == STUDENT)
    size = np.sqrt((terms.df[heavy] + 1.0) / (8.0 * terms.df[heavy])) / terms.scale[heavy]
    directions = np.array([terms.centre if j == terms.intercept else np.eye(d)[j] for j in heavy]).reshape(-1, d)
    return size[:, None] * directions


def affordable(dim: int, rows: int) -> int:
    """Searches with so many parameters on so many rows: all, unless Hessians are large.

    >>> affordable(30, 5000), affordable(200, 5000), affordable(400, 5000)
    (24, 16, 4)
    """
    return int(np.clip(_AFFORDABLE / (_STEPS * 0.5 * rows * dim**2), FEWEST, STARTS))


def starts(model: Model, first: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Points to search from: the first guess, intercepts at quantiles, fits of a few rows, draws from the prior, wide steps.

    Where searches are expensive, an even selection of them.
    """
    points = [first]
    d, data = model.data.d, model.data
    if model.linear and model.predictors == 1 and not model.second and model.family.response_scale:
        picked = np.asarray(data.records[rows], float)
        X, y = picked[:, :d], picked[:, d] - picked[:, d + 1]
        if data.intercept is not None:
            for level in _ROBUST:
                theta = first.copy()
                theta[data.intercept] = np.quantile(y, level)
                points.append(theta)
        for _ in range(STARTS // 3):
            few = rng.choice(rows.size, min(rows.size, 2 * d + 2), replace=False)
            theta = first.copy()
            theta[:d] = np.linalg.lstsq(X[few], y[few], rcond=None)[0]
            points.append(theta)
    while len(points) < STARTS:
        points.append(_dispersed(model, first, rng, wide=len(points) % 2 == 0))
    count = affordable(first.size, rows.size)
    return [points[k] for k in np.linspace(0, len(points) - 1, count).round().astype(int)]


def _dispersed(model: Model, first: np.ndarray, rng: np.random.Generator, wide: bool) -> np.ndarray:
    if not wide and model.prior is not None:
        try:
            theta = model.prior.sample(model.prior_terms, rng)
            if np.isfinite(theta).all() and model.admits(theta):
                return theta
        except OptionError:  # a flat prior has no draws
            wide = True
    for reach in (5.0, 2.0, 1.0, 0.5):
        theta = first + reach * (1.0 + np.abs(first)) * rng.standard_normal(first.size)
        if model.admits(theta):
            return theta
    return first


def candidates(search: Callable[[np.ndarray], Candidate], points: list[np.ndarray]) -> list[Candidate]:
    """Distinct modes of a subsample, the highest first; a start from which the search fails is left out."""
    kept: list[Candidate] = []
    for point in points:
        try:
            candidate = search(point)
        except ModelError:  # no maximum from there: another start may find one
            continue
        if all(_apart(candidate, other) for other in kept):
            kept.append(candidate)
    return sorted(kept, key=lambda c: -c.value)


def noise_of(kept: list[Candidate], values: Callable[[np.ndarray], np.ndarray], n: int) -> list[float]:
    """Standard error of the difference of log-likelihood on all rows between the highest candidate and each."""
    if len(kept) < 2:
        return [0.0] * len(kept)
    best = values(kept[0].theta)
    return [float((values(c.theta) - best).std()) * n / math.sqrt(best.size) for c in kept]


def promising(kept: list[Candidate], noise: list[float], first: Mode) -> list[Candidate]:
    """Candidates other than the mode that is known, less those that are hopelessly low whatever the subsample's noise."""
    known = Candidate(first.reference, first.log_posterior, first.precision)
    hopeful = [c for c, error in zip(kept, noise, strict=True) if c.value > kept[0].value - HOPELESS - 8.0 * error]
    return [c for c in hopeful[:MOST] if _apart(c, known)]


def _apart(one: Candidate, other: Candidate) -> bool:
    """Whether two points are different modes, in the standard deviations of either."""
    step, limit = one.theta - other.theta, math.sqrt(one.theta.size) + APART
    return min(float(step @ c.precision @ step) for c in (one, other)) > limit**2


def distinct(modes: list[Mode]) -> list[Mode]:
    """Modes by mass, the largest first, each once."""
    kept: list[Mode] = []
    for mode in sorted(modes, key=lambda m: -log_mass(m)):
        here = Candidate(mode.reference, mode.log_posterior, mode.precision)
        if all(_apart(here, Candidate(m.reference, m.log_posterior, m.precision)) for m in kept):
            kept.append(mode)
    return kept


def shares(modes: list[Mode]) -> np.ndarray:
    """Posterior mass of each mode by its Laplace fit, as shares of their total."""
    mass = np.array([log_mass(mode) for mode in modes])
    weight = np.exp(mass - mass.max())
    return weight / weight.sum()


def important(mode: Mode) -> list[Mode]:
    """The modes that hold a share of the posterior worth a chain, the largest first."""
    modes = [mode, *mode.others]
    if len(modes) == 1:
        return modes
    return [m for m, share in zip(modes, shares(modes), strict=True) if share >= NEGLIGIBLE]


def warning(mode: Mode) -> str | None:
    """What a user must be told where the posterior has several modes that matter."""
    modes = important(mode)
    if len(modes) == 1:
        return None
    places = [f"{_place(m)} ({100.0 * s:.3g} % of the mass)" for m, s in zip(modes[:4], shares(modes), strict=False)]
    return (
        f"the posterior has {len(modes)} separate modes: {'; '.join(places)}. Chains start in each of them and rarely cross, "
        "so the draws do not weight the modes correctly and a summary over all chains is misleading. Use 'mode-jumping', "
        "which crosses between modes, inspect the chains one by one, or use a model or prior that separates the modes."
    )


def assumption(mode: Mode) -> str:
    """What the guarantee of a run rests on, where the posterior is not proven to have one mode."""
    return f"{mode.searches} searches from different starts found every mode that matters"


def _place(mode: Mode) -> str:
    names, theta = mode.model.names, mode.reference
    return ", ".join(f"{n} = {v:.4g}" for n, v in list(zip(names, theta, strict=True))[:3]) + (
        ", ..." if theta.size > 3 else ""
    )
