"""Priors of unknown scale: densities, the palindrome by enumeration with its mutants, invariance from exact draws, rows that are read."""

import json
import math

import numpy as np
import pytest
from scipy import integrate, special, stats

import tallbayes as tb
from tallbayes.hyperpriors import scaled_exponential_integral
from tallbayes.prior_terms import prior_gradient, prior_precision, prior_value
from tallbayes.schemes import surrogate_transitions as transitions
from tallbayes.testing import THRESHOLD, invariance_scores
from tallbayes.testing.quadrature import ExactPosterior


def logistic_data(n, columns, seed=1, intercept=False, coefficients=None):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, columns))
    beta = np.zeros(columns) if coefficients is None else np.asarray(coefficients)
    y = (rng.random(n) < special.expit(X @ beta + 0.4 * intercept)).astype(float)
    return tb.Dataset.from_arrays(np.column_stack([np.ones(n), X]) if intercept else X, y)


# Densities


def test_the_exponential_integral():
    for z in np.concatenate([np.geomspace(1e-200, 0.999, 40), [1.0, 1.001, 3.0, 40.0, 700.0]]):
        expected = special.exp1(z) * np.exp(z) if z < 500 else 1 / z - 1 / z**2 + 2 / z**3 - 6 / z**4 + 24 / z**5
        assert scaled_exponential_integral(z) == pytest.approx(expected, rel=1e-8 if z >= 500 else 1e-12)


def test_densities_are_those_of_the_hierarchy():
    """Integrated over the local scale, against quadrature; ridge against SciPy."""
    data = logistic_data(50, 2)
    sd = data.moments.sd[:2]
    for name, maker in (("ridge", tb.priors.ridge), ("horseshoe", tb.priors.horseshoe)):
        model = tb.models.logistic(data, maker(0.7))

        def density(beta, tau, name=name):
            total = stats.halfcauchy(scale=0.7).logpdf(tau) + math.log(tau)
            for b, unit in zip(beta, 1.0 / sd, strict=True):
                if name == "ridge":
                    total += stats.norm(0, tau * unit).logpdf(b)
                    continue

                def law(log_scale, b=b, unit=unit, tau=tau):
                    scale = math.exp(log_scale)
                    return stats.norm(0, tau * scale * unit).pdf(b) * stats.halfcauchy.pdf(scale) * scale

                total += math.log(integrate.quad(law, -30, 30, limit=500, epsabs=1e-13)[0])
            return total

        points = [(np.array([0.3, -0.02]), 0.5), (np.array([1.2, 0.7]), 0.05), (np.array([-0.001, 2.0]), 3.0)]
        gaps = [prior_value(model.prior_terms, np.append(b, math.log(t))) - density(b, t) for b, t in points]
        assert np.ptp(gaps) < 1e-6


@pytest.mark.parametrize("maker", [tb.priors.ridge, tb.priors.horseshoe])
def test_gradients_of_the_prior(maker):
    model = tb.models.logistic(logistic_data(50, 3, intercept=True), {"x2": maker(0.7), "x3": maker(0.2)})
    assert model.names == ("x0", "x1", "x2", "x3", "log_tau[x2]", "log_tau[x3]")
    terms, theta = model.prior_terms, np.array([0.3, -0.4, 0.2, 0.9, -0.5, 0.3])
    gradient = np.zeros(6)
    value = prior_gradient(terms, theta, gradient)
    assert value == pytest.approx(prior_value(terms, theta))
    numeric = [(prior_value(terms, theta + e) - prior_value(terms, theta - e)) / 2e-6 for e in 1e-6 * np.eye(6)]
    assert gradient == pytest.approx(numeric, abs=1e-6)
    assert prior_precision(terms, theta).shape == (6, 6)


def test_fresh_local_scales_have_their_law():
    rng = np.random.default_rng(3)
    for b in (1e-6, 0.05, 1.0, 30.0):
        v = np.array([transitions.fresh_local_scale(rng, b) for _ in range(4000)]) ** -2.0
        shifted = special.exp1(b * (1.0 + v)) / special.exp1(b)  # P(V > v): e^-bv / (1 + v) integrated
        assert stats.kstest(shifted, "uniform").pvalue > 1e-6


# Exactness


def gibbs(joint, axis):
    """The transition matrix that draws one variable of a finite law given the others."""
    shape = joint.shape
    size = joint.size
    P = np.zeros((size, size))
    for state in np.ndindex(*shape):
        line = tuple(slice(None) if k == axis else i for k, i in enumerate(state))
        law = joint[line] / joint[line].sum()
        for new, p in enumerate(law):
            other = tuple(new if k == axis else i for k, i in enumerate(state))
            P[np.ravel_multi_index(state, shape), np.ravel_multi_index(other, shape)] += p
    return P


def acceptance(residual, bound, start, end):
    """Probability that the minibatch test accepts: mh-ss rates of two rows, Poisson numbers summed out."""
    dU = residual[:, start] - residual[:, end]
    forward, backward = bound + np.minimum(0.0, dU), bound + np.minimum(0.0, -dU)
    numbers = np.arange(60)
    first, second = (stats.poisson(rate).pmf(numbers) for rate in forward)
    with np.errstate(divide="ignore"):
        powers = [
            np.where(numbers > 0, numbers * np.log(b / max(f, 1e-300)), 0.0) for f, b in zip(forward, backward, strict=True)
        ]
    return float((np.outer(first, second) * np.exp(np.minimum(0.0, powers[0][:, None] + powers[1]))).sum())


def transition_error(order, restore=True):
    """|pi P - pi| of a surrogate transition on a finite model: coefficient, local and global scale, two rows."""
    rng = np.random.default_rng(2)
    shape = (3, 3, 2)
    surrogate = rng.random(shape) + 0.05
    surrogate /= surrogate.sum()
    residual = 0.4 * rng.standard_normal((2, 3))
    bound = np.abs(residual[:, :, None] - residual[:, None, :]).max((1, 2)) * 1.1
    posterior = surrogate * np.exp(residual.sum(0))[:, None, None]
    posterior /= posterior.sum()
    moves = {"b": gibbs(surrogate, 0), "a": gibbs(surrogate, 1), "c": gibbs(surrogate, 2)}
    K = np.linalg.multi_dot([moves[letter] for letter in order])
    accept = np.array([[acceptance(residual, bound, i, j) for j in range(3)] for i in range(3)])
    coefficient = np.indices(shape)[0].ravel()
    P = K * accept[np.ix_(coefficient, coefficient)]
    if restore:
        P += np.diag(1.0 - P.sum(1))
    else:  # the scales of a rejected proposal are kept
        rejected = K - P
        for i, j in np.ndindex(*K.shape):
            state = list(np.unravel_index(j, shape))
            state[0] = coefficient[i]
            P[i, np.ravel_multi_index(state, shape)] += rejected[i, j]
    pi = posterior.ravel()
    return np.abs(pi @ P - pi).max()


def test_a_palindrome_is_exact_and_other_orders_are_not():
    assert transition_error("acbca") < 1e-12
    assert transition_error("acbcaacbca") < 1e-12
    assert transition_error("acb") > 1e-4  # forward order only
    assert transition_error("acbac") > 1e-4
    assert transition_error("acbca", restore=False) > 1e-4


def test_the_code_is_that_palindrome(monkeypatch):
    calls = []
    for letter, name in (("a", "draw_local_scales"), ("c", "draw_global_scales"), ("b", "draw_coefficients")):
        monkeypatch.setattr(transitions, name, lambda *_, letter=letter: calls.append(letter))
    transitions.palindrome(None, None, 3, None, None, None)
    assert "".join(calls) == "acbca" * 3


def surrogate_of(model):
    setup = tb.samplers.SurrogateTransition().setup(model, tb.find_mode(model, progress=False), 0, False)
    return setup.policy.options(setup.policy.begin(), True).surrogate


def test_gibbs_draws_have_the_surrogate_law():
    """Cycling through the updates on a Gaussian model, whose surrogate is the posterior: against a grid of (beta, log tau)."""
    rng = np.random.default_rng(5)
    data = tb.Dataset.from_arrays(rng.standard_normal((30, 1)), rng.standard_normal(30))
    model = tb.models.gaussian(data, tb.priors.ridge(0.5), sigma=1.0)
    s = surrogate_of(model)
    beta, local, log_tau = np.zeros(1), np.ones(1), np.zeros(1)
    draws = []
    for _ in range(30_000):
        transitions.palindrome(rng, s, 1, beta, local, log_tau)
        draws.append((beta[0], log_tau[0]))
    draws = np.array(draws)[500:]
    exact = grid_posterior(model, (-1.5, 1.5), (-9.0, 6.0))
    for k in range(2):
        batches = draws[:29_000, k].reshape(100, -1).mean(1)
        assert abs(draws[:, k].mean() - exact.mean[k]) < 6 * batches.std() / 10


def grid_posterior(model, beta, log_tau, points=600):
    axes = tuple(a + (b - a) * (np.arange(points) + 0.5) / points for a, b in (beta, log_tau))
    rows = np.array([model.log_posterior(np.array([b, 0.0])) - model.log_prior(np.array([b, 0.0])) for b in axes[0]])
    prior = np.array([[model.log_prior(np.array([b, t])) for t in axes[1]] for b in axes[0]])
    density = rows[:, None] + prior
    weight = np.exp(density - density.max())
    return ExactPosterior(axes, weight / weight.sum())


class FromPrior:
    """Exact draws of (beta, log tau) of a model with one coefficient: from the prior, accepted with the likelihood over its maximum."""

    def __init__(self, data, name, scale):
        self.x, self.y, self.unit, self.name, self.scale = data.records[:, 0], data.y, 1.0 / data.moments.sd[0], name, scale
        grid = np.linspace(-20.0, 20.0, 4001)
        self.highest = self.log_likelihood(grid).max() + 1e-3
        many = self.draw(np.random.default_rng(0), 1_000_000)
        self.mean, self.covariance = many.mean(0), np.cov(many.T)

    def log_likelihood(self, beta):
        total = np.zeros(beta.size)
        for x, y in zip(self.x, self.y, strict=True):
            total += y * x * beta - np.logaddexp(0.0, x * beta)
        return total

    def draw(self, rng, count):
        kept, size = [], 0
        while size < count:
            tau = self.scale * np.abs(rng.standard_cauchy(500_000))
            local = np.abs(rng.standard_cauchy(tau.size)) if self.name == "horseshoe" else 1.0
            beta = tau * local * self.unit * rng.standard_normal(tau.size)
            good = np.log(rng.random(tau.size)) < self.log_likelihood(beta) - self.highest
            kept.append(np.column_stack([beta, np.log(tau)])[good])
            size += int(good.sum())
        return np.concatenate(kept)[:count]


@pytest.mark.parametrize("name", ["ridge", pytest.param("horseshoe", marks=pytest.mark.slow)])
def test_the_sampler_leaves_the_posterior_invariant(name):
    """From exact draws; a likelihood to the power 1.6 is another law and must be seen."""
    data = logistic_data(25, 1, coefficients=[0.8])
    exact = FromPrior(data, name, 0.8)
    sampler = tb.samplers.SurrogateTransition(share=0.7)
    model = tb.models.logistic(data, getattr(tb.priors, name)(0.8))
    assert np.abs(invariance_scores(sampler, model, exact, steps=20)).max() < THRESHOLD
    tempered = tb.Dataset.from_arrays(data.records[:, :1], data.y, weights=np.full(25, 1.6))
    other = tb.models.logistic(tempered, getattr(tb.priors, name)(0.8))
    assert np.abs(invariance_scores(sampler, other, exact, starts=5000, steps=20)).max() > THRESHOLD


# Runs


def test_scales_never_read_rows():
    """A Gaussian likelihood of known sigma has no residuals: every draw of coefficients and scales reads nothing at all."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((500, 4))
    y = X @ [1.0, 0.0, 0.0, -0.5] + rng.standard_normal(500)
    for prior in (tb.priors.ridge(), tb.priors.horseshoe(), {"x0": tb.priors.ridge(), "default": tb.priors.horseshoe(0.1)}):
        model = tb.models.gaussian(tb.Dataset.from_arrays(X, y), prior, sigma=1.0)
        fit = tb.sample(model, draws=300, chains=2, seed=2, progress=False)
        assert fit.meta["sampler_name"] == "surrogate-transition" and fit.evals.sum() == 0
        assert fit.guarantee.kind == "EXACT" and set(fit.derived()) == {n.removeprefix("log_") for n in model.nuisances}
        assert abs(fit.draws("x0").mean() - 1.0) < 0.3


def test_what_is_refused_and_described():
    data = logistic_data(60, 2)
    model = tb.models.logistic(data, tb.priors.horseshoe(0.3))
    assert "horseshoe(0.3)" in repr(model) and json.loads(json.dumps(model.describe())) == model.describe()
    again = tb.models.logistic(data, tb.priors.from_dict(model.describe()["prior"]))
    theta = np.array([0.1, -0.2, 0.4])
    assert again.log_prior(theta) == model.log_prior(theta)
    mode = tb.find_mode(model, progress=False)
    with pytest.raises(tb.ModelError, match="does not serve priors of unknown scale; use 'surrogate-transition'"):
        tb.samplers.ExactMinibatch().setup(model, mode, 0, False)
    with pytest.raises(tb.ModelError, match="is for priors of unknown scale"):
        plain = tb.models.logistic(data)
        tb.samplers.SurrogateTransition().setup(plain, tb.find_mode(plain, progress=False), 0, False)
    with pytest.raises(tb.ModelError, match="one linear predictor and no other unknown parameter"):
        tb.models.gaussian(data, tb.priors.ridge())
    with pytest.raises(tb.OptionError, match="unknown parameter in prior= 'tau'"):
        tb.models.logistic(data, {"default": tb.priors.ridge(), "tau": tb.priors.half_normal(1.0)})
    with pytest.raises(tb.OptionError, match="must be one positive number"):
        tb.priors.horseshoe(-1.0)


@pytest.mark.slow
def test_a_sparse_regression_against_full_data_nuts():
    """n = 400 and ten columns, three of them relevant: means and spreads agree with NUTS on the density without local scales."""
    beta = [1.0, -0.8, 0.6, *np.zeros(7)]
    model = tb.models.logistic(logistic_data(400, 10, 7, intercept=True, coefficients=beta), tb.priors.horseshoe(0.2))
    ours = tb.sample(model, draws=4000, chains=4, seed=1, progress=False)
    theirs = tb.sample(
        model, tb.samplers.FullData(tb.moves.nuts(acceptance=0.95)), draws=3000, chains=4, seed=1, progress=False
    )
    sd = theirs.theta.std((0, 1))
    error = np.sqrt(1.0 / ours.ess + 1.0 / theirs.ess)
    assert (np.abs(ours.theta.mean((0, 1)) - theirs.theta.mean((0, 1))) / sd / error).max() < 6.0


# Smooths


def test_a_smooth_is_a_penalised_spline():
    """At a given tau the fit of the line and the ridge columns is that of a P-spline with penalty |D a|^2 / tau^2."""
    from scipy.interpolate import BSpline

    rng, k, tau = np.random.default_rng(8), 12, 0.4
    x = np.sort(rng.uniform(-1.0, 3.0, 200))
    y = np.sin(2.0 * x) + 0.3 * rng.standard_normal(200)
    part = tb.data.smooth(x, "x", k=k)
    X = np.column_stack([np.ones(200), part.columns(x)])
    data = tb.Dataset.from_arrays(X, y, columns=["Intercept", *part.names])
    prior = {part.term: tb.priors.ridge(standardised=False), "default": tb.priors.flat()}
    model = tb.models.gaussian(data, prior, sigma=1.0)
    assert model.shrunk[0].where == tuple(range(2, k)) and (model.prior_terms.unit[2:] == 1.0).all()
    mode = tb.find_mode(model.stand_in(np.full(k, tau)), progress=False)
    step = 4.0 * (x.max() - x.min()) / 4.0 / (k - 3)
    knots = x.min() + step * np.arange(-3, k + 1)
    B = BSpline.design_matrix(np.clip(x, x.min(), np.nextafter(x.max(), x.min())), knots, 3).toarray()
    D = np.diff(np.eye(k), n=2, axis=0)
    fitted = B @ np.linalg.solve(B.T @ B + D.T @ D / tau**2, B.T @ y)
    np.testing.assert_allclose(X @ mode.reference, fitted, atol=1e-6)
    again = part.columns(x[::7])
    np.testing.assert_array_equal(again, part.columns(x)[::7])
    with pytest.raises(tb.DataError, match="is known from"):
        part.columns(np.array([9.0]))
    with pytest.raises(tb.OptionError, match="at least 5"):
        tb.data.smooth(x, k=3)
