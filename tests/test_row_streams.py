"""Rows drawn where they live: the law of streams enumerated, their draws against the same rows in memory, and what is refused."""

import os
import shutil
import signal
from collections import Counter
from dataclasses import replace
from itertools import product
from math import comb

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import PRIOR
from scipy.stats import chi2, poisson
from support import logistic_arrays
from test_exact_minibatch import PROPOSALS, enumerated, first_ratio, pair_rates
from test_shards import cluster

import tallbayes as tb
from tallbayes.api import PARTITION_TOLERANCE
from tallbayes.auto import choose
from tallbayes.bounds.catalogue import certify
from tallbayes.bounds.streamed import StreamedClasses, StreamedSeparable
from tallbayes.bounds.tables import rate_count, total_rate
from tallbayes.data.file_partitions import packed_again, packed_source, plan_of_source
from tallbayes.data.sources import open_source
from tallbayes.diagnostics.subsample_pilot import SubsamplePilot
from tallbayes.engine import passes
from tallbayes.engine.random_rows import UniformRows
from tallbayes.errors import DataError, ModelError, OptionError, StoreError
from tallbayes.remote import mode_start, partition_cache, partition_passes, partitions, pilot_rows, pool, supply
from tallbayes.remote.response_values import join_values, response_values
from tallbayes.remote.row_weights import Request, Weighting, partition_model, weigh
from tallbayes.remote.supply import StreamSupply, open_streams
from tallbayes.results.cost import effective_sizes
from tallbayes.samplers import HMCECS, SGHMC, SGLD, SGNHT, ExactMinibatch, ZigZag
from tallbayes.schemes import stochastic_gradient
from tallbayes.schemes.minibatch_gradient import Noise, make_controls, minibatch_gradients
from tallbayes.schemes.poisson_minibatch import SMH, thin
from tallbayes.shards import Partitions
from tallbayes.target import SIZE
from tallbayes.testing import THRESHOLD
from tallbayes.testing.invariance import moment_scores

# Two iterations on one stream, every stream enumerated. Rows 0 and 1 are in one partition, row 2 in another; a stream has six rows, and
# rows after them come from the next block. Started at the posterior, the law after two iterations is the posterior.

LENGTH, HOME = 6, np.array([0, 0, 1])
SEQUENCES = np.array(list(product(range(3), repeat=LENGTH)))


# a handful of rows can be separated by a column; the enumeration does not mind
pytestmark = pytest.mark.filterwarnings("ignore:column 'x1' separates the response")


def stream_law(share, shuffled=True):
    """Probability of each sequence of rows: multinomial counts of partitions, i.i.d. within, then a uniform shuffle."""
    inside = (HOME[SEQUENCES] == 0).sum(1)
    mass = share[HOME == 0].sum()
    counts = np.array([comb(LENGTH, k) * mass**k * (1.0 - mass) ** (LENGTH - k) for k in range(LENGTH + 1)])
    within = (share / np.where(HOME == 0, mass, 1.0 - mass))[SEQUENCES].prod(1)
    if shuffled:
        return counts[inside] * within / np.array([comb(LENGTH, k) for k in range(LENGTH + 1)])[inside]
    sorted_rows = (np.diff(HOME[SEQUENCES], axis=1) >= 0).all(1)
    return np.where(sorted_rows, counts[inside] * within, 0.0)


def passing(case, i, j, begin, dry="refill"):
    """(counts, streams): probability of N candidates, and that none of those that i -> j reads from `begin` on is kept."""
    total, limit = pair_rates(case, i, j)
    reference = case.target.proxy.whitening.reference
    gap = passes.residuals_at(case.model.rows, np.arange(3), case.theta[i], case.theta[j], reference)
    keep = np.array([thin(SMH(), -gap[r] / limit[r], total)[0] for r in range(3)])
    fresh = 1.0 - keep @ (limit[:3] / total)  # of a row of the next block
    counts = np.arange(60)
    chance = poisson.pmf(counts, total)
    if dry == "redraw":  # counts that the stream cannot serve are drawn again
        chance = np.where(counts <= LENGTH - begin, chance, 0.0)
        chance /= chance.sum()
    passed = np.ones((counts.size, len(SEQUENCES)))
    for m in counts[1:]:
        at = begin + m - 1
        factor = (1.0 - keep)[SEQUENCES[:, at]] if at < LENGTH else (1.0 if dry == "truncate" else fresh)
        passed[m] = passed[m - 1] * factor
    return chance, passed


def law_after_two(case, law, reuse=False, dry="refill"):
    """The law of the state after two iterations from the posterior, two stages, rate smh."""
    proposals, states = PROPOSALS["symmetric"], range(4)
    first = {(i, j): np.exp(min(0.0, first_ratio(case, i, j))) for i in states for j in states}
    out = np.zeros((2, 4))
    second = {}

    def moves(i, begin):
        """Probability of moving from i to each other state, given the stream, averaged over counts."""
        if (i, begin) not in second:
            rows = {j: passing(case, i, j, begin, dry) for j in states if j != i}
            second[i, begin] = {j: proposals[i, j] * first[i, j] * (c @ p) for j, (c, p) in rows.items()}
        return second[i, begin]

    def arrive(i, begin, weight):
        """Add what the second iteration makes of mass `weight` (streams) at i."""
        gone = moves(i, begin)
        for j, chance in gone.items():
            out[1, j] += law @ (weight * chance)
        out[1, i] += law @ (weight * (1.0 - sum(gone.values())))

    for i in states:
        stay = np.full(len(SEQUENCES), case.law[i])
        for j in states:
            if j == i:
                continue
            chance, passed = passing(case, i, j, 0, dry)
            start = case.law[i] * proposals[i, j] * first[i, j]
            stay = stay - start
            for count in np.flatnonzero(chance > 1e-18):
                spent = 0 if reuse else min(int(count), LENGTH)
                arrive(j, spent, start * chance[count] * passed[count])
                arrive(i, spent, start * chance[count] * (1.0 - passed[count]))
        arrive(i, 0, stay)
    return out[1]


def test_a_stream_drawn_beforehand_keeps_the_posterior():
    case = enumerated("T6", 200)
    total, limit = pair_rates(case, 0, 1)
    share = limit[:3] / total
    law = stream_law(share)
    assert abs(law - share[SEQUENCES].prod(1)).max() < 1e-15  # multinomial, i.i.d. within, shuffled: i.i.d.
    assert np.abs(law_after_two(case, law) - case.law).max() < 1e-12


@pytest.mark.parametrize("mutant", ["reused", "in the order of partitions", "truncated", "count drawn again"])
def test_a_stream_in_error_is_caught(mutant):
    case = enumerated("T6", 200)
    total, limit = pair_rates(case, 0, 1)
    law = stream_law(limit[:3] / total, shuffled=mutant != "in the order of partitions")
    dry = {"truncated": "truncate", "count drawn again": "redraw"}.get(mutant, "refill")
    assert np.abs(law_after_two(case, law, reuse=mutant == "reused", dry=dry) - case.law).max() > 1e-4


# The code that draws streams, on three partitions of very different size and one that is empty.


def tables(X, y, sizes=(45, 0, 12, 3)):
    """Partitions of the rows as Arrow tables."""
    ends = np.cumsum(sizes)
    assert ends[-1] == len(y)
    columns = {f"x{k}": X[:, k] for k in range(1, X.shape[1])}
    whole = pa.table({"y": y, **columns})
    return [whole.slice(end - size, size) for end, size in zip(ends, sizes, strict=True)]


@pytest.fixture(scope="module")
def parts():
    return Partitions.open(tables(*logistic_arrays(60)), "y ~ x1", prior=PRIOR)


def streamed(parts, bound="T9", blocks=None, draws=1000, chains=1, seed=5, rate="mh-ss"):
    """A setup with streams, and its sampler."""
    sampler, mode = ExactMinibatch(bound=bound, rate=rate), parts.find_mode(progress=False)
    setup = sampler.setup(parts.model, mode, seed, False)
    description = {"warmup": 0, "draws": draws, "thin": 1, "seed": seed, "chains": chains}
    if blocks is not None:
        description["blocks"] = np.where(parts.stream_sums[1].sum(0) > 0, blocks, 0).tolist()
    return open_streams(setup, description), sampler, mode


def chi_square(counts, expected):
    """Tail probability of counts beside what is expected of them."""
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), counts.size - 1)


def test_blocks_are_allocated_and_drawn_by_their_law(parts):
    setup = streamed(parts, "T6", blocks=4)[0]
    source, sums = setup.supply, parts.stream_sums[1][:, 0]
    blocks, size = 3000, 4
    counts = np.array([source._allocation(0, 0, b) for b in range(blocks)])
    assert (counts.sum(1) == size).all()
    share = sums / sums.sum()
    assert chi_square(counts.sum(0), blocks * size * share) > 1e-6
    pairs = np.array([(c[:, None] * c).astype(float) - np.diag(c) for c in counts]).mean(0)  # E n_a (n_b - [a = b])
    assert pairs == pytest.approx(size * (size - 1) * np.outer(share, share), abs=0.4)
    source._fetch([(0, 0, b) for b in range(blocks)])
    first = np.concatenate([source.held[0, 0][b][0][:1] for b in range(blocks)])
    local = tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(60)), PRIOR)
    weighting = source.weighting
    weight = weigh(local, weighting, 0, 60)[0][0]
    row = [int(np.argmin(np.abs(local.data.records[:, 1] - r[1]))) for r in first]
    order = np.argsort(weight)[::-1]
    observed, expected = np.bincount(row, minlength=60)[order].astype(float), blocks * (weight / weight.sum())[order]
    tail = int(np.argmax(np.cumsum(expected[::-1]) > 10.0)) + 1  # rows that are hardly ever drawn count as one
    observed, expected = (np.append(v[:-tail], v[-tail:].sum()) for v in (observed, expected))
    assert chi_square(observed, expected) > 1e-6  # without the shuffle the first rows would be those of the first partition
    unshuffled = np.array([np.flatnonzero(c)[0] for c in counts])
    assert chi_square(np.bincount(unshuffled, minlength=3), blocks * share) < 1e-6
    records, given = source.held[0, 0][0]
    assert given == pytest.approx([weight[np.argmin(np.abs(local.data.records[:, 1] - r[1]))] for r in records], rel=1e-12)


def test_rows_of_a_block_depend_on_its_numbers_alone(parts):
    one, other = (streamed(parts, blocks=30, chains=3)[0].supply for _ in range(2))
    stream = int(np.flatnonzero(one.sizes)[0])
    one._fetch([(0, stream, 0), (2, stream, 5)])
    other._fetch([(2, stream, 5)])
    other._fetch([(1, stream, 5), (0, stream, 0)])
    for key, block in (((0, stream), 0), ((2, stream), 5)):
        for a, b in zip(one.held[key][block], other.held[key][block], strict=True):
            np.testing.assert_array_equal(a, b)
    assert (other.held[1, stream][5][0] != other.held[2, stream][5][0]).any()  # chains have rows of their own


@pytest.mark.parametrize("name", ["T6", "T9"])
def test_bounds_of_partitions_are_those_of_the_rows_in_memory(parts, small, name, monkeypatch):
    coarse, given = parts.certify(small.mode, name)
    largest = float(small.mode.norms.max())
    limit = partitions.norm_limit(parts.data.moments, small.mode.factor)
    assert largest <= limit < 3.0 * largest  # where classes begin
    monkeypatch.setattr(partitions, "norm_limit", lambda *given: largest)  # as in memory
    bound = parts.certify(small.mode, name)[0]
    assert given == name and isinstance(bound, StreamedClasses if name == "T9" else StreamedSeparable)
    local, rng = certify(small.mode, name)[0], np.random.default_rng(0)
    for scale in (0.1, 1.0, 3.0, 30.0):
        pair = scale * rng.standard_normal((2, 2))
        expected = total_rate(local, *pair, np.zeros(rate_count(local)))
        assert total_rate(bound, *pair, np.zeros(rate_count(bound))) == pytest.approx(expected, rel=1e-9)
        assert total_rate(coarse, *pair, np.zeros(rate_count(coarse))) == pytest.approx(expected, rel=0.3)


@pytest.mark.parametrize(
    "family, options, kind",
    [
        ("probit", {}, StreamedSeparable),
        ("softmax", {"classes": 3}, StreamedSeparable),
        ("negbin", {"size": 2.0}, StreamedClasses),
    ],
)
def test_other_families_have_the_bounds_of_the_rows_in_memory(family, options, kind):
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(80), rng.standard_normal(80)])
    y = rng.integers(0, 2 if family == "probit" else 3, 80).astype(float)
    rows = Partitions.open(tables(X, y, (50, 30)), "y ~ x1", family, PRIOR, family_options=options)
    model = tb.models.build(family, tb.Dataset.from_arrays(X, y, columns=["Intercept", "x1"]), PRIOR, **options)
    mode, remote = tb.find_mode(model, progress=False, tolerance=1e-9), rows.find_mode(1e-9, progress=False)
    assert remote.reference == pytest.approx(mode.reference, abs=1e-8)
    bound, local = rows.certify(remote)[0], certify(mode)[0]
    assert isinstance(bound, kind)
    pair = rng.standard_normal((2, model.dim))
    expected = total_rate(local, *pair, np.zeros(rate_count(local)))
    if family != "negbin":  # there one machine may prefer T6
        assert total_rate(bound, *pair, np.zeros(rate_count(bound))) == pytest.approx(expected, rel=1e-6)


EXPRESSION = {"expression": "y * eta - log1p(exp(eta))", "support": "binary"}


def by_response(X, y):
    """Partitions with responses of one kind each: none knows the certificate of all."""
    order = np.argsort(y, kind="stable")
    return tables(X[order], y[order], (20, 0, 12, 28))


@pytest.mark.slow
def test_expressions_have_one_certificate_for_all_partitions(small):
    rows = Partitions.open(by_response(*logistic_arrays(60)), "y ~ x1", "expression", PRIOR, family_options=EXPRESSION)
    mode = rows.find_mode(progress=False)
    assert mode.reference == pytest.approx(small.mode.reference, abs=1e-6)
    bound, local = rows.certify(mode)[0], certify(small.mode, "T9")[0]
    assert isinstance(bound, StreamedClasses)
    for pair in np.random.default_rng(0).standard_normal((5, 2, 2)):
        expected = total_rate(local, *pair, np.zeros(rate_count(local)))
        assert expected * 0.999 < total_rate(bound, *pair, np.zeros(rate_count(bound))) < expected * 1.1


def test_responses_of_all_partitions_are_known_to_an_expression():
    X, y = logistic_arrays(60)
    rows = Partitions.open(by_response(X, y), "y ~ x1", "expression", PRIOR, family_options=EXPRESSION)
    assert rows.spec.responses == (0.0, 1.0) and rows.model.family.certificate.self_concordant
    with partition_cache.partition(rows.files[0], rows.spec.plan, rows.spec.dtype) as first:
        pair = partition_model(rows.spec, first).member, rows.model.member
        assert set(first.y) == {0.0} and all(np.array_equal(a, b) for a, b in zip(*pair, strict=True))
    bad = [*tables(X, y, (45, 15)), pa.table({"y": [0.5], "x1": [0.0]})]
    with pytest.raises(DataError, match=r"partition 2: row 0: response 'y' is 0\.5, but support= needs 0 or 1"):
        Partitions.open(bad, "y ~ x1", "expression", PRIOR, family_options=EXPRESSION)
    many = [np.random.default_rng(k).standard_normal(1000) + k for k in range(3)]
    spec = replace(rows.spec, options={**EXPRESSION, "support": "real"})
    parts = [response_values(spec, tb.Dataset.from_arrays(np.ones((1000, 1)), v)) for v in many]
    joined = np.array(join_values(parts, [1000, 1000, 1000]))
    pooled = np.concatenate(many)
    assert joined[0] == pooled.min() and joined[-1] == pooled.max() and (np.diff(joined) >= 0).all()
    assert joined[64::64][:3] == pytest.approx(np.quantile(pooled, [0.25, 0.5, 0.75]), abs=0.05)


# Chains on streams.


def ends_of_chains(setup, sampler, starts, steps, rng):
    """Ends of short chains that use one stream after each other, and the rows they looked at."""
    options, target = setup.policy.options(setup.policy.begin(), True), setup.target(0)
    ends, looked = starts.copy(), 0
    info = np.zeros((steps, len(sampler.columns)))
    for row in ends:
        _, made, target = setup.advance(0, rng, target, options, setup.policy.blank(row), True, row[None, :], info, steps)
        assert made == 1
        looked += int(info[:, sampler.columns.index("rows")][info[:, sampler.columns.index("full_read")] == 0].sum())
    return ends, looked, target


def test_chains_on_streams_keep_the_posterior(parts, small):
    setup, sampler, _ = streamed(parts, blocks=700)
    rng = np.random.default_rng(3)
    ends, looked, target = ends_of_chains(setup, sampler, small.posterior.draw(rng, 8000), 3, rng)
    assert np.abs(moment_scores(ends, small.posterior)).max() < THRESHOLD
    assert target.counters[SIZE:].sum() == looked > 2000  # every row that was looked at is spent, and none twice
    assert setup.supply.notes["passes"] > 2


def test_a_tempered_target_on_streams_is_rejected(small):
    X, y = logistic_arrays(60)
    heavy = pa.table({"y": y, "x1": X[:, 1], "w": np.full(60, 1.6)})
    rows = Partitions.open([heavy.slice(0, 20), heavy.slice(20)], "y ~ x1", prior=PRIOR, weights="w")
    setup, sampler, _ = streamed(rows, blocks=3000)
    rng = np.random.default_rng(3)
    ends, _, _ = ends_of_chains(setup, sampler, small.posterior.draw(rng, 4000), 6, rng)
    assert np.abs(moment_scores(ends, small.posterior)).max() > THRESHOLD


def test_decisions_on_all_rows_are_passes(parts, small, monkeypatch):
    monkeypatch.setattr(supply, "MOST_CANDIDATES", 1)
    setup, sampler, _ = streamed(parts, blocks=500)
    rng = np.random.default_rng(4)
    ends, _, target = ends_of_chains(setup, sampler, small.posterior.draw(rng, 300), 3, rng)
    assert setup.supply.notes["full_reads"] > 10 and np.isfinite(ends).all()
    for row in target.rows.known:
        assert row[-1] == pytest.approx(passes.total_value(small.model.rows, row[:-1]), rel=1e-12)


# A chain that is run in chunks, with streams that are refilled all the time, beside the same chain on all of its rows at once.

SAMPLERS = {  # with the rows of a block, and the draws
    "exact-minibatch": (ExactMinibatch(bound="T9"), 1, 150),
    "zigzag": (ZigZag(bound="T9", interval=1.0), 1, 80),
    "hmc-ecs": (HMCECS(subsample=12, blocks=3), 5, 20),
    "sgld": (SGLD(subsample=6, step=0.1), 7, 30),
    "sghmc": (SGHMC(subsample=4, steps=2, step=0.1), 7, 30),
    "sgnht": (SGNHT(subsample=4, step=0.1), 7, 30),
}


def reused(source, wanted):
    """The mutant: every block has the rows of the first."""
    FETCH(source, list(dict.fromkeys((chain, stream, 0) for chain, stream, _ in wanted)))
    for chain, stream, block in wanted:
        source.held[chain, stream][block] = source.held[chain, stream][0]


def forgotten(source, number, using, position):
    """The mutant: a row that is kept becomes the first of the present block."""
    wanted = KEEP(source, number, using, position)
    if wanted.size:
        records = source.held[number, 0][int(position[0] // source.sizes[0])][0]
        source.kept[number] = wanted, np.repeat(records[:1], wanted.size, axis=0)
    return wanted


FETCH, KEEP = StreamSupply._fetch, StreamSupply._keep


def chain_in_chunks(parts, sampler, blocks, chunks, ahead=0, resumed=0):
    """Draws of an interpreted chain, in chunks, with so many blocks sent before it starts; and its supply.

    From chunk `resumed` on it has new streams and what a checkpoint keeps: state, random numbers and counters.
    """
    setup = sampler.setup(parts.model, parts.find_mode(progress=False), 5, False)
    description = {"warmup": 0, "draws": sum(chunks), "thin": 1, "seed": 5, "chains": 1}
    description["blocks"] = np.where(parts.stream_sums[1].sum(0) > 0, blocks, 0).tolist()
    plain, setup = setup, open_streams(setup, description)
    source = setup.supply
    if ahead:
        source._fetch([(0, int(s), b) for s in np.flatnonzero(source.sizes) for b in range(ahead)])
    rng, target = np.random.default_rng(2), setup.target(0)
    options, state = setup.policy.options(setup.policy.begin(), True), setup.policy.blank(np.array([0.2, 0.4]))
    draws, fresh = [], True
    for number, count in enumerate(chunks):
        if resumed and number == resumed:
            setup, counters = open_streams(plain, description), target.counters
            target = setup.target(0)
            target.counters[:] = counters
        theta, info = np.empty((count, 2)), np.zeros((count, len(sampler.columns)))
        state, made, target = setup.advance(0, rng, target, options, state, fresh, theta, info, 1)
        assert made == count
        draws.append(theta)
        fresh = False
    return np.concatenate(draws), source, target.counters[SIZE:]


@pytest.mark.parametrize("name", SAMPLERS)
def test_refilled_streams_are_one_long_stream(parts, name, monkeypatch):
    monkeypatch.setattr(supply, "advance", supply.advance.py_func)
    monkeypatch.setattr(stochastic_gradient, "measure_noise", lambda *given: Noise(np.ones(2), np.eye(2), np.ones(1)))
    sampler, size, draws = SAMPLERS[name]
    chunks = (draws * np.array([0.1, 0.2, 0.1, 0.3, 0.3])).round().astype(int).tolist()
    whole, source, spent = chain_in_chunks(parts, sampler, size, [draws], ahead=150)
    assert source.notes["passes"] == 1 and spent.max() > 5 * size
    pieces, refilled, also = chain_in_chunks(parts, sampler, size, chunks)
    assert refilled.notes["passes"] > 2
    np.testing.assert_array_equal(whole, pieces)
    np.testing.assert_array_equal(spent, also)
    np.testing.assert_array_equal(whole, chain_in_chunks(parts, sampler, size, chunks, resumed=3)[0])
    with monkeypatch.context() as mutant:
        mutant.setattr(StreamSupply, "_fetch", reused)
        assert (chain_in_chunks(parts, sampler, size, chunks)[0] != whole).any()
    if name == "hmc-ecs":
        assert refilled.kept[0][0].size > 0
        monkeypatch.setattr(StreamSupply, "_keep", forgotten)
        assert (chain_in_chunks(parts, sampler, size, chunks)[0] != whole).any()


def test_rows_that_stand_for_all_are_weighted_by_their_draws(parts, monkeypatch):
    mode = parts.find_mode(progress=False)
    everything = parts.population(mode, 2, 1)
    assert everything.weight.sum() == parts.n == everything.index.size
    monkeypatch.setattr(pilot_rows, "TOP", 20)
    monkeypatch.setattr(pilot_rows, "REST", 30)
    theta = mode.reference + 0.5
    exact = SubsamplePilot(mode, 2, UniformRows(parts.n), everything).at(theta)
    sums = []
    for seed in range(100):
        drawn = parts.population(mode, 2, seed)
        assert drawn.index.size == 50 and drawn.weight.sum() == pytest.approx(parts.n)
        sample = SubsamplePilot(mode, 2, UniformRows(parts.n), drawn).at(theta)
        sums.append((sample.mean, float(sample.p @ sample.z**2)))
    error = np.std(sums, axis=0) / np.sqrt(100)
    expected = exact.mean, float(exact.p @ exact.z**2)
    assert np.abs((np.mean(sums, axis=0) - expected) / error).max() < THRESHOLD + 2.0  # of a ratio: a bias of the order 1 / 50


# Files.


def write(folder, sizes, seed=0, effects=(-0.5, 1.0, 0.3)):
    """Parquet files of these sizes."""
    folder.mkdir(exist_ok=True)
    for k, size in enumerate(sizes):
        X, y = logistic_arrays(size, effects, seed=seed + k)
        pq.write_table(pa.table({"y": y, **{f"x{j}": X[:, j] for j in range(1, len(effects))}}), folder / f"{k}.parquet")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("rows"), (3000, 0, 400, 11))


RUN = {"draws": 300, "warmup": 100, "chains": 2, "seed": 9, "progress": False}


@pytest.fixture(scope="module")
def streamed_fit(folder):
    return tb.fit("y ~ x1 + x2", str(folder), memory="partitions", sampler="exact-minibatch", **RUN)


def test_the_fit_of_partitions_says_what_it_moved(streamed_fit):
    notes = streamed_fit.meta["notes"]["streams"]
    assert streamed_fit.guarantee.kind == "EXACT" and streamed_fit.meta["rows"] == 3411
    assert notes["passes"] == 1 and notes["bytes"] == notes["predicted_bytes"] == notes["rows"] * (6 * 8 + 8)
    assert streamed_fit.setup["evals"] > 3411 * streamed_fit.setup["passes"]
    assert streamed_fit.data is None and streamed_fit.predict({"x1": [0.0], "x2": [0.0]}).shape == (1, 3)
    with pytest.raises(DataError, match="stayed in their partitions"):
        streamed_fit.loo()


@pytest.mark.slow
def test_streams_and_rows_in_memory_have_the_same_posterior(folder):
    options = {**RUN, "draws": 4000}
    there = tb.fit("y ~ x1 + x2", str(folder), memory="partitions", sampler="auto", **options)
    here = tb.fit("y ~ x1 + x2", str(folder), sampler="exact-minibatch", **options)
    assert there.meta["sampler_name"] == "exact-minibatch" and "in partitions" in there.why
    error = np.sqrt(sum(f.theta.var((0, 1)) / f.ess for f in (there, here)))
    assert np.abs((there.theta.mean((0, 1)) - here.theta.mean((0, 1))) / error).max() < THRESHOLD
    assert there.theta.std((0, 1)) == pytest.approx(here.theta.std((0, 1)), rel=0.1)


def test_refills_and_their_time_do_not_change_the_draws(folder, monkeypatch):
    rows = Partitions.open(str(folder), "y ~ x1 + x2")
    monkeypatch.setattr(supply, "predict", lambda setup, sums, *rest: supply.Demand(np.where(sums > 0, 6, 0), 0.0))
    refilled = tb.sample(rows, "exact-minibatch", **RUN)
    monkeypatch.setattr(supply, "LOW", 0.0)  # wait until a stream is dry
    late = tb.sample(rows, "exact-minibatch", **RUN)
    assert refilled.meta["notes"]["streams"]["passes"] > 3 and late.meta["notes"]["streams"]["passes"] > 3
    np.testing.assert_array_equal(refilled.theta, late.theta)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the chains disagree")  # SGLD mixes slowly
def test_stochastic_gradients_read_streams(folder, monkeypatch):
    options = {**RUN, "draws": 4000}
    rows = Partitions.open(str(folder), "y ~ x1 + x2")
    sampler = tb.samplers.SGLD(subsample=20)
    monkeypatch.setattr(supply, "MOST_BLOCK", 30_000)
    there = tb.sample(rows, sampler, **options)
    here = tb.sample(tb.models.logistic(tb.read(str(folder), "y ~ x1 + x2", progress=False)), sampler, **options)
    notes = there.meta["notes"]["streams"]
    assert notes["passes"] >= 3 and notes["rows"] >= 2 * 4100 * 20 and notes["predicted_bytes"] == 2 * 4100 * 20 * 56
    error = np.sqrt(sum(f.theta.var((0, 1)) / f.ess for f in (there, here)))
    assert np.abs((there.theta.mean((0, 1)) - here.theta.mean((0, 1))) / error).max() < THRESHOLD
    assert there.theta.std((0, 1)) == pytest.approx(here.theta.std((0, 1)), rel=0.15)
    monkeypatch.setattr(supply, "LOW", 0.0)
    np.testing.assert_array_equal(tb.sample(rows, sampler, **options).theta, there.theta)


def test_gradients_from_streams_are_unbiased(parts, small):
    mode = parts.find_mode(progress=False)
    controls = make_controls(mode, 1, "uniform")
    target, theta = parts.pilot_target(controls, 40_000, 3), small.mode.reference + 0.3
    out = np.empty((4000, 2))
    minibatch_gradients.py_func(np.random.default_rng(0), target, 10, mode.laplace().whiten(theta), theta, out)
    exact = mode.factor.T @ small.model.gradient(theta)[1]
    assert np.abs((out.mean(0) - exact) / (out.std(0) / np.sqrt(4000))).max() < THRESHOLD
    assert target.counters[SIZE] == 40_000  # each row once


def test_a_resumed_run_goes_on_in_its_streams(folder, tmp_path):
    rows = Partitions.open(str(folder), "y ~ x1 + x2")
    first = tb.sample(rows, "exact-minibatch", checkpoint=tmp_path / "run", **RUN)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    longer = tb.resume(tmp_path / "run", rows, draws=900, progress=False)
    tb.resume(tmp_path / "copy", Partitions.open(str(folder), "y ~ x1 + x2"), draws=450, progress=False)
    stepwise = tb.resume(tmp_path / "copy", rows, draws=900, progress=False)
    np.testing.assert_array_equal(longer.theta[:, :300], first.theta)
    np.testing.assert_array_equal(longer.theta, stepwise.theta)
    order = [str(folder / f"{k}.parquet") for k in (2, 0, 3)]  # other streams: those of the same files in another order
    with pytest.raises(StoreError, match="these are not the rows of the run"):
        tb.resume(tmp_path / "copy", Partitions.open(order, "y ~ x1 + x2"), draws=1000, progress=False)


def two_samples(first, second):
    """Scores of the differences of means and of second moments of two fits, by their effective sizes."""
    centre, scores = second.theta.mean((0, 1)), []
    for power in (1, 2):
        draws = [(f.theta - centre) ** power for f in (first, second)]
        error = np.sqrt(sum(d.var((0, 1)) / effective_sizes(d) for d in draws))
        scores.append((draws[0].mean((0, 1)) - draws[1].mean((0, 1))) / error)
    return np.concatenate(scores)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the chains disagree")
@pytest.mark.parametrize(
    "sampler",
    [ExactMinibatch(), ZigZag(), HMCECS(), SGLD(step=0.2, subsample=50, tolerance=0.2)],
    ids=lambda sampler: sampler.name,
)
def test_streamed_and_local_chains_have_the_same_law_on_covtype(covtype, sampler, monkeypatch):
    data, names = covtype.data, covtype.data.columns[1:]
    whole = pa.table({"y": data.y, **{name: data.records[:, 1 + j] for j, name in enumerate(names)}})
    parts = [whole.slice(0, 300_000), whole.slice(300_000, 90_000), whole.slice(390_000)]
    rows = Partitions.open(parts, "y ~ " + " + ".join(names))
    monkeypatch.setattr(supply, "MOST_BLOCK", 40_000)
    options = {"draws": 3000, "warmup": 500, "chains": 2, "seed": 4, "progress": False}
    there, here = (tb.sample(model, sampler, **options) for model in (rows, covtype))
    assert there.theta.shape == here.theta.shape and np.abs(two_samples(there, here)).max() < THRESHOLD
    wrong = replace(here, theta=here.theta.mean((0, 1)) + 1.3 * (here.theta - here.theta.mean((0, 1))))
    assert np.abs(two_samples(there, wrong)).max() > THRESHOLD  # the test can fail


# A cluster.


@pytest.fixture(scope="module")
def client():
    with cluster() as ready:
        yield ready


def test_workers_do_not_change_the_draws(client, folder, streamed_fit):
    fit = tb.fit("y ~ x1 + x2", str(folder), sampler="exact-minibatch", client=client, **RUN)
    np.testing.assert_array_equal(fit.theta, streamed_fit.theta)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the chains disagree", "ignore:.*fewer than 12")  # SGLD mixes slowly
@pytest.mark.parametrize(
    "sampler", ["auto", "zigzag", "hmc-ecs", SGLD(subsample=20)], ids=["auto", "zigzag", "hmc-ecs", "sgld"]
)
def test_workers_do_not_change_the_draws_of_other_samplers(client, folder, sampler):
    here, there = (
        tb.fit("y ~ x1 + x2", str(folder), sampler=sampler, **where, **RUN)
        for where in ({"memory": "partitions"}, {"client": client})
    )
    np.testing.assert_array_equal(here.theta, there.theta)


def test_a_worker_killed_during_a_pass_and_a_refill_costs_a_retry(client, folder, monkeypatch):
    killed, seen, plain = [], Counter(), pool.run
    moments = {
        (partition_passes.hessian, 1),
        (partition_passes.requested_rows, 2),
    }  # the second pass that draws rows is a refill

    def deadly(task, arguments, client=None, **given):
        results = plain(task, arguments, client, **given)
        kind = arguments[0][0] if callable(arguments[0][0]) else None
        seen[kind] += 1
        moment = kind, seen[kind]
        for k, result in enumerate(results):
            if moment in moments and k == 0:
                killed.append(kind)
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
            yield result

    monkeypatch.setattr(supply, "predict", lambda setup, sums, *rest: supply.Demand(np.where(sums > 0, 6, 0), 0.0))
    alone = tb.fit("y ~ x1 + x2", str(folder), sampler="exact-minibatch", memory="partitions", **RUN)
    monkeypatch.setattr(pool, "run", deadly)
    fit = tb.fit("y ~ x1 + x2", str(folder), sampler="exact-minibatch", client=client, **RUN)
    assert killed == [partition_passes.hessian, partition_passes.requested_rows]
    np.testing.assert_array_equal(fit.theta, alone.theta)


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # inside Dask
def test_dask_collections_are_partitions(client, folder):
    dd, bag = pytest.importorskip("dask.dataframe"), pytest.importorskip("dask.bag")
    frame = dd.read_parquet(str(folder), split_row_groups=False, aggregate_files=False)
    records = bag.from_delayed([d.to_dict("records") for d in frame.to_delayed()])
    files = Partitions.open(str(folder), "y ~ x1 + x2")
    theta = np.array([0.1, 0.2, 0.3])
    for rows in (
        Partitions.open(frame, "y ~ x1 + x2", client=client),
        Partitions.open(frame, "y ~ x1 + x2"),
        Partitions.open(frame.to_delayed()[:3], "y ~ x1 + x2", client=client),
        Partitions.open(records, "y ~ x1 + x2", client=client),
    ):
        assert rows.n > 3000
        if rows.n == files.n:
            assert rows.total_value(theta) == pytest.approx(files.total_value(theta), rel=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "formula, offset", [("y ~ a + b + c", "e"), ("y ~ 0 + a + b + e", "log(e)"), ("y ~ a + C(g) + log(e)", None)]
)
def test_rows_that_are_read_again_have_the_same_bits(formula, offset, dtype):
    rng = np.random.default_rng(0)
    columns = {"a": rng.integers(0, 1 << 40, 300), "b": rng.random(300) < 0.5, "c": rng.standard_normal(300).astype(np.float32)}
    columns |= {
        "e": rng.random(300) + 1.0,
        "g": rng.choice(["u", "v"], 300),
        "w": rng.integers(0, 3, 300),
        "y": rng.random(300),
    }
    table, other = pa.table(columns), pa.table({**columns, "c": columns["c"] + 1, "e": columns["e"] + 1})
    plan, _ = plan_of_source(open_source(table), formula, offset=offset, weights="w")
    first = packed_source(open_source(table), plan, dtype)
    again = packed_again(open_source(table), plan, dtype, first.moments)
    np.testing.assert_array_equal(again.records, first.records)
    assert again.fingerprint == first.fingerprint != packed_again(open_source(other), plan, dtype, first.moments).fingerprint
    for rows in (table.slice(0, 299), pa.concat_tables([table, table.slice(0, 1)])):
        with pytest.raises(DataError, match="it changed"):
            packed_again(open_source(rows), plan, dtype, first.moments)


# The search for the mode.


def test_the_mode_takes_two_passes_from_a_sample(tmp_path, monkeypatch):
    write(tmp_path / "rows", (30_000, 20_000, 5_000), effects=(-0.5, 1.0, 0.3, 0.8))
    formula = "y ~ x1 + x2 + x3"
    monkeypatch.setattr(mode_start, "BYTES", 8000 * 7 * 8)
    rows = Partitions.open(str(tmp_path / "rows"), formula)
    assert rows.passes == 1 and rows.sample.shape == (4890, 7)
    mode = rows.find_mode(PARTITION_TOLERANCE, progress=False)
    assert mode.passes == 2 and rows.passes == 3
    local = tb.models.logistic(tb.read(str(tmp_path / "rows"), formula, progress=False))
    exact = tb.find_mode(local, progress=False, tolerance=1e-9)
    distance = np.linalg.norm(np.linalg.solve(exact.factor, mode.reference - exact.reference))
    assert distance < PARTITION_TOLERANCE
    monkeypatch.setattr(
        mode_start, "_corrected", lambda model, few, centre, *rest: centre
    )  # Newton's steps from the sample's mode
    assert rows.find_mode(PARTITION_TOLERANCE, progress=False).passes > 2
    monkeypatch.setattr(mode_start, "mode_of_part", refuse)
    assert rows.find_mode(1e-3, progress=False).reference == pytest.approx(mode.reference, abs=1e-4)


def refuse(*given):
    """A search that finds nothing."""
    raise ModelError("separable")


def test_a_run_takes_five_passes(folder, monkeypatch):
    monkeypatch.setattr(mode_start, "BYTES", 8000 * 6 * 8)
    rows = Partitions.open(str(folder), "y ~ x1 + x2")
    fit = tb.sample(rows, "exact-minibatch", **RUN)
    assert rows.passes == 5 and fit.setup["passes"] == 2  # opened, twice for the mode, the bounds, and the rows that are drawn


# What is refused.


def test_a_partition_that_changes_under_the_fit_is_refused(tmp_path):
    rows = Partitions.open(str(write(tmp_path / "rows", (200, 100))), "y ~ x1 + x2")
    before = rows.total_value(np.zeros(3))
    X, y = logistic_arrays(100, (-0.5, 1.0, 0.3), seed=1)
    y[7] = 1.0 - y[7]
    pq.write_table(pa.table({"y": y, "x1": X[:, 1], "x2": X[:, 2]}), tmp_path / "rows" / "1.parquet")
    with pytest.raises(DataError, match=r"partition 1: .*1\.parquet has changed since it was opened"):
        rows.total_value(np.zeros(3))
    with pytest.raises(DataError, match=r"has changed since it was opened"):
        StreamSupply(
            rows, Weighting("uniform", np.zeros(3), np.eye(3)), np.array([[200.0], [100.0]]), np.array([50]), 1, 1
        ).block(0, 0, 0)
    assert Partitions.open(str(tmp_path / "rows"), "y ~ x1 + x2").total_value(np.zeros(3)) == pytest.approx(before)
    (tmp_path / "rows" / "1.parquet").unlink()
    with pytest.raises(DataError, match="does not exist"):
        rows.total_value(np.zeros(3))


def test_levels_of_one_partition_are_levels_of_all_and_later_ones_are_refused(tmp_path):
    for name, levels in (("0", ["a", "b"] * 20), ("1", ["a", "c"] * 20)):
        pq.write_table(pa.table({"y": [0, 1, 1, 0] * 10, "g": levels}), tmp_path / f"{name}.parquet")
    rows = Partitions.open(str(tmp_path), "y ~ C(g)")
    assert rows.model.names == ("Intercept", "C(g)[T.b]", "C(g)[T.c]")
    pq.write_table(pa.table({"y": [0, 1] * 20, "g": ["a", "z"] * 20}), tmp_path / "1.parquet")
    with pytest.raises(DataError, match="'z'"):
        rows.total_value(np.zeros(3))


def test_values_that_the_family_refuses_are_named_with_their_partition(tmp_path):
    write(tmp_path / "rows", (50, 60))
    pq.write_table(pa.table({"y": [0.5] * 9, "x1": [1.0] * 9, "x2": [1.0] * 9}), tmp_path / "rows" / "1.parquet")
    with pytest.raises(DataError, match=r"partition 1: row 0: response 'y' is 0\.5"):
        Partitions.open(str(tmp_path / "rows"), "y ~ x1 + x2")
    with pytest.raises(DataError, match="all partitions are empty"):
        Partitions.open(str(write(tmp_path / "none", (0, 0))), "y ~ x1 + x2")


def test_absurd_traffic_and_passes_are_refused(folder, monkeypatch):
    rows = Partitions.open(str(folder), "y ~ x1 + x2", most_bytes=1000)
    with pytest.raises(ModelError, match=r"would move about .* GB .*sample_shards"):
        tb.sample(rows, "exact-minibatch", **RUN)
    monkeypatch.setattr(supply, "MOST_CANDIDATES", 0)
    with pytest.raises(ModelError, match="would need a pass over all partitions"):
        tb.sample(Partitions.open(str(folder), "y ~ x1 + x2"), "exact-minibatch", **{**RUN, "draws": 5000})


def test_samplers_that_need_rows_are_refused(folder, tmp_path):
    rows = Partitions.open(str(folder), "y ~ x1 + x2")
    for name in ("nuts", "austerity", "firefly"):
        with pytest.raises(ModelError, match=r"needs the rows on this machine.*'exact-minibatch', 'zigzag' or 'hmc-ecs'"):
            tb.sample(rows, name, **RUN)
    for sampler in (HMCECS(estimator="signed"), HMCECS(recentre=1)):
        with pytest.raises(ModelError, match=r"needs rows on this machine before the chains start.*'exact-minibatch'"):
            tb.sample(rows, sampler, **RUN)
    for sampler in (HMCECS(rows="weighted"), SGLD(rows="weighted")):
        with pytest.raises(ModelError, match=r"drawn uniformly by this sampler"):
            tb.sample(rows, sampler, **RUN)
    with pytest.raises(ModelError, match="rows of this model are in partitions"):
        rows.model.data.records[0]
    with pytest.raises(OptionError, match="store= packs the rows"):
        tb.fit("y ~ x1", str(folder), memory="partitions", store=tmp_path, progress=False)
    with pytest.raises(OptionError, match="partitions= groups files"):
        Partitions.open(tables(*logistic_arrays(60)), "y ~ x1", partitions=2)
    with pytest.raises(ModelError, match="streams of rows use bound T9"):
        tb.sample(rows, ExactMinibatch(bound="T4"), **RUN)


def test_auto_takes_a_sampler_without_bounds_where_there_is_no_bound(parts, monkeypatch):
    def none(model, name):
        raise ModelError("there is no certified bound")

    mode = parts.find_mode(progress=False)
    choice = choose(parts.model, mode, None, 0, False)
    assert choice.sampler.name == "exact-minibatch" and "the 60 rows are in partitions" in choice.why
    monkeypatch.setattr(partitions, "bound_of", none)
    choice = choose(parts.model, mode, None, 0, False)
    assert choice.sampler.name == "hmc-ecs" and "exact-minibatch was skipped: there is no certified bound" in choice.why
    with pytest.raises(ModelError, match="there is no certified bound"):
        choose(parts.model, mode, "EXACT", 0, False)


@pytest.mark.slow
def test_a_family_without_a_bound_is_sampled_from_streams():
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(3000), rng.standard_normal(3000)])
    y = X @ [0.5, -1.0] + rng.standard_t(5.0, 3000)
    rows = Partitions.open(tables(X, y, (2000, 0, 900, 100)), "y ~ x1", "student_t", PRIOR, family_options={"nu": 5.0})
    there = tb.sample(rows, "auto", draws=1500, warmup=500, chains=2, seed=1, progress=False)
    assert there.meta["sampler_name"] == "hmc-ecs" and "exact-minibatch was skipped: there is no certified bound" in there.why
    local = tb.models.student_t(tb.Dataset.from_arrays(X, y, columns=["Intercept", "x1"]), PRIOR, nu=5.0)
    here = tb.sample(local, "nuts", draws=1500, warmup=500, chains=2, seed=1, progress=False)
    assert np.abs(two_samples(there, here)).max() < THRESHOLD


def test_group_effects_are_refused_with_a_remedy(tmp_path):
    pq.write_table(pa.table({"y": [0, 1] * 20, "x": [0.1, 0.2] * 20, "g": ["a", "b"] * 20}), tmp_path / "0.parquet")
    with pytest.raises(DataError, match=r"group terms such as \(1 \| g\) cannot be divided among partitions.*tallbayes\.read"):
        tb.fit("y ~ x + (1 | g)", str(tmp_path), memory="partitions", progress=False)


def test_requests_of_nobody_visit_no_partition(parts):
    streamed(parts, blocks=5)
    weighting, sums = parts.stream_sums
    stream, before = int(np.flatnonzero(sums.sum(0))[0]), parts.passes
    sent = parts.draw(weighting, [[Request(0, stream, 0, 2)], [], []], 1)
    assert [len(s) for s in sent] == [1, 0, 0] and parts.passes == before + 1
    assert isinstance(streamed(parts)[0].supply, StreamSupply)
