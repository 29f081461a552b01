"""`sample_shards`: split rows, sample every shard with any sampler, combine; on threads or on a Dask cluster."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes import priors, samplers, streams
from tallbayes.api import REFERENCE_TOLERANCE
from tallbayes.contract import Sampler
from tallbayes.data.file_partitions import files_of
from tallbayes.data.packed_store import write_synced
from tallbayes.data.split import exchangeability_doubts, take
from tallbayes.errors import DataError, OptionError, StoreError
from tallbayes.mode.laplace import Mode
from tallbayes.mode.search import find_mode
from tallbayes.model import Model
from tallbayes.option_types import checked
from tallbayes.priors import FLAT, NORMAL, Prior, PriorTerms
from tallbayes.remote.partition_passes import require_exchangeable_rows
from tallbayes.remote.partitions import Partitions
from tallbayes.remote.pool import connect, gather
from tallbayes.results.fit import Fit
from tallbayes.run.options import require_length
from tallbayes.shards.combine import (
    Combination,
    Combiner,
    Convention,
    Importance,
    MomentSharing,
    Natural,
    SubPosteriors,
    resolve,
)
from tallbayes.shards.jobs import FileRows, Job, ModelRows, PackedRows, portable_spec, sample_shard, shard_densities, shard_site
from tallbayes.shards.shard_fit import ShardFit, collect, effective_size
from tallbayes.streams import Stream, generator, sequence

SHARDS = 8


@dataclass(eq=False)
class Split:
    """Rows in parts: where each is, how many rows it has, and the model of all."""

    model: Model
    rows: list[Any]  # FileRows, PackedRows or ModelRows
    weights: np.ndarray  # sum of row weights of each part
    partitions: Partitions | None
    doubts: list[str]  # against exchangeability

    def mode(self, progress: bool) -> Mode:
        """The mode of the whole model."""
        if self.partitions is not None:
            return self.partitions.find_mode(REFERENCE_TOLERANCE, progress)
        return find_mode(self.model, progress=progress, tolerance=REFERENCE_TOLERANCE)


@checked
def sample_shards(
    source: Any,
    sampler: str | Sampler = "auto",
    shards: Any = None,
    *,
    combine: str | Combiner = "consensus",
    formula: str | None = None,
    family: str | None = None,
    prior: Prior | None = None,
    family_options: dict[str, Any] | None = None,
    offset: str | None = None,
    weights: str | None = None,
    dtype: str = "float64",
    draws: int = 1000,
    warmup: int = 1000,
    chains: int = 2,
    seed: int | None = None,
    client: Any = None,
    workers: int | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> ShardFit:
    """Divide and conquer: sample every shard of the rows separately and combine the draws.

    `source` is a model, whose rows are assigned to `shards` parts at random (or by an array of labels, one for each row), or a
    folder, pattern or list of files with `formula`, `family` and `prior`, each file a shard unless `shards` groups them.
    `sampler` is any of the package, run with `draws`, `warmup` and `chains` on every shard. `combine` is a name or an object of
    `tallbayes.shards`; it also decides whether shards see prior^(1/B) x likelihood or prior x likelihood^B. `client` is a
    `dask.distributed.Client` or the address of a scheduler; without one, `workers` threads of this process are used.
    `checkpoint` names a folder (shared by all workers) from which an interrupted shard, or the whole run, is resumed.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(4000), rng.standard_normal(4000)])
    >>> model = tb.models.gaussian(tb.Dataset.from_arrays(X, X @ [1.0, 2.0] + rng.standard_normal(4000)), tb.priors.normal(10.0), sigma=1.0)
    >>> fit = tb.sample_shards(model, "exact-minibatch", shards=4, draws=500, warmup=200, seed=1, progress=False)
    >>> fit.theta.shape, fit.guarantee.kind, len(fit.shards)
    ((1, 1000, 2), 'HEURISTIC', 4)
    """
    begun = time.perf_counter()
    combiner, client = resolve(combine), connect(client)
    require_length(draws, warmup, chains, least=4)
    sampler_options: dict[str, Any] | str = "auto"
    if not (isinstance(sampler, str) and sampler == "auto"):
        fixed = samplers.resolve(sampler)
        if fixed.guarantee.kind == "EXACT-SIGNED":
            raise OptionError(
                f"draws of {fixed.name} have signs, which combinations cannot use; choose another sampler for the shards."
            )
        sampler_options = fixed.as_dict()
    settings = {
        "sampler": sampler_options,
        "draws": int(draws),
        "warmup": int(warmup),
        "chains": int(chains),
        "combine": repr(combiner),
    }
    entropy = _entropy(seed, checkpoint, settings)
    if isinstance(source, Model):
        for name, given in (
            ("formula", formula),
            ("family", family),
            ("prior", prior),
            ("family_options", family_options),
            ("offset", offset),
            ("weights", weights),
        ):
            if given is not None:
                raise OptionError(f"{name}= belongs to paths; a model has its own.")
        require_exchangeable_rows(source)
        split = _split_model(source, shards, entropy, client)
    else:
        if formula is None:
            raise OptionError("paths need formula=, such as formula='y ~ x1 + C(group)'; or give a model.")
        if prior is not None and combiner.convention is Convention.PRODUCT and shards != 1 and len(files_of(source)) > 1:
            prior.power(0.5)  # refused before any file is read, if it will be
        partitions = Partitions.open(
            source,
            formula,
            family,
            prior,
            client=client,
            partitions=shards,
            family_options=family_options,
            offset=offset,
            weights=weights,
            dtype=dtype,
            progress=progress,
        )
        split = _split_files(partitions)
    run = ShardRun(split, combiner, sampler_options, settings, entropy, client, workers, checkpoint, progress)
    try:
        combination, sub, fits = run.combine()
        return collect(run, combination, sub, fits, time.perf_counter() - begun)
    finally:
        if split.partitions is not None:
            split.partitions.close()


class ShardRun:
    """One call of `sample_shards`: jobs, rounds and what they cost."""

    def __init__(
        self,
        split: Split,
        combiner: Combiner,
        sampler: dict[str, Any] | str,
        settings: dict[str, Any],
        entropy: int,
        client: Any,
        workers: int | None,
        checkpoint: str | Path | None,
        progress: bool,
    ) -> None:
        self.split, self.combiner, self.sampler, self.entropy = split, combiner, sampler, entropy
        self.settings, self.client, self.workers, self.progress = settings, client, workers, progress
        self.checkpoint = None if checkpoint is None else str(Path(checkpoint).absolute())
        self.evals, self.setup_evals, self.rng = (
            0.0,
            0.0,
            generator(entropy, Stream.COMBINATION),
        )
        self.total = self.settings["draws"] * self.settings["chains"]

    def jobs(self, prior: Prior, powers: np.ndarray, terms: PriorTerms | None, round_: int = 0) -> list[Job]:
        """A job for each shard."""
        options = {k: self.settings[k] for k in ("draws", "warmup", "chains")}
        folder = self.checkpoint if round_ == 0 or self.checkpoint is None else f"{self.checkpoint}/round-{round_}"
        return [
            Job(k, rows, float(powers[k]), prior, terms, self.sampler, {**options, "seed": self._seed(k, round_)}, folder)
            for k, rows in enumerate(self.split.rows)
        ]

    def _seed(self, number: int, round_: int) -> int:
        return int(sequence(self.entropy, Stream.SHARD, number, round_).generate_state(1, np.uint64)[0] >> np.uint64(1))

    def over(self, task: Any, arguments: list[tuple[Any, ...]], label: str) -> list[Any]:
        """Results of a task on all shards."""
        return gather(task, arguments, self.client, label=label, progress=self.progress, workers=self.workers)

    def combine(self) -> tuple[Combination, SubPosteriors | None, list[Fit]]:
        """Sample, combine."""
        prior, count = self.split.model.prior, len(self.split.rows)
        assert prior is not None
        ones = np.ones(count)
        if isinstance(self.combiner, MomentSharing):
            return self._share_moments(prior, ones)
        if self.combiner.convention is Convention.PRODUCT:
            jobs = self.jobs(prior.power(1.0 / count), ones, None)
        else:  # the scales of a default prior come from all rows, not from those of a shard
            powers = self.split.weights.sum() / self.split.weights
            jobs = self.jobs(prior, powers, self.split.model.prior_terms)
        fits = self._sample_jobs(jobs)
        sub = _sub_posteriors(fits, self.combiner.convention)
        if not isinstance(self.combiner, Importance):
            return self.combiner(sub, self.total, self.rng), sub, fits
        theta, proposal = self.combiner.propose(sub, self.total, self.rng)
        target = np.sum(self.over(shard_densities, [(job, theta) for job in jobs], "densities"), axis=0)
        self.evals += float(self.total) * self.split.model.data.n
        return self.combiner.weigh(sub, theta, proposal, target), sub, fits

    def _sample_jobs(self, jobs: list[Job]) -> list[Fit]:
        fits = self.over(sample_shard, [(job,) for job in jobs], "shards")
        self.evals += sum(float(f.evals.sum()) for f in fits)
        self.setup_evals += sum(float(f.setup["evals"]) for f in fits)
        return fits

    def _share_moments(self, prior: Prior, ones: np.ndarray) -> tuple[Combination, None, list[Fit]]:
        """Rounds of moment sharing."""
        assert isinstance(self.combiner, MomentSharing)
        start = _natural(prior, self.split.model.prior_terms)
        last: list[Fit] = []
        jobs = self.jobs(prior.power(1.0 / ones.size), ones, None)
        expansions = self.over(shard_site, [(job,) for job in jobs], "sites")
        self.setup_evals += sum(f[2] for f in expansions)

        def tilted(cavities: list[Natural], shards: list[int], round_: int) -> list[tuple[np.ndarray, float]]:
            base = self.jobs(prior, ones, None, round_)
            moved = [
                replace(base[b], prior=priors.multivariate_normal(c.mean, c.precision))
                for b, c in zip(shards, cavities, strict=True)
            ]
            fits = self._sample_jobs(moved)
            last[:] = fits
            return [(f.theta.reshape(-1, f.theta.shape[-1]), effective_size(f)) for f in fits]

        sites = [Natural(f[0], f[1]) for f in expansions]
        return self.combiner.run(start, sites, tilted, self.total, self.rng), None, last


def _entropy(seed: int | None, checkpoint: str | Path | None, settings: dict[str, Any]) -> int:
    """The seed of the run: the one given, a fresh one, or that of the run that the checkpoint folder holds."""
    entropy = streams.entropy(seed)
    if checkpoint is None:
        return entropy
    path = Path(checkpoint) / "shards.json"
    if path.exists():
        try:
            held = json.loads(path.read_text())
            entropy_held = int(held["seed"])
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path} is damaged ({error!r}); delete the folder and start again.") from error
        if held["settings"] != json.loads(json.dumps(settings)) or (seed is not None and entropy_held != entropy):
            raise StoreError(
                f"{checkpoint} holds a run with other options ({held['settings']}); give another checkpoint folder."
            )
        return entropy_held
    path.parent.mkdir(parents=True, exist_ok=True)
    write_synced(path, json.dumps({"seed": entropy, "settings": settings}).encode())
    return entropy


def _split_model(model: Model, shards: Any, entropy: int, client: Any) -> Split:
    model.require_ungrouped("sample_shards")
    n, doubts = model.data.n, []
    count = SHARDS if shards is None else shards
    if isinstance(count, int | np.integer) and not isinstance(count, bool):
        if not 1 <= count <= n:
            raise OptionError(f"shards must be between 1 and the number of rows, {n:,}; got {count}.")
        order = generator(entropy, Stream.SHARD_ROWS).permutation(n)
        parts = [np.sort(part) for part in np.array_split(order, int(count))]
    else:
        labels = np.asarray(count)
        if labels.shape != (n,):
            raise OptionError(f"shards must be a number or one label for each of the {n:,} rows; its shape is {labels.shape}.")
        parts = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        doubts = exchangeability_doubts([take(model.data, part).moments for part in parts])
    fewest = min(p.size for p in parts)
    if fewest <= model.dim:
        raise OptionError(
            f"{len(parts)} shards leave {fewest} rows to one of them, with {model.dim} parameters; use fewer, with many times "
            "as many rows."
        )
    weight = model.data.records[:, model.data.d + 2]
    sums = (
        np.array([float(weight[p].sum()) for p in parts])
        if model.data.has_weights
        else np.array([float(p.size) for p in parts])
    )
    if client is None:
        rows: list[Any] = [ModelRows(model, p) for p in parts]
    else:
        spec = portable_spec(model)
        rows = [PackedRows(take(model.data, p), spec) for p in parts]
    return Split(model, rows, sums, None, doubts)


def _split_files(partitions: Partitions) -> Split:
    rows = [FileRows(files, partitions.spec) for files in partitions.files]
    d = partitions.data.d
    sums = np.array([float(p.mean[d + 2] * p.n) for p in partitions.parts])
    if (fewest := min(p.n for p in partitions.parts)) <= partitions.model.dim:
        raise DataError(f"a partition has {fewest} rows, with {partitions.model.dim} parameters; join files with shards=.")
    return Split(partitions.model, rows, sums, partitions, partitions.exchangeability_doubts())


def _natural(prior: Prior, terms: PriorTerms) -> Natural:
    """A prior that is normal, or flat, in natural parameters."""
    if terms.dense.size:
        return Natural(terms.dense @ terms.location, terms.dense)
    if not np.isin(terms.kind, (FLAT, NORMAL)).all():
        raise OptionError(
            f"moment sharing needs a normal or a flat prior, not {prior.describe()}; use tallbayes.priors.normal(10.0), or "
            "another combination."
        )
    precision = np.where(terms.kind == NORMAL, 1.0 / terms.scale**2, 0.0)
    return Natural(precision * terms.location, np.diag(precision))


def _sub_posteriors(fits: list[Fit], convention: Convention) -> SubPosteriors:
    parts = [f.theta.reshape(-1, f.theta.shape[-1]) for f in fits]
    shortest = min(p.shape[0] for p in parts)
    for number, fit in enumerate(fits):
        if "weight" in fit.stats:
            raise OptionError(
                f"shard {number} was sampled by {fit.meta['sampler_name']}, whose draws have weights; combinations need plain "
                "draws. Use another sampler for the shards."
            )
    return SubPosteriors(np.stack([p[:shortest] for p in parts]), convention, np.array([effective_size(f) for f in fits]))
