"""Verbs that fail: compiled code goes on with NaN to its next look, and who called it raises the reason.

Whether a verb has failed is written to `Rows.answers`. Functions of a user fail for one chain or one pass, so rows of a likelihood outside
get answers of their own there. A verb of this package fails only if it cannot be compiled, which concerns all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import generic
from tallbayes.engine.callbacks import raise_kept
from tallbayes.engine.rows import Rows
from tallbayes.engine.verb_calls import FAILED


@generic
def verb_failed(rows: Any) -> bool:
    """Whether a verb has failed, so that numbers from these rows are void."""
    return False


@verb_failed.register(Rows)
def _verb_failed(rows: Rows) -> bool:
    return rows.answers[FAILED] != 0.0


def with_own_answers(rows: Any) -> Any:
    """The rows for a chain or a pass; those of a likelihood outside get a place to say that a verb has failed."""
    if isinstance(rows, Rows) and rows.outside:
        return rows._replace(answers=np.zeros_like(rows.answers))
    return rows


def raise_failure(rows: Any) -> None:
    """Raise what a verb of these rows has failed with, if one has."""
    if isinstance(rows, Rows):
        status, rows.answers[FAILED] = rows.answers[FAILED], 0.0
        raise_kept(status)
