"""What a worker does for a pass: one partition in memory at a time, a few sums or rows sent back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tallbayes import models
from tallbayes.data.dataset import Dataset
from tallbayes.data.moments import Moments
from tallbayes.engine import passes
from tallbayes.engine.rows import one_index
from tallbayes.errors import ModelError
from tallbayes.model import Model
from tallbayes.named_priors import PriorLike
from tallbayes.priors import PriorTerms
from tallbayes.remote.partition_cache import most_held, partition
from tallbayes.remote.partition_sources import is_empty
from tallbayes.remote.response_values import model_of_responses, response_values
from tallbayes.remote.row_weights import (
    PartTotals,
    Request,
    Weighting,
    draw_requested,
    part_totals,
    partition_model,
)
from tallbayes.streams import Stream, generator


@dataclass(frozen=True)
class ModelSpec:
    """What a worker needs to know of a model, in types that travel."""

    plan: dict[str, Any]
    dtype: str
    family: str
    options: dict[str, Any]
    responses: tuple[float, ...] = ()  # what is known of those of all partitions, where they decide what the model is
    assumed: bool = False  # whether no family was given

    def model(self, data: Dataset, prior: PriorLike, terms: PriorTerms | None = None) -> Model:
        """The model over the rows of a partition; `terms` are those of a prior whose scales come from all rows."""
        if self.responses:
            model = model_of_responses(self, data, prior)
        else:
            model = models.build(self.family, data, prior, **self.options)
            model.assumed = models.default_family.sentence(data, self.family) if self.assumed else ""  # type: ignore[misc]
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


def responses_decide(spec: ModelSpec) -> bool:
    """Whether a part of the rows has a model only once the responses of all are known: an expression, or ordered classes."""
    family = models.family_of({"family": models.family_name(spec.family), "options": spec.options})
    return "expression" in spec.options or family.responses_decide


class Surveyed(NamedTuple):
    """What the first pass tells of a partition."""

    moments: Moments | None  # none if it is empty
    held: int  # partitions that the process held at once, at most
    fingerprint: str
    values: np.ndarray | None  # responses, where they decide what the model is
    rows: np.ndarray  # a few records, drawn uniformly without replacement, in random order


def survey_partition(handle: Any, spec: ModelSpec, number: int, wanted: int) -> Surveyed:
    """Check a partition, whose responses must suit the family and whose rows must be such that they may be split."""
    if is_empty(handle):
        return Surveyed(None, most_held(), "", None, np.empty((0, 0)))
    with partition(handle, spec.plan, spec.dtype) as data:
        values = None
        if spec.assumed:
            models.build_assumed(data)
        if responses_decide(spec):
            values = response_values(spec, data)
        else:
            require_exchangeable_rows(partition_model(spec, data))
        order = generator(0, Stream.SUBSAMPLE_MODE, number).choice(data.n, min(wanted, data.n), replace=False)
        return Surveyed(data.moments, most_held(), data.fingerprint, values, data.records[order, : data.d + 3])


def on_partition(
    task: Callable[..., Any], handle: Any, spec: ModelSpec, fingerprint: str, moments: Moments, *arguments: Any
) -> tuple[Any, int]:
    """The result of a task on the model of a partition, and the partitions this process held at most."""
    with partition(handle, spec.plan, spec.dtype, fingerprint, moments) as data:
        return task(partition_model(spec, data), *arguments), most_held()


def values(model: Model, thetas: np.ndarray) -> np.ndarray:
    """Log-likelihoods of a partition at several points."""
    return passes.total_values(model.rows, thetas, worker_cores())


def gradient(model: Model, theta: np.ndarray) -> tuple[float, np.ndarray]:
    """The same, with its gradient."""
    return passes.total_gradient(model.rows, theta, worker_cores())


def hessian(model: Model, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The same, with gradient and Hessian."""
    return passes.total_hessian(model.rows, theta, worker_cores())


def unit_scale_hessian(model: Model, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The same of the member of scale 1, whose sums are the sufficient statistics of a model with an unknown scale."""
    rows = one_index(model.unit_scale_member, model.data.records, model.data.d)
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
