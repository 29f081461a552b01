"""The list of experiments and the scoreboard: nothing left out, nothing that differs from the tables."""

import ast
import importlib
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import report
from experiments import all as everything
from experiments import scoreboard

ROOT = Path(__file__).parent.parent
ITEMS = tomllib.loads(scoreboard.FILE.read_text())["item"]


def scripts():
    return {p.stem for p in (ROOT / "experiments").glob("*.py") if "__main__" in p.read_text()} - {"all", "scoreboard"}


def test_the_list_has_every_experiment_once():
    names = [e.name for e in scoreboard.experiments()]
    assert len(names) == len(set(names)) and set(names) == scripts()
    assert all(e.minutes > 0 and e.quick > 0 and e.reproduces for e in scoreboard.experiments())


def test_every_experiment_has_a_quick_run():
    for name in scripts():
        text = (ROOT / "experiments" / f"{name}.py").read_text()
        assert '"--quick"' in text or re.search(r"\barguments\(\s*__doc__", text), name
    assert sum(e.quick for e in scoreboard.experiments()) <= 20 * 60


def test_scripts_import_names_that_exist():
    for folder in ("experiments", "benchmarks"):
        for script in (ROOT / folder).glob("*.py"):
            for node in ast.walk(ast.parse(script.read_text())):
                if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tallbayes":
                    module = importlib.import_module(node.module)
                    for alias in node.names:
                        inside = hasattr(module, "__path__") and importlib.util.find_spec(f"{node.module}.{alias.name}")
                        assert hasattr(module, alias.name) or inside, f"{script.name}: {node.module} has no {alias.name}"


@pytest.mark.parametrize("item", ITEMS, ids=lambda i: f"{i['paper']} {i['what']}")
def test_an_item_says_where_its_numbers_come_from(item):
    assert item["outcome"] in scoreboard.OUTCOMES
    if item["outcome"] in ("reproduced", "in part", "not reproduced"):
        assert item["published"] and item["ours"] and item["setting"]
        page, _, anchor = item["page"].partition("#")
        text = (ROOT / "docs" / "results" / page).read_text()
        headings = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
        slugs = ["".join(c for c in h.lower() if c.isalnum() or c in " -").replace(" ", "-") for h in headings]
        assert anchor in slugs, anchor


def test_the_printed_scoreboard_is_that_of_the_tables():
    rows = scoreboard.rows()
    printed = scoreboard.cells("scoreboard")
    assert [r["ours"] for r in rows] == [r["ours"] for r in printed]
    assert [r["outcome"] for r in rows] == [r["outcome"] for r in printed]
    assert scoreboard.note() in report.block("scoreboard")


def test_a_cell_that_does_not_exist_is_an_error():
    with pytest.raises(SystemExit, match="no line"):
        scoreboard.filled("{s3-mnist; no such algorithm; bright}")


def test_finished_experiments_are_not_run_again(tmp_path, monkeypatch):
    run = []
    monkeypatch.setattr(
        subprocess, "call", lambda command, **_: run.append(command[2]) or (1 if command[2].endswith("zeta") else 0)
    )
    found = [scoreboard.Experiment(name, 1.0, 1.0, "nothing") for name in ("alpha", "zeta")]
    assert everything.run_all(found, "quick", False, False, tmp_path) == 1
    assert run == ["experiments.alpha", "experiments.zeta"]
    assert json.loads((tmp_path / "finished.json").read_text())["alpha quick"]["status"] == 0
    assert everything.run_all(found, "quick", False, False, tmp_path) == 1
    assert run[2:] == ["experiments.zeta"]  # what failed is run again
    everything.run_all(found, "full", False, False, tmp_path)
    everything.run_all(found, "quick", False, True, tmp_path)
    assert run[3:] == ["experiments.alpha", "experiments.zeta"] * 2


def test_options_of_a_run():
    item = scoreboard.Experiment("hmc_ecs", 1.0, 1.0, "Tables", ("--n", "5"))
    assert everything.command(item, "quick", True)[3:] == ["--quick"]
    assert everything.command(item, "full", True)[3:] == ["--n", "5", "--write"]
