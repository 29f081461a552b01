"""Invariance from exact draws: start many short chains at exact posterior draws; a correct kernel leaves their law unchanged.

There is no burn-in to argue about and no autocorrelation to estimate: the ends of the chains are independent, so means of
functions of them are compared with exact moments by ordinary z-scores. The threshold is set for one false failure in a
million, so that any seed passes; a target tempered by 10 % must fail.
"""

from __future__ import annotations

import numpy as np

from tallbayes.contract import Sampler, advance
from tallbayes.mode.laplace import Mode
from tallbayes.mode.search import find_mode
from tallbayes.model import Model
from tallbayes.streams import Stream, generator
from tallbayes.testing.quadrature import ExactPosterior

THRESHOLD = 4.9  # two-sided probability 1e-6 under normality


def invariance_scores(
    sampler: Sampler,
    model: Model,
    posterior: ExactPosterior,
    *,
    starts: int = 20_000,
    steps: int = 30,
    seed: int = 0,
    mode: Mode | None = None,
    compiled: bool = True,
) -> np.ndarray:
    """z-scores of first and second moments, in whitened coordinates, after `steps` iterations from exact draws.

    `model` is what the sampler targets, `posterior` what it should leave invariant: give a model with other weights to see
    the test fail. Options are those of the beginning of warm-up, frozen.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.testing import exact_posterior, invariance_scores, THRESHOLD
    >>> data = tb.Dataset.from_arrays(np.ones((10, 1)), np.arange(10.0))
    >>> model = tb.models.gaussian(data, tb.priors.flat(), sigma=2.0)
    >>> scores = invariance_scores(tb.samplers.FullData(tb.moves.hmc()), model, exact_posterior(model), starts=2000)
    >>> bool(np.abs(scores).max() < THRESHOLD)
    True
    """
    rng = generator(seed, Stream.INVARIANCE)
    mode = find_mode(model, progress=False) if mode is None else mode
    setup = sampler.setup(model, mode, seed, False)
    options = setup.policy.options(setup.policy.begin(), True)
    target = setup.target()
    ends = posterior.draw(rng, starts)
    info = np.zeros((steps, len(sampler.columns)))
    run = advance if compiled else advance.py_func
    for row in ends:
        run(rng, target, options, setup.policy.blank(row), True, row[None, :], info, steps)
    return moment_scores(ends, posterior)


def moment_scores(draws: np.ndarray, posterior: ExactPosterior) -> np.ndarray:
    """z-scores of means and products of independent draws against exact moments."""
    factor = np.linalg.cholesky(posterior.covariance)
    white = np.linalg.solve(factor, (draws - posterior.mean).T).T
    d = white.shape[1]
    functions = [white[:, j] for j in range(d)]
    expected = [0.0] * d
    for j in range(d):
        for k in range(j + 1):
            functions.append(white[:, j] * white[:, k])
            expected.append(float(j == k))
    values = np.stack(functions)
    error = values.std(axis=1, ddof=1) / np.sqrt(draws.shape[0])
    return (values.mean(axis=1) - np.array(expected)) / error
