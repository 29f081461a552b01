"""Rows that no machine holds: partitions on disk, and full passes over them on a Dask cluster or on threads.

A pass visits every partition where it can be read, and returns sums: value, gradient and Hessian of the log-likelihood, which
give the mode, the Laplace fit and the sum of all Taylor proxies; the largest whitened norm; and the totals of the certified
bounds, class by class, from which the rows per iteration of exact minibatch would read are known before any is sampled. Sums are
added in the order of the partitions, whatever worker was first. No process holds more than one packed partition at a time.
"""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tallbayes import models
from tallbayes.bounds.catalogue import half_octave
from tallbayes.bounds.pair_functions import OVERFLOW, angular, psi
from tallbayes.data import records as packed
from tallbayes.data.dataset import Dataset, _float_type
from tallbayes.data.file_partitions import files_of, plan_of
from tallbayes.data.moments import Moments
from tallbayes.data.plan import plan_names
from tallbayes.data.split import exchangeability_doubts, merge_moments
from tallbayes.engine import ledger, passes
from tallbayes.errors import DataError, ModelError, OptionError
from tallbayes.mode.laplace import Mode
from tallbayes.mode.search import TOLERANCE, announce, collinear_sentences, converge, mode_of_part, start
from tallbayes.model import Model
from tallbayes.priors import Prior, PriorTerms
from tallbayes.progress import Progress
from tallbayes.shards.partition_cache import forget, most_held, partition, release
from tallbayes.shards.pool import connect, gather

CLASSES = 41  # half-octaves of the whitened norm, as in bound T9
_CHUNK = 1 << 16


class RemoteDataset(Dataset):
    """Names, moments and number of rows that are not here."""

    @property
    def n(self) -> int:
        """Number of rows in all partitions."""
        return self.moments.n

    @property
    def y(self) -> np.ndarray:
        """Nothing: responses were checked where they are."""
        return np.empty(0)


class _AbsentRows:
    """In the place of rows: whatever would read them says where they are."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ModelError(
            "the rows of this model are in partitions; use the passes of tallbayes.shards.Partitions, or read the rows on one machine "
            "with tallbayes.read(..., memory='disk')."
        )


@dataclass(frozen=True)
class ModelSpec:
    """What a worker needs to know of a model, in types that travel."""

    plan: dict[str, Any]
    dtype: str
    family: str
    options: dict[str, Any]

    def model(self, data: Dataset, prior: Prior, terms: PriorTerms | None = None) -> Model:
        """The model over the rows of a partition; `terms` are those of a prior whose scales come from all rows."""
        model = models.build(self.family, data, prior, **self.options)
        if terms is not None:
            model.prior_terms = terms
        return model


@dataclass(frozen=True)
class Totals:
    """Sums of certified bounds over rows, in classes of the whitened norm."""

    counts: np.ndarray
    radius: np.ndarray
    local: np.ndarray  # sum of |f''| |a|^3 / 6
    everywhere: np.ndarray  # sum of sup |f'''| |a|^3 / 6
    bounded: bool

    def rate(self, white: np.ndarray, other: np.ndarray) -> float:
        """Rows that exact minibatch would read for a pair of whitened positions, under bound T9 or T6 class by class."""
        g, reach = float(angular(white, other)), max(float(np.linalg.norm(white)), float(np.linalg.norm(other)))
        total = 0.0
        for k in np.flatnonzero(self.counts):
            steps = self.radius[k] * reach
            near = self.local[k] * float(psi(steps)) * g if steps <= OVERFLOW else np.inf
            total += min(near, self.everywhere[k] * g if self.bounded else np.inf)
        return total


@dataclass(eq=False)
class Partitions:
    """A model over partitions. Make one with `Partitions.open`; its methods are full passes.

    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> folder, rng = tempfile.mkdtemp(), np.random.default_rng(0)
    >>> for k in range(3):
    ...     x = rng.standard_normal(200)
    ...     y = (rng.random(200) < 1 / (1 + np.exp(-x))).astype(int)
    ...     pq.write_table(pa.table({"y": y, "x": x}), f"{folder}/{k}.parquet")
    >>> rows = Partitions.open(folder, "y ~ x")
    >>> rows
    Partitions(3 partitions, 600 rows, logistic, 2 parameters)
    >>> bool(0.5 < rows.find_mode(progress=False).reference[1] < 1.5)
    True
    """

    files: list[list[str]]
    spec: ModelSpec
    prior: Prior | None
    parts: list[Moments]
    identity: dict[str, Any]
    client: Any = None
    held: list[int] = field(default_factory=list)  # partitions that each task saw alive in its process, at most

    @classmethod
    def open(
        cls,
        paths: Any,
        formula: str | None = None,
        family: str = "logistic",
        prior: Prior | None = None,
        *,
        client: Any = None,
        partitions: int | None = None,
        family_options: dict[str, Any] | None = None,
        response: str | None = None,
        columns: Sequence[str] | None = None,
        offset: str | None = None,
        weights: str | None = None,
        dtype: str = "float64",
        progress: bool = False,
    ) -> Partitions:
        """Plan all partitions at once (levels and knots from one pass if the formula needs them), then check and count each.

        `paths` is a folder, a pattern or a list of files, one partition each unless `partitions` groups them.
        """
        options = dict(family_options or {})
        models.check_family(family, options)
        _float_type(dtype)
        client, files = connect(client), files_of(paths)
        groups = _group_files(files, partitions)
        plan, identity = gather(plan_of, [(files, formula, response, columns, offset, weights)], client, label="plan")[0]
        spec = ModelSpec(plan, dtype, family, options)
        results = gather(_survey, [(group, spec) for group in groups], client, label="partitions", progress=progress, workers=1)
        parts = [f[0] for f in results]
        largest = float(max(p.high[len(plan_names(plan))] for p in parts))
        for name, value in models.family_of({"family": family, "options": options}).row_options(largest).items():
            if options.get(name) is None:
                options[name] = value
        return cls(groups, spec, prior, parts, identity, client, [f[1] for f in results])

    def __post_init__(self) -> None:
        weakref.finalize(self, forget, repr(self.spec.plan))  # what passes kept in this process goes with the object

    def close(self) -> None:
        """Release the partition that this process, and every worker of the cluster, keeps for the next pass.

        Passes still work afterwards, and read again. `with Partitions.open(...) as rows:` closes at the end.
        """
        release(self.client)

    def __enter__(self) -> Partitions:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def n(self) -> int:
        """Number of rows."""
        return sum(p.n for p in self.parts)

    @cached_property
    def data(self) -> RemoteDataset:
        """What is known of the rows here."""
        plan, kind = self.spec.plan, np.dtype(self.spec.dtype)
        names = plan_names(plan)
        flags = (plan["offset"] is not None, plan["weights"] is not None)
        digest = hashlib.blake2b(json.dumps([self.identity, plan], sort_keys=True).encode(), digest_size=16).hexdigest()
        empty = np.empty((0, packed.width_of(len(names), kind)), kind)
        return RemoteDataset(empty, names, plan["response"], merge_moments(self.parts), *flags, None, {"plan": plan}, digest)

    @cached_property
    def model(self) -> Model:
        """The model without its rows: names, prior and moments; whatever needs rows says so."""
        model = models.build(self.spec.family, self.data, self.prior, **self.spec.options)
        model.rows = _AbsentRows()
        return model

    def exchangeability_doubts(self) -> list[str]:
        """What speaks against the partitions being random parts of the rows: empty if nothing does."""
        return exchangeability_doubts(self.parts)

    def total_value(self, theta: np.ndarray) -> float:
        """Log-likelihood of all rows: one pass."""
        return float(sum(self._over(_value, np.asarray(theta, float))))

    def total_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Log-likelihood of all rows and its gradient: one pass."""
        results = self._over(_gradient, np.asarray(theta, float))
        return float(sum(f[0] for f in results)), np.sum([f[1] for f in results], axis=0)

    def total_hessian(self, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Log-likelihood of all rows, its gradient and its Hessian: one pass."""
        results = self._over(_hessian, np.asarray(theta, float))
        return (
            float(sum(f[0] for f in results)),
            np.sum([f[1] for f in results], axis=0),
            np.sum([f[2] for f in results], axis=0),
        )

    def find_mode(self, tolerance: float = TOLERANCE, progress: bool = True) -> Mode:
        """The posterior mode by passes over all partitions, started from the mode of the first."""
        with Progress("finding the mode", None, progress) as bar:
            first, read = gather(
                _mode_of, [(self.files[0], self.spec, self.prior, self.model.prior_terms)], self.client, label="mode"
            )[0]
            theta = start(self.model) if first is None else first
            mode = converge(self.model, self.total_hessian, theta, tolerance, bar)
        mode.evaluations += read
        announce(mode, collinear_sentences(mode))
        return mode

    def largest_norm(self, mode: Mode) -> float:
        """Largest |L'x_i| of all rows: one pass."""
        return float(max(self._over(_largest, mode.factor)))

    def totals(self, mode: Mode, largest: float | None = None) -> Totals:
        """Totals of the bounds of exact minibatch: one pass, and one for the largest norm if it is not given."""
        self._require_bound()
        top = self.largest_norm(mode) if largest is None else largest
        results = self._over(_totals, mode.reference, mode.factor, top)
        counts, local, everywhere = (np.sum([f[k] for f in results], axis=0) for k in (0, 2, 3))
        return Totals(counts, np.max([f[1] for f in results], axis=0), local, everywhere, all(f[4] for f in results))

    def take(self, index: Any) -> Dataset:
        """Rows by their numbers, counted over the partitions in order: reads every partition that holds one of them."""
        index = np.asarray(index, np.int64)
        ends = np.cumsum([p.n for p in self.parts])
        if index.size == 0 or index.min() < 0 or index.max() >= ends[-1]:
            raise DataError(f"rows are numbered from 0 to {ends[-1] - 1:,}; ask for at least one of them.")
        part = np.searchsorted(ends, index, side="right")
        holders = np.unique(part)
        inside = [index[part == k] - (ends[k] - self.parts[k].n) for k in holders]
        jobs = [(self.files[k], self.spec, rows) for k, rows in zip(holders, inside, strict=True)]
        results = gather(_rows, jobs, self.client, label="rows")
        out, kind = packed.empty(index.size, self.data.d, np.dtype(self.spec.dtype)), self.data
        for k, records in zip(holders, results, strict=True):
            out[part == k] = records
        moments = Moments(kind.moments.names)
        moments.add(out[:, : kind.d + 3].astype(float))
        return Dataset(out, kind.columns, kind.response, moments, kind.has_offset, kind.has_weights, None, dict(kind.recipe))

    def _require_bound(self) -> None:
        model = self.model
        if model.predictors != 1 or model.nuisances:
            raise ModelError(
                f"there are no class totals for this {model.family.name} model; read its rows on one machine for exact minibatch."
            )

    def _over(self, task: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Results of a task on every partition, in their order."""
        jobs = [(files, self.spec, self.prior, *arguments) for files in self.files]
        results = gather(_on_partition, [(task, *job) for job in jobs], self.client, label="partitions", workers=1)
        self.held += [f[1] for f in results]
        return [f[0] for f in results]

    def __repr__(self) -> str:
        return f"Partitions({len(self.files)} partitions, {self.n:,} rows, {self.spec.family}, {self.model.dim} parameters)"


def _group_files(files: list[str], count: int | None) -> list[list[str]]:
    if count is None or count == len(files):
        return [[f] for f in files]
    if not isinstance(count, int | np.integer) or not 1 <= count <= len(files):
        raise OptionError(
            f"{len(files)} files cannot make {count} partitions: a file is the smallest. Give at most {len(files)}, or write more files "
            "with tallbayes.shards.repartition."
        )
    return [list(part) for part in np.array_split(np.asarray(files, dtype=object), count)]


def _cores() -> int | None:
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


def _survey(files: list[str], spec: ModelSpec) -> tuple[Moments, int]:
    """Moments of a partition, whose responses suit the family and whose rows may be split."""
    with partition(files, spec.plan, spec.dtype) as data:
        require_exchangeable_rows(spec.model(data, models.priors.normal(1.0)))
        return data.moments, most_held()


def _on_partition(
    task: Callable[..., Any], files: list[str], spec: ModelSpec, prior: Prior | None, *arguments: Any
) -> tuple[Any, int]:
    with partition(files, spec.plan, spec.dtype) as data:
        rows = spec.model(
            data, models.priors.normal(1.0)
        ).rows  # passes are over likelihoods; the prior is added once, elsewhere
        return task(rows, *arguments), most_held()


def _value(rows: Any, theta: np.ndarray) -> float:
    return passes.total_value(rows, theta, _cores())


def _gradient(rows: Any, theta: np.ndarray) -> tuple[float, np.ndarray]:
    return passes.total_gradient(rows, theta, _cores())


def _hessian(rows: Any, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    return passes.total_hessian(rows, theta, _cores())


def _largest(rows: Any, factor: np.ndarray) -> float:
    return float(passes.whitened_norms(rows, factor, _cores()).max())


def _totals(rows: Any, reference: np.ndarray, factor: np.ndarray, largest: float) -> tuple[Any, ...]:
    def work(first: int, last: int) -> tuple[Any, ...]:
        norm, curvature, supremum = passes.survey(rows, first, last, factor, reference)
        octave, cube, finite = half_octave(norm, max(largest, 1e-300)), norm**3 / 6.0, np.isfinite(supremum)
        radius = np.zeros(CLASSES)
        np.maximum.at(radius, octave, norm)
        sums = [
            np.bincount(octave, w, CLASSES)
            for w in (np.ones(norm.size), curvature * cube, np.where(finite, supremum, 0.0) * cube)
        ]
        return sums[0], radius, sums[1], sums[2], bool(finite.all())

    results = passes.over_ranges(passes.row_count(rows), _CHUNK, work, _cores())
    sums = [np.sum([f[k] for f in results], axis=0) for k in (0, 2, 3)]
    return sums[0], np.max([f[1] for f in results], axis=0), sums[1], sums[2], all(f[4] for f in results)


def _rows(files: list[str], spec: ModelSpec, index: np.ndarray) -> np.ndarray:
    with partition(files, spec.plan, spec.dtype) as data:
        return np.array(data.records[index])


def _mode_of(files: list[str], spec: ModelSpec, prior: Prior | None, terms: PriorTerms) -> tuple[np.ndarray | None, int]:
    """The mode of one partition under the whole prior, None where it has none of its own; and the evaluations of the search."""
    theta = None
    with partition(files, spec.plan, spec.dtype) as data, ledger.counting() as account, suppress(ModelError):
        model = spec.model(data, models.priors.weakly_informative() if prior is None else prior, terms)
        theta = mode_of_part(model, _cores(), 1e-3).reference
    return theta, account.rows


def find_partitioned_mode(
    paths: Any, formula: str | None = None, *, client: Any = None, progress: bool = True, **options: Any
) -> Mode:
    """The posterior mode of rows in partitions; the options are those of `Partitions.open`."""
    with Partitions.open(paths, formula, client=client, progress=progress, **options) as rows:
        return rows.find_mode(progress=progress)
