"""What users read is plain English: a word list catches the habits that crept in before."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "VISION.md")]
COUNTED = "evaluations?|rows|bytes|gradients|queries|samples|tasks|steps|iterations|seconds|minutes|microseconds|[nmu]s"
UNITS = "iteration|row|chain|step|draw|effective draw|gradient|density|second|pass|shard|parameter|column|worker|candidate|term"

HABITS = {
    rf"\b(?:{COUNTED}) an? (?:{UNITS})\b(?!')": "per, not a: 'rows per iteration', 'draws per chain'",
    r"\bdraws a (?:chain|shard|second|worker)\b": "draws per chain",
    r"\bfor (?:an|one|each) effective draw\b": "per effective draw",
    r"\b[Aa]n iteration (?:in \w+ )?takes\b": "per iteration: 'time per iteration is'",
    r"\b[Aa]n effective draw (?:takes|costs|needs)\b": "per effective draw",
    r"\b(?:rows an estimate|evaluations of an? (?:draw|iteration))\b(?!')": "per estimate, per draw, per iteration",
    r"\bwarn(?:s|ed)? of\b": "a warning is issued if ...",
    r"\bby want of\b": "for lack of",
    r"\banother road\b": "another way",
    r"\bof one's own\b": "your own",
    r"\bby machine\b": "automatically",
    r"\bas asked\b": "as requested",
    r"\b(?:does|do) not serve\b": "does not support",
    r"\bto have it chosen\b": "to choose it automatically",
    r"\bunless that is meant\b": "unless this is intentional",
    r"\b(?:rows|n), whatever n\b": "independent of n",
    r"\binvariant law\b": "stationary distribution, or 'targets the posterior exactly'",
    r"\bdepend on nothing else\b": "the same seed gives the same draws",
    r"\bto be looked at\b": "for study",
    r"\bdrawn anew\b": "redrawn",
    r"\bwritten aside\b": "written to a temporary file",
    r"\bso that rows are\b": "so rows are",
    r"\bgo(?:es)? by its own name\b": "is available by name",
    r"\bis no (?:usable|parameter|density|log density|ratio|text|whole)\b": "is not a",
    r"\bare no random\b": "are not random",
    r"\bserved? (?:all|by|models|priors|such)\b": "support, or 'is supported by'",
    r"\binterval holds (?:it|zero)\b": "the interval contains zero",
    r"\beverything else as it is\b": "other things being equal",
    r"\btoo seldom\b": "too rarely",
    r"\bsays? nothing about\b": "nothing can be learned about",
}
PATTERNS = {re.compile(pattern.replace(" ", r"\s+")): better for pattern, better in HABITS.items()}


def prose(page: Path) -> list[tuple[int, str]]:
    """The text of a page without its code, each block with its line."""
    text = re.sub(r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [(1, text)]


def literals(source: str) -> list[tuple[int, str]]:
    """String literals and docstrings of a module, each with its line; what an f-string inserts is left out."""
    tree = ast.parse(source)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            found.append((node.lineno, "".join(p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            found.append((node.lineno, node.value))
    return found


def habits(texts: list[tuple[int, str]]) -> list[str]:
    """What should be said otherwise, with its line."""
    return [
        f"line {line + text.count(chr(10), 0, match.start())}: {' '.join(match[0].split())!r}; better: {better}"
        for line, text in texts
        for pattern, better in PATTERNS.items()
        for match in pattern.finditer(text)
    ]


def label(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [*TOP, *sorted((ROOT / "docs").rglob("*.md"))], ids=label)
def test_pages_speak_plain_english(page: Path):
    assert not habits(prose(page))


def test_docstrings_and_messages_speak_plain_english():
    assert not [
        f"{label(path)}, {habit}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for habit in habits(literals(path.read_text()))
    ]


def test_the_word_list_finds_what_it_lists():
    assert habits([(1, "0.5 evaluations an iteration, 0.7\nfor an effective draw")]) == [
        "line 1: 'evaluations an iteration'; better: per, not a: 'rows per iteration', 'draws per chain'",
        "line 2: 'for an effective draw'; better: per effective draw",
    ]
    assert (
        len(habits(literals('def f(n):\n    """A chain\n    is warned of."""\n    raise ValueError(f"{n} draws a chain")')))
        == 2
    )
    assert not habits([(1, "the sampler draws a row; an iteration reads a row's record; half of a step")])
