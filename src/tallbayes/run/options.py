"""Options of `sample`: refused where they cannot be meant, before any row is read."""

from __future__ import annotations

from typing import Any

from tallbayes import samplers
from tallbayes.contract import KINDS, Sampler
from tallbayes.errors import OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.results.levels import check_keep
from tallbayes.run.starting_points import read_init
from tallbayes.validation import (
    require_cores,
    require_instance,
    require_path,
    require_positive,
    require_seed,
    require_switch,
    require_whole,
)

MOST_ITERATIONS = 10**9
MOST_CHAINS = 10_000
MOST_THIN = 10**6


def check_options(
    sampler: Any,
    progress: Any,
    draws: Any = 1,
    warmup: Any = 0,
    chains: Any = 1,
    seed: Any = None,
    init: Any = "laplace",
    thin: Any = 1,
    cores: Any = None,
    max_seconds: Any = None,
    until_ess: Any = None,
    guarantee: Any = None,
    checkpoint: Any = None,
    mode: Any = None,
    keep: Any = None,
) -> None:
    """Refuse options of `sample` that cannot be meant, before any work; whether `init` suits the model is seen later."""
    require_length(draws, warmup, chains, thin)
    require_seed(seed)
    require_cores(cores)
    require_switch("progress", progress)
    for name, limit in (("max_seconds", max_seconds), ("until_ess", until_ess)):
        if limit is not None:
            require_positive(name, limit)
    read_init(init)
    check_keep(keep)
    if checkpoint is not None:
        require_path("checkpoint", checkpoint)
    if mode is not None:
        require_instance("mode", mode, Mode, "what tallbayes.find_mode(model) returns, or None")
    named = isinstance(sampler, str) and sampler == "auto"
    _check_guarantee(None if named else samplers.resolve(sampler), guarantee)


def require_length(draws: Any, warmup: Any, chains: Any, thin: Any = 1, least: int = 1) -> None:
    """Refuse a length of a run that is none, or that no machine has the memory for."""
    require_whole("draws", draws, least, MOST_ITERATIONS)
    require_whole("warmup", warmup, 0, MOST_ITERATIONS)
    require_whole("chains", chains, 1, MOST_CHAINS)
    require_whole("thin", thin, 1, MOST_THIN)


def _check_guarantee(sampler: Sampler | None, wanted: str | None) -> None:
    if wanted is None:
        return
    kind = wanted.upper() if isinstance(wanted, str) else ""
    if kind not in KINDS:
        raise unknown("guarantee", wanted, [k.lower() for k in KINDS])
    if sampler is not None and KINDS.index(sampler.guarantee.kind) > KINDS.index(kind):
        raise OptionError(
            f"{sampler.name} is {sampler.guarantee.kind}, weaker than guarantee={wanted!r}. Use 'auto' or an exact sampler."
        )
