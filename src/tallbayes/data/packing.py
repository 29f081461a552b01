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
from tallbayes.data.plan import extra_columns, plan_names, source_columns, trials_place
from tallbayes.data.precision import require_kept
from tallbayes.data.response_functions import packed_response, second_column, weight_columns
from tallbayes.data.second_predictor import second_matrix
from tallbayes.errors import DataError


def packed_chunks(
    rows: arrow.Source, plan: dict[str, Any], kind: np.dtype, packer: Packer, groups: GroupRows | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Packed chunks, checked and counted, and the codes of their levels, (rows, factors)."""
    names, matrices = plan_names(plan), DesignMatrices(plan) if "design" in plan else None
    width, place = 0 if groups is None else groups.width, trials_place(plan)
    numbers = [c for c in (plan["response"], second_column(plan), plan["offset"], plan["weights"]) if c is not None]
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
            value = {c: arrow.numbers(batch, c, first) for c in numbers}
            own = packed_response(plan, value, first)
            x = plain_matrix(plan, batch, first, "F") if matrices is None else matrices.matrix(batch, first)
            x = x if second is None else np.column_stack([x, second(batch, first)])
            offset = value[plan["offset"]] if plan["offset"] else None
            if offset is not None and plan["log_offset"]:
                if (offset <= 0).any():
                    row = int(np.argmax(offset <= 0))
                    raise DataError(
                        f"row {first + row}: log({plan['offset']}) of {offset[row]:g}; an exposure must be positive."
                    )
                offset = np.log(offset)
            chunk = np.empty((m, packed.width_of(len(names) + extra_columns(plan), kind)), kind)
            packer.pack(chunk, x, own.y, offset, own.weights)
            if own.trials is not None:
                chunk[:, place] = own.trials
            codes = np.empty((m, 0), np.int32)
            if groups is not None:
                chunk[:, len(names) + 3 : len(names) + 3 + width] = groups.effects(batch, first)
                codes = groups.codes(batch, first)
            yield chunk, codes
    require_kept(packer.moments, kind)
    if rows.n is not None and packer.moments.n not in (0, rows.n):
        raise DataError(f"the source had {rows.n:,} rows and now has {packer.moments.n:,}; it changed while it was read.")


def repack(rows: arrow.Source, plan: dict[str, Any], out: np.ndarray) -> None:
    """Fill `out` with rows that were read and checked before, without checking them again: their fingerprint tells if they changed."""
    kind, at = out.dtype, 0
    plain = not plan["log_offset"] and not any(key in plan for key in ("design", "second", "response_function"))
    names = len(plan_names(plan))
    if not plain:
        for chunk, _ in packed_chunks(rows, plan, kind, packer_of(plan, check=False)):
            at = _place(out, at, chunk.shape[0])
            out[at - chunk.shape[0] : at] = chunk
    else:
        first = int(plan["intercept"])
        places = {name: [first + j] for j, name in enumerate(plan["columns"])}
        for j, role in enumerate(("response", "offset", "weights")):
            if plan[role] is not None:
                places.setdefault(plan[role], []).append(names + j)
        out[:, :first] = 1.0
        out[:, names + 2] = 1.0
        for batch in rows.batches(source_columns(plan)):
            start, at = at, _place(out, at, batch.num_rows)
            for name, columns in places.items():
                values = arrow.native_numbers(batch, name, start)
                for j in columns:
                    out[start:at, j] = values
    if at != out.shape[0]:
        raise DataError(f"the source had {out.shape[0]:,} rows and now has {at:,}; it changed since it was opened.")


def _place(out: np.ndarray, at: int, rows: int) -> int:
    """Where the next rows end."""
    if at + rows > out.shape[0]:
        raise DataError(f"the source had {out.shape[0]:,} rows and now has more; it changed since it was opened.")
    return at + rows


def packer_of(plan: dict[str, Any], check: bool = True) -> Packer:
    """The packer of the rows of a plan."""
    weights = next(iter(weight_columns(plan)), "weights")
    return Packer(plan_names(plan), plan["response"], plan["offset"] or "offset", weights, check)
