"""Rows drawn where they live: the law of streams enumerated, their draws against the same rows in memory, and what is refused."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import PRIOR
from support import logistic_arrays
from test_shards import cluster

import tallbayes as tb
from tallbayes.errors import DataError, ModelError, OptionError, StoreError
from tallbayes.samplers import HMCECS, SGLD, ExactMinibatch
from tallbayes.shards import Partitions
from tallbayes.testing import THRESHOLD, effective_sizes

# Two iterations on one stream, every stream enumerated. Rows 0 and 1 are in one partition, row 2 in another; a stream has six rows, and
# rows after them come from the next block. Started at the posterior, the law after two iterations is the posterior.


# a handful of rows can be separated by a column; the enumeration does not mind
pytestmark = pytest.mark.filterwarnings("ignore:column 'x1' separates the response")


# The code that draws streams, on three partitions of very different size and one that is empty.


def tables(X, y, sizes=(45, 0, 12, 3)):
    """Partitions of the rows as Arrow tables."""
    ends = np.cumsum(sizes)
    assert ends[-1] == len(y)
    columns = {f"x{k}": X[:, k] for k in range(1, X.shape[1])}
    whole = pa.table({"y": y, **columns})
    return [whole.slice(end - size, size) for end, size in zip(ends, sizes, strict=True)]


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


# What is refused.


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
        Partitions.open(str(tmp_path / "rows"), "y ~ x1 + x2", family="logistic")
    with pytest.raises(DataError, match=r"partition 1: the response 'y' .*\(row 0: 0\.5\).*Give family=: beta"):
        Partitions.open(str(tmp_path / "rows"), "y ~ x1 + x2")
    with pytest.raises(DataError, match="all partitions are empty"):
        Partitions.open(str(write(tmp_path / "none", (0, 0))), "y ~ x1 + x2")


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
