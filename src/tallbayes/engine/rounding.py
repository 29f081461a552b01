"""How far rounding may take a residual beyond its bound."""

from __future__ import annotations

from typing import Any

from tallbayes.compile import generic

ALLOWANCE = 32 * 2.220446049250313e-16  # rounding of a residual difference of order one


@generic
def rounding(rows: Any) -> float:
    """How far rounding may take a residual difference beyond its bound: that of numbers of order one."""
    return ALLOWANCE
