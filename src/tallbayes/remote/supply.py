"""Row streams of the chains: drawn where the rows live, a block at a time, used once and in order, refilled before they run dry.

Block b of stream s of chain c has a fixed number of rows. How many come from each partition is one multinomial draw by the totals of
the stream there; the partition draws them i.i.d. by weight; one uniform shuffle puts them in order, without which the law would be
wrong. All three are seeded by (c, s, b), and the second by the partition too, so the rows of a stream are the same whatever the
workers, their failures and the time of a refill.

A chain that meets the end of a stream, or a decision that needs all rows, stops in the middle of an iteration. The chunk is then run
again from its start, with the same random numbers, once the rows or the answer are here: the count of candidates and the rows that
were looked at are the same, and nothing is redrawn, truncated or used twice.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.bounds.bound import DRAW, TOTAL, Bound, certificate_of
from tallbayes.bounds.slopes import slope_rate
from tallbayes.bounds.streamed import Reservoir, StreamedNumbers, stream_rates
from tallbayes.bounds.tables import rate_count, total_rate
from tallbayes.contract import Setup, advance
from tallbayes.data import records as packed
from tallbayes.engine.random_rows import Scheme, original_scheme
from tallbayes.engine.rows import OPEN
from tallbayes.engine.rows_elsewhere import answered, elsewhere, open_questions
from tallbayes.errors import ModelError
from tallbayes.model import Model
from tallbayes.pointers import numbers_of
from tallbayes.priors import log_prior_of
from tallbayes.remote.partitions import Partitions
from tallbayes.remote.row_weights import Request, Weighting
from tallbayes.schemes.poisson_minibatch import dominating
from tallbayes.streams import Stream, generator
from tallbayes.target import SIZE, STATUS, STOP, WAITING, Target, compilable, counters

PAIRS = 200  # of Laplace draws on which the length of streams is predicted
SPARE = 4.0  # rows of a stream beyond its prediction, and standard deviations
LOW = 0.1  # share of a block that is left when the next one is sent for
MOST_CANDIDATES = 1 << 20  # of a decision: beyond, a pass over all rows moves less
MOST_PASSES = 1000  # decisions on all rows that a run may be predicted to need
ANSWERS = 64  # log-likelihoods of all rows that a chain remembers
MOST_BLOCK = 100_000  # rows of a block of a sampler that reads a fixed number per iteration
PILOT = 1 << 19  # the number of a chain that is none
AHEAD = 0.1  # time for which the rates of a path are bounded, about


NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Demand:
    """What a run is expected to need."""

    blocks: np.ndarray  # rows of a block of each stream
    full_reads: float = 0.0  # decisions of a chain on all rows
    rows: int = 0  # in all, of a chain, where that is more than a block

    @property
    def total(self) -> int:
        """Rows that a chain will be sent."""
        return max(self.rows, int(self.blocks.sum()))


def predict(setup: Setup, sums: np.ndarray, iterations: int, seed: int) -> Demand:
    """Rows of each stream and decisions on all rows, from pairs of Laplace draws; the first stage spares a part of them."""
    policy: Any = setup.policy
    if not hasattr(setup.proxy, "bound"):
        total = policy.rows_drawn(iterations)
        return Demand(np.array([min(total, MOST_BLOCK)]), rows=total)
    if hasattr(policy, "expected_time"):
        return _predict_events(setup, sums, policy.expected_time(iterations), seed)
    bound, n = setup.proxy.bound, setup.model.data.n
    rate = policy.options(policy.begin(), True).rate
    pairs = generator(seed, Stream.STREAM_DEMAND).standard_normal((PAIRS, 2, setup.model.coordinates))
    rows, full, rates = np.zeros(sums.size), 0, np.zeros(rate_count(bound))
    for white, other in pairs:
        part = np.zeros(sums.size)
        total = total_rate(bound, white, other, rates)
        expected = dominating(rate, total)
        if not expected < min(n, MOST_CANDIDATES):
            full += 1
        elif total > 0.0:
            stream_rates(bound, rates, total, part)
            rows += part * (expected / total)
    return Demand(_blocks(rows * (iterations / PAIRS), sums), full / PAIRS * iterations)


def _predict_events(setup: Setup, sums: np.ndarray, time: float, seed: int) -> Demand:
    """The same for a process with candidate rows at the rate 3 sqrt(d) sum_i lambda_i |w|^2, at Laplace draws."""
    bound, d = setup.proxy.bound, setup.model.dim
    rows, rates = np.zeros(sums.size), np.zeros(rate_count(bound))
    for white in generator(seed, Stream.STREAM_DEMAND).standard_normal((PAIRS, d)):
        square, part = float(white @ white), np.zeros(sums.size)
        total = slope_rate(bound, float(np.sqrt(square)) + AHEAD * float(np.sqrt(d)), rates)
        if total > 0.0:
            stream_rates(bound, rates, total, part)
            rows += part * (3.0 * np.sqrt(d) * square)
    return Demand(_blocks(rows * (time / PAIRS), sums))


def _blocks(rows: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Rows of a block of each stream, from what is expected of it."""
    return np.where(sums > 0.0, np.ceil(1.2 * rows + SPARE * np.sqrt(rows) + SPARE), 0.0).astype(np.int64)


def _source(proxy: Any) -> Any:
    """The part of a proxy that draws rows, as it was made: a bound or a scheme."""
    return certificate_of(proxy.bound) if hasattr(proxy, "bound") else original_scheme(proxy.scheme)


def _with_reservoir(proxy: Any, reservoir: Reservoir) -> Any:
    """A proxy that draws its rows from another reservoir."""
    name, source = "bound" if hasattr(proxy, "bound") else "scheme", _source(proxy)._replace(reservoir=reservoir)
    compiled = getattr(proxy, name)
    if isinstance(compiled, Bound | Scheme):  # the functions stay
        source = compiled._replace(numbers=numbers_of(source))
    return proxy._replace(**{name: source})


class StreamSupply:
    """The streams of all chains, as far as they are here."""

    def __init__(
        self, partitions: Partitions, weighting: Weighting, sums: np.ndarray, blocks: np.ndarray, seed: int, chains: int
    ) -> None:
        self.partitions, self.weighting, self.sums = partitions, weighting, sums
        self.sizes, self.seed = blocks, seed
        self.held: dict[tuple[int, int], dict[int, tuple[np.ndarray, np.ndarray]]] = {}  # blocks by chain and stream
        self.versions = dict.fromkeys(range(chains), 0)
        self.positions: dict[int, np.ndarray] = {}
        self.built: dict[int, int] = {}
        self.kept: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # numbers and records of older rows that a chain uses
        self.notes: dict[str, Any] = {"rows": 0, "bytes": 0, "passes": 0, "full_reads": 0, "evals": 0}
        self._lock, self._pass = threading.Lock(), threading.Lock()
        self._pool = ThreadPoolExecutor(1)
        self._refill: Future[None] | None = None

    def target(self, model: Model, proxy: Any, number: int, asked: tuple[str, ...] = (TOTAL, DRAW)) -> Target:
        """A target without rows yet. Positions of the streams follow the counters, so that checkpoints keep them."""
        counters = np.zeros(SIZE + self.sizes.size, np.int64)
        self.positions[number] = counters[SIZE:]
        dim, n = model.coordinates, model.data.n
        records = packed.empty(1, model.data.d, np.dtype(self.partitions.spec.dtype))
        kept = isinstance(_source(proxy), StreamedNumbers)
        rows = elsewhere(model.rows_over(records), n, min(n, MOST_CANDIDATES), dim, kept)
        none = np.zeros(self.sizes.size, np.int64)
        reservoir = Reservoir(np.zeros(1), none, none.copy(), none.copy(), counters[SIZE:])
        return Target(rows, log_prior_of(model.prior_terms), compilable(_with_reservoir(proxy, reservoir), asked), counters)

    def refreshed(self, number: int, target: Target, reach: np.ndarray, using: np.ndarray = NONE) -> Target:
        """The target with every row up to position `reach` of the streams, those before it whose numbers are in use, and those that
        have come since."""
        reservoir = _source(target.proxy).reservoir
        self._require(number, reservoir.position, reach, using)
        if self._refill is not None and self._refill.done():
            self._refill.result()  # raises what a refill met
        low = reservoir.last - reservoir.position < LOW * self.sizes
        if low.any() and (self._refill is None or self._refill.done()):
            self._refill = self._pool.submit(self._fetch_wanted)
        with self._lock:
            if self.built.get(number) == self.versions[number] and (reservoir.first <= reservoir.position).all():
                return target
            self.built[number] = self.versions[number]
            return self._rebuilt(number, target, using)

    def _rebuilt(self, number: int, target: Target, using: np.ndarray) -> Target:
        position = _source(target.proxy).reservoir.position
        base, first, last = (np.zeros(self.sizes.size, np.int64) for _ in range(3))
        parts: list[tuple[np.ndarray, np.ndarray]] = []
        numbers = [self._keep(number, using, position)]
        if numbers[0].size:
            parts.append((self.kept[number][1], np.zeros(numbers[0].size)))
        at = numbers[0].size
        for s in np.flatnonzero(self.sizes):
            blocks = self.held.get((number, int(s)), {})
            block = int(position[s] // self.sizes[s])
            for old in [b for b in blocks if b < block]:
                del blocks[old]  # every row of it is spent
            base[s], first[s], last[s] = at, block * self.sizes[s], block * self.sizes[s]
            while block in blocks:
                parts.append(blocks[block])
                numbers.append(block * self.sizes[s] + np.arange(self.sizes[s]))
                last[s] += self.sizes[s]
                at += int(self.sizes[s])
                block += 1
        d = self.partitions.data.d
        records = packed.empty(max(1, at), d, np.dtype(self.partitions.spec.dtype))
        weight = np.zeros(max(1, at))
        if parts:
            records[:, : d + 3] = np.concatenate([p[0] for p in parts])
            weight[:] = np.concatenate([p[1] for p in parts])
        reservoir = Reservoir(weight, base, first, last, position)
        rows = target.rows._replace(records=records)
        if parts and isinstance(_source(target.proxy), StreamedNumbers):
            rows = rows._replace(numbers=np.concatenate(numbers))
        return target._replace(rows=rows, proxy=_with_reservoir(target.proxy, reservoir))

    def _before(self, using: np.ndarray, position: np.ndarray) -> np.ndarray:
        """The numbers in use that lie before the block of a position."""
        return np.unique(using[using < position[0] // self.sizes[0] * self.sizes[0]]) if using.size else NONE

    def _keep(self, number: int, using: np.ndarray, position: np.ndarray) -> np.ndarray:
        """Keep the rows in use whose blocks are about to go, and no others; returns their numbers."""
        wanted = self._before(using, position)
        if wanted.size or number in self.kept:
            before, records = self.kept.get(number, (NONE, np.empty((0, 0))))
            blocks, size = self.held[number, 0], self.sizes[0]
            places = dict(zip(before.tolist(), records, strict=True))
            found = [places[w] if w in places else blocks[w // size][0][w % size] for w in wanted.tolist()]
            self.kept[number] = wanted, np.array(found)
        return wanted

    def _missing(
        self, number: int, position: np.ndarray, reach: np.ndarray, using: np.ndarray = NONE
    ) -> list[tuple[int, int, int]]:
        """Blocks (chain, stream, block) between two positions, and of rows in use, that are not here."""
        with self._lock:
            lost = np.setdiff1d(self._before(using, position), self.kept.get(number, (NONE,))[0])
            old = np.unique(lost // self.sizes[0]).tolist() if lost.size else []
            return [(number, 0, block) for block in old if block not in self.held.get((number, 0), {})] + [
                (number, int(s), block)
                for s in np.flatnonzero(self.sizes)
                for block in range(int(position[s] // self.sizes[s]), int(reach[s] // self.sizes[s]) + 1)
                if block not in self.held.get((number, int(s)), {})
            ]

    def _wanted(self) -> list[tuple[int, int, int]]:
        """Blocks that chains have reached and the next ones of streams that run low."""
        wanted = []
        for number, position in self.positions.items():
            ahead = position + (LOW * self.sizes).astype(np.int64)
            wanted += self._missing(number, position, ahead)
        return wanted

    def _require(self, number: int, position: np.ndarray, reach: np.ndarray, using: np.ndarray) -> None:
        """Wait until the rows between two positions, and those in use, are here; one pass serves all chains."""
        if self._missing(number, position, reach, using):
            with self._pass:
                if missing := self._missing(number, position, reach, using):
                    self._fetch(list(dict.fromkeys([*missing, *self._wanted()])))

    def block(self, number: int, stream: int, block: int) -> tuple[np.ndarray, np.ndarray]:
        """Records and weights of a block: a pass, if they are not here."""
        if block not in self.held.get((number, stream), {}):
            with self._pass:
                self._fetch([(number, stream, block)])
        return self.held[number, stream][block]

    def _fetch_wanted(self) -> None:
        with self._pass:
            if wanted := self._wanted():
                self._fetch(wanted)

    def _fetch(self, wanted: list[tuple[int, int, int]]) -> None:
        """Draw blocks in one pass, shuffle them, and keep them."""
        requests: list[list[Request]] = [[] for _ in range(self.sums.shape[0])]
        for chain, stream, block in wanted:
            for part, count in enumerate(self._allocation(chain, stream, block)):
                if count:
                    requests[part].append(Request(chain, stream, block, int(count)))
        results = self.partitions.draw(self.weighting, requests, self.seed)
        pieces: dict[tuple[int, int, int], list[tuple[np.ndarray, np.ndarray]]] = {key: [] for key in wanted}
        for asked, sent in zip(requests, results, strict=True):
            for request, piece in zip(asked, sent, strict=True):
                pieces[request.chain, request.stream, request.block].append(piece)
                self.notes["rows"] += piece[1].size
                self.notes["bytes"] += piece[0].nbytes + piece[1].nbytes
        self.notes["passes"] += 1
        self.notes["evals"] += sum(self.partitions.parts[k].n for k, asked in enumerate(requests) if asked)
        with self._lock:
            for (chain, stream, block), parts in pieces.items():
                order = self._order(chain, stream, block)
                records, weight = (np.concatenate([p[k] for p in parts])[order] for k in (0, 1))
                self.held.setdefault((chain, stream), {})[block] = records, weight
                self.versions[chain] = self.versions.get(chain, 0) + 1

    def _allocation(self, chain: int, stream: int, block: int) -> np.ndarray:
        """Rows of a block from each partition: multinomial, by the totals of the stream there."""
        share = self.sums[:, stream] / self.sums[:, stream].sum()
        return generator(self.seed, Stream.STREAM_COUNTS, chain, stream, block).multinomial(self.sizes[stream], share)

    def _order(self, chain: int, stream: int, block: int) -> np.ndarray:
        return generator(self.seed, Stream.STREAM_ORDER, chain, stream, block).permutation(int(self.sizes[stream]))

    def answered(self, target: Target, dim: int) -> Target:
        """The target with the log-likelihood of all rows where it was asked for: one pass."""
        asked = open_questions(target.rows, dim)
        values = self.partitions.total_values(asked)
        self.notes["full_reads"] += len(values)
        self.notes["evals"] += len(values) * self.partitions.n
        return target._replace(rows=answered(target.rows, asked, values, ANSWERS))


@dataclass(frozen=True, eq=False)
class StreamedSetup(Setup):
    """A setup whose chains read streams."""

    supply: Any = None

    def target(self, number: int = 0) -> Target:
        """A target for one chain, with its own streams."""
        return self.supply.target(self.model, self.proxy, number, self.asked)

    def advance(
        self,
        number: int,
        rng: np.random.Generator,
        target: Target,
        options: Any,
        state: Any,
        fresh: bool,
        theta: np.ndarray,
        info: np.ndarray,
        thin: int,
    ) -> tuple[Any, int, Target]:
        """`advance`; again from its start, with the same random numbers, each time that rows or an answer were missing."""
        begun, counted = rng.bit_generator.state, target.counters.copy()
        reach, using = counted[SIZE:], state.rows.indices if isinstance(_source(target.proxy), StreamedNumbers) else NONE
        while True:
            target = self.supply.refreshed(number, target, reach, using)
            after, made = advance(rng, target, options, state, fresh, theta, info, thin)
            reservoir = _source(target.proxy).reservoir
            if target.counters[STATUS] != WAITING and (reservoir.position <= reservoir.last).all():
                return after, made, target
            reach = target.counters[SIZE:].copy()
            if target.rows.answers[OPEN] > 0.0:
                target = self.supply.answered(target, self.model.coordinates)
            rng.bit_generator.state = begun
            target.counters[:STOP], target.counters[SIZE:] = counted[:STOP], counted[SIZE:]  # a request to stop stays
            info[:] = 0.0


@dataclass(frozen=True, eq=False)
class RowlessSetup(Setup):
    """A setup whose chains read no row, because sums of a pass describe the likelihood."""

    def target(self, number: int = 0) -> Target:
        """A target over a record that stands for the kind of the rows."""
        rows = self.model.rows_over(packed.empty(1, self.model.data.d, self.model.data.records.dtype))
        return Target(rows, log_prior_of(self.model.prior_terms), compilable(self.proxy, self.asked), counters())


def open_streams(setup: Setup, description: dict[str, Any]) -> Setup:
    """The setup of a run over partitions, with streams for its chains, if they read rows; refused if they would move too much.

    The sizes of blocks are kept in the description of the run, so that a resumed run has the same streams.
    """
    partitions: Partitions = setup.model.partitions
    if not hasattr(_source(setup.proxy), "reservoir"):
        return RowlessSetup(setup.model, setup.policy, setup.proxy, setup.why, setup.notes, setup.asked)
    assert partitions.stream_sums is not None
    weighting, sums = partitions.stream_sums
    if description.get("blocks") is None:
        iterations = description["warmup"] + description["draws"] * description["thin"]
        demand = predict(setup, sums.sum(0), iterations, description["seed"])
        _refuse_absurd(setup.model, demand, description["chains"])
        description |= {"blocks": demand.blocks.tolist(), "stream_rows": demand.total}
    blocks = np.asarray(description["blocks"], np.int64)
    supply = StreamSupply(partitions, weighting, sums, blocks, description["seed"], description["chains"])
    predicted = description.get("stream_rows", int(blocks.sum()))
    supply.notes["predicted_bytes"] = predicted * _row_bytes(setup.model) * description["chains"]
    notes = {**setup.notes, "streams": supply.notes}
    return StreamedSetup(setup.model, setup.policy, setup.proxy, setup.why, notes, setup.asked, supply)


def pilot_target(partitions: Partitions, proxy: Any, count: int, seed: int) -> Target:
    """A target with one stream of `count` rows, for measurements before the chains."""
    assert partitions.stream_sums is not None
    weighting, sums = partitions.stream_sums
    supply = StreamSupply(partitions, weighting, sums, np.array([count]), seed, 0)
    target = supply.target(partitions.model, proxy, PILOT)
    return supply.refreshed(PILOT, target, np.zeros(1, np.int64))


def _row_bytes(model: Model) -> int:
    """Of a row that travels: columns, response, offset and weight, and the weight it was drawn with."""
    return (model.data.d + 3) * np.dtype(model.partitions.spec.dtype).itemsize + 8


def _refuse_absurd(model: Model, demand: Demand, chains: int) -> None:
    size, most = float(demand.total) * _row_bytes(model) * chains, model.partitions.most_bytes
    advice = (
        "Ask for fewer draws or chains, use fewer columns, read the rows on one machine with memory='disk', or, if they may not leave "
        "their place, use tallbayes.sample_shards."
    )
    if size > most:
        raise ModelError(
            f"the row streams of this run would move about {size / 1e9:.2g} GB ({demand.total:,} rows per chain), more than "
            f"most_bytes={most:.3g}. {advice}"
        )
    if demand.full_reads * chains > MOST_PASSES:
        raise ModelError(
            f"about {demand.full_reads * chains:,.0f} decisions of this run would need a pass over all partitions: the posterior is too "
            f"far from normal, or has too many columns for its rows. {advice}"
        )
