"""What a worker does for a pass: one partition in memory at a time, a few sums or rows sent back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes import models
from tallbayes.data.dataset import Dataset
from tallbayes.data.moments import Moments
from tallbayes.engine import ledger, passes
from tallbayes.engine.rows import SingleIndex
from tallbayes.errors import ModelError
from tallbayes.mode.search import mode_of_part
from tallbayes.model import Model
from tallbayes.named_priors import PriorLike
from tallbayes.priors import PriorTerms
from tallbayes.remote.partition_cache import most_held, partition
from tallbayes.remote.partition_sources import is_empty
from tallbayes.remote.response_values import expression_model, response_values
from tallbayes.remote.row_weights import (
    PartTotals,
    Request,
    Weighting,
    draw_requested,
    part_totals,
    partition_model,
)


@dataclass(frozen=True)
class ModelSpec:
    """What a worker needs to know of a model, in types that travel."""

    plan: dict[str, Any]
    dtype: str
    family: str
    options: dict[str, Any]
    responses: tuple[float, ...] = ()  # what is known of those of all partitions, for an expression

    def model(self, data: Dataset, prior: PriorLike, terms: PriorTerms | None = None) -> Model:
        """The model over the rows of a partition; `terms` are those of a prior whose scales come from all rows."""
        if self.responses:
            model = expression_model(self, data, prior)
        else:
            model = models.build(self.family, data, prior, **self.options)
        if terms is not None:
            model.prior_terms = terms
        return model


def worker_cores() -> int | None:
    """Threads a pass may use: those of the Dask worker it runs in, or all."""
    try:
        from distributed import get_worker

        return int(get_worker().state.nthreads)
    except (ImportError, ValueError):
        return None


def require_exchangeable_rows(model: Model) -> None:
    """Refuse a model whose rows depend on those before them: parts of the rows have no likelihood of their own.

    >>> import numpy as np, tallbayes as tb
    >>> require_exchangeable_rows(tb.models.arma(np.random.default_rng(0).standard_normal(100)))
    Traceback (most recent call last):
    ...
    tallbayes.errors.ModelError: the rows of this model (arma) are not exchangeable: each depends on those before it, so they can be
    neither permuted nor split into shards or partitions. Sample all rows in their order with tallbayes.sample(model).
    """
    if not model.exchangeable:
        raise ModelError(
            f"the rows of this model ({model.family.name}) are not exchangeable: each depends on those before it, so they can be neither "
            "permuted nor split into shards or partitions. Sample all rows in their order with tallbayes.sample(model)."
        )


def survey_partition(handle: Any, spec: ModelSpec) -> tuple[Moments | None, int, str, np.ndarray | None]:
    """Moments, fingerprint and, for an expression, responses of a partition, whose responses suit the family and whose rows may be
    split; no moments if it is empty."""
    if is_empty(handle):
        return None, most_held(), "", None
    with partition(handle, spec.plan, spec.dtype) as data:
        values = None
        if "expression" in spec.options:
            values = response_values(spec, data)
        else:
            require_exchangeable_rows(partition_model(spec, data))
        return data.moments, most_held(), data.fingerprint, values


def on_partition(task: Callable[..., Any], handle: Any, spec: ModelSpec, fingerprint: str, *arguments: Any) -> tuple[Any, int]:
    """The result of a task on the model of a partition, and the partitions this process held at most."""
    with partition(handle, spec.plan, spec.dtype, fingerprint) as data:
        return task(partition_model(spec, data), *arguments), most_held()


def value(model: Model, theta: np.ndarray) -> float:
    """Log-likelihood of a partition."""
    return passes.total_value(model.rows, theta, worker_cores())


def gradient(model: Model, theta: np.ndarray) -> tuple[float, np.ndarray]:
    """The same, with its gradient."""
    return passes.total_gradient(model.rows, theta, worker_cores())


def hessian(model: Model, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The same, with gradient and Hessian."""
    return passes.total_hessian(model.rows, theta, worker_cores())


def unit_scale_hessian(model: Model, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The same of the member of scale 1, whose sums are the sufficient statistics of a model with an unknown scale."""
    rows = SingleIndex(model.unit_scale_member, model.data.records, model.data.d)
    return passes.total_hessian(rows, theta, worker_cores())


def largest_norm(model: Model, factor: np.ndarray) -> float:
    """Largest whitened norm of a partition."""
    return float(passes.whitened_norms(model.rows, factor, worker_cores()).max())


def totals(model: Model, weighting: Weighting) -> PartTotals:
    """Totals of the weights of a partition."""
    return part_totals(model, weighting, worker_cores())


def requested_rows(
    model: Model, weighting: Weighting, requests: list[Request], seed: int, part: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows of a partition for streams."""
    return draw_requested(model, weighting, requests, seed, part, worker_cores())


def rows_at(model: Model, index: np.ndarray) -> np.ndarray:
    """Records by their numbers."""
    return np.array(model.data.records[index])


def mode_of_partition(
    handle: Any, spec: ModelSpec, fingerprint: str, prior: PriorLike, terms: PriorTerms
) -> tuple[np.ndarray | None, int]:
    """The mode of one partition under the whole prior, None where it has none of its own; and the evaluations of the search."""
    theta = None
    with (
        partition(handle, spec.plan, spec.dtype, fingerprint) as data,
        ledger.counting() as account,
        suppress(ModelError),
    ):
        model = spec.model(data, models.priors.weakly_informative() if prior is None else prior, terms)
        theta = mode_of_part(model, worker_cores(), 1e-3).reference
    return theta, account.rows
