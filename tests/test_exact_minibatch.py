"""Exact minibatch Metropolis-Hastings: enumerated, compared with quadrature, started from exact draws, and made to fail."""

import math
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.samplers import ExactMinibatch, advance
from tallbayes.testing import (
    THRESHOLD,
    exact_posterior,
    run_chunks,
)

both_stages = pytest.mark.parametrize("two_stage", [True, False], ids=["two stages", "one stage"])


# Enumeration: a few states, a few rows, every auxiliary variable summed out with the functions that the sampler uses.


# a handful of rows can be separated by a column; the enumeration does not mind
pytestmark = pytest.mark.filterwarnings("ignore:column 'x1' separates the response")


# Invariance from exact draws.


def counts_model(power=1.0):
    rng = np.random.default_rng(31)
    X, offset = np.column_stack([np.ones(40), rng.standard_normal(40)]), np.log(rng.uniform(0.5, 4.0, 40))
    y, weights = rng.poisson(np.exp(X @ [-0.5, 0.6] + offset)).astype(float), rng.gamma(1.0, 1.0, 40)
    weights[3] = 0.0
    return tb.models.poisson(tb.Dataset.from_arrays(X, y, offset, power * weights), tb.priors.laplace(2.0))


# Long runs against quadrature.


def errors_of(fit, posterior, batches=25):
    """Errors of means and variances against exact ones, and their standard errors from batches of the chains."""
    chains, draws, d = fit.theta.shape
    centred = fit.theta[:, : draws // batches * batches].reshape(chains * batches, -1, d) - posterior.mean
    parts = np.concatenate([centred.mean(1), (centred**2).mean(1) - np.diag(posterior.covariance)], axis=1)
    return parts.mean(0), parts.std(0, ddof=1) / math.sqrt(chains * batches)


def test_two_columns_against_quadrature():
    model = tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(200)), tb.priors.normal(10.0))
    posterior = exact_posterior(model)
    fit = tb.sample(model, ExactMinibatch(), draws=7000, warmup=500, seed=2, until_ess=19_500, progress=False)
    assert fit.ess.min() >= 19_500 and fit.status == "complete"
    error, scale = errors_of(fit, posterior)
    assert (np.abs(error) < THRESHOLD * scale).all()
    assert (scale[2:] < 0.015 * np.diag(posterior.covariance)).all()
    assert fit.evals.mean() < 20 and fit.stats["full_read"].mean() < 0.01


def test_a_skewed_posterior_that_the_laplace_fit_misses():
    rng = np.random.default_rng(0)
    X, y = np.column_stack([np.ones(60), rng.standard_normal(60)]), np.zeros(60)
    y[[4, 17, 40]] = 1.0
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(10.0))
    posterior = exact_posterior(model, points=301, width=14.0)
    edge = posterior.probability.copy()
    edge[2:-2, 2:-2] = 0.0
    assert edge.sum() < 1e-6
    with pytest.warns(tb.TallbayesWarning, match="outside the region that holds 99.99 % of the Gaussian approximation"):
        fit = tb.sample(model, ExactMinibatch(two_stage=False), draws=25_000, warmup=1000, seed=4, progress=False)
    error, scale = errors_of(fit, posterior)
    assert (np.abs(error) < THRESHOLD * scale).all()
    laplace = np.concatenate([fit.laplace_mean, np.diag(fit.laplace_factor @ fit.laplace_factor.T)])
    wrong = np.abs(laplace - np.concatenate([posterior.mean, np.diag(posterior.covariance)])) / scale
    assert wrong[0] > 20.0 and wrong[2] > 5.0


# The hard error.


def shrunk(factor):
    """A sampler whose bounds are too small by a factor."""

    class Shrunk(ExactMinibatch):
        def setup(self, *arguments):
            setup = super().setup(*arguments)
            table = setup.proxy.bound.table
            table = table._replace(weight=factor * table.weight, cumulative=factor * table.cumulative)
            return replace(setup, proxy=setup.proxy._replace(bound=setup.proxy.bound._replace(table=table)))

    return Shrunk(bound="T6")


def test_a_bound_that_is_too_small_is_a_hard_error_that_names_a_row(small):
    options = {"draws": 20_000, "warmup": 0, "chains": 2, "seed": 1, "progress": False}
    with pytest.raises(tb.errors.CertificateError, match="the residual of row") as error:
        tb.sample(small.model, shrunk(0.05), **options)
    row = int(re.search(r"row (\d+)", str(error.value))[1])
    assert 0 <= row < small.model.data.n
    assert tb.sample(small.model, shrunk(1.0), **options).stats["largest_ratio"].max() <= 1.0


def test_rows_of_zeros_and_of_no_weight_are_no_violation():
    rng = np.random.default_rng(6)
    X, y = rng.standard_normal((300, 2)), (rng.random(300) < 0.5).astype(float)
    X[::2] = 0.0
    weights = np.where(np.arange(300) % 3 == 0, 0.0, 1.0)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y, weights=weights), tb.priors.normal(2.0))
    for bound in ("T6", "T9"):
        fit = tb.sample(model, ExactMinibatch(bound=bound), draws=5000, warmup=100, chains=2, seed=1, progress=False)
        assert 0.0 < fit.stats["largest_ratio"].max() <= 1.0 and (fit.r_hat < 1.05).all()


def test_far_from_the_mode_all_rows_are_read_and_the_chain_comes_back():
    model = counts_model()
    mode = tb.find_mode(model, progress=False)
    far = mode.reference + mode.factor @ np.array([40.0, 30.0])
    fit = tb.sample(model, ExactMinibatch(), draws=3000, warmup=0, chains=2, seed=1, init=far, progress=False, mode=mode)
    assert fit.stats["full_read"][:, :20].any() and not fit.stats["full_read"][:, -1000:].all()
    assert (np.abs(fit.theta[:, -1000:].mean((0, 1)) - mode.reference) < 2.0 * np.sqrt(np.diag(mode.covariance))).all()


# Accounting, reproducibility, storage.


def report_of(sampler, info):
    return dict(zip(sampler.columns, info.T, strict=True))


@pytest.mark.parametrize("bound, rate", [("T6", "mh-ss"), ("T9", "mh-ss"), ("T9", "tuna"), ("T6", "smh")])
@both_stages
def test_evaluations_are_twice_the_rows(bound, rate, two_stage, small):
    sampler = ExactMinibatch(rate, bound=bound, two_stage=two_stage)
    _, info, _ = run_chunks(sampler, small.model, small.mode, [3000])
    report = report_of(sampler, info)
    np.testing.assert_array_equal(report["evals"], 2 * report["rows"])
    np.testing.assert_array_equal(report["evals_value"], report["evals"])
    full = report["full_read"] == 1.0
    assert not report["evals_gradient"].any() and full.sum() < 10
    np.testing.assert_array_equal(report["evals_paper"], np.where(full, 2, 1) * report["rows"])
    assert report["rows"].sum() > 100 and 0.0 < report["largest_ratio"].max() <= 1.0
    assert set(np.unique(report["component"])) == {0.0, 1.0}
    assert (report["accepted"] == report["acceptance_rate"]).all() and 0.2 < report["accepted"].mean() < 1.0
    if two_stage:
        assert not report["rows"][report["stage_one"] == 0.0].any() and 0.2 < report["stage_one"].mean() < 1.0
        assert (report["accepted"] <= report["stage_one"]).all()
    else:
        assert not report["stage_one"].any()
    rows, expected = report["rows"][~full].sum(), report["rate"][~full].sum()
    assert abs(rows - expected) < THRESHOLD * math.sqrt(expected)


def test_iterations_that_read_all_rows_count_them_twice(small):
    sampler = ExactMinibatch(bound="T6", move=tb.moves.random_walk(), two_stage=False)
    setup = sampler.setup(small.model, small.mode, 0, False)
    far = small.mode.reference + small.mode.factor @ np.array([60.0, 0.0])
    theta, info = np.empty((50, 2)), np.zeros((50, len(sampler.columns)))
    options = setup.policy.options(setup.policy.begin(), True)
    advance(np.random.default_rng(1), setup.target(), options, setup.policy.blank(far), True, theta, info, 1)
    report = report_of(sampler, info)
    full = report["full_read"] == 1.0
    assert full.sum() > 20
    for name in ("evals", "evals_value", "evals_paper"):
        np.testing.assert_array_equal(report[name][full], 120.0)
    np.testing.assert_array_equal(report["rows"][full], 60.0)
    assert (report["rate"][full] >= 60.0).all() and (report["rate"][~full] < 60.0).all()


SPEEDS = {
    "mh-ss T6": ExactMinibatch(bound="T6"),
    "mh-ss T7": pytest.param(ExactMinibatch(bound="T7", move=tb.moves.pcn()), marks=pytest.mark.slow),
    "mh-ss T9": ExactMinibatch(bound="T9", two_stage=False),
    "tuna T9": ExactMinibatch("tuna", bound="T9", chi=1.0),
    "smh T6": ExactMinibatch("smh", bound="T6", move=tb.moves.random_walk()),
}

every_speed = pytest.mark.parametrize("sampler", SPEEDS.values(), ids=SPEEDS.keys())


@every_speed
def test_compiled_and_interpreted_draw_the_same(sampler, small):
    theta, info, state = run_chunks(sampler, small.model, small.mode, [150])
    slowly, slow_info, slow_state = run_chunks(sampler, small.model, small.mode, [150], compiled=False)
    assert np.unique(theta, axis=0).shape[0] > 20 and info[:, 0].sum() > 0
    np.testing.assert_allclose(theta, slowly, rtol=0, atol=1e-10)
    np.testing.assert_allclose(info, slow_info, rtol=0, atol=1e-8)
    for name, value in state.items():
        np.testing.assert_allclose(value, slow_state[name], rtol=0, atol=1e-8)


@every_speed
def test_chunks_never_change_draws(sampler, small):
    whole, whole_info, whole_state = run_chunks(sampler, small.model, small.mode, [20])
    parts, parts_info, parts_state = run_chunks(sampler, small.model, small.mode, [7, 13])
    np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(whole_info, parts_info)
    for name, value in whole_state.items():
        np.testing.assert_array_equal(value, parts_state[name])


def test_chains_differ_seeds_reproduce_and_cores_do_not_matter(small):
    options = {"draws": 100, "warmup": 60, "chains": 3, "progress": False, "mode": small.mode}
    sampler = ExactMinibatch(bound="T6")
    first = tb.sample(small.model, sampler, seed=5, **options)
    assert len({chain.tobytes() for chain in first.theta}) == 3
    for cores in (1, 3):
        again = tb.sample(small.model, sampler, seed=5, cores=cores, **options)
        np.testing.assert_array_equal(again.theta, first.theta)
        np.testing.assert_array_equal(again.stats["rows"], first.stats["rows"])
    assert (tb.sample(small.model, sampler, seed=6, **options).theta != first.theta).all()


def test_warm_up_changes_the_random_walk_alone(small):
    policy = ExactMinibatch(bound="T6", move=tb.moves.pcn(0.3, 0.7)).setup(small.model, small.mode, 0, False).policy
    tuning, never = policy.begin(), {"component": np.zeros(10), "acceptance_rate": np.zeros(10)}
    assert policy.update(tuning, np.zeros((10, 2)), never, 10, 100) == tuning
    less = tuning
    for end in range(10, 110, 10):
        less = policy.update(less, np.zeros((10, 2)), {**never, "component": np.ones(10)}, end, 100)
    before, after = policy.options(tuning, False), policy.options(less, False)
    assert after.kernel.second.step < before.kernel.second.step
    assert after.kernel._replace(second=None) == before.kernel._replace(second=None)


def test_a_resumed_run_is_the_uninterrupted_one(small, tmp_path):
    sampler = ExactMinibatch("tuna", tb.moves.pcn(0.3), "T9", False, 0.3)
    options = {"warmup": 60, "chains": 2, "seed": 9, "progress": False, "mode": small.mode}
    whole = tb.sample(small.model, sampler, draws=120, **options)
    tb.sample(small.model, sampler, draws=50, checkpoint=tmp_path / "run", **options)
    resumed = tb.resume(tmp_path / "run", small.model, draws=120, progress=False)
    np.testing.assert_array_equal(resumed.theta, whole.theta)
    for name, values in whole.stats.items():
        np.testing.assert_array_equal(resumed.stats[name], values)


@pytest.fixture(scope="module")
def table():
    X, y = logistic_arrays(3000)
    return pa.table({"y": y, "x": X[:, 1], "w": np.random.default_rng(1).gamma(2.0, 0.5, 3000)})


def read(table, folder, dtype):
    data = tb.read(table, "y ~ x", weights="w", store=folder, memory="disk", dtype=dtype, progress=False)
    assert data.store is not None and data.records.dtype == dtype
    return tb.models.logistic(data, tb.priors.normal(2.0))


def test_rows_on_disk_give_the_draws_of_rows_in_memory(table, tmp_path):
    options = {"draws": 300, "warmup": 60, "chains": 2, "seed": 9, "progress": False}
    here = tb.models.logistic(tb.read(table, "y ~ x", weights="w", memory="ram", progress=False), tb.priors.normal(2.0))
    there = read(table, tmp_path, "float64")
    before = sorted(tmp_path.iterdir())
    for bound in ("T6", "T9"):
        fits = [tb.sample(model, ExactMinibatch(bound=bound), **options) for model in (here, there)]
        np.testing.assert_array_equal(fits[0].theta, fits[1].theta)
        np.testing.assert_array_equal(fits[0].stats["rows"], fits[1].stats["rows"])
    assert sorted(tmp_path.iterdir()) == before


def test_options_are_checked():
    for options, message in (
        ({"rate": "mhss"}, "unknown rate 'mhss'; did you mean 'mh-ss'"),
        ({"bound": "T11"}, "unknown bound 'T11'; did you mean 'T1"),
        ({"rate": "tuna", "chi": -0.1}, "chi must be at least 0"),
        ({"rate": "tuna", "chi": math.nan}, "chi of ExactMinibatch must be a number or None; got nan"),
        ({"rate": "smh", "chi": 0.1}, "chi applies only to rate='tuna'"),
        ({"move": tb.moves.nuts()}, "known proposal ratio.*independence"),
        ({"move": tb.moves.random_walk(blocks=[[0], [1]])}, "known proposal ratio.*random_walk"),
    ):
        with pytest.raises(tb.errors.OptionError, match=message):
            ExactMinibatch(**options)
