"""Semi-automatic statistics and adaptive bandwidth of informed subsampling, as users see them."""

import json

import numpy as np
import pytest
from scipy.stats import norm

import tallbayes as tb
from tallbayes.samplers import Informed, Outcome, from_dict
from tallbayes.testing import THRESHOLD, counting_rows

N, M = 2000, 100


def gaussian_mean():
    """Normal quantiles as data, known sigma: the posterior of the mean is N(0, 1/N), and y is sufficient."""
    y = np.random.default_rng(0).permutation(norm.ppf((np.arange(N) + 0.5) / N))
    y /= y.std()
    return tb.models.gaussian(tb.Dataset.from_arrays(np.ones((N, 1)), y), tb.priors.flat(), sigma=1.0)


def regression():
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(N), rng.standard_normal(N)])
    return tb.models.gaussian(tb.Dataset.from_arrays(X, X @ [0.5, -1.0] + rng.standard_normal(N)), tb.priors.flat(), sigma=1.0)


def prepared(model, **options):
    return Informed(M, statistics="semi-automatic", **options).setup(model, tb.find_mode(model, progress=False), 0, False)


def test_the_sufficient_statistic_of_a_gaussian_mean_is_found():
    model = gaussian_mean()
    with counting_rows() as account:
        setup = prepared(model, candidates=lambda x, y: np.column_stack([np.exp(y), y, y**2]))
    expected = (model.data.y - model.data.y.mean()) * np.sqrt(N)  # in posterior standard deviations
    np.testing.assert_allclose(np.abs(setup.proxy.values[:, 0]), np.abs(expected), atol=2e-3 * np.abs(expected).max())
    assert setup.notes["explained"] > 0.999 and setup.notes["candidates"] == 3
    assert account.rows > 200 * M  # the pilot subsets are counted
    score = Informed(M).setup(model, tb.find_mode(model, progress=False), 0, False)
    ratio = setup.notes["predicted_variance_ratio"]
    assert ratio == pytest.approx(score.notes["predicted_variance_ratio"], rel=0.02)


def test_statistics_of_a_regression_predict_subsets_as_scores_do():
    model = regression()
    scores = Informed(M).setup(model, tb.find_mode(model, progress=False), 0, False).proxy.values
    right, wrong = prepared(model), prepared(model, candidates=lambda x, y: np.column_stack([x[:, 1] ** 3, y**2 - y]))
    rng = np.random.default_rng(2)
    subsets = [rng.choice(N, M, replace=False) for _ in range(300)]

    def agreement(setup):
        ours, theirs = (np.array([v[s].mean(0) for s in subsets]) for v in (setup.proxy.values, scores))
        return 1.0 - ((ours - theirs) ** 2).sum() / (theirs**2).sum()

    assert agreement(right) > 0.95 and right.notes["explained"] > 0.95
    assert agreement(wrong) < 0.7 and wrong.notes["explained"] < 0.7


def test_small_subsets_are_predicted_better_than_by_scores_alone():
    """Modes of sub-posteriors are not linear in scores; more columns than have a hundred products leave the scores."""
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(N), rng.standard_normal((N, 13))])
    wide = tb.models.gaussian(tb.Dataset.from_arrays(X, rng.standard_normal(N)), tb.priors.flat(), sigma=1.0)
    assert prepared(wide).notes["candidates"] == 14
    y = rng.random(N) < 1 / (1 + np.exp(-X[:, :2] @ [-1.0, 1.0]))
    model = tb.models.logistic(tb.Dataset.from_arrays(X[:, :2], y), tb.priors.normal(2.0))
    mode = tb.find_mode(model, progress=False)
    scores = Informed(M).setup(model, mode, 0, False).proxy.values

    def score(x, y):
        return scores[: x.shape[0]]

    alone, more = prepared(model, candidates=score), prepared(model)
    assert more.notes["candidates"] == 8 and 0.8 < alone.notes["explained"] < more.notes["explained"]


@pytest.mark.filterwarnings("ignore:the draws have up to", "ignore:the candidates explain", "ignore:the chains disagree")
def test_the_variance_of_draws_is_the_formula_only_with_good_candidates():
    expected = 1 / N + 1 / (1 / (1 / M - 1 / N) + 10.0 * N)
    scores = []
    for candidates in (None, lambda x, y: y**2):
        sampler = Informed(M, statistics="semi-automatic", candidates=candidates, repeats=6, move=tb.moves.hmc(time=1.5))
        fit = tb.sample(gaussian_mean(), sampler, draws=2000, warmup=300, chains=4, seed=2, progress=False)
        squares = (fit.theta[:, :, 0] ** 2).reshape(80, -1).mean(1)
        scores.append((squares.mean() - expected) / (squares.std(ddof=1) / np.sqrt(squares.size)))
    assert abs(scores[0]) < THRESHOLD < scores[1]


def test_candidates_that_explain_little_are_warned_of():
    setup = prepared(gaussian_mean(), candidates=lambda x, y: y**2)
    theta, stats = np.zeros((1, 5, 1)), {"refreshed": np.ones((1, 5)), "distance": np.ones((1, 5))}
    sampler = Informed(M, statistics="semi-automatic")
    assert "explain only" in sampler.diagnose(Outcome(setup, theta, stats)).warnings[0]
    assert not sampler.diagnose(Outcome(prepared(gaussian_mean()), theta, stats)).warnings


@pytest.mark.parametrize("options", [{}, {"statistics": "semi-automatic"}, {"statistics": lambda x, y: 100.0 * y}])
def test_an_adaptive_bandwidth_reaches_its_rate_and_stays(options, tmp_path):
    """Each chain has one inverse temperature in all of its draws, its own, whatever the scale of the statistics."""
    sampler = Informed(M, bandwidth="adaptive", refresh_rate=0.4, **options)
    given = {"warmup": 600, "chains": 2, "seed": 3, "progress": False}
    whole = tb.sample(gaussian_mean(), sampler, draws=1000, **given)
    found = whole.stats["inverse_temperature"]
    assert (found == found[:, :1]).all() and found[0, 0] != found[1, 0]
    assert whole.meta["notes"]["inverse_temperature"] == found[:, 0].tolist()
    assert abs(whole.stats["refreshed"].mean() - 0.4) < 0.1
    if not options:
        tb.sample(gaussian_mean(), sampler, draws=10, checkpoint=tmp_path / "run", **given)
        again = tb.resume(tmp_path / "run", gaussian_mean(), draws=1000, progress=False)
        np.testing.assert_array_equal(whole.theta, again.theta)


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")
def test_a_rate_out_of_reach_is_warned_of_and_the_temperature_stays_finite():
    """Half of the rows have the same statistics, so a quarter of all swaps change nothing and are accepted at any temperature."""
    sampler = Informed(M, statistics=lambda x, y: np.maximum(y, 0.0), bandwidth="adaptive", refresh_rate=0.05)
    with pytest.warns(tb.TallbayesWarning, match=r"not reached its refresh rate.* not 5 %"):
        fit = tb.sample(gaussian_mean(), sampler, draws=300, warmup=600, chains=1, seed=3, progress=False)
    first = sampler.setup(gaussian_mean(), tb.find_mode(gaussian_mean(), progress=False), 0, False).policy.fixed.penalty
    assert first < fit.stats["inverse_temperature"][0, 0] <= 1.0001e4 * first


def test_windows_adapt_too_and_nothing_else_changes():
    model = regression()
    sampler = Informed(M, rows="window", bandwidth="adaptive", refresh_rate=0.3)
    fit = tb.sample(model, sampler, draws=1000, warmup=600, chains=2, seed=3, progress=False)
    assert abs(fit.stats["refreshed"].mean() - 0.3) < 0.1
    assert "inverse_temperature" not in Informed(M).info


def test_options_are_stored():
    sampler = Informed(M, statistics="semi-automatic", candidates="extremes", bandwidth="adaptive", refresh_rate=0.2)
    assert from_dict(json.loads(json.dumps(sampler.as_dict()))) == sampler
    named = Informed(M, statistics="semi-automatic", candidates=regression)
    again = from_dict(json.loads(json.dumps(named.as_dict())))
    with pytest.raises(tb.ModelError, match="'regression', which cannot be stored"):
        again.candidates(np.ones((1, 1)), np.ones(1))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"candidates": "extremes"}, "belong to statistics='semi-automatic'"),
        ({"statistics": "semi-automatic", "candidates": "extreme"}, "did you mean 'extremes'"),
        ({"statistics": "semi-automatic", "candidates": 3}, "candidates of Informed must be a text, a function or None; got 3"),
        ({"bandwidth": "adaptiv"}, "did you mean 'adaptive'"),
        ({"bandwidth": "adaptive", "subset": "free"}, "is for subset='informed'"),
        ({"bandwidth": "adaptive", "inverse_temperature": 1.0}, "not both"),
        ({"bandwidth": "adaptive", "refresh_rate": 1.0}, "between 0 and 1"),
        ({"refresh_rate": 0.5}, "what bandwidth='adaptive' aims at"),
        ({"statistics": len}, "bandwidth='adaptive' finds one"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(tb.OptionError, match=message):
        Informed(**options)


def test_what_a_model_cannot_use_is_refused():
    model = gaussian_mean()
    mode = tb.find_mode(model, progress=False)
    for candidates, message in (("extremes", "apply only to a series"), (lambda x, y: x, "none of the candidates varies")):
        with pytest.raises(tb.OptionError, match=message):
            Informed(20, statistics="semi-automatic", candidates=candidates).setup(model, mode, 0, False)
    with pytest.raises(tb.OptionError, match="statistics that vary"):
        Informed(20, statistics=lambda x, y: x, bandwidth="adaptive").setup(model, mode, 0, False)
