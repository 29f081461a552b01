"""The entropic barycentre of sub-posteriors against the closed forms of normal laws."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.spatial.distance import cdist
from scipy.stats import norm

import tallbayes as tb
from tallbayes.shards import Convention, Entropic, SubPosteriors

POINTS = 200
STANDARD = norm.ppf((np.arange(POINTS) + 0.5) / POINTS)


def normal_shards(sds, means):
    """Shards of one coordinate whose draws are the quantiles of normal laws: nothing is random."""
    return SubPosteriors((np.outer(sds, STANDARD) + np.array(means)[:, None])[:, :, None], Convention.AVERAGE)


def closed_form(sub, weights, regularisation, debiased):
    """The sd that solves the equation of the barycentre of normal laws, with cost in units of the mean variance."""
    scale = np.sqrt(sub.covariances.mean())
    sds, s = np.sqrt(sub.covariances.ravel()) / scale, regularisation  # eps / 2 = d x regularisation

    def gap(a):
        own = np.sqrt(4 * a**4 + s**2) if debiased else 2 * a**2 + s
        return weights @ np.sqrt(4 * a**2 * sds**2 + s**2) - own

    return scale * brentq(gap, 0.05, 5.0)


def deviation(made):
    return made.theta.std(ddof=1)


@pytest.mark.parametrize("debiased", [True, False])
@pytest.mark.parametrize("regularisation", [0.02, 0.1, 0.3])
def test_barycentres_of_normal_laws_have_their_closed_form(regularisation, debiased):
    sub = normal_shards([0.5, 1.0, 2.0], [0.0, 30.0, -9.0])
    made = Entropic(regularisation, debiased)(sub)
    exact = closed_form(sub, np.full(3, 1 / 3), regularisation, debiased)
    assert made.theta.mean() == pytest.approx(7.0, abs=1e-9)
    assert deviation(made) == pytest.approx(exact, rel=0.004)
    other = closed_form(sub, np.full(3, 1 / 3), 2 * regularisation, debiased)  # the closed form tells eps from 2 eps
    assert debiased or abs(other / exact - 1.0) > 0.008


def test_the_debiased_barycentre_averages_standard_deviations_and_the_plain_one_is_too_narrow():
    sub = normal_shards([0.5, 1.0, 2.0], [0.0, 0.0, 0.0])
    mean = np.sqrt(sub.covariances.ravel()).mean()
    assert deviation(Entropic()(sub)) == pytest.approx(mean, rel=0.004)
    assert deviation(Entropic(debiased=False)(sub)) < 0.98 * mean


def test_weights_weigh_the_shards():
    sub, weights = normal_shards([0.5, 2.0], [0.0, 10.0]), np.array([0.8, 0.2])
    made = Entropic(weights=(4.0, 1.0))(sub)
    assert made.theta.mean() == pytest.approx(2.0, abs=1e-9)
    assert deviation(made) == pytest.approx(closed_form(sub, weights, 0.05, True), rel=0.004)
    assert abs(deviation(made) / deviation(Entropic()(sub)) - 1.0) > 0.2
    np.testing.assert_allclose(made.shares, weights)


def test_identical_shards_give_their_law_back():
    """Point by point, whatever its shape; the plain barycentre contracts it."""
    rng = np.random.default_rng(1)
    shard = np.column_stack([rng.gamma(1.0, size=POINTS), rng.choice([-3.0, 3.0], POINTS) + rng.standard_normal(POINTS)])
    sub = SubPosteriors(np.repeat(shard[None], 3, axis=0), Convention.AVERAGE)
    back, plain = Entropic()(sub).theta, Entropic(debiased=False)(sub).theta
    spread = shard.std(0)
    gaps = cdist(back / spread, shard / spread)
    assert gaps.min(0).max() < 0.02 and gaps.min(1).max() < 0.02
    assert (plain.std(0) < 0.97 * spread).all()


def test_a_blur_of_equal_normal_laws_is_half_of_eps():
    """N(0, 1) becomes N(0, 1 - eps / 2)."""
    made = Entropic(0.2, debiased=False)(normal_shards([1.0, 1.0], [0.0, 0.0]))
    assert made.theta.var(ddof=1) / STANDARD.var(ddof=1) == pytest.approx(1.0 - made.notes["blur"], abs=0.01)
    assert made.notes["blur"] == pytest.approx(0.2)


def test_scales_and_places_do_not_matter():
    """The cost is in whitened coordinates: an affine map of the draws is one of the barycentre."""
    rng = np.random.default_rng(2)
    draws = rng.standard_normal((3, 150, 2)) * np.array([0.6, 1.0, 1.4])[:, None, None] + rng.standard_normal((3, 1, 2))
    matrix, shift = np.array([[1e4, 0.0], [3.0, 1e-3]]), np.array([1e5, -7.0])
    made = Entropic()(SubPosteriors(draws, Convention.AVERAGE)).theta
    moved = Entropic()(SubPosteriors(draws @ matrix.T + shift, Convention.AVERAGE)).theta
    np.testing.assert_allclose(moved, made @ matrix.T + shift, rtol=1e-6, atol=1e-6)


def test_too_few_support_points_are_reported():
    rng = np.random.default_rng(3)
    made = Entropic(support=30)(SubPosteriors(rng.standard_normal((6, 60, 8)), Convention.AVERAGE))
    assert made.notes["spread"] < 0.9 and any("too few for 8 parameters" in w for w in made.warnings)
    assert made.effective == 30
    assert not Entropic()(normal_shards([1.0, 1.2], [0.0, 1.0])).warnings


def test_a_barycentre_that_has_not_converged_is_reported():
    """A regularisation far below the distance of neighbours."""
    rng = np.random.default_rng(4)
    made = Entropic(1e-6, support=20)(SubPosteriors(rng.standard_normal((2, 20, 1)) ** 3, Convention.AVERAGE))
    assert np.isfinite(made.theta).all() and made.notes["marginal_error"] > 0.1
    assert any("has not converged" in w for w in made.warnings)


@pytest.mark.parametrize(
    "options",
    [
        {"regularisation": 0.0},
        {"regularisation": 1.0},
        {"debiased": "yes"},
        {"support": 1},
        {"weights": (1.0, 0.0)},
        {"weights": (1.0, np.nan)},
        {"weights": ()},
    ],
)
def test_options_are_checked(options):
    with pytest.raises(tb.OptionError, match=next(iter(options))):
        Entropic(**options)


def test_weights_are_one_for_each_shard():
    with pytest.raises(tb.OptionError, match="each of the 2 shards; got 3"):
        Entropic(weights=(1.0, 1.0, 1.0))(normal_shards([1.0, 1.0], [0.0, 0.0]))
