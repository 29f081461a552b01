"""Internals of `tallbayes.growth`; what users see of it is tested in test_update.py."""

import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes import growth

RUN = {"draws": 300, "warmup": 100, "chains": 2, "seed": 3, "progress": False}


def batch(rows, seed):
    X, y = logistic_arrays(rows, seed=seed)
    return tb.Dataset.from_arrays(X, y)


def test_the_reference_is_searched_for_again_when_the_mode_has_moved():
    fit = tb.sample(tb.models.logistic(batch(2000, 1)), "exact-minibatch", **RUN)
    other = tb.Dataset.from_arrays(*logistic_arrays(400, (0.5, 0.2), seed=2))
    moved = fit.update(other, progress=False, seed=1)
    assert moved.meta["history"][-1]["recentred"] and moved.meta["history"][-1]["moved"] > growth.MOVED
    grown = fit.update(batch(600, 3), progress=False, seed=1)
    assert grown.meta["history"][-1]["recentred"]  # by a quarter
    mode = tb.find_mode(tb.update(tb.models.logistic(batch(2000, 1)), other, progress=False), progress=False)
    assert moved.laplace_mean == pytest.approx(mode.reference, abs=1e-4)
