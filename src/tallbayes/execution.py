"""A run from its description to its fit: prepare, choose again where warm-up says so, draw, judge, collect."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from tallbayes import auto, streams
from tallbayes.compile_ahead import finish
from tallbayes.contract import Diagnosis, Guarantee, Outcome, Sampler, Setup
from tallbayes.deadline import Deadline, limited
from tallbayes.engine import ledger
from tallbayes.errors import StoppedError, warn
from tallbayes.mode import several
from tallbayes.mode.laplace import Mode
from tallbayes.mode.saved_modes import mode_as_dict
from tallbayes.model import Model
from tallbayes.progress import Waiting
from tallbayes.remote.supply import open_streams
from tallbayes.results import convergence
from tallbayes.results.cost import effective_sizes
from tallbayes.results.fit import Fit
from tallbayes.results.levels import LevelPlan, level_draws, level_plan
from tallbayes.results.provenance import origin
from tallbayes.run.chain import Chain
from tallbayes.run.checkpoint import Checkpoint
from tallbayes.run.driver import Limits, drive

CHAINS_SHARE = 0.5  # of the time limit that chains have, however long it took to prepare them


def execute(
    model: Model,
    sampler: Sampler,
    mode: Mode,
    setup: Setup | None,
    description: dict[str, Any],
    saver: Checkpoint | None,
    new: bool,
    cores: int | None,
    limit: Deadline | None,
    progress: bool,
    begun: float,
) -> Fit:
    """Prepare the sampler, run its chains within the limits, and collect what they drew; `new` starts the checkpoint."""
    with limited(limit), ledger.counting() as account:
        setup = sampler.setup(model, mode, description["seed"], progress) if setup is None else setup
    spent = mode.evaluations + (description["auto_evals"] or account.rows)  # `auto` prepared its choice within its own
    if model.partitions is not None:
        setup = open_streams(setup, description)
    plan = level_plan(model, description["keep"])
    chains = _chains(sampler, setup, description, plan)
    if saver is not None and new:
        saver.create({**description, "mode": mode_as_dict(mode)})
    elif saver is not None:
        for chain in chains:
            saver.restore(chain)
    with Waiting("compiling the sampler (once; the result is cached)", progress):
        chains[0].compile()
    finish()
    prepared = time.perf_counter() - begun
    clock = None if limit is None else Deadline(max(limit.left, CHAINS_SHARE * limit.seconds))
    failures: list[str] = []

    def smallest_ess(theta: np.ndarray, weights: np.ndarray | None) -> float:
        try:
            return float(np.nan_to_num(effective_sizes(theta[:, :, : model.dim], weights)).min())
        except Exception as error:
            failures.append(_failure("the effective sample size could not be computed, so until_ess= was not reached", error))
            return np.inf

    def until(draws: int, until_ess: float | None) -> Limits:
        return Limits(draws, None if clock is None else clock.left, until_ess)

    status = "complete"
    if description["predictions"]:  # warm-up judges what `auto` chose
        chosen_for = description["auto_evals"]
        sampler, setup, chains, status = auto.warm_up(
            mode,
            setup,
            chains,
            description,
            saver,
            lambda sampler, setup: _chains(sampler, setup, description, plan),
            lambda chains: drive(chains, until(0, None), cores, progress, saver, smallest_ess),
        )
        spent += description["auto_evals"] - chosen_for
    if status == "complete":
        limits = until(description["draws"], description["until_ess"])
        status = drive(chains, limits, cores, progress, saver, smallest_ess)
    total = time.perf_counter() - begun
    _require_draws(chains, status, mode, saver)
    return _collect(model, sampler, setup, mode, description, chains, status, spent, prepared, total, failures)


def _with_modes(guarantee: Guarantee, mode: Mode) -> Guarantee:
    """The guarantee with what it assumes of the modes, where there is not proven to be one."""
    if mode.searches == 0:
        return guarantee
    return replace(guarantee, assumed=(*guarantee.assumed, several.assumption(mode)))


def _chains(sampler: Sampler, setup: Setup, description: dict[str, Any], plan: LevelPlan | None) -> list[Chain]:
    seeds = [streams.chain(description["seed"], c) for c in range(description["chains"])]
    starts, common = np.asarray(description["starts"], float), (description["warmup"], description["thin"], plan)
    return [Chain(c, sampler, setup, seed, starts[c], *common) for c, seed in enumerate(seeds)]


def _failure(what: str, error: Exception) -> str:
    """The sentence for a check that failed after the run: its draws are kept."""
    return f"{what} ({type(error).__name__}: {error}). The draws are complete, but were not checked."


def _require_draws(chains: list[Chain], status: str, mode: Mode, saver: Checkpoint | None) -> None:
    """Refuse to make a fit without draws, and say how to get some."""
    if min(chain.draws for chain in chains) > 0:
        return
    slowest = min(chains, key=lambda chain: chain.iteration)
    where = (
        f"during warm-up ({slowest.iteration:,} of {slowest.warmup:,} iterations)" if slowest.warming else "in the first draw"
    )
    what = {"interrupted": "interrupted", "time limit": "time limit reached"}.get(status, f"stopped ({status})")
    remedy = (
        "Nothing was saved. Allow more time or fewer warm-up iterations; with checkpoint=, tallbayes.resume would continue the run."
        if saver is None
        else f"Continue the run with tallbayes.resume({str(saver.folder)!r})."
    )
    raise StoppedError(
        f"{what} {where}; at least one chain has no draws yet. {remedy}"
        + "".join(f" Note that {sentence}" for sentence in mode.warnings),
        status,
        None if saver is None else str(saver.folder),
    )


def _collect(
    model: Model,
    sampler: Sampler,
    setup: Setup,
    mode: Mode,
    description: dict[str, Any],
    chains: list[Chain],
    status: str,
    spent: int,
    prepared: float,
    total: float,
    failures: list[str],
) -> Fit:
    parts = [chain.collected() for chain in chains]
    shortest = min(p[0].shape[0] for p in parts)
    theta = np.stack([p[0][:shortest] for p in parts])
    levels = level_draws(model, description["keep"], theta[:, :, model.dim :], [chain.running for chain in chains])
    theta = theta[:, :, : model.dim]
    table = np.stack([p[1][:shortest] for p in parts])
    stats = {name: table[:, :, k] for k, name in enumerate(sampler.columns)}
    diagnosis = Diagnosis()
    with ledger.counting() as account:
        try:
            diagnosis = sampler.diagnose(Outcome(setup, theta, stats, description["thin"]))
        except Exception as error:
            failures.append(_failure(f"the checks of {sampler.name} after the run failed", error))
    meta = {
        **{k: description[k] for k in ("model", "sampler", "user_sampler", "seed", "thin")},
        "sampler_name": sampler.name,
        **origin(model),
        "warmup": description["warmup"],
        "notes": {**setup.notes, **diagnosis.notes},
        "parameters": description["model"]["options"].get("parameters"),
    }
    result = Fit(
        theta=theta,
        stats=stats,
        names=model.names,
        guarantee=_with_modes(sampler.guarantee, mode),
        why=description["why"] or setup.why,
        status=status,
        setup={"passes": mode.passes, "evals": spent + account.rows + _sent_for(setup), "seconds": prepared},
        warmup={
            "iterations": sum(c.iteration for c in chains),
            "evals": sum(c.warmup_evaluations for c in chains),
            "seconds": sum(c.seconds["warmup"] for c in chains),
        },
        seconds={"draws": sum(c.seconds["draws"] for c in chains), "total": total},
        laplace_mean=mode.reference,
        laplace_factor=mode.factor,
        meta=meta,
        data=None if model.partitions is not None else model.data,
        levels=levels,
    )
    separate = None if sampler.crosses_modes else description["separate_modes"]
    sentences = [*([] if separate is None else [separate]), *diagnosis.warnings]
    try:
        sentences += convergence.doubts(result)
    except Exception as error:
        failures.append(_failure("convergence could not be judged", error))
    for sentence in [*failures, *sentences]:
        warn(sentence)
    meta["warnings"] = [*model.doubts, *mode.warnings, *failures, *sentences]  # model and mode have warned already
    return result


def _sent_for(setup: Setup) -> int:
    """Rows that passes for row streams looked at, in the background of the chains."""
    return int(setup.notes.get("streams", {}).get("evals", 0))
