"""Minibatch Gibbs over crossed and nested factors: every move enumerated with the code that runs, made to fail, and compared with NUTS."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.testing import THRESHOLD, largest_disagreement

OPTIONS = {"student_t": {"nu": 4.0, "scale": 1.0}, "gaussian": {"sigma": 0.8}}


# Whole sweeps


def crossed_model(n=600, family="logistic", slopes=False, nested=False, seed=1, third=False):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 8, n)
    b = 3 * a + rng.integers(0, 3, n) if nested else rng.integers(0, 12, n)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    groups = {"a": (a, ["1", "x1"]) if slopes else a, "b": b}
    eta = X @ [-0.2, 0.5, 0.3] + (0.7 * rng.standard_normal(8))[a] + (0.4 * rng.standard_normal(24))[b]
    if slopes:
        eta += (0.5 * rng.standard_normal(8))[a] * X[:, 1]
    if third:
        groups["c"] = rng.integers(0, 5, n)
        eta += (0.5 * rng.standard_normal(5))[groups["c"]]
    y = {
        "logistic": lambda: rng.random(n) < 1 / (1 + np.exp(-eta)),
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "gaussian": lambda: eta + 0.8 * rng.standard_normal(n),
    }[family]()
    data = tb.Dataset.from_arrays(X, y.astype(float), groups=groups)
    return getattr(tb.models, family)(data, tb.priors.normal(3.0), **OPTIONS.get(family, {}))


SETTINGS = {
    "crossed": {},
    "nested": {"nested": True},
    "slopes": {"slopes": True},
    "poisson": {"family": "poisson"},
    "gaussian": {"family": "gaussian"},
    "three factors": {"third": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_several_factors_agree_with_nuts(name):
    model = crossed_model(**SETTINGS[name])
    mode = tb.find_mode(model, progress=False)
    options = {"mode": mode, "chains": 4, "seed": 3, "progress": False}
    exact = tb.sample(model, "minibatch-gibbs", draws=10_000, warmup=1000, **options)
    reference = tb.sample(model, tb.samplers.FullData(tb.moves.nuts(acceptance=0.98)), draws=2000, warmup=1000, **options)
    assert largest_disagreement(exact, reference) < THRESHOLD
