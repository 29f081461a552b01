"""Internals of `tallbayes.remote.partition_passes`; what users see of it is tested in test_row_streams.py."""

import os
import signal
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import logistic_arrays
from test_shards import cluster

import tallbayes as tb
from tallbayes.remote import partition_passes, pool, supply

# Two iterations on one stream, every stream enumerated. Rows 0 and 1 are in one partition, row 2 in another; a stream has six rows, and
# rows after them come from the next block. Started at the posterior, the law after two iterations is the posterior.


# a handful of rows can be separated by a column; the enumeration does not mind
pytestmark = pytest.mark.filterwarnings("ignore:column 'x1' separates the response")


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


# A cluster.


@pytest.fixture(scope="module")
def client():
    with cluster() as ready:
        yield ready


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
