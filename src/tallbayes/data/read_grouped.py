"""Rows with group terms, from a source into memory or a store, sorted by the factor with most levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.data import arrow
from tallbayes.data import records as packed
from tallbayes.data.bucket_sort import BucketSort
from tallbayes.data.dataset import Dataset
from tallbayes.data.group_files import GroupFiles
from tallbayes.data.group_rows import GroupRows
from tallbayes.data.groups import places, rows_of_levels
from tallbayes.data.packed_store import StoreWriter
from tallbayes.data.packing import packed_chunks, packer_of
from tallbayes.data.plan import extra_columns, plan_names, row_flags, trials_place
from tallbayes.errors import StoreError
from tallbayes.progress import Progress


def read_grouped_to_memory(
    rows: arrow.Source, groups: GroupRows, kind: np.dtype, recipe: dict[str, Any], progress: bool
) -> Dataset:
    """Pack rows into memory, each at its place in the order of the largest factor."""
    plan, n = groups.plan, rows.n
    assert n is not None
    packer, names = packer_of(plan), plan_names(plan)
    out = packed.empty(n, len(names) + extra_columns(plan), kind)
    codes, order = np.empty((len(groups.indexes), n), np.int32), np.empty(n, np.int64)
    counts = groups.indexes[groups.largest].counts
    following = np.cumsum(counts) - counts
    with Progress("reading", n, progress) as bar:
        for chunk, own in packed_chunks(rows, plan, kind, packer, groups):
            at = places(own[:, groups.largest], following)
            out[at], codes[:, at] = chunk, own.T
            order[at] = np.arange(packer.moments.n - chunk.shape[0], packer.moments.n)
            bar.advance(chunk.shape[0])
    made = [rows_of_levels(own, index.levels) for own, index in zip(codes, groups.indexes, strict=True)]
    factors = groups.factors(len(names) + 3, list(codes), [offsets for offsets, _ in made], [members for _, members in made])
    described = (out, names, plan["response"], packer.moments, *row_flags(plan), None, recipe)
    return Dataset(*described, groups=factors, order=order, trials_place=trials_place(plan))


def read_grouped_to_store(
    rows: arrow.Source, groups: GroupRows, kind: np.dtype, recipe: dict[str, Any], path: Path, progress: bool
) -> Dataset:
    """Pack rows into a store, sorted by a streaming bucket sort, with the files of the factors beside them."""
    plan, n = groups.plan, rows.n
    assert n is not None
    packer, names = packer_of(plan), plan_names(plan)
    writer = StoreWriter(path, names, plan["response"], kind, extra_columns(plan), trials_place(plan))
    closing: list[Any] = []
    try:
        counts = groups.indexes[groups.largest].counts
        buckets = BucketSort(writer.folder, writer.width, kind, counts, len(groups.indexes), groups.largest)
        files = GroupFiles(writer.folder, len(groups.indexes))
        closing = [buckets, files]
        with Progress("packing", n, progress) as bar:
            for chunk, codes in packed_chunks(rows, plan, kind, packer, groups):
                buckets.add(chunk, codes)
                bar.advance(chunk.shape[0])
        with Progress("sorting", n, progress) as bar:
            for part in buckets.chunks():
                writer.write(part["record"])
                files.write(part["codes"], part["row"])
                bar.advance(part.size)
        files.finish([index.labels for index in groups.indexes], [index.counts for index in groups.indexes], n)
        return writer.finish(packer.moments, *row_flags(plan), recipe, groups.described(len(names) + 3))
    except BaseException as error:
        for part in closing:
            part.close()
        writer.abort()
        if isinstance(error, OSError) and not isinstance(error, StoreError):
            raise StoreError(
                f"writing the packed rows to {path.parent} failed: {error}. Free space there or choose another folder with store=; "
                "dtype='float32' halves the size."
            ) from error
        raise
