"""One chain: warm-up in windows with options renewed between them, then draws with everything frozen.

A chain is advanced in chunks chosen by the clock. Chunks never change draws: windows end at fixed iterations, and the
random numbers of a chain come from its own generator in the order of iterations. An iteration that is abandoned is no part of the
run: draws before it are kept, and the chain, which has used random numbers for it, goes no further and is not saved.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

from tallbayes.contract import Sampler, Setup, advance
from tallbayes.results.levels import LevelPlan
from tallbayes.results.running_levels import Running, absorb, running
from tallbayes.run.flattening import flatten, unflatten
from tallbayes.run.thinning import thinned
from tallbayes.target import ABANDONED, EVALS, GO_ON, RUNNING, STATUS, STOP

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
        levels: LevelPlan | None = None,
    ) -> None:
        self.number, self.sampler, self.setup = number, sampler, setup
        self.warmup, self.thin = warmup, thin
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.target = setup.target(number)
        self.tuning = setup.policy.begin()
        self.options = setup.policy.options(self.tuning, warmup == 0)
        self.state = setup.policy.blank(theta)
        self.levels = levels  # None if every coordinate of every draw is kept
        self.running: Running | None = None if levels is None else running(levels.described.size, levels.thinned)
        self.fresh = True
        self.iteration = 0  # of warm-up
        self.window: list[tuple[np.ndarray, np.ndarray]] = []
        self.theta: list[np.ndarray] = []
        self.info: list[np.ndarray] = []
        self.draws = 0
        self.seconds = {"warmup": 0.0, "draws": 0.0}
        self.warmup_evaluations = 0.0
        self.per_second = 0.0
        self.watched = False  # whether the later half of warm-up is kept, for a judgement of it
        self.later: list[tuple[np.ndarray, np.ndarray]] = []

    @property
    def warming(self) -> bool:
        """Whether warm-up is still going on."""
        return self.iteration < self.warmup

    @property
    def width(self) -> int:
        """Coordinates of a draw that are kept."""
        return self.state.theta.size if self.levels is None else self.levels.kept.size

    @property
    def abandoned(self) -> bool:
        """Whether the chain was stopped within an iteration, after which its state is of no use."""
        return bool(self.target.counters[STATUS] == ABANDONED)

    def ask(self, request: int) -> None:
        """Ask the chunk that is running to end: END_SOON after its draw, END_NOW within its iteration; never less than before."""
        self.target.counters[STOP] = max(int(self.target.counters[STOP]), request)

    def allow(self) -> None:
        """Take back what was asked of the last chunk."""
        self.target.counters[STOP] = GO_ON

    @property
    def failed(self) -> bool:
        """Whether the last chunk ended with an error status."""
        return bool(self.target.counters[STATUS] not in (RUNNING, ABANDONED))

    def compile(self) -> None:
        """Compile `advance` for this chain's types without running an iteration."""
        rng = np.random.default_rng(0)
        theta = np.empty((0, self.state.theta.size))
        advance(rng, self.target, self.options, self.state, False, theta, np.zeros((0, len(self.sampler.columns))), self.thin)
        self._kept(theta)

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
            self.theta.append(self._kept(theta[:made]))
            self.info.append(info)
            self.draws += made
        return made * thin

    def _kept(self, theta: np.ndarray) -> np.ndarray:
        """The coordinates that are kept of new draws; the others are absorbed by running statistics."""
        if self.levels is None or self.running is None:
            return theta
        absorb(self.running, theta, self.levels.described)
        return theta[:, self.levels.kept]

    def _warmed(self, theta: np.ndarray, info: np.ndarray) -> None:
        self.iteration += theta.shape[0]
        seen = theta if self.watched else self.setup.policy.seen(theta)
        self.window.append((seen, info))
        if self.iteration not in self.setup.policy.window_ends(self.warmup) or self.failed or self.abandoned:
            return
        draws = np.concatenate([w[0] for w in self.window])
        table = np.concatenate([w[1] for w in self.window])
        named = dict(zip(self.sampler.columns, table.T, strict=True))
        if self.watched and 2 * (self.iteration - draws.shape[0]) >= self.warmup:
            self.later.append((draws, named["evals"]))
        self.tuning = self.setup.policy.update(self.tuning, draws, named, self.iteration, self.warmup)
        self.options = self.setup.policy.options(self.tuning, not self.warming)
        self.window = []

    def judged(self) -> tuple[np.ndarray, np.ndarray]:
        """Draws and evaluations of the later half of warm-up, of a chain that was watched; they are forgotten then."""
        draws, evals = (np.concatenate(part) for part in zip(*self.later, strict=True))
        self.later, self.watched = [], False
        return draws, evals

    def collected(self) -> tuple[np.ndarray, np.ndarray]:
        """All draws so far and what was reported of them."""
        d, k = self.width, len(self.sampler.columns)
        theta = np.concatenate(self.theta) if self.theta else np.empty((0, d))
        info = np.concatenate(self.info) if self.info else np.empty((0, k))
        self.theta, self.info = [theta], [info]
        return theta, info

    def save(self) -> dict[str, Any]:
        """Everything but the draws, for a checkpoint; not after an iteration was abandoned."""
        meta = {
            "iteration": self.iteration,
            "draws": self.draws,
            "fresh": self.fresh,
            "seconds": self.seconds,
            "warmup_evaluations": self.warmup_evaluations,
            "rng": self.rng.bit_generator.state,
        }
        saved = {"counters": self.target.counters.copy()}
        if self.window:
            saved |= {f"window{k}": np.concatenate(part) for k, part in enumerate(zip(*self.window, strict=True))}
        if self.later:
            saved |= {f"later{k}": np.concatenate(part) for k, part in enumerate(zip(*self.later, strict=True))}
        return {
            "meta": np.array(json.dumps(meta)),
            **flatten(self.state, "state"),
            **flatten(self.tuning, "tuning"),
            **({} if self.running is None else flatten(self.running, "levels")),
            **saved,
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
        if self.running is not None:
            self.running = unflatten(self.running, saved, "levels")
        self.options = self.setup.policy.options(self.tuning, not self.warming)
        self.theta, self.info = [theta], [info]
        self.window = [(saved["window0"], saved["window1"])] if "window0" in saved else []
        self.later = [(saved["later0"], saved["later1"])] if "later0" in saved else []
