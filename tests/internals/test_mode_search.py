"""Internals of `tallbayes.mode.search`; what users see of it is tested in test_mode.py."""

import numpy as np
from scipy.special import expit

from tallbayes import find_mode
from tallbayes.data import Dataset
from tallbayes.models import build


def problem(family, n=3000, seed=1):
    """X with an intercept, y, offset, whole weights."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2)), rng.choice([0.0, 1.0], n), rng.normal(20.0, 3.0, n)])
    theta = np.array([-0.9, 0.6, -0.4, 0.5, 0.03])
    offset, weights = 0.3 * rng.normal(size=n), rng.integers(1, 4, n).astype(float)
    eta = X @ theta + offset
    if family == "logistic":
        y = (rng.random(n) < expit(eta)).astype(float)
    elif family == "poisson":
        y = rng.poisson(np.exp(eta)).astype(float)
    else:
        y = eta + 0.8 * rng.normal(size=n)
    return X, y, offset, weights


def mode_of(family, X, y, prior=None, offset=None, weights=None, **options):
    return find_mode(build(family, Dataset.from_arrays(X, y, offset, weights), prior, **options), progress=False)


def test_the_count_of_passes_is_the_count_of_calls(monkeypatch):
    from tallbayes.engine import passes

    X, y, _, _ = problem("logistic")
    calls = []
    whole = passes.total_hessian
    monkeypatch.setattr(passes, "total_hessian", lambda rows, *rest: calls.append(rows.records.shape[0]) or whole(rows, *rest))
    found = mode_of("logistic", X, y)
    assert found.passes == len(calls)
    assert set(calls) == {3000}
    assert found.evaluations == sum(calls)
    assert found.norms.size == 3000
    assert found.passes == len(calls)  # norms are the affair of who asks for them
