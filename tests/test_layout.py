"""Tests of behaviour use public names alone; those of internals are in a folder of their own, a file for each module."""

import ast
import importlib
import pkgutil
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

import tallbayes as tb

HERE = Path(__file__).parent
BEHAVIOUR = sorted(path for path in HERE.rglob("*.py") if path.parent != HERE / "internals" and path != Path(__file__))
INTERNALS = sorted((HERE / "internals").glob("test_*.py"))
LISTED = ("samplers", "moves", "models", "shards", "results", "testing", "cli")  # their __all__ is what is public
DOCUMENTED = ("priors", "data", "store", "auto")  # what docs/reference.md lists of them
CONTRACT = ("init", "step", "Policy", "Setup")  # of docs/write-a-sampler.md
ALLOWED = {
    ("test_imports.py", "tallbayes.run"): "a module without a public name is found as an attribute too",
}


@cache
def public_names():
    """Names that tests of behaviour may import, by module."""
    names = {"tallbayes": {*tb.__all__, "data", "errors", "sklearn", "testing"}, "tallbayes.contract": {*CONTRACT}}
    for module in LISTED:
        names[f"tallbayes.{module}"] = set(importlib.import_module(f"tallbayes.{module}").__all__)
    text = (HERE.parent / "docs" / "reference.md").read_text(encoding="utf-8")
    for module in DOCUMENTED:
        names[f"tallbayes.{module}"] = set(re.findall(rf"`tb\.{module}\.(\w+)`", text))
    names["tallbayes.data"] |= {"Dataset", "Query", "read"}
    names["tallbayes.sklearn"] = {"BayesClassifier", "BayesRegressor"}
    names["tallbayes.errors"] = {name for name in vars(tb.errors) if name.endswith(("Error", "Warning"))}
    return names


@cache
def is_module(name):
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def private(module, name):
    """The private name that `from module import name` reaches, if it does."""
    names, whole = public_names(), f"{module}.{name}"
    return None if whole in names or name in names.get(module, ()) else whole


def reached(tree):
    """Private names of the package that a file imports, reads as attributes of modules, or names in texts."""
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("tallbayes", "internals"):
            yield from (private(node.module, alias.name) for alias in node.names)
            modules |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in ("tallbayes", "internals"):
                    yield None if alias.name in public_names() else alias.name
                    modules |= {alias.asname: alias.name} if alias.asname else {"tallbayes": "tallbayes"}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"tallbayes(\.\w+)+", node.value):  # what monkeypatch.setattr replaces
                yield private(*node.value.rsplit(".", 1))
            for module, imported in re.findall(r"^\s*from (tallbayes[\w.]*) import ([\w, ]+)", node.value, re.MULTILINE):
                yield from (private(module, name.split()[0]) for name in imported.split(","))
            for module in re.findall(r"^\s*import (tallbayes\.[\w.]+)", node.value, re.MULTILINE):
                yield None if module in public_names() else module
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            parts = ast.unparse(node).split(".")
            whole = ".".join([modules.get(parts[0], ""), *parts[1:]])
            if is_public_path(whole.rpartition(".")[0]) and is_module(whole) and private(*whole.rsplit(".", 1)):
                yield whole


def is_public_path(name):
    return name in public_names()


@pytest.mark.parametrize("path", BEHAVIOUR, ids=lambda path: path.relative_to(HERE).as_posix())
def test_tests_of_behaviour_import_nothing_private(path):
    found = set(reached(ast.parse(path.read_text(encoding="utf-8")))) - {None}
    assert not {name for name in found if (path.name, name) not in ALLOWED}


@pytest.mark.parametrize(
    "code",
    [
        "from tallbayes.engine import passes",
        "from tallbayes.samplers.firefly import FireflyOptions",
        "from tallbayes.priors import prior_value",
        "import tallbayes.run.chain",
        "from internals.support import interrupting",
        "def test(): from tallbayes.run import driver",
        "import tallbayes as tb\ntb.engine.passes.total_value",
        "from tallbayes import samplers\nsamplers.firefly.State",
        "monkeypatch.setattr('tallbayes.execution.effective_sizes', None)",
        "CODE = '''\nfrom tallbayes.run import driver\n'''",
    ],
)
def test_the_check_sees_private_names(code):
    assert set(reached(ast.parse(code))) - {None}


@pytest.mark.parametrize(
    "code",
    [
        "import tallbayes as tb\ntb.samplers.Firefly(), tb.models.logistic, tb.errors.DataError",
        "from tallbayes.samplers import Firefly, advance",
        "from tallbayes.testing import run_chunks",
        "CODE = 'import tallbayes.sklearn'",
    ],
)
def test_the_check_lets_public_names_pass(code):
    assert not set(reached(ast.parse(code))) - {None}


def test_files_of_internals_are_named_by_their_module():
    modules = {m.name for m in pkgutil.walk_packages(tb.__path__, "tallbayes.")}
    named = {"test_" + name.removeprefix("tallbayes.").replace(".", "_") + ".py" for name in modules}
    assert not {path.name for path in INTERNALS} - named
