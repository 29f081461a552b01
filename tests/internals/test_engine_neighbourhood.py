"""Internals of `tallbayes.engine.neighbourhood`; what users see of it is tested in test_several_indices.py."""

import importlib

import mpmath
import numpy as np
import pytest
from scipy import stats

import tallbayes as tb
from tallbayes.engine.neighbourhood import Neighbourhood, has_third_bounds, third_bounds
from tallbayes.engine.several_functions import vector_hessian
from tallbayes.families.beta import Beta
from tallbayes.families.gamma import GammaShape
from tallbayes.families.inverse_gaussian import InverseGaussian
from tallbayes.families.loglogistic import LogLogistic
from tallbayes.families.lognormal import LogNormal
from tallbayes.families.negbin import NegativeBinomialSize
from tallbayes.families.ordinal import CumulativeLogit, CumulativeProbit
from tallbayes.families.student_t import StudentFree, StudentScale
from tallbayes.families.weibull import Weibull

# Of each member: responses, and the law of one row as mpmath writes it, up to terms without parameters.


def mp_negbin(y, eta, kappa):
    k = mpmath.exp(kappa)
    return mpmath.loggamma(y + k) - mpmath.loggamma(k) + y * (eta - kappa) - (y + k) * mpmath.log1p(mpmath.exp(eta - kappa))


def mp_gamma(y, eta, a):
    k = mpmath.exp(a)
    return k * (a + mpmath.log(y) - eta - y * mpmath.exp(-eta)) - mpmath.loggamma(k)


def mp_student(nu):
    return lambda y, eta, tau: -tau - mpmath.mpf(nu + 1) / 2 * mpmath.log(1 + ((y - eta) * mpmath.exp(-tau)) ** 2 / nu)


def mp_inverse_gaussian(y, eta, ell):
    return ell / 2 - mpmath.exp(ell) * (y - mpmath.exp(eta)) ** 2 / (2 * mpmath.exp(2 * eta) * y)


def mp_failures(density, survival):
    def law(y, eta, tau):
        z = (mpmath.log(abs(y)) - eta) * mpmath.exp(-tau)
        return density(z) - tau if y > 0 else survival(z)

    return law


def mp_soft(z):
    return mpmath.log1p(mpmath.exp(z))


TIMES = (0.3, 4.0, -1.7)
LAWS = {
    "negbin": (NegativeBinomialSize(), (0.0, 1.0, 7.0, 60.0), mp_negbin),
    "gamma": (GammaShape(), (0.2, 1.0, 5.0), mp_gamma),
    "student_t": (StudentScale(4.0), (-2.0, 0.3, 9.0), mp_student(4)),
    "inverse_gaussian": (InverseGaussian(), (0.2, 1.0, 5.0), mp_inverse_gaussian),
    "weibull": (Weibull(), TIMES, mp_failures(lambda z: z - mpmath.exp(z), lambda z: -mpmath.exp(z))),
    "loglogistic": (LogLogistic(), TIMES, mp_failures(lambda z: z - 2 * mp_soft(z), lambda z: -mp_soft(z))),
    "lognormal": (LogNormal(), TIMES, mp_failures(lambda z: -z * z / 2, lambda z: mpmath.log(mpmath.ncdf(-z)))),
}
LOOSE = ("loglogistic", "lognormal")  # certificates by the triangle inequality
every_law = pytest.mark.parametrize("name", LAWS)


def neighbourhood(y, rng, radius, cuts=()):
    """One row, a random reference and a random whitening; with cut points, that they stay in order."""
    d, width = 2, 2 + max(len(cuts), 1)
    factor = np.tril(rng.standard_normal((width, width))) * rng.exponential(0.5)
    x, reference = rng.standard_normal((1, d)), 0.7 * rng.standard_normal(width)
    if len(cuts):
        reference[d:] = cuts
        factor[d:] *= 0.1
    return Neighbourhood(x, np.array([y]), 0.1 * rng.standard_normal(1), reference, factor, radius)


def largest_share(member, near, rng, count=60, step=1e-4):
    """The largest |third derivative| over its bound, along lines of unit speed within the radius."""
    with np.errstate(over="ignore", invalid="ignore"):
        bound, width, y = third_bounds(member, near)[0], near.reference.size, float(near.y[0])
    if not bound < 1e12:  # nothing to check by differences
        return 0.0
    d, worst = near.x.shape[1], 0.0
    jacobian = np.vstack([near.x[0] @ near.factor[:d], near.factor[d:]])
    start = np.concatenate([near.eta, near.reference[d:]])
    gradient, hessian = np.empty(start.size), np.empty((start.size, start.size))
    for k in range(count):
        w, v = rng.standard_normal((2, width))
        w *= near.radius * (1.0 if k % 2 else rng.random()) / np.linalg.norm(w)
        v = jacobian @ (v / np.linalg.norm(v)) if k % 3 else jacobian @ (w / max(np.linalg.norm(w), 1e-300))
        ends = []
        for sign in (1.0, -1.0):
            vector_hessian(member, start + jacobian @ w + sign * step * v, y, gradient, hessian)
            ends.append(v @ hessian @ v)
        noise = 1e-9 * (1.0 + abs(ends[0])) / step
        worst = max(worst, (abs(ends[0] - ends[1]) / (2 * step) - noise) / bound)
    return worst


def shares(name, count=150):
    member, responses, _ = LAWS[name]
    rng = np.random.default_rng(4)
    return [largest_share(member, neighbourhood(y, rng, rng.exponential(0.7)), rng) for y in responses for _ in range(count)]


@every_law
def test_no_line_exceeds_the_certificate(name):
    assert (0.1 if name in LOOSE else 0.3) < max(shares(name)) <= 1.0  # a bound of a third of the size would be violated


@pytest.mark.parametrize("fixed", [0, 1])
def test_ordered_classes_are_under_their_certificate(fixed):
    rng, member, cuts = np.random.default_rng(5), CumulativeLogit(4, fixed), np.array([-0.9, 0.4, 1.3])
    cuts = (cuts - cuts[0])[1:] if fixed else cuts
    found = [
        largest_share(member, neighbourhood(float(k), rng, rng.exponential(0.3), cuts), rng)
        for k in range(4)
        for _ in range(100)
    ]
    assert 0.3 < max(found) <= 1.0
    far = neighbourhood(1.0, rng, 1e3, cuts)
    with np.errstate(over="ignore"):
        assert np.isinf(third_bounds(member, far)).all()  # cut points may cross


@pytest.mark.parametrize("name", ["negbin", "gamma", "student_t", "inverse_gaussian", "weibull"])
def test_a_certificate_that_lacks_a_mixed_term_is_found(name, monkeypatch):
    module = importlib.import_module("tallbayes.engine.failure_times" if name == "weibull" else f"tallbayes.families.{name}")
    whole = module.cubic_form
    monkeypatch.setattr(module, "cubic_form", lambda s, t, sss, sst, stt, ttt: whole(s, t, sss, 0.0, stt, 0.0))
    assert max(shares(name, 60)) > 1.0


def test_unknown_degrees_of_freedom_have_no_certificate():
    assert not any(has_third_bounds(member) for member in (StudentFree(), CumulativeProbit(3, 0), Beta()))
    data = tb.Dataset.from_arrays(np.ones((30, 1)), np.random.default_rng(1).standard_t(4, 30))
    model = tb.models.student_t(data)
    with pytest.raises(tb.ModelError, match=r"no certified bound for this student_t model; .*'nuts' or 'hmc-ecs'"):
        tb.samplers.ExactMinibatch().setup(model, tb.find_mode(model, progress=False), 0, False)
    with pytest.raises(tb.OptionError, match="the scale is learned too"):
        tb.models.student_t(data, scale=1.0)


def design(n, seed=1):
    rng = np.random.default_rng(seed)
    return rng, np.column_stack([np.ones(n), rng.standard_normal((n, 2))])


def rows_of(name, n, seed=1):
    rng, X = design(n, seed)
    eta = X @ [0.6, 0.4, -0.3]
    if name == "negbin":
        y = rng.poisson(np.exp(eta) * rng.standard_gamma(2.5, n) / 2.5)
    elif name == "gamma":
        y = np.exp(eta) * rng.standard_gamma(3.0, n) / 3.0
    elif name == "inverse_gaussian":
        y = rng.wald(np.exp(eta), 3.0)
    elif name in FAILURES:
        times, limit = np.exp(eta + 0.6 * np.log(rng.standard_exponential(n))), rng.exponential(6.0, n)
        y = tb.data.censored(np.minimum(times, limit), times <= limit)
    elif name == "ordinal":
        y = (X[:, 1] + rng.logistic(size=n) > 0.3).astype(float)
    else:
        y = eta + 0.7 * rng.standard_t(4.0, n)
    return X, y.astype(float)


FAILURES = {
    "weibull": lambda sigma, eta: stats.weibull_min(1 / sigma, scale=np.exp(eta)),
    "loglogistic": lambda sigma, eta: stats.fisk(1 / sigma, scale=np.exp(eta)),
    "lognormal": lambda sigma, eta: stats.lognorm(sigma, scale=np.exp(eta)),
}

SMALL = {
    "negbin": lambda data: tb.models.negbin(data, {"default": tb.priors.normal(2.0), "size": tb.priors.gamma(2.0, 1.0)}),
    "gamma": lambda data: tb.models.gamma(data, tb.priors.normal(2.0)),
    "student_t": lambda data: tb.models.student_t(data, tb.priors.normal(2.0), nu=4.0),
    "inverse_gaussian": lambda data: tb.models.inverse_gaussian(data, tb.priors.normal(2.0)),
    "weibull": lambda data: tb.models.weibull(data, tb.priors.normal(2.0)),
    "loglogistic": lambda data: tb.models.loglogistic(data, tb.priors.normal(2.0)),
    "lognormal": lambda data: tb.models.lognormal(data, tb.priors.normal(2.0)),
    "ordinal": lambda data: tb.models.ordinal(data, tb.priors.normal(2.0)),
}


@pytest.mark.slow
def test_a_certificate_that_is_too_small_is_a_hard_error(monkeypatch):
    import tallbayes.bounds.interval as interval

    X, y = rows_of("gamma", 2000)
    model = SMALL["gamma"](tb.Dataset.from_arrays(X[:, :1], y))
    whole = interval.third_bounds
    monkeypatch.setattr(interval, "third_bounds", lambda member, near: 0.02 * whole(member, near))
    with pytest.raises(tb.errors.CertificateError):
        tb.sample(model, "exact-minibatch", draws=5000, chains=1, seed=1, progress=False)
