"""Internals of `tallbayes.proxies.lower_bounds`; what users see of it is tested in test_lower_bounds.py."""

import math

import numpy as np
import pytest
from scipy.special import expit, logsumexp

import tallbayes as tb
from tallbayes.engine import family_functions, passes
from tallbayes.engine.lower_gaps import lower_gap, lower_jet, lower_slope, vector_lower_gap, vector_lower_slope
from tallbayes.errors import ModelError, OptionError
from tallbayes.families.logistic import JaakkolaJordan, Logistic
from tallbayes.families.softmax import Boehning, Softmax
from tallbayes.families.student_t import StudentT, StudentTangent
from tallbayes.proxies.lower_bounds import (
    MARGIN,
    _all_gaps,
    bound_gradient,
    bound_value,
    brightness,
    gaps,
    gaps_at,
    log_odds_gradient,
    lower_bound,
    predicted_brightness,
    with_known_predictors,
    with_prior,
)

GRID = np.concatenate([np.linspace(-40, 40, 801), [-700.0, -200.0, 200.0, 700.0, 1e-3, -1e-3, 1e-6]])


@pytest.mark.parametrize("xi", [0.0, 1e-6, 0.1, 0.199999, 0.2, 1.5, 5.0, 20.0, 300.0])
def test_jaakkola_jordan_is_its_formula_and_below(xi):
    a = -math.tanh(xi / 2) / (4 * xi) if xi > 1e-4 else -1 / 8 + xi**2 / 96
    c = -a * xi * xi + xi / 2 - np.logaddexp(0, xi)
    for y in (0.0, 1.0):
        s = (2 * y - 1) * GRID
        formula = -np.logaddexp(0, -s) - (a * s * s + s / 2 + c)
        tuned = np.array([lower_gap(JaakkolaJordan(-1.0), Logistic(), xi, e - xi, y) for e in GRID])
        fixed = np.array([lower_gap(JaakkolaJordan(xi), Logistic(), 0.3, e - 0.3, y) for e in GRID])
        np.testing.assert_allclose(tuned, formula, atol=1e-12 * (1 + xi * xi), rtol=1e-9)
        np.testing.assert_allclose(fixed, formula, atol=1e-12 * (1 + xi * xi), rtol=1e-9)
        assert tuned.min() >= -1e-15 and fixed.min() >= -1e-15
        for eta in (xi, -xi):
            assert abs(lower_gap(JaakkolaJordan(xi), Logistic(), 0.0, eta, y)) < 1e-15


def test_the_fixed_bound_is_as_tight_as_the_paper_says():
    eta = np.linspace(math.log(1 / 9), math.log(9), 2001)
    bright = [-math.expm1(-lower_gap(JaakkolaJordan(1.5), Logistic(), 0.0, e, 1.0)) for e in eta]
    assert round(max(bright), 2) == 0.02  # "less than 0.02 in the region where 0.1 < L < 0.9"; 0.0201 at its ends


def test_a_gap_of_logistic_rows_keeps_its_digits_near_the_tangent():
    for base in (0.0, 0.01, 0.19, 0.21, 2.0, -2.0, 30.0):
        for shift in (1e-7, -1e-7, 1e-5):
            gap = lower_gap(JaakkolaJordan(-1.0), Logistic(), base, shift, 1.0)
            x = abs(base)
            v = float(expit(x) * expit(-x))
            excess = math.tanh(x / 2) / (4 * x) - v / 2 if x > 0.1 else x * x / 48 - x**4 / 240
            skew = math.tanh(x / 2)
            expected = excess * shift**2 + v * skew * shift**3 / 6 * (1 if base >= 0 else -1) + shift**4 / 192 * (base == 0)
            assert gap > 0.0 and abs(gap - expected) < 1e-6 * expected


@pytest.mark.parametrize("xi", [0.0, 0.3, 2.0, 10.0, 50.0])
@pytest.mark.parametrize("nu, scale", [(4.0, 1.0), (1.0, 0.3), (30.0, 5.0)])
def test_the_student_tangent_is_its_formula_and_below(nu, scale, xi):
    r = np.concatenate([np.linspace(-200, 200, 2001), [xi, -xi, 1e6]])
    formula = -(nu + 1) / 2 * (np.log1p(r * r / nu) - np.log1p(xi * xi / nu) - (r * r - xi * xi) / (nu + xi * xi))
    y = 0.7
    fixed = np.array([lower_gap(StudentTangent(xi), StudentT(nu, scale), 0.1, y - scale * v - 0.1, y) for v in r])
    base = y - scale * xi
    tuned = np.array([lower_gap(StudentTangent(-1.0), StudentT(nu, scale), base, -scale * (v - xi), y) for v in r])
    for found in (fixed, tuned):
        np.testing.assert_allclose(found, formula, rtol=1e-9, atol=1e-11)
        assert found.min() >= 0.0


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_boehning_is_its_formula_and_below(classes):
    rng = np.random.default_rng(classes)
    A = 0.5 * (np.eye(classes) - 1 / classes)
    for _ in range(3000):
        base = 4.0 * rng.standard_normal(classes)
        shift = rng.choice([1e-4, 0.1, 0.9, 1.1, 6.0, 80.0]) * rng.standard_normal(classes)
        y = float(rng.integers(classes))
        p = np.exp(base - logsumexp(base))
        formula = -logsumexp(base + shift) + logsumexp(base) + p @ shift + 0.5 * shift @ A @ shift
        gap = vector_lower_gap(Boehning(), Softmax(classes), base, shift, y)
        assert abs(gap - formula) < 1e-11 * (1 + np.abs(shift).max() ** 2)
        assert gap > -1e-13
    curvature = np.diag(p) - np.outer(p, p)
    assert np.linalg.eigvalsh(A - curvature)[0] > -1e-15


def test_slopes_are_derivatives():
    cases = [(JaakkolaJordan(-1.0), Logistic()), (JaakkolaJordan(1.5), Logistic()), (StudentTangent(-1.0), StudentT(4.0, 0.7))]
    cases.append((StudentTangent(0.0), StudentT(4.0, 0.7)))
    rng, h = np.random.default_rng(1), 1e-6
    for kind, family in cases:
        for _ in range(50):
            base, shift = 2.0 * rng.standard_normal(2)
            up, down = (lower_gap(kind, family, base, shift + s, 1.0) for s in (h, -h))
            assert abs((up - down) / (2 * h) - lower_slope(kind, family, base, shift, 1.0)) < 1e-8
            value, slope, curvature = lower_jet(kind, family, base, 1.0)  # log B is this quadratic
            f = family_functions.value(family, base + shift, 1.0)
            quadratic = value + slope * shift + 0.5 * curvature * shift**2
            assert abs(f - quadratic - lower_gap(kind, family, base, shift, 1.0)) < 1e-12
    for _ in range(50):
        base, shift = rng.standard_normal((2, 3))
        gradient = np.empty(3)
        vector_lower_slope(Boehning(), Softmax(3), base, shift, 1.0, gradient)
        for k in range(3):
            e = np.eye(3)[k] * h
            up, down = (vector_lower_gap(Boehning(), Softmax(3), base, shift + s * e, 1.0) for s in (1, -1))
            assert abs((up - down) / (2 * h) - gradient[k]) < 1e-8


# Bounds of whole models, with offsets and weights, some of them zero.


def case(name):
    rng = np.random.default_rng(3)
    n = 90
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    offset, weights = 0.3 * rng.standard_normal(n), rng.uniform(0.2, 2.0, n)
    weights[:3] = 0.0
    real = X @ [1.0, 2.0, -1.0] + rng.standard_t(3, n)
    responses = {"logistic": rng.random(n) < 0.4, "probit": rng.random(n) < 0.4, "softmax": rng.integers(0, 3, n)}
    y = responses.get(name, np.abs(np.round(real)) if name == "negbin" else real)
    data = tb.Dataset.from_arrays(X, np.asarray(y, float), offset, weights)
    options = {"softmax": {"classes": 3}, "negbin": {"size": 3.0}, "student_t": {"nu": 4.0, "scale": 1.0}}.get(name, {})
    prior = tb.priors.laplace(1.0) if name == "student_t" else tb.priors.normal(3.0)
    model = getattr(tb.models, name)(data, prior, **options)
    return model, tb.find_mode(model, progress=False)


CASES = [
    *((family, bound) for family in ("logistic", "student_t", "softmax") for bound in ("tuned", "untuned", "taylor")),
    ("gaussian", "taylor-uniform"),
    ("logistic", "taylor-uniform"),
    *((family, "tuned") for family in ("probit", "negbin", "gaussian")),
]


@pytest.mark.parametrize("family, name", CASES)
def test_bounds_of_a_model(family, name):
    model, mode = case(family)
    bound = lower_bound(mode, name)[0]
    rng, rows = np.random.default_rng(0), model.rows
    positive = np.arange(3, model.data.n)
    for spread in (0.0, 0.01, 1.0, 5.0, 50.0):
        theta = mode.reference + spread * mode.factor @ rng.standard_normal(model.dim)
        gap = np.empty(model.data.n)
        _all_gaps.py_func(rows, bound, 0, theta, gap)
        np.testing.assert_array_equal(gap[:3], 0.0)  # a weight of zero is a likelihood of one: nothing to bound
        assert gap[3:].min() >= 0.99 * MARGIN
        likelihood = passes.total_value(rows, theta)
        collapsed = bound_value(bound, theta)
        assert abs(collapsed + (gap[3:] - MARGIN).sum() - likelihood) < 1e-11 * (1 + abs(likelihood) + gap.sum())
        if spread == 0.0 and name != "untuned":
            assert gap[3:].max() < 1.01 * MARGIN  # tight at the mode
        if spread < 1.0:
            continue
        gradient, odds, out = np.zeros(model.dim), np.zeros(model.dim), np.empty(positive.size)
        sign = np.where(positive % 3, 1.0, -1.0) * (gap[3:] > 1e-3)  # differences fail near the singularity at a gap of 0
        assert abs(bound_gradient(bound, theta, gradient) - collapsed) < 1e-12 * (1 + abs(collapsed))
        log_odds_gradient(rows, bound, positive, sign, theta, out, odds)
        np.testing.assert_allclose(out, gap[3:], rtol=1e-11)

        def log_odds(at, bound=bound, sign=sign):
            fresh = np.empty(positive.size)
            gaps(rows, bound, positive, at, fresh)
            return float((sign * (fresh + np.log(-np.expm1(-fresh)))).sum())

        for j in range(model.dim):
            step = np.eye(model.dim)[j] * 1e-5 * math.sqrt(mode.covariance[j, j])
            for function, found in ((lambda t: bound_value(bound, t), gradient), (log_odds, odds)):
                difference = (function(theta + step) - function(theta - step)) / (2 * step[j])
                assert abs(difference - found[j]) < 1e-5 * (1 + np.abs(found).max())


@pytest.mark.parametrize("family, name", CASES)
def test_kept_predictors_and_the_prior_in_the_sum_change_nothing(family, name):
    model, mode = case(family)
    bound = lower_bound(mode, name)[0]
    kept = with_known_predictors(model, bound)
    assert kept.known.shape[0] == model.data.n and bound.known.size == 0
    theta = mode.reference + 0.8 * mode.factor @ np.random.default_rng(1).standard_normal(model.dim)
    np.testing.assert_allclose(gaps_at(model.rows, kept, theta), gaps_at(model.rows, bound, theta), rtol=1e-9, atol=1e-14)
    index, sign = np.arange(model.data.n), np.ones(model.data.n)
    slopes = np.zeros((2, model.dim))
    for own, slope in zip((bound, kept), slopes, strict=True):
        log_odds_gradient(model.rows, own, index, sign, theta, np.empty(index.size), slope)
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-8, atol=1e-8 * np.abs(slopes).max())
    both = with_prior(model, bound)
    assert both.prior == (bound.gram == 0 and bool((model.prior_terms.kind <= 1).all()))
    if both.prior:
        expected = bound_value(bound, theta) + model.log_prior(theta)
        assert abs(bound_value(both, theta) - expected) < 1e-11 * (1 + abs(expected))


def test_the_bound_of_softmax_reads_the_gram_matrix_alone():
    _, mode = case("softmax")
    bound = lower_bound(mode)[0]
    whole = bound._replace(gram=0)
    theta = mode.reference + 2.0 * mode.factor @ np.random.default_rng(2).standard_normal(mode.reference.size)
    first, second = np.zeros(theta.size), np.zeros(theta.size)
    assert bound.gram == mode.model.data.d
    assert abs(bound_gradient(bound, theta, first) / bound_gradient(whole, theta, second) - 1.0) < 1e-12
    np.testing.assert_allclose(first, second, rtol=1e-10, atol=1e-10 * np.abs(second).max())
    assert abs(bound_value(bound, theta) / bound_value(whole, theta) - 1.0) < 1e-12


def test_expected_brightness():
    rng = np.random.default_rng(5)
    X = np.column_stack([np.ones(5000), rng.standard_normal((5000, 4))])
    y = (rng.random(5000) < expit(X @ rng.standard_normal(5))).astype(float)
    mode = tb.find_mode(tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(3.0)), progress=False)
    tuned, untuned = lower_bound(mode, "tuned")[0], lower_bound(mode, "untuned")[0]
    shares = brightness(mode, tuned, draws=200)
    assert shares.shape == (5000,) and (shares > 0).all()
    assert 0.8 < shares.sum() / predicted_brightness(mode, tuned) < 1.2
    assert brightness(mode, untuned).sum() > 50 * shares.sum()
    theta = mode.laplace().draw(np.random.default_rng(1), 1)[0]
    assert np.isclose(
        gaps_at(mode.model.rows, tuned, theta).sum(), -np.log1p(np.expm1(-gaps_at(mode.model.rows, tuned, theta))).sum()
    )


def test_what_has_no_bound_is_refused():
    rng = np.random.default_rng(0)
    data = tb.Dataset.from_arrays(np.ones((20, 1)), rng.poisson(3.0, 20))
    mode = tb.find_mode(tb.models.poisson(data), progress=False)
    with pytest.raises(ModelError, match=r"no bounded third derivative.*exact-minibatch"):
        lower_bound(mode)
    mode = case("probit")[1]
    with pytest.raises(ModelError, match="bound='taylor'"):
        lower_bound(mode, "untuned")
    with pytest.raises(OptionError, match="tuned"):
        lower_bound(mode, "tunned")
    with pytest.raises(OptionError, match="xi applies only"):
        lower_bound(mode, "tuned", xi=1.0)
    with pytest.raises(OptionError, match="at least 0"):
        lower_bound(case("logistic")[1], "untuned", xi=-1.0)
