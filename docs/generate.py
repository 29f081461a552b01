"""Rewrite the generated parts of docs/: the tables of samplers and families, the layers, a family file, the reference, the notebooks.

    python docs/generate.py

A generated part stands between `<!-- name:begin -->` and `<!-- name:end -->`; everything else in a page is written by hand.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import operator
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import tallbayes as tb
from tallbayes import sklearn, testing
from tallbayes.engine.family_functions import third_supremum
from tallbayes.engine.neighbourhood import has_third_bounds
from tallbayes.mode import laplace
from tallbayes.model import Family, no_terms
from tallbayes.moves import Move
from tallbayes.results import answers, audit
from tallbayes.results.predictive_checks import PredictiveCheck
from tallbayes.results.survival_checks import SurvivalCheck
from tallbayes.sampler_comparison import Comparison
from tallbayes.samplers import CLASSES, SAMPLERS, Sampler

ROOT = Path(__file__).resolve().parents[1]
FITTING = ("fit", "sample", "resume", "update", "load", "read", "find_mode", "compare", "compare_models", "partial_posteriors")
FITTING += ("unbiased", "prior_predictive", "Dataset", "Query", "Fit")
WRITTEN = ("family", "from_jax", "from_numpyro", "real", "positive", "interval", "ordered", "simplex")


def sampler_table(folder: str = "docs/samplers") -> str:
    """The samplers in Markdown: name with its page, class call, guarantee, rows per iteration; `folder` holds the pages."""
    objects = {name: make() for name, make in SAMPLERS.items()}
    lines = ["| name | object | guarantee | rows read per iteration |", "|---|---|---|---|"]
    for name, sampler in objects.items():
        page = type(sampler).__module__.rpartition(".")[2].replace("_", "-")
        call = _call(sampler, [other for other in objects.values() if type(other) is type(sampler)])
        lines.append(f'| [`"{name}"`]({folder}/{page}.md) | `{call}` | {sampler.guarantee.kind} | {sampler.cost} |')
    return "\n".join(lines)


def sampler_stub() -> str:
    """What `tallbayes.samplers` exports, for type checkers: its `__init__.py` finds the classes by listing the folder."""
    classes = "".join(f"from {kind.__module__} import {name} as {name}\n" for name, kind in CLASSES.items())
    shared = ("KINDS", "Diagnosis", "Guarantee", "Outcome", "Sampler", "Setup", "advance", "positions")
    contract = "".join(f"from tallbayes.contract import {name} as {name}\n" for name in shared)
    return (
        '"""Written by docs/generate.py from the files of this folder."""\n\n'
        "from collections.abc import Callable\nfrom typing import Any\n\n"
        f"{contract}{classes}\n"
        "CLASSES: dict[str, type[Any]]\nSAMPLERS: dict[str, Callable[[], Sampler]]\n\n"
        "def resolve(sampler: str | Sampler) -> Sampler: ...\ndef from_dict(options: dict[str, Any]) -> Sampler: ...\n"
    )


def sampler_navigation() -> str:
    """Entries of mkdocs.yml for the pages of samplers, by title."""
    titles = {
        path: path.read_text().partition("\n")[0].removeprefix("# ") for path in (ROOT / "docs" / "samplers").glob("*.md")
    }
    ordered = sorted(titles.items(), key=lambda item: item[1].lower())
    return "\n".join(f"          - {title}: samplers/{path.name}" for path, title in ordered)


def _call(sampler: Sampler, namesakes: list[Sampler]) -> str:
    """How the object is made; a class with several names shows the options that tell them apart."""
    arguments = []
    for field in dataclasses.fields(sampler):
        value = getattr(sampler, field.name)
        if any(getattr(other, field.name) != value for other in namesakes):
            shown = (
                f"tb.moves.{value.name}()"
                if isinstance(value, Move)
                else json.dumps(value)
                if isinstance(value, str)
                else value
            )
            arguments.append(f"{field.name}={shown}")
    return f"tb.samplers.{type(sampler).__name__}({', '.join(arguments)})"


def layers() -> str:
    """The order of imports that import-linter enforces, top first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    order = next(c["layers"] for c in contracts if c["type"] == "layers")
    return "\n".join(["```text", *(layer.replace("tallbayes.", "") for layer in order), "```"])


def family_table() -> str:
    """The families in Markdown: what each of them declares."""
    heads = ("name", "response", "link", "certificates", "log-concave", "normaliser", "simulates", "lower bound")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for name in tb.models.FAMILIES:
        family = tb.models.family_of({"family": name, "options": {"expression": "y*eta"}})
        if not family.examples and name == "expression":
            cells = [
                "as `support=` says",
                "any",
                "derived automatically",
                "derived automatically",
                "a number, computed",
                "yes",
                "",
            ]
        else:
            factor = _normaliser(family)
            tangent = "" if family.tangent is None else family.tangent.name
            cells = [family.support, family.link_name, _certificates(family), _yes(family.log_concave), factor]
            cells += [_yes(family.simulate is not None), tangent]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def _normaliser(family: Family) -> str:
    if family.log_normaliser is None:
        return "none"
    return "1" if family.log_normaliser is no_terms else "declared"


def _certificates(family: Family) -> str:
    names = []
    if any(
        type(m) in third_supremum.registry and np.isfinite(third_supremum(m, y))
        for m in family.examples
        for y in family.responses
    ):
        names.append("sup \\|f‴\\|")
    names += ["self-concordant"] if family.self_concordant else []
    names += ["sufficient statistics"] if any(family.unit_scale_member(m) is not None for m in family.examples) else []
    names += ["sup \\|D³f\\| near the mode"] if any(has_third_bounds(m) for m in family.examples) else []
    names += ["sup \\|D³f\\|, centred"] if family.centred_third is not None else []
    names += ["sup \\|f⁗\\|"] if family.fourth_supremum is not None else []
    return ", ".join(names) or "none"


def family_file() -> str:
    """The source of the logistic family."""
    return f"```python\n{Path(inspect.getfile(inspect.unwrap(tb.models.logistic))).read_text().rstrip()}\n```"


def reference() -> str:
    """Every public name with the first line of its docstring."""
    groups: list[tuple[str, str, Iterable[tuple[str, Any]]]] = [
        ("Fitting", "tb", _named(tb, FITTING)),
        ("Choice of a sampler", "tb.auto", _named(tb.auto, ("choose",))),
        ("Data", "tb.Dataset", _members(tb.Dataset)),
        ("Responses, rows and smooths", "tb.data", _named(tb.data, ("censored", "proportion", "merge_rows", "smooth"))),
        ("Stores", "tb.store", _named(tb.store, ("folder", "list", "clear", "StoreEntry"))),
        ("Families", "tb.models", _named(tb.models, (*tb.models.FAMILIES, "build", "family_of", "Model", "Family", "Tangent"))),
        ("Models written by users", "tb.models", _named(tb.models, WRITTEN)),
        ("Model", "model", _members(tb.models.Model)),
        ("Mode", "mode", [*_members(laplace.Mode), *((f"laplace().{k}", v) for k, v in _members(laplace.Laplace))]),
        ("Priors", "tb.priors", _named(tb.priors, _priors())),
        ("Samplers", "tb.samplers", _named(tb.samplers, sorted(tb.samplers.CLASSES))),
        (
            "Moves",
            "tb.moves",
            _named(
                tb.moves, (*tb.moves.MOVES, *(name for name in tb.moves.PROPOSALS if name in tb.moves.__all__), "surrogate")
            ),
        ),
        ("Fit", "fit", _members(tb.Fit)),
        ("Answers of a fit", "fit", _members(answers.Answers)),
        ("Predictive checks", "check", _members(PredictiveCheck)),
        ("Predictive checks of censored times", "check", _members(SurvivalCheck)),
        ("scikit-learn", "tallbayes.sklearn", _named(sklearn, ("BayesClassifier", "BayesRegressor"))),
        ("Audit", "audit", _members(audit.Audit)),
        ("Divide and conquer", "tb", _named(tb, ("sample_shards",))),
        ("Shards", "tb.shards", _named(tb.shards, sorted({*tb.shards.__all__} - {"COMBINERS", "sample_shards"}))),
        ("Partitions", "partitions", _members(tb.shards.Partitions)),
        ("Scores", "tb.results", _named(tb.results, ("roc", "calibration"))),
        ("Comparison", "comparison", _members(Comparison)),
        ("Errors", "tb", _named(tb, [k for k in tb.__all__ if k.endswith(("Error", "Warning"))])),
        ("Testing", "tallbayes.testing", _named(testing, [k for k in testing.__all__ if callable(getattr(testing, k))])),
    ]
    fields = {"Data": tb.Dataset, "Model": tb.models.Model, "Mode": laplace.Mode, "Fit": tb.Fit, "Audit": audit.Audit}
    fields["Comparison"] = Comparison
    parts = []
    for title, prefix, members in groups:
        rows = [f"| `{prefix}.{name}` | {_first_line(thing)} |" for name, thing in members]
        lines = [f"## {title}", "", "| name | what it is |", "|---|---|", *rows]
        if title in fields:
            names = [f"`{f.name}`" for f in dataclasses.fields(fields[title]) if f.name[0] != "_"]
            lines += ["", f"Fields: {', '.join(names)}."]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def api_pages() -> dict[Path, str]:
    """The pages of the API: signatures and docstrings, which mkdocstrings reads from the sources when the site is built."""
    pages = {
        "fitting": ("Fitting", "tb", [n for n in FITTING if n not in ("Dataset", "Fit")]),
        "data": ("Data", "tb", ["Dataset", "store.folder", "store.list", "store.clear"]),
        "models": ("Models", "tb.models", [*tb.models.FAMILIES, *WRITTEN, "build", "Model", "Family"]),
        "priors": ("Priors", "tb.priors", _priors()),
        "samplers": ("Samplers", "tb.samplers", sorted(CLASSES)),
        "moves": (
            "Moves",
            "tb.moves",
            [*tb.moves.MOVES, *(k for k in tb.moves.PROPOSALS if k in tb.moves.__all__), "surrogate"],
        ),
        "fit": ("The fit", "tb", ["Fit"]),
        "shards": ("Shards", "tb.shards", ["sample_shards", *sorted({*tb.shards.__all__} - {"COMBINERS", "sample_shards"})]),
        "errors": ("Errors and warnings", "tb", [k for k in tb.__all__ if k.endswith(("Error", "Warning"))]),
    }
    texts = {name: _api_page(title, prefix, _reached(prefix, names)) for name, (title, prefix, names) in pages.items()}
    estimators = _named(sklearn, ("BayesClassifier", "BayesRegressor"))
    texts["sklearn"] = _api_page("scikit-learn", "tallbayes.sklearn", estimators)
    tools = _named(testing, [k for k in testing.__all__ if callable(getattr(testing, k))])
    texts["testing"] = _api_page("Testing", "tallbayes.testing", tools)
    return {ROOT / "docs" / "api" / f"{name}.md": text for name, text in texts.items()}


def _reached(prefix: str, names: Iterable[str]) -> list[tuple[str, Any]]:
    return [(name, operator.attrgetter(f"{prefix}.{name}".removeprefix("tb."))(tb)) for name in names]


def _api_page(title: str, prefix: str, members: Iterable[tuple[str, Any]]) -> str:
    lines = [f"# API: {title}", "", "`import tallbayes as tb`. The site shows signatures and docstrings here.", ""]
    for name, thing in members:
        origin = inspect.unwrap(thing)
        lines += [f"::: {origin.__module__}.{origin.__qualname__}", "    options:", f"      heading: {prefix}.{name}", ""]
        if thing is tb.Fit:
            lines[-1:] = ["      inherited_members: true", ""]
    return "\n".join(lines)


def notebooks() -> dict[Path, str]:
    """The pages of the gallery as Jupyter notebooks: what is between Python blocks becomes Markdown, and a block a cell of code."""
    gallery = ROOT / "docs" / "gallery"
    sources = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
    return {
        gallery / "notebooks" / f"{page.stem}.ipynb": _notebook(page, f"{sources}/blob/main")
        for page in sorted(gallery.glob("*.md"))
        if page.stem != "index"
    }


def _notebook(page: Path, site: str) -> str:
    cells: list[dict[str, Any]] = []
    parts = re.split(r"^```python\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for number, part in enumerate(parts):
        code = number % 2 == 1
        text = (part if code else _without_pictures(part, page, site)).strip()
        if not text:
            continue
        cell = {"cell_type": "code" if code else "markdown", "id": f"cell-{number}", "metadata": {}}
        cells.append(
            cell | {"source": text.splitlines(keepends=True)} | ({"execution_count": None, "outputs": []} if code else {})
        )
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    content = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _without_pictures(text: str, page: Path, site: str) -> str:
    """Markdown without the link to the notebook and the pictures, which its cells draw; links lead to the pages online."""

    def online(link: re.Match[str]) -> str:
        return f"]({site}/{(page.parent / link[1]).resolve().relative_to(ROOT).as_posix()}{link[2] or ''})"

    text = re.sub(r"^!?\[[^\]]*\]\([^)]+\.(?:png|ipynb)\)\n", "", text, flags=re.MULTILINE)
    return re.sub(r"\]\(((?!\w+://)[^)#]+)(#[^)]*)?\)", online, re.sub(r"\n{3,}", "\n\n", text))


def _named(owner: Any, names: Iterable[str]) -> list[tuple[str, Any]]:
    return [(name, getattr(owner, name)) for name in names]


def _members(kind: type) -> list[tuple[str, Any]]:
    """Public methods and properties of a class in the order of its source, those without a docstring left out."""
    found = [(k, getattr(kind, k) if isinstance(v, classmethod) else v) for k, v in vars(kind).items() if k[0] != "_"]
    return [
        (k, v) for k, v in found if (callable(v) or hasattr(v, "__get__")) and inspect.getdoc(v) and not isinstance(v, type)
    ]


def _priors() -> list[str]:
    """Functions of `tallbayes.priors` that make a prior: of coefficients, of positive parameters, of correlations, with unknown scales."""
    kinds = {"Prior", "ScalePrior", "CorrelationPrior", "UnknownScale"}
    functions = inspect.getmembers(tb.priors, inspect.isfunction)
    return [k for k, f in functions if f.__annotations__.get("return") in kinds and "from_dict" not in k]


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0].replace("|", "\\|")


def replaced(text: str, name: str, content: str, comment: tuple[str, str] = ("<!-- ", " -->")) -> str:
    """The text with the part between the markers of `name` replaced."""
    begin, end = f"{comment[0]}{name}:begin{comment[1]}", f"{comment[0]}{name}:end{comment[1]}"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"the markers {begin} and {end} are missing")
    return f"{before}{begin}\n{content}\n{end}{after}"


def pages() -> dict[Path, str]:
    """What every page with a generated part should hold."""
    parts = {
        ROOT / "docs" / "how-to-choose.md": ("samplers", sampler_table("samplers")),
        ROOT / "docs" / "families.md": ("families", family_table()),
        ROOT / "docs" / "architecture.md": ("layers", layers()),
        ROOT / "docs" / "write-a-model.md": ("logistic", family_file()),
        ROOT / "docs" / "reference.md": ("reference", reference()),
    }
    settings = ROOT / "mkdocs.yml"
    whole = {
        ROOT / "src" / "tallbayes" / "samplers" / "__init__.pyi": sampler_stub(),
        settings: replaced(settings.read_text(), "samplers", sampler_navigation(), ("          # ", "")),
    }
    return {path: replaced(path.read_text(), *part) for path, part in parts.items()} | whole | api_pages() | notebooks()


def main() -> None:
    """Write the pages that changed."""
    for path, text in pages().items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            print(f"rewrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
