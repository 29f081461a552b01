"""The driver and checkpoints: draws depend on the seed alone, whatever happens to the run."""

import json
import os
import pickle
import shutil
import signal
import time
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from internals.support import interrupting
from support import logistic_arrays, start_python

import tallbayes as tb
from tallbayes import api, progress
from tallbayes.results.report import warnings_of
from tallbayes.run import chain as chains_module
from tallbayes.run import checkpoint as checkpoints
from tallbayes.run import driver
from tallbayes.run.chain import Chain
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


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("seconds", [1e-9, 0.003, 1e3])
def test_cores_and_chunks_do_not_change_draws(medium, reference, monkeypatch, cores, seconds):
    sizes = []
    monkeypatch.setattr(chains_module, "CHUNK_SECONDS", seconds)
    monkeypatch.setattr(Chain, "chunk", lambda chain, goal, chunk=Chain.chunk: sizes.append(made := chunk(chain, goal)) or made)
    assert_same(sample(medium, cores=cores), reference)
    assert sum(sizes) == 2 * (DRAWS + WARMUP)
    assert max(sizes) == 1 if seconds < 1e-6 else max(sizes) > 1


def test_progress_does_not_change_draws(medium, reference, monkeypatch, capfd):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert_same(sample(medium, progress=True), reference)
    shown = capfd.readouterr()
    assert "sampling" in shown.err and "draws" in shown.err and not shown.out
    sample(medium)
    assert capfd.readouterr() == ("", "")


def test_seeds_and_chains_differ(medium, reference):
    other = sample(medium, seed=6)
    assert (other.theta != reference.theta).any(axis=2).mean() > 0.99
    together = sample(medium, init=[0.0, 0.0])
    assert (together.theta[0] != together.theta[1]).any(axis=1).mean() > 0.99


def test_a_seed_of_any_integer_type_is_the_same_seed(medium, reference, tmp_path):
    options = {"draws": np.int64(DRAWS), "warmup": np.int32(WARMUP), "chains": np.int8(2)}
    assert_same(sample(medium, seed=np.uint32(5), checkpoint=tmp_path / "run", **options), reference)


def test_without_a_seed_the_run_can_be_repeated_from_its_record(medium):
    first, second = sample(medium, seed=None), sample(medium, seed=None)
    assert (first.theta != second.theta).any()
    assert_same(sample(medium, seed=first.meta["seed"]), first)


@pytest.mark.filterwarnings("ignore:'x0' has .* effective draws of 300")  # this far from the mode, 300 are too few
def test_a_chain_does_not_depend_on_how_many_there_are(medium):
    alone, first = sample(medium, chains=1, init=[0.0, 0.0]), sample(medium, init=[0.0, 0.0])
    np.testing.assert_array_equal(alone.theta[0], first.theta[0])


def test_thin_keeps_every_third_draw(medium, reference):
    thinned = sample(medium, thin=3, draws=DRAWS // 3)
    np.testing.assert_array_equal(thinned.theta, reference.theta[:, 2::3])
    np.testing.assert_array_equal(thinned.evals, np.full((2, DRAWS // 3), 3 * medium.data.n))
    assert thinned.cost()["draws"]["iterations"] == 2 * DRAWS


def test_without_warm_up_nothing_is_learned(medium):
    fit = sample(medium, warmup=0, draws=5)
    assert fit.theta.shape == (2, 5, 2)
    assert fit.warmup == {"iterations": 0, "evals": 2.0 * medium.data.n, "seconds": 0.0}


@pytest.fixture
def starts(monkeypatch):
    """Where chains begin, in order."""
    seen = []

    def watched(number, sampler, setup, seed, theta, *rest):
        seen.append(theta)
        return Chain(number, sampler, setup, seed, theta, *rest)

    monkeypatch.setattr("tallbayes.execution.Chain", watched)
    return seen


@pytest.mark.parametrize("init", [[0.1, -0.2], np.array([[0.1, -0.2], [0.3, 0.4]])], ids=["one", "each"])
def test_init_takes_one_or_all_starting_points(medium, starts, init):
    sample(medium, warmup=0, draws=1, init=init)
    np.testing.assert_array_equal(starts, np.broadcast_to(init, (2, 2)))


def test_init_laplace_is_dispersed_around_the_mode(medium, starts):
    sample(medium, warmup=0, draws=1, chains=200)
    white = tb.find_mode(medium, progress=False).laplace().whiten(np.array(starts))
    assert np.abs(white.mean(0)).max() < 4.9 * 2 / 200**0.5
    assert 1.5 < white.std() < 2.5


def test_init_prior_draws_from_the_prior(starts):
    X, y = logistic_arrays(60)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(scale=[0.1, 1.0], location=[5.0, -3.0]))
    sample(model, warmup=0, draws=1, chains=200, init="prior")
    white = (np.array(starts) - [5.0, -3.0]) / [0.1, 1.0]
    assert np.abs(white.mean(0)).max() < 4.9 / 200**0.5
    assert (np.abs(white.std(0) - 1.0) < 0.25).all()


def test_init_prior_needs_a_proper_prior():
    model = tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(60)), tb.priors.flat())
    with pytest.raises(tb.OptionError, match="init='laplace'"):
        sample(model, init="prior")


def test_max_seconds_returns_the_draws_so_far(medium, reference):
    begun = time.monotonic()
    fit = sample(medium, draws=10_000_000, max_seconds=0.5)
    assert fit.status == "time limit"
    assert 0.5 < time.monotonic() - begun < 20.0
    made = min(fit.theta.shape[1], DRAWS)
    np.testing.assert_array_equal(fit.theta[:, :made], reference.theta[:, :made])


def test_max_seconds_before_the_first_draw_names_the_remedy(medium):
    with pytest.raises(tb.OptionError, match=r"(?i)time limit.*allow more time.*resume"):
        sample(medium, warmup=10_000_000, max_seconds=0.01)


def test_until_ess_goes_on_in_blocks(medium):
    fit = sample(medium, draws=50, until_ess=100.0)
    made = fit.theta.shape[1]
    assert made % 50 == 0 and made > 50
    assert fit.status == "complete" and fit.ess.min() >= 100.0
    shorter = sample(medium, draws=made - 50)
    assert shorter.ess.min() < 100.0
    np.testing.assert_array_equal(fit.theta[:, : made - 50], shorter.theta)


def test_until_ess_is_not_fooled_by_draws_too_few_to_judge(medium):
    assert sample(medium, draws=2, until_ess=10.0).ess.min() >= 10.0


def test_until_ess_gives_up(medium, monkeypatch):
    monkeypatch.setattr(driver, "MOST_BLOCKS", 3)
    fit = sample(medium, draws=10, until_ess=1e6)
    assert fit.status == "ess limit" and fit.theta.shape[1] == 30
    assert "until_ess= was not reached: the smallest ess is" in repr(fit.summary())
    assert any("until_ess= was not reached" in sentence for sentence in warnings_of(fit))


def test_control_c_returns_the_draws_so_far(medium, reference, monkeypatch, tmp_path):
    interrupting(monkeypatch, 1)
    try:
        fit = sample(medium, checkpoint=tmp_path / "run", cores=1)
    except KeyboardInterrupt:
        pytest.fail("the draws are lost")
    assert fit.status == "interrupted"
    made = fit.theta.shape[1]
    assert 0 < made < DRAWS
    np.testing.assert_array_equal(fit.theta, reference.theta[:, :made])
    assert fit.summary().shape[0] == 2
    assert_same(resume(tmp_path / "run", medium), reference)


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


def test_control_c_in_warm_up_names_the_remedy(medium, monkeypatch):
    interrupting(monkeypatch, 1, after=0)
    with pytest.raises(tb.StoppedError, match=r"interrupted.*Nothing was saved.*checkpoint=") as caught:
        sample(medium, cores=1)
    assert (caught.value.status, caught.value.folder) == ("interrupted", None)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


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


def test_a_second_control_c_stops_at_once(medium, monkeypatch):
    interrupting(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        sample(medium, draws=10_000_000, cores=2)


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


def test_a_finished_run_is_extended(medium, folder):
    longer = sample(medium, draws=500)
    assert_same(resume(folder, medium, draws=500), longer)
    assert_same(resume(folder, medium), longer)


def test_a_finished_run_resumed_is_itself(medium, reference, folder):
    assert_same(resume(folder, medium), reference)


@pytest.mark.parametrize("draws", [DRAWS - 1, 0, 400.0, "400"])
def test_a_run_cannot_be_shortened(medium, folder, draws):
    with pytest.raises(tb.OptionError, match=f"{DRAWS} draws per chain"):
        resume(folder, medium, draws=draws)


@pytest.fixture
def file(tmp_path):
    X, y = logistic_arrays(500)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": X[:, 1], "y": y}), path)
    return path


@pytest.mark.parametrize("memory", ["ram", "disk"])
def test_resume_reads_the_rows_again(file, tmp_path, memory):
    data = tb.read(file, "y ~ x", memory=memory, store=tmp_path / "store", progress=False)
    assert (data.store is None) == (memory == "ram")
    model = tb.models.logistic(data)
    sample(model, draws=40, checkpoint=tmp_path / "run")
    again = resume(tmp_path / "run", draws=80)
    assert_same(again, sample(model, draws=80))
    assert again.names == ("Intercept", "x")
    assert again.meta["default_prior"]
    if memory == "disk":
        file.unlink()
        assert_same(resume(tmp_path / "run"), again)


@pytest.mark.parametrize("family, options", [("poisson", {}), ("gaussian", {"sigma": 0.7}), ("gaussian", {})], ids=str)
@pytest.mark.parametrize("prior", [None, tb.priors.student_t(3.0, [1.0, 2.0], 0.5)], ids=["default", "student_t"])
def test_resume_builds_the_same_model_again(file, monkeypatch, tmp_path, family, options, prior):
    model = tb.models.build(family, tb.read(file, "y ~ x", progress=False), prior, **options)
    descriptions = []
    monkeypatch.setattr(api, "execute", lambda *arguments: descriptions.append(arguments[4]))
    sample(model)
    again = api._rebuild(json.loads(json.dumps(descriptions[0])), tmp_path, False)
    assert again.describe() == model.describe() and again.default_prior == model.default_prior
    theta = np.linspace(0.1, 0.4, model.dim)
    assert again.log_posterior(theta) == model.log_posterior(theta)


def test_rows_only_in_memory_need_the_model(folder):
    with pytest.raises(tb.StoreError, match=r"only in memory.*model="):
        resume(folder)


def test_changed_rows_are_refused(medium, folder):
    X, y = logistic_arrays(20_000)
    y[777] = 1.0 - y[777]
    with pytest.raises(tb.StoreError, match="not the rows"):
        resume(folder, tb.models.logistic(tb.Dataset.from_arrays(X, y), medium.prior))


def test_a_changed_file_is_refused(file, tmp_path):
    sample(tb.models.logistic(tb.read(file, "y ~ x", progress=False)), draws=5, warmup=5, checkpoint=tmp_path / "run")
    table = pq.read_table(file)
    pq.write_table(table.slice(1), file)
    with pytest.raises(tb.StoreError, match="not the rows"):
        resume(tmp_path / "run")
    file.unlink()
    with pytest.raises(tb.DataError, match="does not exist"):
        resume(tmp_path / "run")


def test_another_model_is_refused(medium, folder):
    with pytest.raises(tb.StoreError, match=r"not the model of the run.*normal"):
        resume(folder, tb.models.logistic(medium.data, tb.priors.normal(2.5)))


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


def test_a_folder_that_holds_a_run_is_refused(medium, reference, folder):
    with pytest.raises(tb.StoreError, match=r"already holds a run.*tallbayes\.resume"):
        sample(medium, checkpoint=folder)
    assert_same(resume(folder, medium), reference)


def test_a_run_that_could_not_begin_leaves_no_checkpoint(medium, tmp_path):
    sampler = tb.samplers.FullData(tb.moves.random_walk(blocks=[[0]]))
    with pytest.raises(tb.OptionError, match="blocks must hold each of the coordinates 0 to 1"):
        sample(medium, sampler, checkpoint=tmp_path / "run")
    sample(medium, draws=2, warmup=2, checkpoint=tmp_path / "run")


def test_a_folder_without_a_run_is_refused(medium, tmp_path):
    with pytest.raises(tb.StoreError, match="holds no run"):
        resume(tmp_path / "nowhere", medium)


def cut(path, size):
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)


@pytest.mark.parametrize("size", [0, 100, -1])
@pytest.mark.parametrize("name", ["chain-0.draws", "chain-1.npz", "run.json"])
def test_truncated_files_are_refused(medium, folder, name, size):
    cut(folder / name, size)
    with pytest.raises(tb.StoreError, match=rf"{name} is (truncated|damaged)"):
        resume(folder, medium)


@pytest.mark.parametrize("content", ["[]", "{}", '{"format": "tallbayes-run-0"}'])
def test_foreign_descriptions_are_refused(medium, folder, content):
    (folder / "run.json").write_text(content)
    with pytest.raises(tb.StoreError, match="does not describe a run"):
        resume(folder, medium)


def test_a_foreign_state_is_refused(medium, folder):
    with np.load(folder / "chain-0.npz") as file:
        parts = {k: file[k] for k in file.files}
    np.savez(folder / "chain-0.npz", **parts)
    with pytest.raises(tb.StoreError, match=r"chain-0\.npz is damaged: its digest is missing"):
        resume(folder, medium)


def test_an_edited_description_is_refused(medium, folder):
    description = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**description, "thin": 2}))
    with pytest.raises(tb.StoreError, match=r"run\.json is damaged: its content has changed since it was written"):
        resume(folder, medium)


def flipped(path, places, rng):
    """Copies of a file, each with a bit flipped at a random place."""
    content = path.read_bytes()
    for place in rng.integers(len(content), size=places):
        copy = bytearray(content)
        copy[place] ^= 1 << rng.integers(8)
        yield bytes(copy)


@pytest.mark.parametrize("name", ["run.json", "chain-0.npz", "chain-1.draws"])
def test_flipped_bits_in_a_checkpoint_are_refused_or_harmless(small, tmp_path, name):
    expected = sample(small.model, draws=20, warmup=10, checkpoint=tmp_path / "run")
    refusals = 0
    for number, content in enumerate(flipped(tmp_path / "run" / name, 40, np.random.default_rng(1))):
        folder = shutil.copytree(tmp_path / "run", tmp_path / str(number))
        (folder / name).write_bytes(content)
        try:
            assert_same(resume(folder, small.model), expected)
        except tb.StoreError as error:
            refusals += 1
            assert name in str(error)
    assert refusals >= 30 if name == "run.json" else refusals == 40  # a bit of white space in JSON may change


def test_a_lost_state_costs_time_but_no_draw(medium, reference, folder):
    (folder / "chain-0.npz").unlink()
    assert_same(resume(folder, medium), reference)


def test_bytes_after_the_counted_draws_are_ignored(medium, reference, folder):
    with open(folder / "chain-1.draws", "ab") as file:
        file.write(b"left by a save that was cut short")
    assert_same(resume(folder, medium), reference)


def test_a_flipped_bit_in_saved_draws_is_refused(tmp_path):
    model = tb.models.gaussian(tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0)), sigma=1.0)
    tb.sample(model, "hmc", draws=50, warmup=20, chains=2, seed=1, checkpoint=tmp_path / "run", progress=False)
    path = tmp_path / "run" / "chain-0.draws"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(tb.StoreError, match="changed since they were saved"):
        tb.resume(tmp_path / "run", model, draws=80, progress=False)


def test_chains_that_disagree_are_warned_of():
    """Two modes far apart: each chain stays at its own, and only together do they show it."""
    data = tb.Dataset.from_arrays(np.ones((40, 1)), np.repeat([-40.0, 40.0], [25, 15]) + np.linspace(-1.0, 1.0, 40))
    model = tb.models.student_t(data, tb.priors.flat(), nu=4.0, scale=1.0)
    common = {"warmup": 100, "chains": 2, "seed": 1, "init": [[-40.0], [40.0]], "progress": False}
    with pytest.warns(tb.TallbayesWarning, match=r"the chains disagree about 'x0' \(R-hat \d.*Run longer; .* use another"):
        tb.sample(model, "mh", draws=400, **common)


def test_a_thinned_draw_tells_of_all_its_iterations(small):
    """Sums, rates and largest values of five iterations, not those of the last."""
    settings = {"warmup": 30, "chains": 2, "seed": 4, "progress": False}
    sampler = tb.samplers.ExactMinibatch(two_stage=False)
    every = tb.sample(small.model, sampler, draws=50, **settings)
    fifth = tb.sample(small.model, sampler, draws=10, thin=5, **settings)
    np.testing.assert_array_equal(every.theta[:, 4::5], fifth.theta)
    parts = {name: values.reshape(2, 10, 5) for name, values in every.stats.items()}
    for name, whole in (
        ("evals", parts["evals"].sum(2)),
        ("largest_ratio", parts["largest_ratio"].max(2)),
        ("acceptance_rate", parts["acceptance_rate"].mean(2)),
        ("component", parts["component"][:, :, -1]),
    ):
        np.testing.assert_allclose(fifth.stats[name], whole, rtol=1e-12)
    assert (fifth.stats["largest_ratio"] > parts["largest_ratio"][:, :, -1]).any()


def test_a_thinned_run_is_not_said_to_cost_what_a_draw_costs(small):
    """An iteration of austerity on few rows costs up to 2 n; five of them are not one."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit = tb.sample(small.model, "austerity", draws=20, warmup=20, chains=1, thin=5, seed=2, progress=False)
    share = fit.cost()["draws"]["evals_per_iteration"] / small.model.data.n
    told = [str(w.message) for w in said if "n evaluations per iteration on average" in str(w.message)]
    assert all(f"cost {share:.2f} n" in text for text in told) and bool(told) == (share > 1.0)
