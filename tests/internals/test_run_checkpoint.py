"""Internals of `tallbayes.run.checkpoint`; what users see of it is tested in test_run.py."""

import json
import shutil

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.run import chain as chains_module
from tallbayes.run import checkpoint as checkpoints
from tallbayes.run import driver
from tallbayes.samplers import SAMPLERS, advance

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


def saved(folder):
    """Iterations of warm-up and draws that the first chain has saved."""
    path = folder / "chain-0.npz"
    if not path.exists():
        return -1 if not (folder / "run.json").exists() else 0
    with np.load(path) as file:
        meta = json.loads(str(file["meta"]))
    return meta["iteration"] + meta["draws"]


class Crash(BaseException):
    """The process ends here."""


def crash_at(monkeypatch, number, drawn=False):
    """End the process when it is about to write its file of this number; draws are on disk by then, the state is not.

    With `drawn`, only states of chains with draws are counted.
    """
    written = []

    def write(path, content, original=checkpoints.write_synced):
        if not drawn or path.with_suffix(".draws").exists():
            written.append(path)
        if len(written) > number:
            raise Crash
        original(path, content)

    monkeypatch.setattr(checkpoints, "write_synced", write)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("number", [1, 2, 7, 13, 15, 18])
def test_a_save_that_was_cut_short_is_harmless(medium, reference, monkeypatch, tmp_path, number):
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_at(patch, number)
        sample(medium, checkpoint=tmp_path)
    assert_same(resume(tmp_path, medium), reference)


@pytest.mark.usefixtures("eager")
def test_draws_of_an_unfinished_save_are_cut_off(medium, reference, monkeypatch, tmp_path):
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_at(patch, 2, drawn=True)
        sample(medium, checkpoint=tmp_path, cores=1)
    behind = [path for path in tmp_path.glob("*.draws") if path.stat().st_size > counted_bytes(path)]
    assert len(behind) == 1
    written = behind[0].read_bytes()
    assert_same(resume(tmp_path, medium), reference)
    assert behind[0].read_bytes().startswith(written)


def counted_bytes(path):
    with np.load(path.with_suffix(".npz")) as file:
        return json.loads(str(file["meta"]))["draws"] * (2 + len(SAMPLERS["mh"]().columns)) * 8


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")  # on 60 rows subsampling may cost more than it saves
@pytest.mark.parametrize(
    "name", [name for name in SAMPLERS if not (SAMPLERS[name]().needs_groups or SAMPLERS[name]().needs_unknown_scales)]
)
def test_every_sampler_resumes_bit_for_bit(small, monkeypatch, tmp_path, name):
    options = {"draws": 12, "warmup": 30, "mode": small.mode}
    expected = sample(small.model, name, **options)
    monkeypatch.setattr(driver, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(driver, "SAVE_SHARE", np.inf)
    monkeypatch.setattr(chains_module, "CHUNK_SECONDS", 1e-9)
    for number in (4, 45, 70):  # in the first window of each chain, late in warm-up, among the draws
        with monkeypatch.context() as patch, pytest.raises(Crash):
            crash_at(patch, number)
            sample(small.model, name, checkpoint=tmp_path / str(number), **options)
        compiled = len(advance.signatures)
        assert_same(resume(tmp_path / str(number), small.model), expected)
        assert len(advance.signatures) == compiled


@pytest.mark.usefixtures("eager")
def test_until_ess_resumes_in_the_same_blocks(medium, monkeypatch, tmp_path):
    options = {"draws": 60, "warmup": 20, "until_ess": 100.0}
    expected = sample(medium, **options)
    assert expected.theta.shape[1] >= 180
    monkeypatch.setattr(chains_module, "CHUNK_SECONDS", 1e-9)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_at(patch, 230)
        sample(medium, checkpoint=tmp_path, **options)
    assert 60 < saved(tmp_path) - 20 < expected.theta.shape[1]
    monkeypatch.undo()
    assert_same(resume(tmp_path, medium), expected)


@pytest.mark.parametrize("entry", ["version", "sources"])
def test_another_version_is_refused(medium, folder, entry):
    checkpoint = checkpoints.Checkpoint(folder)
    checkpoint._describe({**checkpoint.read(), entry: "0.0.0-other"})
    with pytest.raises(tb.StoreError, match=r"0\.0\.0-.*(Install|start a new run)"):
        resume(folder, medium)


def test_a_run_of_edited_sources_is_refused(medium, folder, monkeypatch):
    monkeypatch.setattr(checkpoints, "source_stamp", lambda: "edited")
    with pytest.raises(tb.StoreError, match="two versions cannot be mixed"):
        resume(folder, medium)
