"""Certificates of laws of location and scale: brute force, precision of residuals, and exact minibatch on them."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.samplers import ExactMinibatch
from tallbayes.testing import THRESHOLD, effective_sizes, exact_posterior

STUDENT = "-log_scale - (nu + 1)/2*log(1 + ((y - eta)/exp(log_scale))**2/nu)"
OTHERS = (
    "-log_scale - (y - eta)**2*exp(-log_scale)/2",
    "-log_scale**2 - ((y - eta)/exp(log_scale))**2",
    "y*eta - exp(eta) - log_scale*y**2",
    "-log_scale - (y - 2*eta)**2*exp(-2*log_scale)",
)


def errors(n, seed=3):
    rng = np.random.default_rng(seed)
    return tb.Dataset.from_arrays(np.ones((n, 1)), 0.4 + 0.6 * rng.standard_t(4.0, n))


@pytest.fixture(scope="module")
def student():
    return tb.models.family(STUDENT, errors(2000), tb.priors.normal(3.0), constants={"nu": 4.0}, mean="eta")


@pytest.mark.parametrize("sampler", ["exact-minibatch", pytest.param("zigzag", marks=pytest.mark.slow)])
def test_exact_samplers_on_a_law_of_unknown_scale(student, sampler):
    posterior = exact_posterior(student)
    fit = tb.sample(student, sampler, draws=4000, warmup=300, chains=2, seed=2, progress=False)
    assert "T10" in fit.why and fit.guarantee.kind == "EXACT" and fit.evals.mean() < 400
    for power in (1, 2):
        centred = (fit.theta - posterior.mean) ** power
        wanted = np.zeros(2) if power == 1 else np.diag(posterior.covariance)
        z = (centred.mean((0, 1)) - wanted) / (centred.std((0, 1)) / np.sqrt(effective_sizes(centred)))
        assert np.abs(z).max() < THRESHOLD
    assert fit.audit(student, pairs=3, repeats=50).passed


def test_a_table_that_is_too_small_is_a_hard_error(student):
    wrong = type(student.family.certificate)(student.family.certificate.edges, 0.02 * student.family.certificate.table)
    family = type(student.family)(**{**student.family.__dict__, "certificate": wrong})
    model = tb.models.Model(student.data, family, student.member, tb.priors.normal(3.0), nuisances=("log_scale",))
    with pytest.raises(tb.errors.CertificateError):
        tb.sample(model, "exact-minibatch", draws=5000, chains=1, seed=1, progress=False)


@pytest.mark.filterwarnings("ignore:e.expression sums to", "ignore:the expression is no")
def test_other_models_of_two_indices_and_other_bounds_are_refused(student):
    model = tb.models.family(OTHERS[0], errors(60), tb.priors.normal(2.0))
    with pytest.raises(tb.ModelError, match=r"no certified bound for this expression model.*nuts"):
        ExactMinibatch().setup(model, tb.find_mode(model, progress=False), 0, False)
    with pytest.raises(tb.ModelError, match=r"no certified bound for this expression model.*nuts"):
        ExactMinibatch(bound="T6").setup(student, tb.find_mode(student, progress=False), 0, False)
