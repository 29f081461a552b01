"""Files as partitions of one data set: one plan for all of them, each read by itself with the columns of the whole."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.data import records as packed
from tallbayes.data.arrow import Source
from tallbayes.data.calendar_columns import cut_calendar, with_calendar
from tallbayes.data.dataset import Dataset, _float_type
from tallbayes.data.missing import complete_rows
from tallbayes.data.moments import Moments
from tallbayes.data.packing import repack
from tallbayes.data.plan import make_plan, plan_names, row_flags, source_columns
from tallbayes.data.read import _read_to_memory, learn
from tallbayes.data.response_functions import keeps_trials
from tallbayes.data.sources import open_source
from tallbayes.data.sources.folder import join_sources
from tallbayes.data.sources.remote_files import addresses_of, is_address
from tallbayes.errors import DataError
from tallbayes.validation import shown


def files_of(paths: Any) -> list[str]:
    """The files that a folder, a pattern or a list of paths stands for, in order; absolute, as other machines see them.

    >>> files_of([])
    Traceback (most recent call last):
    ...
    tallbayes.errors.DataError: there is no file in []; give a folder, a pattern such as rows/*.parquet, or a list of paths.
    """
    if not isinstance(paths, str | Path | Iterable):
        raise DataError(
            f"files are given as a folder, a pattern such as rows/*.parquet, or a list of paths; got {shown(paths)}."
        )
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    files: list[str] = []
    for path in given:
        text = str(path)
        if is_address(text):
            files += addresses_of(text)
        elif Path(text).is_dir():
            files += [str(p) for p in sorted(Path(text).iterdir()) if p.is_file() and not p.name.startswith((".", "_"))]
        elif glob.has_magic(text) and not Path(text).exists():
            files += sorted(glob.glob(text, recursive=True))
        else:
            files.append(text)
    if not files:
        raise DataError(f"there is no file in {paths}; give a folder, a pattern such as rows/*.parquet, or a list of paths.")
    return [p if is_address(p) else str(Path(p).absolute()) for p in files]


def join_files(files: Sequence[str]) -> Source:
    """Several files as one source, in order."""
    sources = [open_source(f) for f in files]
    return join_sources(files, sources, {"files": [source.identity for source in sources]})


def plan_of(
    files: Sequence[str],
    formula: str | None,
    response: str | None = None,
    columns: Sequence[str] | None = None,
    offset: str | None = None,
    weights: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plan by which every file is read, and what identifies the files; levels and knots come from one pass over all."""
    return plan_of_source(join_files(files), formula, response, columns, offset, weights)


def plan_of_source(
    rows: Source,
    formula: str | None,
    response: str | None = None,
    columns: Sequence[str] | None = None,
    offset: str | None = None,
    weights: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same for rows that are joined already."""
    formula, calendar = (formula, {}) if formula is None else cut_calendar(formula, rows)
    rows = with_calendar(rows, calendar)
    plan, general = make_plan(rows, formula, response, columns, offset, weights, calendar=calendar)
    rows = complete_rows(rows, source_columns(plan), "error")
    if "groups" in plan:
        raise DataError(
            "group terms such as (1 | g) cannot be divided among partitions; read all files together with tallbayes.read."
        )
    if keeps_trials(plan):
        raise DataError(
            "weights= together with p(successes, trials) is not available for rows in partitions; read all files together with "
            "memory='disk'."
        )
    if general is not None:
        plan, _, _ = learn(rows, plan, general, False)
    return plan, rows.identity


def packed_source(rows: Source, plan: dict[str, Any], dtype: str) -> Dataset:
    """Rows packed in memory by a plan."""
    rows = complete_rows(with_calendar(rows, plan.get("calendar")), source_columns(plan), "error")
    return _read_to_memory(rows, plan, _float_type(dtype), {"plan": plan}, False)


def packed_again(rows: Source, plan: dict[str, Any], dtype: str, moments: Moments) -> Dataset:
    """The same rows once more: neither checked nor counted, so compare their fingerprint with that of the first time."""
    names = plan_names(plan)
    out = packed.empty(moments.n, len(names), _float_type(dtype))
    with np.errstate(over="ignore", invalid="ignore"):
        repack(with_calendar(rows, plan.get("calendar")), plan, out)
    return Dataset(out, names, plan["response"], moments, *row_flags(plan), None, {"plan": plan})
