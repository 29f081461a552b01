"""Internals of `tallbayes.run.flattening`; what users see of it is tested in test_samplers.py."""

import numpy as np
import pytest
from support import sampler_skeletons

import tallbayes as tb
from tallbayes.run.chain import Chain
from tallbayes.run.flattening import flatten, unflatten
from tallbayes.samplers import SAMPLERS as BUILT_IN

SKELETONS = {name: kind for kind in sampler_skeletons() for name in [kind.name]}
SAMPLERS = {**BUILT_IN, **SKELETONS}  # the samplers of docs/write-a-sampler.md keep the same contract


def resolve(name):
    return SAMPLERS[name]() if name in SKELETONS else tb.samplers.resolve(name)


SPECIAL = ("needs_groups", "needs_unknown_scales")  # tests/test_hierarchical.py, tests/test_unknown_scales.py
UNGROUPED = [name for name in SAMPLERS if not any(getattr(resolve(name), need) for need in SPECIAL)]
every_ungrouped = pytest.mark.parametrize("name", UNGROUPED)


@every_ungrouped
def test_everything_is_frozen_after_warm_up(name, small):
    sampler = resolve(name)
    setup = sampler.setup(small.model, small.mode, 5, False)
    chain = Chain(0, sampler, setup, np.random.SeedSequence(5), small.mode.reference, warmup=60, thin=1)

    def everything():
        parts = {"options": chain.options, "tuning": chain.tuning, "proxy": setup.proxy}
        return {k: v.copy() for part, value in parts.items() for k, v in flatten(value, part).items()}

    before = everything()
    while chain.warming:
        chain.chunk(100)
    learned = everything()
    while chain.draws < 100:
        chain.chunk(100)
    after = everything()
    assert before.keys() == learned.keys() == after.keys()
    tuned = any((before[k] != learned[k]).any() for k in before if k.startswith("options"))
    assert tuned or name in ("laplace-proposals", "naive-hmc")  # which have nothing to tune
    for key, value in learned.items():
        np.testing.assert_array_equal(value, after[key])


@every_ungrouped
def test_state_and_tuning_can_be_saved(name, small):
    sampler = resolve(name)
    policy = sampler.setup(small.model, small.mode, 5, False).policy
    for value in (policy.blank(small.mode.reference), policy.begin()):
        again = unflatten(value, flatten(value, "it"), "it")
        assert type(again) is type(value)
        for key, array in flatten(value).items():
            np.testing.assert_array_equal(array, flatten(again)[key])
            assert array.dtype == flatten(again)[key].dtype
