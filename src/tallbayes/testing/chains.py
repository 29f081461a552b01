"""Chains run by hand: in chunks of given sizes, or an iteration at a time; compiled, or interpreted for enumeration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tallbayes.contract import Sampler, advance, init, step
from tallbayes.errors import OptionError, TallbayesError
from tallbayes.mode.laplace import Mode
from tallbayes.mode.search import find_mode
from tallbayes.model import Model
from tallbayes.moves.proposals import propose
from tallbayes.run.flattening import flatten
from tallbayes.run.thinning import thinned
from tallbayes.target import Target


class ChainRun(NamedTuple):
    """Draws (draws, dim), what the sampler reports of each in the order of its `columns`, and the final state by name."""

    theta: np.ndarray
    info: np.ndarray
    state: dict[str, np.ndarray]


def run_chunks(
    sampler: Sampler,
    model: Model,
    mode: Mode | None,
    sizes: Sequence[int],
    seed: int = 3,
    thin: int = 1,
    compiled: bool = True,
) -> ChainRun:
    """A chain from the mode without warm-up, with the options of its beginning, run in chunks of these numbers of draws.

    The same seed gives the same draws however they are divided into chunks, and interpreted as well as compiled.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.testing import run_chunks
    >>> data = tb.Dataset.from_arrays(np.ones((10, 1)), np.arange(10.0))
    >>> model = tb.models.gaussian(data, tb.priors.flat(), sigma=2.0)
    >>> sampler = tb.samplers.FullData(tb.moves.random_walk())
    >>> whole = run_chunks(sampler, model, None, [5], compiled=False)
    >>> parts = run_chunks(sampler, model, None, [2, 3], compiled=False)
    >>> whole.theta.shape, np.array_equal(whole.theta, parts.theta)
    ((5, 1), True)
    >>> dict(zip(sampler.columns, whole.info.T))["evals"]
    array([10., 10., 10., 10., 10.])
    """
    mode = find_mode(model, progress=False) if mode is None else mode
    setup = sampler.setup(model, mode, seed, False)
    options, target = setup.policy.options(setup.policy.begin(), True), setup.target()
    rng, state, fresh = np.random.default_rng(seed), setup.policy.blank(mode.reference), True
    thetas, infos = [], []
    run = advance if compiled else advance.py_func
    for size in sizes:
        theta, info = np.empty((size, model.dim)), np.zeros((size * thin, len(sampler.columns)))
        state, made = run(rng, target, options, state, fresh, theta, info, thin)
        if made != size:
            raise TallbayesError(
                f"the chain stopped after {made} of {size} draws; the counters of its target are {target.counters}."
            )
        fresh = False
        kept = [name for name, value in flatten(state, "state").items() if value.base is None and not value.flags.owndata]
        if kept:
            raise TallbayesError(
                f"{', '.join(kept)}: arrays of the target or the options, which the state may outlive; copy them."
            )
        thetas.append(theta)
        infos.append(thinned(info, sampler.columns, thin))
    return ChainRun(np.concatenate(thetas), np.concatenate(infos), flatten(state, "state"))


class PointProposals(NamedTuple):
    """Proposals on a few points in whitened coordinates, to the one numbered `goal`, with the probabilities of a table."""

    points: np.ndarray
    table: np.ndarray
    goal: int


@propose.register(PointProposals)
def _propose(rng: np.random.Generator, kernel: PointProposals, white: np.ndarray, proposal: np.ndarray) -> tuple[float, int]:
    here = int(np.argmin(((kernel.points - white) ** 2).sum(axis=1)))
    proposal[:] = kernel.points[kernel.goal]
    return math.log(kernel.table[kernel.goal, here] / kernel.table[here, kernel.goal]), 0


class FrozenKernel(NamedTuple):
    """The kernel of a sampler with the options of the beginning of a run; its functions are interpreted."""

    target: Target
    options: Any
    columns: tuple[str, ...]

    def start(self, rng: Any, theta: np.ndarray) -> Any:
        """The state at theta, auxiliary variables drawn given theta."""
        return init(rng, self.target, self.options, theta)

    def step(self, rng: Any, state: Any) -> tuple[Any, dict[str, float]]:
        """The state after one iteration, and what the sampler reports of it. A state that did not move is the same object."""
        info = np.zeros(len(self.columns))
        after = step(rng, self.target, self.options, state, info)
        return after, dict(zip(self.columns, info.tolist(), strict=True))

    def proposing(self, points: np.ndarray, table: np.ndarray, goal: int) -> FrozenKernel:
        """The same with proposals from any of `points` (whitened, a row each) to that numbered `goal`, and never another.

        `table[i, j]` is the probability that j would be proposed at i, for the ratio of proposals.
        """
        if type(getattr(self.options, "kernel", None)) not in propose.registry:
            raise OptionError(
                "proposing() is for samplers that propose in whitened coordinates; this one has no proposal kernel."
            )
        return self._replace(options=self.options._replace(kernel=PointProposals(np.asarray(points), np.asarray(table), goal)))


def frozen_kernel(sampler: Sampler, model: Model, mode: Mode | None = None, seed: int = 0) -> FrozenKernel:
    """One iteration of a sampler as a function, to be enumerated with `ScriptedRandom` or looked at step by step.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.testing import frozen_kernel
    >>> data = tb.Dataset.from_arrays(np.ones((10, 1)), np.arange(10.0))
    >>> model = tb.models.gaussian(data, tb.priors.flat(), sigma=2.0)
    >>> kernel = frozen_kernel(tb.samplers.FullData(tb.moves.random_walk()), model)
    >>> rng = np.random.default_rng(1)
    >>> state = kernel.start(rng, np.array([4.5]))
    >>> state, info = kernel.step(rng, state)
    >>> state.theta.shape, 0.0 <= info["acceptance_rate"] <= 1.0
    ((1,), True)
    """
    mode = find_mode(model, progress=False) if mode is None else mode
    setup = sampler.setup(model, mode, seed, False)
    return FrozenKernel(setup.target(), setup.policy.options(setup.policy.begin(), True), sampler.info)
