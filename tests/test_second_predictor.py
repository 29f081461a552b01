"""Families with a second linear predictor: zero-inflated and hurdle counts, and standard deviations that depend on columns."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import optimize, stats

import tallbayes as tb


def columns_of(n, seed=1):
    rng = np.random.default_rng(seed)
    return rng, np.column_stack([np.ones(n), rng.standard_normal(n)]), np.column_stack([np.ones(n), rng.standard_normal(n)])


def counts_of(name, n, seed=1):
    """Responses, and both designs."""
    rng, X, Z = columns_of(n, seed)
    rate = np.exp(X @ [0.5, 0.4])
    rate = rate if name.endswith("poisson") else rate * rng.standard_gamma(2.0, n) / 2.0
    y, zero = rng.poisson(rate), rng.random(n) < 1.0 / (1.0 + np.exp(0.5 - 0.8 * Z[:, 1]))
    if name.startswith("hurdle"):
        y = np.where(y == 0, 1 + (rng.random(n) < 0.2), y)
    return np.where(zero, 0, y), X, Z


def dataset(y, X, Z, name="zi"):
    return tb.Dataset.from_arrays(np.hstack([X, Z]), y, columns=["Intercept", "x", f"{name}_Intercept", f"{name}_z"])


@pytest.mark.parametrize("nu", [np.inf, *(pytest.param(nu, marks=pytest.mark.slow) for nu in (5.0, None))])
def test_predicted_scales_against_scipy(nu):
    rng, X, Z = columns_of(2000)
    noise = rng.standard_normal(2000) if nu == np.inf else rng.standard_t(5.0, 2000)
    y = X @ [1.0, 0.5] + np.exp(Z @ [-0.3, 0.6]) * noise

    def loss(v):
        mean, scale = X @ v[:2], np.exp(Z @ v[2:4])
        law = stats.norm(mean, scale) if nu == np.inf else stats.t(np.exp(v[4]) if nu is None else nu, mean, scale)
        return -law.logpdf(y).sum()

    data, names = dataset(y, X, Z, "sigma"), ["sigma_Intercept", "sigma_z"]
    if nu == np.inf:
        model = tb.models.gaussian(data, tb.priors.flat(), sigma=names)
    else:
        prior = {"default": tb.priors.flat(), "log_nu": tb.priors.flat()} if nu is None else tb.priors.flat()
        model = tb.models.student_t(data, prior, nu=nu, sigma=names)
    mode = tb.find_mode(model, progress=False)
    best = optimize.minimize(loss, mode.reference + 0.02, method="BFGS", options={"gtol": 1e-4})
    assert mode.reference == pytest.approx(best.x, abs=2e-3)
    whole = model.log_posterior(mode.reference) + model.family.log_normaliser(model.member, y).sum()
    assert whole == pytest.approx(-loss(mode.reference), rel=1e-9)
    step, found = 1e-4, np.empty((model.dim, model.dim))
    for i, a in enumerate(step * np.eye(model.dim)):
        for j, b in enumerate(step * np.eye(model.dim)):
            v = mode.reference
            found[i, j] = (loss(v + a + b) - loss(v + a - b) - loss(v - a + b) + loss(v - a - b)) / (4.0 * step**2)
    assert mode.laplace().sd == pytest.approx(np.sqrt(np.diag(np.linalg.inv(found))), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["nuts", "hmc-ecs", "exact-minibatch"])
def test_samplers_agree_on_counts_of_unknown_size(sampler):
    y, X, Z = counts_of("hurdle_negbin", 4000)
    model = tb.models.hurdle_negbin(dataset(y, X, Z))
    fit = tb.sample(model, sampler, draws=1000, warmup=300, chains=2, seed=1, progress=False)
    mode = tb.find_mode(model, progress=False)
    assert np.abs((fit.theta.mean((0, 1)) - mode.reference) / mode.laplace().sd).max() < 0.6
    assert np.abs(fit.theta.std((0, 1)) / mode.laplace().sd - 1.0).max() < 0.35
    assert set(fit.derived()) == {"size"}


def table_of(n=600, seed=5):
    y, X, Z = counts_of("zero_inflated_poisson", n, seed)
    group = np.array(["a", "b", "c"])[np.random.default_rng(seed).integers(0, 3, n)]
    return pa.table({"y": y, "x": X[:, 1], "z": Z[:, 1], "g": group})


def test_rows_of_two_formulas_in_stores(tmp_path):
    pq.write_table(table_of(), tmp_path / "rows.parquet")
    what = {"zi": "~ C(g)", "progress": False}
    memory = tb.read(tmp_path / "rows.parquet", "y ~ x", **what)
    store = tb.read(tmp_path / "rows.parquet", "y ~ x", store=tmp_path / "store", **what)
    assert store.store is not None and store.columns == memory.columns
    np.testing.assert_array_equal(store.records, memory.records)
    again = tb.read(store.store, "y ~ x", zi="~ C(g)")
    assert tb.models.hurdle_poisson(again, zi="~ C(g)").names == (*memory.columns,)
    with pytest.raises(tb.DataError, match=r"was packed with zi '~ C\(g\)', not '~ z'"):
        tb.read(store.store, "y ~ x", zi="~ z")
    streamed = tb.read(pa.RecordBatchReader.from_batches(table_of().schema, table_of().to_batches()), "y ~ x", **what)
    np.testing.assert_array_equal(streamed.records, memory.records)
    merged = tb.read(table_of(), "y ~ g", zi="~ C(g)", merge=True, progress=False)
    assert merged.n < 60 and tb.models.zero_inflated_poisson(merged).second == 3


def test_missing_values_of_either_formula_drop_a_row():
    table = pa.table({"y": [0, 1, 2, 0], "x": [1.0, None, 2.0, 0.0], "z": [0.0, 1.0, None, 2.0]})
    data = tb.read(table, "y ~ x", zi="~ z", na="drop", progress=False)
    assert (data.n, data.dropped) == (2, 2)
    with pytest.raises(tb.DataError, match="missing"):
        tb.read(table, "y ~ 1", zi="~ z", progress=False)


def test_what_is_refused():
    data = tb.read(table_of(), "y ~ x", zi="~ z", progress=False)
    plain = tb.read(table_of(), "y ~ x", progress=False)
    build, names = tb.models.zero_inflated_poisson, ["Intercept", "sigma_Intercept"]
    grouped = tb.Dataset.from_arrays(np.ones((60, 2)), np.arange(60.0), columns=names, groups={"g": np.arange(60) % 5})
    for call, error, message in (
        (lambda: tb.models.poisson(data), tb.ModelError, "a second predictor that this poisson model does not have"),
        (lambda: build(plain), tb.OptionError, "no columns of the predictor zi"),
        (lambda: build(data, zi="~ x"), tb.OptionError, "is not the formula that the rows were read with"),
        (
            lambda: build(data, tb.priors.flat()),
            tb.ModelError,
            "'zi_Intercept' has a flat prior, under which the posterior is improper",
        ),
        (lambda: build(data, zi=3), tb.OptionError, "zi must be a text or a list of texts or None; got 3"),
        (lambda: tb.fit("y ~ x", table_of(), "hurdle_poisson", zi=3), tb.OptionError, "zi= is a formula"),
        (lambda: build(data, zi=["x"]), tb.OptionError, "names the last columns"),
        (lambda: build(data, zi=list(data.columns)), tb.OptionError, "the first predictor needs at least one"),
        (lambda: build(data, {"zi_y": tb.priors.normal(1.0)}), tb.OptionError, "did you mean 'zi_z'"),
        (lambda: tb.read(table_of(), "y ~ x", zi="y ~ z"), tb.OptionError, "a formula without a response"),
        (lambda: tb.read(table_of(), "y ~ x", zi="~ 0"), tb.DataError, "leaves no predictor"),
        (lambda: tb.read(table_of(), "y ~ x", zi="~ z", sigma="~ x"), tb.OptionError, "one second predictor"),
        (lambda: tb.read(table_of(), "y ~ x", zi="~ (1 | g)"), tb.DataError, "group effects are not available in a second"),
        (lambda: tb.read(table_of(), "y ~ x + (1 | g)", zi="~ z"), tb.OptionError, "together with group effects"),
        (lambda: tb.models.gaussian(grouped, sigma=["sigma_Intercept"]), tb.ModelError, "together with group effects"),
        (lambda: tb.models.student_t(data, scale=1.0, sigma="~ z"), tb.OptionError, "not both"),
    ):
        with pytest.raises(error, match=message):
            call()


def test_the_default_prior_of_a_second_predictor():
    data = tb.read(table_of(), "y ~ x", zi="~ z", progress=False)
    model = tb.models.zero_inflated_poisson(data)
    terms = model.prior_terms
    assert terms.scale[2] == 2.5 and terms.location[2] == 0.0 and terms.kind[2] == tb.priors.NORMAL
    assert terms.centre[2:].tolist() == [0.0, 0.0] and terms.intercept == 0
    named = tb.models.zero_inflated_poisson(data, {"zi_z": tb.priors.normal(0.3), "zi_Intercept": tb.priors.normal(7.0)})
    assert named.prior_terms.scale[2:].tolist() == [7.0, 0.3]
    shifted = tb.Dataset.from_arrays(
        np.column_stack([np.ones(50), np.ones(50), np.arange(50.0)]),
        1000.0 * np.random.default_rng(1).standard_normal(50),
        columns=["Intercept", "sigma_Intercept", "sigma_x"],
    )
    terms = tb.models.gaussian(shifted, sigma=["sigma_Intercept", "sigma_x"]).prior_terms
    assert terms.location[1] == pytest.approx(np.log(shifted.moments.sd[3]))
    assert terms.scale[2] == pytest.approx(1.25 / shifted.moments.sd[2])  # not in units of y
