"""The contract of a sampler, run for every name in `tallbayes.samplers.SAMPLERS`."""

import dataclasses
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from support import sampler_skeletons

import tallbayes as tb
from tallbayes.moves import MoveInfo
from tallbayes.samplers import KINDS, FullData, Guarantee
from tallbayes.samplers import SAMPLERS as BUILT_IN
from tallbayes.samplers import from_dict as built_in_from_dict
from tallbayes.testing import THRESHOLD, invariance_scores, run_chunks

ROWS = 60
COUNTED = ("evals", "evals_value", "evals_gradient", "evals_paper")
SKELETONS = {name: kind for kind in sampler_skeletons() for name in [kind.name]}
SAMPLERS = {**BUILT_IN, **SKELETONS}  # the samplers of docs/write-a-sampler.md keep the same contract


def resolve(name):
    return SAMPLERS[name]() if name in SKELETONS else tb.samplers.resolve(name)


def from_dict(options):
    kinds = {kind.__name__: kind for kind in SKELETONS.values()}
    if options["class"] in kinds:
        return kinds[options["class"]].from_options({k: v for k, v in options.items() if k != "class"})
    return built_in_from_dict(options)


FULL_DATA = [name for name in SAMPLERS if isinstance(resolve(name), FullData)]
every_sampler = pytest.mark.parametrize("name", SAMPLERS)
SPECIAL = ("needs_groups", "needs_unknown_scales")  # tests/test_hierarchical.py, tests/test_unknown_scales.py
UNGROUPED = [name for name in SAMPLERS if not any(getattr(resolve(name), need) for need in SPECIAL)]
every_ungrouped = pytest.mark.parametrize("name", UNGROUPED)


def test_discovery_finds_the_samplers():
    assert {"mh", "hmc", "nuts"} <= set(FULL_DATA) <= set(SAMPLERS)


@every_sampler
def test_a_name_resolves_to_itself(name):
    assert resolve(name).name == name
    assert tb.samplers.resolve(resolve(name)) == resolve(name)


@every_sampler
def test_options_survive_json(name):
    sampler = resolve(name)
    assert from_dict(json.loads(json.dumps(sampler.as_dict()))) == sampler


@pytest.mark.parametrize(
    "name, options",
    [
        ("random_walk", {"acceptance": 0.3, "blocks": ((0, 2), (1,)), "isotropic": True}),
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


@pytest.mark.parametrize("name", [name for name in BUILT_IN if "n_steps" in resolve(name).info])
def test_columns_of_a_move_come_first(name):
    """Moves write to the first columns of what a sampler reports."""
    assert resolve(name).info[1 : len(MoveInfo._fields)] == MoveInfo._fields[1:]


@every_sampler
def test_options_of_the_wrong_type_are_refused(name):
    sampler = resolve(name)
    assert dataclasses.fields(sampler) or name in SKELETONS
    for field in dataclasses.fields(sampler):
        if field.name == "statistics":  # a name or a function: checked by the sampler
            continue
        with pytest.raises(tb.OptionError, match=rf"^{field.name} of {type(sampler).__name__} must be "):
            dataclasses.replace(sampler, **{field.name: object()})
        with pytest.raises(tb.OptionError):
            dataclasses.replace(sampler, **{field.name: {"a": 1}})
        if field.name == "move":
            with pytest.raises(tb.OptionError, match=r"an object of tallbayes\.moves, such as"):
                dataclasses.replace(sampler, move="hmc")


def test_a_folder_is_the_table():
    """Every file of samplers/ holds samplers, and every sampler is found by its names."""
    folder = Path(tb.samplers.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert {kind.__module__.rpartition(".")[2] for kind in tb.samplers.CLASSES.values()} == files
    assert {type(make()) for make in BUILT_IN.values()} == set(tb.samplers.CLASSES.values())
    assert set(tb.samplers.CLASSES) <= set(tb.samplers.__all__) <= set(dir(tb.samplers))


@every_ungrouped
def test_chunks_never_change_draws(name, small):
    whole, whole_info, whole_state = run_chunks(resolve(name), small.model, small.mode, [20], thin=2)
    parts, parts_info, parts_state = run_chunks(resolve(name), small.model, small.mode, [7, 13], thin=2)
    np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(whole_info, parts_info)
    for key, value in whole_state.items():
        np.testing.assert_array_equal(value, parts_state[key])


@every_ungrouped
def test_thinned_draws_are_every_second_one(name, small):
    every, every_info, _ = run_chunks(resolve(name), small.model, small.mode, [40])
    second, second_info, _ = run_chunks(resolve(name), small.model, small.mode, [20], thin=2)
    np.testing.assert_array_equal(every[1::2], second)
    counted = len(COUNTED)
    np.testing.assert_array_equal(every_info[::2, :counted] + every_info[1::2, :counted], second_info[:, :counted])


@pytest.mark.parametrize("name", [name for name in UNGROUPED if name not in FULL_DATA])  # those are in test_moves.py
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


@pytest.mark.parametrize(
    "kind, options, ignored",
    [
        ("DelayedAcceptance", {"form": "product"}, {"order": 2}),
        ("DelayedAcceptance", {"form": "surrogate"}, {"batches": 10}),
        ("HMCECS", {"estimator": "perturbed"}, {"batch": 30}),
        ("HMCECS", {"estimator": "perturbed"}, {"shift": 1.0}),
        ("HMCECS", {"estimator": "perturbed"}, {"pilot": 200}),
        ("HMCECS", {"estimator": "perturbed"}, {"products": 3}),
        ("HMCECS", {"estimator": "signed"}, {"blocks": 100}),
        ("HMCECS", {"estimator": "signed"}, {"variance": 1.0}),
        ("HMCECS", {"estimator": "signed"}, {"subsample": 30}),
        ("Firefly", {"resample": "implicit"}, {"fraction": 0.1}),
        ("BlockPseudoMarginal", {"rows": "learned"}, {"order": 2}),
    ],
)
def test_options_that_would_be_ignored_are_refused(kind, options, ignored):
    make = getattr(tb.samplers, kind)
    make(**options)
    with pytest.raises(tb.OptionError, match=next(iter(ignored))):
        make(**options, **ignored)


@pytest.mark.parametrize("ignored", [{"local": 0.9}, {"rate": 0.1}])
def test_swaps_refuse_the_options_of_windows(small, ignored):
    with pytest.raises(tb.OptionError, match="belongs to rows='window'"):
        tb.samplers.Informed(**ignored).setup(small.model, small.mode, 0, False)
    with pytest.raises(tb.OptionError, match="swaps= belongs to rows='swap'"):
        tb.samplers.Informed(rows="window", swaps=1).setup(small.model, small.mode, 0, False)
