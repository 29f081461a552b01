"""Internals of `tallbayes.remote.mode_start`; what users see of it is tested in test_row_streams.py."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.api import PARTITION_TOLERANCE
from tallbayes.errors import ModelError
from tallbayes.remote import mode_start
from tallbayes.shards import Partitions

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
