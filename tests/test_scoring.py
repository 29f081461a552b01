"""Predictions of many files: the same as of one, restartable, on a cluster too."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from test_remote_files import table
from test_shards import cluster

import tallbayes as tb
from tallbayes.errors import DataError, OptionError


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    return tb.fit("y ~ x", table(500, 0), sampler="hmc", draws=100, warmup=100, chains=2, seed=1, progress=False)


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "new"
    folder.mkdir()
    for k in range(3):
        pq.write_table(table(200 + k, k + 5), folder / f"part-{k}.parquet")
    return folder


def test_every_file_gets_its_predictions_and_finished_ones_stay(fit, files, tmp_path):
    out = fit.predict(str(files), out=tmp_path / "scores", partitions=True)
    paths = sorted(out.iterdir())
    assert [p.name for p in paths] == ["part-0.parquet", "part-1.parquet", "part-2.parquet"]
    for k, path in enumerate(paths):
        np.testing.assert_allclose(pq.read_table(path)["mean"], fit.predict(str(files / f"part-{k}.parquet"))["mean"])
    paths[1].unlink()
    times = {p: p.stat().st_mtime_ns for p in paths if p.exists()}
    pq.write_table(table(202, 30), files / "part-2.parquet")  # changed since
    fit.predict(str(files), out=tmp_path / "scores", partitions=True)
    assert paths[0].stat().st_mtime_ns == times[paths[0]]
    assert paths[1].exists() and paths[2].stat().st_mtime_ns != times[paths[2]]
    fit.predict(str(files), out=tmp_path / "scores", partitions=True, prob=0.5)
    assert paths[0].stat().st_mtime_ns != times[paths[0]]  # another question


def test_simulated_responses_of_files_differ(files, tmp_path):
    data = tb.read(table(500, 0), "y ~ x", progress=False)
    fit = tb.sample(tb.models.gaussian(data, sigma=1.0), "hmc", draws=50, warmup=50, chains=2, seed=1, progress=False)
    pq.write_table(table(200, 5), files / "part-1.parquet")  # the rows of part-0
    out = fit.predict(str(files), out=tmp_path / "scores", kind="response", partitions=True)
    one, other = (pq.read_table(out / f"part-{k}.parquet")["lower"].to_numpy() for k in (0, 1))
    assert (one != other).any()


def test_a_cluster_predicts_the_same(fit, files, tmp_path):
    here = fit.predict(str(files), out=tmp_path / "here", partitions=True)
    with cluster() as client:
        there = fit.predict(str(files), out=tmp_path / "there", client=client)
    for path in here.iterdir():
        assert pq.read_table(path).equals(pq.read_table(there / path.name))


def test_what_scoring_refuses(fit, files, tmp_path):
    with pytest.raises(OptionError, match="give out="):
        fit.predict(str(files), partitions=True)
    with pytest.raises(OptionError, match="no function="):
        fit.predict(str(files), out=tmp_path / "scores", partitions=True, function=lambda theta, row: 0.0)
    with pytest.raises(DataError, match="there is no file"):
        fit.predict(str(tmp_path / "*.csv"), out=tmp_path / "scores", partitions=True)
