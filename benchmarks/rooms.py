"""How easy it is to find one's way in the package: lengths of files, repeated names, functions without types.

python -m benchmarks.rooms [folder of the package, src/tallbayes by default]
"""

from __future__ import annotations

import argparse
import ast
import statistics
from collections import Counter
from pathlib import Path

from benchmarks.options import parsed

CONTRACT = {"State", "Info", "__init__"}  # words that every leaf uses for the same thing


def functions(tree: ast.AST) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def annotated(function: ast.FunctionDef) -> bool:
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    own = [a for a in arguments if a.arg not in ("self", "cls")]
    return function.returns is not None and all(a.annotation is not None for a in own)


def measure(package: Path) -> dict[str, float]:
    files = sorted(package.rglob("*.py"))
    trees = {path: ast.parse(path.read_text()) for path in files}
    every = [f for tree in trees.values() for f in functions(tree)]
    classes = Counter(n.name for t in trees.values() for n in ast.walk(t) if isinstance(n, ast.ClassDef))
    modules = Counter(path.stem for path in files)
    samplers = [path for path in (package / "samplers").glob("*.py") if path.stem != "__init__"]
    leaves = [p for p in samplers if "cost: ClassVar[str] = " in p.read_text()]
    return {
        "files in samplers/": len(samplers),
        "of which algorithms": len(leaves),
        "median lines of an algorithm": statistics.median(len(p.read_text().splitlines()) for p in leaves),
        "functions": len(every),
        "functions without complete annotations": sum(not annotated(f) for f in every),
        "module names that exist twice": sum(c > 1 for name, c in modules.items() if name not in CONTRACT),
        "class names that exist twice": sum(c > 1 for name, c in classes.items() if name not in CONTRACT),
        "files above 400 lines": sum(len(p.read_text().splitlines()) > 400 for p in files),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[1] / "src" / "tallbayes")
    for name, value in measure(parsed(parser).folder).items():  # a run takes seconds anyway
        print(f"{name:45} {value:g}")


if __name__ == "__main__":
    main()
