"""Internals of `tallbayes.auto.group_choice`; what users see of it is tested in test_hierarchical.py."""

import numpy as np
import pandas as pd
import pytest

import tallbayes as tb
from tallbayes.auto.group_choice import GroupWeighing


def arrays(n=400, levels=8, family="logistic", scale=0.8, seed=1):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, levels, n)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    eta = X @ [-0.3, 0.6, 0.2] + (scale * rng.standard_normal(levels))[codes]
    y = {
        "logistic": lambda: rng.random(n) < 1 / (1 + np.exp(-eta)),
        "probit": lambda: rng.standard_normal(n) < eta,
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "negbin": lambda: rng.negative_binomial(2, 2 / (2 + np.exp(eta))),
        "gamma": lambda: rng.gamma(2.0, np.exp(eta) / 2.0),
        "gaussian": lambda: eta + rng.standard_normal(n),
        "student_t": lambda: eta + rng.standard_t(4, n),
    }[family]()
    return X, y.astype(float), codes


OPTIONS = {"negbin": {"size": 2.0}, "gamma": {"shape": 2.0}, "gaussian": {"sigma": 1.0}, "student_t": {"nu": 4.0, "scale": 1.0}}


def model_of(family="logistic", terms=None, prior=None, more="", **options):
    """`more`: "offsets" (exposures), "weights", "empty" (two levels without rows), "equal" (responses of three levels all ones)."""
    X, y, codes = arrays(family=family, **options)
    rng, offsets, weights = np.random.default_rng(9), None, None
    if more == "offsets":
        offsets = rng.uniform(-1.0, 1.0, y.size)
        y = rng.poisson(np.exp(offsets + X @ [-0.3, 0.6, 0.2] + 0.5 * np.sin(codes))).astype(float)
    if more == "weights":
        weights = rng.choice([0.5, 1.0, 2.0], y.size)
    if more == "equal":
        y[codes < 3] = 1.0
    grouping = pd.Categorical.from_codes(codes, categories=range(codes.max() + 3)) if more == "empty" else codes
    data = tb.Dataset.from_arrays(X, y, offsets, weights, groups={"g": grouping if terms is None else (grouping, terms)})
    return getattr(tb.models, family)(data, tb.priors.normal(3.0) if prior is None else prior, **OPTIONS.get(family, {}))


@pytest.fixture(scope="module")
def model():
    return model_of()


# Models


def chosen(model):
    return tb.auto.choose(model, tb.find_mode(model, progress=False), None, 0, False)


def pilots(monkeypatch, sweeps):
    """Pilots in which a sweep of minibatch Gibbs goes a step of a slow chain; `sweeps` are those of an effective draw."""
    tried = []

    def trial(self, sampler, setup, warmup, draws):
        tried.append(sampler.name)
        rng, total = np.random.default_rng(0), self.model.dim + self.model.level_count
        keep = 0.0 if sampler.name == "nuts" else (sweeps - 1.0) / (sweeps + 1.0)
        theta = rng.standard_normal((1000, total))
        for t in range(1, 1000):
            theta[t] = keep * theta[t - 1] + np.sqrt(1.0 - keep**2) * theta[t]
        evals = 8.0 * self.model.data.n if sampler.name == "nuts" else 40.0
        return theta, {"evals": np.full(1000, evals)}

    monkeypatch.setattr(GroupWeighing, "_trial", trial)
    return tried


def test_auto_takes_nuts_where_sweeps_mix_too_slowly_and_only_then_tries_it(monkeypatch):
    X, y, codes = arrays()
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y, groups={"g": codes}), tb.priors.normal(3.0))
    tried = pilots(monkeypatch, 2.0)
    sampler, _, why, predictions = chosen(model)
    assert sampler.name == "minibatch-gibbs" and tried == ["minibatch-gibbs"] and predictions == []
    assert "fewer rows in fewer levels would favour nuts" in why
    tried = pilots(monkeypatch, 200.0)
    sampler, setup, why, predictions = chosen(model)
    assert sampler.name == "nuts" and setup is not None and tried == ["minibatch-gibbs", "nuts"]
    assert [p.sampler.name for p in predictions] == ["nuts", "minibatch-gibbs"] and all(p.tried for p in predictions)
    assert "8 gradients per draw" in why and "minibatch-gibbs would be about" in why and "more rows, or more levels" in why


def test_auto_takes_minibatch_gibbs_for_crossed_factors_too(monkeypatch):
    X, y, codes = arrays()
    data = tb.Dataset.from_arrays(X, y, groups={"g": codes, "h": np.arange(400) % 5})
    pilots(monkeypatch, 1.0)
    sampler, setup, why, _ = chosen(tb.models.logistic(data, tb.priors.normal(3.0)))
    assert sampler.name == "minibatch-gibbs" and setup is not None
    assert "8 levels of 'g' and 5 levels of 'h'" in why and "all 400 rows are read for every gradient" in why
