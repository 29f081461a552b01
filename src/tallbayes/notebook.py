"""Small pieces of HTML that notebooks show for objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any


def facts_table(title: str, facts: Mapping[str, Any]) -> str:
    """A title and a table of names and values.

    >>> facts_table("3 rows", {"response": "y"})
    '<p><strong>3 rows</strong></p><table><tr><th style="text-align:left">response</th><td style="text-align:left">y</td></tr></table>'
    """
    left = 'style="text-align:left"'
    rows = "".join(
        f"<tr><th {left}>{escape(str(name))}</th><td {left}>{escape(str(value))}</td></tr>" for name, value in facts.items()
    )
    return f"<p><strong>{escape(title)}</strong></p><table>{rows}</table>"


def numbers_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], note: str = "") -> str:
    """A table of numbers, the first column of which has names; `note` stands below it.

    >>> numbers_table(["", "mean"], [["x", 0.5]])
    '<table><tr><th></th><th>mean</th></tr><tr><th style="text-align:left">x</th><td>0.5</td></tr></table>'
    """
    head = "".join(f"<th>{escape(str(c))}</th>" for c in columns)
    body = []
    for name, *values in rows:
        cells = "".join(f"<td>{v:.4g}</td>" if isinstance(v, float) else f"<td>{escape(str(v))}</td>" for v in values)
        body.append(f'<tr><th style="text-align:left">{escape(str(name))}</th>{cells}</tr>')
    return f"<table><tr>{head}</tr>{''.join(body)}</table>" + (f"<p>{escape(note)}</p>" if note else "")
