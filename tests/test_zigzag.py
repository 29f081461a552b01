"""The Zig-Zag process: its bounds on every row, its law against quadrature, its path integrals, and its mutants."""

import math
from dataclasses import replace

import numpy as np
import pytest
from support import logistic_arrays
from test_stochastic_gradient import made_up

import tallbayes as tb
from tallbayes.bounds.catalogue import certify
from tallbayes.bounds.slopes import slope_rate
from tallbayes.bounds.tables import rate_count, row_rates
from tallbayes.errors import CertificateError, ModelError, OptionError
from tallbayes.results import path_moments
from tallbayes.run.chain import Chain
from tallbayes.run.driver import Limits, drive
from tallbayes.samplers import ZigZag, advance
from tallbayes.schemes import paths
from tallbayes.schemes.minibatch_gradient import residual_gradient
from tallbayes.schemes.path_policy import prior_rows
from tallbayes.schemes.paths import candidate_time, path_square, squared_radius
from tallbayes.target import STATUS, Certified
from tallbayes.testing import THRESHOLD, effective_sizes, exact_posterior, invariance_scores, moment_scores


def skewed(rows=12, prior=None, weights=None):
    """A few rows: the posterior is far from normal, so that residuals of rows matter."""
    X, y = logistic_arrays(rows, (-1.0, 1.5), seed=4)
    return tb.models.logistic(tb.Dataset.from_arrays(X, y, weights=weights), prior or tb.priors.normal(2.0))


@pytest.mark.parametrize("name, bound", [("logistic", "T6"), ("logistic", "T9"), ("poisson", "T9"), ("softmax", "T6")])
def test_bounds_hold_for_the_gradient_of_every_row(name, bound):
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(40), rng.standard_normal(40)])
    y = {"logistic": rng.integers(0, 2, 40), "poisson": rng.poisson(2.0, 40), "softmax": np.arange(40) % 3}[name]
    model = tb.models.build(name, tb.Dataset.from_arrays(X, y, weights=rng.uniform(0.5, 2, 40)), tb.priors.normal(2.0))
    mode = tb.find_mode(model, progress=False)
    table, _ = certify(mode, bound, indexed=True)
    setup = ZigZag(bound=bound).setup(model, mode, 0, False)
    target, rates = setup.target(), np.zeros(rate_count(table))
    for size in (0.3, 1.0, 3.0):
        white = size * rng.standard_normal(model.dim)
        total = slope_rate(table, float(np.linalg.norm(white)), rates)
        limits = np.empty(40)
        row_rates(table, rates, 0, limits)
        assert limits.sum() == pytest.approx(total)
        theta = mode.reference + mode.factor @ white
        for i in range(40):
            raw = np.zeros(model.dim)
            residual_gradient(target, np.array([i]), np.ones(1), theta, raw)
            assert np.linalg.norm(mode.factor.T @ raw) <= 3.0 * limits[i] * (white @ white) * (1 + 1e-9) + 1e-14


def test_candidate_times_solve_their_equation():
    rng = np.random.default_rng(2)
    for _ in range(200):
        d = int(rng.integers(1, 6))
        white, velocity = 2.0 * rng.standard_normal(d), rng.choice([-1.0, 1.0], d)
        square, cross, horizon = white @ white, white @ velocity, 0.5
        t = horizon * rng.random()
        assert squared_radius(square, cross, d, t) == pytest.approx(((white + velocity * t) ** 2).sum(), rel=1e-12)
        level = path_square(square, cross, d, t)
        assert candidate_time(level, square, cross, d, horizon) == pytest.approx(t, abs=1e-9)
        assert candidate_time(path_square(square, cross, d, horizon) * 1.01, square, cross, d, horizon) == horizon
        grid = (np.arange(20_000) + 0.5) * t / 20_000
        mean = ((white[:, None] + velocity[:, None] * grid) ** 2).sum(0).mean()
        assert level == pytest.approx(t * mean, rel=1e-6)


def test_the_law_of_a_skewed_posterior_is_kept_with_every_kind_of_prior():
    for prior in (tb.priors.cauchy(1.0), tb.priors.weakly_informative()):
        model = skewed(prior=prior)
        posterior = exact_posterior(model, points=301, width=12.0)
        scores = invariance_scores(ZigZag(interval=0.5), model, posterior, starts=6000, steps=8)
        assert np.abs(scores).max() < THRESHOLD
    tempered = skewed(prior=prior, weights=np.full(12, 1.3))
    assert np.abs(invariance_scores(ZigZag(interval=0.5), tempered, posterior, starts=6000, steps=8)).max() > THRESHOLD


def interpreted_scores(starts=2500, time=1.5):
    """Invariance scores of interpreted paths from exact draws; None if a certificate failed."""
    model = skewed(rows=8)
    mode = tb.find_mode(model, progress=False)
    posterior = exact_posterior(model, points=301, width=12.0)
    sampler, rng = ZigZag(interval=time), np.random.default_rng(0)
    setup = sampler.setup(model, mode, 0, False)
    options, target = setup.policy.options(setup.policy.begin(), True), setup.target()
    ends, info = posterior.draw(rng, starts), np.zeros((1, len(sampler.columns)))
    for row in ends:
        advance.py_func(rng, target, options, setup.policy.blank(row), True, row[None, :], info, 1)
        if target.counters[STATUS]:
            return None
    return moment_scores(ends, posterior)


def test_the_interpreted_path_keeps_the_law_and_mutants_are_caught(monkeypatch):
    assert np.abs(interpreted_scores()).max() < THRESHOLD

    def caught():
        scores = interpreted_scores()
        return scores is None or np.abs(scores).max() > THRESHOLD

    with monkeypatch.context() as patch:  # rows never read: the law is the Laplace fit
        patch.setattr(paths, "slope_rate", lambda bound, reach, rates: 0.0)
        assert caught()
    with monkeypatch.context() as patch:  # the wrong half of the gradients turns
        original = paths.upper_times

        def reversed_sign(factor, vector, out):
            original(factor, vector, out)
            out *= -1.0

        patch.setattr(paths, "upper_times", reversed_sign)
        assert caught()


def test_coordinates_turn_at_their_rates_and_not_without_the_root_of_d(monkeypatch):
    """At one point, turns of each coordinate by candidates, against the sum of (v_k dR_ik)^+ over all rows.

    The mutant leaves sqrt(d) out of the rate of candidates: the coordinates of a gradient add up to more than its length.
    """
    X, y = logistic_arrays(30, (-0.5, 1.0, -1.0, 0.5), seed=2)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.cauchy(1.0))
    mode = tb.find_mode(model, progress=False)
    setup = ZigZag(bound="T6").setup(model, mode, 0, False)
    options, target, d = setup.policy.options(setup.policy.begin(), True), setup.target(), 4
    white, velocity = np.array([1.0, -0.8, 1.2, 0.9]), np.array([1.0, -1.0, 1.0, -1.0])
    theta, exact = mode.reference + mode.factor @ white, np.zeros(d)
    for i in range(30):
        raw = np.zeros(d)
        residual_gradient(target, np.array([i]), np.ones(1), theta, raw)
        exact += np.maximum(0.0, -velocity * (mode.factor.T @ raw))
    for j in range(d):
        part = np.empty(d)
        paths.prior_residual(options.prior, j, theta, part)
        exact += np.maximum(0.0, -velocity * part)
    rates, prior_rate = np.zeros(2), options.prior.weight.sum()
    data_rate = slope_rate(target.proxy.bound, 3.0, rates)

    def worst(count=15_000):
        rng, turned = np.random.default_rng(5), np.zeros(d)
        for _ in range(count):
            moved = velocity.copy()
            paths.turn(rng, target, options, rates, data_rate, prior_rate, white, moved, np.zeros(5))
            turned += moved != velocity
        whole = 3.0 * paths.spread(d) * (data_rate + prior_rate) * (white @ white)
        share = exact / whole
        return np.abs((turned / count - share) / np.sqrt(share * (1 - share) / count)).max()

    assert worst() < THRESHOLD
    monkeypatch.setattr(paths, "spread", lambda d: 1.0)
    assert worst() > THRESHOLD


def test_a_rate_above_its_bound_ends_the_run(small):
    setup = ZigZag(bound="T6").setup(small.model, small.mode, 0, False)
    proxy, table = setup.proxy, setup.proxy.bound.table
    shrunk = proxy.bound._replace(table=table._replace(weight=table.weight * 0.01))
    setup = replace(setup, proxy=Certified(proxy.whitening, proxy.proxy, shrunk))
    sampler = ZigZag(bound="T6")
    chain = Chain(0, sampler, setup, np.random.SeedSequence(1), small.mode.reference, warmup=0, thin=1)
    with pytest.raises(CertificateError, match="exceeds its certified bound"):
        drive([chain], Limits(2000), 1, False, None, lambda theta: 1.0)


def test_path_moments_agree_with_quadrature():
    model = skewed()
    posterior = exact_posterior(model, points=301, width=12.0)
    runs = [path_moments(model, time=1500.0, seed=seed) for seed in range(12)]
    sd = np.sqrt(np.diag(posterior.covariance))
    for values, exact in (
        (np.array([r.mean for r in runs]) / sd, posterior.mean / sd),
        (np.array([np.diag(r.covariance) for r in runs]) / sd**2, np.ones(2)),
    ):
        z = (values.mean(0) - exact) / (values.std(0, ddof=1) / math.sqrt(12))
        assert np.abs(z).max() < 7.5  # Student's t with 11 degrees: 4.9 in normal terms would be 9.2
    assert all(r.evals > 0 for r in runs)
    with pytest.raises(OptionError, match="time must be positive"):
        path_moments(model, time=0.0)


def test_a_fit_counts_its_rows_and_passes_its_audit(medium):
    fit = tb.sample(medium, "zigzag", draws=300, warmup=200, chains=2, seed=1, progress=False)
    np.testing.assert_array_equal(fit.stats["rows"], fit.evals)
    assert 0 < fit.evals.mean() < 50 and fit.stats["largest_ratio"].max() <= 1.0
    assert fit.stats["turns"].sum() > 300
    assert fit.audit(medium, pairs=3, repeats=500).passed


def test_warm_up_aims_at_half_the_correlation(medium):
    fit = tb.sample(medium, "zigzag", draws=2000, warmup=400, chains=2, seed=1, progress=False)
    white = (fit.theta - fit.theta.mean((0, 1))) / fit.theta.std((0, 1))
    assert abs((white[:, 1:] * white[:, :-1]).mean((0, 1)).max() - 0.5) < 0.25


def test_a_gaussian_model_reads_no_row():
    X, _ = logistic_arrays(200)
    model = tb.models.gaussian(tb.Dataset.from_arrays(X, X[:, 1]), tb.priors.flat(), sigma=1.0)
    mode = tb.find_mode(model, progress=False)
    setup = ZigZag().setup(model, mode, 0, False)
    assert setup.notes["candidate rows per unit of time"] == 0.0
    assert prior_rows(mode).weight.size == 0


def test_what_it_cannot_do_is_refused():
    X, y = logistic_arrays(60)
    data = tb.Dataset.from_arrays(X, y)
    with pytest.raises(ModelError, match="prior with bounded third derivatives"):
        model = tb.models.logistic(data, tb.priors.laplace(1.0))
        ZigZag().setup(model, tb.find_mode(model, progress=False), 0, False)
    with pytest.raises(ModelError, match="no certified bound"):
        model = tb.models.gaussian(tb.Dataset.from_arrays(X, X[:, 1] + y))
        ZigZag().setup(model, tb.find_mode(model, progress=False), 0, False)
    with pytest.raises(OptionError, match="interval"):
        ZigZag(interval=0.0)
    with pytest.raises(OptionError, match="bound"):
        ZigZag(bound="T1")


@pytest.mark.slow
@pytest.mark.parametrize("name", ("probit", "poisson", "gamma", "negbin", "student_t"))
def test_exact_draws_stay_exact_in_other_families(name):
    model = made_up(name, rows=12)
    posterior = exact_posterior(model, points=301, width=10.0)
    assert np.abs(invariance_scores(ZigZag(interval=0.5), model, posterior, steps=8)).max() < THRESHOLD


@pytest.mark.slow
def test_softmax_agrees_with_full_data():
    model = made_up("softmax", rows=300)
    exact = tb.sample(model, "nuts", draws=2000, warmup=500, chains=2, seed=1, progress=False)
    fit = tb.sample(model, "zigzag", draws=4000, warmup=500, chains=2, seed=1, progress=False)
    centre = exact.theta.mean((0, 1))
    for power in (1, 2):
        first, second = (exact.theta - centre) ** power, (fit.theta - centre) ** power
        error = np.sqrt(first.var((0, 1)) / effective_sizes(first) + second.var((0, 1)) / effective_sizes(second))
        assert np.abs((first.mean((0, 1)) - second.mean((0, 1))) / error).max() < THRESHOLD
