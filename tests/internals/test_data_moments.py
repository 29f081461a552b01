"""Internals of `tallbayes.data.moments`; what users see of it is tested in test_data.py."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallbayes.data.moments import Moments


@pytest.fixture(autouse=True)
def stores(tmp_path, monkeypatch):
    folder = tmp_path / "stores"
    monkeypatch.setenv("TALLBAYES_STORE", str(folder))
    return folder


def moments_in_chunks(values, sizes):
    moments = Moments(tuple(f"c{j}" for j in range(values.shape[1])))
    start = 0
    for size in sizes:
        moments.add(values[start : start + size])
        start += size
    moments.add(values[start:])
    return moments


@pytest.mark.parametrize("sizes", [(), (1,), (1, 1, 998), (500,), (0, 700, 0)])
def test_moments_agree_with_numpy_over_chunks(sizes):
    rng = np.random.default_rng(3)
    values = np.column_stack(
        [
            rng.normal(size=1000),
            1e6 + rng.normal(size=1000),
            np.full(1000, 0.1),
            rng.integers(0, 2, 1000),
            np.sort(rng.random(1000)),
        ]
    )
    moments = moments_in_chunks(values, sizes)
    assert moments.n == 1000
    np.testing.assert_allclose(moments.mean, values.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.sd, values.std(0), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(moments.low, values.min(0))
    np.testing.assert_array_equal(moments.high, values.max(0))
    np.testing.assert_array_equal(moments.two_valued, [False, False, True, True, False])


def test_moments_of_huge_numbers_are_infinite_without_a_warning():
    moments = moments_in_chunks(np.array([[1e200], [-1e200], [3e200]]), (1,))
    assert moments.sd[0] == np.inf
    assert moments.mean[0] == pytest.approx(1e200)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 1.0, 0.5, -2.0]), min_size=1, max_size=12),
    st.lists(st.integers(0, 4), max_size=5),
)
def test_two_valued_means_at_most_two_values_whatever_the_chunks(values, sizes):
    moments = moments_in_chunks(np.array(values)[:, None], sizes)
    assert bool(moments.two_valued[0]) == (len(set(values)) <= 2)


def test_moments_survive_json():
    moments = moments_in_chunks(np.random.default_rng(4).normal(size=(20, 3)), (7,))
    copy = Moments.from_dict(moments.names, moments.n, json.loads(json.dumps(moments.as_dict())))
    for name in ("n", "mean", "sd", "low", "high", "two_valued"):
        np.testing.assert_array_equal(getattr(copy, name), getattr(moments, name))
