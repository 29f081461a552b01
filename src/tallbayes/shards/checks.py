"""What can be told of a combination: do sub-posteriors overlap, do all shards count, is it near the Laplace fit of all rows.

Bardenet, Doucet and Holmes (2017, section 3) name what goes wrong with divide and conquer: sub-posteriors with nearly disjoint
supports, a product whose errors grow with the number of batches, guarantees that hold only as every batch grows. Each has a
number here, and a sentence when the number is bad.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import chdtri, ndtr, pdtr, pdtrc

from tallbayes.shards.combine.subposteriors import (
    Combination,
    Combiner,
    Convention,
    SubPosteriors,
    hartlap,
    mean_skewness,
    product_of_normals,
)

DISJOINT = 1e-3  # Bhattacharyya coefficient of a typical pair below which supports are called disjoint
BIASED = 0.5  # predicted bias of the mean, in posterior sds, that is worth a warning
FAR = 1.0  # Kullback-Leibler divergence from the Laplace fit, in nats per parameter, that is worth a warning
SMOOTHED = 0.7  # bandwidth, in sds of a sub-posterior, from which on kernels keep little of the skewness
FALSE_ALARM = 1e-6
UNLIKELY = 0.05  # probability of as few or as many draws beyond the product, if all shards were normal
FEW_BEYOND = 0.4  # of the draws beyond the product that a normal law would have
WIDENED = 1.25  # times the bandwidth T^(-1/(4 + d)), from which on kernels say little of the tail that the product lies in
FEWEST = 100  # draws that should count
_MOST_PAIRS = 2000


def distances(sub: SubPosteriors) -> tuple[np.ndarray, np.ndarray]:
    """Whitened distances of means and Bhattacharyya coefficients of the normal fits, for pairs of shards.

    d_ij^2 = (m_i - m_j)' [(S_i + S_j) / 2]^-1 (m_i - m_j): 2 d on average for exchangeable rows and d parameters.

    >>> draws = np.random.default_rng(0).standard_normal((2, 1000, 1)) + np.array([0.0, 10.0])[:, None, None]
    >>> gap, overlap = distances(SubPosteriors(draws, Convention.PRODUCT))
    >>> bool(9 < gap[0] < 11), bool(overlap[0] < 1e-4)
    (True, True)
    """
    pairs = [(i, j) for i in range(sub.shards) for j in range(i)]
    if len(pairs) > _MOST_PAIRS:
        pairs = [pairs[k] for k in np.random.default_rng(0).permutation(len(pairs))[:_MOST_PAIRS]]
    logs = [np.linalg.slogdet(c)[1] for c in sub.covariances]
    gaps, overlaps = [], []
    for i, j in pairs:
        middle = 0.5 * (sub.covariances[i] + sub.covariances[j])
        gap = sub.means[i] - sub.means[j]
        square = float(gap @ np.linalg.solve(middle, gap))
        volume = 0.5 * (np.linalg.slogdet(middle)[1] - 0.5 * (logs[i] + logs[j]))
        gaps.append(np.sqrt(square))
        overlaps.append(np.exp(-square / 8.0 - volume))
    return np.array(gaps), np.array(overlaps)


def divergence(mean: np.ndarray, covariance: np.ndarray, other_mean: np.ndarray, other_covariance: np.ndarray) -> float:
    """Kullback-Leibler divergence of one normal law from another.

    >>> round(divergence(np.zeros(1), np.eye(1), np.ones(1), np.eye(1)), 3)
    0.5
    """
    gap, inverse = mean - other_mean, np.linalg.inv(other_covariance)
    ratio = np.linalg.slogdet(other_covariance)[1] - np.linalg.slogdet(covariance)[1]
    return float(0.5 * (np.trace(inverse @ covariance) - gap.size + gap @ inverse @ gap + ratio))


def diagnose(
    sub: SubPosteriors | None,
    combined: Combination,
    combiner: Combiner,
    laplace: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """Diagnostics of a combination as JSON types, and warnings for the user.

    `laplace` is mean and covariance of the fit to all rows; `sub` is None for moment sharing, which has no sub-posteriors.
    """
    assert combined.shares is not None
    count = combined.shares.size
    notes: dict[str, Any] = {"combination": combiner.name, "shards": count, "convention": combiner.convention.value}
    sentences: list[str] = list(combined.warnings)
    if sub is not None and count > 1:
        _overlap(sub, combiner, notes, sentences)
    notes["effective_shards"] = float(1.0 / (combined.shares**2).sum())
    notes["effective_draws"] = float(combined.effective if combined.effective is not None else combined.theta.shape[0])
    _count_contributions(count, combined, combiner, notes, sentences)
    if sub is not None and combiner.convention is Convention.PRODUCT and count > 1:
        width = float(combined.notes.get("bandwidth", 0.0))
        _skew(sub, combiner, width, notes, sentences)
        _extrapolation(sub, combiner, width, notes, sentences)
    if laplace is not None:
        w = np.ones(combined.theta.shape[0]) if combined.weights is None else combined.weights
        mean = w @ combined.theta / w.sum()
        covariance = np.atleast_2d(np.cov(combined.theta.T, aweights=w))
        distance = divergence(mean, covariance, *laplace)
        gap = mean - laplace[0]
        notes["divergence_from_laplace"] = distance
        notes["mean_from_laplace"] = float(np.sqrt(gap @ np.linalg.solve(laplace[1], gap) / gap.size))
        if distance > FAR * mean.size:
            sentences.append(
                f"the combination is {distance:.3g} nats from the Laplace fit to all rows, its mean "
                f"{notes['mean_from_laplace']:.2g} standard deviations per parameter. Either the posterior is strongly "
                "non-Gaussian or the combination failed. Compare with tallbayes.sample on all rows."
            )
    return {**notes, **combined.notes}, sentences


def _overlap(sub: SubPosteriors, combiner: Combiner, notes: dict[str, Any], sentences: list[str]) -> None:
    gap, overlap = distances(sub)
    notes["largest_distance"], notes["median_distance"] = float(gap.max()), float(np.median(gap))
    notes["median_overlap"] = float(np.median(overlap))
    # m_i - m_j of exchangeable normal shards has covariance S_i + S_j; likelihoods to the power n / n_b are B times too narrow
    factor = 2.0 if sub.convention is Convention.PRODUCT else 2.0 * sub.shards
    size = float(np.min(sub.sizes))
    noise = (1.0 + 2.0 / size / factor) / hartlap(size, sub.dim)  # of means and of covariances
    bound = np.sqrt(factor * noise * chdtri(sub.dim, FALSE_ALARM / max(1, gap.size)))
    if gap.max() > bound:
        sentences.append(
            f"two sub-posteriors are {gap.max():.3g} whitened standard deviations apart, where random shards stay below "
            f"{bound:.3g}: the shards are not random parts of the rows, or contain too few rows. Assign rows at random, or use "
            "fewer shards."
        )
    if combiner.overlap and np.median(overlap) < DISJOINT:
        sentences.append(
            f"sub-posteriors barely overlap (Bhattacharyya coefficient {np.median(overlap):.1g} for a typical pair): "
            f"{combiner.name} multiplies their tails, which draws represent poorly. Use fewer shards, or combine='gaussian' or "
            "'consensus'."
        )


def _count_contributions(
    count: int, combined: Combination, combiner: Combiner, notes: dict[str, Any], sentences: list[str]
) -> None:
    if combiner.name != "median" and notes["effective_shards"] < 0.5 * count:
        sentences.append(
            f"the combination depends on {notes['effective_shards']:.1f} of {count} shards; the others have few rows or wide "
            "sub-posteriors. Balance the shards."
        )
    if combiner.name == "median" and notes["effective_shards"] < 0.5 * count:
        sentences.append(
            f"the median rests on {notes['effective_shards']:.1f} of {count} shards: the information of the others is lost, "
            "whether they are wrong or only unusual."
        )
    if notes["effective_draws"] < min(FEWEST, 0.5 * combined.theta.shape[0]) and not combined.warnings:
        sentences.append(
            f"only about {notes['effective_draws']:.0f} of {combined.theta.shape[0]:,} combined draws are effective; take more "
            "draws per shard, or use fewer shards."
        )


def _skew(sub: SubPosteriors, combiner: Combiner, width: float, notes: dict[str, Any], sentences: list[str]) -> None:
    """A shard whose skewness is g has its mean g / 2 of its sds from its mode, which is sqrt(B) g / 2 of the combination's.

    Monte Carlo error of the mean of normal products: means of shards have variance 1 / T in units of their own, and the error of
    estimated precisions adds d + 1, because means of shards differ by as much as they are wide.
    """
    if combiner.name in ("consensus", "gaussian"):
        notes["monte_carlo_error"] = float(np.sqrt((sub.dim + 2.0) / np.min(sub.sizes)))
    bias = 0.5 * np.sqrt(sub.shards) * np.abs(mean_skewness(sub))
    noise = 0.5 * np.sqrt(sub.shards) * 4.9 * np.sqrt(6.0 / float(np.sum(sub.sizes)))
    notes["predicted_bias"] = float(bias.max())
    smoothed = combiner.name in ("semiparametric", "weierstrass") and width > SMOOTHED
    if bias.max() > BIASED + noise and (combiner.name in ("consensus", "gaussian") or smoothed):
        sentences.append(
            f"sub-posteriors of {sub.shards} shards are skewed: {combiner.name} treats them as {'nearly ' * smoothed}normal, "
            f"which moves the mean by about {bias.max():.2g} posterior standard deviations (coordinate "
            f"{int(np.argmax(bias))}). Use fewer shards or 'importance'."
        )


def beyond(sub: SubPosteriors) -> tuple[np.ndarray, np.ndarray]:
    """Distance of the product of normal fits from the mean of every shard, in its sds, and the share of its draws that lie further out.

    "Further out" is along the line from the mean of the shard to the product; a normal shard has a share of Phi(-distance).

    >>> rng = np.random.default_rng(0)
    >>> distance, share = beyond(SubPosteriors(rng.standard_normal((2, 4000, 1)) + [[[0.0]], [[2.0]]], Convention.PRODUCT))
    >>> distance.round(1).tolist(), bool(np.abs(share - 0.16).max() < 0.02)
    ([1.0, 1.0], True)
    """
    centre, _ = product_of_normals(sub.means, sub.precisions)
    distance, share = np.empty(sub.shards), np.empty(sub.shards)
    for b, (draws, mean, covariance) in enumerate(zip(sub.draws, sub.means, sub.covariances, strict=True)):
        lower = np.linalg.cholesky(covariance)
        white = solve_triangular(lower, (draws - mean).T, lower=True)
        gap = solve_triangular(lower, centre - mean, lower=True)
        distance[b] = np.linalg.norm(gap)
        share[b] = np.mean(gap @ white > gap @ gap)
    return distance, share


def _extrapolation(sub: SubPosteriors, combiner: Combiner, width: float, notes: dict[str, Any], sentences: list[str]) -> None:
    """A shard that is not normal where the product lies: normal fits and wide kernels extrapolate its tail."""
    distance, share = beyond(sub)
    expected = ndtr(-distance)
    count, mean = np.round(share * sub.sizes), expected * sub.sizes
    chance = np.minimum(pdtr(count, mean), pdtrc(np.maximum(count - 1, 0), mean)) * 2.0 * sub.shards
    ratio = np.divide(share, expected, out=np.ones_like(share), where=expected > 0.0)  # so far out that no draw is expected
    notes["farthest_shard"] = float(distance.max())
    kernels = combiner.name in ("semiparametric", "nonparametric")
    if kernels and width <= WIDENED * sub.draws.shape[1] ** (-1.0 / (4 + sub.dim)):
        return
    wrong = (chance < UNLIKELY) & ((ratio < FEW_BEYOND) | (ratio > 1.0 / FEW_BEYOND))
    if combiner.name == "importance" or not wrong.any():
        return
    b = int(np.argmin(np.where(wrong, chance, np.inf)))
    sentences.append(
        f"the product lies {distance[b]:.2g} standard deviations from the mean of shard {b}, with {100 * share[b]:.2g} % of the draws of "
        f"the shard further out, where a normal distribution would have {100 * expected[b]:.2g} %: {combiner.name} extrapolates the tail "
        "of the shard, and the mean of the combination may be off by a posterior standard deviation. Use fewer shards or 'importance'."
    )
