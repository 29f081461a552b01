"""The fit of a sharded run: one chain of combined draws, and the fits of the shards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.contract import Guarantee
from tallbayes.errors import OptionError, warn
from tallbayes.results.convergence import doubts
from tallbayes.results.cost import effective_sizes, r_hats
from tallbayes.results.fit import Fit
from tallbayes.results.provenance import origin
from tallbayes.shards.checks import diagnose
from tallbayes.shards.combine import Combination, SubPosteriors

if TYPE_CHECKING:
    from tallbayes.shards.sample import ShardRun


@dataclass(eq=False)
class ShardFit(Fit):
    """A `Fit` of combined draws, with the fits of all shards in `shards`; a saved one keeps their summaries in meta only."""

    shards: list[Fit] = field(default_factory=list)

    @property
    def diagnostics(self) -> dict[str, Any]:
        """Overlap, effective sizes and distances of the combination."""
        return self.meta["notes"]

    def audit(self, model: Any = None, pairs: int = 20, repeats: int = 1000, seed: int = 0, *, sampler: Any = None) -> Any:
        """Refused: no decision was made on the full data that could be replayed."""
        raise OptionError(
            "a combination of shards made no decisions on the full data that could be replayed; audit a single shard with its "
            "own model, compare with tallbayes.sample on all rows, or use combine='importance', whose weights are such a check."
        )


def spread(total: float, count: int) -> np.ndarray:
    """Whole numbers with a given sum, as equal as they can be: what each combined draw cost.

    >>> spread(7, 3)
    array([3., 2., 2.])
    """
    whole = int(total)
    return np.full(count, whole // count, float) + (np.arange(count) < whole % count)


def effective_size(fit: Fit) -> float:
    """Smallest effective size of a coordinate, at most the number of draws."""
    sizes = np.nan_to_num(effective_sizes(fit.theta))
    return float(min(sizes.min(), fit.theta.shape[0] * fit.theta.shape[1]))


def collect(run: ShardRun, combined: Combination, sub: SubPosteriors | None, fits: list[Fit], total: float) -> ShardFit:
    """The fit of a run: combined draws with their diagnostics, what all shards cost, and the Laplace fit to all rows."""
    model, count = run.split.model, len(run.split.rows)
    mode = run.split.mode(run.progress)
    notes, sentences = diagnose(sub, combined, run.combiner, (mode.reference, mode.covariance))
    sentences = run.split.doubts + _of_shards(fits) + sentences
    size = combined.theta.shape[0]
    stats = {k: spread(run.evals, size)[None] for k in ("evals", "evals_paper")}
    if combined.weights is not None:
        stats["weight"] = combined.weights[None]
    inner = sorted({f.meta["sampler_name"] for f in fits})
    meta = {
        "model": model.describe(),
        "sampler": fits[0].meta["sampler"],
        "sampler_name": f"{run.combiner.name} of {count} shards by {', '.join(inner)}",
        "seed": run.entropy,
        "thin": 1,
        **origin(model),
        "warmup": run.settings["warmup"],
        "notes": notes,
        "shards": [_summary(f) for f in fits],
    }
    unfinished = [f.status for f in fits if f.status != "complete"]
    result = ShardFit(
        theta=combined.theta[None],
        stats=stats,
        names=model.names,
        guarantee=Guarantee(
            "HEURISTIC",
            run.combiner.statement,
            assumed=("shards are random parts of the rows", "sub-posteriors are near normal, or as the combination needs them"),
            checked=("overlap of sub-posteriors", "distance of the combination from the Laplace fit to all rows"),
        ),
        why=f"{run.combiner.name} of {count} shards, each sampled by {', '.join(inner)}; one machine that can hold the rows samples them "
        "exactly with 'auto'",
        status=unfinished[0] if unfinished else "complete",
        setup={
            "passes": mode.passes,
            "evals": int(run.setup_evals) + mode.evaluations,
            "seconds": sum(f.setup["seconds"] for f in fits),
        },
        warmup={k: sum(f.warmup[k] for f in fits) for k in ("iterations", "evals", "seconds")},
        seconds={"draws": sum(f.seconds["draws"] for f in fits), "total": total},
        laplace_mean=mode.reference,
        laplace_factor=mode.factor,
        meta=meta,
        shards=fits,
    )
    sentences += doubts(result)
    for sentence in sentences:
        warn(sentence)
    meta["warnings"] = [*model.doubts, *sentences]
    return result


def _summary(fit: Fit) -> dict[str, Any]:
    ess, r_hat = effective_size(fit), r_hats(fit.theta)
    return {
        **fit.meta["shard"],
        "ess": ess,
        "r_hat": float(np.nanmax(r_hat)) if np.isfinite(r_hat).any() else None,
        "sampler": fit.meta["sampler_name"],
        "guarantee": fit.guarantee.kind,
        "seconds": fit.seconds["total"],
        "status": fit.status,
        "warnings": fit.meta["warnings"],
    }


def _of_shards(fits: list[Fit]) -> list[str]:
    """What the shards themselves give rise to say."""
    sentences = []
    for number, fit in enumerate(fits):
        sentences += [f"shard {number}: {w}" for w in fit.meta["warnings"]]
    rest = [f"and {len(sentences) - 10} more warnings about shards, in fit.meta['shards']."] if len(sentences) > 10 else []
    return sentences[:10] + rest
