"""Internals of `tallbayes.remote.supply`; what users see of it is tested in test_row_streams.py."""

from dataclasses import replace
from itertools import product
from math import comb

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import PRIOR
from scipy.stats import poisson
from support import logistic_arrays

import tallbayes as tb
from internals.test_schemes_poisson_minibatch import PROPOSALS, enumerated, first_ratio, pair_rates
from tallbayes.engine import passes
from tallbayes.engine.rows import QUESTIONS
from tallbayes.errors import DataError, ModelError
from tallbayes.proxies.taylor import reference_of
from tallbayes.remote import supply
from tallbayes.remote.row_weights import Request, Weighting
from tallbayes.remote.supply import StreamSupply, open_streams
from tallbayes.samplers import HMCECS, SGHMC, SGLD, SGNHT, ExactMinibatch, ZigZag
from tallbayes.schemes import stochastic_gradient
from tallbayes.schemes.minibatch_gradient import Noise, make_controls, minibatch_gradients
from tallbayes.schemes.poisson_minibatch import SMH, thin
from tallbayes.shards import Partitions
from tallbayes.target import SIZE
from tallbayes.testing import THRESHOLD, effective_sizes, log_likelihood, moment_scores

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
    reference = reference_of(case.target.proxy.whitening)
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
    known = target.rows.answers[2 + QUESTIONS * small.model.dim :].reshape(-1, small.model.dim + 1)
    assert len(known) > 10
    for row in known:
        assert row[-1] == pytest.approx(log_likelihood(small.model, row[:-1]), rel=1e-12)


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


def test_absurd_traffic_and_passes_are_refused(folder, monkeypatch):
    rows = Partitions.open(str(folder), "y ~ x1 + x2", most_bytes=1000)
    with pytest.raises(ModelError, match=r"would move about .* GB .*sample_shards"):
        tb.sample(rows, "exact-minibatch", **RUN)
    monkeypatch.setattr(supply, "MOST_CANDIDATES", 0)
    with pytest.raises(ModelError, match="would need a pass over all partitions"):
        tb.sample(Partitions.open(str(folder), "y ~ x1 + x2"), "exact-minibatch", **{**RUN, "draws": 5000})


def test_requests_of_nobody_visit_no_partition(parts):
    streamed(parts, blocks=5)
    weighting, sums = parts.stream_sums
    stream, before = int(np.flatnonzero(sums.sum(0))[0]), parts.passes
    sent = parts.draw(weighting, [[Request(0, stream, 0, 2)], [], []], 1)
    assert [len(s) for s in sent] == [1, 0, 0] and parts.passes == before + 1
    assert isinstance(streamed(parts)[0].supply, StreamSupply)
