"""Runs that could not be ended: whatever a sampler is doing, a time limit or Ctrl-C ends it, and the draws do not depend on when."""

import threading
import time
import warnings

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes import samplers, streams
from tallbayes.contract import advance_pilot, init, step
from tallbayes.deadline import Deadline, limited
from tallbayes.run.chain import Chain
from tallbayes.target import ABANDONED, END_NOW, END_SOON, EVALS, RUNNING, STATUS, STOP, stopped
from tallbayes.testing import mode_at

LONG = {  # samplers whose iterations may take long, set so that they do
    "mh": samplers.FullData(tb.moves.random_walk()),
    "hmc": samplers.FullData(tb.moves.hmc(time=30.0)),
    "nuts": samplers.FullData(tb.moves.nuts()),
    "slice": samplers.FullData(tb.moves.slice(steps=50, directions=20)),
    "zigzag": samplers.ZigZag(interval=50.0),
    "noise-exchange": samplers.NoiseExchange(subsample=100_000),
    "hmc-ecs": samplers.HMCECS(subsample=30, move=tb.moves.hmc(time=100.0)),
    "firefly": samplers.Firefly(move=tb.moves.hmc(time=100.0)),
    "informed": samplers.Informed(subsample=30, move=tb.moves.hmc(time=100.0)),
    "sghmc": samplers.SGHMC(subsample=10, steps=500),
}


@pytest.fixture(scope="module")
def model():
    return tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(5000)), tb.priors.normal(2.0))


@pytest.mark.parametrize("name", LONG)
def test_an_iteration_that_is_to_end_reads_at_most_one_more_pass(small, name):
    """The rows counted after the request are those of one look at most; without it they are many times that."""
    sampler, n = LONG[name], small.model.data.n
    setup = sampler.setup(small.model, small.mode, 1, False)
    options, target = setup.policy.options(setup.policy.begin(), True), setup.target()
    rng, info = np.random.default_rng(1), np.zeros(len(sampler.info))
    state = init(rng, target, options, small.mode.reference)
    assert target.counters[STATUS] == RUNNING
    target.counters[STOP] = END_NOW
    before = int(target.counters[EVALS])
    step(rng, target, options, state, info)
    assert target.counters[STATUS] == ABANDONED
    assert int(target.counters[EVALS]) - before <= 2 * n


def test_garbage_of_an_abandoned_iteration_is_no_error(small):
    """A loop that ended early may leave numbers that break a bound: the status stays that of the request."""
    from tallbayes.target import BOUND_EXCEEDED, stop_run

    target = samplers.FullData().setup(small.model, small.mode, 1, False).target()
    target.counters[STOP] = END_NOW
    assert stopped(target)
    stop_run(target, BOUND_EXCEEDED, 3)
    assert target.counters[STATUS] == ABANDONED


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


def test_draws_do_not_depend_on_when_a_run_was_stopped(model, tmp_path):
    """Stopped within a draw, resumed, stopped again: the same draws as of a run that was left alone."""
    options = {"warmup": 0, "chains": 2, "seed": 4, "thin": 2000, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.TallbayesWarning)
        alone = tb.sample(model, "mh", draws=4, **options)
        first = tb.sample(model, "mh", draws=100_000, max_seconds=3.0, checkpoint=tmp_path / "run", **options)
        second = tb.resume(tmp_path / "run", model, max_seconds=3.0, progress=False)
    assert first.status == second.status == "time limit"
    made = min(4, first.theta.shape[1])
    np.testing.assert_array_equal(first.theta[:, :made], alone.theta[:, :made])
    shared = min(first.theta.shape[1], second.theta.shape[1])
    np.testing.assert_array_equal(first.theta[:, :shared], second.theta[:, :shared])


def test_the_limit_ends_the_search_for_the_mode_and_a_pilot(model):
    with limited(Deadline(1e-9)), pytest.raises(tb.OptionError, match=r"time limit.*during setup.*allow more time"):
        tb.find_mode(model, progress=False)
    mode = tb.find_mode(model, progress=False)
    setup = samplers.resolve("mh").setup(model, mode, 1, False)
    options, blank = setup.policy.options(setup.policy.begin(), True), setup.policy.blank(mode.reference)
    _chain(model, 1).compile()
    with limited(Deadline(0.3)):
        target = setup.target()
        with pytest.raises(tb.OptionError, match="time limit"):
            advance_pilot(np.random.default_rng(1), target, options, blank, 300_000, len(samplers.resolve("mh").columns))
    assert 0 < target.counters[EVALS] < 300_000 * model.data.n


def test_compiling_is_not_counted():
    from numba import njit

    limit = Deadline(1000.0)
    begun = time.monotonic()
    njit(lambda x: x + len([x for _ in range(3)]))(1)
    assert limit.left > 1000.0 - 0.9 * (time.monotonic() - begun) - 0.05


def test_no_draw_says_how_far_it_came(model):
    with pytest.raises(tb.OptionError, match=r"during warm-up .*of 10,000,000 iterations.*Allow more time"):
        tb.sample(model, "mh", warmup=10_000_000, chains=2, seed=1, max_seconds=0.2, progress=False)


def test_zigzag_on_separated_rows_is_refused_with_the_prediction():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4000, 2))
    data = tb.Dataset.from_arrays(np.c_[np.ones(4000), x], (x[:, 0] > 0.3).astype(float))
    with (
        pytest.warns(tb.TallbayesWarning, match="'x1' separates the response"),
        pytest.raises(tb.ModelError, match=r"candidate events per draw.*Use a full-data sampler"),
    ):
        tb.sample(tb.models.logistic(data), "zigzag", seed=1, max_seconds=5.0, progress=False)


def test_noise_exchange_that_would_read_the_rows_many_times_is_refused():
    """Errors twenty times the stated sigma: log ratios vary so much that a decision needs hundreds of passes."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(10_000)
    model = tb.models.gaussian(tb.Dataset.from_arrays(np.c_[np.ones(x.size), x], x + rng.standard_normal(x.size)), sigma=0.05)
    with pytest.raises(tb.ModelError, match=r"rows in every decision, \d+ times the 10,000 there are.*sampler='mh'"):
        tb.sample(model, "noise-exchange", seed=1, progress=False)


def test_hmc_ecs_at_a_reference_far_from_the_mode_is_refused(model):
    bad = mode_at(model, np.full(model.dim, 8.0))
    for name in ("hmc-ecs", "hmc-ecs-signed"):
        with pytest.raises(tb.ModelError, match=r"posterior standard deviations from the mode.*recentre=2"):
            tb.sample(model, name, mode=bad, seed=1, progress=False)


def test_an_estimate_of_many_times_the_rows_is_refused():
    from tallbayes.diagnostics.subsample_pilot import require_hope

    require_hope(150_000, 1000)
    with pytest.raises(tb.ModelError, match=r"about 3e\+05 rows, 300 times the 1,000 there are"):
        require_hope(300_000, 1000)
