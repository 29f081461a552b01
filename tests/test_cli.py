"""The command line: from a file to a saved fit, and errors in one line."""

import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import logistic_arrays, start_python
from typer.testing import CliRunner

import tallbayes as tb
from tallbayes.cli import app, main
from tallbayes.samplers import Diagnosis

SMALL = ("--sampler", "mh", "--draws", "40", "--warmup", "30", "--chains", "2", "--seed", "3", "--quiet")


@pytest.fixture
def rows(tmp_path):
    X, y = logistic_arrays(300)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": X[:, 1], "y": y, "w": np.full(300, 2.0), "t": 1.0 + np.arange(300) % 3}), path)
    return path


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def run_main(monkeypatch, capsys, *arguments):
    """Exit code and output of the program as installed."""
    monkeypatch.setattr(sys, "argv", ["tallbayes", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code, capsys.readouterr()


def test_fit_from_a_file_to_a_saved_fit(rows, tmp_path):
    result = invoke("fit", rows, "--formula", "y ~ x", *SMALL, "--out", tmp_path / "fit.nc", "--json")
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    fit = tb.load(tmp_path / "fit.nc")
    model = tb.models.logistic(tb.read(rows, "y ~ x", progress=False))
    expected = tb.sample(model, "mh", draws=40, warmup=30, chains=2, seed=3, progress=False)
    np.testing.assert_array_equal(fit.theta, expected.theta)
    assert list(printed["summary"]) == ["Intercept", "x"]
    assert printed["summary"]["x"]["mean"] == pytest.approx(fit.theta[:, :, 1].mean())
    assert printed["cost"]["draws"]["evals"] == 300 * 2 * 40
    assert printed["status"] == "complete" and printed["guarantee"].startswith("EXACT")


def test_an_expression_takes_the_place_of_a_family(rows, tmp_path):
    options = (
        "--expression",
        "y*eta - k*log(1 + exp(eta))",
        "--constant",
        "k=1",
        "--mean",
        "expit(eta)",
        "--support",
        "binary",
    )
    assert invoke("fit", rows, "-f", "y ~ x", *options, *SMALL, "--out", tmp_path / "fit.nc").exit_code == 0
    fit = tb.load(tmp_path / "fit.nc")
    named = tb.models.logistic(tb.read(rows, "y ~ x", progress=False))
    expected = tb.sample(named, "mh", draws=40, warmup=30, chains=2, seed=3, progress=False)
    np.testing.assert_allclose(fit.theta, expected.theta, atol=1e-6)
    assert fit.meta["model"]["options"]["constants"] == {"k": 1.0}
    shown = invoke("predict", tmp_path / "fit.nc", rows, "--kind", "response", "--json")
    ends = {row["lower"] for row in json.loads(shown.stdout)} | {row["upper"] for row in json.loads(shown.stdout)}
    assert ends == {0.0, 1.0}


@pytest.mark.slow
def test_fit_with_group_effects_keeps_what_is_asked_for(rows, tmp_path):
    formula, length = "x ~ (1 | t)", ("--draws", 40, "--warmup", 30, "--chains", 2, "--seed", 3, "--quiet")
    fixed = ("fit", rows, "-f", formula, "--family", "gaussian", *length, "-o", tmp_path / "fit", "--plots", tmp_path / "plots")
    result = invoke(*fixed, "--keep", "summary")
    assert result.exit_code == 0 and "1|t_sigma" in result.stdout
    assert "levels.png" in os.listdir(tmp_path / "plots")
    assert tb.load(tmp_path / "fit.nc").levels["1|t"].values.shape[2] == 3
    with pytest.raises(tb.OptionError, match=r"unknown term in keep= '1\|u'"):
        invoke(*fixed, "--keep", "1|u")


def test_fit_prints_a_table_and_saves_plots(rows, tmp_path):
    result = invoke("fit", rows, "-f", "y ~ x", *SMALL, "-o", tmp_path / "fit", "--plots", tmp_path / "plots")
    assert "logistic model of 300 rows, prior weakly_informative (the default)" in result.stdout
    assert f"saved to {tmp_path / 'fit.nc'}" in result.stdout
    assert sorted(os.listdir(tmp_path / "plots")) == ["cost.png", "forest.png", "marginals.png", "trace.png"]


def test_options_reach_the_sampler(rows, tmp_path):
    options = ("--prior", "cauchy:1.5", "--thin", "2", "--weights", "w", "--cores", "1", "--guarantee", "exact")
    invoke("fit", rows, "-f", "y ~ x", *SMALL, *options, "-o", tmp_path / "fit.nc")
    fit = tb.load(tmp_path / "fit.nc")
    assert fit.meta["prior"] == "cauchy(location=0, scale=1.5)" and fit.thin == 2 and fit.meta["seed"] == 3
    model = tb.models.logistic(tb.read(rows, "y ~ x", weights="w", progress=False), tb.priors.cauchy(1.5))
    expected = tb.sample(model, "mh", draws=40, warmup=30, chains=2, seed=3, thin=2, progress=False)
    np.testing.assert_array_equal(fit.theta, expected.theta)


def test_json_has_no_nan(rows):
    result = invoke("fit", rows, "-f", "y ~ x", "--sampler", "mh", "--draws", 2, "--warmup", 2, "--chains", 1, "-q", "--json")

    def refuse(constant):
        raise ValueError(constant)

    assert json.loads(result.stdout, parse_constant=refuse)["cost"]["ess_min"] is None


def test_resume_and_summary(rows, tmp_path):
    run = tmp_path / "run"
    invoke("fit", rows, "-f", "y ~ x", *SMALL, "--checkpoint", run)
    invoke("resume", run, "--draws", 60, "--out", tmp_path / "longer.nc", "--quiet")
    longer = tb.load(tmp_path / "longer.nc")
    assert longer.theta.shape == (2, 60, 2)
    model = tb.models.logistic(tb.read(rows, "y ~ x", progress=False))
    np.testing.assert_array_equal(
        longer.theta, tb.sample(model, "mh", draws=60, warmup=30, chains=2, seed=3, progress=False).theta
    )
    shown = invoke("summary", tmp_path / "longer.nc")
    assert shown.stdout.strip() == repr(longer.summary())
    printed = json.loads(invoke("summary", tmp_path / "longer.nc", "--json").stdout)
    assert printed["cost"]["draws"]["iterations"] == 120


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--sampler", "mhh"), "unknown sampler 'mhh'; did you mean 'mh'?"),
        (("--family", "logistik"), "unknown family 'logistik'; did you mean 'logistic'?"),
        (("--sigma", "1"), "sigma= is an option of gaussian and student_t; give family= as well"),
        (("--guarantee", "exakt"), "did you mean 'exact'?"),
        (("--prior", "norml:1"), "did you mean 'normal'?"),
        (("--draws", "0"), "draws must be a whole number of at least 1"),
        (("--formula", "y ~ z"), "z"),
        (("--memory", "rom"), "did you mean 'ram'?"),
        (("--support", "binary"), "add --expression"),
        (("--expression", "y*eta - softplus(eta)", "--family", "probit"), "remove --family probit"),
        (
            ("--expression", "y*eta - p*softplus(eta)", "--constant", "p:1"),
            "cannot read the constant 'p:1'; write it like p=0.3",
        ),
        (("--expression", "y*eta - logit(eta)"), "unknown function in the expression 'logit'"),
        (("--expression", "y*eta - p*softplus(eta)"), "'p'"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_errors_are_one_line_with_the_remedy(rows, monkeypatch, capsys, arguments, message):
    code, shown = run_main(monkeypatch, capsys, "fit", rows, "--formula", "y ~ x", "--quiet", *arguments)
    assert code == 1 and not shown.out
    assert shown.err.startswith("tallbayes: ") and shown.err.count("\n") == 1
    assert message in shown.err


@pytest.mark.parametrize("command", ["summary", "resume"])
def test_missing_files_are_named(tmp_path, monkeypatch, capsys, command):
    code, shown = run_main(monkeypatch, capsys, command, tmp_path / "nowhere")
    assert code == 1 and shown.err.count("\n") == 1 and str(tmp_path / "nowhere") in shown.err


def test_usage_and_help(monkeypatch, capsys):
    assert run_main(monkeypatch, capsys, "fit")[0] == 2
    code, shown = run_main(monkeypatch, capsys, "--help")
    assert code == 0
    for command in ("fit", "resume", "summary", "predict", "report", "compare", "demo"):
        assert command in shown.out


def test_the_program_runs_in_a_process_of_its_own(rows, tmp_path):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    good = start_python("-m", "tallbayes.cli", "fit", rows, "-f", "y ~ x", *SMALL, "--json", **options)
    bad = start_python("-m", "tallbayes.cli", "fit", tmp_path / "no.parquet", "-f", "y ~ x", **options)
    out, err = good.communicate()
    assert good.returncode == 0 and not err and json.loads(out)["status"] == "complete"
    out, err = bad.communicate()
    assert bad.returncode == 1 and not out
    assert err == f"tallbayes: {tmp_path / 'no.parquet'} does not exist.\n"


def test_the_demo_shows_table_plots_and_cost(tmp_path):
    result = invoke("demo", "--folder", tmp_path / "demo", "--rows", 5000, "--quiet")
    assert result.exit_code == 0
    for text in ("5,000 rows", "chosen: ", "Intercept", "truth", "evaluations per iteration"):
        assert text in result.stdout
    assert {"clicks.parquet", "cost.png", "fit.nc", "marginals.png", "trace.png"} <= set(os.listdir(tmp_path / "demo"))
    fit = tb.load(tmp_path / "demo" / "fit.nc")
    truth = np.array([-1.0, 0.8, -0.5, 0.3, 0.0, 0.15, -1.1, 0.4, 0.0])
    flat = fit.theta.reshape(-1, 9)
    assert np.abs((flat.mean(0) - truth) / flat.std(0)).max() < 4.9


def test_shards_of_a_folder(tmp_path):
    X, y = logistic_arrays(1200)
    for k in range(3):
        part = slice(400 * k, 400 * (k + 1))
        pq.write_table(pa.table({"x": X[part, 1], "y": y[part]}), tmp_path / f"{k}.parquet")
    arguments = (tmp_path / "*.parquet", "-f", "y ~ x", "--sampler", "mh", "--draws", 400, "--seed", 3, "--json", "--quiet")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.TallbayesWarning)
        shown = json.loads(invoke("shards", *arguments, "--combine", "gaussian", "--shards", 2).stdout)
    assert shown["guarantee"].startswith("HEURISTIC") and set(shown["summary"]) == {"Intercept", "x"}


def test_the_version_is_printed(monkeypatch, capsys):
    code, shown = run_main(monkeypatch, capsys, "--version")
    assert code == 0 and shown.out == f"tallbayes {tb.__version__}\n"


def test_options_of_a_family(rows, tmp_path):
    invoke("fit", rows, "-f", "t ~ x", "--family", "gamma", "--option", "shape=2.5", *SMALL, "-o", tmp_path / "fit.nc")
    fit = tb.load(tmp_path / "fit.nc")
    assert fit.meta["model"]["options"] == {"shape": 2.5}
    assert "gamma(shape=2.5) model of 300 rows" in repr(fit.summary())


def test_an_unknown_option_of_a_family(rows, monkeypatch, capsys):
    arguments = ("fit", rows, "-f", "w ~ x", "--family", "gamma", "--option", "shpe=2", "--quiet")
    code, shown = run_main(monkeypatch, capsys, *arguments)
    assert code == 1 and "did you mean 'shape'?" in shown.err and shown.err.count("\n") == 1


def test_errors_of_the_system_are_one_line(rows, tmp_path, monkeypatch, capsys):
    (tmp_path / "plots").write_text("a file where a folder should be")
    code, shown = run_main(monkeypatch, capsys, "fit", rows, "-f", "y ~ x", *SMALL, "--plots", tmp_path / "plots")
    assert code == 1 and shown.err.startswith("tallbayes: ") and shown.err.count("\n") == 1
    assert str(tmp_path / "plots") in shown.err


def test_warnings_are_one_line_and_in_json(rows, monkeypatch, capsys):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # restored afterwards
    monkeypatch.setattr(
        tb.samplers.FullData, "diagnose", lambda *given: Diagnosis(warnings=("the draws are doubtful; run longer.",))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("always", tb.TallbayesWarning)
        code, shown = run_main(monkeypatch, capsys, "fit", rows, "-f", "y ~ x", *SMALL, "--json")
    assert code == 0 and shown.err == "tallbayes: warning: the draws are doubtful; run longer.\n"
    assert "the draws are doubtful; run longer." in json.loads(shown.out)["warnings"]


def test_the_reason_for_an_automatic_choice_is_printed(rows):
    shown = invoke("fit", rows, "-f", "y ~ x", "--draws", 20, "--warmup", 20, "--seed", 1, "--quiet").stdout
    assert "auto chose " in shown


def test_a_demo_without_rows(tmp_path, monkeypatch, capsys):
    code, shown = run_main(monkeypatch, capsys, "demo", "--rows", 0, "--folder", tmp_path / "demo")
    assert code == 1 and shown.err == "tallbayes: the demo needs at least one row; got --rows 0.\n"


def test_prediction_reads_what_fit_reads(rows, tmp_path):
    invoke("fit", rows, "-f", "y ~ x", *SMALL, "-o", tmp_path / "fit.nc")
    (tmp_path / "new.csv").write_text("x\n0.5\n-0.5\n")
    made = json.loads(invoke("predict", tmp_path / "fit.nc", tmp_path / "new.csv", "--json").stdout)
    assert len(made) == 2 and made[0]["mean"] > made[1]["mean"]


def test_predictions_carry_the_columns_that_identify_rows(rows, tmp_path):
    invoke("fit", rows, "-f", "y ~ x", *SMALL, "-o", tmp_path / "fit.nc")
    (tmp_path / "new.csv").write_text("x,who,when\n0.5,ann,1\n-0.5,bob,2\n")
    arguments = ("predict", tmp_path / "fit.nc", tmp_path / "new.csv", "--id", "who", "--id", "when", "--json")
    made = json.loads(invoke(*arguments).stdout)
    assert [(row["who"], row["when"]) for row in made] == [("ann", 1), ("bob", 2)]


def test_missing_values_group_terms_and_aliases_on_the_command_line(tmp_path):
    X, y = logistic_arrays(300)
    ages = pa.array(X[:, 1], mask=np.arange(300) < 3)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": ages, "y": y, "shop": [f"s{k % 5}" for k in range(300)]}), path)
    with pytest.raises(tb.DataError, match="3 of 300 rows have some"):
        invoke("fit", path, "-f", "y ~ x", *SMALL)
    assert (
        invoke("fit", path, "-f", "y ~ x", "--family", "bernoulli", "--na", "drop", *SMALL, "-o", tmp_path / "a.nc").exit_code
        == 0
    )
    fit = tb.load(tmp_path / "a.nc")
    assert (fit.meta["rows"], fit.meta["dropped"], fit.meta["model"]["family"]) == (297, 3, "logistic")
    assert "3, for missing values" in fit.report(tmp_path / "a.html", plots=False).read_text()
    with pytest.raises(tb.ModelError, match="minibatch-gibbs"):
        invoke("fit", path, "-f", "y ~ x + (1 | shop)", "--na", "drop", *SMALL)


def test_a_run_that_stopped_early_says_how_to_go_on(rows, tmp_path):
    options = (*SMALL, "--draws", 10_000_000, "--max-seconds", 0.2, "--checkpoint", tmp_path / "run")
    assert f"continue the run with: tallbayes resume {tmp_path / 'run'}" in invoke("fit", rows, "-f", "y ~ x", *options).stderr
