"""Samplers with a subsampled decision: the law each of them has, and the faults that tests must find."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit, ndtr
from support import logistic_arrays, named

import tallbayes as tb
from tallbayes import target as targets
from tallbayes.diagnostics import pair_pilot
from tallbayes.engine.random_rows import draw_distinct_rows
from tallbayes.errors import OptionError
from tallbayes.proxies.taylor import proxy_value, unwhiten
from tallbayes.samplers import Outcome, noise_exchange
from tallbayes.samplers.minibatch_barker import correction
from tallbayes.samplers.penalty import penalty_of
from tallbayes.schemes import acceptance
from tallbayes.schemes.acceptance import Pair, looks, replay
from tallbayes.target import Cache
from tallbayes.testing import (
    THRESHOLD,
    ScriptedRandom,
    counting_rows,
    invariance_error,
    invariance_scores,
    irreducible,
    run_chunks,
    transition_matrix,
)

SAMPLERS = tb.samplers


# Draws without replacement and the count of evaluations


def test_a_partial_shuffle_is_uniform_whatever_order_was_left():
    for start in itertools.permutations(range(4)):
        seen = []
        for first, second in itertools.product(range(4), range(3)):
            order = np.array(start, np.int32)
            draw_distinct_rows(ScriptedRandom((first + 0.5) / 4, (second + 0.5) / 3), order, 0, 2)
            assert sorted(order) == [0, 1, 2, 3]
            seen.append(tuple(order[:2]))
        assert sorted(seen) == sorted(itertools.permutations(range(4), 2))


def test_a_second_draw_leaves_the_first_alone():
    rng = np.random.default_rng(0)
    order = np.arange(50, dtype=np.int32)
    draw_distinct_rows(rng, order, 0, 10)
    before = order[:10].copy()
    draw_distinct_rows(rng, order, 10, 30)
    np.testing.assert_array_equal(order[:10], before)
    np.testing.assert_array_equal(np.sort(order), np.arange(50))


def test_values_at_a_state_that_was_read_in_full_count_once(small):
    n = small.model.data.n
    sampler = SAMPLERS.Austerity(epsilon=1e-300, batch=30)  # never decides before all rows are read
    found = named(sampler, run_chunks(sampler, small.model, small.mode, [40])[1])
    assert found["full_read"].all() and found["acceptance_rate"].any() and not found["acceptance_rate"].all()
    np.testing.assert_array_equal(found["evals"], [2 * n] + [n] * 39)
    np.testing.assert_array_equal(found["evals_paper"], [2 * n, n] * 20)  # an iteration charged n is forgotten by the papers


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


def test_the_correction_is_a_law_and_what_the_noise_lacks():
    atoms, probability = correction()
    assert (probability > 0).all() and probability.sum() == pytest.approx(1.0) and atoms.size < 100
    grid = np.linspace(-20, 20, 4001)
    assert np.abs(ndtr(grid[:, None] - atoms) @ probability - expit(grid)).max() < 5e-6
    assert (probability * atoms**2).sum() == pytest.approx(math.pi**2 / 3 - 1.0, abs=1e-3)
    assert (probability * atoms).sum() == pytest.approx(0.0, abs=1e-3)


def penalised(ratio, sd, penalty):
    """E min(1, exp(D - penalty)) for D ~ N(ratio, sd^2)."""
    low = (ratio - penalty) / sd
    return ndtr(low) + np.exp(ratio - penalty + 0.5 * sd**2) * ndtr(-low - sd)


def test_the_penalty_method_is_exact_for_normal_noise_of_known_variance():
    rng = np.random.default_rng(0)
    log_law, sd = rng.normal(0, 1, 4), rng.uniform(0.3, 1.5, (4, 4))
    sd = sd + sd.T
    law = np.exp(log_law) / np.exp(log_law).sum()

    def outcomes(i, share):
        for j in range(4):
            if j != i:
                accept = float(penalised(log_law[j] - log_law[i], sd[i, j], share * penalty_of(sd[i, j] ** 2, math.inf)))
                yield accept / 3, j
                yield (1 - accept) / 3, i

    matrix = transition_matrix(4, lambda i: outcomes(i, 1.0))
    assert invariance_error(matrix, law) < 1e-12 and irreducible(matrix)
    assert invariance_error(transition_matrix(4, lambda i: outcomes(i, 0.0)), law) > 1e-3


def test_the_penalty_for_an_estimated_variance_restores_balance():
    from scipy.stats import chi2

    count, sd = 30, 1.0
    estimate = sd**2 * chi2.ppf((np.arange(4000) + 0.5) / 4000, count - 1) / (count - 1)

    def imbalance(penalty):
        forward, backward = penalised(1.0, sd, penalty).mean(), penalised(-1.0, sd, penalty).mean()
        return abs(forward / backward / math.e - 1.0)

    assert imbalance(penalty_of(estimate, count)) < 3e-4 < 3e-3 < imbalance(0.5 * estimate)


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


def test_the_logistic_law_is_within_its_constant_of_the_normal_one():
    x = np.linspace(-8, 8, 100_001)
    assert np.abs(ndtr(x) - expit(noise_exchange.LOGISTIC * x)).max() < 0.0095


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")
def test_warm_up_chooses_the_subsample_that_makes_beta_one(small):
    fit = tb.sample(small.model, "noise-exchange", draws=500, warmup=500, chains=2, seed=1, progress=False)
    assert 0.8 < np.median(fit.stats["beta"]) < 1.25
    np.testing.assert_array_equal(fit.evals, 2 * fit.stats["rows"])
    assert not fit.stats["full_read"].any()
    assert any("more than the n of plain Metropolis" in w for w in fit.meta["warnings"])


# Austerity


def test_a_small_epsilon_makes_austerity_exact(small):
    sampler = SAMPLERS.Austerity(epsilon=1e-300, batch=30, move=tb.moves.independence())
    assert np.abs(invariance_scores(sampler, small.model, small.posterior, starts=5000)).max() < THRESHOLD
    assert np.abs(invariance_scores(sampler, small.tempered, small.posterior)).max() > THRESHOLD


def test_the_decisions_of_austerity_are_those_of_a_t_test(rows):
    def flips(repeats, **options):
        accepted, levels, exact, _, _ = decisions(SAMPLERS.Austerity(batch=400, **options), rows, slope(0.5, 1.0), repeats)
        return (accepted != (levels < exact)).mean()

    assert flips(500, epsilon=1e-300) == 0.0
    assert 0.0 < flips(20_000) < 0.2
    assert flips(20_000, epsilon=0.001) < 0.3 * flips(20_000)


def test_the_first_look_must_have_thirty_rows():
    with pytest.raises(OptionError, match="at least 30"):
        SAMPLERS.Austerity(batch=29)
    assert SAMPLERS.Austerity(batch=30).batch == 30


@pytest.mark.parametrize("seed", range(3))
def test_lognormal_data_make_austerity_warn_and_normal_data_do_not(seed):
    noise = np.random.default_rng(seed).standard_normal(20_000)
    sampler, stats = SAMPLERS.Austerity(batch=300), {"evals": np.ones((1, 1))}
    for values, warned in ((noise, False), (np.exp(noise), True)):
        model = tb.models.normal(values)
        mode = tb.find_mode(model, progress=False)
        with counting_rows() as account:
            setup = sampler.setup(model, mode, seed, False)
        assert setup.notes["normal"] is not warned
        warnings = sampler.diagnose(Outcome(setup, np.zeros((1, 1, 2)), stats)).warnings
        assert [("not normal" in w and "skewness" in w) for w in warnings] == [True] * warned
    assert account.rows == 8 * 20_000 and setup.notes["skewness"] > 10


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")
def test_austerity_underestimates_sigma_of_lognormal_data():
    model = tb.models.normal(np.exp(np.random.default_rng(0).standard_normal(100_000)))
    fit = tb.sample(model, SAMPLERS.Austerity(batch=100), draws=2000, warmup=500, chains=2, seed=1, progress=False)
    sd = math.sqrt(tb.find_mode(model, progress=False).covariance[1, 1])
    assert fit.theta[:, :, 1].mean() < fit.laplace_mean[1] - 2.0 * sd
    assert any("not normal" in w for w in fit.meta["warnings"])


def test_the_anderson_darling_test_has_its_level():
    rng = np.random.default_rng(1)
    p = np.array([pair_pilot.anderson_darling(rng.random(200))[1] for _ in range(4000)])
    for level in (0.5, 0.1, 0.01):
        assert abs((p < level).mean() - level) < THRESHOLD * math.sqrt(level * (1 - level) / p.size) + 0.1 * level
    assert pair_pilot.anderson_darling(rng.random(200) ** 2)[1] < 1e-6
    z = [pair_pilot.anderson_darling(rng.random(200) ** power)[1] for power in np.linspace(1.4, 1.8, 30)]
    assert all(0.0 <= value <= 1.0 for value in z)


# Audits, diagnostics, options


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")
@pytest.mark.parametrize("name", ["austerity", "penalty-mh", "minibatch-barker", "noise-exchange", "delayed-acceptance"])
def test_audits_replay_decisions(name, medium):
    fit = tb.sample(medium, name, draws=50, warmup=50, chains=1, seed=1, progress=False)
    found = fit.audit(medium, pairs=4, repeats=200)
    assert found.passed
    if name == "austerity":
        assert 0.0 <= found.facts["flip rate"] < 0.25 and " to " in found.facts["flip rate, 95 % interval"]
    if name in ("penalty-mh", "minibatch-barker"):
        assert abs(found.facts["acceptance rate less that on all rows"]) < THRESHOLD * 0.5 / math.sqrt(800)


def test_a_sampler_that_costs_more_than_plain_metropolis_says_so():
    stats = {"evals": np.full((2, 10), 150.0)}

    def outcome(n, thin):
        setup = SimpleNamespace(model=SimpleNamespace(data=SimpleNamespace(n=n)))
        return Outcome(setup, np.zeros((1, 1, 1)), stats, thin)

    assert "1.50 n evaluations" in acceptance.costs_more(outcome(100, 1))[0]
    assert acceptance.costs_more(outcome(150, 1)) == []
    assert acceptance.costs_more(outcome(100, 2)) == []  # a draw stands for two iterations


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: SAMPLERS.Austerity(epsilon=0.5), "between 0 and 0.5"),
        (lambda: SAMPLERS.Austerity(growth=1.0), "above 1"),
        (lambda: SAMPLERS.Austerity(order=3), "0 .none., 1 or 2"),
        (lambda: SAMPLERS.Austerity(move=tb.moves.nuts()), "known proposal ratio"),
        (lambda: SAMPLERS.PenaltyMH(variance=0.0), "positive"),
        (lambda: SAMPLERS.NoiseExchange(subsample=1), "at least 2"),
        (lambda: SAMPLERS.NaiveSubsampling(estimator="unbiassed"), "did you mean 'unbiased'"),
        (lambda: SAMPLERS.NaiveSubsampling(share=0.0), "above 0"),
        (lambda: SAMPLERS.DelayedAcceptance(form="products"), "did you mean 'product'"),
        (lambda: SAMPLERS.DelayedAcceptance(form="product", subsample=5), "applies only to form='surrogate'"),
        (lambda: SAMPLERS.DelayedAcceptance(order=0), "needs a proxy or rows"),
    ],
)
def test_options_are_checked(make, message):
    with pytest.raises(OptionError, match=message):
        make()


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")
def test_comparisons_take_them(small):
    names = ["penalty-mh", "naive-subsampling"]
    found = tb.compare(small.model, names, draws=50, warmup=50, chains=2, reference_draws=100, progress=False)
    assert list(found.table.index) == [*names, "laplace"]
