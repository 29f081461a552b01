"""Internals of `tallbayes.deadline`; what users see of it is tested in test_endings.py."""

import time

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes import samplers, streams
from tallbayes.contract import advance_pilot
from tallbayes.deadline import Deadline, limited
from tallbayes.run.chain import Chain
from tallbayes.target import EVALS


@pytest.fixture(scope="module")
def model():
    return tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(5000)), tb.priors.normal(2.0))


def _chain(model, thin, warmup=0):
    mode = tb.find_mode(model, progress=False)
    sampler = samplers.resolve("mh")
    return Chain(0, sampler, sampler.setup(model, mode, 1, False), streams.chain(1, 0), mode.reference, warmup, thin)


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
