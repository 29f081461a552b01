"""Internals of `tallbayes.schemes.acceptance`; what users see of it is tested in test_subsampled_acceptance.py."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit, ndtr
from support import logistic_arrays, named

import tallbayes as tb
from tallbayes import target as targets
from tallbayes.proxies.taylor import proxy_value, unwhiten
from tallbayes.samplers import Outcome
from tallbayes.schemes import acceptance
from tallbayes.schemes.acceptance import Pair, looks, replay
from tallbayes.target import Cache
from tallbayes.testing import (
    THRESHOLD,
    run_chunks,
)

SAMPLERS = tb.samplers


# Draws without replacement and the count of evaluations


def test_evaluations_are_the_rows_read_at_both_ends(small, monkeypatch):
    read = []
    honest = targets.row_values

    def counting(rows, index, theta, out):
        read.append(index.size)
        honest(rows, index, theta, out)

    monkeypatch.setattr(targets, "row_values", counting)
    sampler = SAMPLERS.Austerity(epsilon=0.4, batch=30)
    found = named(sampler, run_chunks(sampler, small.model, small.mode, [60], compiled=False)[1])
    assert sum(read) == 2 * found["rows"].sum()
    known = np.zeros(60, bool)  # at the beginning of an iteration: were all rows read at this state?
    for k in range(1, 60):
        known[k] = found["full_read"][k - 1] or (known[k - 1] and not found["acceptance_rate"][k - 1])
    assert known.any() and not known.all()
    np.testing.assert_array_equal(found["evals"], np.where(known, 1, 2) * found["rows"])
    charged = found["evals_paper"] == 2 * small.model.data.n
    np.testing.assert_array_equal(found["evals_paper"][1:], np.where(charged[:-1], 1, 2) * found["rows"][1:])


@pytest.mark.parametrize("order", [0, 1, 2])
def test_residual_gaps_of_every_order_add_up(small, order):
    setup = SAMPLERS.Austerity(order=order).setup(small.model, small.mode, 1, False)
    target, rng = setup.target(), np.random.default_rng(order)
    whites, thetas = rng.standard_normal((2, 2)), np.empty((2, 2))
    for white, theta in zip(whites, thetas, strict=True):
        unwhiten(target.proxy.whitening, white, theta)
    gaps = np.empty(60)
    targets.subsample_gaps(target, np.arange(60), *thetas, Cache(False, False), gaps)
    proxies = proxy_value(target.proxy.proxy, whites[1]) - proxy_value(target.proxy.proxy, whites[0])
    log_likelihood = [small.model.log_posterior(theta) - small.model.log_prior(theta) for theta in thetas]
    exact = log_likelihood[1] - log_likelihood[0] - proxies
    assert gaps.sum() == pytest.approx(exact, abs=1e-9)
    total = targets.total_residual_gap(target, *thetas, *whites, Cache(True, True))
    assert total == pytest.approx(exact, abs=1e-9)
    assert list(target.counters[:4]) == [180, 180, 0, 180]


# Decisions replayed on one pair


@pytest.fixture(scope="module")
def rows():
    """2,000 rows, whose log ratios along the slope are symmetric and have light tails: means of some hundred are normal."""
    return tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(2000, (0.0, 0.3), seed=3)), tb.priors.normal(2.0))


def decisions(sampler, model, whites, repeats=100_000, seed=0, change=lambda rule: rule):
    """Decisions at a pair of whitened positions, their levels, the exact log ratio, what the rule reported of the last, and
    the standard deviation of the residual gaps; `change` plants a mutant into the rule."""
    mode = tb.find_mode(model, progress=False)
    setup = sampler.setup(model, mode, 1, False)
    options, target, rng = setup.policy.options(setup.policy.begin(), True), setup.target(), np.random.default_rng(seed)
    whites, thetas = np.asarray(whites, float), np.empty((2, model.dim))
    for white, theta in zip(whites, thetas, strict=True):
        unwhiten(target.proxy.whitening, white, theta)
    exact = model.log_posterior(thetas[1]) - model.log_posterior(thetas[0])
    proxies = proxy_value(target.proxy.proxy, whites[1]) - proxy_value(target.proxy.proxy, whites[0])
    known = proxies + model.log_prior(thetas[1]) - model.log_prior(thetas[0])
    order, gaps = setup.policy.blank(thetas[0]).order, np.empty(model.data.n)
    targets.subsample_gaps(target, np.arange(model.data.n), *thetas, Cache(False, False), gaps)
    assert known + gaps.sum() == pytest.approx(exact)
    pair = Pair(thetas[0], thetas[1], whites[0], whites[1], known, 0.0, order, Cache(False, False))
    levels, accepted, info = np.log1p(-rng.random(repeats)), np.empty(repeats, np.bool_), np.zeros(len(sampler.info))
    replay(rng, target, change(options.rule), pair, levels, accepted, info)
    return accepted, levels, exact, info[len(acceptance.AcceptanceInfo._fields) :], gaps.std()


def slope(ratio, length):
    """Whitened positions a distance apart along the slope, between which the log ratio is about `ratio`."""
    return np.array([[0.0, -ratio / length - 0.5 * length], [0.0, -ratio / length + 0.5 * length]])


def test_looks_end_with_all_rows():
    assert list(looks(100, 2.0, 1000)) == [100, 200, 400, 800, 1000]
    assert list(looks(100, 2.0, 50)) == [50]
    assert list(looks(7, 1.01, 9)) == [7, 8, 9]


def test_barker_with_its_correction_accepts_as_it_should(rows):
    sampler = SAMPLERS.MinibatchBarker(order=0, batch=200)
    for ratio in (-1.0, 0.5):
        accepted, _, exact, (variance, distance), _ = decisions(sampler, rows, slope(ratio, 0.25))
        assert exact == pytest.approx(ratio, abs=0.2) and 0.3 < variance < 0.8 and 0.0 < distance < 0.2
        error = math.sqrt(0.25 / accepted.size)
        assert abs(accepted.mean() - expit(exact)) < THRESHOLD * error + 1e-3
        without = decisions(sampler, rows, slope(ratio, 0.25), change=lambda r: r._replace(atoms=0.0 * r.atoms))[0]
        assert abs(without.mean() - expit(exact)) > THRESHOLD * error + 1e-3


def penalised(ratio, sd, penalty):
    """E min(1, exp(D - penalty)) for D ~ N(ratio, sd^2)."""
    low = (ratio - penalty) / sd
    return ndtr(low) + np.exp(ratio - penalty + 0.5 * sd**2) * ndtr(-low - sd)


def test_the_penalty_rule_accepts_as_its_law_says(rows):
    sampler, n = SAMPLERS.PenaltyMH(order=0, batch=400, variance=math.inf), rows.data.n
    for ratio in (-0.5, 0.5):
        accepted, _, exact, (variance,), sigma = decisions(sampler, rows, slope(ratio, 0.5))
        sd = sigma * math.sqrt(n * (n - 400) / 400)
        assert variance == pytest.approx(sd**2, rel=0.3)
        error = math.sqrt(0.25 / accepted.size)
        assert abs(accepted.mean() - penalised(exact, sd, 0.5 * sd**2)) < THRESHOLD * error + 2e-3
        assert abs(accepted.mean() - penalised(exact, sd, 0.0)) > THRESHOLD * error + 2e-3


def test_exchanged_noise_is_barkers_rule_at_a_temperature(rows):
    n = rows.data.n
    for subsample, ratio in ((500, 0.8), (100, 0.8), (100, -1.5)):
        sampler = SAMPLERS.NoiseExchange(subsample=subsample)
        accepted, _, exact, (measured, _), sigma = decisions(sampler, rows, slope(ratio, 0.5))
        assert measured == pytest.approx(sigma, rel=0.4)
        beta = 1.702 * math.sqrt(subsample) / (n * sigma)
        error = math.sqrt(0.25 / accepted.size)
        assert abs(accepted.mean() - expit(beta * exact)) < 0.0095 + THRESHOLD * error + 2e-3
        assert abs(accepted.mean() - expit(exact)) > 0.02 or abs(beta - 1.0) < 0.2


# Austerity


def test_the_decisions_of_austerity_are_those_of_a_t_test(rows):
    def flips(repeats, **options):
        accepted, levels, exact, _, _ = decisions(SAMPLERS.Austerity(batch=400, **options), rows, slope(0.5, 1.0), repeats)
        return (accepted != (levels < exact)).mean()

    assert flips(500, epsilon=1e-300) == 0.0
    assert 0.0 < flips(20_000) < 0.2
    assert flips(20_000, epsilon=0.001) < 0.3 * flips(20_000)


# Audits, diagnostics, options


def test_a_sampler_that_costs_more_than_plain_metropolis_says_so():
    stats = {"evals": np.full((2, 10), 150.0)}

    def outcome(n, thin):
        setup = SimpleNamespace(model=SimpleNamespace(data=SimpleNamespace(n=n)))
        return Outcome(setup, np.zeros((1, 1, 1)), stats, thin)

    assert "1.50 n evaluations" in acceptance.costs_more(outcome(100, 1))[0]
    assert acceptance.costs_more(outcome(150, 1)) == []
    assert acceptance.costs_more(outcome(100, 2)) == []  # a draw stands for two iterations
