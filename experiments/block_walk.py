"""A move for experiments: one block of theta, chosen at random, makes an isotropic random-walk step of a size given in advance."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

import tallbayes as tb
from tallbayes.moves.move import Move, Point, log_density, move, start
from tallbayes.moves.proposals import Mixture
from tallbayes.run.chain import Chain


class BlockKernel(NamedTuple):
    """Block of each coordinate, number of blocks, standard deviation of a step."""

    block: np.ndarray
    blocks: int
    step: float


@start.register(BlockKernel)
def _start(kernel, density, theta):
    return Point(theta.copy(), log_density(density, theta), np.zeros(theta.size))


@move.register(BlockKernel)
def _move(rng, kernel, density, point, info):
    which = min(int(rng.random() * kernel.blocks), kernel.blocks - 1)
    proposal = point.theta.copy()
    for j in range(proposal.size):
        if kernel.block[j] == which:
            proposal[j] += kernel.step * rng.standard_normal()
    candidate = log_density(density, proposal)
    log_ratio = candidate - point.log_density
    info[1] = math.exp(min(0.0, log_ratio))
    info[2] = 1.0
    if math.log(1.0 - rng.random()) < log_ratio:
        point = Point(proposal, candidate, point.gradient)
    info[0] = point.log_density
    return point


@dataclass(frozen=True)
class BlockWalk(Move):
    """Blocks of coordinates and the standard deviation of a step."""

    blocks: tuple[tuple[int, ...], ...] = ()
    step: float = 0.1
    name: ClassVar[str] = "block_walk"

    def kernel(self, covariance: np.ndarray, step: float) -> Any:
        """The covariance is not used."""
        label = np.zeros(covariance.shape[0], np.int64)
        for number, members in enumerate(self.blocks):
            label[list(members)] = number
        return BlockKernel(label, len(self.blocks), step)

    def first_step(self, dim: int) -> float:
        """As given."""
        return self.step

    def target_acceptance(self, dim: int) -> float:
        """The rate of the paper."""
        return 0.3


@dataclass
class Path:
    """Draws of a run whose step followed its acceptance rate, with evaluations and seconds up to each."""

    theta: np.ndarray
    evals: np.ndarray
    clock: np.ndarray
    setup: float  # seconds before the first iteration: tables of the sampler
    step: float  # at the end; for a kernel without a step, in units of the one it began with
    acceptance: float  # of the later half
    rows: np.ndarray | None = None  # read by each iteration, where the sampler reports it


def scaled(kernel: Any, factor: float) -> Any:
    """A random-walk kernel whose steps are `factor` times as long."""
    if isinstance(kernel, Mixture):  # of independent proposals, of which a random walk has none, and steps
        return kernel._replace(second=scaled(kernel.second, factor))
    if hasattr(kernel, "step"):
        return kernel._replace(step=kernel.step * factor)
    return kernel._replace(factor=kernel.factor * factor)


def adapted(
    model: Any,
    mode: Any,
    sampler: Any,
    start: np.ndarray,
    seconds: float,
    band: tuple[float, float],
    thin: int = 1,
    block: int = 20,
    first: float = 1.0,
    seed: int = 1,
    loaded: bool = False,
) -> Path:
    """A run of given seconds; after every `block` draws the step grows by a fifth if more than `band` accepts, or shrinks if less.

    As in sections 5.2 and 5.3 of the LWA paper the step is adapted along the trajectory, for whatever sampler. It begins `first`
    times as long as the move would have it. `loaded` says that a sampler of this kind was set up before, so that timing it again
    would load no compiled code.
    """
    if not loaded:
        sampler.setup(model, mode, 1, False)  # compiled code is loaded
    begun = time.perf_counter()
    setup = sampler.setup(model, mode, 1, False)
    waited = time.perf_counter() - begun
    chain = Chain(0, sampler, setup, np.random.SeedSequence(seed), start, 0, thin)
    chain.options = chain.options._replace(kernel=scaled(chain.options.kernel, first))
    chain.compile()
    scale = first
    where, clock, rates = sampler.columns.index("acceptance_rate"), [0.0], []
    while chain.seconds["draws"] < seconds:
        goal, seen, sizes = chain.draws + block, len(chain.info), []
        while chain.draws < goal and chain.seconds["draws"] < seconds:
            made = chain.draws
            chain.chunk(goal)
            sizes.append(chain.draws - made)
            clock.extend(np.linspace(clock[-1], chain.seconds["draws"], sizes[-1] + 1)[1:])
        rates.append(float(np.concatenate([part[:, where] for part in chain.info[seen:]]).mean()))
        factor = 1.2 if rates[-1] > band[1] else 1.0 / 1.2 if rates[-1] < band[0] else 1.0
        scale *= factor
        chain.options = chain.options._replace(kernel=scaled(chain.options.kernel, factor))
    theta, info = chain.collected()
    evals = info[:, sampler.columns.index("evals")].cumsum()
    late = float(np.mean(rates[len(rates) // 2 :]))
    rows = info[:, sampler.columns.index("rows")] if "rows" in sampler.columns else None
    return Path(theta, evals, np.array(clock[1:]), waited, getattr(chain.options.kernel, "step", scale), late, rows)


def tuned(model: Any, mode: Any, make: Callable[[float], Any], low: float, high: float, acceptance: float = 0.3) -> float:
    """The step at which the sampler that `make` returns accepts at this rate near the mode, by bisection."""
    for _ in range(6):
        middle = math.sqrt(low * high)
        fit = tb.sample(model, make(middle), 100, 0, 1, 1, init=mode.reference, mode=mode, progress=False)
        low, high = (middle, high) if fit.stats["acceptance_rate"][0, 20:].mean() > acceptance else (low, middle)
    return math.sqrt(low * high)
