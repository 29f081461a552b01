"""Hierarchical models: groups in data sets, priors by name, joint mode, the two samplers that serve, and their agreement."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import tallbayes as tb
from tallbayes.samplers import SAMPLERS
from tallbayes.testing import THRESHOLD, all_draws, effective_sizes, largest_disagreement


def arrays(n=400, levels=8, family="logistic", scale=0.8, seed=1):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, levels, n)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    eta = X @ [-0.3, 0.6, 0.2] + (scale * rng.standard_normal(levels))[codes]
    y = {
        "logistic": lambda: rng.random(n) < 1 / (1 + np.exp(-eta)),
        "probit": lambda: rng.standard_normal(n) < eta,
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "negbin": lambda: rng.negative_binomial(2, 2 / (2 + np.exp(eta))),
        "gamma": lambda: rng.gamma(2.0, np.exp(eta) / 2.0),
        "gaussian": lambda: eta + rng.standard_normal(n),
        "student_t": lambda: eta + rng.standard_t(4, n),
    }[family]()
    return X, y.astype(float), codes


OPTIONS = {"negbin": {"size": 2.0}, "gamma": {"shape": 2.0}, "gaussian": {"sigma": 1.0}, "student_t": {"nu": 4.0, "scale": 1.0}}


def model_of(family="logistic", terms=None, prior=None, more="", **options):
    """`more`: "offsets" (exposures), "weights", "empty" (two levels without rows), "equal" (responses of three levels all ones)."""
    X, y, codes = arrays(family=family, **options)
    rng, offsets, weights = np.random.default_rng(9), None, None
    if more == "offsets":
        offsets = rng.uniform(-1.0, 1.0, y.size)
        y = rng.poisson(np.exp(offsets + X @ [-0.3, 0.6, 0.2] + 0.5 * np.sin(codes))).astype(float)
    if more == "weights":
        weights = rng.choice([0.5, 1.0, 2.0], y.size)
    if more == "equal":
        y[codes < 3] = 1.0
    grouping = pd.Categorical.from_codes(codes, categories=range(codes.max() + 3)) if more == "empty" else codes
    data = tb.Dataset.from_arrays(X, y, offsets, weights, groups={"g": grouping if terms is None else (grouping, terms)})
    return getattr(tb.models, family)(data, tb.priors.normal(3.0) if prior is None else prior, **OPTIONS.get(family, {}))


@pytest.fixture(scope="module")
def model():
    return model_of()


@pytest.fixture(scope="module")
def mode(model):
    return tb.find_mode(model, progress=False)


# Data


def test_records_are_sorted_by_the_factor_with_most_levels():
    X, y, codes = arrays()
    few = (np.arange(400) % 3).astype(str)
    data = tb.Dataset.from_arrays(X, y, groups={"few": few, "many": codes})
    np.testing.assert_array_equal(data.records[:, :3], X[data.order])
    np.testing.assert_array_equal(data.y, y[data.order])
    for factor, given in zip(data.groups, (few, codes), strict=True):
        np.testing.assert_array_equal(factor.labels[factor.codes], given[data.order])
        rows = np.arange(400) if factor.sorted else factor.members
        for g in range(factor.levels):
            own = rows[factor.offsets[g] : factor.offsets[g + 1]]
            assert (factor.codes[own] == g).all()
    assert data.groups[1].sorted and not data.groups[0].sorted
    assert data.groups[1].offsets[-1] == 400


def test_unused_categories_are_levels_and_a_level_may_come_last():
    codes = pd.Categorical(["b"] * 3 + ["a"] * 2 + ["z"], categories=["a", "b", "unused", "z"])
    factor = tb.Dataset.from_arrays(np.ones((6, 1)), np.zeros(6), groups={"g": codes}).groups[0]
    assert factor.labels.tolist() == ["a", "b", "unused", "z"]
    assert np.diff(factor.offsets).tolist() == [2, 3, 0, 1]


def test_terms_are_named_after_the_columns_that_they_repeat():
    X, y, codes = arrays()
    rest = np.random.default_rng(0).standard_normal(400)
    Z = np.column_stack([np.ones(400), X[:, 2], rest])
    data = tb.Dataset.from_arrays(X, y, columns=["one", "age", "price"], groups={"g": (codes, Z)}, dtype="float32")
    factor = data.groups[0]
    assert factor.terms == ("1", "price", "z2")
    np.testing.assert_array_equal(data.records[:, factor.first + 2], rest[data.order].astype("f4"))


def test_groups_are_part_of_the_fingerprint():
    X, y, codes = arrays()
    made = [tb.Dataset.from_arrays(X, y, groups={"g": c}).fingerprint for c in (codes, codes, codes // 2)]
    assert made[0] == made[1] != made[2]


@pytest.mark.parametrize(
    "groups, message",
    [
        ({}, "at least one factor"),
        ({"g": np.arange(4)}, "as many levels as rows"),
        ({"g": [1, 1, 2]}, "3 codes, but X has 4 rows"),
        ({"g": np.array([0.0, np.nan, 1.0, 1.0])}, "row 1: the level of factor 'g' is missing"),
        ({"g": ["a", None, "b", "b"]}, "row 1: the level"),
        ({"g": pd.Categorical(["a", "a", None, "b"])}, "row 2: the level"),
        ({"g": [0.5, 1.5, 0.5, 1.0]}, "fractional values such as 0.5"),
        ({"g": np.ones((4, 2))}, "must be a vector"),
        ({"g": np.ma.masked_array([1, 1, 2, 2], [0, 0, 0, 1])}, "masked"),
        ({"g": ([0, 0, 1, 1], ["age"])}, "'age' is not a column of X"),
        ({"g": ([0, 0, 1, 1], np.ones((3, 2)))}, "Z must be a matrix of numbers with 4 rows"),
        ({"g": ([0, 0, 1, 1], np.ones((4, 2)))}, "the same column"),
        ({"g": ([0, 0, 1, 1], np.array([1.0, 2.0, np.inf, 3.0]))}, "row 2: Z of factor 'g' is not finite"),
    ],
)
def test_wrong_groups_are_refused(groups, message):
    with pytest.raises(tb.DataError, match=message):
        tb.Dataset.from_arrays(np.ones((4, 1)), np.zeros(4), groups=groups)


# Models


def test_names_and_priors_by_name():
    prior = {
        "default": tb.priors.normal(2.0),
        "x1": tb.priors.cauchy(1.0),
        "1|g_sigma": tb.priors.half_normal(0.5),
        "x1|g_sigma": tb.priors.exponential(2.0),
        "g_corr": tb.priors.lkj(3.0),
    }
    model = model_of(terms=["1", "x1"], prior=prior)
    assert model.names == ("x0", "x1", "x2", "1|g_sigma", "x1|g_sigma", "g_corr")
    assert [p.describe() for p in model.scale_priors[0]] == ["half_normal(0.5)", "exponential(2)"]
    assert model.correlation_priors[0].eta == 3.0
    assert model.coefficient_terms.kind.tolist() == [1, 3, 1]
    assert json.loads(json.dumps(model.describe())) == model.describe()
    assert model.level_count == 16


def test_default_scales_follow_the_response():
    X, y, codes = arrays(family="gaussian")
    data = tb.Dataset.from_arrays(X, 100.0 * y, groups={"g": codes})
    scale = tb.models.gaussian(data, sigma=1.0).scale_priors[0][0].scale
    assert abs(scale - 148.26 * np.median(np.abs(y - np.median(y)))) < 0.1
    assert model_of().scale_priors[0][0].describe() == "half_student_t(3, 2.5)"


def test_what_cannot_be_a_hierarchical_model_is_refused():
    X, y, codes = arrays()
    data = tb.Dataset.from_arrays(X, y, groups={"g": codes})
    with pytest.raises(tb.ModelError, match="softmax has no hierarchical form"):
        tb.models.softmax(data, classes=2)
    with pytest.raises(tb.OptionError, match=r"did you mean '1\|g_sigma'"):
        tb.models.logistic(data, prior={"1|g_sgma": tb.priors.half_normal()})
    with pytest.raises(tb.OptionError, match="half_student_t"):
        tb.models.logistic(data, prior={"1|g_sigma": tb.priors.normal()})
    with pytest.raises(tb.ModelError, match="integral over the effects"):
        tb.models.logistic(data).log_posterior(np.zeros(4))
    for prior in (lambda: tb.priors.half_normal(0.0), lambda: tb.priors.lkj(-1.0)):
        with pytest.raises(tb.OptionError, match="positive"):
            prior()


def test_every_other_sampler_names_the_two_that_serve(model, mode):
    for name in set(SAMPLERS) - {"nuts", "minibatch-gibbs"}:
        with pytest.raises(tb.ModelError, match="use 'minibatch-gibbs' or 'nuts'"):
            tb.samplers.resolve(name).setup(model, mode, 0, False)
    plain = tb.models.logistic(tb.Dataset.from_arrays(*arrays()[:2]))
    with pytest.raises(tb.ModelError, match=r"groups=\{'shop': codes\}"):
        tb.sample(plain, "minibatch-gibbs", progress=False)
    for refused in (tb.partial_posteriors, tb.sample_shards, tb.compare):
        with pytest.raises(tb.ModelError, match="group effects"):
            refused(model)


def chosen(model):
    return tb.auto.choose(model, tb.find_mode(model, progress=False), None, 0, False)


def test_auto_weighs_both_samplers_of_small_and_tall_rows():
    for n, levels in ((400, 8), (30_000, 60)):
        rng = np.random.default_rng(n)
        X = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
        codes = rng.integers(0, levels, n)
        y = rng.random(n) < 1 / (1 + np.exp(-X @ [0.2, 0.5, -0.5] - (0.7 * rng.standard_normal(levels))[codes]))
        model = tb.models.logistic(tb.Dataset.from_arrays(X, y, groups={"g": codes}), tb.priors.normal(3.0))
        sampler, setup, why, predictions = chosen(model)
        assert sampler.name == "minibatch-gibbs" and setup is not None and predictions == []
        assert f"{levels} levels of 'g'" in why and "iterations per effective draw in a pilot" in why
        assert "nuts would be at least" in why and f"times slower (all {n:,} rows are read for every gradient)" in why


def test_auto_says_why_only_one_sampler_is_left():
    X, y, codes = arrays(family="gaussian")
    sampler, setup, why, predictions = chosen(tb.models.gaussian(tb.Dataset.from_arrays(X, y, groups={"g": codes})))
    assert sampler.name == "minibatch-gibbs" and setup is not None and predictions == []
    assert "nuts was skipped: nuts does not support a hierarchical gaussian model with unknown sigma" in why


# Mode


def test_collinear_columns_and_silent_levels_are_named():
    X, y, codes = arrays()
    data = tb.Dataset.from_arrays(X[:, [0, 1, 1]], y, groups={"g": codes})
    with pytest.warns(tb.TallbayesWarning, match="'x1', 'x2' are collinear"):
        tb.find_mode(tb.models.logistic(data, tb.priors.normal(2.0)), progress=False)
    with pytest.raises(tb.ModelError, match="'x1', 'x2' are collinear"):
        tb.find_mode(tb.models.logistic(data, tb.priors.flat()), progress=False)


# The contract of a sampler, for the one that needs groups


def test_runs_resume_save_and_load(model, mode, tmp_path):
    options = {"warmup": 40, "chains": 2, "seed": 1, "progress": False}
    first = tb.sample(model, "minibatch-gibbs", draws=20, mode=mode, checkpoint=tmp_path / "run", **options)
    longer = tb.resume(tmp_path / "run", model, draws=30, progress=False)
    whole = tb.sample(model, "minibatch-gibbs", draws=30, **options)
    np.testing.assert_array_equal(longer.theta, whole.theta)
    np.testing.assert_array_equal(longer.draws("1|g"), whole.draws("1|g"))
    np.testing.assert_array_equal(longer.draws("1|g")[:, :20], first.draws("1|g"))
    again = tb.load(whole.save(tmp_path / "fit.nc"))
    np.testing.assert_array_equal(again.draws("1|g"), whole.draws("1|g"))
    np.testing.assert_array_equal(again.draws("1|g_sigma"), whole.theta[:, :, 3])
    posterior = whole.idata.posterior
    assert posterior["1|g"].dims == ("chain", "draw", "g__factor_dim")
    assert posterior["g__factor_dim"].values.tolist() == [str(k) for k in range(8)]
    with pytest.raises(tb.OptionError, match=r"1\|g"):
        whole.draws("1|h")
    for refused in (lambda: whole.stein(model),):
        with pytest.raises(tb.ModelError, match="not available for models with group effects"):
            refused()
    assert "1|g_sigma" in whole.summary().index
    assert whole.audit(model, pairs=2).passed


# Exactness of whole sweeps


def exact_gaussian(model, points=200):
    """Mean and standard deviation of beta, sigma and b of a linear model with known error, by a grid over the standard deviation."""
    data, factor = model.data, model.factors[0]
    d, G = data.d, factor.levels
    X, y = data.records[:, :d], data.y
    design = np.column_stack([X, np.eye(G)[factor.codes]])
    prior = model.scale_priors[0][0]
    logs, means, squares, weights = np.linspace(-4.0, 2.5, points), [], [], []
    for log_sd in logs:
        tau = np.exp(log_sd)
        scale = np.concatenate([np.full(d, 3.0), np.full(G, tau)])
        precision = design.T @ design + np.diag(scale**-2.0)
        covariance = np.linalg.inv(precision)
        mean = covariance @ design.T @ y
        log_density = 0.5 * mean @ precision @ mean - 0.5 * np.linalg.slogdet(precision)[1] - G * log_sd + log_sd
        weights.append(log_density - 0.5 * (prior.df + 1) * np.log1p((tau / prior.scale) ** 2 / prior.df))
        means.append(np.concatenate([mean[:d], [tau], mean[d:]]))
        squares.append(means[-1] ** 2 + np.concatenate([np.diag(covariance)[:d], [0.0], np.diag(covariance)[d:]]))
    weight = np.exp(np.array(weights) - np.max(weights))
    weight /= weight.sum()
    mean, square = weight @ np.array(means), weight @ np.array(squares)
    return mean, square


def moment_scores(draws, mean, square):
    """z-scores of means and mean squares of (chains, draws, dim)."""
    out = []
    for values, expected in ((draws, mean), (draws**2, square)):
        error = values.std((0, 1)) / np.sqrt(effective_sizes(values))
        out.append((values.mean((0, 1)) - expected) / error)
    return np.concatenate(out)


def test_a_linear_model_against_its_exact_posterior():
    model = model_of("gaussian", n=60, levels=6)
    fit = tb.sample(model, "minibatch-gibbs", draws=4000, warmup=500, chains=4, seed=1, progress=False)
    assert not fit.evals.any()  # the surrogate of a Gaussian likelihood leaves nothing out
    assert np.abs(moment_scores(all_draws(fit), *exact_gaussian(model))).max() < THRESHOLD


def test_columns_far_from_zero_mix_where_levels_hardly_differ():
    rng = np.random.default_rng(0)
    codes, x = np.arange(3000) % 20, 6.0 + rng.standard_normal(3000)
    eta = -3.0 + 0.5 * x + (0.02 * rng.standard_normal(20))[codes]
    y = (rng.random(3000) < 1 / (1 + np.exp(-eta))).astype(float)
    data = tb.Dataset.from_arrays(np.column_stack([np.ones(3000), x, rng.standard_normal(3000)]), y, groups={"g": codes})
    model = tb.models.logistic(data, tb.priors.normal(3.0))
    fit = tb.sample(model, "minibatch-gibbs", draws=800, warmup=300, chains=2, seed=1, progress=False)
    assert effective_sizes(fit.theta)[:3].min() > 300


def marginal(model, points, nodes=40):
    """Log posterior of (beta, log tau) of a logistic model with an intercept for each level, levels integrated out by quadrature."""
    data, factor, prior = model.data, model.factors[0], model.scale_priors[0][0]
    d = data.d
    X, sign, weight = data.records[:, :d], 2.0 * data.y - 1.0, data.records[:, d + 2]
    at, mass = np.polynomial.hermite_e.hermegauss(nodes)
    eta = points[:, :d] @ X.T
    parts = np.empty((nodes, len(points), factor.levels))
    for k in range(nodes):
        values = -weight * np.logaddexp(0.0, -sign * (eta + np.exp(points[:, d:]) * at[k]))
        parts[k] = values @ np.eye(factor.levels)[factor.codes] + np.log(mass[k] / np.sqrt(2.0 * np.pi))
    largest = parts.max(0)
    log_tau = points[:, d]
    out = (largest + np.log(np.exp(parts - largest).sum(0))).sum(1) - 0.5 * (points[:, :d] ** 2).sum(1) / 9.0
    return out + log_tau - 0.5 * (prior.df + 1.0) * np.log1p((np.exp(log_tau) / prior.scale) ** 2 / prior.df)


def test_tails_of_tiny_groups_against_quadrature():
    """Probabilities of both tails of beta and tau, from 1 % on; the standard deviation may be zero as far as the rows can tell."""
    rng = np.random.default_rng(3)
    codes = np.arange(120) % 30
    y = (rng.random(120) < 1 / (1 + np.exp(0.4 - 0.5 * rng.standard_normal(30)[codes]))).astype(float)
    data = tb.Dataset.from_arrays(np.ones((120, 1)), y, groups={"g": codes})
    model = tb.models.logistic(data, tb.priors.normal(3.0))
    fit = tb.sample(model, "minibatch-gibbs", draws=10_000, warmup=1000, chains=4, seed=1, progress=False)
    axes = np.linspace(-2.5, 1.8, 60), np.linspace(-10.0, 1.8, 119)
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    density = marginal(model, grid)
    density = np.exp(density - density.max()).reshape(60, 119)
    for j, values in enumerate((fit.theta[:, :, 0], np.log(fit.theta[:, :, 1]))):
        law = density.sum(1 - j)
        below = np.concatenate([[0.0], np.cumsum(0.5 * (law[1:] + law[:-1]))])
        for p in (0.01, 0.05, 0.5, 0.95, 0.99):
            cut = np.interp(p, below / below[-1], axes[j])
            inside = (values < cut).astype(float)
            error = np.sqrt(p * (1.0 - p) / effective_sizes(inside[:, :, None])[0])
            assert abs(inside.mean() - p) < THRESHOLD * error + 2e-4  # of the grid


SETTINGS = {
    "probit": {"family": "probit"},
    "negbin": {"family": "negbin"},
    "gamma": {"family": "gamma"},
    "student_t": {"family": "student_t"},
    "poisson slopes": {"family": "poisson", "terms": ["1", "x1"]},
    "logistic slopes": {"family": "logistic", "terms": ["1", "x1"], "levels": 15},
    "tiny groups": {"n": 300, "levels": 60},
    "one level": {"levels": 1, "prior": {"default": tb.priors.normal(2.0), "1|g_sigma": tb.priors.half_normal(1.0)}},
    "default prior": {"prior": {}},
    "poisson, offsets": {"family": "poisson", "n": 3000, "levels": 40, "more": "offsets"},
    "weights": {"n": 3000, "levels": 40, "more": "weights"},
    "empty levels": {"n": 3000, "levels": 40, "more": "empty"},
    "equal responses": {"n": 1200, "levels": 30, "more": "equal"},
    "gaussian slopes": {"family": "gaussian", "n": 3000, "levels": 20, "terms": ["1", "x1"]},
    "slope alone": {"terms": ["x1"]},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_minibatch_gibbs_and_nuts_agree(name):
    model = model_of(**SETTINGS[name])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore" if name == "empty levels" else "error", "the rows carry no information about")
        mode = tb.find_mode(model, progress=False)
    options = {"mode": mode, "chains": 4, "seed": 3, "progress": False}
    exact = tb.sample(model, "minibatch-gibbs", draws=10_000, warmup=1000, **options)
    reference = tb.sample(model, tb.samplers.FullData(tb.moves.nuts(acceptance=0.98)), draws=2000, warmup=1000, **options)
    assert largest_disagreement(exact, reference) < THRESHOLD


@pytest.mark.slow
def test_a_tempered_likelihood_disagrees():
    X, y, codes = arrays(n=2000)
    fits = []
    for weight in (1.0, 1.3):
        data = tb.Dataset.from_arrays(X, y, weights=np.full(2000, weight), groups={"g": codes})
        model = tb.models.logistic(data, tb.priors.normal(3.0))
        fits.append(tb.sample(model, "minibatch-gibbs", draws=10_000, warmup=500, chains=4, seed=1, progress=False))
    assert largest_disagreement(*fits) > THRESHOLD


@pytest.mark.slow
def test_levels_with_equal_responses_mix():
    """Forty rows of each level, all ones in some: inefficiency below ten."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(30), 40)
    y = (rng.random(1200) < 1 / (1 + np.exp(-2.5 * rng.standard_normal(30)[codes]))).astype(float)
    y[codes < 4] = 1.0
    data = tb.Dataset.from_arrays(np.ones((1200, 1)), y, groups={"g": codes})
    fit = tb.sample(tb.models.logistic(data), "minibatch-gibbs", draws=5000, warmup=1000, chains=4, seed=1, progress=False)
    assert effective_sizes(fit.draws("1|g")).min() > 20_000 / 10


@pytest.mark.slow
def test_minibatch_gibbs_agrees_with_numpyro():
    jax = pytest.importorskip("jax")
    numpyro = pytest.importorskip("numpyro")
    import jax.numpy as jnp
    from numpyro import distributions as dist

    jax.config.update("jax_enable_x64", True)
    X, y, codes = arrays(n=20_000, levels=50)
    prior = {"default": tb.priors.normal(3.0), "1|g_sigma": tb.priors.half_normal(1.0)}
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y, groups={"g": codes}), prior)
    fit = tb.sample(model, "minibatch-gibbs", draws=10_000, warmup=1000, chains=4, seed=1, progress=False)

    def program():
        beta = numpyro.sample("beta", dist.Normal(0.0, 3.0).expand([3]).to_event(1))
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([50]).to_event(1))
        b = numpyro.deterministic("b", tau * z)
        numpyro.sample("y", dist.Bernoulli(logits=jnp.asarray(X) @ beta + b[codes]), obs=jnp.asarray(y))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = numpyro.infer.MCMC(
            numpyro.infer.NUTS(program, target_accept_prob=0.98), num_warmup=1000, num_samples=4000, progress_bar=False
        )
        run.run(jax.random.key(1))
    drawn = run.get_samples()
    reference = np.concatenate([drawn["beta"], np.asarray(drawn["tau"])[:, None], drawn["b"]], axis=1)[None]
    own = all_draws(fit)
    noise = own.var((0, 1)) / effective_sizes(own) + reference.var((0, 1)) / effective_sizes(reference)
    assert np.abs((own.mean((0, 1)) - reference.mean((0, 1))) / np.sqrt(noise)).max() < THRESHOLD


@pytest.mark.slow
@pytest.mark.parametrize("crossed", [False, True], ids=["one factor", "crossed"])
def test_simulation_based_calibration(crossed):
    """Ranks of parameters drawn from the prior among posterior draws given data drawn with them: uniform."""
    rng, runs, n = np.random.default_rng(0), 150, 90
    prior = {"default": tb.priors.normal(1.0), "1|g_sigma": tb.priors.half_normal(1.0)}
    prior |= {"1|h_sigma": tb.priors.half_normal(1.0)} if crossed else {}
    ranks = []
    for run in range(runs):
        X = np.column_stack([np.ones(n), rng.standard_normal(n)])
        groups, sizes = {"g": np.arange(n) % 6}, {"g": 6}
        if crossed:
            groups["h"], sizes["h"] = (np.arange(n) // 6) % 5, 5
        beta, sds = rng.standard_normal(2), np.abs(rng.standard_normal(len(groups)))
        effects = [s * rng.standard_normal(size) for s, size in zip(sds, sizes.values(), strict=True)]
        eta = X @ beta + sum(b[codes] for b, codes in zip(effects, groups.values(), strict=True))
        y = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
        model = tb.models.logistic(tb.Dataset.from_arrays(X, y, groups=groups), prior)
        fit = tb.sample(model, "minibatch-gibbs", draws=99, warmup=300, thin=10, chains=1, seed=run, progress=False)
        truth = np.concatenate([beta, sds, [b[0] for b in effects]])
        draws = np.column_stack([fit.theta[0], *(fit.draws(f"1|{name}")[0, :, 0] for name in groups)])
        ranks.append((draws < truth).sum(0))
    ranks = np.array(ranks)
    for j in range(ranks.shape[1]):
        counts = np.bincount(ranks[:, j] // 10, minlength=10)
        assert ((counts - runs / 10) ** 2 / (runs / 10)).sum() < 45.0  # chi-square with 9 degrees of freedom: one in a million
