"""Priors with unknown scales: surrogate transitions leave the posterior of coefficients and scales invariant. Truth: quadrature, NUTS."""

import warnings

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit
from scipy.stats import chi2

import tallbayes as tb
from tallbayes.samplers import SurrogateTransition
from tallbayes.testing import effective_sizes

EDGES = np.linspace(-10.0, 4.0, 701)  # of log sigma


def small(n=25, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2)) * [1.0, 2.0]
    return X, (rng.random(n) < expit(X @ [1.0, -0.5])).astype(float)


def exact(X, y, df=3.0, width=2.5):
    """Means of two coefficients and the distribution function of log sigma at the edges, by quadrature."""
    grid = [np.linspace(-7.0, 7.0, 281), np.linspace(-4.0, 4.0, 281)]
    b = np.meshgrid(*grid, indexing="ij")
    eta = X[:, 0][:, None, None] * b[0] + X[:, 1][:, None, None] * b[1]
    likelihood = np.exp((y[:, None, None] * eta - np.logaddexp(0.0, eta)).sum(0) + y.size * np.log(2.0))
    cell = np.prod([g[1] - g[0] for g in grid])
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    z, mass = np.meshgrid(nodes, nodes, indexing="ij"), np.outer(weights, weights) / weights.sum() ** 2
    middle = np.exp(0.5 * (EDGES[1:] + EDGES[:-1]))
    total, first = np.zeros(middle.size), np.zeros((middle.size, 2))
    for i, s in enumerate(middle):
        if s < 0.4:  # the prior is narrow: nodes of its own
            points = [s * z[0], s * z[1]]
            eta = X[:, 0][:, None, None] * points[0] + X[:, 1][:, None, None] * points[1]
            density = np.exp((y[:, None, None] * eta - np.logaddexp(0.0, eta)).sum(0) + y.size * np.log(2.0)) * mass
        else:
            points = b
            density = likelihood * np.exp(-0.5 * (b[0] ** 2 + b[1] ** 2) / s**2) * cell / (2.0 * np.pi * s**2)
        total[i] = density.sum()
        first[i] = [(density * p).sum() for p in points]
    law = total * middle * (1.0 + (middle / width) ** 2 / df) ** (-0.5 * (df + 1.0))
    mean = (first / total[:, None] * law[:, None]).sum(0) / law.sum()
    return mean, np.concatenate([[0.0], np.cumsum(law) / law.sum()])


@pytest.mark.parametrize("sweeps", [1, 4])
def test_coefficients_and_scale_are_those_of_quadrature(sweeps):
    X, y = small()
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.ridge(standardise=False))
    fit = tb.sample(model, SurrogateTransition(sweeps=sweeps), draws=15_000, warmup=500, chains=2, seed=2, progress=False)
    mean, cumulative = exact(X, y)
    score = (fit.theta.mean((0, 1))[:2] - mean) / fit.theta.std((0, 1))[:2] * np.sqrt(fit.ess[:2])
    assert np.abs(score).max() < 5.0
    log_sigma = np.log(fit.theta[:, :, 2])
    for edge in (-2.0, -1.0, 0.0, 1.0):
        below, truth = (log_sigma < edge).astype(float), np.interp(edge, EDGES, cumulative)
        size = effective_sizes(below[:, :, None])[0]
        assert abs(below.mean() - truth) < 5.0 * np.sqrt(truth * (1.0 - truth) / size)
    assert fit.names == ("x0", "x1", "ridge_sigma")


@pytest.mark.filterwarnings("ignore:.x0. has")  # it mixes slowly: the surrogate of the prior is its curvature at one point
def test_a_fixed_prior_that_is_not_normal_is_taken_as_it_is():
    """A Cauchy prior of one coefficient beside a ridge of the other; the scale of the ridge is integrated out on a grid."""
    X, y = small()
    prior = {"x0": tb.priors.cauchy(0.5), "x1": tb.priors.ridge(standardise=False)}
    fit = tb.sample(
        tb.models.logistic(tb.Dataset.from_arrays(X, y), prior), draws=15_000, warmup=500, chains=2, seed=2, progress=False
    )
    a, b = np.meshgrid(np.linspace(-4.0, 5.0, 901), np.linspace(-3.0, 3.0, 600), indexing="ij")
    eta = X[:, 0][:, None, None] * a + X[:, 1][:, None, None] * b
    sigma = np.exp(np.linspace(-7.0, 5.0, 1200))
    weight = (
        1.0 + (sigma / 2.5) ** 2 / 3.0
    ) ** -2.0  # half-Student-t; sigma d log sigma cancels the 1 / sigma of the normal density
    ridge = (np.exp(-0.5 * (b[0][:, None] / sigma) ** 2) * weight).sum(1)
    mass = np.exp((y[:, None, None] * eta - np.logaddexp(0.0, eta)).sum(0)) * ridge[None, :] / (1.0 + (a / 0.5) ** 2)
    mass /= mass.sum()
    for k, values in enumerate((a, b)):
        mean = (mass * values).sum()
        score = (fit.theta[:, :, k].mean() - mean) / fit.theta[:, :, k].std() * np.sqrt(fit.ess[k])
        assert abs(score) < 5.0
        inside = (np.abs(fit.theta[:, :, k]) < 0.15).astype(float)
        truth = mass[np.abs(values) < 0.15].sum()
        assert (
            abs(inside.mean() - truth) < 5.0 * np.sqrt(truth * (1.0 - truth) / effective_sizes(inside[:, :, None])[0]) + 0.005
        )


def wide(n, d, seed=0, prior=None):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, d))])
    effect = np.zeros(d + 1)
    effect[1:4] = [1.0, -1.0, 0.5]
    y = (rng.random(n) < expit(X @ effect)).astype(float)
    return tb.models.logistic(tb.Dataset.from_arrays(X, y), prior or tb.priors.horseshoe(0.05))


def test_a_horseshoe_finds_the_few_effects_at_a_few_rows():
    model = wide(20_000, 20)
    fit = tb.sample(model, draws=1_000, chains=2, seed=1, progress=False)
    assert fit.meta["sampler_name"] == "surrogate-transition" and fit.guarantee.kind == "EXACT"
    mean, sd = fit.theta.mean((0, 1)), fit.theta.std((0, 1))
    assert np.abs(mean[1:4] - [1.0, -1.0, 0.5]).max() < 0.15 and np.abs(mean[4:21]).max() < 0.04
    assert sd[4:21].max() < sd[1:4].max()
    assert fit.evals.mean() < 20.0
    found = fit.audit(model, pairs=3)
    assert found.passed and found.facts["draws checked on all rows"] == 3
    reads = fit.stats["full_read"] == 0
    np.testing.assert_array_equal(fit.evals[reads], 2 * fit.stats["rows"][reads])  # scales read none


def test_the_reference_is_as_narrow_as_the_rows_make_it():
    """An intercept and the levels of a factor are each uncertain, their sums are not: a bound that misses this reads nearly all rows."""
    rng = np.random.default_rng(4)
    level = rng.choice(25, 30_000, p=np.r_[0.001, np.full(24, 0.999 / 24)])
    X = np.column_stack([np.ones(level.size), level[:, None] == np.arange(1, 25)]).astype(float)
    y = rng.random(level.size) < expit(-1.0 + rng.standard_normal(25)[level])
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.ridge())
    inner = tb.find_mode(model, progress=False).inner
    assert np.trace(inner.factor.T @ -inner.hessian @ inner.factor) < 1.2 * inner.reference.size
    fit = tb.sample(model, draws=1_000, chains=2, seed=1, progress=False)
    flat = fit.theta[:, :, :25].reshape(-1, 25)
    white = np.linalg.solve(inner.factor, (flat - flat.mean(0)).T)
    assert 0.7 < (white**2).mean() < 1.4
    assert fit.evals.mean() < 300.0


def test_a_second_predictor_has_scales_of_its_own():
    rng = np.random.default_rng(2)
    rows = {"y": rng.poisson(1.0, 400).astype(float), "x": rng.random(400), "z": rng.random(400)}
    data = tb.read(pa.table(rows), "y ~ x", zi="~ s(z, k=5)", progress=False)
    names = tb.models.zero_inflated_poisson(data).names
    assert names[-1] == "zi_s(z)_sigma" and names[:4] == ("Intercept", "x", "zi_Intercept", "zi_s(z)_line")
    both = tb.models.zero_inflated_poisson(data, tb.priors.ridge())
    assert both.names[-3:] == ("ridge_sigma", "zi_ridge_sigma", "zi_s(z)_sigma")
    assert [where for _, _, where in both.members] == [(1,), (3,), (4, 5, 6)]  # intercepts have priors of their own
    built = tb.models.build("zero_inflated_poisson", data, tb.priors.from_dict(both.describe()["prior"]))
    assert built.describe() == both.describe()
    scaled = tb.models.gaussian(
        tb.read(pa.table({**rows, "y": 50.0 * rows["y"]}), "y ~ x", sigma="~ z", progress=False), tb.priors.ridge(), sigma="~ z"
    )
    np.testing.assert_allclose(scaled.blocks.width, [2.5 * 50.0 * np.std(rows["y"]), 2.5], rtol=0.01)  # logarithms have no unit


def test_a_scale_of_the_second_predictor_is_that_of_quadrature():
    rng = np.random.default_rng(6)
    z = rng.standard_normal(40)
    y = np.exp(0.3 * z) * rng.standard_normal(40)
    data = tb.Dataset.from_arrays(
        np.column_stack([np.ones(40), np.ones(40), z]), y, columns=["Intercept", "sigma_Intercept", "sigma_z"]
    )
    wide = tb.priors.normal(5.0)
    law = {"Intercept": wide, "sigma_Intercept": wide, "sigma_z": tb.priors.ridge(standardise=False)}
    model = tb.models.gaussian(data, law, sigma=["sigma_Intercept", "sigma_z"])
    fit = tb.sample(model, draws=10_000, warmup=500, chains=2, seed=3, progress=False)
    assert fit.names[-1] == "sigma_z_sigma" and fit.meta["sampler_name"] == "surrogate-transition"
    mu, level, slope = np.meshgrid(
        np.linspace(-1.2, 1.2, 61), np.linspace(-0.8, 0.8, 61), np.linspace(-1.0, 1.4, 121), indexing="ij"
    )
    value = -0.5 * (mu**2 + level**2) / 25.0
    for zi, yi in zip(z, y, strict=True):
        log_sd = level + slope * zi
        value += -log_sd - 0.5 * ((yi - mu) * np.exp(-log_sd)) ** 2
    sigma = np.exp(0.5 * (EDGES[1:] + EDGES[:-1]))
    half = sigma * (1.0 + (sigma / 2.5) ** 2 / 3.0) ** -2.0
    at = slope[0, 0]
    marginal = np.exp(value - value.max()).sum((0, 1))
    joint = marginal[:, None] * half * np.exp(-0.5 * (at[:, None] / sigma) ** 2) / sigma
    joint[at == 0.0] = 0.0  # a point without mass
    truth = (joint.sum(1) * at).sum() / joint.sum()
    score = (fit.theta[:, :, 2].mean() - truth) / fit.theta[:, :, 2].std() * np.sqrt(fit.ess[2])
    assert abs(score) < 5.0
    below = (fit.theta[:, :, 3] < 1.0).astype(float)
    share = joint[:, sigma < 1.0].sum() / joint.sum()
    assert abs(below.mean() - share) < 5.0 * np.sqrt(share * (1.0 - share) / effective_sizes(below[:, :, None])[0]) + 0.005


def test_a_likelihood_that_curves_upwards_is_refused():
    X = np.ones((4, 1))
    data = tb.Dataset.from_arrays(X, [-9.0, -8.0, 8.0, 9.0])
    model = tb.models.student_t(data, {"x0": tb.priors.ridge()}, scale=0.5, nu=1.0)
    with pytest.raises(tb.ModelError, match="not concave at the reference, mostly in 'x0'"):
        tb.sample(model, draws=5, progress=False)


def test_the_fit_predicts_and_is_saved_and_resumed(tmp_path):
    model = wide(3_000, 5, prior={"x1": tb.priors.normal(1.0), "default": tb.priors.ridge()})
    options = {"warmup": 100, "chains": 2, "seed": 1, "progress": False, "checkpoint": tmp_path / "run"}
    fit = tb.sample(model, draws=200, **options)
    assert fit.names[-1] == "ridge_sigma" and model.members[0][2] == (2, 3, 4, 5)
    assert "ridge(sigma ~ half_student_t(3, 2.5))" in str(fit.summary())
    longer = tb.resume(tmp_path / "run", model, draws=250, progress=False)
    assert (longer.theta[:, :200] == fit.theta).all()
    loaded = tb.load(fit.save(tmp_path / "fit.nc"))
    assert (loaded.theta == fit.theta).all()
    built = tb.models.build("logistic", model.data, tb.priors.from_dict(model.describe()["prior"]))
    assert built.describe() == model.describe()


def test_others_refuse_unknown_scales_and_it_refuses_others():
    model = wide(200, 4)
    with pytest.raises(tb.ModelError, match="use 'surrogate-transition'"):
        tb.sample(model, "nuts", draws=5, progress=False)
    with pytest.raises(tb.ModelError, match="is for priors with unknown scales"):
        tb.sample(wide(200, 4, prior=tb.priors.normal(1.0)), "surrogate-transition", draws=5, progress=False)
    with pytest.raises(tb.ModelError, match="an integral over other variables"):
        model.log_posterior(np.zeros(model.dim))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: tb.priors.horseshoe(-1.0), "scale of horseshoe must be a positive number"),
        (lambda: tb.priors.horseshoe(1.0, slab=0.0), "slab of horseshoe must be a positive number"),
        (lambda: tb.priors.ridge(tb.priors.half_normal(1.0)), r"half_student_t\(df, scale\) or half_cauchy"),
        (lambda: tb.priors.ridge(standardise="no"), "standardise must be True or False"),
        (lambda: SurrogateTransition(sweeps=0), "sweeps must be at least 1"),
        (lambda: SurrogateTransition(bound="T99"), "T99"),
        (lambda: wide(100, 4, prior={"x7": tb.priors.ridge()}), "x7"),
    ],
)
def test_what_is_wrong_is_named(make, message):
    with pytest.raises(tb.OptionError, match=message):
        make()


@pytest.mark.slow
@pytest.mark.parametrize("slab", [None, 1.5])
def test_a_horseshoe_on_few_rows_agrees_with_nuts_of_numpyro(slab):
    numpyro = pytest.importorskip("numpyro")
    import jax
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(4)
    X = rng.standard_normal((50, 5))
    y = (rng.random(50) < expit(2.0 * X[:, 0])).astype(float)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.horseshoe(0.5, slab, standardise=False))
    sampler = SurrogateTransition(move=tb.moves.independence(0.3))  # tails of so few rows are far from normal
    fit = tb.sample(model, sampler, draws=40_000, warmup=1000, chains=4, seed=1, progress=False)

    def peer():
        tau = numpyro.sample("tau", dist.HalfCauchy(0.5))
        own = numpyro.sample("own", dist.HalfCauchy(np.ones(5)))
        z = numpyro.sample("z", dist.Normal(np.zeros(5), 1.0))
        precision = 1.0 / (tau * own) ** 2 + (0.0 if slab is None else 1.0 / slab**2)
        beta = numpyro.deterministic("beta", z / precision**0.5)
        numpyro.sample("y", dist.Bernoulli(logits=X @ beta), obs=y)

    chain = MCMC(
        NUTS(peer, target_accept_prob=0.99),
        num_warmup=2000,
        num_samples=8000,
        num_chains=2,
        chain_method="sequential",
        progress_bar=False,
    )
    chain.run(jax.random.PRNGKey(0))
    drawn = chain.get_samples(group_by_chain=True)
    theirs = np.concatenate([np.asarray(drawn["beta"]), np.log(np.asarray(drawn["tau"]))[:, :, None]], axis=2)
    ours = np.concatenate([fit.theta[:, :, :5], np.log(fit.theta[:, :, 5:])], axis=2)
    for f in (lambda v: v, lambda v: v**2):
        a, b = f(ours), f(theirs)
        error = np.sqrt(a.var((0, 1)) / effective_sizes(a) + b.var((0, 1)) / effective_sizes(b))
        assert np.abs((a.mean((0, 1)) - b.mean((0, 1))) / error).max() < 5.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("width, calibrated", [(0.7, True), (2.1, False)])
def test_a_ridge_is_calibrated(width, calibrated):
    """Ranks of coefficients and scale drawn from the prior among posterior draws are uniform, unless the prior is another one."""
    found = []
    for k in range(200):
        rng = np.random.default_rng(k)
        sigma = 0.7 * abs(rng.standard_t(8.0))
        beta = sigma * rng.standard_normal(3)
        X = rng.standard_normal((60, 3))
        data = tb.Dataset.from_arrays(X, (rng.random(60) < expit(X @ beta)).astype(float))
        prior = tb.priors.ridge(tb.priors.half_student_t(8.0, width), standardise=False)
        fit = tb.sample(tb.models.logistic(data, prior), draws=49, warmup=300, thin=20, chains=1, seed=k, progress=False)
        found.append((fit.theta[0] < np.append(beta, sigma)).sum(0))
    counts = np.array([np.histogram(ranks, 10, (0, 50))[0] for ranks in np.array(found).T])
    p = chi2.sf(((counts - 20.0) ** 2 / 20.0).sum(1), 9)
    assert (p.min() > 1e-5) if calibrated else (p[3] < 1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("slab, scale, calibrated", [(None, 0.5, True), (1.5, 0.5, True), (None, 2.0, False)])
def test_a_horseshoe_is_calibrated(slab, scale, calibrated):
    """The same for a horseshoe of normal responses, and a regularised one of binary ones; what is wrong is the prior of tau."""
    found = []
    for k in range(150):
        rng = np.random.default_rng(1000 + k)
        tau = 0.5 * abs(rng.standard_cauchy())
        precision = 1.0 / (tau * np.abs(rng.standard_cauchy(3))) ** 2 + (0.0 if slab is None else 1.0 / slab**2)
        beta = rng.standard_normal(3) / np.sqrt(precision)
        X = rng.standard_normal((80, 3))
        if slab is None:
            y = X @ beta + rng.standard_normal(80)
            prior = tb.priors.horseshoe(scale / y.std(ddof=1), standardise=False)  # in standard deviations of the response
            model = tb.models.gaussian(tb.Dataset.from_arrays(X, y), prior, sigma=1.0)
        else:
            data = tb.Dataset.from_arrays(X, (rng.random(80) < expit(X @ beta)).astype(float))
            model = tb.models.logistic(data, tb.priors.horseshoe(scale, slab, standardise=False))
        fit = tb.sample(model, draws=49, warmup=300, thin=40, chains=1, seed=k, progress=False)
        found.append((fit.theta[0] < np.append(beta, tau)).sum(0))
    counts = np.array([np.histogram(ranks, 10, (0, 50))[0] for ranks in np.array(found).T])
    p = chi2.sf(((counts - 15.0) ** 2 / 15.0).sum(1), 9)
    assert (p.min() > 1e-5) if calibrated else (p[3] < 1e-5)


def test_a_smooth_is_a_penalised_spline():
    """At a given tau the fit of the line and the ridge columns is that of a P-spline with penalty |D a|^2 / tau^2."""
    from scipy.interpolate import BSpline

    rng, k, tau = np.random.default_rng(8), 12, 0.4
    x = np.sort(rng.uniform(-1.0, 3.0, 200))
    y = np.sin(2.0 * x) + 0.3 * rng.standard_normal(200)
    part = tb.data.smooth(x, "x", k=k)
    X = np.column_stack([np.ones(200), part.columns(x)])
    data = tb.Dataset.from_arrays(X, y, columns=["Intercept", *part.names])
    prior = {part.term: tb.priors.ridge(standardise=False), "default": tb.priors.flat()}
    model = tb.models.gaussian(data, prior, sigma=1.0)
    assert model.members[0][2] == tuple(range(2, k)) and (model.blocks.weight[2:] == 1.0).all()
    mode = tb.find_mode(model.conditional(np.r_[0.0, 0.0, np.full(k - 2, tau**-2.0)]), progress=False)
    step = 4.0 * (x.max() - x.min()) / 4.0 / (k - 3)
    knots = x.min() + step * np.arange(-3, k + 1)
    B = BSpline.design_matrix(np.clip(x, x.min(), np.nextafter(x.max(), x.min())), knots, 3).toarray()
    D = np.diff(np.eye(k), n=2, axis=0)
    fitted = B @ np.linalg.solve(B.T @ B + D.T @ D / tau**2, B.T @ y)
    np.testing.assert_allclose(X @ mode.reference, fitted, atol=1e-6)
    again = part.columns(x[::7])
    np.testing.assert_array_equal(again, part.columns(x)[::7])
    with pytest.raises(tb.DataError, match="is defined from"):
        part.columns(np.array([9.0]))
    with pytest.raises(tb.OptionError, match="at least 4"):
        tb.data.smooth(x, k=3)


def test_a_shift_of_all_classes_that_only_a_horseshoe_bounds_is_refused_with_the_remedy():
    rng = np.random.default_rng(7)
    n = 400
    x, z = rng.standard_normal((2, n))
    rate = np.exp(0.3 + 0.5 * x)
    chances = np.column_stack([np.ones(n), rate, np.sqrt(rate)])
    rows = {"x": x, "z": z, "s": [rng.choice(3, p=p / p.sum()) for p in chances]}
    short = {"draws": 50, "warmup": 50, "chains": 1, "seed": 1, "progress": False}
    with pytest.raises(tb.ModelError, match=r"common shift of those of all classes.*slab=2\.0"):
        tb.fit("s ~ x + z", pa.table(rows), "softmax", tb.priors.horseshoe(), **short)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.TallbayesWarning)
        assert np.isfinite(tb.fit("s ~ x + z", pa.table(rows), "softmax", tb.priors.horseshoe(slab=2.0), **short).theta).all()
