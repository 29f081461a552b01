"""What `auto` takes: on every kind of model, where minibatches do not pay, and where tails are heavy."""

import numpy as np
import pytest
from scipy.signal import lfilter

import tallbayes as tb
from tallbayes import auto
from tallbayes.diagnostics.tail_survey import heaviest_tail
from tallbayes.testing import THRESHOLD, counting_rows, exact_posterior


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


def logistic(n, d, seed=0):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.standard_normal((n, d - 1))])
    y = (rng.random(n) < 1 / (1 + np.exp(-x @ np.r_[0.0, rng.standard_normal(d - 1) / d**0.5]))).astype(float)
    return tb.models.logistic(tb.Dataset.from_arrays(x, y))


@pytest.mark.slow
@pytest.mark.parametrize("n, d", [(2000, 60), (2000, 50), (5000, 100)])
def test_many_columns_for_few_rows_mix(n, d):
    fit = tb.sample(logistic(n, d), seed=1, progress=False)
    assert fit.r_hat.max() < 1.05 and fit.cost()["ess_min"] > 400


@pytest.mark.slow
def test_a_factor_of_many_levels_is_not_left_to_minibatches():
    rng = np.random.default_rng(0)
    level = rng.integers(0, 350, 10_000)
    x = np.zeros((10_000, 350))
    x[np.arange(10_000), level] = 1.0
    x[:, 0] = 1.0
    y = (rng.random(10_000) < 1 / (1 + np.exp(1.0 - 0.7 * rng.standard_normal(350)[level]))).astype(float)
    model = tb.models.logistic(tb.Dataset.from_arrays(x, y))
    assert auto.choose(model, tb.find_mode(model, progress=False), "exact", 0, False).sampler.name == "nuts"


@pytest.mark.slow
@pytest.mark.parametrize("positives", [25, 60])
def test_stays_in_the_tail_of_a_skewed_posterior_are_foreseen(positives):
    """2,000 rows and few positives: proposals from the Laplace fit hold a chain in the tail of the intercept now and then, which a
    pilot of some hundred iterations does not see."""
    rng = np.random.default_rng(2)
    x = np.column_stack([np.ones(2000), rng.standard_normal((2000, 9))])
    chance = np.exp(0.7 * x[:, 1] - 0.5 * x[:, 2])
    y = (rng.random(2000) < positives * chance / chance.sum()).astype(float)
    model = tb.models.logistic(tb.Dataset.from_arrays(x, y))
    mode = tb.find_mode(model, progress=False)
    choice = auto.choose(model, mode, "exact", 0, False)
    fit = tb.sample(model, choice.sampler, seed=1, mode=mode, progress=False)
    measured = fit.cost()["evals_per_ess"]
    assert 1 / 3 < measured / choice.predictions[0].evals_per_ess < 3


def leverage_model(size, n=500):
    """Four rows far out: with 1,000 standard deviations the posterior of the slope has an exponential tail."""
    rng = np.random.default_rng(5)
    x, u = rng.standard_normal(n), rng.random(n)
    y = (u < 1.0 / (1.0 + np.exp(0.5 - x))).astype(float)
    x[:4], y[:4] = np.array([1.0, -1.0, 0.7, -0.4]) * size, [1.0, 0.0, 0.0, 0.0]
    return tb.models.logistic(tb.Dataset.from_arrays(np.column_stack([np.ones(n), x]), y), tb.priors.normal(2.0))


def tail_of(model, seed=0):
    mode = tb.find_mode(model, progress=False)
    setup = tb.samplers.ExactMinibatch().setup(model, mode, 0, False)
    with counting_rows() as account:
        tail = heaviest_tail(setup, np.random.default_rng(seed))
    return tail, account.rows, mode


@pytest.mark.parametrize("n", [500, pytest.param(50_000, marks=pytest.mark.slow)])
def test_heavy_tails_are_foreseen_and_what_is_read_is_counted(n):
    tail, rows, mode = tail_of(leverage_model(1e3, n))
    assert tail is not None and rows > 0
    axes = np.concatenate([mode.factor, -mode.factor]) / np.linalg.norm(np.concatenate([mode.factor] * 2), axis=1)[:, None]
    points = mode.reference + tail.distance * axes @ mode.factor.T
    exact = [mode.model.log_posterior(t) - mode.model.log_posterior(mode.reference) + 0.5 * tail.distance**2 for t in points]
    assert tail.log_ratio > 0.6 * max(exact) and tail.log_ratio > tail.distance**2 / 4 - 0.5


def test_where_the_bound_excludes_heavy_tails_no_row_is_read():
    tail, rows, _ = tail_of(logistic(20_000, 3))
    assert tail is None and rows == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_auto_is_right_where_tails_are_heavy(seed):
    model = leverage_model(1e3)
    fit = tb.sample(model, draws=4000, seed=seed, progress=False)
    if fit.meta["sampler_name"] == "exact-minibatch":
        assert "Student-t proposals" in fit.why and not fit.meta["sampler"]["two_stage"]
    truth = exact_posterior(model, points=401)
    draws = fit.theta.reshape(-1, 2)
    error = np.sqrt(np.diag(truth.covariance) / fit.cost()["ess_min"])
    assert (np.abs(draws.mean(0) - truth.mean) < THRESHOLD * error).all()
    assert np.abs(draws.std(0) / np.sqrt(np.diag(truth.covariance)) - 1.0).max() < 0.1
    assert fit.r_hat.max() < 1.02 and not fit.meta["warnings"]
