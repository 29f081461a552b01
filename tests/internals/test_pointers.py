"""Internals of `tallbayes.pointers`: what is behind addresses, where its code comes from, and how long its arrays live."""

import gc
import json
import os
import shutil
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numba import types

import tallbayes
from tallbayes import pointers
from tallbayes.pointers import (
    Held,
    array_at,
    cache_name,
    calls,
    held_by,
    kind_of,
    member_maker,
    member_of,
    member_pointer,
    numbers_of,
    pointer,
)

NUMBERS = types.Array(types.float64, 1, "C")
SIGNATURE = types.int64(NUMBERS, NUMBERS)
call = calls(SIGNATURE)


# Members behind one array of numbers


class Empty(NamedTuple):
    pass


class Inner(NamedTuple):
    switch: bool
    matrix: np.ndarray
    pair: tuple[float, int]


class Everything(NamedTuple):
    real: float
    switch: bool
    whole: int
    nothing: Empty
    inner: Inner
    plain: tuple[Inner, tuple[float]]
    doubles: np.ndarray
    singles: np.ndarray
    wholes: np.ndarray
    small: np.ndarray
    flags: np.ndarray
    none: np.ndarray
    last: float


def everything(seed=0):
    rng = np.random.default_rng(seed)
    inner = [Inner(k == 1, rng.standard_normal((2 + k, 3)), (-np.inf, -(2**53) + k)) for k in range(2)]
    arrays = {
        "doubles": rng.standard_normal(4),
        "singles": rng.standard_normal((2, 5)).astype(np.float32),
        "wholes": np.array([-(2**62), 2**62 + 1]),
        "small": np.array([0, 65_535, 7], np.uint16),
        "flags": np.array([True, False, True]),
        "none": np.empty((0, 3)),
    }
    return Everything(0.1, True, -5, Empty(), inner[0], (inner[1], (2.5,)), **arrays, last=7.0)


def described(member, out):
    """Numbers of every field, in a way that tells any two of them apart."""
    out[0] = member.real if member.switch else -1.0
    out[1] = member.whole // 2  # of a whole number: -3
    inner, (other, (half,)) = member.inner, member.plain
    for k, one in enumerate((inner, other)):
        out[2 + k] = 1.0 if one.switch else 0.0
        out[4 + k] = one.pair[0]
        out[6 + k] = one.pair[1] % 10
        for a in range(one.matrix.shape[0]):
            for b in range(one.matrix.shape[1]):
                out[8 + k] += (1 + 3 * a + b) * one.matrix[a, b]
    out[10] = half
    for a in range(member.doubles.size):
        out[11] += (a + 1) * member.doubles[a]
    for a in range(member.singles.shape[0]):
        for b in range(member.singles.shape[1]):
            out[12] += (1 + 5 * a + b) * float(member.singles[a, b])
    out[13] = member.wholes[1] % 1000 - member.wholes[0] % 7
    out[14] = member.small[1] * 2.0 - member.small[2]
    for a in range(member.flags.size):
        out[15] += (a + 1) if member.flags[a] else 0
    out[16] = member.none.size + 10.0 * member.none.shape[0] + 100.0 * member.none.shape[1]
    out[17] = member.last


SIZE = 18


@pytest.fixture(scope="module")
def description():
    """The address of `described`."""
    kind = kind_of(everything())
    make, work = member_maker(kind), tallbayes.compile.inlinable(described)

    def function(p, out):
        work(make(p), out)
        return 0

    return member_pointer(function, "described", kind, SIGNATURE)


@numba.njit
def compiled_call(address, p, out):
    return call(address, p, out)


@pytest.mark.parametrize("run", [call, compiled_call], ids=["interpreted", "compiled"])
@pytest.mark.parametrize("room", [0, 3])
def test_a_member_is_made_again_from_its_numbers(run, room, description):
    member, expected, found = everything(), np.zeros(SIZE), np.zeros(SIZE)
    described(member, expected)
    assert run(description, numbers_of(member, room), found) == 0
    np.testing.assert_allclose(found, expected, rtol=1e-15)
    assert len(set(expected.tolist())) >= SIZE - 2


def equal(first, second):
    if isinstance(first, tuple):
        return type(first) is type(second) and all(map(equal, first, second))
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and first.shape == second.shape and np.array_equal(first, second)
    return first == second


def test_a_made_member_equals_the_first_and_shares_its_arrays():
    member = everything()
    made = member_maker(kind_of(member))(numbers_of(member))
    assert equal(made, member) and not equal(made, everything(1))
    assert np.shares_memory(made.singles, member.singles) and np.shares_memory(made.inner.matrix, member.inner.matrix)
    member.doubles[0] = 42.0
    assert made.doubles[0] == 42.0
    assert member_of(numbers_of(member), kind_of(member)) is member
    assert member_of(numbers_of((1.0, True)), kind_of((1.0, True))) == (1.0, True)


def test_a_kind_is_all_that_code_depends_on():
    kind = kind_of(everything())
    assert kind == kind_of(everything(1)) and hash(kind) == hash(kind_of(everything(1)))
    assert kind.parts[:3] == (float, bool, int) and kind.parts[7] == Held("float32", 2)
    member = everything()
    changes = (
        {"real": 1},
        {"switch": 1},
        {"whole": 1.0},
        {"nothing": (1.0,)},
        {"inner": member.inner._replace(pair=(1.0, 2.0))},
        {"doubles": np.zeros((4, 1))},
        {"doubles": np.zeros(4, np.float32)},
        {"small": np.zeros(3, np.int16)},
    )
    kinds = {kind, *(kind_of(member._replace(**change)) for change in changes)}
    assert len(kinds) == 1 + len(changes)
    assert kind_of((np.float64(1.0), np.bool_(True), np.int64(3))).parts == (float, bool, int)


def test_names_of_code_tell_kinds_apart():
    class Tagged(NamedTuple):
        x: Any

    members = ((1.0,), (1,), (True,), ((1.0,),), (np.zeros(1),), (np.zeros((1, 1)),), (np.zeros(1, np.float32),), (1.0, 1))
    names = [cache_name(kind_of(member)) for member in members]
    assert None not in names and len(set(names)) == len(names)
    assert cache_name(kind_of(everything())) is None  # types from outside the package, which nothing stands for
    assert cache_name(kind_of((1.0, Empty()))) is None
    Tagged.cache_tag = "first"
    first = cache_name(kind_of(Tagged(1.0)))
    Tagged.cache_tag = "second"
    assert None is not first != cache_name(kind_of(Tagged(1.0)))


UNFIT = {
    "strided": np.arange(6.0)[::2],
    "backwards": np.arange(6.0)[::-1],
    "by columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "part of rows": np.arange(6.0).reshape(2, 3)[:, :2],
    "other byte order": np.arange(3.0).astype(np.dtype(float).newbyteorder()),
    "not aligned": np.frombuffer(bytes(25), np.uint8)[1:].view(np.float64),
}


@pytest.mark.parametrize("name", UNFIT)
def test_arrays_that_an_address_does_not_describe_are_refused(name):
    with pytest.raises(ValueError, match="must be contiguous"):
        numbers_of((1.0, (UNFIT[name],)))


# How long arrays live


def test_arrays_live_as_long_as_the_numbers():
    member = everything()
    watched = [weakref.ref(array) for array in (member.doubles, member.inner.matrix, member.plain[0].matrix, member.none)]
    numbers, expected, found = numbers_of(member), np.zeros(SIZE), np.zeros(SIZE)
    described(member, expected)
    make = member_maker(kind_of(member))
    del member
    gc.collect()
    assert all(w() is not None for w in watched)
    described(make(numbers), found)
    np.testing.assert_array_equal(found, expected)
    before = len(pointers._HOLDING)
    del numbers
    gc.collect()
    assert [w() for w in watched] == [None] * 4 and len(pointers._HOLDING) == before - 1


def test_arrays_that_nothing_keeps_are_caught(monkeypatch):
    """The mutant of the test above: numbers that hold nothing."""
    monkeypatch.setattr(pointers, "_HOLDING", {})
    member = everything()
    watched, numbers = weakref.ref(member.doubles), numbers_of(member)
    pointers._HOLDING.clear()
    del member
    gc.collect()
    assert watched() is None and held_by(numbers) is None


def test_numbers_in_the_place_of_others_hold_nothing_of_theirs():
    """Identities are used again."""
    used, again = set(), 0
    for k in range(200):
        numbers = numbers_of((np.zeros(3),)) if k % 2 == 0 else numbers_of((1.0, 2.0))
        again += id(numbers) in used
        used.add(id(numbers))
        assert (held_by(numbers) is None) == (k % 2 == 1)
        del numbers
    assert again > 0


def test_arrays_at_an_address():
    kept = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    view = array_at(float(kept.ctypes.data), (2, 3), np.float32)
    view[1, 2] = -1.0
    assert kept[1, 2] == -1.0
    assert array_at(0.0, (0, 3), np.float64).shape == (0, 3)


def test_an_address_that_nothing_is_behind_is_an_error_interpreted():
    with pytest.raises(KeyError):
        call(1, np.zeros(1), np.zeros(1))


def test_the_first_argument_decides_between_signatures():
    single = types.int64(types.Array(types.float32, 1, "C"), NUMBERS)
    either = calls(SIGNATURE, single)

    def size_of_numbers(p, out):
        out[0] = p.itemsize
        return 0

    @numba.njit
    def compiled(address, p, out):
        return either(address, p, out)

    for signature, kind in ((SIGNATURE, np.float64), (single, np.float32)):
        address, out = pointer(size_of_numbers, signature, None), np.zeros(2)
        assert either(address, np.zeros(1, kind), out[:1]) == compiled(address, np.zeros(1, kind), out[1:]) == 0
        assert out.tolist() == [np.dtype(kind).itemsize] * 2


# Code in the cache


COPIED = """
import sys
import numpy as np
from tallbayes import pointers
from tallbayes.bounds.bound import TOTAL, bound_of
from tallbayes.bounds.tables import Angular, Separable, total_rate
from tallbayes.compile import jit
from tallbayes.data import Dataset
from tallbayes.engine import passes
from tallbayes.engine.random_rows import build
from tallbayes.engine.tiles import call_jet
from tallbayes.models import logistic
from numba import njit

@njit
def total(bound):
    return total_rate(bound, np.zeros(2), np.ones(2), np.zeros(2))

rows = logistic(Dataset.from_arrays([1.0, 2.0], [0, 1], weights=[1.0, 3.0])).rows
print(passes.total_value(rows, np.zeros(1)), total(bound_of(Separable(build(np.ones(4)), Angular()), (TOTAL,))))
print(len(pointers._POINTERS), sum(p._cache_hits for p in pointers._POINTERS))
"""

PLANTED = {  # a file of helpers, what is added to it, and what then comes out: the sum over rows, the rate of the bound
    "engine/arithmetic.py": ("@inlinable\ndef log1p_unit(z):\n    return 5.0\n", (-20.0, None)),
    "engine/indexed_rows.py": ("@inlinable\ndef dot(x, theta, d):\n    return 1000.0\n", (-1000.0, None)),
    "bounds/tables.py": (
        "@total_rate.register(Separable)\ndef _planted(bound, white, other, rates):\n    return 3.0\n",
        (None, 3.0),
    ),
}


def test_code_behind_addresses_is_never_older_than_any_source(tmp_path):
    """Helpers in other files than the family, the verb and the bound: of a jet, of a verb, of a bound."""
    package = tmp_path / "source" / "tallbayes"
    shutil.copytree(Path(tallbayes.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    variables = {"PYTHONPATH": str(tmp_path / "source"), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run():
        command = [sys.executable, "-c", COPIED]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, **variables})
        assert done.returncode == 0, done.stderr
        *results, made, loaded = (float(word) for word in done.stdout.split())
        return results, made, loaded

    expected, made, loaded = run()
    assert expected[0] == pytest.approx(4.0 * np.log(0.5)) and made > 5 and loaded == 0
    assert run() == (expected, made, made)
    for name, (text, planted) in PLANTED.items():
        source = (package / name).read_text(encoding="utf-8")
        (package / name).write_text(f"{source}\n\n{text}", encoding="utf-8")
        results, _, loaded = run()
        assert results == pytest.approx([e if p is None else p for e, p in zip(expected, planted, strict=True)])
        assert loaded == 0
        (package / name).write_text(source, encoding="utf-8")


NEEDED = """
import json, sys, warnings
import numpy as np
import tallbayes as tb
from tallbayes import compile, pointers

seen = {}

def recorded(cache, sig, context, original=compile.StampedCache._load_overload):
    found = original(cache, sig, context)
    name = f"{cache._py_func.__module__}.{cache._py_func.__qualname__} {getattr(cache, '_tag', '')}"
    seen[f"{name} {sig}"] = found is not None
    return found

compile.StampedCache._load_overload = recorded
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = np.column_stack([np.ones(400), 0.3 * rng.standard_normal(400)])
model = tb.models.build(sys.argv[1], tb.Dataset.from_arrays(X, rng.integers(0, 2, 400)), tb.priors.normal(2.0))
for sampler in (tb.samplers.ExactMinibatch(), tb.samplers.HMCECS(subsample=20)):
    tb.sample(model, sampler, draws=5, warmup=5, chains=1, seed=1, progress=False)
hits = sum(p._cache_hits for p in pointers._POINTERS)
print(json.dumps([seen, len(pointers._POINTERS), hits, len(tb.samplers.advance.signatures)]))
"""


def needed(family):
    """Code that a process with two samplers of a family needs, and whether the cache had it; its pointers and those it had."""
    environment = {**os.environ, "PYTHONPATH": str(Path(tallbayes.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", NEEDED, family], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_second_process_compiles_nothing_and_a_second_family_its_own_functions_alone():
    needed("logistic")
    code, made, loaded, signatures = needed("logistic")
    assert made == loaded > 10
    assert all(code.values())
    other, made, _, more = needed("poisson")
    assert signatures == more
    own = [name for name in other if name not in code]
    assert {name for name, found in other.items() if not found} <= {*own}
    tiles = [name for name in own if ".tiles." in name and "families.poisson.Poisson" in name]
    bounds = [name for name in own if ".bounds." in name]
    assert len(tiles) == 5 and len(bounds) <= 3 and {*own} == {*tiles, *bounds}
