"""Exact posteriors of small models with one or two parameters, by quadrature on a grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallbayes.engine import passes
from tallbayes.errors import OptionError
from tallbayes.mode.search import find_mode
from tallbayes.model import Model


@dataclass(frozen=True, eq=False)
class ExactPosterior:
    """A posterior tabulated on a grid: exact moments, and draws that are exact up to the grid's resolution."""

    axes: tuple[np.ndarray, ...]
    probability: np.ndarray  # of each grid cell

    @property
    def mean(self) -> np.ndarray:
        """Posterior mean."""
        return np.array([(self._marginal(k) * axis).sum() for k, axis in enumerate(self.axes)])

    @property
    def covariance(self) -> np.ndarray:
        """Posterior covariance."""
        centred = np.meshgrid(*(a - m for a, m in zip(self.axes, self.mean, strict=True)), indexing="ij")
        return np.array([[(self.probability * a * b).sum() for b in centred] for a in centred])

    def moment(self, power: int) -> np.ndarray:
        """Central moments of each coordinate."""
        return np.array(
            [(self._marginal(k) * (a - m) ** power).sum() for k, (a, m) in enumerate(zip(self.axes, self.mean, strict=True))]
        )

    def _marginal(self, k: int) -> np.ndarray:
        return self.probability.sum(tuple(j for j in range(len(self.axes)) if j != k))

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Independent draws: a cell by its probability, uniform inside it."""
        cells = rng.choice(self.probability.size, count, p=self.probability.reshape(-1))
        index = np.unravel_index(cells, self.probability.shape)
        steps = [a[1] - a[0] for a in self.axes]
        columns = [a[i] + h * (rng.random(count) - 0.5) for a, i, h in zip(self.axes, index, steps, strict=True)]
        return np.column_stack(columns)


def exact_posterior(model: Model, points: int = 401, width: float = 8.0) -> ExactPosterior:
    """The posterior of a model with one or two parameters on `points` grid points per side, `width` Laplace sds around the mode.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.testing import exact_posterior
    >>> data = tb.Dataset.from_arrays(np.ones((10, 1)), np.arange(10.0))
    >>> posterior = exact_posterior(tb.models.gaussian(data, tb.priors.flat(), sigma=2.0))
    >>> posterior.mean.round(6), posterior.covariance.round(6)
    (array([4.5]), array([[0.4]]))
    """
    if model.dim > 2:
        raise OptionError(f"quadrature is for one or two parameters; the model has {model.dim}.")
    mode = find_mode(model, progress=False)
    sd = np.sqrt(np.diag(mode.covariance))
    axes = tuple(m + s * np.linspace(-width, width, points) for m, s in zip(mode.reference, sd, strict=True))
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, model.dim)
    log_density = np.array([passes._value(model.rows, 0, model.data.n, t) + model.log_prior(t) for t in grid])
    weight = np.exp(log_density - log_density.max())
    return ExactPosterior(axes, (weight / weight.sum()).reshape([points] * model.dim))
