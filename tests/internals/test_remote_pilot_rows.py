"""Internals of `tallbayes.remote.pilot_rows`; what users see of it is tested in test_row_streams.py."""

import numpy as np
import pyarrow as pa
import pytest
from conftest import PRIOR
from support import logistic_arrays

from tallbayes.diagnostics.subsample_pilot import SubsamplePilot
from tallbayes.engine.random_rows import UniformRows
from tallbayes.remote import pilot_rows
from tallbayes.shards import Partitions
from tallbayes.testing import THRESHOLD

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


@pytest.fixture(scope="module")
def parts():
    return Partitions.open(tables(*logistic_arrays(60)), "y ~ x1", prior=PRIOR)


# A chain that is run in chunks, with streams that are refilled all the time, beside the same chain on all of its rows at once.


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
