"""One chain: warm-up in windows with options renewed between them, then draws with everything frozen.

A chain is advanced in chunks chosen by the clock. Chunks never change draws: windows end at fixed iterations, and the
random numbers of a chain come from its own generator in the order of iterations.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

from tallbayes.contract import Sampler, Setup, advance
from tallbayes.run.flattening import flatten, unflatten
from tallbayes.run.thinning import thinned
from tallbayes.target import EVALS, RUNNING, STATUS

CHUNK_SECONDS = 0.2  # so that progress, Ctrl-C and checkpoints are prompt


class Chain:
    """State and progress of one chain."""

    def __init__(
        self,
        number: int,
        sampler: Sampler,
        setup: Setup,
        seed: np.random.SeedSequence,
        theta: np.ndarray,
        warmup: int,
        thin: int,
    ) -> None:
        self.number, self.sampler, self.setup = number, sampler, setup
        self.warmup, self.thin = warmup, thin
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.target = setup.target(number)
        self.tuning = setup.policy.begin()
        self.options = setup.policy.options(self.tuning, warmup == 0)
        self.state = setup.policy.blank(theta)
        self.fresh = True
        self.iteration = 0  # of warm-up
        self.window: list[tuple[np.ndarray, np.ndarray]] = []
        self.theta: list[np.ndarray] = []
        self.info: list[np.ndarray] = []
        self.draws = 0
        self.seconds = {"warmup": 0.0, "draws": 0.0}
        self.warmup_evaluations = 0.0
        self.per_second = 0.0

    @property
    def warming(self) -> bool:
        """Whether warm-up is still going on."""
        return self.iteration < self.warmup

    @property
    def between_windows(self) -> bool:
        """Whether the chain can be saved now."""
        return not self.window

    @property
    def failed(self) -> bool:
        """Whether the last chunk ended with an error status."""
        return bool(self.target.counters[STATUS] != RUNNING)

    def compile(self) -> None:
        """Compile `advance` for this chain's types without running an iteration."""
        rng = np.random.default_rng(0)
        theta = np.empty((0, self.state.theta.size))
        advance(rng, self.target, self.options, self.state, False, theta, np.zeros((0, len(self.sampler.columns))), self.thin)

    def chunk(self, goal: int) -> int:
        """Advance for about `CHUNK_SECONDS`, at most to `goal` draws; returns the iterations made."""
        limit = max(1, int(self.per_second * CHUNK_SECONDS))
        if self.warming:
            end = next(e for e in self.setup.policy.window_ends(self.warmup) if e > self.iteration)
            rows, thin = min(limit, end - self.iteration), 1
        else:
            rows, thin = min(max(1, limit // self.thin), goal - self.draws), self.thin
        theta = np.empty((rows, self.state.theta.size))
        info = np.zeros((rows * thin, len(self.sampler.columns)))
        read, begun = int(self.target.counters[EVALS]), time.perf_counter()
        self.state, made, self.target = self.setup.advance(
            self.number, self.rng, self.target, self.options, self.state, self.fresh, theta, info, thin
        )
        elapsed = time.perf_counter() - begun
        info = thinned(info[: made * thin], self.sampler.columns, thin)
        self.fresh = False
        self.per_second = max(made, 1) * thin / max(elapsed, 1e-9)
        read = int(self.target.counters[EVALS]) - read
        if self.warming:
            self.seconds["warmup"] += elapsed
            self.warmup_evaluations += read
            self._warmed(theta[:made], info)
        else:
            self.seconds["draws"] += elapsed
            self.warmup_evaluations += read - float(info[:, 0].sum())  # what `init` read, without warm-up
            self.theta.append(theta[:made])
            self.info.append(info)
            self.draws += made
        return made * thin

    def _warmed(self, theta: np.ndarray, info: np.ndarray) -> None:
        self.iteration += theta.shape[0]
        self.window.append((theta, info))
        if self.iteration not in self.setup.policy.window_ends(self.warmup) or self.failed:
            return
        draws = np.concatenate([w[0] for w in self.window])
        table = np.concatenate([w[1] for w in self.window])
        named = dict(zip(self.sampler.columns, table.T, strict=True))
        self.tuning = self.setup.policy.update(self.tuning, draws, named, self.iteration, self.warmup)
        self.options = self.setup.policy.options(self.tuning, not self.warming)
        self.window = []

    def collected(self) -> tuple[np.ndarray, np.ndarray]:
        """All draws so far and what was reported of them."""
        d, k = self.state.theta.size, len(self.sampler.columns)
        theta = np.concatenate(self.theta) if self.theta else np.empty((0, d))
        info = np.concatenate(self.info) if self.info else np.empty((0, k))
        self.theta, self.info = [theta], [info]
        return theta, info

    def save(self) -> dict[str, Any]:
        """Everything but the draws, for a checkpoint; only between windows."""
        meta = {
            "iteration": self.iteration,
            "draws": self.draws,
            "fresh": self.fresh,
            "seconds": self.seconds,
            "warmup_evaluations": self.warmup_evaluations,
            "rng": self.rng.bit_generator.state,
        }
        counters = {"counters": self.target.counters.copy()}
        return {
            "meta": np.array(json.dumps(meta)),
            **flatten(self.state, "state"),
            **flatten(self.tuning, "tuning"),
            **counters,
        }

    def restore(self, saved: dict[str, np.ndarray], theta: np.ndarray, info: np.ndarray) -> None:
        """The inverse of `save`."""
        meta = json.loads(str(saved["meta"]))
        self.iteration, self.draws, self.fresh = meta["iteration"], meta["draws"], meta["fresh"]
        self.seconds, self.warmup_evaluations = meta["seconds"], meta["warmup_evaluations"]
        self.rng.bit_generator.state = meta["rng"]
        self.target.counters[:] = saved["counters"]
        self.state = unflatten(self.state, saved, "state")
        self.tuning = unflatten(self.tuning, saved, "tuning")
        self.options = self.setup.policy.options(self.tuning, not self.warming)
        self.theta, self.info = [theta], [info]
