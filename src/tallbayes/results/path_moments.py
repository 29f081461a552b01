"""`path_moments`: posterior mean and covariance integrated exactly along the path of a Zig-Zag process."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.errors import ModelError, OptionError
from tallbayes.mode.laplace import Mode
from tallbayes.mode.search import find_mode
from tallbayes.model import Model
from tallbayes.samplers import ZigZag
from tallbayes.schemes.paths import Info, integrate
from tallbayes.streams import Stream, generator
from tallbayes.target import EVALS, STATUS


class PathMoments(NamedTuple):
    """Averages along a path: mean, covariance, rows read, and the time it ran."""

    mean: np.ndarray
    covariance: np.ndarray
    evals: int
    time: float


def path_moments(
    model: Model, time: float = 1000.0, seed: int = 0, mode: Mode | None = None, sampler: ZigZag | None = None
) -> PathMoments:
    """Mean and covariance integrated exactly along the path of a Zig-Zag process: no draws are taken of it.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.results import path_moments
    >>> X = np.column_stack([np.ones(100), np.linspace(-1, 1, 100)])
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, np.tile([0, 1], 50)), tb.priors.normal(2.0))
    >>> moments = path_moments(model, time=2000.0, seed=1)
    >>> bool(np.abs(moments.mean - tb.find_mode(model).reference).max() < 0.1)
    True
    """
    if not 0.0 < time < math.inf:
        raise OptionError(f"time must be positive; got {time}.")
    mode = find_mode(model, progress=False) if mode is None else mode
    setup = (sampler or ZigZag()).setup(model, mode, seed, False)
    options, target, d = setup.policy.options(setup.policy.begin(), True), setup.target(), model.dim
    rng, first, second = generator(seed, Stream.PATH), np.zeros(d), np.zeros((d, d))
    start = mode.laplace().draw(rng, 1)[0]
    integrate(rng, target, options, start, time, first, second, np.zeros(len(Info._fields)))
    if target.counters[STATUS] != 0:
        raise ModelError("the path stopped: a rate exceeded its certified bound. Use a full-data sampler such as 'nuts'.")
    mean = first / time
    inner = second / time - np.outer(mean, mean)
    return PathMoments(
        mode.reference + mode.factor @ mean, mode.factor @ inner @ mode.factor.T, int(target.counters[EVALS]), float(time)
    )
