"""What methods are expected to cost on a posterior, before they are tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes import samplers
from tallbayes.contract import Sampler, Setup
from tallbayes.results.cost import effective_sizes
from tallbayes.samplers import HMCECS, ExactMinibatch, Firefly

SHORTEST = 100  # draws of a pilot whose effective sizes are looked at
LONG = 1500  # from which they are trusted
_WORTH = 4.0  # times by which an approximate method must be faster than the best exact one: its cost is predicted less well


@dataclass(frozen=True)
class Prediction:
    """What a method is expected to cost: evaluations and iterations per effective draw, and nanoseconds for each."""

    sampler: Sampler
    evals_per_ess: float
    iterations_per_ess: float
    nanoseconds_per_eval: float
    nanoseconds_per_iteration: float
    facts: str
    setup: Setup | None = None
    tried: bool = False  # whether a pilot has confirmed it

    @property
    def nanoseconds_per_ess(self) -> float:
        """Both parts."""
        return self.evals_per_ess * self.nanoseconds_per_eval + self.iterations_per_ess * self.nanoseconds_per_iteration

    def as_dict(self) -> dict[str, Any]:
        """In JSON types, without the setup."""
        numbers = ("evals_per_ess", "iterations_per_ess", "nanoseconds_per_eval", "nanoseconds_per_iteration")
        return {"sampler": self.sampler.as_dict(), "facts": self.facts, **{k: float(getattr(self, k)) for k in numbers}}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Prediction:
        """The inverse of `as_dict`."""
        return cls(**{**values, "sampler": samplers.from_dict(values["sampler"])})


def price(candidate: Prediction) -> float:
    """Nanoseconds per effective draw; an approximate method has to be several times cheaper."""
    return candidate.nanoseconds_per_ess * (1.0 if candidate.sampler.guarantee.kind == "EXACT" else _WORTH)


def turning_point(best: Prediction) -> str:
    """What would change the choice."""
    if isinstance(best.sampler, HMCECS):
        return "; fewer columns for the same rows, or a posterior closer to Gaussian, would favour exact-minibatch"
    if isinstance(best.sampler, ExactMinibatch):
        return "; a much larger dimension, a small n or a strongly non-Gaussian posterior would favour firefly or nuts"
    if isinstance(best.sampler, Firefly):
        return "; fewer columns for the same rows would favour exact-minibatch, and a posterior further from Gaussian nuts"
    return "; more rows for the same columns, or a posterior closer to Gaussian, would favour exact-minibatch"


def full_data(sampler: Sampler, setup: Setup) -> Prediction:
    """NUTS on a whitened posterior: about 2.5 d^0.15 gradients per effective draw (measured), each a pass over the rows."""
    n, d = setup.model.data.n, setup.model.dim
    evals = n * 2.5 * d**0.15
    facts = f"{evals:,.3g} evaluations per effective draw predicted"
    return Prediction(sampler, evals, 1.0, 4.0 + 0.5 * d, 2000.0 + 10.0 * d**2, facts, setup)


def subsampled_hmc(sampler: Sampler, setup: Setup) -> Prediction | None:
    """HMC-ECS with the rows its own pilot chose: trajectories of length 1.2 in steps of about 1.4 d^(-1/4), three iterations per
    effective draw (measured), more where the estimate is noisy. None if an estimate would read a quarter of the rows."""
    m, variance = setup.notes["subsample"], setup.notes["variance_predicted"]
    if 4 * m > setup.model.data.n or setup.notes["bias_guard"] > 1.0:
        return None
    d, steps = setup.model.dim, max(1.0, 1.2 * setup.model.dim**0.25 / 1.4)
    iterations = 3.0 * (1.0 + variance)
    facts = f"{m:,} rows per gradient, set by a pilot run; predicted variance of log L-hat {variance:.2g}"
    evals, overhead = iterations * m * (steps + 0.01), (steps + 1.0) * (2000.0 + 4.0 * d**2)
    return Prediction(sampler, evals, iterations, 30.0 + d, overhead, facts, setup)


def bright_hmc(sampler: Sampler, setup: Setup) -> Prediction | None:
    """Firefly with HMC: three iterations per effective draw while few rows are bright; with more of them theta is held by the lights, and
    iterations grow as the square of the bright rows (measured). None if a tenth of the rows were bright."""
    bright, d = setup.notes["expected_bright"], setup.model.dim
    if 10.0 * bright > setup.model.data.n:
        return None
    steps = max(1.0, 1.2 * d**0.25 / 1.4)
    iterations = 3.0 + 0.1 * bright**2
    facts = f"{bright:,.3g} of {setup.model.data.n:,} rows expected bright"
    evals, overhead = iterations * bright * (steps + 2.0), (steps + 1.0) * (2000.0 + 2.0 * d**2)
    return Prediction(sampler, evals, iterations, 100.0 + 2.0 * d, overhead, facts, setup)


def stays(renewed: np.ndarray) -> float:
    """Iterations per effective draw of a chain that now and then moves to an independent draw: sum of squared stays over their sum.

    With a constant probability a of moving this is (2 - a) / a; a few long stays, as in tails, count for what they are.

    >>> stays(np.array([True, True, True, True])), stays(np.array([True, False, False, False]))
    (1.0, 4.0)
    """
    ends = np.append(np.flatnonzero(renewed), renewed.size)
    stays = np.diff(ends, prepend=0)
    return float((stays.astype(float) ** 2).sum() / stays.sum())


def with_sticking(iterations: float, theta: np.ndarray) -> float:
    """Iterations per effective draw where a skewed posterior may hold a chain in a tail now and then.

    Stays are averaged over all coordinates, and those in the tail of one of them are longer, so the effective size of the worst
    coordinate of theta, (draws, dim), decides. From a short chain it is too noisy for that: the geometric mean is a compromise, chosen on
    two skewed posteriors. Chains below `SHORTEST` draws tell nothing of it.

    >>> draws = np.random.default_rng(0).standard_normal((1000, 2))
    >>> bool(1.0 <= with_sticking(1.0, draws) < 1.3), bool(with_sticking(2.0, np.repeat(draws[:50], 20, axis=0)) > 5.0)
    (True, True)
    """
    if theta.shape[0] < SHORTEST:
        return iterations
    worst = theta.shape[0] / max(float(np.nan_to_num(effective_sizes(theta[None])).min()), 1.0)
    worst = max(worst, iterations)
    return worst if theta.shape[0] >= LONG else float(np.sqrt(iterations * worst))


def inefficiency(white: np.ndarray) -> float:
    """Iterations per effective draw, from the lag-one correlation of all coordinates together: short chains tell no more."""
    shifted = white - white.mean(0)
    correlation = float((shifted[1:] * shifted[:-1]).sum() / max((shifted**2).sum(), 1e-300))
    correlation = min(max(correlation, -0.2), 0.95)
    return (1.0 + correlation) / (1.0 - correlation)
