"""Rows of a chain that were drawn where they live and sent: a few records here, n rows elsewhere.

Subsampling verbs read the records. A verb of all rows cannot: it looks the sum up among the known ones, or notes the question and returns
NaN, and whoever runs the chain stops it, makes a pass where the rows are, and runs the chunk again (`remote.supply`). Both are in
`Rows.answers`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import generic
from tallbayes.engine.rows import ELSEWHERE, HERE, NUMBERED, OPEN, QUESTIONS, Rows, answers_of


@generic
def row_number(rows: Any) -> int:
    """n."""
    return rows.records.shape[0]


@row_number.register(Rows)
def _row_number(rows: Rows) -> int:
    return rows.records.shape[0] if rows.place == HERE else rows.n


@generic
def most_candidates(rows: Any) -> int:
    """Expected candidate rows of a decision at which all rows are read instead."""
    return rows.records.shape[0]


@most_candidates.register(Rows)
def _most_candidates(rows: Rows) -> int:
    return rows.records.shape[0] if rows.place == HERE else rows.most


@generic
def awaiting(rows: Any) -> bool:
    """Whether a verb of all rows had no answer."""
    return False


@awaiting.register(Rows)
def _awaiting(rows: Rows) -> bool:
    return rows.answers[OPEN] > 0.0


def elsewhere(rows: Rows, n: int, most: int, dim: int, numbered: bool) -> Rows:
    """The rows as records of n; `numbered` if they are known by their numbers in a stream, for samplers that keep rows."""
    place = NUMBERED if numbered else ELSEWHERE
    return rows._replace(n=n, most=most, place=place, numbers=np.zeros(1, np.int64), answers=answers_of(dim))


def open_questions(rows: Rows, dim: int) -> np.ndarray:
    """The thetas that sums over all rows are asked for at."""
    return rows.answers[2 : 2 + int(rows.answers[OPEN]) * dim].reshape(-1, dim).copy()


def answered(rows: Rows, thetas: np.ndarray, sums: np.ndarray, most: int) -> Rows:
    """The rows with more known sums, nothing asked; the oldest are forgotten beyond `most`."""
    dim = thetas.shape[1]
    known = rows.answers[2 + QUESTIONS * dim :].reshape(-1, dim + 1)
    return rows._replace(answers=answers_of(dim, np.vstack([known[-most:], np.column_stack([thetas, sums])])))
