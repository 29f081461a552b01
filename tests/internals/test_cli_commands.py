"""Internals of `tallbayes.cli.commands`; what users see of it is tested in test_cli.py and test_second_predictor.py."""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import logistic_arrays
from typer.testing import CliRunner

from internals.support import interrupting
from tallbayes import api
from tallbayes.cli import app, main

SMALL = ("--sampler", "mh", "--draws", "40", "--warmup", "30", "--chains", "2", "--seed", "3", "--quiet")


@pytest.fixture
def rows(tmp_path):
    X, y = logistic_arrays(300)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": X[:, 1], "y": y, "w": np.full(300, 2.0), "t": 1.0 + np.arange(300) % 3}), path)
    return path


def run_main(monkeypatch, capsys, *arguments):
    """Exit code and output of the program as installed."""
    monkeypatch.setattr(sys, "argv", ["tallbayes", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code, capsys.readouterr()


def test_control_c_before_the_first_draw(rows, monkeypatch, capsys):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "fit", interrupted)
    code, shown = run_main(monkeypatch, capsys, "fit", rows, "--formula", "y ~ x")
    assert code == 130 and "interrupted" in shown.err and shown.err.count("\n") == 1


@pytest.mark.filterwarnings("ignore:.*effective draws")  # how many there are when it is interrupted is a matter of time
@pytest.mark.parametrize("after", [0, 1])  # draws of the second chain: the first has some then
def test_control_c_never_ends_with_code_zero(rows, monkeypatch, capsys, tmp_path, after):
    """In warm-up and among the draws: exit code 130, a result if there is one, and the command that continues the run."""
    folder, options = tmp_path / "run", ("-f", "y ~ x", *SMALL, "--draws", 5000, "--cores", 1, "--json")
    with monkeypatch.context() as patch:
        interrupting(patch, 1, after, number=1)
        code, shown = run_main(patch, capsys, "fit", rows, *options, "--checkpoint", folder)
    assert code == 130 and f"continue the run with: tallbayes resume {folder}" in shown.err
    assert json.loads(shown.out)["status"] == "interrupted" if after else not shown.out
    code, shown = run_main(monkeypatch, capsys, "resume", folder, "--json", "--quiet")
    assert code == 0 and json.loads(shown.out)["status"] == "complete" and not shown.err


def test_the_command_line_takes_second_formulas(monkeypatch):

    seen = {}
    monkeypatch.setattr("tallbayes.api.fit", lambda *arguments, **options: seen.update(options) or exit(0))
    run = CliRunner()
    run.invoke(app, ["fit", "rows.csv", "-f", "y ~ x", "--family", "hurdle_poisson", "--zi", "~ z"])
    assert seen["family_options"] == {"zi": "~ z"}
    run.invoke(app, ["fit", "rows.csv", "-f", "y ~ x", "--family", "gaussian", "--sigma", "~ x"])
    assert seen["family_options"] == {"sigma": "~ x"}
    run.invoke(app, ["fit", "rows.csv", "-f", "y ~ x", "--family", "gaussian", "--sigma", "1.5"])
    assert seen["family_options"] == {"sigma": 1.5}
    refused = run.invoke(app, ["fit", "rows.csv", "-f", "y ~ x", "--sigma", "x"])
    assert "cannot read --sigma 'x'" in str(refused.exception)
