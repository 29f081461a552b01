"""Internals of `tallbayes.engine.jax_rows`; what users see of it is tested in test_jax_models.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallbayes as tb
from tallbayes.engine import passes
from tallbayes.engine.gradients import control_gradient
from tallbayes.engine.jax_rows import SIZES
from tallbayes.engine.residuals import add_curvatures, add_slopes, control_residuals, residual_slopes, slope_count

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def logistic(theta, row):
    eta = row["x"] @ theta + row["offset"]
    return row["y"] * eta - jax.nn.softplus(eta)


def spelled_out(theta, row):
    """The same, as no product of the whole row with theta: gradients of rows are then those of any function."""
    eta = jnp.sum(row["x"] * theta) + row["offset"]
    return row["y"] * eta - jax.nn.softplus(eta)


def data_of(n=300, seed=0, dtype="float64"):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    y = (rng.random(n) < 1 / (1 + np.exp(-X @ [0.2, 0.5, -1.0]))).astype(float)
    return tb.Dataset.from_arrays(X, y, offset=0.1 * rng.standard_normal(n), weights=rng.integers(0, 3, n), dtype=dtype)


@pytest.fixture(scope="module")
def pair():
    data, prior = data_of(), tb.priors.normal(2.0)
    return tb.models.from_jax(logistic, data, prior, dim=3), tb.models.logistic(data, prior)


def test_row_verbs_are_those_of_the_built_in_family(pair):
    model, built_in = pair
    rng = np.random.default_rng(2)
    index, factors = rng.integers(0, 300, 37), rng.standard_normal(37)
    a, b, reference = 0.3 * rng.standard_normal((3, 3))
    for verb, arguments in (
        (passes.values_at, (index, a)),
        (passes.residuals_at, (index, a, b, reference)),
        *((passes.proxies_at, (index, a, reference, order)) for order in (0, 1, 2)),
    ):
        np.testing.assert_allclose(verb(model.rows, *arguments), verb(built_in.rows, *arguments), rtol=1e-9, atol=1e-12)
    for mine, theirs in zip(*(passes.gradient_at(m.rows, index, factors, a) for m in pair), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10)


@pytest.mark.parametrize("count", [20, 200])
def test_rows_held_for_a_trajectory_are_those_of_the_index(pair, count):
    rows, index, theta, reference = pair[0].rows, np.arange(count), np.full(3, 0.2), np.zeros(3)

    def values(rows):
        out, slopes = np.empty(index.size), np.empty((index.size, int(slope_count(rows))))
        residual_slopes(rows, index, theta, reference, 2, out, slopes)
        return out

    for change in (0, 0, 7):  # the second time they are held; an index that is changed in place is another one
        index += change
        np.testing.assert_allclose(values(rows), values(pair[1].rows), rtol=1e-8, atol=1e-13)
    other = rows._replace(records=np.ascontiguousarray(rows.records[::-1]))
    assert np.abs(values(other) - values(rows)).max() > 1e-4


def test_few_programs_are_compiled_whatever_the_subsample():
    model = tb.models.from_jax(logistic, data_of(40), tb.priors.flat(), dim=3)
    before, theta = model.program.programs, np.zeros(3)
    for m in (*range(1, 400, 7), 9000):
        passes.values_at(model.rows, np.zeros(m, np.int64), theta)
    assert model.program.programs - before <= len(SIZES)


@pytest.mark.parametrize("function", [logistic, spelled_out])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_control_variates_are_those_of_the_built_in_family(pair, order, function):
    pair = tb.models.from_jax(function, pair[0].data, tb.priors.normal(2.0), dim=3), pair[1]
    rng = np.random.default_rng(4)
    index, factors = rng.integers(0, 300, 37), rng.standard_normal(37)
    theta, reference = 0.3 * rng.standard_normal((2, 3))
    found = []
    for model in pair:
        rows, gradient, other, hessian = model.rows, np.zeros(3), np.zeros(3), np.zeros((3, 3))
        values, slopes = np.empty(37), np.empty((37, int(slope_count(rows))))
        residual_slopes(rows, index, theta, reference, order, values, slopes)
        add_slopes(rows, index, slopes, factors, gradient)
        control_gradient(rows, index, factors, theta, reference, order, other)
        add_curvatures(rows, index, factors, theta, hessian)
        found.append((values, control_residuals(rows, index, theta, reference, order), gradient, other, np.tril(hessian)))
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-11)


@pytest.mark.filterwarnings("ignore::tallbayes.errors.TallbayesWarning")
def test_both_kinds_of_slopes_give_the_same_draws(pair):
    """One slope for each row where theta enters by the linear predictor alone, and one for each coordinate otherwise."""
    models = pair[0], tb.models.from_jax(spelled_out, pair[0].data, tb.priors.normal(2.0), dim=3)
    assert [int(slope_count(m.rows)) for m in models] == [1, 3]
    sampler = tb.samplers.HMCECS(subsample=200)
    fits = [tb.sample(m, sampler, draws=20, warmup=20, chains=1, seed=3, progress=False) for m in models]
    np.testing.assert_allclose(fits[0].theta, fits[1].theta, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(fits[0].evals, fits[1].evals)


@pytest.mark.parametrize(
    "function",
    [
        lambda theta, row: -((row["y"] - row["x"] @ theta) ** 2) + theta[0],
        lambda theta, row: -((row["y"] - row["x"] @ (2.0 * theta)) ** 2),
        lambda theta, row: -((row["y"] - row["y"] * jnp.ones(3) @ theta) ** 2),
        lambda theta, row: -jnp.exp(row["x"] @ theta) + row["x"][::-1] @ theta,
        lambda theta, row: -((row["y"] - theta @ theta) ** 2),
    ],
    ids=["theta elsewhere", "theta scaled", "no design row", "two products", "theta with itself"],
)
def test_other_uses_of_theta_are_no_linear_predictor(function):
    model = tb.models.from_jax(function, data_of(60), tb.priors.normal(2.0), dim=3)
    rows, theta, index = model.rows, np.array([0.3, -0.2, 0.1]), np.arange(40)
    assert slope_count(rows) == 3
    values, slopes, gradient, expected = np.empty(40), np.empty((40, 3)), np.zeros(3), np.zeros(3)
    residual_slopes(rows, index, theta, np.zeros(3), 2, values, slopes)
    add_slopes(rows, index, slopes, np.ones(40), gradient)
    control_gradient(rows, index, np.ones(40), theta, np.zeros(3), 2, expected)
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-11)
