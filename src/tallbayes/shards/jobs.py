"""What a worker does for one shard: build its model and sample it, evaluate its density, or fit its site. All travel to other processes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes import api, models, samplers
from tallbayes.data.dataset import Dataset
from tallbayes.data.split import take, to_power
from tallbayes.engine import passes
from tallbayes.errors import OptionError, StoreError
from tallbayes.machine import peak_memory
from tallbayes.mode.search import mode_of_part
from tallbayes.model import Model
from tallbayes.priors import Prior, PriorTerms
from tallbayes.remote.partition_cache import partition
from tallbayes.remote.partition_passes import ModelSpec, worker_cores
from tallbayes.results.fit import Fit
from tallbayes.run.checkpoint import Checkpoint


@dataclass(frozen=True, eq=False)
class FileRows:
    """Rows in files, read where they are."""

    files: list[str]
    spec: ModelSpec

    def model(self, power: float, prior: Prior, terms: PriorTerms | None) -> Model:
        """The sub-model."""
        with partition(self.files, self.spec.plan, self.spec.dtype) as data:
            rows = data if power == 1.0 else to_power(take(data, np.arange(data.n)), power)
        return self.spec.model(rows, prior, terms)


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Packed rows that travel with the task."""

    data: Dataset
    spec: ModelSpec

    def model(self, power: float, prior: Prior, terms: PriorTerms | None) -> Model:
        """The sub-model."""
        return self.spec.model(to_power(replace(self.data, records=np.array(self.data.records)), power), prior, terms)


@dataclass(frozen=True, eq=False)
class ModelRows:
    """Rows of a model in this process, copied when the shard is worked on."""

    whole: Model
    index: np.ndarray

    def model(self, power: float, prior: Prior, terms: PriorTerms | None) -> Model:
        """The sub-model; its family is that of the whole, also one written by the user."""
        model = replace(self.whole, data=to_power(take(self.whole.data, self.index), power), prior=prior)
        if terms is not None:
            model.prior_terms = terms
        return model


@dataclass(frozen=True, eq=False)
class Job:
    """One shard: where its rows are, and which sub-posterior to make of them."""

    number: int
    rows: FileRows | PackedRows | ModelRows
    power: float  # of the likelihood
    prior: Prior
    terms: PriorTerms | None = None  # of a prior whose scales come from all rows
    sampler: dict[str, Any] | str = "auto"
    options: dict[str, Any] = field(default_factory=dict)  # draws, warmup, chains, seed, guarantee
    checkpoint: str | None = None

    def model(self) -> Model:
        """The sub-model."""
        return self.rows.model(self.power, self.prior, self.terms)


def sample_shard(job: Job) -> Fit:
    """The fit of a shard; one that has a checkpoint goes on from it."""
    before, model = peak_memory(), job.model()
    sampler = job.sampler if isinstance(job.sampler, str) else samplers.from_dict(job.sampler)
    folder = None if job.checkpoint is None else Path(job.checkpoint) / f"shard-{job.number:04d}"
    resumed = folder is not None and (folder / "run.json").exists()
    if folder is not None and resumed:
        if Checkpoint(folder).read()["seed"] != job.options["seed"]:
            raise StoreError(f"{folder} holds a shard of another run; give another checkpoint folder or delete it.")
        fit = api.resume(folder, model, cores=worker_cores() or 1, progress=False)
    else:
        fit = api.sample(model, sampler, cores=worker_cores() or 1, checkpoint=folder, progress=False, **job.options)
    fit.meta["shard"] = {
        "number": job.number,
        "rows": model.data.n,
        "bytes": int(model.data.records.nbytes),
        "memory": [before, peak_memory()],
        "process": os.getpid(),
        "resumed": resumed,
    }
    fit.data = None  # fits of many shards must not hold all rows
    return fit


def shard_densities(job: Job, theta: np.ndarray) -> np.ndarray:
    """Log density of the sub-posterior at every point of (points, dim): a pass over the shard for each."""
    model = job.model()
    return np.array([passes.total_value(model.rows, at, worker_cores()) + model.log_prior(at) for at in theta])


def shard_site(job: Job) -> tuple[np.ndarray, np.ndarray, int]:
    """Second-order expansion of the log-likelihood of a shard at the mode of its sub-posterior, as r and Q, and the evaluations it took."""
    model = job.model()
    mode = mode_of_part(model, worker_cores(), 1e-3)
    _, gradient = passes.total_gradient(model.rows, mode.reference, worker_cores())
    return gradient - mode.hessian @ mode.reference, -mode.hessian, mode.evaluations + model.data.n


def portable_spec(model: Model) -> ModelSpec:
    """What a worker needs to build a model of the same family; refuses families that have no name."""
    name = model.family.name
    if models.FAMILIES.get(name) is None:
        raise OptionError(
            f"the family {name!r} is user-defined and cannot be built by name on a worker; omit client= to sample its shards "
            "on threads, or use a family of tallbayes.models."
        )
    return ModelSpec(model.data.recipe.get("plan", {}), model.data.records.dtype.name, name, dict(model.options))
