"""Internals of `tallbayes.run.driver`; what users see of it is tested in test_run.py and test_zigzag.py."""

import json
import os
import shutil
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
from support import start_python

import tallbayes as tb
from internals.support import interrupting
from tallbayes.errors import CertificateError
from tallbayes.results.report import warnings_of
from tallbayes.run import chain as chains_module
from tallbayes.run import driver
from tallbayes.run.chain import Chain
from tallbayes.run.driver import Limits, drive
from tallbayes.samplers import SAMPLERS, ZigZag
from tallbayes.target import Certified

DRAWS, WARMUP = 300, 60


def sample(model, sampler="mh", **options):
    return tb.sample(model, sampler, **{"draws": DRAWS, "warmup": WARMUP, "chains": 2, "seed": 5, "progress": False, **options})


def resume(folder, model=None, **options):
    return tb.resume(folder, model, **{"progress": False, **options})


def assert_same(fit, expected):
    """Draws and everything reported of them, bit for bit."""
    np.testing.assert_array_equal(fit.theta, expected.theta)
    assert fit.stats.keys() == expected.stats.keys()
    for name, values in expected.stats.items():
        np.testing.assert_array_equal(fit.stats[name], values)
    assert fit.warmup["evals"] == expected.warmup["evals"]
    assert fit.warmup["iterations"] == expected.warmup["iterations"]


@pytest.fixture(scope="module")
def reference(medium):
    return sample(medium)


@pytest.fixture(scope="module")
def finished(medium, reference, tmp_path_factory):
    """The folder of a run that is complete; tests work on copies of it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert_same(sample(medium, checkpoint=folder), reference)
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture
def eager(monkeypatch):
    """Short chunks, and a save after each."""
    monkeypatch.setattr(driver, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(driver, "SAVE_SHARE", np.inf)
    monkeypatch.setattr(chains_module, "CHUNK_SECONDS", 0.002)


def test_until_ess_gives_up(medium, monkeypatch):
    monkeypatch.setattr(driver, "MOST_BLOCKS", 3)
    fit = sample(medium, draws=10, until_ess=1e6)
    assert fit.status == "ess limit" and fit.theta.shape[1] == 30
    assert "until_ess= was not reached: the smallest ess is" in repr(fit.summary())
    assert any("until_ess= was not reached" in sentence for sentence in warnings_of(fit))


@pytest.mark.usefixtures("eager")
def test_control_c_while_draws_are_written_neither_loses_nor_doubles_them(medium, reference, monkeypatch, tmp_path):
    path, saves = tmp_path / "chain-0.draws", []

    def fsync(descriptor, original=os.fsync):
        original(descriptor)
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            saves.append(path.stat().st_size)
            if len(saves) == 3:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        fit = sample(medium, checkpoint=tmp_path, cores=1)
    assert len(saves) == 4 and fit.status == "interrupted" and 0 < fit.theta.shape[1] < DRAWS
    assert path.stat().st_size == counted_bytes(path)
    assert_same(resume(tmp_path, medium), reference)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("limit", [None, 1.0])
def test_a_run_stopped_in_its_first_window_continues_there(medium, reference, monkeypatch, tmp_path, limit):
    """By Ctrl-C or by a time limit: what there is of the window is saved."""
    with monkeypatch.context() as patch:
        if limit is None:
            interrupting(patch, 1, after=0)
        else:
            patch.setattr(Chain, "chunk", lambda chain, goal, own=Chain.chunk: (own(chain, goal), time.sleep(1.1))[0])
        with pytest.raises(tb.StoppedError, match=r"Continue the run with tallbayes\.resume\('.*run'\)\."):
            sample(medium, checkpoint=tmp_path / "run", cores=1, max_seconds=limit)
    assert 0 < saved(tmp_path / "run") < 10
    again = []
    monkeypatch.setattr(Chain, "chunk", lambda chain, goal, own=Chain.chunk: again.append(chain.iteration) or own(chain, goal))
    assert_same(resume(tmp_path / "run", medium), reference)
    assert again.count(0) <= 1  # the first chain is not begun again


KILLED = """
import sys, time
import tallbayes as tb
from support import medium_model
from tallbayes.run import chain, driver

driver.SAVE_SECONDS, driver.SAVE_SHARE, chain.CHUNK_SECONDS = 0.0, float("inf"), 0.001

def slow(self, goal, chunk=chain.Chain.chunk):
    time.sleep(0.01)
    return chunk(self, goal)

chain.Chain.chunk = slow
tb.sample(medium_model(), "mh", draws=1000, warmup=200, chains=2, seed=5, progress=False, checkpoint=sys.argv[1])
"""


def saved(folder):
    """Iterations of warm-up and draws that the first chain has saved."""
    path = folder / "chain-0.npz"
    if not path.exists():
        return -1 if not (folder / "run.json").exists() else 0
    with np.load(path) as file:
        meta = json.loads(str(file["meta"]))
    return meta["iteration"] + meta["draws"]


MOMENTS = [0, *np.random.default_rng(20).integers(10, 180, 1), *np.random.default_rng(21).integers(201, 700, 2)]


@pytest.fixture(scope="module")
def uninterrupted(medium):
    return sample(medium, draws=1000, warmup=200)


@pytest.mark.parametrize("moment", MOMENTS)
def test_after_kill_nine_the_draws_are_those_of_a_run_never_interrupted(medium, uninterrupted, tmp_path, moment):
    process = start_python("-c", KILLED, tmp_path / "run")
    while saved(tmp_path / "run") < moment and process.poll() is None:
        time.sleep(0.001)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert moment <= saved(tmp_path / "run") < 1200
    assert_same(resume(tmp_path / "run", medium), uninterrupted)


def counted_bytes(path):
    with np.load(path.with_suffix(".npz")) as file:
        return json.loads(str(file["meta"]))["draws"] * (2 + len(SAMPLERS["mh"]().columns)) * 8


def test_a_rate_above_its_bound_ends_the_run(small):
    setup = ZigZag(bound="T6").setup(small.model, small.mode, 0, False)
    proxy, table = setup.proxy, setup.proxy.bound.table
    shrunk = proxy.bound._replace(table=table._replace(weight=table.weight * 0.01))
    setup = replace(setup, proxy=Certified(proxy.whitening, proxy.proxy, shrunk))
    sampler = ZigZag(bound="T6")
    chain = Chain(0, sampler, setup, np.random.SeedSequence(1), small.mode.reference, warmup=0, thin=1)
    with pytest.raises(CertificateError, match="exceeds its certified bound"):
        drive([chain], Limits(2000), 1, False, None, lambda theta: 1.0)
