"""Tables of benchmark results: printed by rich, saved as JSON, written between markers into the pages of docs/results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent.parent / "docs" / "results"


def number(value: Any) -> str:
    if not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or (abs(value) >= 1e4 and abs(value) < 1e7):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def show(title: str, rows: list[dict[str, Any]], note: str = "", mark: str | None = None, json_file: str | None = None) -> None:
    """Print a table; with `mark`, replace what lies between `<!-- mark:begin -->` and `<!-- mark:end -->` in the pages of results."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(title=title)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*(number(row.get(c, "")) for c in columns))
    console = Console(width=max(120, 16 * len(columns)))
    console.print(table)
    if note:
        console.print(note)
    if json_file:
        Path(json_file).write_text(json.dumps({"title": title, "rows": rows, "note": note}, indent=1))
    if mark:
        write(mark, rows, note)


def write(mark: str, rows: list[dict[str, Any]], note: str) -> None:
    """Replace what lies between the markers of `mark`, on whichever page of results has them, by a table and a note."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(map(cell, columns)) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell(number(row.get(c, ""))) for c in columns) + " |" for row in rows]
    lines += ["", note] if note else []
    begin, end = f"<!-- {mark}:begin -->", f"<!-- {mark}:end -->"
    page = _page(begin)
    head, _, rest = page.read_text().partition(begin)
    page.write_text(head + begin + "\n" + "\n".join(lines) + "\n" + end + rest.split(end)[1])


def cell(text: str) -> str:
    """Text in which no bar ends a cell of a table."""
    return re.sub(r"(?<!\\)\|", r"\|", text)


def block(mark: str) -> str:
    """What lies between the markers of `mark` now."""
    begin, end = f"<!-- {mark}:begin -->", f"<!-- {mark}:end -->"
    return _page(begin).read_text().split(begin)[1].split(end)[0]


def kept(mark: str, names: Iterable[str], done: set[str]) -> list[dict[str, Any]]:
    """The lines of problems that were not run again, as they are on the page."""
    lines = [[c.strip() for c in line.split("|")[1:-1]] for line in block(mark).splitlines() if line.startswith("| ")]
    rows = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
    return [row for row in rows if row["problem"] in set(names) - done]


def _page(begin: str) -> Path:
    """The page of results that has a marker."""
    for page in [RESULTS.with_suffix(".md"), *sorted(RESULTS.glob("*.md"))]:
        if begin in page.read_text():
            return page
    raise SystemExit(f"no page of {RESULTS} has the marker {begin}")
