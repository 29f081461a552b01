"""Internals of `tallbayes.models.expressions.builder`; what users see of it is tested in test_expressions.py."""

import os
import subprocess
import sys

import numpy as np
import pytest
import sympy as sp

import tallbayes as tb
from tallbayes.compile import jit
from tallbayes.engine.family_functions import jet1, jet2, residual, third, third_supremum, third_supremum_on, value
from tallbayes.engine.several_functions import vector_gradient, vector_hessian, vector_value
from tallbayes.families.gaussian import GaussianScale
from tallbayes.models.expressions.builder import OWN_FIELDS, member_type
from tallbayes.models.expressions.generate import fields, source
from tallbayes.models.expressions.grammar import ETA, FUNCTIONS, LOG_SCALE, Y, parse
from tallbayes.models.expressions.special_functions import elementary
from tallbayes.models.expressions.stabilise import stabilised

CLOGLOG = "y*log(1 - exp(-exp(eta))) - (1 - y)*exp(eta)"


def dataset(y, seed=0):
    y = np.asarray(y, float)
    X = np.column_stack([np.ones(y.size), np.random.default_rng(seed).standard_normal(y.size)])
    return tb.Dataset.from_arrays(X, y)


BINARY, COUNTS = dataset([0, 1] * 10), dataset([0, 1, 2, 3, 0, 5, 1, 9])
REAL = dataset(np.random.default_rng(1).standard_normal(40))


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


CACHED = """
import numpy as np
import tallbayes as tb
from tallbayes import pointers
from tallbayes.engine import passes

data = tb.Dataset.from_arrays(np.ones((2, 1)), [0.0, 1.0])
model = tb.models.family("TEXT", data, constants={"k": CONSTANT})
value = passes.total_value(model.rows, np.zeros(1))
print(value, sum(made.cache_hits for made in pointers._POINTERS if made._pyfunc.__name__ == "jet"))
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
