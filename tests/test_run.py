"""The driver and checkpoints: draws depend on the seed alone, whatever happens to the run."""

import json
import os
import shutil
import time
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import logistic_arrays

import tallbayes as tb

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
