"""Internals of `tallbayes.data.groups`; what users see of it is tested in test_group_formula.py."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallbayes.data.groups import places, rows_of_levels


@pytest.fixture(autouse=True)
def stores(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("stores")
    monkeypatch.setenv("TALLBAYES_STORE", str(folder))
    return folder


# Levels and rows


@given(st.lists(st.integers(0, 5), max_size=60), st.integers(1, 7))
@settings(max_examples=50, deadline=None)
def test_places_sort_rows_stably_whatever_the_chunks(codes, size):
    codes = np.array(codes, np.int32)
    offsets, members = rows_of_levels(codes, 6)
    following, out = offsets[:-1].copy(), np.empty(codes.size, int)
    for start in range(0, codes.size, size):
        part = codes[start : start + size]
        out[places(part, following)] = np.arange(start, start + part.size)
    np.testing.assert_array_equal(out, np.argsort(codes, kind="stable"))
    np.testing.assert_array_equal(members if members.size else np.arange(codes.size), out)
    np.testing.assert_array_equal(following, offsets[1:])
