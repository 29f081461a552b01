"""Likelihoods and priors behind addresses: exceptions, threads, other processes, and the same code for all models."""

import os
import pickle
import subprocess
import sys
import textwrap
import traceback

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallbayes as tb
from tallbayes.compile import SUMS, jit
from tallbayes.engine import callbacks, passes
from tallbayes.engine.gradients import control_gradient
from tallbayes.engine.residuals import add_slopes, residual_slopes, slope_count
from tallbayes.engine.rows import outside_rows
from tallbayes.engine.verb_calls import FAILED
from tallbayes.priors import log_prior_of, prior_gradient, prior_value
from tallbayes.run.chain import Chain
from tallbayes.samplers import advance

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
QUIET = {"seed": 1, "progress": False}


def along_predictor(theta, row):
    eta = row["x"] @ theta
    return row["y"] * eta - jax.nn.softplus(eta)


def with_rows(theta, row):
    """A product with the design row, which the likelihood sees besides."""
    eta = row["x"] @ theta + 0.1 * row["x1"]
    return row["y"] * eta - jax.nn.softplus(eta)


def spelled_out(theta, row):
    eta = jnp.sum(row["x"] * theta)
    return row["y"] * eta - jax.nn.softplus(eta)


def data_of(n=200, dtype="float64"):
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    return tb.Dataset.from_arrays(X, (rng.random(n) < 0.5).astype(float), weights=rng.integers(0, 3, n), dtype=dtype)


def own_prior(theta):
    return -0.5 * jnp.sum(theta**2) / 4.0 - jnp.log1p(theta[0] ** 2)


def model_of(kind, dtype="float64"):
    if kind == "arma":
        return tb.models.arma(np.random.default_rng(0).standard_normal(200), p=2, q=1, lead=10)
    if kind == "class_gaussian":
        return tb.models.class_gaussian(data_of(dtype=dtype), tb.priors.normal(2.0), classes=2)
    if kind == "logistic":
        return tb.models.logistic(data_of(dtype=dtype), tb.priors.normal(2.0))
    functions = {"along": along_predictor, "with rows": with_rows, "spelled out": spelled_out, "own prior": along_predictor}
    prior = own_prior if kind == "own prior" else tb.priors.normal(2.0)
    return tb.models.from_jax(functions[kind], data_of(dtype=dtype), prior, dim=3)


OUTSIDE = ("arma", "class_gaussian", "along", "with rows", "spelled out")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", OUTSIDE)
def test_the_table_gives_the_same_interpreted(kind, dtype):
    if (kind, dtype) == ("arma", "float32"):
        pytest.skip("a series is kept in double precision")
    model = model_of(kind, dtype)
    rows, theta = model.rows, np.linspace(-0.3, 0.4, model.dim)
    assert rows.outside != 0 and rows.records.dtype == (np.float64 if kind == "arma" else np.dtype(dtype))
    found = []
    for speed in (lambda f: f, lambda f: f.py_func):
        gradient, hessian, scores = np.zeros(model.dim), np.zeros((model.dim, model.dim)), np.empty((40, model.dim))
        value = speed(passes._hessian)(rows, 5, 120, theta, gradient, hessian)
        speed(passes._scores)(rows, 60, 100, theta, scores)
        parts = [value, gradient, np.tril(hessian), scores, speed(passes._value)(rows, 5, 120, theta)]
        if model.exchangeable:
            index, other = np.arange(0, 60, 3), np.zeros(model.dim)
            out = np.empty(index.size)
            speed(passes._values)(rows, index, theta, out)
            parts += [out.copy(), speed(passes._indexed_gradient)(rows, index, np.ones(index.size), theta, other), other]
        found.append(parts)
    assert rows.answers[FAILED] == 0.0
    for compiled, interpreted in zip(*found, strict=True):
        np.testing.assert_allclose(compiled, interpreted, rtol=1e-11, atol=1e-11)
    assert found[0][0] == pytest.approx(found[0][4], rel=1e-12)


@pytest.mark.parametrize("kind", ["logistic", "own prior", "arma"])
def test_a_prior_by_address_is_the_prior(kind):
    terms, theta = model_of(kind).prior_terms, np.linspace(-0.3, 0.4, model_of(kind).dim)
    prior = log_prior_of(terms)
    first, second = np.ones(theta.size), np.ones(theta.size)
    assert prior_value(prior, theta) == prior_value(terms, theta)
    assert prior_gradient(prior, theta, first) == prior_gradient(terms, theta, second)
    np.testing.assert_array_equal(first, second)
    target = tb.samplers.resolve("mh").setup(model_of(kind), tb.find_mode(model_of(kind), progress=False), 1, False).target()
    assert type(target.prior) is type(prior) and target.prior.p[-1] == 0.0


@pytest.mark.filterwarnings("ignore::tallbayes.errors.TallbayesWarning")
def test_samplers_are_compiled_once_for_all_models():
    def run(kind):
        tb.sample(model_of(kind), "mh", draws=3, warmup=3, chains=1, **QUIET)
        return len(advance.signatures)

    first = run("logistic")
    assert [run(kind) for kind in (*OUTSIDE, "own prior")] == [first] * 6


class Mine(Exception):
    """What a user's function raises."""


def breakable(switch):
    def log_lik(theta, row):
        if switch["broken"]:
            raise Mine("my own mistake")
        return spelled_out(theta, row)

    return log_lik


def trace_of(error):
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.filterwarnings("ignore::tallbayes.errors.TallbayesWarning")
def test_an_exception_in_a_chunk_reaches_the_user_and_ends_the_chain():
    switch = {"broken": False}
    model = tb.models.from_jax(breakable(switch), data_of(), tb.priors.normal(2.0), dim=3)
    mode, sampler = tb.find_mode(model, progress=False), tb.samplers.HMCECS(subsample=150)
    chain = Chain(0, sampler, sampler.setup(model, mode, 1, False), np.random.SeedSequence(1), mode.reference, 0, 1)
    switch["broken"] = True  # the program of slopes is traced when the chain asks for it first
    with pytest.raises(Mine, match="my own mistake") as raised:
        chain.chunk(10)
    assert "log_lik" in trace_of(raised.value)
    assert chain.draws == 0
    switch["broken"] = False
    fit = tb.sample(model, sampler, draws=3, warmup=3, chains=1, mode=mode, **QUIET)  # nothing is left of it
    assert np.isfinite(fit.theta).all()


@pytest.mark.filterwarnings("ignore::tallbayes.errors.TallbayesWarning")
@pytest.mark.parametrize("name", ["mh", "nuts", "slice"])
def test_draws_before_an_exception_are_kept(name, monkeypatch):
    """A prior that fails after some calls: the chain ends within its iteration, whatever the move does with NaN."""
    model = model_of("own prior")
    mode, sampler = tb.find_mode(model, progress=False), tb.samplers.resolve(name)
    chain = Chain(0, sampler, sampler.setup(model, mode, 1, False), np.random.SeedSequence(1), mode.reference, 0, 1)
    chain.chunk(1)
    known, calls = chain.theta[0].copy(), []

    def fails(prior, theta, *rest):
        calls.append(1)
        if len(calls) > 3:
            raise Mine("no density")
        return prior_gradient(prior, theta, *rest) if rest else prior_value(prior, theta)

    from tallbayes.models import jax_prior

    monkeypatch.setattr(jax_prior, "prior_value", fails)
    monkeypatch.setattr(jax_prior, "prior_gradient", fails)
    chain.per_second = 1e6  # a long chunk
    with pytest.raises(Mine, match="no density"):
        chain.chunk(10_000)
    assert len(calls) < 500
    np.testing.assert_array_equal(chain.collected()[0], known)


def test_an_exception_in_a_pass_reaches_the_user():
    switch = {"broken": False}
    model = tb.models.from_jax(breakable(switch), data_of(), tb.priors.normal(2.0), dim=3)
    switch["broken"] = True
    for ask in (model.log_posterior, model.gradient, model.curvature):
        with pytest.raises(Mine, match="my own mistake") as raised:
            ask(np.zeros(3))
        assert "log_lik" in trace_of(raised.value)
    with pytest.raises(Mine):
        tb.sample(model, "mh", draws=3, warmup=3, chains=2, **QUIET)
    switch["broken"] = False
    assert np.isfinite(model.log_posterior(np.zeros(3)))


def test_a_verb_that_a_likelihood_does_not_have_is_an_error():
    with pytest.raises(tb.ModelError, match="status 1"):
        passes.proxies_at(model_of("class_gaussian").rows, np.arange(3), np.zeros(8), np.zeros(8), 1)


@pytest.mark.filterwarnings("ignore::tallbayes.errors.TallbayesWarning")
@pytest.mark.parametrize("kind", ["own prior", "spelled out"])
def test_chains_in_two_threads_are_those_in_one(kind):
    model = model_of(kind)
    mode, sampler = tb.find_mode(model, progress=False), tb.samplers.HMCECS(subsample=150)
    options = {"draws": 30, "warmup": 30, "chains": 2, "mode": mode, **QUIET}
    one, two = (tb.sample(model, sampler, cores=cores, **options) for cores in (1, 2))
    np.testing.assert_array_equal(one.theta, two.theta)


@pytest.mark.parametrize("kind", ["arma", "class_gaussian", "logistic"])
def test_a_copied_model_has_addresses_of_its_own(kind):
    model = model_of(kind)
    theta = np.linspace(-0.3, 0.4, model.dim)
    value = model.log_posterior(theta)
    copy = pickle.loads(cloudpickle.dumps(model))
    assert "rows" in vars(model) and "rows" not in vars(copy)
    assert copy.log_posterior(theta) == value
    assert copy.rows.p.ctypes.data != model.rows.p.ctypes.data
    if kind != "logistic":
        with pytest.raises(TypeError, match="send the model"):
            pickle.dumps(model.rows)
    with pytest.raises(TypeError, match="send the model"):
        pickle.dumps(log_prior_of(model.prior_terms))


MODULE = """
import numpy as np, tallbayes as tb
def log_lik(theta, row):
    return -0.5 * (row["y"] - row["x"] @ theta) ** 2
def log_prior(theta):
    return -0.5 * theta @ theta
def made(kind):
    X = np.column_stack([np.ones(50), np.arange(50.0) / 50.0])
    data = tb.Dataset.from_arrays(X, np.arange(50.0) % 2)
    if kind == "jax":
        return tb.models.from_jax(log_lik, data, log_prior, dim=2)
    if kind == "class_gaussian":
        return tb.models.class_gaussian(data, sigma=1.0)
    return tb.models.arma(np.sin(np.arange(60.0)) + np.arange(60.0) % 3, p=1, q=1, sigma=1.0)
"""


@pytest.mark.parametrize("kind", ["jax", "class_gaussian", "arma"])
def test_another_process_makes_its_own_addresses(kind, tmp_path):
    (tmp_path / "written.py").write_text(MODULE)
    code = textwrap.dedent(
        f"""
        import cloudpickle, pickle, sys, numpy as np
        import written
        if sys.argv[1] == "send":
            model = written.made({kind!r})
            theta = np.full(model.dim, 0.2)
            expected = model.log_posterior(theta), model.gradient(theta)[1]
            cloudpickle.dump((model, theta, *expected), open(sys.argv[2], "wb"))
        else:
            bytes(10**7)  # memory is used in another way
            model, theta, value, gradient = pickle.load(open(sys.argv[2], "rb"))
            assert model.log_posterior(theta) == value
            np.testing.assert_array_equal(model.gradient(theta)[1], gradient)
            print("same")
        """
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    for step in ("send", "receive"):
        command = [sys.executable, "-c", code, step, str(tmp_path / "model.pickle")]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
        assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "same"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("kind", ["class_gaussian", "arma"])
def test_a_forked_process_goes_on_with_its_addresses(kind, tmp_path):
    (tmp_path / "written.py").write_text(MODULE)
    code = textwrap.dedent(
        f"""
        import os, sys, numpy as np
        import written
        model = written.made({kind!r})
        theta = np.full(model.dim, 0.2)
        value = model.log_posterior(theta)
        child = os.fork()
        if child == 0:
            os._exit(0 if model.log_posterior(theta) == value == written.made({kind!r}).log_posterior(theta) else 3)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("function", [along_predictor, spelled_out], ids=lambda f: f.__name__)
def test_ten_thousand_coordinates_are_no_trouble(function):
    rng, n, d = np.random.default_rng(0), 30, 10_000
    X = rng.standard_normal((n, d)) / np.sqrt(d)
    model = tb.models.from_jax(function, tb.Dataset.from_arrays(X, np.arange(n) % 2.0), tb.priors.normal(1.0), dim=d)
    theta, reference, index = rng.standard_normal(d), np.zeros(d), np.arange(0, n, 2)
    eta = X @ theta
    rest = np.arange(n) % 2.0 - 1.0 / (1.0 + np.exp(-eta))
    np.testing.assert_allclose(model.gradient(theta)[1], X.T @ rest - theta, atol=1e-9)
    first, second = np.zeros(d), np.zeros(d)
    values, slopes = np.empty(index.size), np.empty((index.size, int(slope_count(model.rows))))
    _control(model.rows, index, theta, reference, values, slopes, first, second)
    np.testing.assert_allclose(first, second, atol=1e-10)
    eta = eta[index]
    expected = -np.logaddexp(0.0, eta) + np.log(2.0) + eta / 2 + eta**2 / 8
    np.testing.assert_allclose(values, expected, atol=1e-10)


@jit(options=SUMS)
def _control(rows, index, theta, reference, values, slopes, first, second):
    factors = np.ones(index.size)
    residual_slopes(rows, index, theta, reference, 2, values, slopes)
    add_slopes(rows, index, slopes, factors, first)
    control_gradient(rows, index, factors, theta, reference, 2, second)


def test_functions_are_forgotten_with_their_numbers():
    before = len(callbacks._FUNCTIONS)
    p = callbacks.numbered(lambda block: None, np.zeros(2))
    rows = outside_rows(np.zeros((1, 4)), 1, p, 1, 0)
    assert len(callbacks._FUNCTIONS) == before + 1
    del p, rows
    assert len(callbacks._FUNCTIONS) == before
