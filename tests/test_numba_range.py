"""Continuous integration runs the tests on the oldest and on the newest version of Numba that pyproject.toml allows."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def ends(requirement):
    """The oldest and the newest minor version of a range such as numba>=0.61,<0.69."""
    major, first, _, last = map(int, re.fullmatch(r"numba>=(\d+)\.(\d+),<(\d+)\.(\d+)", requirement).groups())
    return [f"{major}.{first}.*", f"{major}.{last - 1}.*"]


def test_both_ends_of_the_range_of_numba_are_tested():
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (requirement,) = [d for d in dependencies if d.startswith("numba")]
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    (matrix,) = re.findall(r"^ +numba: \[(.*?)\]", workflow, re.MULTILINE)
    assert re.findall(r'"(.*?)"', matrix) == ends(requirement)
    assert re.search(r'make test .*NUMBA="numba==\$\{\{ matrix\.numba \}\}"', workflow)
    assert "$(if $(NUMBA),'$(NUMBA)')" in (ROOT / "Makefile").read_text()
