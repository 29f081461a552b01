"""The scoreboard on top of docs/results.md: every table and figure of the five papers, from experiments/scoreboard.toml.

python -m experiments.scoreboard [--write]

Our numbers are not in that file: `{mark; row; column}` stands for a cell of the table that a script wrote between the markers of
`mark`, in the first line that has `row` in it. So the scoreboard cannot differ from the tables.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import block, show

FILE = Path(__file__).with_suffix(".toml")
OUTCOMES = ("reproduced", "in part", "not reproduced", "not run", "no numbers")


@dataclass(frozen=True)
class Experiment:
    """A script: its options at full size, estimated minutes, seconds of a quick run, and what it reproduces."""

    name: str
    minutes: float
    quick: float
    reproduces: str
    arguments: tuple[str, ...] = ()


def experiments() -> list[Experiment]:
    """All scripts, in the order in which they run."""
    given = tomllib.loads(FILE.read_text())["experiment"]
    return [Experiment(**{**e, "arguments": tuple(e.get("arguments", ()))}) for e in given]


def cells(mark: str) -> list[dict[str, str]]:
    """The table between the markers, a dictionary for each line; numbers as they are printed."""
    lines = [line for line in block(mark).splitlines() if line.startswith("|")]
    split = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return [dict(zip(split[0], row, strict=True)) for row in split[2:]] if len(split) > 2 else []


def filled(text: str) -> str:
    """`{mark; row; column}` replaced by the cell; a condition `row` may name parts that all must occur, joined by ' & '."""

    def cell(match: re.Match[str]) -> str:
        mark, row, column = (part.strip() for part in match[1].split(";"))
        for line in cells(mark):
            if all(part.strip() in " | ".join(line.values()) for part in row.split("&")):
                return line[column]
        raise SystemExit(f"{FILE.name}: no line of {mark} has {row!r}")

    return re.sub(r"\{([^{}]+)\}", cell, text)


def rows() -> list[dict[str, Any]]:
    """One line for each table and figure."""
    table, before = [], ""
    for item in tomllib.loads(FILE.read_text())["item"]:
        if item["outcome"] not in OUTCOMES:
            raise SystemExit(f"{item['paper']} {item['what']}: the outcome must be one of {', '.join(OUTCOMES)}")
        link = f"[{item['what']}](results/{item['page']})" if "page" in item else item["what"]
        table.append(
            {
                "paper": item["paper"] if item["paper"] != before else "",
                "table or figure": link,
                "the paper": item.get("published", ""),
                "ours": filled(item.get("ours", "")),
                "setting": item.get("setting", ""),
                "outcome": item["outcome"],
            }
        )
        before = item["paper"]
    return table


def note() -> str:
    """How many of each outcome, of those that have numbers or curves to compare."""
    found = [item["outcome"] for item in tomllib.loads(FILE.read_text())["item"]]
    return ", ".join(f"{found.count(k)} {k}" for k in OUTCOMES if k in found) + "."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    show("Scoreboard", rows(), note(), "scoreboard" if options.write else None)


if __name__ == "__main__":
    main()
