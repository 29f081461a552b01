"""Rows that no machine holds: partitions, and full passes over them on a Dask cluster or one at a time on this machine.

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
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from tallbayes import models
from tallbayes.bounds.pair_functions import OVERFLOW, angular, psi
from tallbayes.bounds.streamed import Reservoir, StreamedClasses, StreamedNumbers, StreamedScheme, StreamedSeparable
from tallbayes.bounds.tables import Angular, Cubic
from tallbayes.data import records as packed
from tallbayes.data.dataset import Dataset, _float_type
from tallbayes.data.moments import Moments
from tallbayes.data.plan import plan_names, row_flags
from tallbayes.data.response_functions import trials_column
from tallbayes.data.split import exchangeability_doubts, merge_moments
from tallbayes.diagnostics.subsample_pilot import Population
from tallbayes.engine import ledger
from tallbayes.errors import DataError, ModelError, warn
from tallbayes.mode.laplace import Mode
from tallbayes.mode.search import TOLERANCE, announce, collinear_sentences, converge, find_mode
from tallbayes.model import Model
from tallbayes.named_priors import PriorLike
from tallbayes.option_types import checked
from tallbayes.progress import Progress
from tallbayes.remote import partition_passes as tasks
from tallbayes.remote.absent_rows import AbsentRecords, AbsentRows, RemoteDataset
from tallbayes.remote.mode_start import proportional, sample_size, starting_point
from tallbayes.remote.partition_cache import forget, release
from tallbayes.remote.partition_passes import ModelSpec
from tallbayes.remote.partition_sources import handles_of, plan_of_partitions
from tallbayes.remote.pool import connect, gather
from tallbayes.remote.response_values import join_values
from tallbayes.remote.row_weights import PartTotals, Request, Weighting, bound_of, join_totals, norm_limit

MOST_BYTES = 1 << 30  # of row streams that a run may move


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

    files: list[Any]  # handles of the partitions: lists of paths, or objects
    spec: ModelSpec
    prior: PriorLike
    parts: list[Moments]
    fingerprints: list[str]
    client: Any = None
    held: list[int] = field(default_factory=list)  # partitions that each task saw alive in its process, at most
    most_bytes: float = MOST_BYTES
    sample: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))  # records for the first search for the mode
    passes: int = 1  # including the one that opened the partitions
    stream_sums: tuple[Weighting, np.ndarray] | None = (
        None  # of the last bound: total weight of every stream in every partition
    )
    _model: weakref.ref[Model] | None = None

    @classmethod
    @checked
    def open(
        cls,
        paths: Any,
        formula: str | None = None,
        family: str | None = None,
        prior: PriorLike = None,
        *,
        client: Any = None,
        partitions: int | None = None,
        family_options: dict[str, Any] | None = None,
        response: str | None = None,
        columns: Sequence[str] | None = None,
        offset: str | None = None,
        weights: str | None = None,
        dtype: str = "float64",
        most_bytes: float = MOST_BYTES,
        progress: bool = False,
    ) -> Partitions:
        """Plan all partitions at once (levels and knots from one pass if the formula needs them), then check and count each.

        `paths` is a folder, a pattern or a list of files, one partition each unless `partitions` groups them; or a Dask dataframe or
        bag, or a list of delayed values or tables. Empty partitions are left out. `most_bytes` is what row streams of a run may move.
        Without `family` the response must be 0 or 1, and the model is logistic; p(successes, trials) is binomial.
        """
        options = dict(family_options or {})
        assumed, family = family is None, models.family_name(family or "logistic")
        if assumed:
            models.check_assumed(options)
        models.check_family(family, options)
        _float_type(dtype)
        client = connect(client)
        groups = handles_of(paths, partitions, client)
        asked = (groups, formula, response, columns, offset, weights)
        named = all(isinstance(g, list) for g in groups)  # files are planned where they can be read
        plan, _ = gather(plan_of_partitions, [asked], client if named else None, label="plan")[0]
        if assumed and trials_column(plan) is not None:
            family = "binomial"
        spec = ModelSpec(plan, dtype, family, options, assumed=assumed)
        wanted = sample_size(len(plan_names(plan)), dtype, len(groups))
        jobs = [(group, spec, k, wanted) for k, group in enumerate(groups)]
        results = gather(tasks.survey_partition, jobs, client, label="partitions", progress=progress, workers=1)
        filled = [k for k, f in enumerate(results) if f.moments is not None]
        if not filled:
            raise DataError("all partitions are empty: there are no rows.")
        groups, results = [groups[k] for k in filled], [results[k] for k in filled]
        parts = [f.moments for f in results]
        sizes = [p.n for p in parts]
        if tasks.responses_decide(spec):
            spec = replace(spec, responses=join_values([f.values for f in results], sizes))
        prints, held, sample = [f.fingerprint for f in results], [f.held for f in results], [f.rows for f in results]
        made = cls(groups, spec, prior, parts, prints, client, held, most_bytes, proportional(sample, sizes))
        known, d = models.family_of({"family": family, "options": options}), made.data.d
        for name, value in known.row_options(float(made.data.moments.high[d]), made.data.intercept is not None).items():
            if options.get(name) is None:
                options[name] = value
        if spec.responses:
            for sentence in made.model.doubts:
                warn(sentence)
        return made

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
        digest = hashlib.blake2b(json.dumps([self.fingerprints, plan], sort_keys=True).encode(), digest_size=16).hexdigest()
        empty = np.empty((0, packed.width_of(len(names), kind)), kind).view(AbsentRecords)
        return RemoteDataset(
            empty, names, plan["response"], merge_moments(self.parts), *row_flags(plan), None, {"plan": plan}, digest
        )

    @property
    def model(self) -> Model:
        """The model without its rows: names, prior and moments; sums come from passes, and whatever needs single rows says so."""
        model = None if self._model is None else self._model()
        if model is None:
            model = self.spec.model(self.data.over(self), self.prior)
            model.rows = AbsentRows(self)
            self._model = weakref.ref(model)  # the model holds the partitions, not they it
        return model

    def exchangeability_doubts(self) -> list[str]:
        """What speaks against the partitions being random parts of the rows: empty if nothing does."""
        return exchangeability_doubts(self.parts)

    def total_value(self, theta: np.ndarray) -> float:
        """Log-likelihood of all rows: one pass."""
        return float(self.total_values(np.asarray(theta, float)[None])[0])

    def total_values(self, thetas: np.ndarray) -> np.ndarray:
        """Log-likelihoods of all rows at several points: one pass."""
        thetas = np.asarray(thetas, float)
        return np.sum(self._over(tasks.values, thetas, times=len(thetas)), axis=0)

    def total_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Log-likelihood of all rows and its gradient: one pass."""
        results = self._over(tasks.gradient, np.asarray(theta, float))
        return float(sum(f[0] for f in results)), np.sum([f[1] for f in results], axis=0)

    def total_hessian(self, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Log-likelihood of all rows, its gradient and its Hessian: one pass."""
        return _sum_hessians(self._over(tasks.hessian, np.asarray(theta, float)))

    def find_mode(self, tolerance: float = TOLERANCE, progress: bool = True, model: Model | None = None) -> Mode:
        """The posterior mode by passes over all partitions, two as a rule, started from the mode of a random sample.

        `model` is one with the same likelihood and another prior, such as that of coefficients whose scales are fixed.
        """
        target = self.model if model is None else model
        if target.unknown_scales:
            return find_mode(target, progress=progress)
        known: dict[bytes, Any] = {}

        def likelihood(theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
            key = theta.tobytes()
            if key not in known:
                known[key] = self.total_hessian(theta)
            value, gradient, hessian = known[key]
            return value, gradient.copy(), hessian.copy()

        with Progress("finding the mode", None, progress) as bar:
            theta, read = starting_point(target, self.sample, likelihood)
            mode = converge(target, likelihood, theta, tolerance, bar)
        mode.passes, mode.evaluations = len(known), len(known) * self.n + read
        announce(mode, collinear_sentences(mode))
        return mode

    def largest_norm(self, mode: Mode) -> float:
        """Largest |L'x_i| of all rows: one pass."""
        return float(max(self._over(tasks.largest_norm, mode.factor)))

    def totals(self, mode: Mode, largest: float | None = None) -> Totals:
        """Totals of the bounds of exact minibatch: one pass, and one for the largest norm if it is not given."""
        self._require_bound()
        top = self.largest_norm(mode) if largest is None else largest
        joined = join_totals(self.part_totals(Weighting("T9", mode.reference, mode.factor, top)), 2)
        local, everywhere = joined.sums.reshape(-1, 2).T
        return Totals(joined.counts, joined.radius, local, everywhere, bool(joined.finite[1]))

    def certify(self, mode: Mode, name: str = "auto") -> tuple[Any, str]:
        """The bound by which streams of rows are drawn, without rows yet, and its name: one pass."""
        model = self.model
        name = bound_of(model, name)
        top = norm_limit(self.data.moments, mode.factor) if name == "T9" else 1.0
        weighting = Weighting(name, mode.reference, np.ascontiguousarray(mode.factor), top)
        parts = self.part_totals(weighting)
        joined = join_totals(parts, weighting.tables)
        self.stream_sums = weighting, np.stack([p.sums for p in parts])
        none = np.zeros(weighting.streams, np.int64)
        reservoir = Reservoir(np.zeros(1), none, none.copy(), none.copy(), none.copy())
        if name == "T9":
            local, everywhere = (np.ascontiguousarray(t) for t in joined.sums.reshape(-1, 2).T)
            return StreamedClasses(joined.radius, local, everywhere, bool(joined.finite[1]), reservoir), name
        if not joined.finite[0]:
            raise ModelError(
                f"at least one row has no bound {name} of its third derivative. Read the rows on one machine and use a full-data sampler "
                "such as 'nuts', use a narrower prior, or rescale a column with very large values."
            )
        pair = Angular() if model.family.centred_third is None else Cubic()
        return StreamedSeparable(float(joined.sums[0]), pair, reservoir), name

    def uniform_scheme(self, mode: Mode, kept: bool = False) -> StreamedScheme | StreamedNumbers:
        """Rows of equal probability from a stream, without rows yet; `kept` for a sampler that keeps them over iterations."""
        weighting = Weighting("uniform", mode.reference, np.ascontiguousarray(mode.factor))
        self.stream_sums = weighting, np.array([[float(p.n)] for p in self.parts])
        none = np.zeros(1, np.int64)
        scheme = StreamedNumbers if kept else StreamedScheme
        return scheme(self.n, Reservoir(np.zeros(1), none, none.copy(), none.copy(), none.copy()))

    def population(self, mode: Mode, order: int, seed: int) -> Population:
        """Rows that stand for all in measurements before the chains: all of them if they are few, in one pass; otherwise two passes."""
        from tallbayes.remote.pilot_rows import draw_population

        return draw_population(self, mode, order, seed)

    def pilot_target(self, proxy: Any, count: int, seed: int) -> Any:
        """A target with a stream of `count` rows, for measurements before the chains: one pass."""
        from tallbayes.remote.supply import pilot_target

        return pilot_target(self, proxy, count, seed)

    def unit_scale_hessian(self, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """The sums that a Gaussian model with unknown sigma needs: one pass."""
        return _sum_hessians(self._over(tasks.unit_scale_hessian, np.asarray(theta, float)))

    def draw(self, weighting: Weighting, requests: list[list[Request]], seed: int) -> list[list[tuple[np.ndarray, np.ndarray]]]:
        """Rows and weights for the requests to each partition, drawn where they are: one pass over the partitions that have any."""
        busy = [k for k, wanted in enumerate(requests) if wanted]
        arguments = [(weighting, requests[k], seed, k) for k in busy]
        results = iter(self._over(tasks.requested_rows, parts=busy, each=arguments))
        return [next(results) if wanted else [] for wanted in requests]

    def part_totals(self, weighting: Weighting) -> list[PartTotals]:
        """Totals of the weights of every partition: one pass."""
        return self._over(tasks.totals, weighting)

    def take(self, index: Any) -> Dataset:
        """Rows by their numbers, counted over the partitions in order: reads every partition that holds one of them."""
        index = np.asarray(index, np.int64)
        ends = np.cumsum([p.n for p in self.parts])
        if index.size == 0 or index.min() < 0 or index.max() >= ends[-1]:
            raise DataError(f"rows are numbered from 0 to {ends[-1] - 1:,}; ask for at least one of them.")
        part = np.searchsorted(ends, index, side="right")
        holders = np.unique(part)
        inside = [index[part == k] - (ends[k] - self.parts[k].n) for k in holders]
        results = self._over(tasks.rows_at, parts=list(holders), each=[(rows,) for rows in inside])
        out, kind = packed.empty(index.size, self.data.d, np.dtype(self.spec.dtype)), self.data
        for k, records in zip(holders, results, strict=True):
            out[part == k] = records
        moments = Moments(kind.moments.names)
        moments.add(out[:, : kind.d + 3].astype(float))
        return Dataset(out, kind.columns, kind.response, moments, kind.has_offset, kind.has_weights, None, dict(kind.recipe))

    def _require_bound(self) -> None:
        model = self.model
        if model.several_indices:
            raise ModelError(
                f"there are no class totals for this {model.family.name} model; read its rows on one machine for exact minibatch."
            )

    def _over(
        self,
        task: Callable[..., Any],
        *arguments: Any,
        parts: list[int] | None = None,
        each: list[Any] | None = None,
        times: int = 1,
    ) -> list[Any]:
        """Results of a task on every partition, in their order; `parts` are those to visit, `each` their own arguments, `times` the
        evaluations of a row."""
        visited = list(range(len(self.files))) if parts is None else parts
        own = [()] * len(visited) if each is None else each
        jobs = [
            (task, self.files[k], self.spec, self.fingerprints[k], self.parts[k], *arguments, *more)
            for k, more in zip(visited, own, strict=True)
        ]
        results = gather(tasks.on_partition, jobs, self.client, label="partitions", workers=1)
        self.held += [f[1] for f in results]
        self.passes += 1
        ledger.record(times * sum(self.parts[k].n for k in visited))
        return [f[0] for f in results]

    def __repr__(self) -> str:
        return f"Partitions({len(self.files)} partitions, {self.n:,} rows, {self.spec.family}, {self.model.dim} parameters)"


def _sum_hessians(results: list[Any]) -> tuple[float, np.ndarray, np.ndarray]:
    return (
        float(sum(f[0] for f in results)),
        np.sum([f[1] for f in results], axis=0),
        np.sum([f[2] for f in results], axis=0),
    )


def find_partitioned_mode(
    paths: Any, formula: str | None = None, *, client: Any = None, progress: bool = True, **options: Any
) -> Mode:
    """The posterior mode of rows in partitions; the options are those of `Partitions.open`."""
    with Partitions.open(paths, formula, client=client, progress=progress, **options) as rows:
        return rows.find_mode(progress=progress)
