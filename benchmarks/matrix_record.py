"""The file that keeps what every cell of the two matrices gave, one line per cell, and the version it was made with."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import tallbayes as tb

FILE = Path(__file__).with_name("matrix.json")
PARTS = ("families", "few rows", "answers")
Cells = dict[str, dict[str, dict[str, Any]]]  # by row and column of a matrix


def commit() -> str:
    """The commit of the sources that are imported, with a plus sign if files under src differ from it."""
    folder = Path(tb.__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=7", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return tb.__version__


def load(path: Path = FILE) -> dict[str, Cells]:
    """All cells by part; a file that does not exist has none."""
    found = json.loads(path.read_text()) if path.exists() else {}
    return {part: found.get(part, {}) for part in PARTS}


def text(parts: dict[str, Cells]) -> str:
    """The content of the file: a line for each cell, so that a change of one cell is a change of one line."""
    blocks = []
    for part in PARTS:
        rows = []
        for row, cells in parts[part].items():
            lines = [f"   {json.dumps(column)}: {json.dumps(cell, ensure_ascii=False)}" for column, cell in cells.items()]
            rows.append(f"  {json.dumps(row)}: {{\n" + ",\n".join(lines) + "\n  }")
        blocks.append(f" {json.dumps(part)}: {{\n" + ",\n".join(rows) + "\n }")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def keep(part: str, row: str, column: str, cell: dict[str, Any], path: Path = FILE) -> None:
    """Put a cell into the file, which is read again first and replaced as a whole: an interrupted run loses nothing."""
    parts = load(path)
    parts[part].setdefault(row, {})[column] = cell
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    aside.write_text(text(parts))
    os.replace(aside, path)
