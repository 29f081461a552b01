"""Block pseudo-marginal and Rhee-Glynn samplers, learned rows, re-weighting and partial posteriors."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from support import logistic_arrays
from test_hmc_ecs import plain, quad, scores  # noqa: F401

import tallbayes as tb
from tallbayes.diagnostics import likelihood_estimates
from tallbayes.errors import ModelError, OptionError, StoreError, TallbayesWarning
from tallbayes.partial import _part
from tallbayes.samplers import BlockPseudoMarginal, RheeGlynn, resolve
from tallbayes.samplers.rhee_glynn import SeriesOptions
from tallbayes.schemes.learned_rows import LearnedOptions, estimate, group, needed
from tallbayes.schemes.unbiased_series import log_likelihood_estimate, log_series, series_terms
from tallbayes.target import Target, counters
from tallbayes.testing import THRESHOLD, log_likelihood, run_chunks


def test_the_block_sampler_agrees_with_quadrature(quad):  # noqa: F811
    sampler = BlockPseudoMarginal(subsample=20, blocks=5)
    fit = tb.sample(quad.model, sampler, draws=30_000, warmup=500, seed=1, mode=quad.mode, progress=False)
    z, sizes = scores(fit, quad.posterior, plain(fit))
    assert sizes.min() > 19_500 and np.abs(z).max() < THRESHOLD
    assert fit.evals.max() == 20
    assert 1 <= fit.meta["notes"]["longest_run_without_acceptance"] < 30_000
    assert fit.audit(quad.model, pairs=5).passed


def test_a_coarse_block_sampler_is_repaired_by_weights(quad):  # noqa: F811
    sampler = BlockPseudoMarginal(subsample=12, blocks=4, order=1)
    with pytest.warns(TallbayesWarning) as told:
        fit = tb.sample(quad.model, sampler, draws=40_000, warmup=500, seed=1, mode=quad.mode, progress=False)
    assert any("at a distance" in str(w.message) for w in told)
    exact = fit.reweight(quad.model, draws=8000)
    assert np.abs(scores(exact, quad.posterior, exact.weights)[0]).max() < THRESHOLD
    assert np.abs(scores(fit, quad.posterior, plain(fit))[0]).max() > THRESHOLD


def test_learned_rows_make_an_unbiased_log_likelihood(quad):  # noqa: F811
    groups = group(quad.mode, 10.0, most=8)
    assert groups.start[-1] == 200 and sorted(groups.members) == list(range(200))
    theta = quad.mode.reference + 0.5 * quad.mode.factor @ np.array([1.0, -1.0])
    target, rng = Target(quad.model.rows, quad.model.prior_terms, groups, counters()), np.random.default_rng(0)
    options = LearnedOptions(None, 20_000, 20_000, 1, 1.0)
    value, variance, rows = estimate(target, options, theta, rng.random((2, 20_000)))
    assert rows == 20_000 and target.counters[0] == 20_000 + groups.start.size - 1
    exact = log_likelihood(quad.model, theta)
    assert abs(value + 0.5 * variance - exact) < THRESHOLD * math.sqrt(variance)


def test_learned_rows_are_as_many_as_the_variance_asks_for(quad):  # noqa: F811
    groups = group(quad.mode, 10.0)
    target, rng = Target(quad.model.rows, quad.model.prior_terms, groups, counters()), np.random.default_rng(0)
    used = {}
    for variance in (1e9, 5.0, 1e-9):
        _, reached, used[variance] = estimate(
            target, LearnedOptions(None, 800, 10, 1, variance), quad.mode.reference, rng.random((2, 800))
        )
        assert reached <= variance or used[variance] == 800
    assert used[1e9] == 10 <= used[5.0] <= used[1e-9] == 800
    m, gamma = needed(quad.mode, groups, 1.0, rng)
    assert m == math.ceil(gamma)


def test_learned_draws_can_be_made_exact(quad):  # noqa: F811
    sampler = BlockPseudoMarginal(rows="learned", blocks=20)
    assert sampler.guarantee.kind == "HEURISTIC" and "rows" in sampler.info
    with pytest.warns(TallbayesWarning):
        fit = tb.sample(quad.model, sampler, draws=8000, warmup=300, seed=1, mode=quad.mode, progress=False)
    exact = fit.reweight(quad.model, draws=3000)
    assert np.abs(scores(exact, quad.posterior, exact.weights)[0]).max() < THRESHOLD
    assert fit.stats["rows"].max() <= fit.meta["notes"]["subsample"]


def test_the_number_of_terms_begins_at_zero():
    rng, epsilon, draws = np.random.default_rng(0), 0.4, 20_000
    terms = np.array([series_terms(rng, epsilon) for _ in range(draws)])
    for k in (1, 2, 5):
        p = (1.0 + epsilon) ** -k
        assert abs((terms >= k).mean() - p) < THRESHOLD * math.sqrt(p * (1 - p) / draws)
    assert abs(terms.mean() - 1.0 / epsilon) < THRESHOLD * terms.std() / math.sqrt(draws)


def test_the_series_is_that_of_the_exponential():
    assert abs(log_series(0.0, np.full(80, 3.0)) - 3.0) < 1e-12
    assert log_series(0.3, np.empty(0)) == 0.0
    assert abs(log_series(0.5, np.array([2.0, 1.0])) - math.log(1.0 + 1.5 * 2.0 + 1.5**2 * 2.0 / 2.0)) < 1e-12


@pytest.mark.parametrize("proxies", [True, False])
def test_rhee_and_glynn_estimate_without_bias(proxies):
    X, y = logistic_arrays(4)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(2.0))
    mode = tb.find_mode(model, progress=False)
    theta = mode.reference + 0.5
    setup = RheeGlynn().setup(model, mode, 0, False)
    options = SeriesOptions(None, 3, 0.2, proxies, np.arange(4))
    rng, target = np.random.default_rng(1), setup.target()
    logs = np.array([log_likelihood_estimate(rng, target, options, theta)[0] for _ in range(8000)])
    ratio = np.exp(logs - log_likelihood(model, theta))
    assert abs(ratio.mean() - 1.0) < THRESHOLD * ratio.std() / math.sqrt(ratio.size)
    late = np.array([series_terms(rng, 0.2) + 1 for _ in range(8000)])  # the mutant: support from one
    assert abs(late.mean() - 5.0) > THRESHOLD * late.std() / math.sqrt(8000)


def test_hopeless_settings_are_refused():
    X, y = logistic_arrays(3000)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(2.0))
    mode = tb.find_mode(model, progress=False)
    for sampler in (RheeGlynn(order=None), RheeGlynn(order=None, batch=100)):
        with pytest.raises(ModelError, match="impractical"):
            sampler.setup(model, mode, 0, False)
    RheeGlynn().setup(model, mode, 0, False)


def test_an_iteration_of_rhee_and_glynn_reads_all_rows_and_more(quad):  # noqa: F811
    _, info, _ = run_chunks(RheeGlynn(batch=12), quad.model, quad.mode, [50])
    report = dict(zip(resolve("rhee-glynn").columns, info.T, strict=True))
    np.testing.assert_array_equal(report["evals"], 200 + 12 * report["terms"])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: BlockPseudoMarginal(order=3), "0, 1 or 2"),
        (lambda: BlockPseudoMarginal(rows="some"), "unknown rows"),
        (lambda: BlockPseudoMarginal(subsample=0), "at least 1"),
        (lambda: BlockPseudoMarginal(blocks=0), "at least 1"),
        (lambda: BlockPseudoMarginal(variance=-1.0), "positive"),
        (lambda: BlockPseudoMarginal(move=tb.moves.nuts()), "known proposal ratio"),
        (lambda: RheeGlynn(order=5), "0, 1 or 2"),
        (lambda: RheeGlynn(batch=0), "at least 1"),
        (lambda: RheeGlynn(epsilon=0.0), "positive"),
    ],
)
def test_options_are_checked(make, message):
    with pytest.raises(OptionError, match=message):
        make()


def test_only_estimated_likelihoods_can_be_reweighted(quad, small):  # noqa: F811
    exact = tb.sample(quad.model, "exact-minibatch", draws=20, warmup=20, chains=2, seed=1, progress=False)
    with pytest.raises(OptionError, match="cannot be re-weighted"):
        exact.reweight(quad.model)
    fit = tb.sample(quad.model, "block-pseudo-marginal", draws=20, warmup=20, chains=2, seed=1, progress=False)
    with pytest.raises(StoreError, match="not the rows"):
        fit.reweight(small.model)
    with pytest.raises(OptionError, match="from 4 to the 20"):
        fit.reweight(quad.model, draws=21)


def test_wild_weights_are_refused(quad):  # noqa: F811
    fit = tb.sample(quad.model, "block-pseudo-marginal", draws=500, warmup=50, chains=2, seed=1, progress=False)
    rng = np.random.default_rng(0)
    fit.stats["log_likelihood"] -= np.log(rng.pareto(0.8, (2, 500)) + 1.0)  # weights without a finite mean
    with pytest.raises(ModelError, match="Pareto shape"):
        fit.reweight(quad.model)


def test_partial_posteriors_are_debiased_and_a_part_has_the_prior_of_the_whole():
    rng = np.random.default_rng(0)
    data = tb.Dataset.from_arrays(np.ones((1600, 1)), 3.0 + rng.standard_normal(1600))
    model = tb.models.gaussian(data, tb.priors.normal(0.5), sigma=1.0)  # a prior that pulls small parts towards zero
    done = tb.partial_posteriors(model, first=100, replications=60, draws=60, warmup=30, seed=1)
    precision = 1600 + 4.0
    assert done.sizes == (100, 200, 400, 800, 1600)
    assert abs(done.mean[0] - data.y.sum() / precision) < THRESHOLD * done.error[0]
    assert done.terms.min() == 1 and done.evals > 0 and "not for the posterior" in repr(done)
    part = _part(tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(500))), np.arange(100))
    assert part.data.n == 100
    whole = tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(500)))
    assert part.log_prior(np.array([1.0, 2.0])) == whole.log_prior(np.array([1.0, 2.0]))
    for options, message in (
        ({"first": 1}, "at least"),
        ({"replications": 1}, "at least 2"),
        ({"decay": 1.0}, "between 0 and 1"),
    ):
        with pytest.raises(OptionError, match=message):
            tb.partial_posteriors(model, **options)


@pytest.mark.parametrize("gap, passes_audit", [(1e-5, True), (1e-2, False)])
def test_an_audit_allows_for_rounding_of_a_sum_whose_terms_cancel(gap, passes_audit, monkeypatch):
    """A million densities of both signs may add up to nothing; the rounding of their sum is that of the terms."""
    monkeypatch.setattr(likelihood_estimates.passes, "total_value", lambda rows, theta: 0.0)
    model = SimpleNamespace(rows=None, data=SimpleNamespace(n=1_000_000))
    stats = {"log_likelihood": np.full((1, 5), gap), "variance": np.zeros((1, 5))}
    fit = SimpleNamespace(theta=np.zeros((1, 5, 2)), stats=stats)
    _, problems = likelihood_estimates.audit(model, fit, 5, np.random.default_rng(0))
    assert (problems == []) is passes_audit
