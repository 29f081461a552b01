"""Internals of `tallbayes.target`; what users see of it is tested in test_samplers.py and test_endings.py."""

import numpy as np
import pytest
from support import sampler_skeletons

import tallbayes as tb
from tallbayes import samplers
from tallbayes import target as targets
from tallbayes.contract import init, step
from tallbayes.samplers import SAMPLERS as BUILT_IN
from tallbayes.samplers import FullData
from tallbayes.target import ABANDONED, END_NOW, EVALS, RUNNING, STATUS, STOP, stopped
from tallbayes.testing import run_chunks

ROWS = 60
SKELETONS = {name: kind for kind in sampler_skeletons() for name in [kind.name]}
SAMPLERS = {**BUILT_IN, **SKELETONS}  # the samplers of docs/write-a-sampler.md keep the same contract


def resolve(name):
    return SAMPLERS[name]() if name in SKELETONS else tb.samplers.resolve(name)


FULL_DATA = [name for name in SAMPLERS if isinstance(resolve(name), FullData)]
SPECIAL = ("needs_groups", "needs_unknown_scales")  # tests/test_hierarchical.py, tests/test_unknown_scales.py
UNGROUPED = [name for name in SAMPLERS if not any(getattr(resolve(name), need) for need in SPECIAL)]
every_full_data = pytest.mark.parametrize("name", FULL_DATA)


@every_full_data
def test_counted_rows_are_the_rows_that_were_read(name, small, monkeypatch):
    read = {"range_value": 0, "range_gradient": 0}

    def counting(verb):
        original = getattr(targets, verb)

        def count(rows, start, stop, *rest):
            read[verb] += stop - start
            return original(rows, start, stop, *rest)

        return count

    for verb in read:
        monkeypatch.setattr(targets, verb, counting(verb))
    _, info, _ = run_chunks(resolve(name), small.model, small.mode, [5], compiled=False)
    at_the_start = ROWS
    assert sum(read.values()) - at_the_start == info[:, 0].sum() > 0


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
    with np.errstate(invalid="ignore"):  # interpreted, what is thrown away may subtract infinities
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
