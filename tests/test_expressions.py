"""Families from one expression: the grammar, the generated code beside SymPy and the built-in families, and sampling."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import sympy as sp
from scipy import stats

import tallbayes as tb
from tallbayes.compile import jit
from tallbayes.engine.family_functions import jet1, jet2, residual, third, third_supremum, third_supremum_on, value
from tallbayes.engine.multi_index import vector_gradient, vector_hessian, vector_value
from tallbayes.families.gaussian import GaussianScale
from tallbayes.models.expressions.builder import OWN_FIELDS, member_type
from tallbayes.models.expressions.generate import fields, quadrature, source
from tallbayes.models.expressions.grammar import ETA, FUNCTIONS, LOG_SCALE, Y, as_text, parse
from tallbayes.models.expressions.simulate import simulator
from tallbayes.models.expressions.special_functions import elementary
from tallbayes.models.expressions.stabilise import stabilised
from tallbayes.samplers import ExactMinibatch
from tallbayes.testing import THRESHOLD, effective_sizes, exact_posterior

CLOGLOG = "y*log(1 - exp(-exp(eta))) - (1 - y)*exp(eta)"
ZERO_INFLATED = "where(y == 0, log(p + (1 - p)*exp(-exp(eta))), log(1 - p) + y*eta - exp(eta))"


def dataset(y, seed=0):
    y = np.asarray(y, float)
    X = np.column_stack([np.ones(y.size), np.random.default_rng(seed).standard_normal(y.size)])
    return tb.Dataset.from_arrays(X, y)


BINARY, COUNTS = dataset([0, 1] * 10), dataset([0, 1, 2, 3, 0, 5, 1, 9])
REAL = dataset(np.random.default_rng(1).standard_normal(40))


# The grammar.

REFUSED = {
    "y*eta - log(1 + exp(etta))": (tb.ModelError, "etta.*did you mean 'eta'.*constants="),
    "y*eta - exq(eta)": (tb.OptionError, "unknown function.*'exq'; did you mean 'exp'"),
    "y*eta - exp(eta, 2)": (tb.ModelError, "exp in the expression takes 1 argument; it has 2"),
    "logaddexp(eta) + y": (tb.ModelError, "logaddexp in the expression takes 2 arguments; it has 1"),
    "y*eta - exp(eta": (tb.ModelError, "cannot be read; check its parentheses"),
    "y*eta^2": (tb.ModelError, r"write a power with \*\*"),
    "eta.__class__ + y": (tb.ModelError, "Attribute in the expression"),
    "__import__('os').getcwd()": (tb.OptionError, "unknown function"),
    "(lambda: eta)() + y": (tb.OptionError, "unknown function"),
    "[y, eta][0]": (tb.ModelError, "Subscript in the expression"),
    "y*eta if y > 0 else eta": (tb.ModelError, "IfExp in the expression"),
    "y > eta": (tb.ModelError, "a comparison belongs into where"),
    "where(eta > 0, y, eta)": (tb.ModelError, "compares y with a number"),
    "where(y, eta, eta)": (tb.ModelError, "one comparison of y"),
    "y*eta + 'text'": (tb.ModelError, "is not a number"),
    "y*eta + 1e999": (tb.ModelError, "is not a number"),
    "y*eta**1000": (tb.ModelError, "a power of 1000"),
    "y*eta + 9**9**9": (tb.ModelError, "at most 100"),
    "y*eta + (9**99)**99": (tb.ModelError, "more than 300 digits"),
    "y*eta + log(-1)": (tb.ModelError, "not a real number"),
    "y*eta + 1/(eta - eta)": (tb.ModelError, "divides by zero"),
    "-abs(y - eta)": (tb.ModelError, "abs of an expression with eta"),
    "y*exp": (tb.ModelError, "exp in the expression is a function"),
    "3*y": (tb.ModelError, "does not contain eta"),
    "3*eta": (tb.ModelError, "does not contain y"),
    "y*log(eta) - eta": (tb.ModelError, "not defined.*exp"),
    "y*eta - 1/(eta - 1.03)**2": (tb.ModelError, "pole.*eta near 1"),
    "log(y)*eta - exp(eta)": (tb.ModelError, "not a finite number for the response 0"),
    "x" * 5000: (tb.ModelError, "5,000 characters"),
    "(" * 300 + "eta" + ")" * 300: (tb.ModelError, "cannot be read"),
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:30])
def test_what_is_not_in_the_grammar_or_not_defined_is_refused(text):
    kind, message = REFUSED[text]
    with pytest.raises(kind, match=message):
        tb.models.family(text, BINARY)


def test_bad_arguments_are_refused():
    for constants, message in (
        ({"k": np.nan}, "'k' must be a finite number"),
        ({"exp": 1.0}, "cannot be the name"),
        ({"a b": 1.0}, "cannot be the name"),
        ({"lambda": 1.0}, "cannot be the name"),
    ):
        with pytest.raises(tb.ModelError, match=message):
            tb.models.family("y*eta - exp(eta)", COUNTS, constants=constants)
    with pytest.raises(tb.ModelError, match="text or a SymPy expression; got a function"):
        tb.models.family(lambda eta: eta, COUNTS)
    with pytest.raises(tb.OptionError, match="did you mean 'count'"):
        tb.models.family("y*eta - exp(eta)", COUNTS, support="counts")
    with pytest.raises(tb.DataError, match="row 2: response 'y' is 2, but support='binary' needs 0 or 1"):
        tb.models.family("y*eta - exp(eta)", COUNTS, support="binary")
    with pytest.raises(tb.DataError, match="a model needs a Dataset"):
        tb.models.family("y*eta - exp(eta)", [1.0])
    with pytest.raises(tb.ModelError, match="in the mean 'y'"):
        tb.models.family("y*eta - exp(eta)", COUNTS, mean="y")
    with pytest.raises(tb.OptionError, match="needs expression="):
        tb.models.build("expression", COUNTS)


def test_a_sympy_expression_is_read_like_text():
    eta, y, p = sp.symbols("eta y p")
    written = sp.Piecewise(
        (sp.log(p + (1 - p) * sp.exp(-sp.exp(eta))), sp.Eq(y, 0)), (sp.log(1 - p) + y * eta - sp.exp(eta), True)
    )
    assert parse(written, {"p": 0.3}) == parse(ZERO_INFLATED, {"p": 0.3})
    assert parse(as_text(written), {"p": 0.3}) == parse(written, {"p": 0.3})
    assert parse(sp.Max(y, 1) * eta - sp.loggamma(y + 1) + sp.Abs(y)) == parse("max(y, 1)*eta - lgamma(y + 1) + abs(y)")
    with pytest.raises(tb.OptionError, match="zeta"):
        parse(sp.zeta(eta) * y)


def test_numbers_are_the_decimals_that_were_written():
    assert parse("0.1*eta") == sp.Rational(1, 10) * ETA


# Stable forms and generated code.

STABLE = {
    "y*eta - log(1 + exp(eta))": "eta*y - softplus(eta)",
    "y*log(exp(eta)/(1 + exp(eta))) + (1 - y)*log(1/(1 + exp(eta)))": "-y*softplus(-eta) - (1 - y)*softplus(eta)",
    CLOGLOG: "y*log1mexp(exp(eta)) - (1 - y)*exp(eta)",
    "y*log(exp(exp(eta)) - 1)": "y*(exp(eta) + log1mexp(exp(eta)))",
    "log(ndtr(y - eta))": "log_ndtr(-eta + y)",
    "log(1 - ndtr(y - eta))": "log_ndtr(eta - y)",
    "-log(cosh(y - eta))": "eta - y - softplus(2*eta - 2*y) + log(2)",
    "log(exp(eta) + exp(y))": "y + softplus(eta - y)",
    "-log(1 + (y - eta)**2)": "-log1p((-eta + y)**2)",
    "y*(1 - expit(eta))": "y*expit(-eta)",
    "y/(1 + exp(-eta))": "y*expit(eta)",
}
WRITTEN = [
    *STABLE,
    "where(y == 0, log(0.3 + 0.7*exp(-exp(eta))), log(0.7) + y*eta - exp(eta))",
    "where(y > 1, sin(eta)*y, where(y >= 1, cos(eta), atan(eta)))",
    "y*log(0.02 + 0.96*expit(eta)) + (1 - y)*log(0.98 - 0.96*expit(eta))",
    "-(y - exp(eta))**2/2 + tanh(eta)**3",
    "-(1 + y**2)*sqrt(1 + eta**2) + sinh(eta/3) - cosh(eta/4)",
    "-y*exp(-eta) - eta + 1/(1 + eta**2)**2",
    "logaddexp(log(0.1) - (y - eta)**2/2, log(0.9) - (y - eta)**2/50)",
    "(1 + y)**expit(eta) - (2 + eta**2)**1.7 + expm1(-eta**2)*y",
    "y*ndtr(eta)**2 - lgamma(y + 1) + max(y, 0.5)*eta - pi*min(y, 2) + abs(y - 1)",
]
POINTS = [(eta, y) for eta in (-4.1, -0.7, 0.2, 1.3, 3.3) for y in (0.0, 1.0, 2.0)]


def at(expression, eta, y):
    """The value to 40 digits."""
    return sp.N(elementary(expression).subs({ETA: sp.Rational(eta), Y: sp.Rational(y)}), 40)


def member(text, constants=None):
    """A member without a certificate: enough for the values."""
    constants = constants or {}
    kind = member_type(source(stabilised(parse(text, constants))), (*fields(tuple(constants)), *OWN_FIELDS))
    empty = np.zeros(1)
    return kind(*constants.values(), 0.5, 0.0, empty, empty, empty, np.zeros((1, 2)), empty)


@pytest.mark.parametrize("text", STABLE)
def test_the_form_that_does_not_overflow_is_found(text):
    assert str(stabilised(parse(text))) == STABLE[text]


@pytest.mark.parametrize("text", WRITTEN)
def test_generated_code_is_the_expression_and_its_derivatives(text):
    original, made = parse(text), member(text)
    derivatives = [original]
    for _ in range(3):
        derivatives.append(sp.diff(elementary(derivatives[-1]), ETA))
    for eta, y in POINTS:
        if text == "y*log(exp(exp(eta)) - 1)" and eta == 3.3:
            continue
        expected = [float(at(d, eta, y)) for d in derivatives]
        found = [*jet2(made, eta, y), third(made, eta, y)]
        scale = max(1.0, *map(abs, expected))
        np.testing.assert_allclose(found, expected, rtol=2e-12, atol=2e-13 * scale)
        assert value(made, eta, y) == jet1(made, eta, y)[0] == jet2(made, eta, y)[0]
        assert jet1(made, eta, y)[1] == jet2(made, eta, y)[1]


def test_a_wrong_function_would_be_seen():
    code = source(stabilised(parse("y*eta - log(1 + exp(eta))")))
    kind = member_type(code.replace("logistic_parts(eta)", "logistic_parts(1.00001 * eta)"), OWN_FIELDS)
    empty = np.zeros(1)
    wrong = kind(0.5, 0.0, empty, empty, empty, np.zeros((1, 2)), empty)
    right = member("y*eta - log(1 + exp(eta))")
    assert type(wrong) is not type(right)
    for function in (value, third):
        assert abs(function(wrong, 1.0, 1.0) / function(right, 1.0, 1.0) - 1.0) > 1e-9


def test_constants_are_fields_and_the_class_is_shared():
    first, second = (member("y*eta - k*exp(eta)", {"k": k}) for k in (2.0, 3.0))
    assert type(first) is type(second) and type(first)._fields[0] == fields(("k",))[0]
    assert value(second, 0.5, 1.0) - value(first, 0.5, 1.0) == pytest.approx(-np.exp(0.5))
    assert type(member("y*eta - 2*k*exp(eta)", {"k": 2.0})) is not type(first)


def test_every_function_of_the_grammar_is_generated():
    """A function that is only parsed would be an error at the first model that uses it."""
    seen = {name for text in WRITTEN for name in FUNCTIONS if f"{name}(" in text}
    assert seen | {"log1p", "softplus", "log_ndtr"} == set(FUNCTIONS)
    made = member("log1p(exp(eta))*y - softplus(2*eta) + log_ndtr(eta)")
    assert value(made, 0.4, 1.0) == pytest.approx(np.logaddexp(0, 0.4) - np.logaddexp(0, 0.8) + np.log(0.6554217416), abs=1e-9)


@pytest.mark.parametrize("text", ["y*eta - log(1 + exp(eta))", CLOGLOG, "-2.5*log(1 + (y - eta)**2/4)", "y*eta - exp(eta)"])
def test_residuals_do_not_cancel(text):
    original, made = parse(text), member(text)._replace(window=0.125)
    slopes = [elementary(original)]
    for _ in range(3):
        slopes.append(sp.diff(slopes[-1], ETA))
    for eta, y in ((-3.2, 0.0), (-0.4, 1.0), (1.1, 1.0), (2.0, 0.0)):
        for shift in (-2.0, -0.124, -1e-2, 1e-7, 3e-4, 0.05, 0.126, 0.9):
            f, slope, curvature, skew = (at(s, eta, y) for s in slopes)
            step = sp.Rational(shift)
            moved = at(original, sp.Rational(eta) + step, y)
            expected = float(moved - f - step * slope - step**2 * curvature / 2)
            scale = max(abs(expected), 1e-3 * abs(float(skew) * shift**3) / 6.0, 1e-300)
            assert abs(residual(made, eta, y, shift) - expected) <= 1e-9 * scale, (eta, y, shift)


def test_the_quadrature_is_exact_for_polynomials_and_no_further():
    points, weights = quadrature()
    for degree in range(12):
        exact = 0.5 * sum((-1) ** k * c / (degree + k + 1) for k, c in enumerate((1, 2, 1)))
        found = sum(w * t**degree for t, w in zip(points, weights, strict=True))
        assert (abs(found - exact) < 1e-15) == (degree < 2 * len(points))


# The built-in families beside their own expression.

BUILT_IN = {
    "logistic": ("y*eta - log(1 + exp(eta))", {}, {}, BINARY),
    "probit": ("y*log(ndtr(eta)) + (1 - y)*log(1 - ndtr(eta))", {}, {}, BINARY),
    "poisson": ("y*eta - exp(eta)", {}, {}, COUNTS),
    "negbin": ("y*eta - (y + k)*log(k + exp(eta))", {"k": 2.5}, {"size": 2.5}, COUNTS),
    "gamma": ("-k*y*exp(-eta) - k*eta", {"k": 1.7}, {"shape": 1.7}, dataset([0.2, 0.5, 1.1, 2.0, 3.5, 0.9])),
    "gaussian": ("-(y - eta)**2/(2*s**2)", {"s": 0.7}, {"sigma": 0.7}, REAL),
    "student_t": ("-(nu + 1)/2*log(1 + (y - eta)**2/(nu*s**2))", {"nu": 4.0, "s": 0.5}, {"nu": 4.0, "scale": 0.5}, REAL),
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_family_equals_its_own_expression(name):
    text, constants, options, data = BUILT_IN[name]
    model = tb.models.family(text, data, constants=constants)
    built_in = tb.models.build(name, data, **options)
    mine, theirs, rng = model.member, built_in.member, np.random.default_rng(5)
    ys = np.unique(data.y)[:4]
    for y in ys.tolist():
        level = value(mine, 0.0, y) - value(theirs, 0.0, y)
        for eta in (3.0 * rng.standard_normal(12)).tolist():
            f, *rest = jet2(mine, eta, y)
            g, *known = jet2(theirs, eta, y)
            np.testing.assert_allclose(f - level, g, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose([*rest, third(mine, eta, y)], [*known, third(theirs, eta, y)], rtol=1e-10, atol=1e-12)
            for shift in (1e-3, -0.2, 0.7):
                size = abs(third(theirs, eta, y) * shift**3) + abs(residual(theirs, eta, y, shift))
                assert abs(residual(mine, eta, y, shift) - residual(theirs, eta, y, shift)) <= 1e-9 * size + 1e-300
            low, high = sorted((eta, eta + 2.0 * rng.standard_normal()))
            wanted, found = third_supremum_on(theirs, y, low, high), third_supremum_on(mine, y, low, high)
            assert wanted <= found <= 1.35 * wanted + 0.05 * third_supremum_on(theirs, y, low - 0.3, high + 0.3)
        wanted, found = third_supremum(theirs, y), third_supremum(mine, y)
        if name == "probit":
            assert found == np.inf  # not proven: the tails of log Phi are not rational
        else:
            assert wanted <= found <= 1.01 * wanted
    assert model.family.log_concave == (built_in.family.log_concave and name != "probit")
    assert model.family.self_concordant == (built_in.family.self_concordant and name != "probit") or name == "gaussian"
    assert model.family.response_scale == built_in.family.response_scale or name == "gaussian"


# An unknown scale: two indices.

SCALED = {
    "gaussian": ("-log_scale - (y - eta)**2*exp(-2*log_scale)/2", {}),
    "student_t": ("-log_scale - (nu + 1)/2*log(1 + ((y - eta)/exp(log_scale))**2/nu)", {"nu": 4.0}),
    "logistic errors": ("-log_scale - (y - eta)/exp(log_scale) - 2*softplus(-(y - eta)/exp(log_scale))", {}),
    "dispersion": ("where(y > 0, -softplus(eta + log_scale)*(y + exp(-log_scale)), eta*log_scale**2 - exp(eta))", {}),
}


@pytest.mark.filterwarnings("ignore:the expression is not a log density")  # derivatives alone are looked at
@pytest.mark.parametrize("name", SCALED)
def test_derivatives_in_two_indices_are_those_of_sympy(name):
    text, constants = SCALED[name]
    model = tb.models.family(text, REAL, constants=constants)
    assert model.names == ("x0", "x1", "log_scale") and model.family.response_scale == (name != "dispersion")
    expression = parse(text, constants).subs(
        {s: sp.Rational(constants[s.name]) for s in parse(text, constants).free_symbols if s.name in constants}
    )
    first = [sp.diff(elementary(expression), v) for v in (ETA, LOG_SCALE)]
    second = [[sp.diff(g, v) for v in (ETA, LOG_SCALE)] for g in first]
    gradient, hessian, again = np.empty(2), np.empty((2, 2)), np.empty(2)
    for eta, tau, y in ((0.3, -0.4, 1.2), (-1.1, 0.7, -0.2), (2.0, 0.1, 0.5)):
        where = {ETA: sp.Rational(eta), LOG_SCALE: sp.Rational(tau), Y: sp.Rational(y)}
        u = np.array([eta, tau])
        f = vector_hessian(model.member, u, y, gradient, hessian)
        assert f == vector_value(model.member, u, y) == vector_gradient(model.member, u, y, again)
        np.testing.assert_array_equal(again, gradient)
        assert f == pytest.approx(float(elementary(expression).subs(where)), rel=1e-12)
        np.testing.assert_allclose(gradient, [float(g.subs(where)) for g in first], rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(hessian, [[float(h.subs(where)) for h in row] for row in second], rtol=1e-11, atol=1e-13)


def test_an_unknown_scale_equals_the_built_in_one():
    text, _ = SCALED["gaussian"]
    model, built_in = tb.models.family(text, REAL, tb.priors.normal(2.0)), tb.models.gaussian(REAL, tb.priors.normal(2.0))
    gradient, known = np.empty(2), np.empty(2)
    u = np.array([0.4, -0.3])
    assert vector_gradient(model.member, u, 1.1, gradient) == pytest.approx(
        vector_gradient(GaussianScale(), u, 1.1, known), rel=1e-14
    )
    np.testing.assert_allclose(gradient, known, rtol=1e-14)
    mode = tb.find_mode(model, progress=False)
    np.testing.assert_allclose(mode.reference, tb.find_mode(built_in, progress=False).reference, rtol=1e-6, atol=1e-8)
    with pytest.raises(tb.ModelError, match="in the mean 'log_scale'"):
        tb.models.family(text, REAL, mean="exp(log_scale)")
    with pytest.raises(tb.ModelError, match="not a finite number for the response"):
        tb.models.family("-log_scale - log(y)*eta", REAL)


# Sampling, files and the compile cache. All models here share one expression, so that it is compiled once.


@pytest.fixture(scope="module")
def cloglog():
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(300), rng.standard_normal(300)])
    y = (rng.random(300) < 1.0 - np.exp(-np.exp(X @ [-0.5, 0.8]))).astype(float)
    data = tb.Dataset.from_arrays(X, y)
    return tb.models.family(CLOGLOG, data, tb.priors.normal(2.0), mean="1 - exp(-exp(eta))", support="binary")


@jit
def tabulate(made, etas, y, shift, out):
    for i in range(etas.size):
        out[i, 0] = value(made, etas[i], y)
        out[i, 1], out[i, 2], out[i, 3] = jet2(made, etas[i], y)
        out[i, 4] = third(made, etas[i], y)
        out[i, 5] = residual(made, etas[i], y, shift)
        out[i, 6] = third_supremum(made, y)
        out[i, 7] = third_supremum_on(made, y, etas[i], etas[i] + abs(shift))


def test_both_speeds_agree(cloglog):
    etas = np.concatenate([2.0 * np.random.default_rng(5).standard_normal(40), [-28.0, 0.0, 4.0]])
    for y in (0.0, 1.0):
        for shift in (-3.0, -0.1, 1e-3, 0.4):
            compiled, interpreted = np.full((2, etas.size, 8), -1.0)
            tabulate(cloglog.member, etas, y, shift, compiled)
            tabulate.py_func(cloglog.member, etas, y, shift, interpreted)
            np.testing.assert_allclose(compiled, interpreted, rtol=1e-11, atol=1e-14)


def test_exact_minibatch_samples_the_posterior_of_an_expression(cloglog, tmp_path):
    posterior = exact_posterior(cloglog)
    fit = tb.sample(cloglog, "exact-minibatch", draws=6000, warmup=500, chains=4, seed=2, progress=False)
    assert "T10" in fit.why
    for power in (1, 2):
        centred = (fit.theta - posterior.mean) ** power
        wanted = np.zeros(2) if power == 1 else np.diag(posterior.covariance)
        z = (centred.mean((0, 1)) - wanted) / (centred.std((0, 1)) / np.sqrt(effective_sizes(centred)))
        assert np.abs(z).max() < THRESHOLD
    assert fit.evals.mean() < 60
    fit.save(tmp_path / "fit.nc")
    again = tb.load(tmp_path / "fit.nc")
    table = again.predict(np.array([[1.0, 0.0], [1.0, 2.0]]))
    inner = 1.0 - np.exp(-np.exp(fit.theta.reshape(-1, 2) @ np.array([[1.0, 1.0], [0.0, 2.0]])))
    np.testing.assert_allclose(table["mean"], inner.mean(0), atol=0.02)
    response = again.predict(np.array([[1.0, 0.0], [1.0, 2.0]]), kind="response", prob=0.5)
    np.testing.assert_array_equal(response["mean"], table["mean"])
    np.testing.assert_array_equal(response["lower"], 1.0 - table["mean"] < 0.25)  # quantiles of a Bernoulli variable
    np.testing.assert_array_equal(response["upper"], 1.0 - table["mean"] < 0.75)


def test_a_model_is_built_again_from_its_description(cloglog):
    described = json.loads(json.dumps(cloglog.describe()))
    again = tb.models.build(described["family"], cloglog.data, tb.priors.normal(2.0), **described["options"])
    theta = np.array([0.3, -0.2])
    assert again.log_posterior(theta) == cloglog.log_posterior(theta)
    assert again.describe() == cloglog.describe()
    np.testing.assert_array_equal(again.member.table, cloglog.member.table)


def test_a_run_is_resumed(cloglog, tmp_path):
    whole = tb.sample(cloglog, ExactMinibatch(), draws=60, warmup=50, chains=1, seed=4, progress=False)
    tb.sample(cloglog, ExactMinibatch(), draws=30, warmup=50, chains=1, seed=4, progress=False, checkpoint=tmp_path / "run")
    resumed = tb.resume(tmp_path / "run", model=cloglog, draws=60, progress=False)
    np.testing.assert_array_equal(resumed.theta, whole.theta)


def test_a_wrong_certificate_is_a_hard_error(cloglog):
    table = 0.05 * cloglog.member.table
    wrong = tb.models.Model(cloglog.data, cloglog.family, cloglog.member._replace(table=table), tb.priors.normal(2.0))
    with pytest.raises(tb.errors.CertificateError):
        tb.sample(wrong, "exact-minibatch", draws=3000, chains=1, seed=1, progress=False)


NORMAL = "-log_scale - log(2*pi)/2 - ((y - eta)/exp(log_scale))**2/2"
CAUCHY = "-log(pi*s) - log(1 + ((y - eta)/s)**2)"
GAMMA = "k*log(k) - lgamma(k) - k*eta + (k - 1)*log(y) - k*y*exp(-eta)"


@pytest.mark.parametrize(
    "options, law",
    [
        ({"expression": NORMAL}, stats.norm(0.7, np.exp(-1.5))),
        ({"expression": CAUCHY, "constants": {"s": 1e-6}}, stats.cauchy(0.7, 1e-6)),
        ({"expression": CAUCHY, "constants": {"s": 1e5}}, stats.cauchy(0.7, 1e5)),
        ({"expression": GAMMA, "constants": {"k": 0.2}, "support": "positive"}, stats.gamma(0.2, scale=5 * np.exp(0.7))),
        ({"expression": GAMMA, "constants": {"k": 500.0}, "support": "positive"}, stats.gamma(500.0, scale=np.exp(0.7) / 500)),
    ],
    ids=["normal, unknown scale", "narrow Cauchy", "wide Cauchy", "gamma 0.2", "gamma 500"],
)
def test_responses_have_the_law_of_the_expression(options, law):
    drawn = simulator(options)(np.random.default_rng(1), np.full(20_000, 0.7), np.full(20_000, -1.5))
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-6
    off = law.ppf(0.5) + 1.15 * (drawn - law.ppf(0.5))  # the mutant: 15 % too wide
    assert stats.kstest(off, law.cdf).pvalue < 1e-6


@pytest.mark.parametrize("tau", [-1.0, 0.5])
def test_counts_have_the_law_of_the_expression(tau):
    inflated = "where(y == 0, log(p + (1 - p)*exp(-exp(eta))), log(1 - p) + y*eta - exp(eta) - lgamma(y + 1))"
    eta = np.where(np.arange(40_000) % 2 == 0, tau, 3.0)
    drawn = simulator({"expression": inflated, "constants": {"p": 0.3}, "support": "count"})(
        np.random.default_rng(2), eta, np.zeros(eta.size)
    )[::2]
    expected = 0.7 * stats.poisson(np.exp(tau)).pmf(np.arange(4)) + [0.3, 0, 0, 0]
    found = np.array([(drawn == k).mean() for k in range(4)])
    assert (np.abs(found - expected) < THRESHOLD * np.sqrt(expected * (1 - expected) / drawn.size)).all()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"expression": "y*eta - exp(eta)", "support": "count"}, r"sum to .* at eta = 0, not to 1. Add .* lgamma\(y \+ 1\)"),
        ({"expression": "-(y - eta)**2"}, "its integral is 1.772, not 1"),
        ({"expression": "y*eta - exp(eta)", "support": "positive"}, "this one is none of these. Give function="),
        ({"expression": "-abs(y)*exp(eta)"}, "this one is none of these"),
    ],
)
def test_responses_of_what_is_no_density_are_refused(options, message):
    with pytest.raises(tb.ModelError, match=message):
        simulator(options)(np.random.default_rng(0), np.zeros(3), np.zeros(3))


def test_predicted_counts_follow_the_built_in_family():
    rng = np.random.default_rng(8)
    X = np.column_stack([np.ones(400), rng.standard_normal(400)])
    data = tb.Dataset.from_arrays(X, rng.poisson(np.exp(X @ [0.4, 0.3])), offset=np.full(400, 0.2))
    model = tb.models.family("y*eta - exp(eta) - lgamma(y + 1)", data, tb.priors.normal(2.0), support="count", mean="exp(eta)")
    fits = [
        tb.sample(m, "hmc", draws=250, warmup=100, chains=2, seed=1, progress=False)
        for m in (model, tb.models.poisson(data, tb.priors.normal(2.0)))
    ]
    tables = [f.predict(X[:6], "response", draws=500, offset=np.full(6, 0.2)) for f in fits]
    np.testing.assert_allclose(tables[0]["mean"], tables[1]["mean"], rtol=1e-6)
    assert np.abs(tables[0][["lower", "upper"]] - tables[1][["lower", "upper"]]).values.max() <= 1.0
    fits[0].meta["model"]["options"]["mean"] = None
    without = fits[0].predict(X[:6], "response", draws=500, offset=np.full(6, 0.2))  # the average of what was drawn
    assert (np.abs(without["mean"] - tables[0]["mean"]) < THRESHOLD * np.sqrt(tables[0]["mean"] / 500) * 1.3).all()


def test_a_model_without_a_mean_cannot_predict():
    model = tb.models.family("y*eta - exp(eta)", COUNTS)
    with pytest.raises(tb.ModelError, match="give mean="):
        model.family.mean(np.zeros(2))
    model = tb.models.family("y*eta - k*exp(eta)", COUNTS, constants={"k": 2.0}, mean="k*exp(eta)")
    np.testing.assert_allclose(model.family.mean(np.array([0.0, 1.0])), [2.0, 2.0 * np.e])
    with pytest.warns(tb.TallbayesWarning, match="mean='2' is 2 at eta = -0.7"):
        constant = tb.models.family("y*eta - exp(eta)", COUNTS, mean="2")
    assert constant.family.mean(np.zeros((3, 2))).shape == (3, 2)


@pytest.mark.filterwarnings("ignore:the expression is not a log density")
def test_the_user_is_told_where_an_expression_overflows():
    with pytest.warns(tb.TallbayesWarning, match="overflows or cancels at eta"):
        tb.models.family("y*eta - exp(40*eta)", COUNTS)


CACHED = """
import numpy as np
import tallbayes as tb
from tallbayes.engine import passes

data = tb.Dataset.from_arrays(np.ones((2, 1)), [0.0, 1.0])
model = tb.models.family("TEXT", data, constants={"k": CONSTANT})
print(passes.total_value(model.rows, np.zeros(1)), sum(passes._value.stats.cache_hits.values()))
"""


def test_compiled_code_is_kept_on_disk_by_expression(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def run(text, constant):
        script = CACHED.replace("TEXT", text).replace("CONSTANT", str(constant))
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return [float(word) for word in done.stdout.split()]

    assert run("y*eta - k*exp(eta)", 2.0) == [-4.0, 0]
    assert run("y*eta - k*exp(eta)", 3.0) == [-6.0, 1]
    assert run("y*eta - k*k*exp(eta)", 3.0) == [-18.0, 0]


ABSENT = """
import sys
sys.modules.update(dict.fromkeys(("sympy", "flint")))
import numpy as np
import tallbayes as tb
data = tb.Dataset.from_arrays(np.ones((2, 1)), [0.0, 1.0])
print(tb.models.logistic(data))
try:
    tb.models.family("y*eta - exp(eta)", data)
except tb.OptionError as error:
    print(error)
"""


def test_without_the_extra_everything_else_works():
    done = subprocess.run([sys.executable, "-c", ABSENT], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("Model(logistic")
    assert "sympy and python-flint" in second and "tallbayes[families]" in second
