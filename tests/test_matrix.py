"""The two matrices of what composes: their cells, checkers that can fail, what is kept, and the page."""

import json
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import integrate

import tallbayes as tb
from benchmarks import matrix, matrix_answers, matrix_checks, matrix_direct, matrix_families, matrix_page, matrix_record
from benchmarks.matrix_kinds import KINDS, Fits

Wrong = matrix_checks.Wrong


def test_no_cell_is_lost():
    families, answers = matrix_families.cells(), matrix_answers.cells()
    assert len(set(families)) == len(families) >= 235
    assert len(set(answers)) == len(answers) >= 288
    assert len(matrix_families.FAMILIES) >= 19 and len(matrix_families.STRUCTURES) >= 13
    assert len(KINDS) >= 14 and len(matrix_answers.QUESTIONS) >= 21


def test_every_cell_that_is_left_out_has_a_reason():
    left_out = {(f, s) for f in matrix_families.FAMILIES for s in matrix_families.STRUCTURES} - set(matrix_families.cells())
    assert left_out == {(f, s) for f in ("logistic", "probit", "poisson", "binomial", "ordinal", "softmax") for s in
                        ("second~x", "second~x+(1|g)")}  # fmt: skip
    assert all(matrix_families.meaningless(*cell) for cell in left_out)
    left_out = {(k, q) for k in KINDS for q in matrix_answers.QUESTIONS} - set(matrix_answers.cells())
    assert {q for _, q in left_out} == {"comparisons c"} and len(left_out) == 6
    assert all(matrix_answers.meaningless(*cell) for cell in left_out)


def test_families_are_those_of_the_package():
    made = {name for name in tb.models.FAMILIES if name not in ("expression", "normal", "class_gaussian")}  # without columns
    described = {name: tb.models.family_of({"family": name, "options": {}}) for name in made}
    assert set(matrix_families.FAMILIES) == {name for name, family in described.items() if family.response != "series"}


def test_the_page_is_current():
    results = matrix_record.load()
    assert matrix_page.PAGE.read_text() == matrix_page.page(results), "run python -m benchmarks.matrix page --write"


def test_the_page_names_what_is_wrong_raw_or_unmixed():
    fitted = {"outcome": "unchecked", "commit": "abc", "n": 9, "sampler": "nuts", "evaluations": 3.0}
    results = {part: {} for part in matrix_record.PARTS}
    results["families"] = {
        "gamma": {
            "fixed": {**fitted, "outcome": "wrong", "z": 7.5, "of": "x", "r_hat": 1.0},
            "smooth": {**fitted, "r_hat": 1.2},
            "(1|g)": {"outcome": "raw", "error": "KeyError", "message": "'x'", "commit": "abc", "n": 9},
        }
    }
    page = matrix_page.page(results)
    assert "* `fixed` of gamma: x is 7.5 standard errors from NUTS" in page
    assert "* `(1\\|g)` of gamma: KeyError: 'x'" in page
    assert "* `smooth` of gamma: R-hat 1.2 with nuts" in page
    assert "2 fit: 0 agree with NUTS, 1 are models that NUTS does not support, 0 were not compared, 1 are wrong." in page
    results["few rows"] = {"gamma": {"smooth": {**fitted, "outcome": "fits", "evaluations": 0.09}}}
    assert "0 fit from few rows" in page and "1 fit from few rows" in matrix_page.page(results)


def test_what_is_kept_belongs_to_cells():
    results = matrix_record.load()
    known = {"families": matrix_families.cells(), "few rows": matrix_families.cells(), "answers": matrix_answers.cells()}
    for part, rows in results.items():
        kept = {(row, column) for row, cells in rows.items() for column in cells}
        assert kept <= set(known[part])
        outcomes = {cell["outcome"] for cells in rows.values() for cell in cells.values()}
        assert outcomes <= set(matrix_page.MARKS)
        assert all(cell["commit"] and cell["n"] for cells in rows.values() for cell in cells.values())


def test_a_cell_is_a_line_of_the_file(tmp_path):
    path = tmp_path / "matrix.json"
    matrix_record.keep("answers", "smooth", "loo", {"outcome": "green"}, path)
    before = path.read_text().splitlines()
    matrix_record.keep("answers", "smooth", "ppc", {"outcome": "refused", "message": "a – b"}, path)
    after = path.read_text().splitlines()
    assert len(after) == len(before) + 1 and json.loads(path.read_text()) == matrix_record.load(path)
    assert matrix_record.load(path)["answers"] == {
        "smooth": {"loo": {"outcome": "green"}, "ppc": {"outcome": "refused", "message": "a – b"}}
    }


def made_up(shift=0.0, sampler="exact-minibatch", dim=2, draws=1000):
    """What the comparison needs of a fit, from independent draws."""
    rng = np.random.default_rng(abs(hash((shift, sampler))) % 2**32)
    theta = rng.standard_normal((2, draws, dim))
    theta[:, :, -1] += shift
    return SimpleNamespace(
        theta=theta, names=("a", "b")[:dim], derived=dict, meta={"sampler_name": sampler}, guarantee=SimpleNamespace(kind="EXACT"),
        evals=np.full((2, draws), 7), r_hat=np.ones(dim), status="complete",
    )  # fmt: skip


@pytest.mark.parametrize(
    "ours, nuts, expected",
    [
        (made_up(), made_up(sampler="nuts"), "green"),
        (made_up(0.5), made_up(sampler="nuts"), "wrong"),
        (made_up(), tb.ModelError("no such model"), "unchecked"),
        (made_up(), TypeError("a defect"), "raw"),
        (tb.ModelError("no such model"), None, "refused"),
        (TypeError("a defect"), None, "raw"),
    ],
)
def test_outcomes_of_a_family(monkeypatch, ours, nuts, expected):
    def fitted(family, structure, rows, sampler, seed, **run):
        fit = ours if sampler == "auto" else nuts
        if isinstance(fit, Exception):
            raise fit
        return fit

    monkeypatch.setattr(matrix_families, "fitted", fitted)
    cell = matrix_families.checked("logistic", "fixed", matrix.QUICK, True)
    assert cell["outcome"] == expected
    if expected == "wrong":
        assert cell["z"] > 4 and cell["of"] == "b" and cell["first z"] > 4
    assert (expected in ("green", "wrong")) == ("compared" in cell)


def parts_of(**values):
    return {name: np.full((1, 40_000), value) for name, value in values.items()}


LAWS = {
    "logistic": parts_of(eta=0.7),
    "negbin": parts_of(eta=0.5, log_size=0.3),
    "gaussian": parts_of(eta=0.5, log_sigma=-0.4),
    "zero_inflated_poisson": parts_of(eta=0.5, second=-0.8),
    "ordinal": parts_of(eta=0.5, cut2=0.9, cut3=2.0),
    "softmax": {"eta": np.zeros((1, 40_000)), "classes": np.broadcast_to([0.2, -0.3, 0.9], (1, 40_000, 3))},
    "weibull": parts_of(eta=0.5, log_sigma=-0.3),
    "student_t": parts_of(eta=0.5, log_scale=-0.2, log_nu=1.8),
}


@pytest.mark.parametrize("family", matrix_direct.LAWS)
def test_laws_by_hand_agree_with_themselves(family):
    """Densities add up to one, and have the mean that is claimed, as simulated responses do."""
    law, parts = matrix_direct.LAWS[family], LAWS[family]
    one = {name: values[:, :1] for name, values in parts.items()}
    density = lambda y: float(np.exp(law.log_density(one, np.array([y], float)))[0, 0])  # noqa: E731
    mean, drawn = law.mean(one), law.simulate(parts, np.random.default_rng(1))
    if family in ("gaussian", "student_t", "weibull"):
        low = 0.0 if family == "weibull" else -400.0
        total = integrate.quad(density, low, 400.0, limit=500, points=[0.5, 2.0])[0]
        average = integrate.quad(lambda y: y * density(y), low, 400.0, limit=500, points=[0.5, 2.0])[0]
    else:
        counts = np.arange({"logistic": 2, "softmax": 3, "ordinal": 4}.get(family, 200))
        shares = np.array([density(y) for y in counts])
        total, average = shares.sum(), shares @ counts
    if mean.ndim == 3:
        mean = mean @ np.arange(mean.shape[2])
    assert total == pytest.approx(1.0, abs=1e-6)
    assert average == pytest.approx(mean.item(), abs=1e-5)
    assert abs(drawn.mean() - mean.item()) < 4.9 * drawn.std() / 200.0


def test_censored_times_have_the_share_that_lives_longer():
    one = {name: values[:, :1] for name, values in LAWS["weibull"].items()}
    law = matrix_direct.LAWS["weibull"]
    later = integrate.quad(lambda t: float(np.exp(law.log_density(one, np.array([t])))[0, 0]), 1.5, 100.0)[0]
    assert float(np.exp(law.log_density(one, np.array([-1.5])))[0, 0]) == pytest.approx(later, rel=1e-6)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A logistic fit of few rows: families and structures of others are run in the slow tier."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = Fits(300, matrix_answers.QUICK)
        return matrix_answers.case("logistic", fits, tmp_path_factory.mktemp("asked"))


def answered(asked, question):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return matrix_answers.QUESTIONS[question].ask(asked)


def larger(column, by=1e-4):
    """A table with one number of a column changed."""

    def change(table):
        place = table.columns.get_loc(column)
        table.iloc[-1, place] += by
        return table

    return change


def changed_report(path):
    text = path.read_text()
    return path.write_text(text.replace("<td>z</td>", "<td>zz</td>")) and path


def moved(line, by=0.05):
    """A drawing in which a line is elsewhere."""

    def change(drawing):
        found = line(drawing.figure.axes)
        found.set_xdata(np.asarray(found.get_xdata(), float) + by)
        found.set_ydata(np.asarray(found.get_ydata(), float) + by)
        return drawing

    return change


def blank(drawing):
    from matplotlib.figure import Figure

    Figure().savefig(drawing.path)
    return drawing


def bars(drawing):
    drawing.figure.axes[0].patches[0].set_height(0.9)
    return drawing


def other_theta(fit):
    return replace(fit, theta=fit.theta + 1e-12)


def without_x(tree):
    import xarray

    return xarray.DataTree.from_dict(
        {"posterior": tree["posterior"].to_dataset().drop_vars("x"), "parameters": tree["parameters"].to_dataset()}
    )


def swapped(tree):
    import xarray

    posterior = tree["posterior"].to_dataset()
    posterior = posterior.assign(x=posterior["z"], z=posterior["x"])
    return xarray.DataTree.from_dict({"posterior": posterior, "parameters": tree["parameters"].to_dataset()})


def shifted(check):
    return replace(check, simulated=1.0 - check.simulated)


def other_rows(check):
    return replace(check, observed=check.observed[::-1])


def worse(elpd):
    elpd.elpd -= 0.01
    return elpd


MUTANTS = {
    "summary": [larger("mean"), larger("sd"), larger("ess_bulk", 1.0), larger("r_hat")],
    "predict": [larger("mean"), larger("upper")],
    "predictions": [larger("mean"), larger("lower")],
    "comparisons x": [larger("mean"), larger("upper")],
    "comparisons c": [larger("mean"), lambda table: table.iloc[::-1]],
    "slopes x": [larger("mean"), larger("sd")],
    "odds/ratios": [larger("odds_ratio"), larger("P(>1)"), lambda table: table.iloc[1:]],
    "hypothesis": [lambda a: replace(a, probability=a.probability - 0.01), lambda a: replace(a, upper=a.upper + 1e-4)],
    "loo": [worse],
    "ppc": [shifted, other_rows],
    "compare_models": [larger("elpd_diff"), larger("weight")],
    "report": [changed_report],
    "save+load": [other_theta],
    "idata": [without_x, swapped],
    "plot forest": [blank, moved(lambda axes: next(line for line in axes[0].lines if line.get_marker() == "o"))],
    "plot effect": [blank, moved(lambda axes: axes[0].lines[0])],
    "plot ppc": [blank, bars],
    "plot calibration": [blank, moved(lambda axes: next(line for line in axes[0].lines if line.get_marker() == "o"))],
}


@pytest.mark.parametrize("question", MUTANTS)
def test_checkers_accept_answers_and_reject_changed_ones(asked, question):
    check, answer = matrix_answers.QUESTIONS[question].check, answered(asked, question)
    check(asked, answer)
    for number, mutant in enumerate(MUTANTS[question]):
        answer = answer if number == 0 else answered(asked, question)  # mutants change what they are given
        with pytest.raises(Wrong):
            check(asked, mutant(answer))


def test_an_audit_is_checked(asked):
    answer = asked.fit.audit(tb.models.logistic(asked.fit.data), pairs=2, repeats=100)
    matrix_checks.audit(asked.direct, answer)
    with pytest.raises(Wrong, match="found"):
        matrix_checks.audit(asked.direct, replace(answer, problems=("a problem",)))
    with pytest.raises(Wrong, match="Laplace"):
        matrix_checks.audit(asked.direct, replace(answer, facts={**answer.facts, "largest |mean| in Laplace sds": 9.0}))


def test_fits_of_other_rows_are_told_apart(asked):
    fit, n = asked.fit, asked.fit.meta["rows"]
    matrix_checks.agree(fit, fit, n)
    with pytest.raises(Wrong, match="rows"):
        matrix_checks.agree(fit, fit, n + 1)
    with pytest.raises(Wrong, match="standard errors"):
        matrix_checks.agree(replace(fit, theta=fit.theta + fit.theta.std((0, 1))), fit, n)


def test_every_question_has_a_checker_that_was_seen_to_fail():
    assert set(matrix_answers.QUESTIONS) - set(MUTANTS) == {"audit", "update", "partitions"}  # these have tests of their own


@pytest.mark.parametrize("question, check", [("loo", "leave_one_out"), ("summary", "summary")])
def test_outcomes_of_an_answer(asked, monkeypatch, question, check):
    fits = asked.fits
    assert matrix_answers.outcome("logistic", question, fits) == {"outcome": "green"}

    def fails(error):
        def function(*arguments, **options):
            raise error

        return function

    for error, expected in ((tb.OptionError("not here"), "refused"), (KeyError("a defect"), "raw")):
        monkeypatch.setattr(tb.Fit, question, fails(error))
        assert matrix_answers.outcome("logistic", question, fits)["outcome"] == expected
    monkeypatch.undo()
    for error in (Wrong("2 instead of 1"), KeyError("mean")):
        monkeypatch.setattr(matrix_checks, check, fails(error))
        assert matrix_answers.outcome("logistic", question, fits)["outcome"] == "wrong"


def command(tmp_path, *arguments):
    files = ["--record", str(tmp_path / "matrix.json"), "--page", str(tmp_path / "page.md")]
    return matrix.main([*arguments, *files])


def test_the_command_keeps_cells_and_does_not_run_them_again(tmp_path, monkeypatch, capsys):
    arguments = ("families", "--only", "softmax", "--cells", "(1|g),smooth+(1|g)", "--quick", "--check", "--write")
    assert command(tmp_path, *arguments) == 0
    kept = matrix_record.load(tmp_path / "matrix.json")["families"]["softmax"]
    assert [cell["outcome"] for cell in kept.values()] == ["refused", "refused"] and all(c["message"] for c in kept.values())
    page = (tmp_path / "page.md").read_text()
    assert "2 are refused" in page and "| softmax | · | · | – |" in page
    monkeypatch.setattr(matrix_families, "checked", lambda *a: pytest.fail("run again"))
    assert command(tmp_path, *arguments) == 0
    monkeypatch.setattr(matrix_families, "checked", lambda *a: {"outcome": "raw", "error": "E", "message": "changed"})
    assert command(tmp_path, *arguments, "--again") == 0
    assert "2 are raw exceptions" in (tmp_path / "page.md").read_text()
    capsys.readouterr()


def test_without_write_nothing_is_kept(tmp_path, capsys):
    assert command(tmp_path, "families", "--only", "softmax", "--cells", "(1|g)", "--quick") == 0
    assert "refused" in capsys.readouterr().out and not list(tmp_path.iterdir())


def test_the_page_is_written_from_what_is_kept(tmp_path, capsys):
    matrix_record.keep("answers", "smooth", "loo", {"outcome": "green", "commit": "abc", "n": 9}, tmp_path / "matrix.json")
    assert command(tmp_path, "page") == 0 and not (tmp_path / "page.md").exists()
    assert "1 are answered correctly" in capsys.readouterr().out
    assert command(tmp_path, "page", "--write") == 0 and "1 are answered correctly" in (tmp_path / "page.md").read_text()
    assert command(tmp_path, "answers", "--only", "smooth", "--cells", "comparisons c") == 0  # a cell that means nothing


@pytest.mark.parametrize("option, name", [("--only", "logit"), ("--cells", "smoth")])
def test_unknown_names_are_refused(option, name):
    with pytest.raises(SystemExit, match=f"{option}: there is no '{name}'"):
        matrix.main(["families", option, name])


def test_rows_of_a_matrix_run_in_processes_of_their_own(monkeypatch):
    run = []
    monkeypatch.setattr(
        matrix.subprocess, "run", lambda c, **_: run.append(c[2:]) or SimpleNamespace(returncode="probit" in c[-1])
    )
    assert matrix.main(["families", "--only", "logistic,probit", "--cells", "fixed"]) == 1
    assert [c[-2:] for c in run] == [["--only", "logistic"], ["--only", "probit"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "family, structure", [("logistic", "fixed"), ("poisson", "offset+weights"), ("gaussian", "second~x"), ("logistic", "(1|g)")]
)
def test_cells_of_families_agree_with_nuts(family, structure):
    sizes = matrix.QUICK._replace(draws=300, warmup=300, reference_draws=300)
    assert matrix_families.checked(family, structure, sizes, True)["outcome"] == "green"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["(1|g)", "sigma~x", "ordinal", "smooth"])
@pytest.mark.parametrize("question", ["summary", "predict", "loo", "save+load", "idata"])
def test_cells_of_answers_are_right(kind, question, answered_fits):
    assert matrix_answers.outcome(kind, question, answered_fits) == {"outcome": "green"}


@pytest.fixture(scope="module")
def answered_fits():
    return Fits(300, matrix_answers.QUICK)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_update_that_ignores_its_rows_is_wrong(tmp_path):
    many = matrix_answers.case("logistic", Fits(2000), tmp_path)
    check = matrix_answers.QUESTIONS["update"].check
    check(many, answered(many, "update"))
    with pytest.raises(Wrong, match="standard errors"):
        check(many, replace(many.fit, meta={**many.fit.meta, "rows": 2500}))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_few_rows_are_measured(tmp_path, capsys):
    assert command(tmp_path, "families", "--only", "logistic", "--cells", "fixed", "--few-rows", "--quick", "--write") == 0
    cell = matrix_record.load(tmp_path / "matrix.json")["few rows"]["logistic"]["fixed"]
    assert cell["outcome"] == "fits" and cell["evaluations"] < 0.1 and cell["n"] == 1000
    assert "1 fit from few rows, 1 of them exactly" in (tmp_path / "page.md").read_text()


def test_what_is_kept_of_an_exception_names_no_folder():
    kept = matrix_families.refusal(
        tb.StoreError("cannot read '/home/someone/rows/part0.parquet': see https://example.org/a/b.")
    )
    assert kept["message"] == "cannot read 'part0.parquet': see https://example.org/a/b."
    assert matrix_families.refusal(TypeError("at /usr/lib/x.py (3)\nlong"))["message"] == "at x.py (3)"
