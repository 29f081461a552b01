"""Combinations of sub-posteriors against exact laws: linear Gaussian models, quadrature in one dimension, enumeration of failures."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import gamma

from tallbayes.errors import DataError, OptionError
from tallbayes.shards import (
    COMBINERS,
    Combiner,
    Consensus,
    Convention,
    GaussianProduct,
    Importance,
    Median,
    MomentSharing,
    Natural,
    Nonparametric,
    Semiparametric,
    SubPosteriors,
    Wasserstein,
    Weierstrass,
    refine,
    resolve,
)
from tallbayes.testing import THRESHOLD, effective_sizes

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


@pytest.mark.parametrize("combiner", [Consensus(), GaussianProduct()], ids=lambda c: c.name)
def test_product_combinations_are_exact_on_a_linear_model(linear, combiner):
    made = combiner(linear.sub(Convention.PRODUCT), seed=2)
    terms = DIM + 2 if isinstance(combiner, Consensus) else DIM + 3  # the latter draws anew
    size = DRAWS if isinstance(combiner, Consensus) else DRAWS / 2
    assert np.abs(z_scores(made.theta, linear.mean, linear.covariance, size, terms * size / DRAWS)).max() < THRESHOLD
    assert made.shares.sum() == pytest.approx(1.0)


def test_scalar_weights_are_exact_where_columns_are_independent():
    """Diagonal covariances: the scalar weights are the precisions."""
    rng = np.random.default_rng(3)
    variances = rng.uniform(0.5, 2.0, (4, 2))
    means = rng.standard_normal((4, 2))
    sub = SubPosteriors(means[:, None] + np.sqrt(variances)[:, None] * rng.standard_normal((4, DRAWS, 2)), Convention.PRODUCT)
    precision = (1.0 / variances).sum(0)
    mean = (means / variances).sum(0) / precision
    made = Consensus("scalar")(sub)
    assert np.abs(z_scores(made.theta, mean, np.diag(1.0 / precision), DRAWS, 4)).max() < THRESHOLD


def test_importance_weights_make_a_skewed_product_exact():
    """Four gamma factors: the product is a gamma law again, and the normal product is visibly wrong."""
    shape, rng = 4.0, np.random.default_rng(4)
    sub = SubPosteriors(gamma(shape).rvs((4, DRAWS, 1), random_state=rng), Convention.PRODUCT)
    exact = gamma(4 * (shape - 1) + 1, scale=0.25)

    def log_density(theta):
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(theta[:, 0] > 0, exact.logpdf(theta[:, 0]), -np.inf)

    made = Importance().reweight(sub, log_density, draws=20_000, seed=1)
    mean = np.average(made.theta[:, 0], weights=made.weights)
    assert abs(mean - exact.mean()) < THRESHOLD * exact.std() / np.sqrt(made.effective)
    plain = GaussianProduct()(sub, draws=20_000).theta.mean()
    assert abs(plain - exact.mean()) > 3 * THRESHOLD * exact.std() / np.sqrt(made.effective)
    assert made.effective < 20_000 and made.notes["effective_share"] == pytest.approx(made.effective / 20_000)


def test_importance_says_when_few_draws_count(linear):
    sub = linear.sub(Convention.PRODUCT, draws=200)
    far = Importance().reweight(sub, lambda theta: linear.log_density(theta - 4.0 * np.sqrt(np.diag(linear.covariance))))
    assert any("draws are effective" in w for w in far.warnings)
    with pytest.raises(DataError, match="no proposal"):
        Importance().reweight(sub, lambda theta: np.full(theta.shape[0], -np.inf))


def average_convention_variance(combiner, linear):
    """Ratio of variances when sub-posteriors of the other convention are passed off as the right ones."""
    wrong = SubPosteriors(linear.sub(Convention.AVERAGE).draws, Convention.PRODUCT)
    return np.diag(np.cov(combiner(wrong).theta.T)) / np.diag(linear.covariance)


def test_swapped_conventions_are_wrong_by_the_number_of_shards_and_refused(linear):
    for name, make in COMBINERS.items():
        combiner = make()
        other = Convention.AVERAGE if combiner.convention is Convention.PRODUCT else Convention.PRODUCT
        with pytest.raises(OptionError, match="wrong by a factor of sqrt"):
            combiner(linear.sub(other, draws=50))
        with pytest.raises(OptionError, match="convention cannot be inferred"):
            combiner(np.zeros((2, 50, 1)))
        assert combiner.name == name and resolve(name) == combiner
    for combiner in (Consensus(), GaussianProduct()):
        np.testing.assert_allclose(average_convention_variance(combiner, linear) * SHARDS, 1.0, rtol=0.2)


def smoothed_product(parts, widths, grid):
    """Log of the product of kernel density estimates on a grid."""
    total = np.zeros(grid.size)
    for part, h in zip(parts, widths, strict=True):
        total += np.log(np.exp(-0.5 * ((grid[:, None] - part) / h) ** 2).mean(1) + 1e-300)
    return total


def quadrature(log_density, grid):
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    mean = density @ grid
    return mean, density @ (grid - mean) ** 2, density @ (grid - mean) ** 4


def assert_moments(theta, mean, variance, fourth, size):
    values = theta[:, 0]
    assert abs(values.mean() - mean) < THRESHOLD * np.sqrt(variance / size)
    assert abs(((values - mean) ** 2).mean() - variance) < THRESHOLD * np.sqrt((fourth - variance**2) / size)


def skewed(shards=3, draws=150, seed=5):
    rng = np.random.default_rng(seed)
    return SubPosteriors(gamma(2.0).rvs((shards, draws, 1), random_state=rng), Convention.PRODUCT)


GRID = np.linspace(-4.0, 12.0, 4001)


@pytest.mark.parametrize("method", ["nonparametric", "refinement"])
def test_products_of_kernel_estimates_against_quadrature(method):
    sub, h = skewed(), 0.5
    width = h * np.sqrt(sub.covariances.mean())
    law = quadrature(smoothed_product(sub.draws[:, :, 0], [width] * 3, GRID), GRID)
    made = (Nonparametric(h) if method == "nonparametric" else Weierstrass("refinement", h, correct=False))(
        sub, draws=8000, seed=6
    )
    assert made.effective > 1000
    assert_moments(made.theta, *law, made.effective)
    assert made.effective < 2.0 * chain_sizes(made)
    assert any("inflate" in w for w in made.warnings)


def chain_sizes(made):
    """Effective size of the draws as the chains of indices that they are."""
    chains = made.notes["index_chains"]
    return float(effective_sizes(made.theta.reshape(chains, -1, made.theta.shape[1])).min())


@pytest.mark.parametrize("correction", ["smoothed", "draws"])
def test_the_semiparametric_product_against_quadrature(correction):
    sub, h = skewed(), 0.5
    width = h * np.sqrt(sub.covariances.mean())
    log_density = np.zeros(GRID.size)
    for part, mean, precision in zip(sub.draws[:, :, 0], sub.means[:, 0], sub.precisions[:, 0, 0], strict=True):
        weight = np.exp(0.5 * precision * (part - mean) ** 2) if correction == "draws" else np.ones(part.size)
        smooth = 0.0 if correction == "draws" else 1.0 / (1.0 / precision + width**2)
        kernels = np.exp(-0.5 * ((GRID[:, None] - part) / width) ** 2) @ weight
        log_density += np.log(kernels + 1e-300) - 0.5 * (precision - smooth) * (GRID - mean) ** 2
    made = Semiparametric(h, correction=correction)(sub, draws=8000, seed=7)
    assert_moments(made.theta, *quadrature(log_density, GRID), min(made.effective, chain_sizes(made)))


def test_corrected_rejection_against_quadrature():
    """Both factors of a pair are divided by what smoothing makes of their normal fits."""
    sub, h = skewed(shards=2, draws=400), 0.4
    pooled = h * np.sqrt(sub.covariances.mean())
    log_density = smoothed_product(sub.draws[:, :, 0], [pooled] * 2, GRID)
    for mean, precision in zip(sub.means[:, 0], sub.precisions[:, 0, 0], strict=True):
        log_density -= 0.5 * (precision - 1.0 / (1.0 / precision + pooled**2)) * (GRID - mean) ** 2
    made = Weierstrass(bandwidth=h)(sub, draws=20_000, seed=8)
    assert_moments(made.theta, *quadrature(log_density, GRID), 20_000)


def test_the_quadrature_sees_a_kernel_that_is_too_wide():
    """The mutant that adds N(0, h^2) instead of N(0, h^2 / B) to the mean of the chosen draws."""
    sub, h = skewed(), 0.5
    width = h * np.sqrt(sub.covariances.mean())
    law = quadrature(smoothed_product(sub.draws[:, :, 0], [width] * 3, GRID), GRID)
    made = Nonparametric(h)(sub, draws=8000, seed=6)
    mutant = made.theta + width * np.sqrt(1 - 1 / 3) * np.random.default_rng(0).standard_normal(made.theta.shape)
    with pytest.raises(AssertionError):
        assert_moments(mutant, *law, made.effective)


def test_weierstrass_rejection_against_quadrature():
    sub = skewed(shards=2, draws=400)
    h = 0.4
    made = Weierstrass(bandwidth=h, correct=False)(sub, draws=20_000, seed=8)
    pooled = np.sqrt(sub.covariances.mean())
    law = quadrature(smoothed_product(sub.draws[:, :, 0], [h * pooled] * 2, GRID), GRID)
    assert_moments(made.theta, *law, 20_000)


def test_weierstrass_inflates_normal_variances_as_stated(linear):
    """Four normal factors along the tree; each level adds its own smoothing."""
    rng = np.random.default_rng(9)
    sub = SubPosteriors(rng.standard_normal((4, 20_000, 1)), Convention.PRODUCT)
    made = Weierstrass(bandwidth=0.5, correct=False)(sub, draws=20_000, seed=1)
    pair = (1.0 + 0.25) / 2
    final = (pair + 0.25 * pair) / 2
    assert made.theta.var() == pytest.approx(final, rel=THRESHOLD * np.sqrt(2 / 20_000) * 2)
    assert any("inflate" in w for w in made.warnings)
    exact = Weierstrass(bandwidth=0.5)(sub, draws=20_000, seed=1)
    assert exact.theta.var() == pytest.approx(0.25, rel=THRESHOLD * np.sqrt(2 / 20_000) * 2) and not exact.warnings


def test_refinement_with_densities_against_quadrature():
    """Factors x e^-x smoothed by a normal kernel: the law is known by quadrature, not from draws."""
    rng, h = np.random.default_rng(10), 0.6
    sub = SubPosteriors(gamma(3.0).rvs((2, 2000, 1), random_state=rng), Convention.PRODUCT)
    width = h * np.sqrt(sub.covariances.mean())
    fine = np.linspace(1e-3, 25.0, 4000)
    smooth = np.exp(-0.5 * ((GRID[:, None] - fine) / width) ** 2) @ gamma(3.0).pdf(fine)
    law = quadrature(2.0 * np.log(smooth + 1e-300), GRID)

    def log_density(theta):
        return 2.0 * np.log(theta[0]) - theta[0] if theta[0] > 0 else -np.inf

    made = refine(sub, [log_density] * 2, draws=4000, bandwidth=h, seed=11)
    size = float(effective_sizes(made.theta[None])[0])
    assert size > 300
    assert_moments(made.theta, *law, size)


def test_the_median_is_robust_to_one_shifted_shard():
    linear = Linear(shards=9)
    sub = linear.sub(Convention.AVERAGE, draws=600)
    sd = np.sqrt(np.diag(linear.covariance))
    draws = sub.draws.copy()
    draws[2] += 60.0 * sd
    shifted = SubPosteriors(draws, Convention.AVERAGE)
    robust, mean = Median()(shifted, seed=1), Wasserstein()(shifted, seed=1)
    assert robust.shares[2] == robust.shares.min() and robust.shares[2] < 0.6 / 9
    # sound shards scatter by sqrt(9) sds around the posterior; the shifted one drags an average by 60 / 9
    assert np.abs((np.median(robust.theta, 0) - linear.mean) / sd).max() < 4.0
    assert np.abs((mean.theta.mean(0) - sub.draws.mean((0, 1))) / sd).max() > 6.0


def test_quantile_averages_keep_the_dependence():
    rng = np.random.default_rng(16)
    draws = rng.multivariate_normal([0, 0], [[1.0, 0.9], [0.9, 1.0]], (3, DRAWS))
    made = Wasserstein("quantile")(SubPosteriors(draws, Convention.AVERAGE)).theta
    assert np.corrcoef(made.T)[0, 1] == pytest.approx(0.9, abs=0.02)


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


def test_moment_sharing_has_the_posterior_as_fixed_point_on_normal_sites(linear):
    prior = Natural(np.zeros(DIM), linear.prior)
    start = [Natural(np.zeros(DIM), 0.01 * np.eye(DIM)) for _ in range(SHARDS)]
    # every round estimates moments from as many draws; damping averages the last few rounds
    made = MomentSharing(rounds=12, tolerance=1e-9).run(prior, start, exact_tilted(linear, 20_000, 1), draws=4000, seed=2)
    assert np.abs(z_scores(made.theta, linear.mean, linear.covariance, 2000)).max() < THRESHOLD
    assert any("still moved" in w for w in made.warnings) and made.notes["rounds"] == 12
    exact = [Natural(*linear.site(b)) for b in range(SHARDS)]
    stays = MomentSharing(tolerance=0.1).run(prior, exact, exact_tilted(linear, 20_000, 3), draws=4000)
    assert stays.notes["rounds"] == 1 and not stays.warnings


def test_moment_sharing_refuses_updates_without_a_positive_precision():
    prior, start = Natural(np.zeros(1), np.eye(1)), [Natural(np.zeros(1), np.eye(1)) for _ in range(2)]
    rng = np.random.default_rng(0)

    def wide(cavities, shards, number):
        return [(100.0 * rng.standard_normal((100, 1)), 100.0) for _ in shards]

    made = MomentSharing(damping=1.0, rounds=2).run(prior, start, wide, draws=100)
    assert made.notes["refused_updates"] > 0 and any("were skipped" in w for w in made.warnings)
    with pytest.raises(DataError, match="no positive precision"):
        MomentSharing().run(Natural(np.zeros(1), np.zeros((1, 1))), [Natural(np.zeros(1), -np.eye(1))], wide, draws=10)


class Scattered:
    """Normal sub-posteriors whose means differ by as much as they are wide and whose covariances differ too; their product is known."""

    def __init__(self, shards, dim, draws, seed=20):
        rng = np.random.default_rng(seed)
        means, roots = rng.standard_normal((shards, dim)), rng.standard_normal((shards, dim, 3 * dim))
        scale = np.exp(0.3 * rng.standard_normal(shards))[:, None, None]
        covariances = scale * (0.7 * np.eye(dim) + 0.1 / dim * roots @ roots.transpose(0, 2, 1))
        precisions = np.linalg.inv(covariances)
        self.covariance = np.linalg.inv(precisions.sum(0))
        self.mean = self.covariance @ np.einsum("bij,bj->i", precisions, means)
        noise = np.einsum("bij,btj->bti", np.linalg.cholesky(covariances), rng.standard_normal((shards, draws, dim)))
        self.sub = SubPosteriors(means[:, None] + noise, Convention.PRODUCT)


class GriddedLogistic:
    """Logistic regression with two coefficients: sub-posteriors are sampled, and their product is known, on a grid."""

    def __init__(self, shards, draws, rows=200, seed=21):
        rng = np.random.default_rng(seed)
        X = np.column_stack([np.ones(shards * rows), rng.standard_normal(shards * rows)])
        y = rng.random(shards * rows) < 1 / (1 + np.exp(1 - X[:, 1]))
        parts = [self.grid(X[k::shards], y[k::shards], 1 / shards) for k in range(shards)]
        draws_of = []
        for points, density, cell in parts:
            index = rng.choice(density.size, draws, p=density)
            draws_of.append(points[index] + cell * (rng.random((draws, 2)) - 0.5))
        points, density, _ = self.grid(X, y, 1.0)
        self.sub, self.mean = SubPosteriors(np.stack(draws_of), Convention.PRODUCT), density @ points
        self.covariance = (points - self.mean).T @ ((points - self.mean) * density[:, None])

    @staticmethod
    def grid(X, y, power, size=70):
        """Points of a grid, their probabilities and the size of a cell."""
        theta = np.zeros(2)
        for _ in range(30):
            p = 1 / (1 + np.exp(-X @ theta))
            precision = (X.T * (p * (1 - p))) @ X + np.eye(2) * power / 4
            theta = theta + np.linalg.solve(precision, X.T @ (y - p) - theta * power / 4)
        sd = np.sqrt(np.diag(np.linalg.inv(precision)))
        axes = [np.linspace(t - 6 * s, t + 7 * s, size) for t, s in zip(theta, sd, strict=True)]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        level = -power / 8 * (points**2).sum(1)
        for row, response in zip(X, y, strict=True):
            eta = points @ row
            level += response * eta - np.logaddexp(0.0, eta)
        density = np.exp(level - level.max())
        return points, density / density.sum(), np.array([a[1] - a[0] for a in axes])


@pytest.mark.parametrize("shards", [4, 16, 64])
@pytest.mark.parametrize(
    "problem", [lambda b: Scattered(b, 3, 600), lambda b: GriddedLogistic(b, 600)], ids=["normal", "logistic"]
)
@pytest.mark.parametrize("name", ["nonparametric", "semiparametric", "weierstrass"])
def test_kernel_combinations_have_the_right_spread_or_warn(name, problem, shards):
    """Standard deviations within 10 % (15 % where sub-posteriors are skewed) and means within one of the known product, or a warning."""
    problem = problem(shards)
    tolerance = 0.1 if isinstance(problem, Scattered) else 0.15
    made = resolve(name)(problem.sub, draws=600, seed=22)
    sd = np.sqrt(np.diag(problem.covariance))
    spread, gap = made.theta.std(0) / sd, np.abs(made.theta.mean(0) - problem.mean) / sd
    assert made.warnings or (np.abs(spread - 1.0).max() < tolerance and gap.max() < 1.0)
    if name != "nonparametric":  # right, not only warned of
        assert np.abs(spread - 1.0).max() < 2 * tolerance and gap.max() < 1.0
    assert made.effective > 100 and made.notes["fewest_kernels"] > 5


def test_index_chains_that_do_not_mix_are_reported():
    """Two shards with the same narrow clusters, far apart: a chain of indices stays in the cluster in which its warm-up ended."""
    rng = np.random.default_rng(23)
    draws = rng.integers(0, 8, (2, 400, 1)) + 0.01 * rng.standard_normal((2, 400, 1))
    made = Nonparametric(bandwidth=0.02)(SubPosteriors(draws, Convention.PRODUCT), draws=400, seed=1)
    assert made.notes["index_r_hat"] > 1.5 and made.effective < 50
    assert any("have not mixed" in w for w in made.warnings)


def test_the_median_says_what_it_estimates():
    """Means of B shards scatter by sqrt(B - 1) posterior sds, which the mixture holds; without scatter there is nothing to say."""
    rng = np.random.default_rng(24)
    scatter = 2.0 * rng.standard_normal((5, 1, 2))
    made = Median()(SubPosteriors(rng.standard_normal((5, 1000, 2)) + scatter, Convention.AVERAGE), seed=1)
    assert made.theta.std(0).max() == pytest.approx(made.notes["widening"], rel=0.1) and made.notes["widening"] > 1.3
    assert any("robust estimate of location" in w for w in made.warnings) and "sqrt(B)" in Median.statement
    assert not Median()(SubPosteriors(rng.standard_normal((5, 1000, 2)), Convention.AVERAGE)).warnings


def test_collapse_with_many_shards_is_reported():
    rng = np.random.default_rng(17)
    sub = SubPosteriors(rng.standard_normal((32, 100, 10)), Convention.PRODUCT)
    made = Nonparametric(bandwidth=0.05)(sub, draws=50)
    assert any("collapsed" in w for w in made.warnings)
    far = SubPosteriors(np.array([0.0, 40.0])[:, None, None] + rng.standard_normal((2, 200, 1)), Convention.PRODUCT)
    with pytest.raises(DataError, match="do not overlap"):
        Weierstrass(bandwidth=0.3)(far)
    assert any("little more than the normal fits" in w for w in Weierstrass()(far).warnings)


def test_unusable_draws_are_refused():
    good = np.random.default_rng(0).standard_normal((3, 50, 2))
    stuck = good.copy()
    stuck[1, :, 0] = 1.0
    bad = good.copy()
    bad[2, 3, 0] = np.nan
    with pytest.raises(DataError, match="shard 1 do not vary in coordinate 0"):
        Consensus()(SubPosteriors(stuck, Convention.PRODUCT))
    with pytest.raises(DataError, match="shard 2"):
        SubPosteriors(bad, Convention.PRODUCT)
    with pytest.raises(DataError, match="shape"):
        SubPosteriors(good[0], Convention.PRODUCT)
    with pytest.raises(DataError, match="no usable covariance"):
        SubPosteriors(good[:, :4], Convention.PRODUCT)
    with pytest.raises(DataError, match="lie in a plane"):
        GaussianProduct()(SubPosteriors(np.repeat(good[:, :, :1], 2, axis=2), Convention.PRODUCT))
    with pytest.raises(DataError, match="no unbiased precision"):
        GaussianProduct()(SubPosteriors(good, Convention.PRODUCT, effective=np.array([3.0, 50.0, 50.0])))
    with pytest.raises(OptionError, match="did you mean 'consensus'"):
        resolve("concensus")
    with pytest.raises(OptionError, match="densities"):
        Importance()(SubPosteriors(good, Convention.PRODUCT))
    with pytest.raises(OptionError, match="samples the shards again"):
        MomentSharing()(SubPosteriors(good, Convention.PRODUCT))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Consensus("vector"),
        lambda: Importance(df=1.0),
        lambda: Nonparametric(bandwidth=0.0),
        lambda: Semiparametric(warmup=-1),
        lambda: Weierstrass("both"),
        lambda: Weierstrass(accept=1.0),
        lambda: Weierstrass(correct="yes"),
        lambda: Semiparametric(correction="none"),
        lambda: Median(kernel_draws=1),
        lambda: Wasserstein("mean"),
        lambda: Wasserstein(support=1),
        lambda: MomentSharing(damping=0.0),
        lambda: MomentSharing(rounds=0),
        lambda: resolve(3),
    ],
)
def test_options_are_checked(make):
    with pytest.raises(OptionError):
        make()


@pytest.mark.parametrize("name", [n for n in COMBINERS if n not in ("importance", "moment-sharing")])
def test_every_combination_keeps_its_contract(linear, name):
    """The right shape, the same draws from the same seed, shares that sum to one, and frozen options."""
    combiner: Combiner = resolve(name)
    sub = linear.sub(combiner.convention, draws=300)
    first, again = combiner(sub, draws=350, seed=3), combiner(sub, draws=350, seed=3)
    assert first.theta.shape == (350, DIM) and np.isfinite(first.theta).all()
    np.testing.assert_array_equal(first.theta, again.theta)
    assert first.shares.sum() == pytest.approx(1.0) and 0 < first.effective <= 350
    assert np.abs((first.theta.mean(0) - linear.mean) / np.sqrt(np.diag(linear.covariance))).max() < 3.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        combiner.name = "other"
