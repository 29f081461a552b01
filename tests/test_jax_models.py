"""Models written by users in JAX or NumPyro: the same posterior as the built-in family, and clear errors."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.integrate import quad

import tallbayes as tb
from tallbayes.errors import CertificateError
from tallbayes.models import interval, ordered, positive, real, simplex

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def logistic(theta, row):
    eta = row["x"] @ theta + row["offset"]
    return row["y"] * eta - jax.nn.softplus(eta)


def third(row, radius):
    return (row["x"] @ row["x"]) ** 1.5 / (6.0 * jnp.sqrt(3.0))


def data_of(n=300, seed=0, dtype="float64"):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    y = (rng.random(n) < 1 / (1 + np.exp(-X @ [0.2, 0.5, -1.0]))).astype(float)
    return tb.Dataset.from_arrays(X, y, offset=0.1 * rng.standard_normal(n), weights=rng.integers(0, 3, n), dtype=dtype)


@pytest.fixture(scope="module")
def pair():
    data, prior = data_of(), tb.priors.normal(2.0)
    return tb.models.from_jax(logistic, data, prior, dim=3), tb.models.logistic(data, prior)


def test_values_gradients_and_hessians_are_those_of_the_built_in_family(pair):
    model, built_in = pair
    rng = np.random.default_rng(1)
    for _ in range(5):
        theta = rng.standard_normal(3)
        for mine, theirs in zip(model.curvature(theta), built_in.curvature(theta), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(model.log_posterior(theta), built_in.log_posterior(theta), rtol=1e-12)


def test_float32_rows_are_computed_in_double_precision():
    data = data_of(dtype="float32")
    model = tb.models.from_jax(logistic, data, tb.priors.flat(), dim=3)
    theta = np.array([0.3, -0.2, 0.7])
    assert model.log_posterior(theta) == pytest.approx(
        tb.models.logistic(data, tb.priors.flat()).log_posterior(theta), rel=1e-13
    )
    assert jnp.ones(1).dtype == jnp.float32  # the global switch was left alone


@pytest.mark.parametrize("sampler", ["mh", "nuts", "hmc-ecs", "hmc-ecs-signed"])
def test_both_speeds_give_the_same_draws(pair, sampler):
    fits = [
        tb.sample(m, sampler, draws=20, warmup=20, chains=2, seed=3, progress=False, mode=tb.find_mode(m, progress=False))
        for m in pair
    ]
    np.testing.assert_allclose(fits[0].theta, fits[1].theta, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(fits[0].evals, fits[1].evals)


@pytest.mark.parametrize(
    "transform", [real(2), positive(2), interval(-1.0, 3.0, 2), ordered(3), simplex(4)], ids=lambda t: t.kind
)
def test_jacobians_of_transforms(transform):
    z = np.random.default_rng(0).standard_normal(transform.size)
    step = 1e-6
    columns = [
        (transform.constrain(z + step * e, np) - transform.constrain(z - step * e, np))[: transform.size] / (2 * step)
        for e in np.eye(transform.size)
    ]
    expected = np.log(abs(np.linalg.det(np.array(columns))))
    assert transform.log_jacobian(z, np) == pytest.approx(expected, abs=1e-7)
    wide = np.array([-700.0, 700.0, -40.0, 40.0])[: transform.size]
    if transform.kind in ("interval", "simplex"):
        assert np.isfinite(transform.constrain(wide, np)).all() and np.isfinite(transform.log_jacobian(wide, np))


def waiting_times(theta, row):
    return -row["y"] / theta["scale"] - jnp.log(theta["scale"])


def test_a_prior_on_the_constrained_scale_gets_its_jacobian():
    y = np.random.default_rng(3).exponential(2.0, 4)  # few rows, so that the prior matters

    def prior(theta):
        return -theta["scale"] - 0.5 * jnp.log(theta["scale"])

    model = tb.models.from_jax(waiting_times, tb.Dataset.from_arrays(np.ones((4, 1)), y), prior, params={"scale": "positive"})

    def density(scale):
        return np.exp(-y.sum() / scale - 4 * np.log(scale) - scale - 0.5 * np.log(scale))

    expected = quad(lambda s: s * density(s), 0, 100)[0] / quad(density, 0, 100)[0]
    z = np.linspace(-6, 6, 20_001)
    weight = np.exp([model.log_posterior(np.array([v])) for v in z])
    assert (weight * np.exp(z)).sum() / weight.sum() == pytest.approx(expected, rel=1e-6)
    without = weight * np.exp(-z)  # the mutant: no Jacobian
    assert abs((without * np.exp(z)).sum() / without.sum() / expected - 1.0) > 0.05


def test_named_parameters_reach_arviz_summary_files_and_predictions(tmp_path):
    def normal(theta, row):
        return -jnp.log(theta["sigma"]) - 0.5 * ((row["weight"] - row["x"] @ theta["beta"]) / theta["sigma"]) ** 2

    rng = np.random.default_rng(5)
    X = np.column_stack([np.ones(200), rng.standard_normal(200)])
    data = tb.Dataset.from_arrays(X, X @ [1.0, 2.0] + 0.5 * rng.standard_normal(200), columns=["one", "age"])
    data.response = "weight"
    model = tb.models.from_jax(
        normal, data, tb.priors.normal(5.0), params={"beta": 2, "sigma": "positive"}, coords={"beta": ["one", "age"]}
    )
    fit = tb.sample(model, "nuts", draws=200, warmup=200, chains=2, seed=1, progress=False)
    assert fit.names == ("beta[one]", "beta[age]", "log(sigma)")
    assert fit.idata.posterior["beta"].sel(beta_dim_0="age").shape == (2, 200)
    again = tb.load(fit.save(tmp_path / "fit.nc"))
    assert list(again.summary().index) == ["beta[one]", "beta[age]", "log(sigma)", "sigma"]
    built_in = tb.sample(
        tb.models.gaussian(data, tb.priors.flat()), "nuts", draws=500, warmup=300, chains=2, seed=1, progress=False
    )
    gap = (fit.summary()["mean"].values - built_in.summary()["mean"].values) / built_in.summary()["sd"].values
    assert np.abs(gap).max() < 4.9 * np.sqrt(2 / 150)
    table = again.predict(X[:5], function=lambda theta, row: row["age"] * theta["beta"][1] + theta["beta"][0])
    np.testing.assert_allclose(table["mean"], X[:5] @ fit.theta.reshape(-1, 3)[:, :2].mean(0), atol=0.05)
    with pytest.raises(tb.OptionError, match=r"the mean of .* give function=, a function of \(theta, row\)"):
        again.predict(X[:5])
    with pytest.raises(tb.OptionError, match=r"the response of .* give function=, a function of \(key, theta, row\)"):
        again.predict(X[:5], kind="response")
    with pytest.raises(tb.OptionError, match=r"function= of kind='response' is a function of \(key, theta, row\)"):
        again.predict(X[:5], kind="response", function=lambda theta, row: 0.0)

    def draw(key, theta, row):
        return row["x"] @ theta["beta"] + theta["sigma"] * jax.random.normal(key)

    many = np.tile(X[:1], (3000, 1))
    made = again.predict(many, kind="response", function=draw, draws=1, seed=4)  # one draw of theta: the rows differ by noise
    assert stats.kstest((made["mean"] - made["mean"].mean()) / made["mean"].std(), "norm").pvalue > 1e-6
    assert abs(made["mean"].std() / np.exp(fit.theta[:, :, 2]).mean() - 1.0) < 0.3
    np.testing.assert_array_equal(made, again.predict(many, kind="response", function=draw, draws=1, seed=4))
    theirs = built_in.predict(X[:5], kind="response", draws=400)
    wide = again.predict(X[:5], kind="response", function=draw, draws=400)
    np.testing.assert_allclose(wide[["lower", "upper"]], theirs[["lower", "upper"]], atol=0.35)


@pytest.fixture(scope="module")
def certified():
    return tb.models.from_jax(logistic, data_of(2000), tb.priors.normal(2.0), dim=3, third_derivative_bound=third)


def test_a_bound_makes_the_flagship_run(certified):
    fit = tb.sample(certified, "exact-minibatch", draws=300, warmup=100, chains=2, seed=1, progress=False)
    assert fit.guarantee.kind == "EXACT" and fit.evals.mean() < 200
    assert 0.0 < fit.stats["largest_ratio"].max() <= 1.0
    audit = fit.audit(certified, pairs=3, repeats=50)
    assert audit.passed, audit


def test_a_bound_that_is_too_small_is_caught(certified):
    data = certified.data

    def small(row, radius):
        return 0.2 * third(row, radius)

    checked = tb.models.from_jax(logistic, data, tb.priors.normal(2.0), dim=3, third_derivative_bound=small)
    with pytest.raises(CertificateError, match=r"row \d+: a third derivative of .* exceeds third_derivative_bound"):
        tb.sample(checked, "exact-minibatch", draws=10, warmup=10, chains=1, seed=1, progress=False)
    wrong = tb.models.from_jax(logistic, data, tb.priors.normal(2.0), dim=3, third_derivative_bound=small, check_bound=False)
    with pytest.raises(CertificateError, match="row"):
        tb.sample(wrong, "exact-minibatch", draws=2000, warmup=100, chains=1, seed=1, progress=False)


def test_a_bound_may_grow_with_the_radius_and_end(certified):
    def growing(row, radius):
        return jnp.where(radius < 3.0, third(row, radius) * (1.0 + radius), jnp.inf)

    model = tb.models.from_jax(logistic, certified.data, tb.priors.normal(2.0), dim=3, third_derivative_bound=growing)
    setup = tb.samplers.ExactMinibatch().setup(model, tb.find_mode(model, progress=False), 0, False)
    bound = setup.proxy.bound
    assert (
        bound.radius.size > 1
        and np.isfinite(bound.radius).all()
        and (np.diff([t.cumulative[-1] for t in bound.tables]) > 0).all()
    )
    fit = tb.sample(model, "exact-minibatch", draws=50, warmup=20, chains=1, seed=1, progress=False)
    assert np.isfinite(fit.theta).all()


def test_without_a_bound_the_flagship_refuses_and_auto_finds_another(pair):
    with pytest.raises(tb.ModelError, match="give third_derivative_bound=, or use a sampler that needs none, such as 'nuts'"):
        tb.sample(pair[0], "exact-minibatch", draws=5, warmup=5, chains=1, progress=False)
    assert tb.sample(pair[0], draws=5, warmup=5, chains=1, seed=1, progress=False).theta.shape == (1, 5, 3)


def test_resume_wants_the_same_program(pair, tmp_path):
    model, options = pair[0], {"draws": 10, "warmup": 10, "chains": 1, "seed": 1, "progress": False}
    tb.sample(model, "mh", checkpoint=tmp_path / "run", **options)
    longer = tb.resume(tmp_path / "run", model, draws=15, progress=False)
    np.testing.assert_array_equal(longer.theta, tb.sample(model, "mh", **{**options, "draws": 15}).theta)
    other = tb.models.from_jax(lambda theta, row: 1.01 * logistic(theta, row), model.data, model.prior, dim=3)
    with pytest.raises(tb.StoreError, match="this is not the model"):
        tb.resume(tmp_path / "run", other, draws=20, progress=False)


@pytest.mark.parametrize(
    "function, options, error, message",
    [
        (logistic, {"dim": 3, "prior": None}, tb.OptionError, "from_jax needs prior="),
        (logistic, {}, tb.OptionError, "give either dim="),
        (logistic, {"dim": 3, "params": {"b": 3}}, tb.OptionError, "give either dim="),
        (logistic, {"dim": 0}, tb.OptionError, "dim must be a whole number of at least 1"),
        (logistic, {"dim": 4}, tb.ModelError, "log_lik fails on a row: TypeError"),
        (lambda theta: 0.0, {"dim": 3}, tb.ModelError, "log_lik takes two arguments"),
        (lambda theta, row: row["z"], {"dim": 3}, tb.ModelError, "A row has offset, x, x0, x1, x2, y"),
        (lambda theta, row: theta, {"dim": 3}, tb.ModelError, "one number for a row; it gives an array of shape (3,)"),
        (
            lambda theta, row: jnp.log(theta[0]),
            {"dim": 3},
            tb.ModelError,
            "row 0: the value of log_lik is not finite at the start",
        ),
        (lambda theta, row: jnp.sqrt(theta[0]), {"dim": 3}, tb.ModelError, "row 0: the gradient of log_lik is not finite"),
        (logistic, {"dim": 3, "start": [1.0]}, tb.OptionError, "start must be 3 finite numbers"),
        (logistic, {"dim": 3, "prior": lambda theta: theta}, tb.ModelError, "the prior must give one number"),
        (logistic, {"dim": 3, "prior": lambda theta: theta["b"]}, tb.ModelError, "the prior fails"),
        (logistic, {"dim": 3, "prior": 3.0}, tb.OptionError, "prior must come from tallbayes.priors or be a function"),
        (logistic, {"dim": 3, "prior": tb.priors.weakly_informative()}, tb.OptionError, "give another prior"),
        (logistic, {"dim": 3, "check_bound": "yes"}, tb.OptionError, "check_bound"),
        (logistic, {"dim": 3, "coords": {"b": ["x"]}}, tb.OptionError, "give params="),
        (logistic, {"params": {"theta": 3}}, tb.OptionError, "an identifier other than 'theta'"),
        (logistic, {"params": {"b": "positiv"}}, tb.OptionError, "did you mean 'positive'?"),
        (logistic, {"params": {"b": -1}}, tb.OptionError, "the shape of a parameter"),
        (logistic, {"params": {"b": 3}, "coords": {"b": ["x"]}}, tb.OptionError, "coords['b'] must be different labels"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_bad_models_are_refused(function, options, error, message):
    with pytest.raises(error) as raised:
        tb.models.from_jax(function, data_of(20), **{"prior": tb.priors.normal(1.0), **options})
    assert message in str(raised.value)


def regression(x, y, scale=2.0):
    beta = numpyro.sample("beta", dist.Normal(0, scale).expand([x.shape[-1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    p = numpyro.sample("p", dist.Beta(2.0, 3.0))
    r = numpyro.sample("r", dist.Uniform(-1.0, 4.0))
    w = numpyro.sample("w", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("obs", dist.Normal(x @ beta + p + 0.1 * r + w[0], sigma), obs=y)


def test_a_numpyro_program_is_the_same_density():
    data = data_of(50)
    plain = tb.Dataset.from_arrays(np.asarray(data.records[:, :3]), np.asarray(data.y))
    model = tb.models.from_numpyro(regression, plain)
    assert model.names[3:] == ("log(sigma)", "logit(p)", "logit(r)", "sticks(w)[0]", "sticks(w)[1]")
    z = {"beta": np.array([0.1, -0.2, 0.3]), "sigma": 0.3, "p": -0.4, "r": 0.2, "w": np.array([0.1, -0.3])}
    with jax.enable_x64(True):
        x, y = np.asarray(plain.records[:, :3]), np.asarray(plain.y)
        known = numpyro.infer.util.initialize_model(jax.random.PRNGKey(0), regression, model_args=(x, y))
        expected = -float(known.potential_fn(z))
    theta = np.concatenate([np.ravel(v) for v in z.values()])
    assert model.log_posterior(theta) == pytest.approx(expected, rel=1e-10)


def per_row(x, y):
    with numpyro.plate("rows", x.shape[0]):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        numpyro.sample("obs", dist.Normal(mean, 1.0), obs=y)


def unseen(x, z):
    numpyro.sample("beta", dist.Normal(0.0, 1.0))


def silent(x, y):
    numpyro.sample("beta", dist.Normal(0.0, 1.0))


def correlation(x, y):
    numpyro.sample("corr", dist.LKJ(2))
    numpyro.sample("obs", dist.Normal(0.0, 1.0), obs=y)


def discrete(x, y):
    k = numpyro.sample("k", dist.Poisson(1.0))
    numpyro.sample("obs", dist.Normal(k, 1.0), obs=y)


@pytest.mark.parametrize(
    "program, message",
    [
        (per_row, "the latent site 'mean' lies in the plate 'rows'"),
        (unseen, "takes 'z', which is neither 'x', 'y', 'offset' nor a column"),
        (silent, "observes nothing"),
        (correlation, "the latent site 'corr'"),
        (discrete, "'k' is discrete"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_numpyro_programs_that_cannot_be_served(program, message):
    with pytest.raises(tb.ModelError) as raised:
        tb.models.from_numpyro(program, data_of(20))
    assert message in str(raised.value)


def test_everything_else_works_without_jax():
    code = (
        "import sys; sys.modules['jax'] = None; import numpy as np, tallbayes as tb\n"
        "data = tb.Dataset.from_arrays(np.ones((5, 1)), np.arange(5.0))\n"
        "print(tb.models.gaussian(data, sigma=1.0).dim)\n"
        "try: tb.models.from_jax(lambda t, r: 0.0, data, tb.priors.flat(), dim=1)\n"
        "except tb.OptionError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["1", "models in JAX need the extra: pip install 'tallbayes[jax]'."]


CERTIFIED = ("exact-minibatch", "confidence")
NEVER = (
    "firefly",
    "pseudo-marginal-firefly",
    "zigzag",
    "mhsublhd",
    "minibatch-gibbs",
    "surrogate-transition",
)  # they need columns, the last two groups or a prior of unknown scale


@pytest.mark.filterwarnings("ignore::tallbayes.errors.TallbayesWarning")
@pytest.mark.parametrize("name", [n for n in tb.samplers.SAMPLERS if n not in ("mh", "nuts", *CERTIFIED)])
def test_every_other_sampler_runs_or_says_why_not(name, pair):
    model = pair[0]

    def run():
        return tb.sample(model, name, draws=4, warmup=4, chains=1, seed=1, progress=False, mode=found)

    found = tb.find_mode(model, progress=False)
    if name in NEVER:
        with pytest.raises(tb.ModelError, match="use "):
            run()
    else:
        fit = run()
        assert fit.theta.shape == (1, 4, 3) and np.isfinite(fit.theta).all() and fit.evals.sum() >= 0
