"""Priors: densities against SciPy, derivatives against finite differences, draws against distribution functions."""

import numpy as np
import pytest
from scipy import stats

from tallbayes import priors
from tallbayes.data import Dataset
from tallbayes.errors import OptionError
from tallbayes.models import gaussian

SCALES, LOCATIONS = np.array([0.5, 2.0, 1.0, 3.0]), np.array([0.3, -1.0, 0.0, 2.0])

PRIORS = {
    "flat": priors.flat(),
    "normal": priors.normal(2.0),
    "normal-each": priors.normal(SCALES, LOCATIONS),
    "laplace": priors.laplace(0.7),
    "laplace-each": priors.laplace(SCALES, LOCATIONS),
    "cauchy": priors.cauchy(1.5, 0.2),
    "student": priors.student_t(df=3.0, scale=1.2),
    "student-each": priors.student_t(np.array([1.0, 4.0, 7.0, 30.0]), SCALES, LOCATIONS),
    "weak": priors.weakly_informative(),
}

DISTRIBUTIONS = {
    "normal": stats.norm(0.0, 2.0),
    "normal-each": stats.norm(LOCATIONS, SCALES),
    "laplace": stats.laplace(0.0, 0.7),
    "laplace-each": stats.laplace(LOCATIONS, SCALES),
    "cauchy": stats.cauchy(0.2, 1.5),
    "student": stats.t(3.0, 0.0, 1.2),
    "student-each": stats.t(np.array([1.0, 4.0, 7.0, 30.0]), LOCATIONS, SCALES),
}


def columns(intercept=True):
    """A column of ones (unless told otherwise), one with two values, one shifted, one ordinary."""
    rng = np.random.default_rng(1)
    first = np.ones(500) if intercept else rng.normal(2.0, 1.0, 500)
    X = np.column_stack([first, rng.choice([2.0, 5.0], 500), rng.normal(30.0, 4.0, 500), rng.normal(size=500)])
    return X, rng.normal(7.0, 3.0, 500)


def dataset(intercept=True):
    return Dataset.from_arrays(*columns(intercept))


def terms_of(name, intercept=True, response_scale=False):
    return PRIORS[name].terms(dataset(intercept), 1, 0, response_scale)


def standardised(theta, response_scale):
    """Coordinates in which the weakly informative prior is independent Cauchy, and their scales."""
    X, y = columns()
    unit = 2.0 * y.std() if response_scale else 1.0
    spread = np.array([1.0, 3.0, 2.0 * X[:, 2].std(), 2.0 * X[:, 3].std()])
    coordinates = theta * spread / unit
    centre = theta @ X.mean(0)
    coordinates[..., 0] = (centre - (y.mean() if response_scale else 0.0)) / unit
    return coordinates, np.array([10.0, 2.5, 2.5, 2.5])


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_draws_follow_the_density(name):
    terms, rng = terms_of(name), np.random.default_rng(3)
    draws = np.array([PRIORS[name].sample(terms, rng) for _ in range(4000)])
    uniform = DISTRIBUTIONS[name].cdf(draws)
    for j in range(4):
        assert stats.kstest(uniform[:, j], "uniform").pvalue > 1e-6
    assert np.abs(np.corrcoef(uniform.T) - np.eye(4)).max() < 4.9 / np.sqrt(4000)


@pytest.mark.parametrize("response_scale", [False, True])
def test_draws_of_the_default_prior_are_cauchy_in_standardised_columns(response_scale):
    terms, rng = terms_of("weak", response_scale=response_scale), np.random.default_rng(4)
    draws = np.array([PRIORS["weak"].sample(terms, rng) for _ in range(4000)])
    coordinates, scales = standardised(draws, response_scale)
    for j in range(4):
        assert stats.kstest(coordinates[:, j], stats.cauchy(0.0, scales[j]).cdf).pvalue > 1e-6


def test_improper_priors_cannot_be_drawn_from():
    rng = np.random.default_rng(5)
    unknown_sigma = gaussian(dataset(), priors.normal(1.0))
    for prior, terms in ((priors.flat(), terms_of("flat")), (unknown_sigma.prior, unknown_sigma.prior_terms)):
        with pytest.raises(OptionError, match=r"needs a proper prior.*Use init='laplace'"):
            prior.sample(terms, rng)
    assert [prior.proper for prior in PRIORS.values()] == [name != "flat" for name in PRIORS]


@pytest.mark.parametrize(
    "prior, message",
    [
        (priors.normal(0.0), "scale must be finite and positive"),
        (priors.normal(-1.0), "scale must be finite and positive"),
        (priors.laplace(np.inf), "scale must be finite and positive"),
        (priors.cauchy(np.nan), "scale must be finite and positive"),
        (priors.normal([1.0, 2.0, 0.0, 1.0]), "scale must be finite and positive"),
        (priors.student_t(df=0.0), "df must be finite and positive"),
        (priors.student_t(df=-2.0), "df must be finite and positive"),
        (priors.normal(location=np.nan), "location must be finite;"),
        (priors.normal([1.0, 2.0]), r"scale must be one number or 4, one for each coefficient; got shape \(2,\)"),
        (priors.normal(location=np.zeros(5)), r"location must be one number or 4.*\(5,\)"),
        (priors.student_t(df=np.ones((4, 1))), r"df must be one number or 4.*\(4, 1\)"),
    ],
)
def test_impossible_priors_are_refused(prior, message):
    with pytest.raises(OptionError, match=f"the prior's {message}"):
        prior.terms(dataset(), 1, 0, False)
