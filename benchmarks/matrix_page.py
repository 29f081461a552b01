"""The page docs/what-composes.md, written from the results that are kept."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks import matrix_answers, matrix_families
from benchmarks.matrix_kinds import KINDS
from benchmarks.matrix_record import Cells

PAGE = Path(__file__).parents[1] / "docs" / "what-composes.md"
MARKS = {"green": "✓", "unchecked": "(✓)", "fits": "?", "wrong": "**wrong**", "raw": "**raw**", "refused": "–"}
DISAGREE = 1.05  # R-hat above which chains of the two thousand draws of a cell do not explore the same posterior
NAMES = re.compile(rf"'[^']*'|[\d,.]*\d|\b(?:{'|'.join(matrix_families.FAMILIES)})\b")  # in sentences
RUNS = ("green", "unchecked", "fits", "wrong")  # outcomes of a cell that gave a fit or an answer

HEAD = """# What composes

Parts of a model can be combined, and fits can be asked questions; not every combination is supported. Two tables show what works in this
version, what is refused, and what is wrong. Both are measured: every cell is run.

```console
python -m benchmarks.matrix families --check --write      # every family with every structure
python -m benchmarks.matrix families --few-rows --write   # which of these read few rows of many
python -m benchmarks.matrix answers --write               # every kind of model with every question
```

| mark | meaning |
|---|---|
| ✓ | works, and was compared with an independent computation |
| (✓) | fits, but NUTS does not support the model, so there was nothing to compare with |
| ? | fits, not compared yet |
| – | refused with a sentence that says why |
| **wrong** | differs from the independent computation |
| **raw** | an exception of Python instead of a sentence |
| empty | means nothing, and is in no count |
| · | not run yet |
"""

FAMILIES = """
## Families and structures

A cell is a call of `tb.fit` with `auto`. Its posterior means are compared with those of NUTS on the same model and rows: all coefficients,
those of a second predictor, standard deviations and correlations of groups, and other scales. They have to lie within four standard errors,
if not at first, then with four times the draws and other seeds. `few` means that a draw reads fewer than a tenth of the rows, at this
size or with ten times the rows.

{counts}

{table}

Formulas of the structures (the second parameter is `size`, `shape`, `sigma`, `precision` or `zi`, as the family has it):

{legend}
"""

ANSWERS = """
## Fits and questions

A cell is a question to the fit of a kind of model. The answer is compared with what draws and rows give, computed by NumPy and SciPy:
averages of inverse links, finite differences, importance sampling with densities of SciPy, quantiles of draws. Updates and
partitions are compared with a fit of all rows in memory, plots with what they should show.

{counts}

{table}

Formulas of the kinds of model:

{legend}
"""


def part(cells: list[tuple[str, str]], kept: Cells) -> list[tuple[str, str, dict[str, Any]]]:
    """All cells that mean something, with what is kept of them."""
    return [(row, column, kept.get(row, {}).get(column, {})) for row, column in cells]


def is_few(cell: dict[str, Any]) -> bool:
    """Whether a fit reads fewer rows per draw than a tenth of n."""
    return cell.get("outcome") in RUNS and cell.get("evaluations", 1.0) < matrix_families.FEW


def counts_of_families(parts: dict[str, Cells]) -> str:
    """The first matrix in a sentence."""
    cells = part(matrix_families.cells(), parts["families"])
    found = Counter(cell.get("outcome", "missing") for *_, cell in cells)
    few = [
        next(c for c in both if is_few(c))
        for row, column, cell in cells
        if any(map(is_few, both := (cell, parts["few rows"].get(row, {}).get(column, {}))))
    ]
    exact = sum(cell.get("guarantee") == "EXACT" for cell in few)
    run = sum(found[outcome] for outcome in RUNS)
    return (
        f"{len(cells)} cells mean something. {run} fit: {found['green']} agree with NUTS, {found['unchecked']} are models that NUTS "
        f"does not support, {found['fits']} were not compared, {found['wrong']} are wrong. {found['refused']} are refused, "
        f"{found['raw']} are raw exceptions, {found['missing']} were not run. {len(few)} fit from few rows, {exact} of them exactly."
    )


def counts_of_answers(parts: dict[str, Cells]) -> str:
    """The second matrix in a sentence."""
    cells = part(matrix_answers.cells(), parts["answers"])
    found = Counter(cell.get("outcome", "missing") for *_, cell in cells)
    return (
        f"{len(cells)} cells mean something. {found['green']} are answered correctly, {found['wrong']} wrongly; {found['refused']} "
        f"are refused, {found['raw']} are raw exceptions, {found['missing']} were not run."
    )


def counts(parts: dict[str, Cells]) -> str:
    """Both matrices in a sentence each."""
    return f"families: {counts_of_families(parts)}\nanswers: {counts_of_answers(parts)}"


def line(cell: dict[str, Any]) -> str:
    """A cell as it is printed while it runs."""
    facts = [f"{name} {value}" for name, value in cell.items() if name not in ("outcome", "commit", "n", "levels", "message")]
    return "  ".join([cell["outcome"], *facts, cell.get("message", "")[:160]]).rstrip()


def escaped(text: str) -> str:
    """Text in a cell of a table."""
    return text.replace("|", "\\|")


def grid(cells: list[tuple[str, str]], mark: Callable[[str, str], str], head: str) -> str:
    """A table of marks; combinations that are not among the cells stay empty."""
    known, rows, columns = set(cells), dict.fromkeys(r for r, _ in cells), dict.fromkeys(c for _, c in cells)
    lines = [f"| {head} | {' | '.join(escaped(c) for c in columns)} |", f"|---|{':-:|' * len(columns)}"]
    for row in rows:
        marks = (mark(row, column) if (row, column) in known else "" for column in columns)
        lines.append(f"| {escaped(row)} | {' | '.join(marks)} |")
    return "\n".join(lines)


def family_mark(parts: dict[str, Cells], row: str, column: str) -> str:
    cell, large = (parts[name].get(row, {}).get(column, {}) for name in ("families", "few rows"))
    mark = MARKS.get(cell.get("outcome", ""), "·")
    return f"{mark} few" if cell.get("outcome") in RUNS and (is_few(cell) or is_few(large)) else mark


def named(cells: Iterable[tuple[str, str]]) -> str:
    """Cells by column: `smooth`: gamma, beta; ..."""
    by_column: dict[str, list[str]] = {}
    for row, column in cells:
        by_column.setdefault(column, []).append(row)
    return "; ".join(f"`{escaped(column)}` of {escaped(', '.join(rows))}" for column, rows in by_column.items())


def refusals(cells: list[tuple[str, str, dict[str, Any]]]) -> str:
    """Sentences with the cells that they refuse, the most frequent first; sentences that differ in names and numbers alone are one."""
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for row, column, cell in cells:
        if cell.get("outcome") == "refused":
            key = NAMES.sub("…", cell["message"])
            groups.setdefault(key, []).append((row, column, cell["message"]))
    if not groups:
        return "Nothing is refused.\n"
    lines = ["| cells | sentence, such as | which |", "|--:|---|---|"]
    for group in sorted(groups.values(), key=len, reverse=True):
        lines.append(f"| {len(group)} | {escaped(group[0][2])} | {named(cell[:2] for cell in group)} |")
    return "\n".join(lines) + "\n"


def defects(cells: list[tuple[str, str, dict[str, Any]]]) -> str:
    """Cells that are wrong or raw, with what is wrong."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for row, column, cell in cells:
        if cell.get("outcome") == "wrong":
            what = cell.get("message") or f"{cell['of']} is {cell['z']:g} standard errors from NUTS"
        elif cell.get("outcome") == "raw":
            what = f"{cell['error']}: {cell['message']}"
        else:
            continue
        groups.setdefault(what, []).append((row, column))
    if not groups:
        return "No cell is wrong, and none ends in a raw exception.\n"
    return "\n".join(f"* {named(group)}: {what}" for what, group in groups.items()) + "\n"


def restless(cells: list[tuple[str, str, dict[str, Any]]]) -> str:
    """Cells whose chains disagree, whether or not there was something to compare their means with."""
    found = [(row, column, cell) for row, column, cell in cells if cell.get("r_hat", 1.0) > DISAGREE]
    if not found:
        return ""
    lines = [f"* `{escaped(c)}` of {r}: R-hat {cell['r_hat']:g} with {cell['sampler']}" for r, c, cell in found]
    return "### Chains that disagree\n\n" + "\n".join(lines) + "\n"


def origin(cells: list[tuple[str, str, dict[str, Any]]]) -> str:
    """Commits and sizes of the results."""
    commits = Counter(cell["commit"] for *_, cell in cells if cell)
    rows = sorted({cell["n"] for *_, cell in cells if cell})
    if not commits:
        return "Not run yet.\n"
    made = ", ".join(f"{commit} ({count:,} {'cell' if count == 1 else 'cells'})" for commit, count in commits.most_common())
    return f"Results of commit {made}, with {', '.join(f'{n:,}' for n in rows)} rows.\n"


def page(parts: dict[str, Cells]) -> str:
    """The whole page."""
    first, second = matrix_families.cells(), matrix_answers.cells()
    structures = "\n".join(
        f"* `{name}`: `{own.formula}`" + (f" with `{own.note}`" if own.note else "")
        for name, own in matrix_families.STRUCTURES.items()
    )
    kinds = "\n".join(
        f"* {name}: `{kind.formula}`, {kind.family}" + (f" with `{kind.note}`" if kind.note else "")
        for name, kind in KINDS.items()
    )
    families = part(first, parts["families"])
    answers = part(second, parts["answers"])
    answer_mark = lambda row, column: MARKS.get(parts["answers"].get(row, {}).get(column, {}).get("outcome", ""), "·")  # noqa: E731
    large = part(first, parts["few rows"])
    texts = [
        HEAD,
        FAMILIES.format(
            counts=counts_of_families(parts),
            table=grid(first, lambda r, c: family_mark(parts, r, c), "family"),
            legend=structures,
        ),
        f"### Wrong or raw\n\n{defects(families)}",
        restless(families),
        f"### Refused\n\n{refusals(families)}",
        origin(families) + "Few rows: " + origin(large),
        ANSWERS.format(counts=counts_of_answers(parts), table=grid(second, answer_mark, "model"), legend=kinds),
        f"### Answered wrongly, or raw\n\n{defects(answers)}",
        f"### Questions that are refused\n\n{refusals(answers)}",
        origin(answers),
    ]
    return "\n".join(text.strip("\n") + "\n" for text in texts if text)
