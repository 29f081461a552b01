"""The search for the mode where it is hard: kinks of Laplace priors, likelihoods that are not concave, collinear columns."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import tallbayes as tb
from tallbayes import find_mode
from tallbayes.samplers import ExactMinibatch
from tallbayes.testing import THRESHOLD, exact_posterior, invariance_scores, log_likelihood_gradient


def design(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng, np.column_stack([np.ones(n), rng.normal(size=(n, d - 1))])


def sparse_logistic(scale, n=4000, seed=1, copies=False):
    """Six columns of which three have no effect; with `copies` a seventh that is a combination of two others."""
    rng, x = design(n, 6, seed)
    y = (rng.random(n) < expit(x @ [0.3, 0.8, -0.5, 0.0, 0.0, 0.0])).astype(float)
    if copies:
        x = np.column_stack([x, x[:, 1] - x[:, 2]])
    return tb.models.logistic(tb.Dataset.from_arrays(x, y), tb.priors.laplace(scale))


def robust(prior, scale, n=3000, seed=2, extra=None):
    rng, x = design(n, 5, seed)
    y = x @ [-2.0, 0.5, -0.5, 1.0, 0.0] + scale * rng.standard_t(4, n)
    x = x if extra is None else np.column_stack([x, extra(x)])
    return tb.models.student_t(tb.Dataset.from_arrays(x, y), prior, nu=4.0, scale=scale)


def slopes_of(model, theta):
    """Gradient of the log-likelihood, and slopes of the Laplace prior."""
    return log_likelihood_gradient(model, theta), 1.0 / model.prior_terms.scale


def assert_optimal(mode):
    """Zero gradient where the prior is smooth; on a corner a slope of the rows that is no steeper than the prior's."""
    model, theta = mode.model, mode.reference
    rows, prior = slopes_of(model, theta)
    on = theta == model.prior_terms.location
    rest = np.where(on, 0.0, rows - prior * np.sign(theta - model.prior_terms.location))
    assert np.linalg.norm(mode.factor.T @ rest) < 1e-5
    assert (np.abs(rows[on]) <= prior[on] * (1 + 1e-6)).all()


@pytest.mark.parametrize("scale", [0.003, 0.01, 0.05, 1.0])
@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")  # collinear columns
def test_sparse_modes_equal_scikit_learn(scale, copies):
    model = sparse_logistic(scale, copies=copies)
    mode = find_mode(model, progress=False)
    assert_optimal(mode)
    assert mode.passes <= 8
    peer = LogisticRegression(C=scale, l1_ratio=1.0, solver="liblinear", fit_intercept=False, tol=1e-10, max_iter=10_000)
    peer.fit(model.data.records[:, : model.data.d], model.data.y)
    np.testing.assert_allclose(mode.log_posterior, model.log_posterior(peer.coef_[0]), rtol=1e-9)
    if not copies:
        np.testing.assert_allclose(mode.reference, peer.coef_[0], atol=1e-4 * mode.laplace().sd.max())
        np.testing.assert_array_equal(mode.reference == 0.0, np.abs(peer.coef_[0]) < 1e-9)
    if scale == 0.003:
        assert (mode.reference == 0.0).sum() >= 3


def test_kinks_away_from_zero_are_kept_exactly():
    rng, x = design(2000, 3)
    data = tb.Dataset.from_arrays(x, x @ [0.1, 0.7, -0.4] + rng.normal(size=2000))
    model = tb.models.gaussian(data, tb.priors.laplace(0.002, [0.1, 0.7, 0.3]), sigma=1.0)
    mode = find_mode(model, progress=False)
    assert_optimal(mode)
    assert (mode.reference[:2] == [0.1, 0.7]).all()
    assert mode.reference[2] != 0.3


@pytest.mark.parametrize("scale", [1.0, 0.1, 0.01])
@pytest.mark.parametrize("prior", [tb.priors.laplace(0.01), tb.priors.laplace(1.0), tb.priors.normal(1.0)])
def test_a_likelihood_that_is_not_concave_has_its_mode_found(scale, prior):
    """Far from the mode most rows of narrow Student-t errors curve the wrong way."""
    model = robust(prior, scale)
    assert np.linalg.eigvalsh(model.curvature(np.zeros(5))[3])[0] < 0.0 or scale == 1.0
    mode = find_mode(model, progress=False)
    assert mode.passes <= 20
    assert np.abs(mode.reference - [-2.0, 0.5, -0.5, 1.0, 0.0]).max() < 10 * scale / np.sqrt(3000) + 0.01
    if prior.name == "laplace":
        assert_optimal(mode)
    else:
        assert np.linalg.norm(mode.factor.T @ model.gradient(mode.reference)[1]) < 1e-6


@pytest.mark.parametrize("prior", [tb.priors.normal(10.0), tb.priors.laplace(10.0, 3.0), tb.priors.flat()])
def test_a_start_that_is_a_minimum_is_left(prior):
    """Half of the responses at -5 and half at 5: at zero, where the search starts, the log posterior has a minimum."""
    y = np.repeat([-5.0, 5.0], 100)
    model = tb.models.student_t(tb.Dataset.from_arrays(np.ones((200, 1)), y), prior, nu=4.0, scale=0.5)
    mode = find_mode(model, progress=False)
    assert 4.0 < abs(mode.reference[0]) < 5.0
    assert mode.precision[0, 0] > 0.0
    assert mode.log_posterior > model.log_posterior(np.zeros(1))


COLLINEAR = (tb.priors.laplace(1.0), tb.priors.laplace(0.01), tb.priors.normal(2.0), tb.priors.cauchy())


@pytest.mark.parametrize("prior", COLLINEAR)
def test_collinear_columns_have_a_mode_and_are_named(prior):
    """Student-t errors and a column that repeats two others: near singular, not concave and, for Laplace, with kinks at once."""
    model = robust(prior, 0.1, extra=lambda x: x[:, 1] - x[:, 2])
    with pytest.warns(tb.TallbayesWarning, match=r"'x1', 'x2', 'x5' are collinear; only the prior determines"):
        mode = find_mode(model, progress=False)
    assert mode.passes <= 20
    assert np.isfinite(mode.factor).all()
    x = model.data.records[:, :6]
    fitted = (x @ mode.reference) - x[:, :5] @ [-2.0, 0.5, -0.5, 1.0, 0.0]
    assert np.abs(fitted).max() < 0.1
    if prior.name == "laplace":
        assert_optimal(mode)


def test_a_column_of_zeros_is_named_under_a_proper_prior():
    model = robust(tb.priors.laplace(1.0), 1.0, extra=lambda x: np.zeros(x.shape[0]))
    with pytest.warns(tb.TallbayesWarning, match="the rows carry no information about 'x5'"):
        mode = find_mode(model, progress=False)
    assert mode.reference[5] == 0.0
    assert mode.laplace().sd[5] == pytest.approx(np.sqrt(2.0), rel=1e-3)  # of the prior


def test_columns_far_from_zero_are_not_taken_for_collinear(recwarn):
    """Years beside an intercept: nearly parallel, but told apart by the rows."""
    rng, x = design(3000, 3)
    x[:, 1] = 2001.0 + rng.integers(0, 2, 3000)
    y = (rng.random(3000) < expit(0.5 * x[:, 2])).astype(float)
    find_mode(tb.models.logistic(tb.Dataset.from_arrays(x, y), tb.priors.normal(10.0)), progress=False)
    assert not recwarn.list


def test_an_ordinary_problem_takes_no_more_passes():
    """Counts of the search before it knew of kinks and damping: four at the tight tolerance, three at that of samplers."""
    rng, x = design(300_000, 5)
    y = (rng.random(300_000) < expit(x @ [-2.0, 0.5, -0.5, 1.0, 0.0])).astype(float)
    for prior in (tb.priors.normal(3.0), tb.priors.laplace(0.1)):
        model = tb.models.logistic(tb.Dataset.from_arrays(x, y), prior)
        assert find_mode(model, progress=False).passes <= 4
        assert find_mode(model, progress=False, tolerance=1e-2).passes <= 3


def test_exact_minibatch_is_exact_at_a_corner():
    """Before, the reference was the mode of a rounded prior whose gradient was taken for the rows': the mean was off by a standard
    deviation."""
    rng, x = design(60, 2, seed=3)
    y = (rng.random(60) < expit(x @ [0.5, 0.2])).astype(float)
    model = tb.models.logistic(tb.Dataset.from_arrays(x, y), tb.priors.laplace(0.15))
    mode = find_mode(model, progress=False)
    assert mode.reference[1] == 0.0
    scores = invariance_scores(ExactMinibatch(), model, exact_posterior(model, points=301), starts=6000, steps=20, mode=mode)
    assert np.abs(scores).max() < THRESHOLD


@pytest.mark.parametrize("scale", [0.02, 0.1, 0.5])
def test_the_laplace_fit_at_a_corner_has_the_spread_of_the_posterior(scale):
    """Two correlated columns, so that the spread along a corner is not that of the coordinate alone."""
    rng, x = design(400, 2, seed=5)
    x[:, 0] = 0.8 * x[:, 1] + 0.6 * rng.normal(size=400)
    y = 0.1 * x[:, 0] + rng.normal(size=400)
    model = tb.models.gaussian(tb.Dataset.from_arrays(x, y), tb.priors.laplace(scale), sigma=1.0)
    mode = find_mode(model, progress=False)
    posterior = exact_posterior(model, points=401)
    ratio = mode.laplace().sd / np.sqrt(np.diag(posterior.covariance))
    assert (np.abs(ratio - 1.0) < 0.1).all()


def test_the_mode_of_a_narrow_robust_regression_is_that_of_another_optimiser():
    model = robust(tb.priors.normal(1.0), 0.1)
    mode = find_mode(model, progress=False)

    def minus(theta):
        value, gradient = model.gradient(theta)
        return -value, -gradient

    peer = minimize(
        minus, np.array([-2.0, 0.5, -0.5, 1.0, 0.0]), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-8}
    )
    np.testing.assert_allclose(mode.reference, peer.x, atol=1e-3 * mode.laplace().sd.min())
