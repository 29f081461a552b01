"""What composes: every family with every structure, and every kind of model with every question to its fit.

    python -m benchmarks.matrix families --check --write           # all 19 x 13 cells that mean something
    python -m benchmarks.matrix families --few-rows --write        # which of the others read few rows of many
    python -m benchmarks.matrix answers --write                    # 14 kinds of model x 21 questions
    python -m benchmarks.matrix answers --only smooth,horseshoe --cells partitions,update --write --again
    python -m benchmarks.matrix page --write                       # the page from the results that are kept

`--write` keeps every cell in benchmarks/matrix.json as soon as it is known, with the commit of the sources, and writes
docs/what-composes.md at the end. A run that was interrupted goes on: cells kept at this commit and these sizes are left out, unless
`--again`. Rows of a matrix run in a process of their own, one after the other. Without `--check`, the matrix of families only fits.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import matrix_answers, matrix_families, matrix_page, matrix_record

QUICK = matrix_families.Sizes(n=300, levels=8, draws=20, warmup=50, reference_draws=20, chains=2, seconds=60.0)
Cell = tuple[str, str, Callable[[], dict[str, Any]], dict[str, Any]]  # row, column, its outcome, sizes that are kept with it


def chosen(all_cells: list[tuple[str, str]], options: argparse.Namespace) -> list[tuple[str, str]]:
    """The cells of `--only` and `--cells`; a name that does not exist is refused."""
    rows = _names(options.only, {row for row, _ in all_cells}, "--only")
    columns = _names(options.cells, {column for _, column in all_cells}, "--cells")
    return [(row, column) for row, column in all_cells if row in rows and column in columns]


def _names(text: str | None, known: set[str], option: str) -> set[str]:
    names = set(known) if text is None else set(text.split(","))
    if unknown := sorted(names - known):
        raise SystemExit(f"{option}: there is no {unknown[0]!r}; choose among {', '.join(sorted(known))}")
    return names


def families(options: argparse.Namespace) -> Iterator[Cell]:
    """Cells of the first matrix."""
    sizes = QUICK if options.quick else matrix_families.Sizes(n=options.n, levels=options.levels, draws=options.draws)
    for family, structure in chosen(matrix_families.cells(), options):
        run = lambda f=family, s=structure: matrix_families.checked(f, s, sizes, options.check)  # noqa: E731
        yield family, structure, run, {"n": sizes.n, "levels": sizes.levels}


def few_rows(options: argparse.Namespace) -> Iterator[Cell]:
    """Cells of the first matrix at large n and with several numbers of levels, unless it is known that they read few rows or do not fit."""
    n = 1000 if options.quick else options.few_n
    kept = matrix_record.load(options.record)["families"]
    for family, structure in chosen(matrix_families.cells(), options):
        cell = kept.get(family, {}).get(structure, {"outcome": "fits"})
        if matrix_page.is_few(cell) or cell["outcome"] not in matrix_page.RUNS:
            continue
        levels = [40, n // 8, n // 10] if "|g" in structure or "crossed" in structure else [40]
        run = lambda f=family, s=structure, k=levels: matrix_families.few_rows(f, s, n, k)  # noqa: E731
        yield family, structure, run, {"n": n}


def answers(options: argparse.Namespace) -> Iterator[Cell]:
    """Cells of the second matrix; a kind of model is fitted once, when its first cell is asked for."""
    n = 300 if options.quick else options.n
    fits = matrix_answers.Fits(n, matrix_answers.QUICK if options.quick else matrix_answers.LONG)
    for kind, question in chosen(matrix_answers.cells(), options):
        run = lambda k=kind, q=question: matrix_answers.outcome(k, q, fits)  # noqa: E731
        yield kind, question, run, {"n": n}


def run(part: str, cells: list[Cell], options: argparse.Namespace) -> None:
    """Run cells one after the other, print each, and keep it with `--write`."""
    commit, known = matrix_record.commit(), matrix_record.load(options.record)[part]
    for row, column, outcome, sizes in cells:
        before = known.get(row, {}).get(column, {})
        mark = {"commit": commit, **sizes}
        if options.write and not options.again and mark.items() <= before.items() and _as_good(before, options):
            continue
        cell = {**outcome(), **mark}
        print(f"{row:22s} {column:22s} {matrix_page.line(cell)}", flush=True)
        if options.write:
            matrix_record.keep(part, row, column, cell, options.record)


def _as_good(cell: dict[str, Any], options: argparse.Namespace) -> bool:
    return not options.check or cell["outcome"] != "fits"


def in_processes(rows: list[str], arguments: list[str]) -> int:
    """The same command for one row after the other, each in a process of its own; the number of those that failed."""
    failed = [
        r for r in rows if subprocess.run([sys.executable, "-m", "benchmarks.matrix", *arguments, "--only", r]).returncode
    ]
    for row in failed:
        print(f"the process of {row} ended with an error", file=sys.stderr)
    return len(failed)


def read_options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("families", "answers", "page"))
    parser.add_argument("--only", help="families or kinds of model, separated by commas")
    parser.add_argument("--cells", help="structures or questions, separated by commas")
    parser.add_argument("--check", action="store_true", help="compare the matrix of families with NUTS")
    parser.add_argument("--few-rows", action="store_true", help="measure the matrix of families at large n")
    parser.add_argument("--n", type=int, default=2000, help="rows")
    parser.add_argument("--levels", type=int, default=40, help="levels of the factor g in the matrix of families")
    parser.add_argument("--draws", type=int, default=1000, help="draws per chain in the matrix of families")
    parser.add_argument("--few-n", type=int, default=20_000, help="rows with --few-rows")
    parser.add_argument("--quick", action="store_true", help="few rows and draws, to see that the tool works")
    parser.add_argument("--again", action="store_true", help="run cells that are kept already, too")
    parser.add_argument("--write", action="store_true", help="keep the results and write the page")
    parser.add_argument("--record", type=Path, default=matrix_record.FILE, help="where results are kept")
    parser.add_argument("--page", type=Path, default=matrix_page.PAGE, help="the page that is written")
    return parser.parse_args(arguments)


CELLS = {"families": families, "few rows": few_rows, "answers": answers}


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = read_options(arguments)
    part = "few rows" if options.few_rows else options.part
    cells = list(CELLS[part](options)) if part in CELLS else []
    rows = list(dict.fromkeys(row for row, *_ in cells))
    failed = 0
    if len(rows) > 1:
        failed = in_processes(rows, arguments)
    elif rows:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of short runs
            run(part, cells, options)
    results = matrix_record.load(options.record)
    if options.write:
        options.page.write_text(matrix_page.page(results))
    if options.write or part not in CELLS:
        print(matrix_page.counts(results))
    return min(failed, 1)


if __name__ == "__main__":
    raise SystemExit(main())
