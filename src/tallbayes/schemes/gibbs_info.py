"""What a sweep of minibatch Gibbs reports, for one factor and for several."""

from __future__ import annotations

from typing import NamedTuple

from tallbayes.contract import positions


class Info(NamedTuple):
    """What a step reports, by position."""

    acceptance_rate: int
    accepted: int
    component: int
    level_acceptance: int
    coefficient_rows: int
    level_rows: int
    full_levels: int
    map_rows: int
    joint_tried: int
    joint_accepted: int
    scale_tried: int
    scale_accepted: int
    shift_tried: int
    shift_accepted: int


AT = positions(Info)
