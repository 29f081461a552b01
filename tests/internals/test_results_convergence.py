"""What draws tell of convergence: silent for chains that have converged, whatever their length, and not for others."""

from dataclasses import replace

import numpy as np
import pytest
from arviz_stats.base import array_stats

import tallbayes as tb
from tallbayes import Fit
from tallbayes.results.convergence import doubts, longest_stay, measure, r_hat_limits, sentences
from tallbayes.results.cost import r_hats
from tallbayes.samplers import Guarantee
from tallbayes.testing import effective_sizes


def fit_of(theta, thin=1, name="mh", **stats):
    """A fit with these draws and nothing else."""
    dim = theta.shape[2]
    return Fit(
        theta=theta,
        stats=stats,
        names=tuple(f"x{k}" for k in range(dim)),
        guarantee=Guarantee("EXACT", ""),
        why="",
        status="complete",
        setup={},
        warmup={},
        seconds={},
        laplace_mean=np.zeros(dim),
        laplace_factor=np.eye(dim),
        meta={"thin": thin, "sampler_name": name, "warnings": []},
    )


def autoregressive(rng, chains, draws, dim, inefficiency):
    rho = (inefficiency - 1.0) / (inefficiency + 1.0)
    theta = np.empty((chains, draws, dim))
    theta[:, 0] = rng.standard_normal((chains, dim))
    noise = np.sqrt(1.0 - rho**2) * rng.standard_normal((chains, draws, dim))
    for k in range(1, draws):
        theta[:, k] = rho * theta[:, k - 1] + noise[:, k]
    return theta


@pytest.mark.parametrize(
    "chains, draws, inefficiency",
    [
        *((1, 20, 1.0), (1, 20, 5.0), (1, 200, 1.0), (1, 200, 5.0), (1, 900, 5.0), (1, 900, 15.0), (2, 40, 1.0), (2, 40, 5.0)),
        *((2, 150, 1.0), (2, 150, 5.0), (4, 60, 5.0), (4, 400, 1.0), (4, 400, 15.0), (4, 900, 15.0)),
    ],
)
def test_short_runs_of_chains_that_have_converged_are_silent(chains, draws, inefficiency):
    rng = np.random.default_rng(draws)
    told = [bool(doubts(fit_of(autoregressive(rng, chains, draws, 3, inefficiency)))) for _ in range(25)]
    few = 300 <= chains * draws < 100 * inefficiency  # so few effective draws are estimated at less than 20 now and then
    assert sum(told) <= (3 if few else 1)


def test_long_runs_are_compared_with_the_numbers_of_the_literature():
    rng = np.random.default_rng(0)
    for k in range(10):
        assert doubts(fit_of(autoregressive(rng, 4, 1000, 3, 2.0))) == []
        theta = autoregressive(rng, 4, 1000, 1, 2.0) + 0.3 * np.array([-1.0, -1.0, 1.0, 1.0])[:, None, None]
        (sentence,) = doubts(fit_of(theta))
        assert 1.01 < r_hats(theta)[0] < 1.2 and sentence.startswith("the chains disagree about 'x0' (R-hat 1.0"), k
    slow = fit_of(autoregressive(rng, 4, 40_000, 1, 500.0))
    assert slow.ess[0] < 400 and len(doubts(slow)) == 1


@pytest.mark.parametrize("chains, draws", [(2, 60), (2, 399), (4, 100)])
def test_short_chains_of_different_laws_are_told_apart(chains, draws):
    for seed in range(10):
        theta = np.random.default_rng(seed).standard_normal((chains, draws, 2))
        theta[0, :, 1] += 20.0
        (sentence,) = doubts(fit_of(theta))
        assert (
            sentence.startswith("the chains disagree about 'x1' (R-hat ") and "use another sampler such as 'nuts'" in sentence
        )


def test_one_chain_is_judged_by_its_parts():
    theta = np.random.default_rng(1).standard_normal((1, 1000, 2))
    assert doubts(fit_of(theta)) == [] and np.isfinite(r_hats(theta)).all()
    drifting = theta + np.linspace(0.0, 4.0, 1000)[None, :, None] * np.array([0.0, 1.0])
    assert doubts(fit_of(drifting))[0].startswith("the parts of the chain disagree about 'x1'")
    halves = np.stack([theta[0, :500], theta[0, 500:]])
    np.testing.assert_array_equal(r_hats(theta), array_stats.rhat(halves, chain_axis=0, draw_axis=1))


@pytest.mark.parametrize("chains, draws", [(1, 100), (1, 399), (4, 399)])
def test_chains_that_hardly_move_have_few_effective_draws(chains, draws):
    walk = np.random.default_rng(2).standard_normal((chains, draws, 1)).cumsum(1) * 1e-3
    assert len(doubts(fit_of(walk))) == 1


def test_stays_and_coordinates_that_never_move():
    rng = np.random.default_rng(3)
    theta = rng.standard_normal((2, 300, 2))
    assert doubts(fit_of(theta)) == [] and measure(fit_of(theta)).longest_stay == 1
    theta[1, 100:200] = theta[1, 100]
    assert longest_stay(theta) == 100
    assert doubts(fit_of(theta))[0].startswith("a chain stayed at one point for 100 of 300 iterations")
    assert measure(fit_of(theta, thin=5)).longest_stay == 500
    theta[0, :, 1] = 4.0
    assert doubts(fit_of(theta))[0].startswith("'x1' never moved in at least one chain of 300 draws")
    stuck = np.broadcast_to(theta[:, :1], theta.shape).copy()
    assert len(doubts(fit_of(stuck))) >= 1 and (effective_sizes(stuck) == 0.0).all()
    assert doubts(fit_of(stuck[:, :3])) == []  # a rejection or two


def test_divergences_above_one_in_a_thousand():
    theta, diverging = np.random.default_rng(4).standard_normal((4, 500, 2)), np.zeros((4, 500))
    diverging[0, :2] = 1.0
    assert doubts(fit_of(theta, diverging=diverging)) == []
    diverging[1, 7] = 1.0
    assert doubts(fit_of(theta, name="nuts", diverging=diverging))[0].startswith("3 of 2,000 iterations diverged")


def test_what_is_kept_is_said_once():
    theta = np.random.default_rng(5).standard_normal((2, 400, 1)) + np.array([0.0, 9.0])[:, None, None]
    fit = fit_of(theta)
    kept = replace(fit, meta={**fit.meta, "warnings": ["first.", *doubts(fit)]})
    assert sentences(kept) == ["first.", *doubts(fit)]
    assert sentences(fit) == doubts(fit) and len(doubts(fit)) == 1
    own = doubts(replace(fit, meta={**fit.meta, "sampler_name": "nuts"}))[0]
    assert "'nuts'" not in own and "other parameters" in own


def test_limits_of_short_chains_shrink_with_their_length():
    theta = np.random.default_rng(6).standard_normal((2, 1999, 1))
    limits = [r_hat_limits(theta[:, :n], np.array([1.5]))[0] for n in (30, 40, 100, 400, 1999)]
    assert limits[0] == np.inf and limits == sorted(limits, reverse=True) and limits[-1] < 1.05
    assert r_hat_limits(np.concatenate([theta, theta]), np.array([1.5]))[0] == 1.01


def sample(model, sampler, **options):
    return tb.sample(model, sampler, **{"draws": 30, "warmup": 20, "chains": 2, "seed": 5, "progress": False, **options})


def broken(*arguments):
    raise ZeroDivisionError("a check of ours")


def test_a_failure_of_r_hat_keeps_the_draws(small, monkeypatch):
    expected = sample(small.model, "mh")
    monkeypatch.setattr("tallbayes.results.convergence.doubts", broken)
    with pytest.warns(tb.TallbayesWarning, match=r"convergence could not be judged \(ZeroDivisionError: a check of ours\)"):
        fit = sample(small.model, "mh")
    np.testing.assert_array_equal(fit.theta, expected.theta)
    assert "convergence could not be judged" in fit.meta["warnings"][0]
