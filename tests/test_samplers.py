"""The contract of a sampler, run for every name in `tallbayes.samplers.SAMPLERS`."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from support import run_chunks

import tallbayes as tb
from tallbayes import target as targets
from tallbayes.contract import Guarantee
from tallbayes.run.chain import Chain
from tallbayes.run.flattening import flatten, unflatten
from tallbayes.samplers import KINDS, SAMPLERS, FullData, from_dict, resolve
from tallbayes.target import COUNTED
from tallbayes.testing import THRESHOLD, invariance_scores

ROWS = 60
FULL_DATA = [name for name in SAMPLERS if isinstance(resolve(name), FullData)]
every_sampler = pytest.mark.parametrize("name", SAMPLERS)
every_full_data = pytest.mark.parametrize("name", FULL_DATA)


def test_discovery_finds_the_samplers():
    assert {"mh", "hmc", "nuts"} <= set(FULL_DATA) <= set(SAMPLERS)


@every_sampler
def test_a_name_resolves_to_itself(name):
    assert resolve(name).name == name
    assert resolve(resolve(name)) == resolve(name)


@every_sampler
def test_options_survive_json(name):
    sampler = resolve(name)
    assert from_dict(json.loads(json.dumps(sampler.as_dict()))) == sampler


@pytest.mark.parametrize(
    "name, options",
    [
        ("random_walk", {"acceptance": 0.3, "blocks": ((0, 2), (1,))}),
        ("hmc", {"time": 0.7, "acceptance": 0.6, "mass": "diagonal"}),
        ("nuts", {"acceptance": 0.9, "mass": "diagonal", "max_depth": 4}),
    ],
)
def test_options_of_moves_survive_json(name, options):
    sampler = FullData(tb.moves.MOVES[name](**options))
    again = from_dict(json.loads(json.dumps(sampler.as_dict())))
    assert again == sampler and asdict(again.move) == options


@every_sampler
def test_the_guarantee_is_one_of_the_kinds_and_says_something(name):
    guarantee = resolve(name).guarantee
    assert guarantee.kind in KINDS
    assert str(guarantee).startswith(f"{guarantee.kind}: ") and len(guarantee.statement) > 20
    assert resolve(name).cost


def test_kinds_go_from_strongest_to_weakest():
    assert KINDS == ("EXACT", "EXACT-SIGNED", "TV-BOUND", "ASYMPTOTIC", "HEURISTIC")
    assert Guarantee("EXACT", "so it is").checked == ()


@every_sampler
def test_columns_are_unique_and_begin_with_the_counters(name):
    sampler = resolve(name)
    assert sampler.columns == (*COUNTED, *sampler.info)
    assert len(set(sampler.columns)) == len(sampler.columns)
    assert "acceptance_rate" in sampler.info


@every_sampler
def test_chunks_never_change_draws(name, small):
    whole, whole_info, whole_state = run_chunks(resolve(name), small.model, small.mode, [20], thin=2)
    parts, parts_info, parts_state = run_chunks(resolve(name), small.model, small.mode, [7, 13], thin=2)
    np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(whole_info, parts_info)
    for key, value in whole_state.items():
        np.testing.assert_array_equal(value, parts_state[key])


@every_sampler
def test_thinned_draws_are_every_second_one(name, small):
    every, every_info, _ = run_chunks(resolve(name), small.model, small.mode, [40])
    second, second_info, _ = run_chunks(resolve(name), small.model, small.mode, [20], thin=2)
    np.testing.assert_array_equal(every[1::2], second)
    counted = len(COUNTED)
    np.testing.assert_array_equal(every_info[::2, :counted] + every_info[1::2, :counted], second_info[:, :counted])


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name not in FULL_DATA])  # those are in test_moves.py
def test_exact_samplers_keep_exact_draws(name, small):
    sampler = resolve(name)
    if sampler.guarantee.kind != "EXACT":
        pytest.skip("the posterior is not its invariant law")
    assert np.abs(invariance_scores(sampler, small.model, small.posterior)).max() < THRESHOLD
    assert np.abs(invariance_scores(sampler, small.tempered, small.posterior)).max() > THRESHOLD


@pytest.mark.parametrize("name", ["mh", "hmc", "nuts"])
def test_evaluations_are_counted(name, small):
    _, info, _ = run_chunks(resolve(name), small.model, small.mode, [50])
    report = dict(zip(resolve(name).columns, info.T, strict=True))
    if name == "mh":
        np.testing.assert_array_equal(report["evals"], np.full(50, ROWS))
        assert not report["evals_gradient"].any()
    else:
        np.testing.assert_array_equal(report["evals"], ROWS * report["n_steps"])
        np.testing.assert_array_equal(report["evals_gradient"], report["evals"])
        assert np.unique(report["n_steps"]).size > 1
    np.testing.assert_array_equal(report["evals_value"], report["evals"])
    np.testing.assert_array_equal(report["evals_paper"], report["evals"])


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


@every_sampler
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
    assert any((before[k] != learned[k]).any() for k in before if k.startswith("options"))
    for key, value in learned.items():
        np.testing.assert_array_equal(value, after[key])


@every_sampler
def test_state_and_tuning_can_be_saved(name, small):
    sampler = resolve(name)
    policy = sampler.setup(small.model, small.mode, 5, False).policy
    for value in (policy.blank(small.mode.reference), policy.begin()):
        again = unflatten(value, flatten(value, "it"), "it")
        assert type(again) is type(value)
        for key, array in flatten(value).items():
            np.testing.assert_array_equal(array, flatten(again)[key])
            assert array.dtype == flatten(again)[key].dtype
