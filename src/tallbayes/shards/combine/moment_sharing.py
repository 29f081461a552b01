"""Expectation propagation over shards: sampling via moment sharing (Xu et al. 2014; Gelman et al. 2014).

q = prior x prod_b site_b, all normal in natural parameters (r, Q). In a round every shard samples its likelihood times the
cavity q / site_b, and the new site is (natural parameters of these draws) - cavity, with Hartlap's factor on the precision,
mixed with the old by a damping factor. An update that leaves q without a positive precision is not made. The rounds end when
the mean of q moves by less than a fraction of its standard deviations. No theorem says that they do; where the likelihoods
are normal, the fixed point is the posterior.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from tallbayes.errors import DataError, OptionError
from tallbayes.shards.combine.subposteriors import (
    Combination,
    Combiner,
    Convention,
    SubPosteriors,
    hartlap,
    normal_draws,
    shares_of,
    symmetric,
)
from tallbayes.streams import Stream, generator


class Natural(NamedTuple):
    """A normal density in natural parameters: r = Q m."""

    shift: np.ndarray
    precision: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """m."""
        return np.linalg.solve(self.precision, self.shift)

    @property
    def proper(self) -> bool:
        """Whether the precision is positive definite."""
        scale = np.sqrt(np.maximum(np.abs(np.diag(self.precision)), 1e-300))
        return bool(np.linalg.eigvalsh(symmetric(self.precision / np.outer(scale, scale)))[0] > 1e-10)


TiltedSampler = Callable[
    [list[Natural], list[int], int], Sequence[tuple[np.ndarray, float]]
]  # cavities, shards, round -> draws, sizes


@dataclass(frozen=True)
class MomentSharing(Combiner):
    """Rounds of moment sharing; needs to sample shards again, so it is run by `rounds`, or by `tallbayes.sample_shards`."""

    damping: float = 0.5
    rounds: int = 6
    tolerance: float = 0.05
    convention: ClassVar[Convention] = Convention.PRODUCT
    name: ClassVar[str] = "moment-sharing"
    statement: ClassVar[str] = "the fixed point of moment sharing (expectation propagation): exact for normal likelihoods only"

    def __post_init__(self) -> None:
        if not 0.0 < self.damping <= 1.0:
            raise OptionError(f"damping is the share of the new site and must be above 0 and at most 1; got {self.damping}.")
        if self.rounds < 1 or not self.tolerance > 0:
            raise OptionError(f"rounds must be at least 1 and tolerance positive; got {self.rounds} and {self.tolerance}.")

    def combine(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> Combination:
        """Refuse: moments must be shared while sampling."""
        raise OptionError(
            "moment sharing samples the shards again in every round, so it cannot combine finished draws; use "
            "combine='moment-sharing' in tallbayes.sample_shards, MomentSharing().run(...) with your own sampler, or "
            "combine='gaussian'."
        )

    def run(
        self, prior: Natural, sites: Sequence[Natural], tilted: TiltedSampler, draws: int, seed: int | np.random.Generator = 0
    ) -> Combination:
        """Iterate from `sites`; `tilted(cavities, shards, round)` samples likelihood x cavity of each shard listed.

        It returns draws (draws, dim) and their effective size for each. Draws of q are returned.
        """
        sites, history, refused = list(sites), [], 0
        q = _product(prior, sites)
        if not q.proper:
            raise DataError("the starting sites and the prior have no positive precision; give wider sites or a proper prior.")
        moved, number = np.inf, 0
        for number in range(1, self.rounds + 1):
            cavities = [Natural(q.shift - s.shift, q.precision - s.precision) for s in sites]
            usable = [b for b, c in enumerate(cavities) if c.proper]
            refused += len(sites) - len(usable)
            if not usable:
                raise DataError("no cavity has a positive precision; use fewer shards, or a tighter prior.")
            for b, (theta, size) in zip(usable, tilted([cavities[b] for b in usable], usable, number), strict=True):
                new = _site(theta, size, cavities[b])
                mixed = Natural(*(self.damping * n + (1.0 - self.damping) * o for n, o in zip(new, sites[b], strict=True)))
                others = _product(prior, [*sites[:b], mixed, *sites[b + 1 :]])
                if others.proper:
                    sites[b] = mixed
                else:
                    refused += 1
            before, q = q, _product(prior, sites)
            gap = q.mean - before.mean
            moved = float(np.sqrt(gap @ q.precision @ gap / gap.size))
            history.append(moved)
            if moved < self.tolerance:
                break
        rng = generator(seed, Stream.COMBINATION)
        out = Combination(
            normal_draws(rng, q.mean, symmetric(q.precision), draws), None, shares_of(_positive(sites)), float(draws)
        )
        out.notes = {"rounds": number, "moves": history, "refused_updates": refused}
        if moved >= self.tolerance:
            out.warnings.append(
                f"moment sharing still moved by {moved:.2g} posterior standard deviations in round {number}, the last one; "
                "raise rounds=, or take more draws per shard so that moments are less noisy."
            )
        if refused:
            out.warnings.append(f"{refused} site updates were skipped because the precision would not have been positive.")
        return out


def _product(prior: Natural, sites: Sequence[Natural]) -> Natural:
    return Natural(prior.shift + sum(s.shift for s in sites), prior.precision + sum(s.precision for s in sites))


def _site(theta: np.ndarray, size: float, cavity: Natural) -> Natural:
    """Natural parameters of the draws less the cavity."""
    mean, covariance = theta.mean(0), np.atleast_2d(np.cov(theta.T))
    precision = hartlap(size, mean.size) * symmetric(np.linalg.inv(covariance))
    return Natural(precision @ mean - cavity.shift, precision - cavity.precision)


def _positive(sites: Sequence[Natural]) -> np.ndarray:
    """Precisions of the sites; where their sum is not positive shares have no meaning and all count the same."""
    parts = np.stack([s.precision for s in sites])
    return parts if np.linalg.eigvalsh(parts.sum(0))[0] > 0 else np.stack([np.eye(parts.shape[1])] * len(sites))
