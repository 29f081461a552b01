"""Internals of `tallbayes.shards.combine`; what users see of it is tested in test_combine.py."""

import numpy as np
import pytest
from scipy.special import digamma, polygamma

from tallbayes.shards import (
    Consensus,
    Convention,
    GaussianProduct,
    MomentSharing,
    Natural,
    Semiparametric,
    SubPosteriors,
    Wasserstein,
    Weierstrass,
)
from tallbayes.shards.checks import diagnose
from tallbayes.shards.combine import moment_sharing
from tallbayes.shards.combine.median import weiszfeld
from tallbayes.shards.combine.wasserstein import barycentre_points, gaussian_barycentre
from tallbayes.testing import THRESHOLD

SHARDS, DIM, DRAWS = 5, 3, 4000


class Linear:
    """A Gaussian linear model with known sigma, split at random; everything about it is known."""

    def __init__(self, shards=SHARDS, dim=DIM, rows=400, prior_sd=2.0, seed=0):
        rng = np.random.default_rng(seed)
        self.X = rng.standard_normal((rows, dim)) @ rng.standard_normal((dim, dim))
        self.y = self.X @ rng.standard_normal(dim) + rng.standard_normal(rows)
        self.parts = np.array_split(rng.permutation(rows), shards)
        self.prior = np.eye(dim) / prior_sd**2
        self.precision = self.X.T @ self.X + self.prior
        self.mean = np.linalg.solve(self.precision, self.X.T @ self.y)
        self.covariance = np.linalg.inv(self.precision)

    def site(self, b):
        x, y = self.X[self.parts[b]], self.y[self.parts[b]]
        return x.T @ y, x.T @ x

    def exact(self, b, convention):
        """Mean and precision of sub-posterior b."""
        r, q = self.site(b)
        if convention is Convention.PRODUCT:
            p = q + self.prior / len(self.parts)
        else:
            power = self.y.size / self.parts[b].size
            r, p = r * power, q * power + self.prior
        return np.linalg.solve(p, r), p

    def sub(self, convention, draws=DRAWS, seed=1):
        rng = np.random.default_rng(seed)
        out = []
        for b in range(len(self.parts)):
            mean, p = self.exact(b, convention)
            out.append(rng.multivariate_normal(mean, np.linalg.inv(p), draws))
        return SubPosteriors(np.stack(out), convention)

    def log_density(self, theta):
        gap = theta - self.mean
        return -0.5 * np.einsum("si,ij,sj->s", gap, self.precision, gap)


def z_scores(theta, mean, covariance, size, terms=1.0):
    """Of the mean and of the covariance, in coordinates in which the exact law is standard normal.

    `terms` is the variance of the mean in units of 1 / size: estimated precisions add d + 1 to the 1 of the means of shards,
    because the means of shards differ by sqrt(B) posterior sds and the error of a Wishart precision W is
    Var(dW v) = (W v'Wv + W v v'W) / size.
    """
    white = (theta - mean) @ np.linalg.inv(np.linalg.cholesky(covariance)).T
    first = white.mean(0) * np.sqrt(size / terms)
    products = np.atleast_2d(np.cov(white.T))
    second = (products - np.eye(mean.size)) * np.sqrt(size) / np.sqrt(1.0 + np.eye(mean.size))
    return np.concatenate([first, second.ravel()])


@pytest.fixture(scope="module")
def linear():
    return Linear()


def test_weiszfeld_finds_the_minimum():
    """The weights minimise the sum of distances; points of a line with an outlier, by a fine search over mixtures of two."""
    points = np.array([[0.0], [0.2], [0.1], [5.0]])
    gram = np.exp(-0.5 * (points - points.T) ** 2)
    weights, _ = weiszfeld(gram)

    def objective(w):
        return sum(np.sqrt(max((np.eye(4)[j] - w) @ gram @ (np.eye(4)[j] - w), 0.0)) for j in range(4))

    rng = np.random.default_rng(12)
    best = objective(weights)
    for _ in range(2000):
        assert best <= objective(rng.dirichlet(np.ones(4))) + 1e-9
    assert weights[3] < 0.2


def test_barycentres_of_normal_laws():
    rng = np.random.default_rng(13)
    covariances = np.stack([m @ m.T + 0.3 * np.eye(2) for m in rng.standard_normal((6, 2, 2))])
    target = gaussian_barycentre(covariances)
    values, vectors = np.linalg.eigh(target)
    root = (vectors * np.sqrt(values)) @ vectors.T
    parts = []
    for c in covariances:
        v, u = np.linalg.eigh(root @ c @ root)
        parts.append((u * np.sqrt(v)) @ u.T)
    np.testing.assert_allclose(np.mean(parts, axis=0), target, atol=1e-9)  # the fixed-point equation
    draws = np.stack([rng.multivariate_normal(rng.standard_normal(2), c, DRAWS) for c in covariances])
    sub = SubPosteriors(draws, Convention.AVERAGE)
    for method in ("gaussian", "discrete"):
        made = Wasserstein(method)(sub, seed=14).theta
        size = DRAWS if method == "gaussian" else 200
        np.testing.assert_allclose(np.cov(made.T), gaussian_barycentre(sub.covariances), atol=THRESHOLD * 4 / np.sqrt(size))
        np.testing.assert_allclose(made.mean(0), sub.means.mean(0), atol=THRESHOLD * 2 / np.sqrt(size))


def test_quantile_averages_and_the_discrete_barycentre_agree_in_one_dimension():
    """In one dimension optimal assignment pairs order statistics, so the barycentre is the mean of sorted samples."""
    rng = np.random.default_rng(15)
    parts = [np.sort(rng.gamma(2.0, 1.0, (60, 1)) + shift, axis=0) for shift in (0.0, 1.0, 4.0)]
    points, change = barycentre_points(parts, rng)
    np.testing.assert_allclose(np.sort(points, axis=0), np.mean(parts, axis=0), atol=1e-12)
    assert change < 1e-9
    sub = SubPosteriors(np.stack(parts), Convention.AVERAGE)
    quantiles = np.sort(Wasserstein("quantile")(sub, draws=60).theta, axis=0)
    assert np.abs(quantiles - np.mean(parts, axis=0)).mean() < 0.1


def exact_tilted(linear, draws, seed):
    """Draws of likelihood x cavity of a linear model."""
    rng = np.random.default_rng(seed)

    def tilted(cavities, shards, number):
        out = []
        for cavity, b in zip(cavities, shards, strict=True):
            r, q = linear.site(b)
            precision = q + cavity.precision
            mean = np.linalg.solve(precision, r + cavity.shift)
            out.append((rng.multivariate_normal(mean, np.linalg.inv(precision), draws), draws))
        return out

    return tilted


def test_moment_sharing_without_the_cavity_is_caught(linear, monkeypatch):
    """The mutant that leaves the cavity in the site counts every other shard again."""
    monkeypatch.setattr(moment_sharing, "_site", lambda theta, size, cavity: Natural(*_moments(theta)))
    prior = Natural(np.zeros(DIM), linear.prior)
    start = [Natural(*linear.site(b)) for b in range(SHARDS)]
    made = MomentSharing(rounds=3).run(prior, start, exact_tilted(linear, 20_000, 1), draws=4000)
    assert np.abs(z_scores(made.theta, linear.mean, linear.covariance, 2000)).max() > 3 * THRESHOLD


def _moments(theta):
    precision = np.linalg.inv(np.cov(theta.T))
    return precision @ theta.mean(0), precision


def log_rates(counts, draws, seed):
    """Sub-posteriors of a log rate, each from one count; their product is that of all counts: mean and standard deviation."""
    rng = np.random.default_rng(seed)
    parts = np.stack([np.log(rng.gamma(count, 1.0, draws)) for count in counts])[:, :, None]
    total = sum(counts)
    return SubPosteriors(parts, Convention.PRODUCT), digamma(total) - np.log(len(counts)), np.sqrt(polygamma(1, total))


@pytest.mark.parametrize("combiner", [Semiparametric(), Weierstrass(), GaussianProduct(), Consensus()], ids=lambda c: c.name)
def test_a_product_in_the_tail_of_a_skewed_shard_warns(combiner):
    sub, mean, sd = log_rates([16, 10, 10, 1], 600, 3)
    out = combiner(sub, draws=600)
    assert abs(out.theta.mean() - mean) / sd > 0.4  # wrong, and it says so
    assert any("extrapolates the tail of the shard" in sentence for sentence in diagnose(sub, out, combiner)[1])
    even, mean, sd = log_rates([30, 33, 28, 31], 600, 3)
    out = combiner(even, draws=600)
    assert abs(out.theta.mean() - mean) / sd < 0.4
    assert not any("extrapolates" in sentence for sentence in diagnose(even, out, combiner)[1])


def test_normal_shards_far_from_their_product_are_not_called_skewed():
    alarms = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        draws = rng.standard_normal((16, 500, 3)) + rng.standard_normal((16, 1, 3))
        sub = SubPosteriors(draws, Convention.PRODUCT)
        out = GaussianProduct()(sub, draws=100)
        alarms += any("extrapolates" in sentence for sentence in diagnose(sub, out, GaussianProduct())[1])
    assert alarms <= 9  # at most 2 expected
