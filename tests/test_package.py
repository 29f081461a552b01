"""The package as it is shipped: annotations, declared dependencies, and files that must agree with each other."""

import ast
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import tallbayes

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tallbayes"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TREES = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}

# Functions that lack an annotation, by room. A number may only fall; an empty table is the aim.
UNANNOTATED: dict[str, int] = {}  # rooms where functions may still lack annotations, and how many


def unannotated(tree):
    """Name and line of each function that lacks the annotation of a parameter or of its result."""
    owners = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        parameters = [*node.args.posonlyargs, *node.args.args]
        static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
        if isinstance(owners[node], ast.ClassDef) and not static:
            parameters = parameters[1:]
        stars = [p for p in (node.args.vararg, node.args.kwarg) if p is not None]
        parameters += [*node.args.kwonlyargs, *stars]
        if node.returns is None or any(p.annotation is None for p in parameters):
            yield f"{node.name}:{node.lineno}"


def test_every_function_is_annotated():
    missing = [(path.relative_to(SOURCE), name) for path, tree in TREES.items() for name in unannotated(tree)]
    counts = Counter(path.parts[0] for path, _ in missing)
    worse = {room for room, count in counts.items() if count > UNANNOTATED.get(room, 0)}
    assert not worse, "\n".join(f"{path}:{name}" for path, name in missing if path.parts[0] in worse)
    assert dict(counts) == UNANNOTATED, f"lower the numbers of UNANNOTATED to {dict(counts)}"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("def f(a: int, *, b: int = 0) -> None: ...", 0),
        ("class A:\n    def f(self, a: int) -> int: ...\n    @classmethod\n    def g(cls) -> int: ...", 0),
        ("class A:\n    @staticmethod\n    def f(a) -> int: ...", 1),
        ("def f(a: int): ...", 1),
        ("def f(a) -> None: ...", 1),
        ("def f(*a) -> None: ...", 1),
        ("def f(*, b) -> None: ...", 1),
        ("def f(a: int) -> None:\n    def g(b): ...", 1),
    ],
)
def test_a_missing_annotation_is_seen(text, expected):
    assert len(list(unannotated(ast.parse(text)))) == expected


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def required(requirements):
    return {normal(re.match(r"[\w.-]+", r)[0]) for r in requirements}


def third_party(tree):
    """Top-level names of modules that are imported, outside the package and the standard library."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module]
        else:
            continue
        for name in names:
            top = name.partition(".")[0]
            if top != "tallbayes" and top not in sys.stdlib_module_names:
                yield top


PRESENT = {"IPython"}  # imported only inside a notebook, where it is running
DISTRIBUTIONS = {"flint": "python-flint", "sklearn": "scikit-learn"}  # where they are named otherwise than the module
TOOLS = {"test", "lint", "docs", "bench"}  # extras that users do not install


def test_every_import_is_declared():
    extras = {name: reqs for name, reqs in PROJECT["project"]["optional-dependencies"].items() if name not in TOOLS}
    declared = required(PROJECT["project"]["dependencies"]).union(*map(required, extras.values()))
    imports = {top: path for path, tree in TREES.items() for top in third_party(tree)}
    assert len(imports) > 10
    for top, path in imports.items():
        assert top in PRESENT or normal(DISTRIBUTIONS.get(top, top)) in declared, f"{path.relative_to(ROOT)} imports {top}"


def test_types_are_shipped():
    assert (SOURCE / "py.typed").read_text() == ""
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["src/tallbayes"]}


def test_files_of_the_repository_agree():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {tallbayes.__version__}\n" in citation
    lint = PROJECT["project"]["optional-dependencies"]["lint"]
    ruff = next(r for r in lint if r.startswith("ruff=="))
    assert set(re.findall(r'"(ruff==[^"]*)"', (ROOT / ".pre-commit-config.yaml").read_text())) == {ruff}
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    oldest, ceiling = re.search(r'"numba>=([\d.]+),<0\.(\d+)"', (ROOT / "pyproject.toml").read_text()).groups()
    assert f'numba: ["{oldest}.*", "0.{int(ceiling) - 1}.*"]' in workflow
    pythons = re.findall(r":: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert f"python: {pythons}".replace("'", '"') in workflow


def test_workflows_run_what_make_runs():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [
        command
        for path in (ROOT / ".github" / "workflows").glob("*.yml")
        for command in re.findall(r"run: (?!\n)(.*)", path.read_text())
    ]
    assert {"test", "slow", "docs", "dist"} == {command.split()[1] for command in commands} <= targets
    assert all(command.split()[0] == "make" for command in commands)


def test_quick_tests_exist():
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    quick = re.search(r"^QUICK := (.*)$", text, re.MULTILINE)[1]
    names = [prefix + name for prefix, files in re.findall(r"\$\(addprefix (\S+),([^)]*)\)", quick) for name in files.split()]
    assert len(names) > 10 and re.sub(r"\$\([^)]*\)", "", quick).strip() == ""
    for name in names:
        assert (ROOT / name).exists(), name


def test_no_source_file_is_long():
    lengths = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in TREES}
    assert not {path: length for path, length in lengths.items() if length > 400}
