"""Random streams: every purpose has its own, and none is that of a chain."""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import tallbayes as tb
from tallbayes import streams
from tallbayes.diagnostics import pair_pilot
from tallbayes.streams import FIRST, Stream, chain, generator

SOURCES = Path(tb.__file__).parent


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**64 + 3, 2**200 + 1])
def test_no_two_streams_begin_alike(seed):
    first = {f"chain {c}": np.random.default_rng(chain(seed, c)).integers(1 << 62, size=4) for c in range(40)}
    for stream in Stream:
        first[stream.name] = generator(seed, stream).integers(1 << 62, size=4)
        for numbers in ((0,), (1,), (5,), (0, 0), (5, 1)):
            first[f"{stream.name} {numbers}"] = generator(seed, stream, *numbers).integers(1 << 62, size=4)
    for (a, numbers), (b, others) in combinations(first.items(), 2):
        assert not np.intersect1d(numbers, others).size, (a, b)


def test_keys_of_purposes_are_distinct_and_none_is_that_of_a_chain():
    values = [int(stream) for stream in Stream]
    assert len(set(values)) == len(Stream.__members__) and min(values) == FIRST
    with pytest.raises(tb.OptionError, match="at most 1,048,576 chains"):
        chain(0, FIRST)


def test_chains_keep_the_streams_that_spawn_gives():
    for c, spawned in enumerate(np.random.SeedSequence(9).spawn(4)):
        assert (chain(9, c).generate_state(4) == spawned.generate_state(4)).all()


def test_a_pilot_does_not_repeat_the_numbers_of_a_chain(small, monkeypatch):
    keys = []

    def watched(seed=None, original=np.random.default_rng):
        keys.append(getattr(seed, "spawn_key", None))
        return original(seed)

    monkeypatch.setattr(np.random, "default_rng", watched)
    pair_pilot.values_at_mode(small.model, small.mode, 3)
    tb.samplers.DelayedAcceptance(form="product", batches=3).setup(small.model, small.mode, 3, False)
    assert keys and all(key is not None and key[0] >= FIRST for key in keys)


def test_all_streams_of_the_package_are_named_in_one_place():
    """Elsewhere only tables that are the same for every run have a generator of their own, from a constant."""
    strays = []
    for path in SOURCES.rglob("*.py"):
        if path == Path(streams.__file__) or path.parent.name == "testing":  # tools of tests, which are given the seed
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if ">>>" in line or "..." in line.lstrip()[:3]:
                continue
            for call in re.findall(r"default_rng\([^)]*\)|SeedSequence\([^)]*\)|spawn_key|\.spawn\(", line):
                if call not in ("default_rng(0)", "default_rng(SEED)"):
                    strays.append(f"{path.name}:{number}: {line.strip()}")
    assert not strays
