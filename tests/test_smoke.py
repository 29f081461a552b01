"""Every script of experiments and benchmarks has a quick run, which goes through all of its code and writes nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tallbayes as tb

ROOT = Path(__file__).parent.parent
BUT = {
    "experiments.all": "runs the others",
    "experiments.scoreboard": "prints what the others left on the pages of results",
}
HANGS = 3600.0  # seconds after which a script has not only been slow
MORE = {"benchmarks.matrix": ["families", "--only", "logistic", "--cells", "fixed"]}  # what a script cannot do without


def scripts(root=ROOT):
    """Modules that can be run."""
    found = [p for folder in ("experiments", "benchmarks") for p in sorted((root / folder).glob("*.py"))]
    return [
        f"{p.parent.name}.{p.stem}" for p in found if re.search(r'^if __name__ == "__main__":', p.read_text(), re.MULTILINE)
    ]


def has_quick_run(text):
    """Whether a script takes `--quick`, by itself or through the parser that it shares with others."""
    shared = r"\b(?:parsed\(\s*parser|arguments\(\s*__doc__)"
    return re.search(rf'"--quick"|{shared}', text) is not None


def why_skipped(output):
    """What a script that ended early lacks, and which no failure of its own can be; empty if it lacks nothing."""
    last = (output.strip().splitlines() or [""])[-1]
    if "TALLBAYES_DATA" in last and not os.environ.get("TALLBAYES_DATA"):
        return "TALLBAYES_DATA names no folder of real data"
    module = re.match(r"ModuleNotFoundError: No module named '(?!tallbayes|benchmarks|experiments)(\w+)", last)
    if module:
        return f"{module[1]} is not installed"
    compiler = re.match(r"No C compiler", last)
    return "there is no C compiler" if compiler else ""


def contents(folder):
    """Files that a script might write, with the times of their last changes."""
    parts = [folder / name for name in ("docs", "experiments", "benchmarks")]
    return {p: p.stat().st_mtime_ns for part in parts for p in part.rglob("*") if p.is_file() and "__pycache__" not in p.parts}


def test_every_script_has_a_quick_run():
    without = [
        n for n in scripts() if n not in BUT and not has_quick_run((ROOT / n.replace(".", "/")).with_suffix(".py").read_text())
    ]
    assert not without
    assert set(BUT) <= set(scripts()) and len(scripts()) > 50


def test_a_script_without_one_is_found(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "new.py").write_text('print(1)\n\nif __name__ == "__main__":\n    print("--slow")\n')
    (tmp_path / "benchmarks" / "shared.py").write_text("parser = 1  # no script\n")
    assert scripts(tmp_path) == ["benchmarks.new"]
    assert not has_quick_run((tmp_path / "benchmarks" / "new.py").read_text())
    assert has_quick_run("options = parsed(parser, rows=2000)") and has_quick_run("arguments(\n    __doc__, n=3)")


def test_only_what_is_not_here_is_skipped(monkeypatch):
    monkeypatch.delenv("TALLBAYES_DATA", raising=False)
    assert "TALLBAYES_DATA" in why_skipped("Traceback\nKeyError: 'TALLBAYES_DATA'")
    assert why_skipped("ModuleNotFoundError: No module named 'lifelines'") == "lifelines is not installed"
    for failure in ("ModuleNotFoundError: No module named 'tallbayes.engine.passes'", "ValueError: TALL", "", "KeyError: 'x'"):
        assert not why_skipped(failure)
    monkeypatch.setenv("TALLBAYES_DATA", "/somewhere")
    assert not why_skipped("KeyError: 'TALLBAYES_DATA'")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in scripts() if name not in BUT])
def test_a_quick_run(name, tmp_path):
    paths = os.pathsep.join([str(Path(tb.__file__).parents[1]), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "TMPDIR": str(tmp_path), "TALLBAYES_COMPILE_AHEAD": "0"}
    environment["TALLBAYES_STORE"] = str(tmp_path / "stores")
    before = contents(ROOT)
    command = [sys.executable, "-m", name, *MORE.get(name, []), "--quick"]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, cwd=tmp_path, env=environment, timeout=HANGS, **output)
    if done.returncode and (reason := why_skipped(done.stdout)):
        pytest.skip(reason)
    assert done.returncode == 0, done.stdout[-3000:]
    assert contents(ROOT) == before, "a quick run writes into the repository"
