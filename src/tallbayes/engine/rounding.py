"""How far rounding may take a residual beyond its bound."""

from __future__ import annotations

from typing import Any

from tallbayes.compile import generic
from tallbayes.engine.rows import ALLOWANCE, Rows


@generic
def rounding(rows: Any) -> float:
    """How far rounding may take a residual difference beyond its bound: that of numbers of order one."""
    return ALLOWANCE


@rounding.register(Rows)
def _rounding(rows: Rows) -> float:
    return rows.rounding
