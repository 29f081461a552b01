"""Confidence samplers: ranges that hold for every row, decisions that are wrong at most with probability delta."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.errors import CertificateError, ModelError, OptionError, TallbayesWarning
from tallbayes.samplers import Confidence, MHSubLhd
from tallbayes.testing import THRESHOLD, invariance_scores, replay_decisions, run_chunks

ROWS = 2000
TESTS = ("betting", "predictable-bernstein", "empirical-bernstein", "empirical-bernstein-serfling", "hoeffding-serfling")


@pytest.fixture(scope="module")
def heavy():
    """Rows of very different norms, so that residuals have a long tail."""
    rng = np.random.default_rng(5)
    X = np.column_stack([np.ones(ROWS), rng.standard_t(3, (ROWS, 2))])
    y = rng.random(ROWS) < 1.0 / (1.0 + np.exp(-X @ [-0.5, 0.7, 0.3]))
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(2.0))
    return model, tb.find_mode(model, progress=False)


def families():
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(300), rng.standard_normal((300, 2))])
    data = lambda y: tb.Dataset.from_arrays(X, y)  # noqa: E731
    eta = X @ [0.2, 0.5, -0.4]
    return {
        "logistic": tb.models.logistic(data(rng.random(300) < 0.4)),
        "probit": tb.models.probit(data(rng.random(300) < 0.4)),
        "gamma": tb.models.gamma(data(rng.gamma(2.0, np.exp(eta) / 2.0)), shape=2.0),
        "poisson": tb.models.poisson(data(rng.poisson(np.exp(eta)))),
        "negbin": tb.models.negbin(data(rng.poisson(np.exp(eta))), size=2.0),
        "student_t": tb.models.student_t(data(eta + rng.standard_t(4, 300)), nu=4.0, scale=1.0),
        "gaussian": tb.models.gaussian(data(eta + rng.standard_normal(300)), sigma=1.0),
        "normal": tb.models.normal(rng.lognormal(0.0, 1.0, 300)),
    }


MODELS = families()


def flips(sampler, model, mode, pairs, repeats, seed, worst):
    """Wrong decisions on stored (theta, theta', u); `worst` puts u next to the exact ratio."""
    rng = np.random.default_rng(seed)
    white = rng.standard_normal((pairs, 1, model.dim)) + np.concatenate(
        [np.zeros((pairs, 1, model.dim)), rng.standard_normal((pairs, 1, model.dim))], axis=1
    )
    thetas = mode.reference + white @ mode.factor.T
    levels = np.log1p(-rng.random((pairs, repeats)))
    if worst:
        exact = np.array([model.log_posterior(other) - model.log_posterior(theta) for theta, other in thetas])
        levels[:] = (exact + np.where(np.arange(pairs) % 2, 1e-5, -1e-5))[:, None]
    return replay_decisions(sampler, model, thetas, levels, mode=mode, seed=seed).wrong(levels)


def most(trials, delta):
    return delta * trials + THRESHOLD * math.sqrt(delta * (1 - delta) * trials)


@pytest.mark.parametrize(
    "test, rows",
    [
        ("betting", "weighted"),
        pytest.param("betting", "uniform", marks=pytest.mark.slow),
        ("empirical-bernstein", "uniform"),
    ],
)
def test_decisions_are_wrong_at_most_with_probability_delta(test, rows, heavy):
    sampler, repeats = Confidence(delta=0.1, test=test, rows=rows), 300
    wrong = flips(sampler, *heavy, 12, repeats, 7, True)
    assert wrong.max() <= most(repeats, 0.1) and wrong.sum() <= most(12 * repeats, 0.1)
    assert flips(sampler, *heavy, 5, 200, 8, False).sum() <= most(1000, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["uniform", "weighted"])
@pytest.mark.parametrize("test", TESTS)
def test_ten_thousand_stored_decisions(test, rows, heavy):
    sampler = Confidence(delta=0.1, test=test, rows=rows)
    assert flips(sampler, *heavy, 100, 100, 9, True).sum() <= most(10_000, 0.1)
    assert flips(sampler, *heavy, 1000, 10, 10, False).sum() <= most(10_000, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("bound", ["hoeffding-serfling", "empirical-bernstein", "empirical-bernstein-serfling"])
def test_stored_decisions_without_a_proxy(bound, heavy):
    assert flips(MHSubLhd(delta=0.1, bound=bound), *heavy, 100, 20, 11, False).sum() <= most(2000, 0.1)


@pytest.mark.parametrize("rows", ["weighted", "uniform"])
def test_a_range_that_is_too_small_is_a_hard_error(rows, medium):
    class Shrunk(Confidence):
        def setup(self, model, mode, seed, progress):
            setup = super().setup(model, mode, seed, progress)
            table = setup.proxy.bound.table
            table = table._replace(weight=0.05 * table.weight, cumulative=0.05 * table.cumulative)
            return replace(setup, proxy=setup.proxy._replace(bound=setup.proxy.bound._replace(table=table)))

    with pytest.raises(CertificateError):
        sampler = Shrunk(bound="T6", rows=rows, test="hoeffding-serfling", zero_draws=False)
        tb.sample(medium, sampler, draws=300, warmup=0, chains=1, progress=False)


@pytest.mark.parametrize("sampler", [Confidence(delta=1e-3), Confidence(delta=1e-3, refresh=5)], ids=["fixed", "refresh"])
def test_exact_draws_stay_exact_at_a_small_delta(sampler, small):
    assert np.abs(invariance_scores(sampler, small.model, small.posterior)).max() < THRESHOLD
    assert np.abs(invariance_scores(sampler, small.tempered, small.posterior)).max() > THRESHOLD


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler", [Confidence(), Confidence(rows="uniform"), MHSubLhd()], ids=["weighted", "uniform", "vanilla"]
)
def test_quadrature(sampler):
    from tallbayes.testing import exact_posterior

    model = tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(200)), tb.priors.normal(10.0))
    posterior = exact_posterior(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TallbayesWarning)
        fit = tb.sample(model, sampler, draws=60_000, warmup=1000, chains=4, seed=4, progress=False)
    assert fit.ess.min() > 19_500
    draws = fit.theta.reshape(-1, 2)
    sd = np.sqrt(np.diag(posterior.covariance))
    z = (draws.mean(0) - posterior.mean) / (sd / np.sqrt(fit.ess))
    assert np.abs(z).max() < THRESHOLD
    assert np.abs(draws.var(0) / sd**2 - 1).max() < THRESHOLD * np.sqrt(2 / (0.5 * fit.ess.min()))


@pytest.mark.parametrize("family", ["gamma", "poisson", "negbin", "student_t", "normal"])
def test_other_families_run(family):
    model = MODELS[family]
    mode = tb.find_mode(model, progress=False)
    for sampler in (Confidence(), Confidence(rows="uniform")) if family != "normal" else (Confidence(), MHSubLhd()):
        theta, _, _ = run_chunks(sampler, model, mode, [40], compiled=False)
        assert np.isfinite(theta).all() and np.unique(theta[:, 0]).size > 1


def test_the_oracle_is_counted_apart(small):
    sampler = MHSubLhd(range="oracle")
    _, info, _ = run_chunks(sampler, small.model, small.mode, [6], compiled=False)
    report = dict(zip(sampler.columns, info.T, strict=True))
    n = small.model.data.n
    np.testing.assert_array_equal(report["oracle_evals"], np.full(6, 2 * n))
    assert (report["evals"] <= 2 * n).all()
    np.testing.assert_allclose(report["largest_ratio"][report["full_read"] == 1], 1.0, rtol=1e-9)


def test_what_it_cost_is_noted_and_warned_of(small):
    with pytest.warns(TallbayesWarning, match="read all rows") as caught:
        fit = tb.sample(small.model, "mhsublhd", draws=100, warmup=50, chains=1, seed=1, progress=False)
    assert any("more than the n of plain" in str(w.message) for w in caught) == (fit.evals.mean() > small.model.data.n)
    notes = fit.meta["notes"]
    assert notes["median C n"] > 1 and 0 <= notes["iterations without a draw"] <= 1
    assert notes["iterations that read all rows"] == fit.stats["full_read"].mean() > 0.5


def test_published_configuration():
    sampler = Confidence.published(delta=0.05)
    assert (sampler.delta, sampler.test, sampler.refresh, sampler.rows) == (0.05, "empirical-bernstein", 10, "uniform")
    assert Confidence.from_options({k: v for k, v in sampler.as_dict().items() if k != "class"}) == sampler


@pytest.mark.parametrize(
    "options, match",
    [
        ({"delta": 0.0}, "delta"),
        ({"test": "bettin"}, "did you mean 'betting'"),
        ({"bound": "T11"}, "unknown bound"),
        ({"rows": "all"}, "unknown rows"),
        ({"growth": 1.0}, "growth"),
        ({"first": 0}, "first"),
        ({"power": 0.5}, "power"),
        ({"order": 3}, "order"),
        ({"order": 1, "bound": "T6"}, "lipschitz"),
        ({"bound": "lipschitz"}, "T1 to T9"),
        ({"rows": "weighted", "bound": "oracle"}, "uniform"),
        ({"refresh": 0}, "refresh"),
        ({"refresh": 5, "bound": "T9"}, "T6"),
        ({"refresh": 5, "references": ((0.0, 0.0),)}, "use only one"),
        ({"refresh": 5, "move": tb.moves.independence()}, "random_walk"),
        ({"references": ((0.0, 0.0), (1.0,))}, "of the same length"),
    ],
)
def test_wrong_options_are_named(options, match):
    with pytest.raises(OptionError, match=match):
        Confidence(**options)


@pytest.mark.parametrize(
    "options, match",
    [({"p": 1.0}, "p must"), ({"gamma": 1.0}, "gamma"), ({"bound": "betting"}, "unknown bound"), ({"order": 2}, "Confidence"),
     ({"range": "all"}, "unknown range")],
)  # fmt: skip
def test_wrong_options_of_mhsublhd_are_named(options, match):
    with pytest.raises(OptionError, match=match):
        MHSubLhd(**options)


@pytest.mark.parametrize(
    "family, sampler, match",
    [
        ("gamma", MHSubLhd(), "bounded slope"),
        ("poisson", Confidence(order=1), "second derivative"),
        ("poisson", Confidence(bound="published"), "logistic and gamma"),
        ("gamma", Confidence(bound="T6"), "T9"),
        ("normal", Confidence(rows="weighted"), "uniform"),
    ],
)
def test_models_without_a_certificate_are_refused(family, sampler, match):
    model = MODELS[family]
    with pytest.raises(ModelError, match=match):
        sampler.setup(model, tb.find_mode(model, progress=False), 0, False)
