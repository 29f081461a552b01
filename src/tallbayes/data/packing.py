"""Packed chunks of the rows of a source, by a plan: one batch in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tallbayes.data import arrow
from tallbayes.data import records as packed
from tallbayes.data.dataset import Packer
from tallbayes.data.design import CELLS, DesignMatrices, plain_matrix
from tallbayes.data.group_rows import GroupRows
from tallbayes.data.plan import plan_names, source_columns
from tallbayes.data.precision import require_kept
from tallbayes.data.second_predictor import second_matrix
from tallbayes.errors import DataError


def packed_chunks(
    rows: arrow.Source, plan: dict[str, Any], kind: np.dtype, packer: Packer, groups: GroupRows | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Packed chunks, checked and counted, and the codes of their levels, (rows, factors)."""
    names, matrices = plan_names(plan), DesignMatrices(plan) if "design" in plan else None
    width = 0 if groups is None else groups.width
    missing = [c for c in source_columns(plan) if c not in rows.names]
    if missing:
        raise DataError(f"the source has no column {missing[0]!r} any more; its columns are {', '.join(rows.names)}.")
    second = second_matrix(plan)
    step = arrow.BATCH if matrices is None else matrices.rows_at_a_time
    step = step if second is None else min(step, max(64, CELLS // len(names)))
    for whole in rows.batches(source_columns(plan)):
        for start in range(0, whole.num_rows, step):
            batch = whole.slice(start, step)
            m, first = batch.num_rows, packer.moments.n
            if rows.n is not None and first + m > rows.n:
                raise DataError(f"the source had {rows.n:,} rows and now has more; it changed while it was read.")
            value = {
                c: arrow.numbers(batch, c, first) for c in (plan["response"], plan["offset"], plan["weights"]) if c is not None
            }
            x = plain_matrix(plan, batch, first) if matrices is None else matrices.matrix(batch, first)
            x = x if second is None else np.column_stack([x, second(batch, first)])
            offset = value[plan["offset"]] if plan["offset"] else None
            if offset is not None and plan["log_offset"]:
                if (offset <= 0).any():
                    row = int(np.argmax(offset <= 0))
                    raise DataError(
                        f"row {first + row}: log({plan['offset']}) of {offset[row]:g}; an exposure must be positive."
                    )
                offset = np.log(offset)
            chunk = np.empty((m, packed.width_of(len(names) + width, kind)), kind)
            packer.pack(chunk, x, value[plan["response"]], offset, value[plan["weights"]] if plan["weights"] else None)
            codes = np.empty((m, 0), np.int32)
            if groups is not None:
                chunk[:, len(names) + 3 : len(names) + 3 + width] = groups.effects(batch, first)
                codes = groups.codes(batch, first)
            yield chunk, codes
    require_kept(packer.moments, kind)
    if rows.n is not None and packer.moments.n not in (0, rows.n):
        raise DataError(f"the source had {rows.n:,} rows and now has {packer.moments.n:,}; it changed while it was read.")


def packer_of(plan: dict[str, Any]) -> Packer:
    """The packer of the rows of a plan."""
    return Packer(plan_names(plan), plan["response"], plan["offset"] or "offset", plan["weights"] or "weights")
