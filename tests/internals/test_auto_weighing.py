"""Internals of `tallbayes.auto.weighing`."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import lfilter

import tallbayes as tb
from tallbayes import auto
from tallbayes.auto.weighing import Weighing
from tallbayes.samplers import ExactMinibatch


def logistic(n, d, seed=0, effect=0.3):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.standard_normal((n, d - 1))])
    y = (rng.random(n) < 1 / (1 + np.exp(-x @ np.full(d, effect)))).astype(float)
    return tb.models.logistic(tb.Dataset.from_arrays(x, y))


def test_subsampled_hmc_is_taken_where_bounds_are_loose_unless_exactness_is_asked_for(monkeypatch):
    model = logistic(30_000, 20)
    mode = tb.find_mode(model, progress=False)
    monkeypatch.setattr(auto.Weighing, "_exact_minibatch", lambda *_: prediction(tb.samplers.ExactMinibatch(), 5e4, 5e7))
    monkeypatch.setattr(auto.Weighing, "_pilot", lambda self, candidate: replace(candidate, tried=True))
    monkeypatch.setattr("tallbayes.auto.weighing.bright_hmc", lambda *_: None)  # its bounds, too
    sampler, setup, why, _ = auto.choose(model, mode, None, 0, False)
    assert sampler.name == "hmc-ecs" and setup is not None
    assert "ASYMPTOTIC, not exact" in why and "pass guarantee='exact' to get" in why
    assert auto.choose(model, mode, "asymptotic", 0, False)[0].name == "hmc-ecs"
    exact, _, why, _ = auto.choose(model, mode, "exact", 0, False)
    assert exact.guarantee.kind == "EXACT" and "hmc-ecs" not in why
    monkeypatch.setattr("tallbayes.auto.weighing._CHEAP", 1e9)  # an exact method that cheap is not compared with anything
    assert "hmc-ecs" not in auto.choose(model, mode, None, 0, False)[2]


def prediction(sampler, evals, nanoseconds):
    return auto.Prediction(sampler, evals, 1.0, nanoseconds / evals, 0.0, "", tried=True)


pytestmark = pytest.mark.filterwarnings("ignore:column 'x1' separates the response")


def test_auto_leaves_third_order_out_where_the_posterior_is_skewed():
    """Two decisions in a row accept much less than one where third-order terms are large."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(2_000), rng.standard_normal((2_000, 9))])
    for share, considered in ((0.5, True), (0.01, False)):
        model = tb.models.logistic(tb.Dataset.from_arrays(X, (rng.random(2_000) < share).astype(float)), tb.priors.normal(5.0))
        mode = tb.find_mode(model, progress=False)
        sampler = ExactMinibatch(order=3)
        found = Weighing(model, mode, None, 0, False)._exact_minibatch(sampler, sampler.setup(model, mode, 0, False))
        assert (found is not None) == considered


def jax_log_lik(theta, row):
    import jax

    eta = row["x"] @ theta
    return row["y"] * eta - jax.nn.softplus(eta)


def model_of(name, n=300):
    rng = np.random.default_rng(3)
    x = np.column_stack([np.ones(n), rng.standard_normal(n)])
    prior = tb.priors.normal(2.0)
    if name == "arma":
        return tb.models.arma(lfilter([1.0], [1.0, -0.5], rng.standard_normal(n)), prior=prior, p=1, q=0)
    if name == "class_gaussian":
        labels = rng.integers(0, 2, n)
        return tb.models.class_gaussian(tb.Dataset.from_arrays(x + labels[:, None], labels), prior, classes=2)
    if name == "jax":
        data = tb.Dataset.from_arrays(x, (rng.random(n) < 0.4).astype(float))
        return tb.models.from_jax(jax_log_lik, data, prior, dim=2)
    if name == "expression":
        data = tb.Dataset.from_arrays(x, rng.standard_normal(n))
        return tb.models.expression(data, prior, expression="-log(cosh(y - eta))")
    responses = tb.models.family_of({"family": name, "options": {}}).responses
    if name == "gaussian":
        y = x @ [0.3, 0.5] + rng.standard_normal(n)
    else:
        y = rng.choice(responses, n)
    required = {k: {"classes": 3, "expression": ""}[k] for k, needed in tb.models.family_options(name).items() if needed}
    return tb.models.build(name, tb.Dataset.from_arrays(x, y), prior, **required)


QUICK = ("arma", "class_gaussian", "jax", "logistic")
KINDS = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in [*tb.models.FAMILIES, "jax"]]


@pytest.mark.parametrize("name", KINDS)
def test_auto_serves_every_kind_of_model_and_names_what_refused_it(name, monkeypatch):
    monkeypatch.setattr("tallbayes.auto.weighing._CHEAP", -1.0)  # every method is considered
    model = model_of(name)
    mode = tb.find_mode(model, progress=False)
    choice = auto.choose(model, mode, None, 0, False)
    exact = auto.choose(model, mode, "exact", 0, False)
    assert exact.sampler.guarantee.kind == "EXACT" and choice.predictions[0].tried
    if name in ("arma", "class_gaussian"):
        assert choice.sampler.name == "nuts"
        for refused in ("exact-minibatch", "hmc-ecs"):
            assert f"{refused} was skipped: {refused}" in choice.why
    fit = tb.sample(model, draws=20, warmup=20, chains=2, seed=1, mode=mode, progress=False)
    assert np.isfinite(fit.theta).all()
