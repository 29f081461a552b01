"""Surrogate transitions: several steps on a density that is cheap to evaluate propose one position of an expensive one.

If every step is reversible with respect to the surrogate, so are several of them, and the Metropolis-Hastings ratio of the whole
proposal is that of the density to the surrogate at its two ends (Liu 2001, section 9.4.3; Christen and Fox 2005). Independence, pCN and
random-walk proposals, HMC and NUTS are reversible; sweeps in a fixed order would not be.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.compile import generic
from tallbayes.errors import OptionError
from tallbayes.moves.hmc import HamiltonianMove
from tallbayes.moves.move import MOVED, Move, move, start
from tallbayes.moves.nuts import NoUTurnMove
from tallbayes.moves.proposals import Autoregressive, Located, Mixture, ProposalMove, Walk, as_proposal, independence, propose
from tallbayes.option_types import checked


class OnSurrogate(NamedTuple):
    """Steps of a kernel on the surrogate with probability `share`, else one proposal of `rest`."""

    inner: Any
    steps: int
    rest: Mixture
    share: float


@generic(argument=1)
def travel(
    rng: np.random.Generator, kernel: Any, density: Any, white: np.ndarray, proposal: np.ndarray
) -> tuple[float, int, bool]:
    """Fill `proposal`; returns a log ratio, the component used, and whether the surrogate `density` has been accounted for.

    The ratio is -inf where the proposal is the present position.
    """
    ratio, component = propose(rng, kernel, white, proposal)
    return ratio, component, False


@travel.register(OnSurrogate)
def _on_surrogate(
    rng: np.random.Generator, kernel: OnSurrogate, density: Any, white: np.ndarray, proposal: np.ndarray
) -> tuple[float, int, bool]:
    if rng.random() >= kernel.share:
        ratio, component = propose(rng, kernel.rest, white, proposal)
        return ratio, component, False
    point, info = start(kernel.inner, density, white), np.zeros(len(MOVED))
    if point.log_density > -np.inf:  # otherwise white is where the surrogate is not used
        for _ in range(kernel.steps):
            point = move(rng, kernel.inner, density, point, info)
    ratio = -np.inf
    for j in range(white.size):
        if point.theta[j] != white[j]:
            ratio = 0.0
        proposal[j] = point.theta[j]
    return ratio, 0, True


@dataclass(frozen=True)
class SurrogateMove(Move):
    """Options of surrogate transitions."""

    inner: Move = field(default_factory=independence)
    steps: int = 8
    share: float = 0.8
    acceptance: float = 0.25
    name: ClassVar[str] = "surrogate"
    alone: ClassVar[bool] = False

    def kernel(self, covariance: np.ndarray, step: float) -> Any:
        """The kernel in whitened coordinates; warm-up tunes the random walk alone."""
        d = covariance.shape[0]
        inner = self.inner.kernel(np.eye(d), self.inner.first_step(d))
        if isinstance(self.inner, ProposalMove):
            inner = Located(np.zeros(d), np.eye(d), inner)
        rest = Mixture(Autoregressive(0.0), Walk(step * 2.38 / math.sqrt(d)), 0.5)
        return OnSurrogate(inner, self.steps, rest, self.share)

    def first_step(self, dim: int) -> float:
        """Relative to 2.38 / sqrt(d)."""
        return 1.0

    def target_acceptance(self, dim: int) -> float:
        """Of the random walk."""
        return self.acceptance

    def as_dict(self) -> dict[str, Any]:
        """Name and options in JSON types."""
        return {"name": self.name, **asdict(self), "inner": self.inner.as_dict()}

    @property
    def needs_gradient(self) -> bool:
        """Whether the inner move uses gradients of the surrogate."""
        return not isinstance(self.inner, ProposalMove)


@checked
def surrogate(inner: Move | None = None, steps: int = 8, share: float = 0.8) -> SurrogateMove:
    """Several steps of `inner` on the surrogate, then one decision about the rows; single proposals otherwise.

    `inner` is independence() (the default), pcn(), random_walk(), hmc() or nuts(). For exact minibatch where proposals from the Laplace fit
    are rarely accepted although the surrogate is a good one: priors that are not normal, third-order proxies. With probability 1 - `share`
    there is a single proposal, from the Laplace fit or a random walk: these alone lead into and out of tails where third-order proxies are
    not used.

    >>> surrogate(steps=4)
    SurrogateMove(inner=ProposalMove(rho=0.0, share=0.8, acceptance=0.25), steps=4, share=0.8, acceptance=0.25)
    """
    chosen: Move = independence() if inner is None else inner
    if not isinstance(chosen, HamiltonianMove | NoUTurnMove):
        chosen = as_proposal(chosen)
    if not steps >= 1:
        raise OptionError(f"steps must be at least 1; got {steps}.")
    if not 0.0 <= share < 1.0:
        raise OptionError(
            f"share is a probability below 1, because single proposals reach what the surrogate does not; got {share}."
        )
    return SurrogateMove(chosen, int(steps), share)
