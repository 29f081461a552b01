"""The types that samplers are compiled for: the same whatever the model, with few arrays in a target."""

import warnings

import numba
import numpy as np
import pytest

import tallbayes as tb
from benchmarks import standard
from tallbayes.engine.random_rows import UniformRows
from tallbayes.errors import ModelError
from tallbayes.samplers import SAMPLERS, ExactMinibatch

MOST = 12  # arrays in a target
CASES = ("logistic", "poisson", "negbin", "gamma", "gaussian", "student_t, known", "softmax 3", "logistic float32")
UNKNOWN_SCALES = ("ridge",)
UNGROUPED = [name for name in SAMPLERS if not SAMPLERS[name]().needs_groups]
MADE = {**{name: SAMPLERS[name] for name in UNGROUPED}, "exact-minibatch, order 3": lambda: ExactMinibatch(order=3)}
every = pytest.mark.parametrize("name", MADE)


def arrays(thing):
    """Arrays in nested tuples."""
    if isinstance(thing, np.ndarray):
        return 1
    return sum(map(arrays, thing)) if isinstance(thing, tuple) else 0


@pytest.fixture(scope="module")
def modes():
    return {case: tb.find_mode(standard.make(case, 2000), progress=False) for case in (*CASES, *UNKNOWN_SCALES)}


def setups(name, modes):
    """Case and setup of every model that a sampler serves."""
    sampler = MADE[name]()
    for case in UNKNOWN_SCALES if sampler.needs_unknown_scales else CASES:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield case, modes[case], sampler.setup(modes[case].model, modes[case], 1, False)
        except ModelError:
            continue


@every
def test_a_target_has_few_arrays(name, modes):
    found = 0
    for case, _, setup in setups(name, modes):
        assert arrays(setup.target()) <= MOST, case
        found += 1
    assert found > 0


@every
def test_a_sampler_has_one_type_for_all_families(name, modes):
    """Rows in single precision are a second one; nothing else may depend on the family, its parameters or the number of indices."""
    kinds = {}
    for case, mode, setup in setups(name, modes):
        policy, target = setup.policy, setup.target()
        for final in (False, True):
            options = policy.options(policy.begin(), final)
            seen = (target.rows, *target[1:], options, policy.blank(mode.reference))
            kinds.setdefault(case.endswith("float32"), {}).setdefault(tuple(map(str, map(numba.typeof, seen))), []).append(case)
    assert all(len(found) == 1 for found in kinds.values()), [list(found.values()) for found in kinds.values()]
    double, single = (next(iter(kinds[key])) if key in kinds else None for key in (False, True))
    assert single is None or double is None or double[1:] == single[1:]


def test_modes_that_are_jumped_between_have_the_type_of_one():
    """A tuple with a part for each mode would be a type of its own for every number of them."""
    kinds = set()
    for y in ([-5.0, 5.0], [0.0, 0.5]):
        data = tb.Dataset.from_arrays(np.ones((20, 1)), np.repeat(y, 10))
        mode = tb.find_mode(tb.models.student_t(data, nu=4.0, scale=2.0), progress=False)
        setup = SAMPLERS["mode-jumping"]().setup(mode.model, mode, 1, False)
        kinds.add((setup.proxy.weights.shape[1], str(numba.typeof(setup.target().proxy))))
    assert {count for count, _ in kinds} == {1, 2} and len({kind for _, kind in kinds}) == 1


def test_what_is_counted():
    assert arrays((np.zeros(1), (2.0, (np.zeros(1),)), UniformRows(3))) == 2
