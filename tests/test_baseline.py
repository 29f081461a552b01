"""The baseline: what the file holds, ratios to it, and the sources that are compared."""

import argparse
import doctest
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import baseline, first_call, measures, options, standard
from tallbayes.models import FAMILIES
from tallbayes.samplers import SAMPLERS

UNITS = {"ns per row", "µs per iteration", "ms", "s", "min", "evaluations", "signatures", "arrays", "JAX / native"}


def check(kept):
    """The schema of the file."""
    assert set(kept) == {"commit", "date", "quick", "machine", "lines"}
    assert len(kept["commit"]) == 40 and int(kept["commit"], 16)
    assert {"processor", "cores", "python", "numpy", "numba"} <= set(kept["machine"])
    keys = [(line["section"], line["case"], line["quantity"], line["unit"]) for line in kept["lines"]]
    assert keys and len(keys) == len(set(keys))
    for line in kept["lines"]:
        assert set(line) == {"section", "case", "quantity", "unit", "value"}
        assert line["section"] in baseline.SECTIONS and line["unit"] in UNITS
        assert math.isfinite(line["value"]) and line["value"] >= 0
        assert line["value"] > 0 or line["unit"] not in ("ns per row", "ms", "s", "min")


def test_the_file_that_is_kept():
    kept = baseline.read(baseline.FILE)
    check(kept)
    assert not kept["quick"]
    bars = baseline.bars([{**line, "now": float(line["value"]), "ratio": 1.0} for line in kept["lines"]])
    assert all(bar["case"] != "not measured" for bar in bars if bar["bar"] != "make test, min")


def measured(**values):
    return {("samplers", name, "time", "µs per iteration"): value for name, value in values.items()}


def test_times_are_the_least_of_all_turns_and_counts_their_median():
    count, share = ("samplers", "a", "evaluations", "evaluations"), ("samplers", "a", "ratio", "JAX / native")
    turns = [{**measured(a=3.0), count: 5.0, share: 4.0}, {**measured(a=2.0), count: 7.0, share: 6.0}, measured(b=1.0)]
    assert baseline.combined(turns) == {**measured(a=2.0, b=1.0), count: 6.0, share: 5.0}


def test_ratios_are_new_over_old_and_show_every_turn():
    old, new = [measured(a=2.0, gone=1.0), measured(a=4.0)], [measured(a=3.0, fresh=1.0), measured(a=2.4)]
    a, gone, fresh = baseline.compared(old, new)
    assert (a["before"], a["now"]) == (2.0, 2.4) and a["ratio"] == pytest.approx(1.2)
    assert a["turns"] == "1.50 0.60"
    assert gone["now"] == "" and fresh["before"] == "" and "ratio" not in gone and "ratio" not in fresh


def line(section, case, quantity, now, ratio=None):
    return {"section": section, "case": case, "quantity": quantity, "now": now, **({} if ratio is None else {"ratio": ratio})}


def test_a_bar_is_judged_by_its_worst_case():
    lines = [
        line("samplers", "sgld", "time", 1.0, 1.04),
        line("samplers", "exact-minibatch, order 3", "time", 1.0, 1.12),
        line("samplers", "nuts", "time", 1.0, 9.0),  # is under no bar
        line("arrays", "sgld", "arrays", 12.0, 1.0),
        line("first_call", "probit", "empty cache", 9.0, 0.5),
        line("first_call", "probit", "after logistic", 1.9, 0.2),
    ]
    table = {bar["bar"]: bar for bar in baseline.bars(lines)}
    assert table["an iteration from few rows"]["met"] == "no"
    assert table["an iteration from few rows"]["case"] == "exact-minibatch, order 3"
    assert table["arrays in a target"]["met"] == "yes" and table["first calls after it, s"]["worst"] == 1.9
    assert table["make test, min"]["case"] == "not measured"


def test_every_bar_names_something_that_is_measured():
    cases = {
        "passes": measures.PASSES,
        "families": standard.FAMILIES,
        "samplers": [*measures.RUNS, "hmc-ecs, JAX over native"],
        "modes": ["gradient of 64 blocks"],
        "signatures": ["hmc-ecs, 10 kinds of model and partitions"],
        "arrays": measures.ARRAYS,
        "first_call": first_call.CASES,
        "tests": ["make test"],
    }
    for bar in baseline.BARS:
        for pattern in bar.cases:
            assert any(baseline.fnmatch(case, pattern) for case in cases[bar.section]), (bar.what, pattern)


def test_every_sampler_and_family_is_measured():
    names = {run.sampler if isinstance(run.sampler, str) else run.sampler().name for run in measures.RUNS.values()}
    assert set(SAMPLERS) == names
    assert {name.split()[0] for name in standard.FAMILIES} == set(FAMILIES)


def test_a_file_is_written_read_and_renewed_in_parts(tmp_path, monkeypatch):
    file, commit = tmp_path / "baseline.json", "a" * 40
    other = {("tests", "make test", "time", "min"): 21.5}
    baseline.write(file, {**measured(a=2.0, b=1.0), **other}, commit, False, ("samplers", "tests"))
    check(baseline.read(file))
    baseline.write(file, measured(a=1.23456789), commit, False, ("samplers",))
    assert baseline.lines_of(baseline.read(file)) == {**measured(a=1.23457), **other}

    monkeypatch.setattr(baseline, "git", lambda *_: "src/tallbayes/api.py")  # other sources: nothing old stays
    baseline.write(file, measured(c=1.0), "b" * 40, False, ("samplers",))
    assert baseline.lines_of(baseline.read(file)) == measured(c=1.0)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository of two commits, whose sources differ."""
    root = tmp_path / "repository"
    (root / "src" / "tallbayes").mkdir(parents=True)
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]

    def commit(text):
        (root / "src" / "tallbayes" / "__init__.py").write_text(text)
        for arguments in (["add", "-A"], [*who, "commit", "-q", "-m", text]):
            subprocess.run(["git", *arguments], cwd=root, check=True)
        return subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, check=True, capture_output=True, text=True).stdout.strip()

    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    monkeypatch.setattr(baseline, "ROOT", root)
    return root, [commit("FIRST = 1\n"), commit("SECOND = 2\n")]


def test_sources_of_a_commit_are_unpacked_once(repository):
    root, (first, second) = repository
    source = baseline.checkout(first[:8])
    assert (source / "tallbayes" / "__init__.py").read_text() == "FIRST = 1\n"
    (source / "compiled").touch()
    assert baseline.checkout(first) == source and (source / "compiled").exists()  # what was compiled there is kept
    assert (baseline.checkout(second) / "tallbayes" / "__init__.py").read_text() == "SECOND = 2\n"
    assert (root / "src" / "tallbayes" / "__init__.py").read_text() == "SECOND = 2\n"
    with pytest.raises(SystemExit, match="rev-parse"):
        baseline.checkout("no-such-commit")


def test_only_committed_sources_of_this_repository_are_kept(repository, monkeypatch, tmp_path):
    root, (_, second) = repository
    monkeypatch.setattr(baseline, "source", lambda: root / "src")
    assert baseline.committed(baseline.FILE, quick=False) == second
    (root / "src" / "tallbayes" / "__init__.py").write_text("CHANGED = 3\n")
    with pytest.raises(SystemExit, match="not committed"):
        baseline.committed(baseline.FILE, quick=False)
    monkeypatch.setattr(baseline, "source", lambda: tmp_path)
    with pytest.raises(SystemExit, match="PYTHONPATH"):
        baseline.committed(baseline.FILE, quick=False)
    with pytest.raises(SystemExit, match="--quick"):
        baseline.committed(baseline.FILE, quick=True)


def test_both_versions_take_turns(repository, monkeypatch, capsys):
    root, (first, _) = repository
    turns = []

    def stub(source, section, given):
        turns.append((section, source.parent.name if source != root / "src" else "now"))
        return {(section, "a", "gradient", "ns per row"): 1.0 + (source == root / "src")}

    monkeypatch.setattr(baseline, "measured", stub)
    monkeypatch.setattr(baseline, "source", lambda: root / "src")
    options = {
        "only": ["passes", "arrays"],
        "rounds": 2,
        "against": first,
        "tests": None,
        "run_tests": False,
        "file": root / "x",
    }
    baseline.against(argparse.Namespace(**options))
    old = first[:12]
    assert turns == [("passes", old), ("passes", "now")] * 2 + [("arrays", old), ("arrays", "now")]
    assert "2.00" in capsys.readouterr().out


def test_a_section_runs_with_the_sources_it_is_given(tmp_path):
    (tmp_path / "tallbayes").mkdir()
    (tmp_path / "tallbayes" / "__init__.py").write_text("raise RuntimeError('these sources')\n")
    with pytest.raises(SystemExit, match="failed with status 1"):
        baseline.measured(tmp_path, "arrays", argparse.Namespace(cases="", repeats=1, quick=True))


def test_arrays_are_counted_at_any_depth_and_time_is_the_least():
    assert measures.arrays((np.zeros(2), [np.zeros(2)], (1, (np.zeros(3), 2.0)))) == 2
    clock = iter([0.0, 5.0, 10.0, 12.0, 20.0, 29.0])
    assert measures.least(lambda: None, 3, lambda: next(clock)) == 2.0


@pytest.mark.parametrize("module", [baseline, measures, options], ids=lambda m: m.__name__)
def test_examples_in_docstrings(module):
    found = doctest.testmod(module)
    assert found.attempted and not found.failed


def test_a_quick_run_has_its_own_defaults_and_keeps_nothing():
    def parser():
        made = argparse.ArgumentParser()
        made.add_argument("--rows", type=int, default=10**6)
        made.add_argument("names", nargs="*", default=[])
        made.add_argument("--write", action="store_true")
        return made

    assert vars(options.parsed(parser(), [], rows=5)) == {"rows": 10**6, "names": [], "write": False, "quick": False}
    given = options.parsed(parser(), ["--quick"], rows=5, names=["a"])
    assert (given.rows, given.names) == (5, ["a"])
    assert options.parsed(parser(), ["--quick", "--rows", "7"], rows=5).rows == 7
    with pytest.raises(SystemExit):
        options.parsed(parser(), ["--quick", "--write"], rows=5)


def test_lines_of_measures_are_read_as_they_are_printed():
    printed = json.dumps(measures.Line("passes", "logistic", "value", "ns per row", 8.5))
    assert baseline.collected([json.loads(printed)]) == {("passes", "logistic", "value", "ns per row"): 8.5}
