"""The driver: advances chains in chunks on a pool of threads, shows progress, saves, and stops when asked.

Scheduling affects only when a chunk runs, never what it computes: every chain has its own generator, state and counters. A
chunk runs in compiled code, which no exception reaches: it is asked to end through the counters of its chain.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np

from tallbayes.errors import CertificateError, ModelError
from tallbayes.progress import Progress
from tallbayes.run.chain import Chain
from tallbayes.run.checkpoint import Checkpoint
from tallbayes.target import BOUND_EXCEEDED, DIVERGED, END_NOW, END_SOON, ROW, STATUS

LONG_SECONDS = 1.0  # a chunk that takes longer is asked to end after its draw: iterations have become slower
GRACE_SECONDS = 0.3  # for the draw that a chunk is in when the run stops; its iteration is abandoned then
SAVE_SECONDS = 5.0  # between two saves of a chain
SAVE_SHARE = 0.05  # of the time of a run that its saves may take: draws of a long warm-up window are many
MOST_BLOCKS = 1000  # of `draws` each, when sampling until an effective sample size


@dataclass
class Limits:
    """When to stop."""

    draws: int
    max_seconds: float | None = None
    until_ess: float | None = None


def drive(
    chains: list[Chain],
    limits: Limits,
    cores: int | None,
    progress: bool,
    checkpoint: Checkpoint | None,
    effective: Callable[[np.ndarray, np.ndarray | None], float],
) -> str:
    """Run all chains to the limits; returns the status: complete, interrupted, time limit or ess limit."""
    start, goal, status = time.monotonic(), limits.draws, "complete"
    if limits.until_ess is not None:  # a resumed run may be in a later block
        goal *= max(1, -(-max(c.draws for c in chains) // limits.draws))
    total = sum(c.warmup - c.iteration + (goal - c.draws) * c.thin for c in chains)
    workers = max(1, min(len(chains), cores or os.cpu_count() or 1))
    with ThreadPoolExecutor(workers) as pool, Progress("sampling", total, progress) as bar:
        running: dict[Future[int], Chain] = {}
        begun = dict.fromkeys((c.number for c in chains), start)
        due = dict.fromkeys((c.number for c in chains), start + SAVE_SECONDS)
        stopping: float | None = None  # since when
        try:
            while True:
                try:
                    now = time.monotonic()
                    if limits.max_seconds is not None and stopping is None and now - start > limits.max_seconds:
                        stopping, status = now, "time limit"
                    if stopping is None:
                        _submit(pool, running, chains, goal, workers, begun)
                    if not running:
                        if stopping is not None or not _more_needed(chains, limits, goal, effective):
                            break
                        if goal >= limits.draws * MOST_BLOCKS:
                            status = "ess limit"
                            break
                        goal += limits.draws
                        bar.total = (bar.total or 0) + limits.draws * sum(c.thin for c in chains)
                        continue
                    left = 0.2 if limits.max_seconds is None else limits.max_seconds - (now - start)
                    finished, _ = wait(running, timeout=min(0.2, max(0.01, left)), return_when=FIRST_COMPLETED)
                    for future in finished:
                        chain = running.pop(future)
                        bar.advance(future.result(), _note(chains))
                        _check(chain)
                        if checkpoint and not chain.abandoned and time.monotonic() > due[chain.number]:
                            due[chain.number] = _saved(checkpoint, chain)
                    _hurry(running, begun, stopping)
                except KeyboardInterrupt:
                    if stopping is not None and status == "interrupted":
                        raise
                    stopping, status = time.monotonic(), "interrupted"
        finally:
            for chain in running.values():  # after an error too: the pool waits for its threads
                chain.ask(END_NOW)
        if checkpoint:
            for chain in chains:
                if not chain.abandoned:
                    checkpoint.save(chain)
    return status


def _saved(checkpoint: Checkpoint, chain: Chain) -> float:
    """Save a chain; returns when to do so again."""
    begun = time.monotonic()
    checkpoint.save(chain)
    now = time.monotonic()
    return now + max(SAVE_SECONDS, (now - begun) / SAVE_SHARE)


def _hurry(running: dict[Future[int], Chain], begun: dict[int, float], stopping: float | None) -> None:
    """Ask chunks to end that take too long, or all when the run stops: after the present draw at first, then at once."""
    now = time.monotonic()
    for chain in running.values():
        if stopping is not None:
            chain.ask(END_NOW if now - stopping > GRACE_SECONDS else END_SOON)
        elif now - begun[chain.number] > LONG_SECONDS:
            chain.ask(END_SOON)


def _submit(
    pool: ThreadPoolExecutor,
    running: dict[Future[int], Chain],
    chains: list[Chain],
    goal: int,
    workers: int,
    begun: dict[int, float],
) -> None:
    """Give idle workers the chains that are least advanced."""
    busy = {c.number for c in running.values()}
    idle = [c for c in chains if c.number not in busy and (c.warming or c.draws < goal)]
    idle.sort(key=lambda c: (c.iteration, c.draws))
    for chain in idle[: workers - len(running)]:
        chain.allow()
        begun[chain.number] = time.monotonic()
        running[pool.submit(chain.chunk, goal)] = chain


def _more_needed(chains: list[Chain], limits: Limits, goal: int, effective: Callable) -> bool:
    if limits.until_ess is None:
        return False
    parts, columns = [c.collected() for c in chains], chains[0].sampler.columns
    weights = np.stack([p[1][:, columns.index("weight")] for p in parts]) if "weight" in columns else None
    return effective(np.stack([p[0] for p in parts]), weights) < limits.until_ess


def _note(chains: list[Chain]) -> str:
    warming = sum(c.warming for c in chains)
    if warming:
        return f"warm-up of {warming} chains"
    return f"{sum(c.draws for c in chains):,} draws"


def _check(chain: Chain) -> None:
    counters = chain.target.counters
    if counters[STATUS] == BOUND_EXCEEDED:
        raise CertificateError(
            f"chain {chain.number}: the residual of row {int(counters[ROW])} exceeds its certified bound, so the run is "
            "invalid. Please report this with the family, the row and the versions; meanwhile, use a full-data sampler such "
            "as 'nuts'."
        )
    if counters[STATUS] == DIVERGED:
        raise ModelError(
            f"chain {chain.number}: the chain diverged, more than 1e8 posterior standard deviations from the mode. Give a "
            "smaller step= or tolerance=, a larger subsample=, or use an exact sampler such as 'nuts'."
        )
    if chain.failed:
        raise ModelError(f"chain {chain.number}: the log posterior is not finite at its starting point; pass another init=.")
