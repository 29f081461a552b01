"""The mode and the Laplace fit against scikit-learn and statsmodels, and the models that have none."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from tallbayes import find_mode, priors
from tallbayes.data import Dataset
from tallbayes.errors import DataError, ModelError, OptionError, TallbayesWarning
from tallbayes.models import build, gaussian, logistic, poisson

FAMILIES = {"logistic": sm.families.Binomial(), "poisson": sm.families.Poisson(), "gaussian": sm.families.Gaussian()}


def problem(family, n=3000, seed=1):
    """X with an intercept, y, offset, whole weights."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2)), rng.choice([0.0, 1.0], n), rng.normal(20.0, 3.0, n)])
    theta = np.array([-0.9, 0.6, -0.4, 0.5, 0.03])
    offset, weights = 0.3 * rng.normal(size=n), rng.integers(1, 4, n).astype(float)
    eta = X @ theta + offset
    if family == "logistic":
        y = (rng.random(n) < expit(eta)).astype(float)
    elif family == "poisson":
        y = rng.poisson(np.exp(eta)).astype(float)
    else:
        y = eta + 0.8 * rng.normal(size=n)
    return X, y, offset, weights


def mode_of(family, X, y, prior=None, offset=None, weights=None, **options):
    return find_mode(build(family, Dataset.from_arrays(X, y, offset, weights), prior, **options), progress=False)


@pytest.mark.parametrize("scale", [0.05, 1.0, 30.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_logistic_mode_equals_scikit_learn(scale, weighted):
    X, y, _, weights = problem("logistic")
    weights = weights if weighted else None
    peer = LogisticRegression(C=scale**2, fit_intercept=False, tol=1e-12, max_iter=1000, solver="newton-cholesky")
    peer.fit(X, y, sample_weight=weights)
    found = mode_of("logistic", X, y, priors.normal(scale), weights=weights)
    np.testing.assert_allclose(found.reference, peer.coef_[0], rtol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("with_offset", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_flat_prior_mode_equals_statsmodels(family, with_offset, weighted):
    X, y, offset, weights = problem(family)
    offset, weights = offset if with_offset else None, weights if weighted else None
    model = sm.GLM(y, X, FAMILIES[family], offset=offset, freq_weights=weights)
    peer = model.fit(tol=1e-14, maxiter=100, scale=1.0)
    options = {"sigma": 1.0} if family == "gaussian" else {}
    found = mode_of(family, X, y, priors.flat(), offset, weights, **options)
    np.testing.assert_allclose(found.reference, peer.params, rtol=1e-6)
    np.testing.assert_allclose(found.covariance, peer.cov_params(), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_unknown_sigma_is_its_maximum_likelihood_estimate(weighted):
    X, y, offset, weights = problem("gaussian")
    weights = weights if weighted else np.ones(y.size)
    peer = sm.WLS(y - offset, X, weights).fit()
    sigma = np.sqrt(np.average(peer.resid**2, weights=weights))
    found = mode_of("gaussian", X, y, priors.flat(), offset, weights)
    np.testing.assert_allclose(found.reference, np.append(peer.params, np.log(sigma)), rtol=1e-6)
    assert found.laplace().sd[-1] == pytest.approx(np.sqrt(0.5 / weights.sum()), rel=1e-5)
    assert found.laplace().names[-1] == "log_sigma"


@pytest.mark.parametrize("family", FAMILIES)
def test_whole_weights_are_repeated_rows(family):
    X, y, offset, weights = problem(family, n=400)
    times = weights.astype(int)
    repeated = [np.repeat(part, times, axis=0) for part in (X, y, offset)]
    once = mode_of(family, X, y, priors.normal(3.0), offset, weights)
    twice = mode_of(family, repeated[0], repeated[1], priors.normal(3.0), repeated[2])
    np.testing.assert_allclose(once.reference, twice.reference, rtol=1e-6)
    scale = np.sqrt(np.diag(once.precision))
    np.testing.assert_allclose(once.precision / np.outer(scale, scale), twice.precision / np.outer(scale, scale), atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "prior", [priors.normal(0.3), priors.cauchy(0.5), priors.student_t(3.0, 0.4), priors.weakly_informative()]
)
def test_the_mode_is_a_stationary_point_with_its_own_curvature(family, prior):
    X, y, offset, weights = problem(family, n=800)
    found = mode_of(family, X, y, prior, offset, weights)
    model, reference = found.model, found.reference
    value, gradient, hessian, precision = model.curvature(reference)
    assert np.linalg.norm(found.factor.T @ gradient) < 1e-6
    assert found.log_posterior == pytest.approx(model.log_posterior(reference), rel=1e-12)
    assert value == pytest.approx(found.log_posterior, rel=1e-12)
    np.testing.assert_array_equal(found.hessian, hessian)
    np.testing.assert_array_equal(found.precision, precision)
    np.testing.assert_allclose(found.gradient, gradient, atol=1e-10)
    for j in range(model.dim):
        step = np.zeros(model.dim)
        step[j] = 1e-3 * found.laplace().sd[j]
        slopes = (model.gradient(reference + step)[1] - model.gradient(reference - step)[1]) / (2.0 * step[j])
        np.testing.assert_allclose(slopes, -precision[j], rtol=1e-5, atol=1e-6 * np.abs(precision[j]).max())
        assert max(model.log_posterior(reference + 1e3 * s) for s in (step, -step)) < found.log_posterior


def large_problem():
    rng = np.random.default_rng(2)
    X = np.column_stack([np.ones(300_000), rng.normal(size=(300_000, 4))])
    y = (rng.random(300_000) < expit(X @ np.array([-2.0, 0.5, -0.5, 1.0, 0.0]))).astype(float)
    return X, y


def test_a_large_data_set_takes_few_passes_in_any_order():
    X, y = large_problem()
    order = np.lexsort([X[:, 3], y])
    found, in_order = mode_of("logistic", X, y), mode_of("logistic", X[order], y[order])
    assert 1 <= found.passes <= 5
    assert 1 <= in_order.passes <= 5
    np.testing.assert_allclose(in_order.reference, found.reference, atol=1e-5 * found.laplace().sd.min())
    norms = found.norms
    np.testing.assert_allclose(norms[:1000], np.linalg.norm(X[:1000] @ found.factor, axis=1), rtol=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_default_prior_does_not_care_about_units_of_columns(family):
    X, y, _, _ = problem(family, n=60)
    other = X.copy()
    other[:, 1] = 1000.0 * X[:, 1] - 300.0
    other[:, 2] = -0.01 * X[:, 2]
    other[:, 3] = 7.0 - 2.0 * X[:, 3]
    other[:, 4] = X[:, 4] + 1e3
    first, second = mode_of(family, X, y), mode_of(family, other, y)
    d = X.shape[1]
    np.testing.assert_allclose(other @ second.reference[:d], X @ first.reference[:d], rtol=1e-5, atol=1e-6)
    assert second.log_posterior == pytest.approx(first.log_posterior, rel=1e-9)
    assert not np.allclose(first.reference[:d], mode_of(family, X, y, priors.flat()).reference[:d], rtol=1e-3)


def test_the_default_gaussian_prior_follows_the_units_of_the_response():
    X, y, _, _ = problem("gaussian", n=60)
    first, second = mode_of("gaussian", X, y), mode_of("gaussian", X, 500.0 * y + 80.0)
    expected = 500.0 * first.reference[:-1] + 80.0 * np.eye(5)[0]
    np.testing.assert_allclose(second.reference[:-1], expected, rtol=1e-5)
    assert second.reference[-1] == pytest.approx(first.reference[-1] + np.log(500.0), rel=1e-6)


def separable(scale=1.0):
    X, _, _, _ = problem("logistic", n=500)
    return X * np.array([1.0, scale, 1.0, 1.0, 1.0]), (X[:, 1] > 0.1).astype(float)


def half_separable(scale):
    """The last column is not zero on thirty rows, and all of these have y = 1."""
    X, y, _, _ = problem("logistic", n=500)
    marked = np.zeros(500)
    marked[:30], y[:30] = scale, 1.0
    return np.column_stack([X, marked]), y


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_separable_data_have_no_posterior_under_a_flat_prior(scale):
    with pytest.raises(ModelError, match=r"separable \(first by 'x1'\).*flat prior.*Use tallbayes.priors.weakly_informative"):
        mode_of("logistic", *separable(scale), priors.flat())
    with pytest.raises(ModelError, match=r"separable \(first by 'x5'\)"):
        mode_of("logistic", *half_separable(scale), priors.flat())
    X, _ = separable(scale)
    with pytest.raises(ModelError, match=r"separable \(first by 'x0'\)"):
        mode_of("logistic", X[:, 1:2], (X[:, 1] > 0).astype(float), priors.flat())


@pytest.mark.parametrize("tolerance", [1e-4, 1e-2, 0.1])
def test_a_loose_tolerance_still_sees_that_there_is_no_mode(tolerance):
    for X, y in (separable(), half_separable(1.0), half_separable(1e3)):
        with pytest.raises(ModelError, match="separable"):
            find_mode(logistic(Dataset.from_arrays(X, y), priors.flat()), progress=False, tolerance=tolerance)
    X, y, _, _ = problem("logistic")
    model = logistic(Dataset.from_arrays(X, y), priors.flat())
    loose, tight = (find_mode(model, progress=False, tolerance=t) for t in (tolerance, 1e-6))
    assert loose.passes < tight.passes
    assert np.linalg.norm(loose.laplace().whiten(tight.reference)) < 2.0 * tolerance


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e3, 1e9])
def test_the_unit_of_a_column_does_not_make_data_separable(scale):
    X, y, _, _ = problem("logistic", n=500)
    plain, scaled = (mode_of("logistic", X * np.array([1.0, s, 1.0, 1.0, 1.0]), y, priors.flat()) for s in (1.0, scale))
    np.testing.assert_allclose(scaled.reference * np.array([1.0, scale, 1.0, 1.0, 1.0]), plain.reference, rtol=1e-6)


def test_small_weights_do_not_make_data_separable():
    X, y, _, _ = problem("logistic", n=500)
    light = mode_of("logistic", X, y, priors.flat(), weights=np.full(500, 1e-6))
    np.testing.assert_allclose(light.reference, mode_of("logistic", X, y, priors.flat()).reference, rtol=1e-3)


@pytest.mark.filterwarnings("ignore:column 'x1' separates the response")
@pytest.mark.parametrize("prior", [priors.weakly_informative(), priors.normal(2.5), priors.cauchy()])
def test_separable_data_converge_under_a_proper_prior(prior):
    for X, y in (separable(), half_separable(1.0)):
        found = mode_of("logistic", X, y, prior)
        assert np.linalg.norm(found.factor.T @ found.model.gradient(found.reference)[1]) < 1e-6
        assert np.abs(X @ found.reference).max() < 1e3


@pytest.mark.parametrize("family, response", [("logistic", 0.0), ("logistic", 1.0), ("poisson", 0.0)])
def test_a_constant_response_has_no_posterior_under_a_flat_prior(family, response):
    X, _, _, _ = problem("logistic", n=200)
    y = np.full(200, response)
    with pytest.raises(ModelError, match=f"every response is {response:g}, so the posterior under a flat prior is improper"):
        mode_of(family, X, y, priors.flat())
    assert np.isfinite(mode_of(family, X, y).reference).all()


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_counts_that_are_zero_wherever_a_column_is_not_have_no_posterior(scale):
    X, y, _, _ = problem("poisson", n=500)
    marked = np.zeros(500)
    marked[:30], y[:30] = scale, 0.0
    with pytest.raises(ModelError, match=r"'x5' has no finite estimate.*flat prior"):
        mode_of("poisson", np.column_stack([X, marked]), y, priors.flat())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_collinear_columns_are_named(family, scale):
    X, y, _, _ = problem(family, n=500)
    X = np.column_stack([X, scale * (X[:, 1] - 2.0 * X[:, 2])])
    with pytest.raises(
        ModelError, match=r"the columns 'x1', 'x2', 'x5' are collinear. Drop one of them, or use a proper prior"
    ):
        mode_of(family, X, y, priors.flat())
    with pytest.warns(TallbayesWarning, match="'x1', 'x2', 'x5' are collinear"):
        assert np.isfinite(mode_of(family, X, y, priors.normal(2.0)).reference).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_columns_that_differ_by_rounding_alone_are_named(family):
    X, y, _, _ = problem(family, n=500)
    nearly = X[:, 1] + 1e-6 * np.random.default_rng(5).normal(size=500)
    with pytest.raises(ModelError, match=r"the columns 'x1', 'x5' are collinear"):
        mode_of(family, np.column_stack([X, nearly]), y, priors.flat())


@pytest.mark.parametrize("family", FAMILIES)
def test_columns_without_information_are_named(family):
    X, y, _, _ = problem(family, n=500)
    with pytest.raises(ModelError, match=r"the data carry no information about 'x5': its column is zero .*\(constant: 'x5'\)"):
        mode_of(family, np.column_stack([X, np.zeros(500)]), y, priors.flat())
    for constant in (3.0, 0.1):
        with pytest.raises(ModelError, match=r"the columns 'x0', 'x5' are collinear \(constant: 'x5'\)"):
            mode_of(family, np.column_stack([X, np.full(500, constant)]), y, priors.flat())


@pytest.mark.parametrize("rows", [3, 5])
def test_more_parameters_than_rows_need_a_proper_prior(rows):
    X, y, _, _ = problem("logistic")
    with pytest.raises(ModelError, match=f"5 parameters and {rows} rows under a flat prior: the posterior is improper"):
        mode_of("logistic", X[:rows], y[:rows], priors.flat())
    assert np.isfinite(mode_of("logistic", X[:rows], y[:rows], priors.normal(2.0)).reference).all()


@pytest.mark.parametrize("prior", [priors.flat(), priors.weakly_informative()])
def test_an_exact_fit_leaves_sigma_without_a_mode(prior):
    X, _, _, _ = problem("gaussian", n=200)
    for y in (X @ np.arange(5.0), np.full(200, 4.0), np.full(200, 0.1)):
        with pytest.raises(
            ModelError, match=r"'log_sigma' has no finite mode: the columns fit the response exactly.*Give sigma="
        ):
            mode_of("gaussian", X, y, prior)
    with pytest.raises(ModelError, match="'log_sigma' has no finite mode"):
        mode_of("gaussian", X[:, 1:], np.zeros(200), prior)


@pytest.mark.parametrize(
    "family, late, message",
    [
        ("logistic", -1.0, r"row 70000: response 'y' is -1, but logistic needs 0 or 1\. Recode the response as 0 and 1\."),
        ("logistic", 0.5, "row 70000: response 'y' is 0.5, but logistic needs 0 or 1"),
        ("poisson", 2.5, "row 70000: response 'y' is 2.5, but poisson needs a whole number >= 0.*log\\(exposure\\)"),
        ("poisson", -3.0, "row 70000: response 'y' is -3, but poisson needs a whole number >= 0"),
    ],
)
def test_responses_outside_the_support_are_named(family, late, message):
    y = np.zeros(80_000)
    y[70_000] = late
    with pytest.raises(DataError, match=message):
        build(family, Dataset.from_arrays(np.ones(80_000), y))


@pytest.mark.parametrize(
    "action, error, message",
    [
        (lambda: logistic(np.ones(3)), DataError, "needs a Dataset, not a ndarray"),
        (lambda: logistic(Dataset.from_arrays([1.0, 2.0], [0, 1]), 10.0), DataError, "prior must come from tallbayes.priors"),
        (lambda: logistic(Dataset.from_arrays([1.0], [0], weights=[0.0])), DataError, "all weights are zero"),
        (
            lambda: poisson(Dataset.from_arrays([1.0], [0])).log_posterior([1.0, 2.0]),
            ModelError,
            r"1 elements \(x0\); got shape \(2,\)",
        ),
        (lambda: gaussian(Dataset.from_arrays([1.0], [0]), sigma=0.0), OptionError, "sigma must be a positive number"),
        (lambda: gaussian(Dataset.from_arrays([1.0], [0]), sigma=np.nan), OptionError, "sigma must be a positive number"),
        (
            lambda: build("lgoistic", Dataset.from_arrays([1.0], [0])),
            OptionError,
            "unknown family 'lgoistic'; did you mean 'logistic'",
        ),
        (lambda: mode_of("logistic", [[1e200], [2e200], [-1e200]], [0, 1, 1]), ModelError, "rescale columns with very large"),
        (lambda: mode_of("logistic", [1.0, 2.0], [0, 1], priors.normal(-1.0)), OptionError, "the prior's scale"),
    ],
)
def test_impossible_models_are_refused(action, error, message):
    with pytest.raises(error, match=message):
        action()


def test_laplace_draws_have_its_mean_and_covariance():
    X, y, offset, weights = problem("poisson", n=400)
    found = mode_of("poisson", X, y, None, offset, weights)
    laplace, rng = found.laplace(), np.random.default_rng(3)
    np.testing.assert_allclose(laplace.covariance, np.linalg.inv(found.precision), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(laplace.sd, np.sqrt(np.diag(laplace.covariance)), rtol=1e-12)
    np.testing.assert_array_equal(laplace.factor, np.tril(laplace.factor))
    np.testing.assert_array_equal(laplace.mean, found.reference)
    assert laplace.names == found.model.names

    count = 20_000
    draws = laplace.draw(rng, count)
    assert draws.shape == (count, 5)
    white = laplace.whiten(draws)
    np.testing.assert_allclose(laplace.mean + white @ laplace.factor.T, draws, rtol=1e-9)
    assert np.abs(white.mean(0)).max() < 4.9 / np.sqrt(count)
    assert np.abs(np.cov(white.T) - np.eye(5)).max() < 4.9 * np.sqrt(2.0 / count)
    np.testing.assert_allclose(laplace.whiten(draws[:6].reshape(2, 3, 5)), white[:6].reshape(2, 3, 5), rtol=1e-12)
    np.testing.assert_allclose(laplace.whiten(draws[0]), white[0], rtol=1e-12)
    np.testing.assert_array_equal(laplace.whiten(laplace.mean), 0.0)

    wide = laplace.whiten(laplace.draw(rng, count, spread=3.0))
    assert np.abs(wide.std(0) - 3.0).max() < 3.0 * 4.9 / np.sqrt(2.0 * count)


def test_sigma_is_found_without_an_intercept_whatever_the_mean_of_the_response():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 2))
    for y in (np.full(300, 4.0), 1e6 + rng.normal(size=300)):
        found = mode_of("gaussian", X, y, priors.flat())
        with_offset = mode_of("gaussian", X, np.full(300, 4.0), priors.flat(), offset=4.0 - y)
        np.testing.assert_allclose(with_offset.reference, found.reference, rtol=1e-6)
        coefficients = np.linalg.lstsq(X, y)[0]
        np.testing.assert_allclose(found.reference[:-1], coefficients, rtol=1e-5)
        assert found.reference[-1] == pytest.approx(0.5 * np.log(np.mean((y - X @ coefficients) ** 2)), rel=1e-6)
