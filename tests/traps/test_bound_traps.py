"""Bounds that users give without proof: an exact sampler with a wrong one is wrong, and no row that it reads may show it."""

import jax
import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.errors import CertificateError
from tallbayes.testing import exact_posterior

X, Y = logistic_arrays(12, (-1.0, 1.5), seed=4)
PRIOR = tb.priors.normal(2.0)


def logistic(theta, row):
    eta = row["x"] @ theta
    return row["y"] * eta - jax.nn.softplus(eta)


def third(row, radius):
    return (row["x"] @ row["x"]) ** 1.5 / (6.0 * jax.numpy.sqrt(3.0))


def zero(row, radius):
    return 0.0 * third(row, radius)


def model_of(bound, data=None, **options):
    data = tb.Dataset.from_arrays(X, Y) if data is None else data
    return tb.models.from_jax(logistic, data, PRIOR, dim=2, third_derivative_bound=bound, **options)


def run(model, draws=400, **options):
    return tb.sample(model, "exact-minibatch", draws=draws, warmup=50, chains=2, seed=1, progress=False, **options)


def test_a_bound_of_zero_is_refused():
    with pytest.raises(
        CertificateError, match=r"row \d+: a third derivative of .* exceeds third_derivative_bound, 0 within.*'nuts'"
    ):
        run(model_of(zero))


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")
def test_the_audit_finds_a_bound_of_zero_that_was_not_checked():
    """Twelve rows: the posterior is skewed, its moments are those of quadrature, and no row is ever read."""
    truth = exact_posterior(tb.models.logistic(tb.Dataset.from_arrays(X, Y), PRIOR), 201)
    wrong = model_of(zero, check_bound=False)
    fit = run(wrong)
    sd = np.sqrt(np.diag(truth.covariance))
    assert (np.abs(fit.theta.mean((0, 1)) - truth.mean) / sd).max() > 0.2 and fit.stats["rows"].sum() == 0
    audit = fit.audit(wrong, pairs=2, repeats=50)
    assert not audit.passed and "a residual exceeds its bound" in audit.problems[0]


def test_a_right_bound_passes_both():
    model = model_of(third)
    fit = run(model, draws=100)
    assert fit.audit(model, pairs=2, repeats=50).passed


def test_three_rows_of_thousands_with_a_wrong_bound_are_found():
    """Random rows would miss them: 1,000 of 20,000 hold one of the three with a probability of 14 %."""
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(20_000), rng.standard_normal(20_000)])
    x[[17, 9_000, 19_999], 1] = 6.0
    data = tb.Dataset.from_arrays(x, (rng.random(20_000) < 0.3).astype(float))

    def careless(row, radius):
        return jax.numpy.where(row["x"][1] > 5.5, 0.01, third(row, radius))

    with pytest.raises(CertificateError, match=r"row (17|9000|19999): a third derivative"):
        run(model_of(careless, data))
