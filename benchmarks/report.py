"""Tables of benchmark results: printed by rich, saved as JSON, written into docs/results.md between markers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent.parent / "docs" / "results.md"


def number(value: Any) -> str:
    if not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or (abs(value) >= 1e4 and abs(value) < 1e7):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def show(title: str, rows: list[dict[str, Any]], note: str = "", mark: str | None = None, json_file: str | None = None) -> None:
    """Print a table; with `mark`, replace the part of docs/results.md between `<!-- mark:begin -->` and `<!-- mark:end -->`."""
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
    """Replace the part of docs/results.md between the markers of `mark` by a table and a note."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(number(row.get(c, "")) for c in columns) + " |" for row in rows]
    lines += ["", note] if note else []
    begin, end = f"<!-- {mark}:begin -->", f"<!-- {mark}:end -->"
    text = RESULTS.read_text()
    if begin not in text:
        raise SystemExit(f"{RESULTS.name} has no marker {begin}")
    head, rest = text.split(begin)
    _, tail = rest.split(end)
    RESULTS.write_text(head + begin + "\n" + "\n".join(lines) + "\n" + end + tail)
