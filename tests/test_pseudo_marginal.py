"""Block pseudo-marginal and Rhee-Glynn samplers, learned rows, re-weighting and partial posteriors."""

import numpy as np
import pytest
from support import logistic_arrays
from test_hmc_ecs import plain, quad, scores  # noqa: F401

import tallbayes as tb
from tallbayes.errors import ModelError, OptionError, StoreError, TallbayesWarning
from tallbayes.samplers import BlockPseudoMarginal, RheeGlynn, resolve
from tallbayes.testing import THRESHOLD, run_chunks


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


def test_learned_draws_can_be_made_exact(quad):  # noqa: F811
    sampler = BlockPseudoMarginal(rows="learned", blocks=20)
    assert sampler.guarantee.kind == "HEURISTIC" and "rows" in sampler.info
    with pytest.warns(TallbayesWarning):
        fit = tb.sample(quad.model, sampler, draws=8000, warmup=300, seed=1, mode=quad.mode, progress=False)
    exact = fit.reweight(quad.model, draws=3000)
    assert np.abs(scores(exact, quad.posterior, exact.weights)[0]).max() < THRESHOLD
    assert fit.stats["rows"].max() <= fit.meta["notes"]["subsample"]


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
