"""Internals of `tallbayes.run.chain`; what users see of it is tested in test_run.py and test_endings.py."""

import pickle
import shutil
import threading
import time

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from internals.support import interrupting
from tallbayes import samplers, streams
from tallbayes.run import chain as chains_module
from tallbayes.run.chain import Chain
from tallbayes.target import END_NOW, END_SOON, EVALS

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


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("seconds", [1e-9, 0.003, 1e3])
def test_cores_and_chunks_do_not_change_draws(medium, reference, monkeypatch, cores, seconds):
    sizes = []
    monkeypatch.setattr(chains_module, "CHUNK_SECONDS", seconds)
    monkeypatch.setattr(Chain, "chunk", lambda chain, goal, chunk=Chain.chunk: sizes.append(made := chunk(chain, goal)) or made)
    assert_same(sample(medium, cores=cores), reference)
    assert sum(sizes) == 2 * (DRAWS + WARMUP)
    assert max(sizes) == 1 if seconds < 1e-6 else max(sizes) > 1


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


def test_control_c_in_warm_up_names_the_remedy(medium, monkeypatch):
    interrupting(monkeypatch, 1, after=0)
    with pytest.raises(tb.StoppedError, match=r"interrupted.*Nothing was saved.*checkpoint=") as caught:
        sample(medium, cores=1)
    assert (caught.value.status, caught.value.folder) == ("interrupted", None)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_second_control_c_stops_at_once(medium, monkeypatch):
    interrupting(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        sample(medium, draws=10_000_000, cores=2)


@pytest.fixture(scope="module")
def model():
    return tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(5000)), tb.priors.normal(2.0))


def _chain(model, thin, warmup=0):
    mode = tb.find_mode(model, progress=False)
    sampler = samplers.resolve("mh")
    return Chain(0, sampler, sampler.setup(model, mode, 1, False), streams.chain(1, 0), mode.reference, warmup, thin)


def test_a_thinned_draw_is_given_up_within_it(model):
    """A draw of 200,000 iterations: the chunk comes back without it, and the chain cannot be saved."""
    chain = _chain(model, 200_000)
    chain.compile()
    thread = threading.Thread(target=chain.chunk, args=(10,))
    thread.start()
    time.sleep(0.2)
    chain.ask(END_NOW)
    thread.join(60.0)
    assert not thread.is_alive()
    assert chain.abandoned and not chain.failed
    assert chain.draws == 0 and chain.collected()[0].shape[0] == 0
    assert 0 < chain.target.counters[EVALS] < 200_000 * model.data.n


def test_a_chunk_that_ends_soon_has_whole_draws_and_goes_on_as_if_nothing_had_been(model):
    whole, parts = _chain(model, 1), _chain(model, 1)
    for chain in (whole, parts):
        chain.per_second = 250.0  # chunks of 50 iterations
    whole.chunk(50)
    parts.ask(END_SOON)
    parts.chunk(50)
    assert 0 < parts.draws < 50 and not parts.abandoned
    parts.allow()
    while parts.draws < 50:
        parts.chunk(50)
    np.testing.assert_array_equal(parts.collected()[0], whole.collected()[0])
