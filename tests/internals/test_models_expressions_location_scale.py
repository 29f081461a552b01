"""Internals of `tallbayes.models.expressions.location_scale`; what users see of it is tested in test_location_scale.py."""

import mpmath
import numpy as np
import pytest
import sympy as sp

import tallbayes as tb
from tallbayes.engine.several_functions import vector_residual
from tallbayes.models.expressions.grammar import ETA, LOG_SCALE, Y, parse
from tallbayes.models.expressions.location_scale import certify_scale, is_location_scale
from tallbayes.models.expressions.special_functions import elementary
from tallbayes.models.expressions.stabilise import stabilised

STUDENT = "-log_scale - (nu + 1)/2*log(1 + ((y - eta)/exp(log_scale))**2/nu)"
LAWS = {
    "normal": ("-log_scale - (y - eta)**2*exp(-2*log_scale)/2", {}),
    "student_t": (STUDENT, {"nu": 3.0}),
    "logistic": ("-log_scale - (y - eta)/exp(log_scale) - 2*softplus(-(y - eta)/exp(log_scale))", {}),
    "gumbel": ("-log_scale - (y - eta)/exp(log_scale) - exp(-(y - eta)/exp(log_scale))", {}),
}
OTHERS = (
    "-log_scale - (y - eta)**2*exp(-log_scale)/2",
    "-log_scale**2 - ((y - eta)/exp(log_scale))**2",
    "y*eta - exp(eta) - log_scale*y**2",
    "-log_scale - (y - 2*eta)**2*exp(-2*log_scale)",
)


@pytest.fixture(scope="module", params=LAWS)
def law(request):
    text, constants = LAWS[request.param]
    original = parse(text, constants)
    values = {s: sp.Rational(constants[s.name]) for s in original.free_symbols if s.name in constants}
    plain = elementary(original).subs(values)
    thirds = [sp.lambdify((ETA, LOG_SCALE, Y), sp.diff(plain, ETA, 3 - k, LOG_SCALE, k)) for k in range(4)]
    return certify_scale(stabilised(original), original, constants), thirds


def test_suprema_are_above_a_dense_grid_and_close_to_it(law):
    certificate, thirds = law
    rng = np.random.default_rng(1)
    for low, high in np.sort(4.0 * rng.standard_normal((25, 2)), axis=1):
        tau, grid = 0.3, np.linspace(low, high, 2001)
        eta = 0.2 + grid * np.exp(tau)  # y = 0.2
        above = certificate.suprema(np.array([low]), np.array([high]))[:, 0]
        for k, third in enumerate(thirds):
            reached = np.abs(third(eta, tau, 0.2) + 0.0 * eta).max() * np.exp((3 - k) * tau)
            assert reached <= above[k] * (1.0 + 1e-9) + 1e-12
            wide = certificate.suprema(np.array([low - 0.07 * abs(low) - 0.002]), np.array([high + 0.07 * abs(high) + 0.002]))
            assert above[k] <= wide[k, 0]
    every = certificate.suprema(np.array([-6.0]), np.array([6.0]))[:, 0]
    grid = np.linspace(-6.5, 6.5, 20_001)
    for k, third in enumerate(thirds):  # not above what is reached on the cells of the table, but for 2 %
        assert every[k] <= 1.03 * np.abs(third(grid, 0.0, 0.0) + 0.0 * grid).max() + 1e-9


def test_no_line_through_the_box_exceeds_the_bound(law):
    certificate, thirds = law
    rng = np.random.default_rng(2)
    largest = 0.0
    for _ in range(300):
        eta, y, tau = rng.standard_normal(3) * [2.0, 2.0, 0.7]
        reach, scale_reach = rng.exponential(0.3, 2)
        length, scale_length = rng.exponential(1.0, 2)
        bound = certificate.third_bounds(
            np.array([eta]), np.array([y]), tau, np.array([reach]), scale_reach, np.array([length]), scale_length
        )[0]
        u, v = eta + reach * rng.uniform(-1, 1, 50), tau + scale_reach * rng.uniform(-1, 1, 50)
        s, t = length * rng.choice([-1.0, 1.0], 50), scale_length * rng.choice([-1.0, 1.0], 50)
        parts = [third(u, v, y) for third in thirds]
        along = parts[0] * s**3 + 3 * parts[1] * s**2 * t + 3 * parts[2] * s * t**2 + parts[3] * t**3
        largest = max(largest, np.abs(along).max() / bound)
    assert 0.5 < largest <= 1.0  # a bound of half the size would be violated


def test_beyond_the_table_there_is_no_bound(law):
    certificate, _ = law
    assert np.isinf(certificate.suprema(np.array([0.0]), np.array([1e11]))).all()
    assert "a law of (y - eta)/exp(log_scale)" in str(certificate)


@pytest.mark.parametrize("text", OTHERS)
def test_other_expressions_are_no_laws_of_location_and_scale(text):
    original = parse(text)
    assert not is_location_scale(original) and certify_scale(stabilised(original), original, {}) is None


def test_a_pole_at_the_centre_has_no_certificate():
    pole = parse("-log_scale - log(((y - eta)/exp(log_scale))**2)")
    assert is_location_scale(pole) and certify_scale(stabilised(pole), pole, {}) is None


def errors(n, seed=3):
    rng = np.random.default_rng(seed)
    return tb.Dataset.from_arrays(np.ones((n, 1)), 0.4 + 0.6 * rng.standard_t(4.0, n))


@pytest.fixture(scope="module")
def student():
    return tb.models.family(STUDENT, errors(2000), tb.priors.normal(3.0), constants={"nu": 4.0}, mean="eta")


def test_residuals_are_right_where_a_difference_cancels(student):
    assert student.member.window >= 2.0**-6
    base, y = np.array([0.3, -0.2]), 1.9

    def f(eta, tau):
        return -tau - mpmath.mpf(5) / 2 * mpmath.log(1 + ((mpmath.mpf(y) - eta) * mpmath.exp(-tau)) ** 2 / 4)

    with mpmath.workdps(60):
        at = [mpmath.mpf(float(v)) for v in base]
        orders = [(1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]
        g = {o: mpmath.diff(f, at, o) for o in orders}
        for shift in ([1e-5, 2e-5], [-3e-3, 1e-3], [0.02, -0.01], [0.4, 0.3]):
            a, b = (mpmath.mpf(v) for v in shift)
            taylor = f(*at) + g[1, 0] * a + g[0, 1] * b + (g[2, 0] * a * a + 2 * g[1, 1] * a * b + g[0, 2] * b * b) / 2
            exact = float(f(at[0] + a, at[1] + b) - taylor)
            assert vector_residual(student.member, base, np.array(shift), y) == pytest.approx(exact, rel=1e-9)
