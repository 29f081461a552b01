"""Internals of `tallbayes.families`; what users see of it is tested in test_families.py."""

import importlib
import inspect
import pkgutil
import re
from dataclasses import replace
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp

import tallbayes as tb
import tallbayes.families
from tallbayes.compile import jit
from tallbayes.engine.family_functions import (
    jet1,
    jet2,
    residual,
    slope_residual,
    third,
    third_supremum,
    third_supremum_on,
    value,
)
from tallbayes.engine.lower_gaps import lower_gap, vector_lower_gap
from tallbayes.engine.several_functions import vector_gradient, vector_hessian, vector_value

ROOT = Path(__file__).parents[2]
MODULES = {
    m.name: importlib.import_module(f"tallbayes.families.{m.name}") for m in pkgutil.iter_modules(tallbayes.families.__path__)
}


def family_of_the_page():
    """FAMILY of the Python block of docs/write-a-model.md that declares one; running it registers its functions."""
    page = (ROOT / "docs" / "write-a-model.md").read_text().partition("## A family of your own")[2]
    block = re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[1]
    namespace = {"__name__": "page"}
    exec(compile(block, "write-a-model.md", "exec"), namespace)
    return namespace["FAMILY"]


PAGE = family_of_the_page()
OWN_ROWS = ("arma", "class_gaussian", "binomial")  # with rows or weights of their own, tested in files of their own
FAMILIES = [module.FAMILY for name, module in MODULES.items() if name not in OWN_ROWS] + [PAGE]
SINGLE = [(family, member) for family in FAMILIES for member in family.examples if type(member) in value.registry]
VECTOR = [(family, member) for family in FAMILIES for member in family.examples if type(member) in vector_value.registry]


def label(item):
    return item.name if hasattr(item, "responses") else repr(item)


every_family = pytest.mark.parametrize("family", FAMILIES, ids=label)
every_single = pytest.mark.parametrize("family, member", SINGLE, ids=label)
every_vector = pytest.mark.parametrize("family, member", VECTOR, ids=label)


def pairs(family, count, spread=3.0, seed=1):
    """Random linear predictors for each response of the family."""
    rng = np.random.default_rng(seed)
    return [(eta, y) for y in family.responses for eta in spread * rng.standard_normal(count)]


def derivative(function, x, step=1e-3):
    """Five-point central difference: truncation step**4 / 30 times the fifth derivative."""
    near = np.asarray(function(x + step)) - np.asarray(function(x - step))
    far = np.asarray(function(x + 2 * step)) - np.asarray(function(x - 2 * step))
    return (8.0 * near - far) / (12.0 * step)


def close(found, expected, scale, relative=1e-6):
    return abs(found - expected) <= relative * max(abs(expected), 1e-3 * scale)


def test_listing_the_folder_is_the_table_of_families():
    assert {"logistic", "poisson", "gaussian", "arma"} <= set(MODULES)
    assert set(tb.models.FAMILIES) == {*MODULES, "expression"}
    for name, module in MODULES.items():
        assert module.FAMILY.name == name and tb.models.FAMILIES[name] is getattr(tb.models, name)
        assert inspect.unwrap(getattr(tb.models, name)) is getattr(module, name)
        assert name in tb.models.__all__
        assert module.FAMILY.response in tallbayes.model.RESPONSES and module.FAMILY.log_normaliser is not None
    assert PAGE.name not in tb.models.FAMILIES
    with pytest.raises(AttributeError, match="its families are arma"):
        tb.models.logistik  # noqa: B018


@every_family
def test_every_example_is_checked_by_one_of_the_contracts(family):
    assert family.examples
    assert family.responses
    for member in family.examples:
        assert (type(member) in value.registry) != (type(member) in vector_value.registry)


@every_family
def test_the_support_admits_the_responses_and_nothing_that_is_not_a_number(family):
    assert family.admits(np.array(family.responses)).all()
    assert not family.admits(np.array([np.nan])).any()


@every_single
def test_derivatives_agree_with_finite_differences(family, member):
    for eta, y in pairs(family, 200):
        f, slope, curvature = jet2(member, eta, y)
        scale = max(1.0, abs(f), abs(slope), abs(curvature))
        assert close(derivative(lambda x, y=y: value(member, x, y), eta), slope, scale)
        assert close(derivative(lambda x, y=y: jet1(member, x, y)[1], eta), curvature, scale)
        assert close(derivative(lambda x, y=y: jet2(member, x, y)[2], eta), third(member, eta, y), scale)


@every_single
def test_jets_repeat_the_lower_orders(family, member):
    for eta, y in pairs(family, 200):
        assert value(member, eta, y) == jet1(member, eta, y)[0] == jet2(member, eta, y)[0]
        assert jet1(member, eta, y)[1] == jet2(member, eta, y)[1]


@every_single
def test_the_mean_is_where_the_expected_score_vanishes(family, member):
    for eta in np.linspace(-4.0, 4.0, 33):
        mean = float(family.mean(np.array([eta]))[0])
        if set(family.responses) == {0.0, 1.0}:
            score = mean * jet1(member, eta, 1.0)[1] + (1.0 - mean) * jet1(member, eta, 0.0)[1]
        else:
            score = jet1(member, eta, mean)[1]
        assert abs(score) <= 1e-12 * (1.0 + abs(mean))


@every_single
def test_third_supremum_is_never_exceeded_and_is_approached(family, member):
    rng = np.random.default_rng(2)
    etas = np.concatenate([np.linspace(-30.0, 30.0, 6001), 5.0 * rng.standard_normal(2000)])
    for y in family.responses:
        largest = max(abs(third(member, eta, y)) for eta in etas)
        supremum = third_supremum(member, y)
        assert largest <= supremum * (1.0 + 1e-12)
        if np.isfinite(supremum):
            assert largest >= 0.99 * supremum


def largest_third(member, y, low, high):
    """Maximum of |f'''| over a grid, refined around its best point."""
    for _ in range(3):
        grid = np.linspace(low, high, 401)
        sizes = [abs(third(member, eta, y)) for eta in grid]
        best = int(np.argmax(sizes))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, 400)]
    return sizes[best]


@every_single
def test_third_supremum_on_an_interval_is_attained(family, member):
    rng = np.random.default_rng(3)
    for y in family.responses:
        for _ in range(25):
            low, high = np.sort(4.0 * rng.standard_normal(2))
            largest = largest_third(member, y, low, high)
            supremum = third_supremum_on(member, y, low, high)
            assert largest <= supremum * (1.0 + 1e-12)
            assert largest >= supremum * (1.0 - 1e-6)
            assert supremum <= third_supremum(member, y) * (1.0 + 1e-12)
        point = float(rng.standard_normal())
        assert third_supremum_on(member, y, point, point) == pytest.approx(abs(third(member, point, y)), rel=1e-12)


@every_single
def test_flags_are_true_of_the_derivatives(family, member):
    for eta, y in pairs(family, 400, spread=6.0):
        curvature = jet2(member, eta, y)[2]
        if family.self_concordant:
            assert abs(third(member, eta, y)) <= abs(curvature) * (1.0 + 1e-12)
        if family.log_concave:
            assert curvature <= 0.0


SHIFTS = np.concatenate([sign * np.geomspace(1e-6, 60.0, 60) for sign in (-1.0, 1.0)])
NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)


def integral(member, eta, y, shift, power):
    """Integral of (shift - t)^power / power! f'''(eta + t) over t from 0 to shift: Taylor's remainder without cancellation."""
    panels = int(np.ceil(4.0 * abs(shift)))
    edges = np.linspace(0.0, shift, panels + 1)
    half = np.diff(edges)[:, None] / 2.0
    points = edges[:-1, None] + half * (1.0 + NODES)
    derivatives = np.array([third(member, eta + t, y) for t in points.ravel()]).reshape(points.shape)
    return float(np.sum(half * NODE_WEIGHTS * (shift - points) ** power / power * derivatives))


def residual_scale(member, eta, y, shift, expected):
    """The size against which an error is relative: the residual itself, but where it changes sign its leading term / 1000."""
    return max(abs(expected), 1e-3 * abs(third(member, eta, y) * shift**3) / 6.0)


@every_single
def test_residual_equals_the_remainder_of_taylor(family, member):
    for y in family.responses:
        for eta in (-7.3, -1.2, -0.04, 0.0, 0.6, 2.9, 8.1):
            for shift in SHIFTS[::5]:
                expected = integral(member, eta, y, shift, 2)
                error = abs(residual(member, eta, y, shift) - expected)
                assert error <= 1e-9 * residual_scale(member, eta, y, shift, expected)
                slopes = 1.0 + abs(jet1(member, eta, y)[1]) + abs(jet1(member, eta + shift, y)[1])
                slopes += abs(jet2(member, eta, y)[2] * shift)
                assert abs(slope_residual(member, eta, y, shift) - integral(member, eta, y, shift, 1)) <= 1e-12 * slopes


def logistic_jet(eta, y):
    tail = 1 / (1 + (-eta).exp())
    return y * eta - (1 + eta.exp()).ln(), y - tail, -tail * (1 - tail)


def poisson_jet(eta, y):
    return y * eta - eta.exp(), y - eta.exp(), -eta.exp()


@pytest.mark.parametrize("name, jet", [("logistic", logistic_jet), ("poisson", poisson_jet)])
def test_residual_equals_its_definition_in_eighty_digits(name, jet):
    family = next(family for family in FAMILIES if family.name == name)
    member, y = family.examples[0], family.responses[1]
    rng = np.random.default_rng(4)
    with localcontext() as context:
        context.prec = 80
        for shift in SHIFTS:
            for eta in [*(4.0 * rng.standard_normal(4)), 90.0, -90.0]:
                start, step, response = Decimal(float(eta)), Decimal(float(shift)), Decimal(y)
                f, slope, curvature = jet(start, response)
                expected = float(jet(start + step, response)[0] - f - step * slope - step * step * curvature / 2)
                error = abs(residual(member, float(eta), y, float(shift)) - expected)
                assert error <= 1e-9 * residual_scale(member, float(eta), y, float(shift), expected), (eta, shift)


@every_single
def test_residual_is_continuous_where_it_changes_its_formula(family, member):
    """Between neighbouring floats a jump of formulas shows as a relative change far above their spacing."""
    for y in family.responses:
        for eta in (-3.0, -0.7, 0.9, 4.0):
            for edge in (0.02, 0.05, 0.25, 0.5, 1.0, 50.0):
                for shift in (edge, -edge):
                    inside, outside = (residual(member, eta, y, float(np.nextafter(shift, to))) for to in (0.0, 2 * shift))
                    assert abs(inside - outside) <= 3e-11 * residual_scale(member, eta, y, shift, outside)


@jit
def tabulate(member, etas, y, shift, out):
    for i in range(etas.size):
        eta = etas[i]
        out[i, 0] = value(member, eta, y)
        out[i, 1], out[i, 2] = jet1(member, eta, y)
        out[i, 3], out[i, 4], out[i, 5] = jet2(member, eta, y)
        out[i, 6] = third(member, eta, y)
        out[i, 7] = third_supremum(member, y)
        out[i, 8] = third_supremum_on(member, y, eta, eta + abs(shift))
        out[i, 9] = residual(member, eta, y, shift)
        out[i, 10] = slope_residual(member, eta, y, shift)


@every_single
def test_both_speeds_agree(family, member):
    etas = np.concatenate([4.0 * np.random.default_rng(5).standard_normal(60), [-45.0, 0.0, 30.0]])
    for y in family.responses:
        for shift in (-55.0, -0.6, -0.01, 0.003, 0.049, 1.7, 55.0):
            compiled, interpreted = np.full((2, etas.size, 11), -1.0)
            tabulate(member, etas, y, shift, compiled)
            tabulate.py_func(member, etas, y, shift, interpreted)
            np.testing.assert_allclose(compiled, interpreted, rtol=1e-12, atol=1e-14)


def points(family, width, count=50):
    rng = np.random.default_rng(6)
    return [(suitable(family, u), y) for y in family.responses for u in rng.standard_normal((count, width))]


def suitable(family, u):
    """Cut points increase, from above 0; proportions have a precision at which few are nearer to 0 or 1 than rounding."""
    if family.response == "proportion":
        return np.array([u[0], 3.5 + 0.5 * u[1]])
    return u if family.response != "ordinal" else np.append(u[0], 0.2 + np.cumsum(0.2 + np.abs(u[1:])))


UNKNOWN = {
    "Softmax": 0,
    "StudentFree": 2,
    "ZeroInflatedPoisson": 0,
    "HurdlePoisson": 0,
    "PredictedScale": 0,
    "PredictedStudent": 0,
}
"""Parameters besides the linear predictors; one elsewhere."""


def width_of(family, member):
    """Number of elements of u: linear predictors, and unknown parameters."""
    if family.response == "ordinal":
        return member.classes - member.fixed
    return family.predictors(member) + UNKNOWN.get(type(member).__name__, 1)


@every_vector
def test_vector_derivatives_agree_with_finite_differences(family, member):
    width = width_of(family, member)
    gradient, hessian, scratch = np.empty(width), np.empty((width, width)), np.empty(width)
    for u, y in points(family, width):
        f = vector_hessian(member, u, y, gradient, hessian)
        assert f == vector_gradient(member, u, y, scratch) == vector_value(member, u, y)
        np.testing.assert_array_equal(scratch, gradient)
        scale = max(1.0, abs(f), np.abs(gradient).max(), np.abs(hessian).max())
        for k in range(width):

            def along(x, k=k, u=u):
                return np.concatenate([u[:k], [x], u[k + 1 :]])

            def slope(x, y=y, along=along):
                inner = np.empty(width)
                vector_gradient(member, along(x), y, inner)
                return inner

            assert close(derivative(lambda x, y=y, along=along: vector_value(member, along(x), y), u[k]), gradient[k], scale)
            for l, found in enumerate(derivative(slope, u[k])):
                assert close(found, hessian[l, k], scale)


@jit
def tabulate_vector(member, u, y, gradient, hessian):
    lower = vector_value(member, u, y) - vector_gradient(member, u, y, gradient)
    return lower, vector_hessian(member, u, y, gradient, hessian)


@every_vector
def test_both_speeds_agree_on_vectors(family, member):
    width = width_of(family, member)
    for u, y in points(family, width):
        results = []
        for function in (tabulate_vector, tabulate_vector.py_func):
            gradient, hessian = np.empty(width), np.empty((width, width))
            lower, f = function(member, u, y, gradient, hessian)
            results.append(np.concatenate([[lower, f], gradient, hessian.ravel()]))
        np.testing.assert_allclose(results[0], results[1], rtol=1e-12, atol=1e-14)


def log_density(family, member, u, y):
    """Of one row at u, a number or a vector, for an array of responses."""
    if np.ndim(u):
        values = np.array([vector_value(member, u, float(v)) for v in y])
    else:
        values = np.array([value(member, u, float(v)) for v in y])
    return values + family.log_normaliser(member, y)


def responses_of(family, member, centre=0.0):
    """Responses and the log of their weights: all of a discrete law, or the nodes of a trapezoidal rule in log y or asinh y."""
    if family.response in ("binary", "class", "count", "ordinal"):
        sizes = {"binary": 2, "class": family.predictors(member), "count": 3000, "ordinal": getattr(member, "classes", 0)}
        return np.arange(float(sizes[family.response])), np.zeros(sizes[family.response])
    t, step = np.linspace(-45.0, 45.0, 18_001, retstep=True)
    if family.response == "proportion":
        t, step = np.linspace(-30.0, 30.0, 18_001, retstep=True)
        return 1.0 / (1.0 + np.exp(-t)), -t - 2.0 * np.log1p(np.exp(-t)) + np.log(step)
    y, speed = (np.exp(t), np.exp(t)) if family.response in ("positive", "time") else (centre + np.sinh(t), np.cosh(t))
    return y, np.log(speed) + np.log(step)


def check_total(family, member, u):
    y, weight = responses_of(family, member, float(np.ravel(u)[0]))
    with np.errstate(all="ignore"):
        terms = log_density(family, member, u, y) + weight
    assert abs(logsumexp(terms)) < 1e-7


EVERY = SINGLE + VECTOR
every_member = pytest.mark.parametrize("family, member", EVERY, ids=label)
LEVELS = (-1.7, 0.0, 0.4, 2.2)


def places(family, member):
    if (family, member) in SINGLE:
        return LEVELS
    rng = np.random.default_rng(7)
    return [suitable(family, u) for u in rng.standard_normal((3, width_of(family, member)))]


@every_member
def test_densities_sum_to_one(family, member):
    for u in places(family, member):
        check_total(family, member, u)


LACKING = [
    (f, m)
    for f, m in EVERY
    if np.any(f.log_normaliser(m, np.array([0.3, 0.6] if f.response == "proportion" else [1.0, 2.0, 5.0])) != 0.0)
]


@pytest.mark.parametrize("family, member", LACKING, ids=label)
def test_the_check_of_sums_finds_a_normaliser_that_lacks_a_term(family, member):
    mutant = replace(family, log_normaliser=tallbayes.model.no_terms)
    with pytest.raises(AssertionError):
        check_total(mutant, member, places(family, member)[0])


@every_member
def test_simulated_responses_have_the_density(family, member):
    """Means of two bounded functions of y, within six standard errors of their expectations."""
    rng, size = np.random.default_rng(8), 20_000
    predictors = family.predictors(member)
    for u in places(family, member):
        vector = np.atleast_1d(np.asarray(u, float))
        eta = np.full((size, 1), vector[0]) if predictors == 1 else np.tile(vector[:predictors], (size, 1, 1))
        y = family.simulate(rng, member, eta, vector[None, predictors:])
        assert y.shape == (size, 1) and family.admits(y[:, 0]).all()
        at, weight = responses_of(family, member, float(vector[0]))
        with np.errstate(all="ignore"):
            p = np.exp(log_density(family, member, u, at) + weight)
        for bounded in (np.tanh, lambda v: 1.0 / (1.0 + v * v)):
            expected, spread = p @ bounded(at), np.sqrt(max(p @ bounded(at) ** 2 - (p @ bounded(at)) ** 2, 1e-12))
            assert abs(bounded(y).mean() - expected) < 6.0 * spread / np.sqrt(size)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.tangent is not None], ids=label)
def test_tangents_touch_the_likelihood_and_are_below_it(family):
    rng = np.random.default_rng(9)
    for member in family.examples:
        for y in family.responses:
            for xi in (None,) if family.tangent.xi is None else (None, family.tangent.xi):
                kind = family.tangent.kind(xi)
                if type(member) in value.registry:
                    gaps = [lower_gap(kind, member, b, s, y) for b, s in 2.0 * rng.standard_normal((50, 2))]
                    touch = lower_gap(kind, member, 0.7, 0.0, y)
                elif type(kind) not in vector_lower_gap.registry:  # unknown parameters of the family have no lower bound
                    continue
                else:
                    pairs = 2.0 * rng.standard_normal((50, 2, family.predictors(member)))
                    gaps = [vector_lower_gap(kind, member, b, s, y) for b, s in pairs]
                    touch = vector_lower_gap(kind, member, pairs[0, 0], np.zeros(family.predictors(member)), y)
                assert min(gaps) > -1e-12 and max(gaps) > 1e-3
                assert xi is not None or abs(touch) < 1e-12


@pytest.mark.parametrize("family, member", [(f, m) for f, m in VECTOR if f.unit_scale_member(m) is not None], ids=label)
def test_sufficient_statistics_are_those_of_the_member_of_unit_scale(family, member):
    unit = family.unit_scale_member(member)
    for eta, tau in np.random.default_rng(10).standard_normal((20, 2)):
        expected = -tau + value(unit, eta, 0.3) * np.exp(-2.0 * tau)
        assert vector_value(member, np.array([eta, tau]), 0.3) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("family, member", [(f, m) for f, m in SINGLE if f.fourth_supremum is not None], ids=label)
def test_the_fourth_derivative_is_bounded_as_declared(family, member):
    sizes = [
        abs(derivative(lambda x, y=y: third(member, x, y), eta)) for y in family.responses for eta in np.linspace(-9, 9, 901)
    ]
    assert 0.99 * family.fourth_supremum < max(sizes) <= family.fourth_supremum * (1.0 + 1e-9)
