"""Families with unknown parameters: residuals without cancellation, third derivatives under their certificate, exact posteriors."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

import tallbayes as tb
from tallbayes.testing import THRESHOLD, effective_sizes, exact_posterior

# Of each member: responses, and the law of one row as mpmath writes it, up to terms without parameters.


def design(n, seed=1):
    rng = np.random.default_rng(seed)
    return rng, np.column_stack([np.ones(n), rng.standard_normal((n, 2))])


def rows_of(name, n, seed=1):
    rng, X = design(n, seed)
    eta = X @ [0.6, 0.4, -0.3]
    if name == "negbin":
        y = rng.poisson(np.exp(eta) * rng.standard_gamma(2.5, n) / 2.5)
    elif name == "gamma":
        y = np.exp(eta) * rng.standard_gamma(3.0, n) / 3.0
    elif name == "inverse_gaussian":
        y = rng.wald(np.exp(eta), 3.0)
    elif name in FAILURES:
        times, limit = np.exp(eta + 0.6 * np.log(rng.standard_exponential(n))), rng.exponential(6.0, n)
        y = tb.data.censored(np.minimum(times, limit), times <= limit)
    elif name == "ordinal":
        y = (X[:, 1] + rng.logistic(size=n) > 0.3).astype(float)
    else:
        y = eta + 0.7 * rng.standard_t(4.0, n)
    return X, y.astype(float)


def test_the_mode_is_the_fit_of_statsmodels():
    import statsmodels.api as sm

    X, y = rows_of("negbin", 3000)
    prior = {"default": tb.priors.flat(), "log_size": tb.priors.flat()}
    mode = tb.find_mode(tb.models.negbin(tb.Dataset.from_arrays(X, y), prior), progress=False)
    found = sm.NegativeBinomial(y, X).fit(disp=0, gtol=1e-10, maxiter=500)
    assert mode.reference[:3] == pytest.approx(found.params[:3], abs=2e-4)
    assert math.exp(-mode.reference[3]) == pytest.approx(found.params[3], rel=1e-3)
    sd = mode.laplace().sd
    assert sd[:3] == pytest.approx(found.bse[:3], rel=5e-3)
    assert sd[3] == pytest.approx(found.bse[3] / found.params[3], rel=1e-2)  # by the delta method


@pytest.mark.parametrize("name", ["gamma", "student_t", "student_free"])
def test_the_mode_is_that_of_a_general_optimiser(name):
    X, y = rows_of(name.partition("_free")[0], 2000)
    data = tb.Dataset.from_arrays(X, y)
    if name == "gamma":
        model = tb.models.gamma(data, tb.priors.flat())
        law = lambda v: -stats.gamma(np.exp(v[3]), scale=np.exp(X @ v[:3] - v[3])).logpdf(y).sum()  # noqa: E731
    elif name == "student_t":
        model = tb.models.student_t(data, tb.priors.flat(), nu=4.0)
        law = lambda v: -stats.t(4.0, X @ v[:3], np.exp(v[3])).logpdf(y).sum()  # noqa: E731
    else:
        model = tb.models.student_t(data, {"default": tb.priors.flat(), "log_nu": tb.priors.flat()})
        law = lambda v: -stats.t(np.exp(v[4]), X @ v[:3], np.exp(v[3])).logpdf(y).sum()  # noqa: E731
    mode = tb.find_mode(model, progress=False)
    rng = np.random.default_rng(0)
    best = optimize.minimize(law, mode.reference + 0.05 * rng.standard_normal(model.dim), method="BFGS")
    assert mode.reference == pytest.approx(best.x, abs=2e-4)
    normalised = model.log_posterior(mode.reference) + model.family.log_normaliser(model.member, y).sum()
    assert normalised == pytest.approx(-law(mode.reference), rel=1e-10)


def survival_rows(n=3000, seed=7):
    rng, X = design(n, seed)
    times = np.exp(X @ [0.5, 0.4, -0.3] + 0.6 * np.log(rng.standard_exponential(n)))
    limit = rng.exponential(4.0, n)
    return X, np.minimum(times, limit), times <= limit


FAILURES = {
    "weibull": lambda sigma, eta: stats.weibull_min(1 / sigma, scale=np.exp(eta)),
    "loglogistic": lambda sigma, eta: stats.fisk(1 / sigma, scale=np.exp(eta)),
    "lognormal": lambda sigma, eta: stats.lognorm(sigma, scale=np.exp(eta)),
}


@pytest.mark.parametrize("name", FAILURES)
def test_survival_models_are_those_of_scipy(name):
    """Density of events, survival function of censored rows; with the indicator swapped the mode is elsewhere."""
    X, times, event = survival_rows()
    model = getattr(tb.models, name)(tb.Dataset.from_arrays(X, tb.data.censored(times, event)), tb.priors.flat())

    def loss(v):
        law = FAILURES[name](np.exp(v[3]), X @ v[:3])
        return -(law.logpdf(times)[event].sum() + law.logsf(times)[~event].sum())

    mode = tb.find_mode(model, progress=False)
    best = optimize.minimize(loss, mode.reference + 0.03, method="BFGS")
    assert mode.reference == pytest.approx(best.x, abs=5e-4)
    whole = model.log_posterior(mode.reference) + model.log_normaliser(np.arange(times.size)).sum()
    assert whole == pytest.approx(-loss(mode.reference), rel=1e-9)
    swapped = getattr(tb.models, name)(tb.Dataset.from_arrays(X, tb.data.censored(times, ~event)), tb.priors.flat())
    assert np.abs(tb.find_mode(swapped, progress=False).reference - best.x).max() > 0.2


def test_times_and_trials_are_checked():
    with pytest.raises(tb.DataError, match="row 1: the time is 0"):
        tb.data.censored([1.0, 0.0], [1, 1])
    with pytest.raises(tb.DataError, match="event must be True or 1"):
        tb.data.censored([1.0, 2.0], [1, 2])
    with pytest.raises(tb.DataError, match="row 0: 3 successes in 2 trials"):
        tb.data.proportion([3], [2])
    with pytest.raises(tb.DataError, match=r"row 1: a proportion of 0.3 in 5 trials is not a whole number"):
        tb.models.binomial(tb.Dataset.from_arrays(np.ones((2, 1)), [0.2, 0.3], weights=[5, 5]))
    with pytest.raises(tb.DataError, match="weibull needs a time"):
        tb.models.weibull(tb.Dataset.from_arrays(np.ones((2, 1)), [0.0, 0.3]))


def test_binomial_counts_are_logistic_regression_of_their_trials():
    import statsmodels.api as sm

    rng, X = design(400, 3)
    trials = rng.integers(1, 9, 400)
    successes = rng.binomial(trials, 1 / (1 + np.exp(-X @ [0.2, 0.7, -0.4])))
    y, weights = tb.data.proportion(successes, trials)
    model = tb.models.binomial(tb.Dataset.from_arrays(X, y, weights=weights), tb.priors.flat())
    mode = tb.find_mode(model, progress=False)
    found = sm.GLM(np.column_stack([successes, trials - successes]), X, family=sm.families.Binomial()).fit(tol=1e-12)
    assert mode.reference == pytest.approx(found.params, abs=1e-5)
    assert mode.laplace().sd == pytest.approx(found.bse, rel=1e-5)
    index = np.arange(400)
    whole = model.log_posterior(mode.reference) + (weights * model.log_normaliser(index)).sum()
    assert whole == pytest.approx(stats.binom(trials, 1 / (1 + np.exp(-X @ mode.reference))).logpmf(successes).sum(), rel=1e-10)


@pytest.mark.parametrize("link", ["logit", "probit"])
@pytest.mark.parametrize("intercept", [False, True])
def test_ordered_classes_against_statsmodels(link, intercept):
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    rng, X = design(2000, 4)
    latent = X @ [0.0, 0.8, -0.5] + (rng.logistic(size=2000) if link == "logit" else rng.standard_normal(2000))
    y = np.digitize(latent, [-1.0, 0.2, 1.5])
    data = tb.Dataset.from_arrays(X if intercept else X[:, 1:], y)
    model = tb.models.ordinal(data, tb.priors.flat(), link=link)
    mode = tb.find_mode(model, progress=False)
    found = OrderedModel(y, X[:, 1:], distr=link).fit(method="bfgs", disp=0, gtol=1e-8)
    cuts = found.model.transform_threshold_params(found.params)[1:-1]
    slopes, ours = (mode.reference[1:3], mode.reference[3:]) if intercept else (mode.reference[:2], mode.reference[2:])
    assert slopes == pytest.approx(found.params[:2], abs=2e-4)
    assert ours == pytest.approx(cuts[1:] - cuts[0] if intercept else cuts, abs=4e-4)
    assert intercept is False or mode.reference[0] == pytest.approx(-cuts[0], abs=2e-4)
    assert model.log_posterior(mode.reference) == pytest.approx(found.llf, abs=1e-4)
    crossed = mode.reference.copy()
    crossed[-2:] = crossed[:-3:-1]
    assert model.admits(mode.reference) and not model.admits(crossed)
    p = model.family.full_mean(
        model.member, (X if intercept else X[:, 1:])[:5] @ mode.reference[None, : data.d].T, mode.reference[None, data.d :]
    )
    assert p.sum(2) == pytest.approx(np.ones((5, 1))) and p[:, 0] == pytest.approx(found.predict(X[:5, 1:]), abs=2e-4)


def test_classes_without_rows_are_refused():
    data = tb.Dataset.from_arrays(np.arange(4.0)[:, None], [0, 2, 2, 0])
    with pytest.raises(tb.OptionError, match=r"every one of the 3 classes needs rows; the counts are \[2, 0, 2\]"):
        tb.models.ordinal(data)
    with pytest.raises(tb.OptionError, match="did you mean 'logit'"):
        tb.models.ordinal(data, link="logt")


def test_beta_and_inverse_gaussian_against_scipy():
    rng, X = design(1500, 5)
    m = 1 / (1 + np.exp(-X @ [0.3, 0.5, -0.2]))
    y = np.clip(rng.beta(8 * m, 8 * (1 - m)), 1e-6, 1 - 1e-6)
    positive = rng.wald(np.exp(X @ [0.4, 0.3, -0.2]), 3.0)

    def beta_loss(v):
        m, p = 1 / (1 + np.exp(-X @ v[:3])), np.exp(v[3])
        return -stats.beta(m * p, (1 - m) * p).logpdf(y).sum()

    def wald_loss(v):
        return -stats.invgauss(np.exp(X @ v[:3] - v[3]), scale=np.exp(v[3])).logpdf(positive).sum()

    for name, response, loss in (("beta", y, beta_loss), ("inverse_gaussian", positive, wald_loss)):
        model = getattr(tb.models, name)(tb.Dataset.from_arrays(X, response), tb.priors.flat())
        mode = tb.find_mode(model, progress=False)
        best = optimize.minimize(loss, mode.reference + 0.02, method="BFGS")
        assert mode.reference == pytest.approx(best.x, abs=5e-4)
        whole = model.log_posterior(mode.reference) + model.family.log_normaliser(model.member, response).sum()
        assert whole == pytest.approx(-loss(mode.reference), rel=1e-9)


SMALL = {
    "negbin": lambda data: tb.models.negbin(data, {"default": tb.priors.normal(2.0), "size": tb.priors.gamma(2.0, 1.0)}),
    "gamma": lambda data: tb.models.gamma(data, tb.priors.normal(2.0)),
    "student_t": lambda data: tb.models.student_t(data, tb.priors.normal(2.0), nu=4.0),
    "inverse_gaussian": lambda data: tb.models.inverse_gaussian(data, tb.priors.normal(2.0)),
    "weibull": lambda data: tb.models.weibull(data, tb.priors.normal(2.0)),
    "loglogistic": lambda data: tb.models.loglogistic(data, tb.priors.normal(2.0)),
    "lognormal": lambda data: tb.models.lognormal(data, tb.priors.normal(2.0)),
    "ordinal": lambda data: tb.models.ordinal(data, tb.priors.normal(2.0)),
}
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in list(SMALL)[1:]]


@pytest.mark.parametrize("name", ["negbin", *SLOW])
def test_exact_minibatch_has_the_exact_posterior(name):
    X, y = rows_of(name, 2000)
    model = SMALL[name](tb.Dataset.from_arrays(X[:, 1:2] if name == "ordinal" else X[:, :1], y))
    posterior = exact_posterior(model)
    fit = tb.sample(model, "exact-minibatch", draws=4000, warmup=300, chains=2, seed=2, progress=False)
    assert "T10" in fit.why and fit.guarantee.kind == "EXACT" and fit.evals.mean() < 400
    for power in (1, 2):
        centred = (fit.theta - posterior.mean) ** power
        wanted = np.zeros(2) if power == 1 else np.diag(posterior.covariance)
        z = (centred.mean((0, 1)) - wanted) / (centred.std((0, 1)) / np.sqrt(effective_sizes(centred)))
        assert np.abs(z).max() < THRESHOLD
    assert set(fit.derived()) == {name.removeprefix("log_") for name in model.nuisances if name.startswith("log_")}


def test_unknown_parameters_in_predictions_and_groups():
    X, y = rows_of("negbin", 800)
    model = tb.models.negbin(tb.Dataset.from_arrays(X, y))
    assert model.prior.describe() == "size: inverse_gamma(0.4, 0.3), others: weakly_informative" and model.default_prior
    fit = tb.sample(model, "exact-minibatch", draws=300, chains=2, seed=3, progress=False)
    assert "size: inverse_gamma" in str(fit.summary()) and "size" in fit.summary().index
    table = fit.predict(X[:50], kind="response", seed=1)
    assert (table["upper"] >= table["mean"]).all()
    assert np.isfinite(fit.loo().elpd)
    with pytest.raises(tb.ModelError, match=r"a hierarchical negbin model needs size=, a number: .*fit\.derived"):
        tb.models.negbin(tb.Dataset.from_arrays(X, y, groups={"g": np.arange(800) % 7}))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")
@pytest.mark.parametrize("sampler", ["nuts", "hmc-ecs"])
def test_models_without_a_certificate_are_served_by_other_samplers(sampler):
    """Student-t with unknown degrees of freedom: posterior means within a few Monte Carlo errors of the mode, all parameters."""
    X, y = rows_of("student_t", 4000)
    model = tb.models.student_t(tb.Dataset.from_arrays(X, y))
    fit = tb.sample(model, sampler, draws=400, warmup=300, chains=2, seed=1, progress=False)
    mode = tb.find_mode(model, progress=False)
    assert np.abs((fit.theta.mean((0, 1)) - mode.reference) / mode.laplace().sd).max() < 0.5
    assert np.abs(fit.theta.std((0, 1)) / mode.laplace().sd - 1.0).max() < 0.3
    assert set(fit.derived()) == {"scale", "nu"}
