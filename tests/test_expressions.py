"""Families from one expression: the grammar, the generated code beside SymPy and the built-in families, and sampling."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.samplers import ExactMinibatch
from tallbayes.testing import THRESHOLD, effective_sizes, exact_posterior

CLOGLOG = "y*log(1 - exp(-exp(eta))) - (1 - y)*exp(eta)"


def dataset(y, seed=0):
    y = np.asarray(y, float)
    X = np.column_stack([np.ones(y.size), np.random.default_rng(seed).standard_normal(y.size)])
    return tb.Dataset.from_arrays(X, y)


BINARY, COUNTS = dataset([0, 1] * 10), dataset([0, 1, 2, 3, 0, 5, 1, 9])


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


# Sampling, files and the compile cache. All models here share one expression, so that it is compiled once.


@pytest.fixture(scope="module")
def cloglog():
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(300), rng.standard_normal(300)])
    y = (rng.random(300) < 1.0 - np.exp(-np.exp(X @ [-0.5, 0.8]))).astype(float)
    data = tb.Dataset.from_arrays(X, y)
    return tb.models.family(CLOGLOG, data, tb.priors.normal(2.0), mean="1 - exp(-exp(eta))", support="binary")


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
