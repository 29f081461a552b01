"""Samplers: which rows are read. One file an algorithm; each has a string name and carries its guarantee."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tallbayes import moves
from tallbayes.contract import KINDS, Guarantee, Sampler, Setup, advance
from tallbayes.errors import OptionError, unknown
from tallbayes.samplers.austerity import Austerity
from tallbayes.samplers.block_pseudo_marginal import BlockPseudoMarginal
from tallbayes.samplers.confidence import Confidence
from tallbayes.samplers.delayed_acceptance import DelayedAcceptance
from tallbayes.samplers.exact_minibatch import ExactMinibatch
from tallbayes.samplers.firefly import Firefly
from tallbayes.samplers.full_data import FullData
from tallbayes.samplers.hmc_ecs import HMCECS
from tallbayes.samplers.informed import Informed
from tallbayes.samplers.mh_sublhd import MHSubLhd
from tallbayes.samplers.minibatch_barker import MinibatchBarker
from tallbayes.samplers.naive_subsampling import NaiveSubsampling
from tallbayes.samplers.noise_exchange import NoiseExchange
from tallbayes.samplers.penalty import PenaltyMH
from tallbayes.samplers.pseudo_marginal_firefly import PseudoMarginalFirefly
from tallbayes.samplers.rhee_glynn import RheeGlynn
from tallbayes.samplers.sghmc import SGHMC
from tallbayes.samplers.sgld import SGLD
from tallbayes.samplers.sgnht import SGNHT
from tallbayes.samplers.zigzag import ZigZag

SAMPLERS: dict[str, Callable[[], Sampler]] = {
    "mh": lambda: FullData(moves.random_walk()),
    "mala": lambda: FullData(moves.mala()),
    "hmc": lambda: FullData(moves.hmc()),
    "nuts": lambda: FullData(moves.nuts()),
    "slice": lambda: FullData(moves.slice()),
    "exact-minibatch": ExactMinibatch,
    "firefly": Firefly,
    "zigzag": ZigZag,
    "delayed-acceptance": DelayedAcceptance,
    "pseudo-marginal-firefly": PseudoMarginalFirefly,
    "rhee-glynn": RheeGlynn,
    "hmc-ecs-signed": lambda: HMCECS(estimator="signed"),
    "confidence": Confidence,
    "mhsublhd": MHSubLhd,
    "hmc-ecs": HMCECS,
    "block-pseudo-marginal": BlockPseudoMarginal,
    "sgld": SGLD,
    "sghmc": SGHMC,
    "sgnht": SGNHT,
    "austerity": Austerity,
    "minibatch-barker": MinibatchBarker,
    "penalty-mh": PenaltyMH,
    "noise-exchange": NoiseExchange,
    "informed": Informed,
    "lwa": lambda: Informed(scaled=False),
    "naive-subsampling": NaiveSubsampling,
}
"""By name, from the strongest guarantee to the weakest."""

CLASSES: dict[str, type[Any]] = {type(make()).__name__: type(make()) for make in SAMPLERS.values()}


def resolve(sampler: str | Sampler) -> Sampler:
    """A sampler by name, or the object itself.

    >>> resolve("hmc")
    FullData(move=HamiltonianMove(time=1.2, acceptance=0.8, mass='dense'))
    """
    if isinstance(sampler, Sampler):
        return sampler
    if isinstance(sampler, str):
        if sampler not in SAMPLERS:
            raise unknown("sampler", sampler, [*SAMPLERS, "auto"])
        return SAMPLERS[sampler]()
    raise OptionError(f"sampler must be a name or an object of tallbayes.samplers; got {sampler!r}.")


def from_dict(options: dict[str, Any]) -> Sampler:
    """The inverse of `Sampler.as_dict`."""
    options = dict(options)
    kind = options.pop("class")
    if kind not in CLASSES:
        raise unknown("sampler class", kind, CLASSES)
    return CLASSES[kind].from_options(options)


__all__ = [
    "CLASSES",
    "HMCECS",
    "KINDS",
    "SAMPLERS",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "Austerity",
    "BlockPseudoMarginal",
    "Confidence",
    "DelayedAcceptance",
    "ExactMinibatch",
    "Firefly",
    "FullData",
    "Guarantee",
    "Informed",
    "MHSubLhd",
    "MinibatchBarker",
    "NaiveSubsampling",
    "NoiseExchange",
    "PenaltyMH",
    "PseudoMarginalFirefly",
    "RheeGlynn",
    "Sampler",
    "Setup",
    "ZigZag",
    "advance",
    "from_dict",
    "resolve",
]
