"""Internals of `tallbayes.engine.several_functions`."""

import mpmath
import numpy as np
import pytest

from tallbayes.engine.several_functions import vector_hessian, vector_residual, vector_value
from tallbayes.families.gamma import GammaShape
from tallbayes.families.gaussian import PredictedScale
from tallbayes.families.hurdle_negbin import HurdleNegbin
from tallbayes.families.hurdle_poisson import HurdlePoisson
from tallbayes.families.inverse_gaussian import InverseGaussian
from tallbayes.families.loglogistic import LogLogistic
from tallbayes.families.lognormal import LogNormal
from tallbayes.families.negbin import NegativeBinomialSize
from tallbayes.families.ordinal import CumulativeLogit
from tallbayes.families.student_t import PredictedStudent, StudentScale
from tallbayes.families.weibull import Weibull
from tallbayes.families.zero_inflated_negbin import ZeroInflatedNegbin
from tallbayes.families.zero_inflated_poisson import ZeroInflatedPoisson

COUNTS = {
    "zero_inflated_poisson": ZeroInflatedPoisson(1),
    "zero_inflated_negbin": ZeroInflatedNegbin(1),
    "hurdle_poisson": HurdlePoisson(1),
    "hurdle_negbin": HurdleNegbin(1),
}
CERTIFIED = {
    **{name: (member, (0.0, 1.0, 7.0)) for name, member in COUNTS.items()},
    "gaussian": (PredictedScale(1), (-2.0, 0.3, 6.0)),
    "student_t": (PredictedStudent(4.0, 1), (-2.0, 0.3, 6.0)),
}


@pytest.mark.parametrize("name", ["gaussian", "student_t"])
def test_residuals_of_predicted_scales_are_those_of_the_definition(name):
    member, _ = CERTIFIED[name]
    base, shift, y = np.array([0.3, -0.4]), np.array([0.2, -0.3]), 1.1
    gradient, hessian = np.empty(2), np.empty((2, 2))
    f = vector_hessian(member, base, y, gradient, hessian)
    expected = vector_value(member, base + shift, y) - f - gradient @ shift - 0.5 * shift @ hessian @ shift
    assert vector_residual(member, base, shift, y) == pytest.approx(expected, rel=1e-10)


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
BY_DIFFERENCE = ("weibull", "loglogistic", "lognormal")  # residuals as differences, right to rounding
every_law = pytest.mark.parametrize("name", LAWS)


@every_law
def test_the_value_is_the_law(name):
    member, responses, law = LAWS[name]
    for y in responses:
        gaps = [
            vector_value(member, np.array(u), y) - float(law(mpmath.mpf(y), *map(mpmath.mpf, u)))
            for u in ((0.3, -0.7), (1.1, 1.6), (-0.4, 0.2))
        ]
        assert np.ptp(gaps) < 1e-12 * (1 + abs(gaps[0]))


@every_law
def test_residuals_keep_their_digits(name):
    member, responses, law = LAWS[name]
    with mpmath.workdps(60):
        for y in responses:
            for base in ((0.4, -0.3), (-1.2, 1.5)):
                at = [mpmath.mpf(v) for v in base]
                f = lambda *u, y=y: law(mpmath.mpf(y), *u)  # noqa: E731
                g = {o: mpmath.diff(f, at, o) for o in ((1, 0), (0, 1), (2, 0), (1, 1), (0, 2))}
                for shift in ([1e-5, 2e-5], [-3e-3, 1e-3], [0.0, 1e-4], [0.02, -0.01], [0.4, 0.3], [-1.5, 1.2], [0.2, -0.9]):
                    a, b = (mpmath.mpf(v) for v in shift)
                    taylor = f(*at) + g[1, 0] * a + g[0, 1] * b + (g[2, 0] * a * a + 2 * g[1, 1] * a * b + g[0, 2] * b * b) / 2
                    exact = float(f(at[0] + a, at[1] + b) - taylor)
                    found = vector_residual(member, np.array(base), np.array(shift), y)
                    size = max(map(abs, shift)) ** 3
                    rounding = 1e-14 if name in BY_DIFFERENCE else 1e-10 * size
                    assert found == pytest.approx(exact, rel=1e-8, abs=rounding)


@pytest.mark.parametrize("fixed", [0, 1])
def test_residuals_of_ordered_classes(fixed):
    member, base = CumulativeLogit(4, fixed), np.array([0.3, -0.8, 0.5, 1.4])[: 4 - fixed]
    base = base if not fixed else np.array([0.3, 0.6, 1.4])
    rng = np.random.default_rng(6)

    def law(u, k):
        cuts = [mpmath.mpf(0)] * fixed + list(u[1:])
        ends = [mpmath.mpf(0), *(1 / (1 + mpmath.exp(u[0] - c)) for c in cuts), mpmath.mpf(1)]
        return mpmath.log(ends[k + 1] - ends[k])

    with mpmath.workdps(60):
        for k in range(4):
            gradient, hessian = np.empty(base.size), np.empty((base.size, base.size))
            assert vector_hessian(member, base, float(k), gradient, hessian) == pytest.approx(
                float(law(list(map(mpmath.mpf, base)), k)), rel=1e-13
            )
            for size in (1e-5, 1e-2, 0.2):
                shift = size * rng.standard_normal(base.size)

                def line(t, k=k, shift=shift):
                    return law([mpmath.mpf(b) + t * mpmath.mpf(s) for b, s in zip(base, shift, strict=True)], k)

                series = mpmath.taylor(line, 0, 2)
                exact = float(line(mpmath.mpf(1)) - sum(series))
                assert vector_residual(member, base, shift, float(k)) == pytest.approx(exact, rel=1e-7, abs=1e-10 * size**3)
