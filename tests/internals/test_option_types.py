"""Bad input, whatever it is, gets an error of the package that names the option, column or row: no exception of Python or NumPy."""

import dataclasses
import inspect

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import tallbayes as tb
from tallbayes import samplers
from tallbayes.cli.commands import app

NASTY = {
    "an array": np.array([1, 2]),
    "an array of one": np.array([1.5]),
    "a matrix": np.ones((2, 2)),
    "an empty array": np.array([]),
    "an array of text": np.array(["a"]),
    "10^30": 10**30,
    "-10^30": -(10**30),
    "10^400": 10**400,
    "10^5000": 10**5000,
    "beyond int64": np.uint64(2**63 + 5),
    "nan": float("nan"),
    "nan of NumPy": np.float64("nan"),
    "no time": np.datetime64("NaT"),
    "inf": float("inf"),
    "-inf": float("-inf"),
    "a negative number": -3,
    "zero": 0,
    "a fraction": 1.5,
    "text": "x",
    "a formula": "~ x",
    "an empty text": "",
    "text with a null": "a\0b",
    "bytes": b"x",
    "None": None,
    "True": True,
    "an empty list": [],
    "a list": [1, 2],
    "a list of lists": [[1], [2]],
    "a dictionary": {},
    "a set": {1},
    "a complex number": 1j,
    "a function": len,
    "an object": object(),
}
X = np.column_stack([np.ones(20), np.linspace(-1.0, 1.0, 20)])
ROWS = pa.table({"x": X[:, 1], "y": [0, 1, 1, 0] * 5})
SHORT = {"sampler": "mh", "draws": 20, "warmup": 20, "chains": 2, "seed": 1, "progress": False}


class Reached(tb.TallbayesError):
    """Raised where the work would begin: the input was not refused."""


def reached(*arguments, **options):
    raise Reached


def survives(call, *values):
    """Run a call for each value, and tell of exceptions that are not the package's own."""
    wrong = []
    for name, value in NASTY.items():
        try:
            call(value)
        except tb.TallbayesError as error:
            if not isinstance(error, Reached):
                assert str(error)
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}"[:200])
    assert not wrong, wrong


def parameters(function, *left_out):
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    described = inspect.signature(function).parameters.items()
    return [name for name, own in described if own.kind not in kinds and name not in (*left_out, "self")]


@pytest.fixture(scope="module")
def model():
    return tb.models.logistic(tb.Dataset.from_arrays(X, ROWS["y"].to_numpy()))


@pytest.fixture(scope="module")
def fit():
    return tb.fit("y ~ x", ROWS, family="logistic", **SHORT)


FRONT = [*parameters(tb.fit, "client"), *parameters(tb.sample, "model", "sampler", "progress")]


@pytest.mark.parametrize("name", FRONT)
def test_fit(name, monkeypatch, tmp_path):
    monkeypatch.setattr("tallbayes.api._sample", reached)
    monkeypatch.chdir(tmp_path)
    given = {"formula": "y ~ x", "source": ROWS, "progress": False}
    if name == "data":
        del given["source"]
    survives(lambda value: tb.fit(**{**given, name: value}))


@pytest.mark.parametrize("name", parameters(tb.sample))
def test_sample(name, model, monkeypatch, tmp_path):
    monkeypatch.setattr("tallbayes.api.find_mode", reached)
    monkeypatch.chdir(tmp_path)
    survives(lambda value: tb.sample(**{"model": model, "progress": False, name: value}))


LENGTHS = (np.array([1, 2]), 10**30, 2**70, 10**5000, np.uint64(2**63))
WRONG_LENGTHS = [(name, value) for name in ("draws", "warmup", "chains", "thin") for value in LENGTHS]
WRONG_LENGTHS += [("seed", np.array([1, 2])), ("seed", [1]), ("cores", np.array([1, 2])), ("max_seconds", np.array([1.0, 2.0]))]


@pytest.mark.parametrize("option, value", WRONG_LENGTHS, ids=lambda value: value if isinstance(value, str) else "")
def test_lengths_that_are_arrays_or_too_large_are_refused_by_name(model, option, value):
    for call in (lambda **o: tb.fit("y ~ x", ROWS, **o), lambda **o: tb.sample(model, **o)):
        with pytest.raises(tb.OptionError, match=f"^{option} must be"):
            call(**{option: value})


def test_a_seed_may_have_any_size(model):
    run = {**SHORT, "sampler": "mh", "draws": 3, "warmup": 3}
    fits = [tb.sample(model, **{**run, "seed": seed}) for seed in (2**70, 2**70, 2**70 + 1)]
    assert (fits[0].theta == fits[1].theta).all() and (fits[0].theta != fits[2].theta).any()
    assert fits[0].meta["seed"] == 2**70


@pytest.mark.parametrize("name", parameters(tb.find_mode))
def test_find_mode(name, model, monkeypatch):
    for inner in ("converge", "starting_values", "initial"):
        monkeypatch.setattr(f"tallbayes.mode.search.{inner}", reached, raising=False)
    survives(lambda value: tb.find_mode(**{"model": model, "progress": False, name: value}))


@pytest.mark.parametrize("name", parameters(tb.resume))
def test_resume(name, model, tmp_path):
    survives(lambda value: tb.resume(**{"folder": tmp_path / "none", "model": model, "progress": False, name: value}))


@pytest.mark.parametrize("name", parameters(tb.read))
def test_read(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    given = {"source": ROWS, "formula": "y ~ x", "progress": False}
    if name in ("response", "columns"):
        given = {"source": ROWS, "response": "y", "progress": False}
    survives(lambda value: tb.read(**{**given, name: value}))


@pytest.mark.parametrize("name", parameters(tb.Dataset.from_arrays))
def test_from_arrays(name):
    survives(lambda value: tb.Dataset.from_arrays(**{"X": X, "y": ROWS["y"].to_numpy(), name: value}))


FAMILIES = [
    (family, name) for family in tb.models.FAMILIES if family != "normal" for name in parameters(tb.models.FAMILIES[family])
]


def rows_for(family, needs):
    """Rows that a family takes."""
    if family == "arma":
        return np.sin(np.arange(60.0))
    for y in (ROWS["y"].to_numpy(), np.linspace(0.1, 0.9, 20)):
        rows = pa.table({"x": X[:, 1], "y": y})
        data = tb.read(rows, "y ~ x", progress=False, **tb.models.second_formula(family, {}))
        try:
            tb.models.FAMILIES[family](data, **needs)
        except tb.DataError:
            continue
        return data
    raise AssertionError(family)


@pytest.mark.parametrize("family, name", FAMILIES)
def test_families(family, name):
    needs = {"expression": {"expression": "y*eta - exp(eta)"}, "softmax": {"classes": 2}}.get(family, {})
    data = rows_for(family, needs)
    survives(lambda value: tb.models.FAMILIES[family](**{"data": data, **needs, name: value}))


@pytest.mark.parametrize(
    "family, option",
    [("negbin", "size"), ("gamma", "shape"), ("student_t", "nu"), ("student_t", "scale"), ("softmax", "classes")],
)
@pytest.mark.parametrize("wrong", ["~ x", "x", np.array([1.0, 2.0])], ids=str)
def test_a_formula_or_array_for_a_number_is_refused_by_name(family, option, wrong):
    y = {"gamma": X[:, 1] + 2.0}.get(family, ROWS["y"].to_numpy())
    rows = pa.table({"x": X[:, 1], "y": y})
    with pytest.raises(tb.OptionError, match=f"^{option} must be a") as raised:
        tb.fit("y ~ x", rows, family=family, **{option: wrong}, **SHORT)
    assert ("sigma= of gaussian and student_t" in str(raised.value)) == (isinstance(wrong, str) and "~" in wrong)


def test_classes_beyond_reason_are_refused_at_once():
    data = tb.Dataset.from_arrays(X, [0, 10**12] * 10)
    for make in (tb.models.softmax, tb.models.ordinal):
        with pytest.raises(tb.TallbayesError, match=r"Number the classes"):
            make(data)


MOVES = [(name, own) for name in sorted(tb.moves.MOVES) for own in parameters(tb.moves.MOVES[name])]
MOVES += [(name, own) for name in ("independence", "pcn", "surrogate") for own in parameters(getattr(tb.moves, name))]


@pytest.mark.parametrize("name, option", MOVES)
def test_moves(name, option):
    survives(lambda value: getattr(tb.moves, name)(**{option: value}))


SAMPLERS = [(kind, field.name) for kind in samplers.CLASSES.values() for field in dataclasses.fields(kind)]


@pytest.mark.parametrize("kind, option", SAMPLERS, ids=lambda value: value if isinstance(value, str) else value.__name__)
def test_samplers(kind, option):
    survives(lambda value: kind(**{option: value}))


NUMBERS = [(kind, option) for kind, option in SAMPLERS if type(getattr(kind(), option)) in (int, float)]


@pytest.mark.parametrize("kind, option", NUMBERS, ids=lambda value: value if isinstance(value, str) else value.__name__)
@pytest.mark.parametrize("value", [np.array([1, 2]), float("nan"), "~ x", b"x"], ids=str)
def test_numbers_of_samplers_are_numbers(kind, option, value):
    with pytest.raises(tb.OptionError, match=option):
        kind(**{option: value})


PRIORS = ["normal", "laplace", "cauchy", "student_t", "multivariate_normal", "ridge", "horseshoe", "lkj"]
SCALES = ["half_normal", "half_cauchy", "half_student_t", "exponential", "gamma", "inverse_gamma"]


@pytest.mark.parametrize(
    "name, option", [(name, own) for name in (*PRIORS, *SCALES) for own in parameters(getattr(tb.priors, name))]
)
def test_priors(name, option):
    data = tb.Dataset.from_arrays(X, np.linspace(-1.0, 1.0, 20))
    given = {"mean": np.zeros(3), "precision": np.eye(3)} if name == "multivariate_normal" else {}

    def use(value):
        prior = getattr(tb.priors, name)(**{**given, option: value})
        prior.describe()
        tb.models.gaussian(data, {"sigma": prior} if name in SCALES else prior)

    survives(use)


ANSWERS = {
    "predict": {"new": ROWS},
    "predictions": {},
    "comparisons": {},
    "slopes": {},
    "hypothesis": {"statement": "x > 0"},
    "odds_ratios": {},
    "icc": {},
    "ppc": {},
    "loo": {"rows": 10},
    "summary": {},
    "draws": {"name": "x"},
    "expect": {"function": lambda theta: theta[0]},
    "audit": {"model": None},
    "stein": {"model": None},
    "reweight": {"model": None},
    "save": {"path": "fit.nc"},
    "report": {"path": "fit.html", "plots": False},
}


@pytest.mark.parametrize("method, name", [(method, own) for method in ANSWERS for own in parameters(getattr(tb.Fit, method))])
def test_answers_of_a_fit(method, name, fit, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for slow in ("tallbayes.results.report.report", "tallbayes.results.files.save"):
        if name not in ("path", "plots") or (name == "plots" and slow.endswith("report")):
            monkeypatch.setattr(slow, reached)
    survives(lambda value: getattr(fit, method)(**{**ANSWERS[method], name: value}))


@pytest.mark.parametrize("name", ["kind", "most", "names", "prob", "path"])
def test_plots(name, fit, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tallbayes.results.plots.new_figure", reached, raising=False)
    monkeypatch.setattr("tallbayes.results.answer_plots.new_figure", reached, raising=False)
    survives(lambda value: fit.plot(**{name: value}))


UPDATE = [
    "draws",
    "warmup",
    "chains",
    "thin",
    "seed",
    "cores",
    "max_seconds",
    "until_ess",
    "keep",
    "sampler",
    "model",
    "mode",
    "progress",
]


@pytest.mark.parametrize("name", UPDATE)
def test_update(name, fit, monkeypatch):
    monkeypatch.setattr("tallbayes.growth._read_new", reached)
    survives(lambda value: fit.update(ROWS, **{"progress": False, name: value}))


OTHERS = {
    "compare": (tb.compare, {"samplers": ["nosuch"], "progress": False}),
    "compare_models": (tb.compare_models, {"fits": {}}),
    "load": (tb.load, {"path": "none.nc"}),
    "partial_posteriors": (tb.partial_posteriors, {"first": 1}),
    "sample_shards": (tb.sample_shards, {"shards": 10**4, "progress": False}),
    "unbiased": (tb.unbiased, {"replications": 1, "progress": False}),
    "update": (tb.update, {"rows": "none.parquet", "progress": False}),
    "prior_predictive": (tb.prior_predictive, {"draws": 5}),
    "store.list": (tb.store.list, {"folder": "none"}),
    "store.clear": (tb.store.clear, {"name": "none", "folder": "none"}),
    "Partitions.open": (tb.shards.Partitions.open, {"paths": "none/*.parquet", "formula": "y ~ x"}),
}
LEFT_OUT = {"sample_shards": ("client", "shards"), "compare": ("samplers",), "Partitions.open": ("client",)}  # they start work


@pytest.mark.parametrize(
    "name, option",
    [(name, own) for name, (function, _) in OTHERS.items() for own in parameters(function, *LEFT_OUT.get(name, ()))],
)
def test_other_functions(name, option, model, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    function, given = OTHERS[name]
    own = {"model": model} if "model" in parameters(function) else {"source": model} if name == "sample_shards" else {}
    survives(lambda value: function(**{**own, **given, option: value}))


def test_names_of_samplers_to_compare(model):
    for value in (3, np.ones((2, 2)), 1.5, object(), [3], ["nosuch"]):
        with pytest.raises(tb.OptionError, match=r"sampler"):
            tb.compare(model, value, progress=False)


TEXTS = [
    "",
    "x",
    "~ x",
    "10" * 15,
    "9" * 5000,
    "-3",
    "nan",
    "inf",
    "1.5",
    "True",
    "[]",
    "{}",
    "a=b",
    "p=nan",
    "1e400",
    "normal:nan",
]
TEXTS += ["size=~ x", "size=[1, 2]", "size=1e400", "size=NaN", "classes=1e30", "fixed=-1e30", "1|g", "summary"]
COMMANDS = [
    "family",
    "expression",
    "constant",
    "support",
    "sampler",
    "prior",
    "sigma",
    "zi",
    "option",
    "draws",
    "warmup",
    "chains",
    "seed",
]
COMMANDS += [
    "thin",
    "keep",
    "cores",
    "max-seconds",
    "until-ess",
    "guarantee",
    "offset",
    "weights",
    "memory",
    "dtype",
    "na",
    "formula",
]


@pytest.mark.parametrize("option", COMMANDS)
def test_the_command_line(option, monkeypatch, tmp_path):
    import click

    monkeypatch.setattr("tallbayes.api._sample", reached)
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    families = ("negbin", "softmax", "ordinal") if option == "option" else ("logistic",)
    for family in families:
        for text in TEXTS:
            given = {"--family": family, "--formula": "y ~ x", f"--{option}": text}
            try:
                app(
                    ["fit", str(tmp_path / "rows.parquet"), "-q", *(v for pair in given.items() for v in pair)],
                    standalone_mode=False,
                )
            except (tb.TallbayesError, click.exceptions.ClickException):
                continue
            except Exception as error:
                assert type(error).__module__.startswith(("click", "typer")), (text, error)


def test_estimators(monkeypatch):
    from tallbayes.sklearn import BayesClassifier, BayesRegressor

    monkeypatch.setattr("tallbayes.api._sample", reached)
    y = ROWS["y"].to_numpy()
    for kind in (BayesClassifier, BayesRegressor):
        for name in parameters(kind):
            survives(lambda value, kind=kind, name=name: kind(**{name: value}).fit(X, y))
        survives(lambda value, kind=kind: kind().fit(X, y, sample_weight=value))


def undecodable(n):
    """A column of strings whose row 3 is not UTF-8."""
    words = [b"north", b"south", b"east", b"caf\xe9"]
    return pa.Array.from_buffers(pa.string(), n, pa.array([words[k % 4] for k in range(n)], pa.binary()).buffers())


@pytest.mark.parametrize("formula", ["y ~ x + g", "y ~ x + C(g)", "y ~ .", "y ~ x + (1 | g)", "y ~ s(x, by=g)"])
@pytest.mark.parametrize("format", ["parquet", "arrow", "memory", "categories"])
def test_text_that_is_not_utf8_names_row_and_column(formula, format, tmp_path):
    column = undecodable(200)
    x = np.linspace(-1.0, 1.0, 200)
    table = pa.table({"x": x, "y": (x > 0).astype(int), "g": column.dictionary_encode() if format == "categories" else column})
    path = tmp_path / f"rows.{format}"
    if format == "parquet":
        pq.write_table(table, path)
    elif format == "arrow":
        pyarrow.feather.write_feather(table, path, compression="uncompressed")
    source = path if format in ("parquet", "arrow") else table
    with pytest.raises(
        tb.DataError, match=r"row 3, column 'g': the text b'caf\\xe9' is not UTF-8. Write the column again as UTF-8"
    ):
        tb.read(source, formula, progress=False)


def test_new_rows_that_are_not_utf8_name_row_and_column(tmp_path):
    n = 200
    x, g = np.linspace(-1.0, 1.0, n), np.array(["north", "south", "east", "west"])[np.arange(n) % 4]
    rows = pa.table({"x": x, "y": np.arange(n) % 2, "g": g})
    fit = tb.fit("y ~ x + g", rows, family="logistic", **SHORT)
    bad = rows.set_column(2, "g", undecodable(n))
    pq.write_table(bad, tmp_path / "new.parquet")
    for call in (
        lambda: fit.predict(tmp_path / "new.parquet"),
        lambda: fit.predict(bad),
        lambda: fit.predict(bad.set_column(2, "g", pa.array(g)).append_column("id", undecodable(n)), id="id"),
    ):
        with pytest.raises(tb.DataError, match=r"row 3, column '(g|id)': the text b'caf\\xe9' is not UTF-8"):
            call()


def test_whole_numbers_beyond_what_floats_hold_are_no_levels():
    y = [0, 1, 1, 0] * 5
    for values, kind in (
        ([2**53 + 1, 2**53 + 2], pa.int64()),
        ([2**63 + 1, 2**63 + 2], pa.uint64()),
        ([-(2**60), 5], pa.int64()),
    ):
        rows = pa.table({"y": y, "g": pa.array(values * 10, kind)})
        with pytest.raises(
            tb.DataError, match=r"row 0, column 'g' is -?[0-9]+: whole numbers beyond 2\^53.*Convert the column to text"
        ):
            tb.read(rows, "y ~ C(g)", progress=False)
    with pytest.raises(tb.DataError, match=r"column 'g' has whole numbers beyond 64 bits; convert them to text"):
        tb.read(pa.table({"y": y, "g": pa.array([2**63 + 1, 5] * 10, pa.uint64())}), "y ~ 1 + (1 | g)", progress=False)
    exact = tb.read(pa.table({"y": y, "g": pa.array([2**53 - 1, 2**53 - 2] * 10)}), "y ~ C(g)", progress=False)
    assert exact.columns == ("Intercept", f"C(g)[T.{2**53 - 1}]") and exact.records[:2, 1].tolist() == [1.0, 0.0]


def test_numbers_beyond_64_bits_in_frames_and_arrays_name_the_column():
    frame = pd.DataFrame({"y": [0, 1] * 5, "g": [2**70, 5] * 5})
    with pytest.raises(tb.DataError, match=r"column 'g' cannot be read.*convert it to numbers or to text"):
        tb.read(frame, "y ~ g", progress=False)
    with pytest.raises(tb.DataError, match=r"column 'g' cannot be read"):
        tb.read(pd.DataFrame({"y": [0, 1] * 5, "g": [1, "a"] * 5}), "y ~ g", progress=False)
    for what, given in (("X", {"X": [[2**70], [1]], "y": [0, 1]}), ("y", {"X": np.ones((2, 1)), "y": [2**70, 1]})):
        with pytest.raises(tb.DataError, match=f"{what} has type object"):
            tb.Dataset.from_arrays(**given)
    large = np.array([2**63 + 1, 2**62], np.uint64)
    assert tb.Dataset.from_arrays(np.ones((2, 1)), large).y.tolist() == [float(2**63), float(2**62)]
