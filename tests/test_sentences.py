"""Every sentence of an error or a warning, listed from the sources, so that a review sees each one that goes.

sentences.txt has one sentence per line, sorted, whatever file it is in; a value that is only known when it is said is {…}. A part of a
sentence that is chosen elsewhere (a variable, a constant, a helper, an argument) has a line of its own.

    python tests/test_sentences.py --write

Followed are the arguments of exceptions and of `warn`, the warnings and problems that a check or a fit collects, and what flows into them:
names, attributes, arguments and what functions return, found by name.
"""

import ast
import itertools
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import tallbayes as tb

FILE = Path(__file__).parent / "sentences.txt"
UNKNOWN = "{…}"
COLLECTED = re.compile("warnings|problems|sentences|doubts")  # lists of sentences, and functions that return them
TEXT = {
    "str",
    "list",
    "tuple",
    "sorted",
    "next",
    "join",
    "format",
    "replace",
    "strip",
    "rstrip",
    "removesuffix",
    "removeprefix",
    "get",
}
WHOLE, WORDS = 2, 3  # words that a sentence has at least, and a part of one: others are names
SAID = re.compile(r"str\b|Diagnosis|Error\b|NoReturn|Exception")  # in the annotation of what a function returns

Node = ast.AST
Scope = tuple[Node, ...]  # functions and classes around an expression, the innermost last


def bare(node: Node) -> str:
    """The last name of a call's function or of an expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def product(*parts: list[str]) -> list[str]:
    return ["".join(p) for p in itertools.product(*parts)]


class Sources:
    """All modules of a package, with what its names stand for."""

    def __init__(self, texts: list[str]) -> None:
        self.functions: dict[str, list[tuple[ast.FunctionDef, Scope]]] = defaultdict(list)
        self.calls: dict[str, list[tuple[ast.Call, Scope]]] = defaultdict(list)
        self.values: dict[tuple[int, str], list[tuple[ast.expr, Scope]]] = defaultdict(list)  # of a name in a scope
        self.constants: dict[str, list[tuple[ast.expr, Scope]]] = defaultdict(list)  # of modules
        self.attributes: dict[str, list[tuple[ast.expr, Scope]]] = defaultdict(list)
        self.said: list[tuple[ast.expr, Scope]] = []
        self.sentences: set[str] = set()
        self.seen: set[tuple[int, bool]] = set()
        self.modules = [ast.parse(text) for text in texts]
        for module in self.modules:
            self.visit(module, ())
        waiting = [(expression, scope, True) for expression, scope in self.said]
        while waiting:
            waiting += self.follow(*waiting.pop())

    # What is where.

    def visit(self, node: Node, scope: Scope) -> None:
        inner = scope
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.Lambda):
            inner = (*scope, node)
        if isinstance(node, ast.FunctionDef):
            owner = scope[-1]
            self.functions[owner.name if node.name == "__init__" and isinstance(owner, ast.ClassDef) else node.name].append(
                (node, inner)
            )
            if COLLECTED.search(node.name):
                self.said += [(value, inner) for value in returned(node)]
        elif isinstance(node, ast.Call):
            self.calls[bare(node.func)].append((node, scope))
            self.visit_call(node, scope)
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and bare(node.exc.func) not in self.functions:
            self.said += [(argument, scope) for argument in node.exc.args]
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self.bind(target, node.value, scope)
        elif isinstance(node, ast.For | ast.comprehension):
            self.bind(node.target, node.iter, scope)
        for child in ast.iter_child_nodes(node):
            self.visit(child, inner)

    def visit_call(self, node: ast.Call, scope: Scope) -> None:
        name = bare(node.func)
        if name.endswith(("Error", "Warning")) or name == "warn":
            self.said += [(argument, scope) for argument in node.args]
        if name == "unknown" and node.args:
            self.sentences |= {f"unknown {kind} {UNKNOWN}" for kind in self.render(node.args[0])}
        if name in ("append", "extend", "insert") and isinstance(node.func, ast.Attribute) and node.args:
            self.bind(node.func.value, node.args[-1], scope)
            if COLLECTED.fullmatch(bare(node.func.value)):
                self.said.append((node.args[-1], scope))
        for keyword in node.keywords:
            if keyword.arg is not None:
                self.attributes[keyword.arg].append((keyword.value, scope))
                if COLLECTED.fullmatch(keyword.arg):
                    self.said.append((keyword.value, scope))
                if name == "print" and keyword.arg == "file":
                    self.said += [(argument, scope) for argument in node.args]
        if name == "Diagnosis":
            self.said += [(argument, scope) for argument in node.args[1:]]

    def bind(self, target: Node, value: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            self.values[id(scope[-1]), target.id].append((value, scope))
            if isinstance(scope[-1], ast.Module):
                self.constants[target.id].append((value, scope))
            elif isinstance(scope[-1], ast.ClassDef):
                self.attributes[target.id].append((value, scope))
        elif isinstance(target, ast.Attribute):
            self.attributes[target.attr].append((value, scope))
        elif isinstance(target, ast.Tuple | ast.List):
            same = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            for one, part in zip(target.elts, value.elts if same else [value] * len(target.elts), strict=True):
                self.bind(one, part, scope)
        elif isinstance(target, ast.Starred | ast.Subscript):
            self.bind(target.value, value, scope)

    # What flows into a sentence.

    def render(self, node: Node) -> list[str]:
        """The sentence of an expression, or those of its alternatives."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return [node.value]
        if isinstance(node, ast.JoinedStr):
            return ["".join(p.value if isinstance(p, ast.Constant) else UNKNOWN for p in node.values)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return product(self.render(node.left), self.render(node.right))
        if isinstance(node, ast.IfExp):
            return [*self.render(node.body), *self.render(node.orelse)]
        return [UNKNOWN]

    def follow(self, node: Node, scope: Scope, whole: bool) -> Iterator[tuple[Node, Scope, bool]]:
        """Keep the sentences of an expression, and say what flows into it; `whole` if it is a message by itself, however short."""
        if (id(node), whole) in self.seen:
            return
        self.seen.add((id(node), whole))
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp | ast.IfExp):
            self.sentences |= {text for text in self.render(node) if is_sentence(text, WHOLE if whole else WORDS)}
        for part, where in self.sources_of(node, scope):
            yield part, where, whole and isinstance(node, ast.Name | ast.IfExp | ast.BoolOp)

    def sources_of(self, node: Node, scope: Scope) -> Iterator[tuple[Node, Scope]]:
        if isinstance(node, ast.Name):
            yield from self.of_name(node.id, scope)
        elif isinstance(node, ast.Attribute):
            yield from self.attributes[node.attr]
        elif isinstance(node, ast.Call):
            yield from self.of_call(node, scope)
        elif isinstance(node, ast.JoinedStr):
            yield from ((part.value, scope) for part in node.values if isinstance(part, ast.FormattedValue))
        elif isinstance(node, ast.Dict):
            yield from ((value, scope) for value in node.values)
        elif isinstance(node, ast.IfExp):
            yield from ((node.body, scope), (node.orelse, scope))
        elif isinstance(node, ast.DictComp):
            yield node.value, scope
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            yield node.elt, scope
        elif isinstance(node, ast.List | ast.Tuple | ast.Set):
            yield from ((element, scope) for element in node.elts)
        elif isinstance(node, ast.BinOp):
            for side in (node.left, node.right):  # what is written here is part of this sentence already
                written = isinstance(side, ast.Constant | ast.JoinedStr | ast.BinOp)
                yield from self.sources_of(side, scope) if written else [(side, scope)]
        elif isinstance(node, ast.BoolOp):
            yield from ((value, scope) for value in node.values)
        elif isinstance(node, ast.Starred | ast.Subscript | ast.NamedExpr | ast.FormattedValue):
            yield node.value, scope

    def of_name(self, name: str, scope: Scope) -> Iterator[tuple[Node, Scope]]:
        for depth in range(len(scope), 0, -1):
            owner = scope[depth - 1]
            found = self.values[id(owner), name]
            yield from found
            if isinstance(owner, ast.FunctionDef):
                arguments = [a.arg for a in (*owner.args.posonlyargs, *owner.args.args)]
                if name in (*arguments, *(a.arg for a in owner.args.kwonlyargs)):
                    yield from self.given(owner, scope[: depth - 1], name, arguments)
                    return
            if found:
                return
        yield from self.constants[name]

    def given(self, function: ast.FunctionDef, around: Scope, name: str, arguments: list[str]) -> Iterator[tuple[Node, Scope]]:
        """What calls of a function give for one of its arguments, and its default."""
        called = around[-1].name if function.name == "__init__" and isinstance(around[-1], ast.ClassDef) else function.name
        place = arguments.index(name) - (arguments[:1] in (["self"], ["cls"])) if name in arguments else None
        for call, where in self.calls[called]:
            if place is not None and 0 <= place < len(call.args):
                yield call.args[place], where
            yield from ((k.value, where) for k in call.keywords if k.arg == name)
        named = function.args.kwonlyargs
        defaults = dict(zip(arguments[::-1], function.args.defaults[::-1], strict=False))
        defaults |= {a.arg: d for a, d in zip(named, function.args.kw_defaults, strict=True) if d is not None}
        if name in defaults:
            yield defaults[name], around

    def of_call(self, node: ast.Call, scope: Scope) -> Iterator[tuple[Node, Scope]]:
        name = bare(node.func)
        if name in TEXT:
            yield from ((argument, scope) for argument in node.args)
            if isinstance(node.func, ast.Attribute):
                yield node.func.value, scope
            return
        for function, inside in self.functions[name]:
            if function.returns is None or SAID.search(ast.unparse(function.returns)):
                yield from ((value, inside) for value in returned(function))


def returned(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """What a function returns or yields, without functions inside."""
    waiting: list[Node] = [*function.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) and node.value is not None:
            yield node.value
        if not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def is_sentence(text: str, words: int) -> bool:
    said = [word for word in text.replace(UNKNOWN, " ").split() if re.search("[A-Za-z]", word)]
    enough = len(said) >= words or (words == WHOLE and said and UNKNOWN in text)
    return bool(enough) and not re.search(r"</?[a-z]+.*>", text)  # HTML is of the report


def listed(texts: list[str]) -> list[str]:
    """Sentences of sources, sorted."""
    return sorted({" ".join(sentence.split()) for sentence in Sources(texts).sentences}, key=lambda s: (s.lower(), s))


def current() -> list[str]:
    return listed([path.read_text(encoding="utf-8") for path in sorted(Path(tb.__file__).parent.rglob("*.py"))])


def changes(kept: list[str], now: list[str]) -> str:
    """What went and what came; empty if nothing did."""
    gone, come = ([s for s in one if s not in set(other)] for one, other in ((kept, now), (now, kept)))
    parts = [f"{len(gone)} sentences are gone:", *(f"  - {s}" for s in gone)] if gone else []
    return "\n".join(parts + ([f"{len(come)} sentences are new:", *(f"  + {s}" for s in come)] if come else []))


def test_no_sentence_goes_unseen():
    now = current()
    difference = changes(FILE.read_text(encoding="utf-8").splitlines(), now)
    assert not difference, f"{difference}\nIf this is intended: python tests/test_sentences.py --write"
    assert FILE.read_text(encoding="utf-8") == "\n".join(now) + "\n", "sentences.txt is not as --write writes it"


HELPERS = """
ADVICE = {"a": "take a smaller one.", "b": "take"}

class Part:
    remedy = "use another part."

    def __init__(self, limit="no limit at all"):
        self.limit = limit

    def message(self) -> str:
        return f"the part is broken, {self.limit}"

def refuse(value, reason):
    raise DataError(f"{value} is refused: {reason}")

def error(name: str) -> OptionError:
    return OptionError(f"no such {name}")

def quiet() -> int:
    return "this is not said"
"""

FLOWS = {
    "raise ValueError('the value is wrong')": ["the value is wrong"],
    "raise ValueError(f'{a!r} is not {b:.3g}; ' 'use ' + c)": ["{…} is not {…}; use {…}"],
    "warn('it is far too late' if late else 'it is far too early')": ["it is far too early", "it is far too late"],
    "def f(x):\n  text = 'the row'\n  if x:\n    text += ' of group g'\n  warn(text)": ["of group g", "the row"],
    "def f(x):\n  raise OptionError(f'wrong. {ADVICE[x]}')": ["take a smaller one.", "wrong. {…}"],
    "def f(part):\n  raise ModelError(f'it failed: {part.remedy}')": ["it failed: {…}", "use another part."],
    "def f(part):\n  raise ModelError(part.message())": ["no limit at all", "the part is broken, {…}"],
    "Part('at most three rows').message()\nwarn(Part().message())": [
        "at most three rows", "no limit at all", "the part is broken, {…}",
    ],
    "refuse(3, 'it has no end')": ["it has no end"],
    "refuse(value=3, reason=f'{x} has no beginning')": ["{…} has no beginning"],
    "raise unknown('sampler', name, NAMES)": ["unknown sampler {…}"],
    "def f():\n  found = []\n  found.append('the chain did not move')\n  return Diagnosis({}, tuple(found))": ["the chain did not move"],
    "def f(out):\n  out.warnings.append('weights are very uneven')": ["weights are very uneven"],
    "for sentence in ['first of all', 'last of all']:\n  warn(sentence)": ["first of all", "last of all"],
    "def f(n):\n  size = g(n)\n  raise DataError('it is', size)\ndef g(n) -> str:\n  return 'as large as this'": [
        "as large as this", "it is",
    ],
    "print('stopped before the end', file=sys.stderr)": ["stopped before the end"],
    "'a text of no error'\nx = 'nor is this one'\nprint('nor is this')": [],
    "def f():\n  raise ValueError(quiet())": [],
}  # fmt: skip


@pytest.mark.parametrize("code", FLOWS)
def test_sentences_are_found_wherever_they_are_written(code):
    always = listed([HELPERS])
    assert always == ["no such {…}", "{…} is refused: {…}"]
    assert [s for s in listed([HELPERS, code]) if s not in always] == FLOWS[code]


def test_a_difference_names_the_sentences():
    assert changes(["a b", "c d"], ["a b", "e f"]) == "1 sentences are gone:\n  - c d\n1 sentences are new:\n  + e f"
    assert changes(["a b"], ["a b"]) == ""


if __name__ == "__main__" and "--write" in sys.argv:
    before = FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else []
    FILE.write_text("\n".join(current()) + "\n", encoding="utf-8", newline="\n")
    print(changes(before, current()) or "nothing has changed")
