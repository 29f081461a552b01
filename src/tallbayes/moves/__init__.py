"""Moves: how theta moves on any log-density."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tallbayes.errors import unknown
from tallbayes.moves.hmc import hmc
from tallbayes.moves.mala import mala
from tallbayes.moves.move import Move, MoveInfo
from tallbayes.moves.nuts import nuts
from tallbayes.moves.proposals import AutoregressiveMove, HeavyTailedMove, ProposalMove, as_proposal, independence, pcn
from tallbayes.moves.random_walk import random_walk
from tallbayes.moves.slice import slice
from tallbayes.moves.surrogate import SurrogateMove, surrogate

MOVES: dict[str, Callable[..., Move]] = {
    "hmc": hmc,
    "mala": mala,
    "nuts": nuts,
    "random_walk": random_walk,
    "slice": slice,
}

PROPOSALS: dict[str, type[ProposalMove]] = {
    "independence": ProposalMove,
    "independence-t": HeavyTailedMove,
    "pcn": AutoregressiveMove,
}


def from_dict(values: dict[str, Any]) -> Move:
    """The inverse of `Move.as_dict`.

    >>> from_dict(hmc(time=2.0).as_dict())
    HamiltonianMove(time=2.0, acceptance=0.8, mass='dense')
    """
    options = dict(values)
    name = options.pop("name")
    if name == SurrogateMove.name:
        return SurrogateMove(**{**options, "inner": from_dict(options["inner"])})
    if name in PROPOSALS:
        return PROPOSALS[name](**options)
    if name not in MOVES:
        raise unknown("move", name, MOVES)
    return MOVES[name](**options)


__all__ = [
    "MOVES",
    "PROPOSALS",
    "Move",
    "MoveInfo",
    "as_proposal",
    "from_dict",
    "hmc",
    "independence",
    "mala",
    "nuts",
    "pcn",
    "random_walk",
    "slice",
    "surrogate",
]
