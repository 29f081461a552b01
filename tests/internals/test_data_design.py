"""Internals of `tallbayes.data.design`; what users see of it is tested in test_formula.py."""

import copy
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from formulaic import model_matrix

from tallbayes.data import read
from tallbayes.data.design import DesignMatrices, design
from tallbayes.data.read import from_recipe
from tallbayes.errors import DataError, StoreError

CONTEXT = {"log1p": np.log1p, "sqrt": np.sqrt}


@pytest.fixture(autouse=True)
def stores(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TALLBAYES_STORE", str(tmp_path_factory.mktemp("stores")))


def frame_of(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.random(n),
            "x": 1000.0 + rng.random(n),
            "z": rng.exponential(size=n) + 0.1,
            "g": rng.choice(["ash", "birch", "cedar"], n),
            "h": rng.integers(3, 7, n),
            "flag": rng.random(n) < 0.5,
        }
    )


FRAME = frame_of()


def chunked(frame, size=301):
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=size))


def planned(formula, frame=FRAME, size=301):
    return read(chunked(frame, size), formula, memory="ram", progress=False)


@pytest.mark.parametrize(
    "right",
    [
        "g",
        "C(h)",
        "C(g) + C(h)",
        "x*g",
        "x:g + 0",
        "g:C(h)",
        "g*C(h) - 1",
        "g*C(h) - g:C(h)",
        "0 + g + C(h)",
        "bs(z, df=6)",
        "bs(z, 6, degree=2)",
        "bs(z, degree=2, knots=[0.5, 1])",
        "bs(z)",
        "bs(z, df=5, include_intercept=True) + 0",
        "bs(x, df=4, lower_bound=999, upper_bound=1002)",
        "poly(x, 4)",
        "poly(z, degree=3) + poly(x)",
        "poly(z, 3, raw=True)",
        "scale(z)",
        "scale(z, center=False)",
        "scale(z, scale=False) + scale(x, ddof=0)",
        "center(x):g",
        "log(z) + log10(z) + log1p(z) + exp(z) + sqrt(z)",
        "I(x**2 + z/3) + I(-z // 0.5) + I(x % 7)",
        "scale(log(z)) + I(center(z)**2)",
        "C(flag) + flag",
        "C(g):bs(z, df=4)",
        "x + C(h) + h",
        "(x + z)*g",
        "(x + z + g):h",
        "x*z*g",
        "g:x + x + g",
        ".",
        ". - flag - g + log(z)",
        ". + x:z",
        "poly(log(z), 2):C(h)",
        "C(h) + log(z) - 1",
    ],
)
def test_columns_are_those_of_formulaic(right):
    data = planned(f"y ~ {right}")
    expected = model_matrix(f"y ~ {right}", FRAME, context=CONTEXT).rhs
    assert data.columns == tuple(expected.columns)
    np.testing.assert_allclose(data.records[:, : data.d], expected, rtol=1e-10, atol=1e-10)
    again = design(json.loads(json.dumps(data.recipe["plan"])), pa.Table.from_pandas(FRAME))
    np.testing.assert_array_equal(again, data.records[:, : data.d])


def test_names_that_are_no_words_or_are_those_of_transforms():
    table = pa.table(
        {"y": [1.0, 2, 3], "unit price": [1.0, 2, 4], "log": [1.0, 3, 9], "a.b": ["u", "v", "u"], "True": [2.0, 3, 5]}
    )
    data = read(table, "y ~ log(`unit price`) + log(log) + a.b + I(`True` * `unit price`)", progress=False)
    assert data.columns == ("Intercept", "log(unit price)", "log(log)", "a.b[T.v]", "I(True * unit price)")
    np.testing.assert_allclose(data.records[:, 4], [2, 6, 20])
    np.testing.assert_array_equal(design(json.loads(json.dumps(data.recipe["plan"])), table), data.records[:, :5])


def test_new_rows_get_the_same_columns_or_a_reason():
    data = planned("y ~ g + C(h) + bs(z, df=4) + scale(x)")
    plan = data.recipe["plan"]
    rows = FRAME.iloc[[5, 9]]
    np.testing.assert_array_equal(design(plan, pa.Table.from_pandas(rows)), data.records[[5, 9], : data.d])
    for column, value, message in (
        ("g", "oak", r"row 101, column 'g' is 'oak', which is not among its 3 levels"),
        ("h", 9, r"row 101, column 'h' is 9, which is not among its 4 levels"),
        ("z", 1e6, r"row 101, column 'z' is 1e\+06, outside the range of the spline bs\(z, df=4\)"),
    ):
        changed = rows.copy()
        changed.loc[changed.index[1], column] = value
        with pytest.raises(DataError, match=message):
            design(plan, pa.Table.from_pandas(changed), first_row=100)
    with pytest.raises(DataError, match="there is no column 'x'"):
        design(plan, pa.Table.from_pandas(rows.drop(columns="x")))
    with pytest.raises(DataError, match=r"column 'h' has type .*convert it"):
        design(plan, pa.Table.from_pandas(rows.assign(h=["3", "4"])))
    assert design(plan, pa.Table.from_pandas(rows.head(0))).shape == (0, data.d)
    plain = planned("y ~ x + z").recipe["plan"]
    np.testing.assert_array_equal(design(plain, pa.table({"z": [2.0], "x": [3]})), [[1, 3, 2]])


@pytest.mark.parametrize(
    "text", ["x + __import__(x)", "I(x.real)", "1 + eval(x)", "lambda", "x ~ z", 5, None, "log('x')", "q", ""]
)
def test_a_formula_out_of_a_file_passes_the_whitelist_first(text, monkeypatch, tmp_path):
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    recipe = json.loads(json.dumps(read(tmp_path / "rows.csv", "y ~ log(x) + g", progress=False).recipe))
    recipe["plan"]["design"]["formula"] = text
    monkeypatch.setattr(DesignMatrices, "_build", lambda *_: pytest.fail("evaluated"))
    for action in (
        lambda: design(recipe["plan"], pa.Table.from_pandas(FRAME)),
        lambda: from_recipe(recipe, None, progress=False),
    ):
        with pytest.raises(StoreError):
            action()


def test_a_damaged_plan_is_refused():
    plan = planned("y ~ g + poly(x, 2) + bs(z, df=4) + scale(x)").recipe["plan"]
    changes = [
        (("levels", "g"), []),
        (("levels", "g"), ["b", "a"]),
        (("levels", "g"), ["a", 1]),
        (("levels", "g"), ["ash", "birch", "oak"]),
        (("states", "poly(x, 2)", "alpha"), [1.0]),
        (("states", "poly(x, 2)", "alpha"), [1.0, "x"]),
        (("states", "poly(x, 2)", "norms2"), [1.0, -1.0, 2.0]),
        (("states", "bs(z, df=4)", "upper_bound"), -5.0),
        (("states", "bs(z, df=4)", "knots"), 5.0),
        (("states", "scale(x)", "center"), float("nan")),
        (("states", "scale(x)"), {}),
        (("states",), None),
        (("example",), {}),
        (("names",), ["Intercept"]),
        (("text",), []),
    ]
    for path, value in changes:
        damaged = copy.deepcopy(plan)
        part = damaged["design"]
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = value
        with pytest.raises(StoreError):
            design(damaged, pa.Table.from_pandas(FRAME))


# Reference levels, categories, dates, offsets, natural splines


@pytest.mark.parametrize(
    "right, formulaic",
    [
        ('C(g, Treatment("cedar"))', "C(g, contr.treatment('cedar'))"),
        ("C(g, Treatment(reference='birch'))*x", "C(g, contr.treatment('birch'))*x"),
        ("C(h, Treatment(5))", "C(h, contr.treatment(5))"),
        ("g + C(h, Treatment(5)):g", "g + C(h, contr.treatment(5)):g"),
        ("cr(z, df=5)", "cr(z, df=5, constraints='center')"),
        ("cr(z, knots=[0.5, 1.5])*g", "cr(z, knots=[0.5, 1.5], constraints='center')*g"),
        ("cr(z, 4, lower_bound=0, upper_bound=99)", "cr(z, 4, lower_bound=0, upper_bound=99, constraints='center')"),
    ],
)
def test_reference_levels_and_natural_splines_are_those_of_formulaic(right, formulaic):
    data = planned(f"y ~ {right}")
    expected = np.asarray(model_matrix(f"y ~ {formulaic}", FRAME).rhs, float)
    np.testing.assert_allclose(data.records[:, : data.d], expected, atol=1e-9)
    again = DesignMatrices(json.loads(json.dumps(data.recipe["plan"])))
    assert again.names == data.columns
    np.testing.assert_allclose(again.matrix(pa.Table.from_pandas(FRAME)), expected, atol=1e-9)


def test_parts_of_dates_are_columns():
    when = pd.Series(pd.date_range("2019-12-30 06:00", periods=2000, freq="7h"))
    frame = FRAME.assign(when=when)
    data = planned(
        'y ~ C(month(when)) + year(when) + hour(when) + day(when) + day_of_year(when) + days_since(when, "2020-01-01")', frame
    )
    values = dict(zip(data.columns, data.records[:, : data.d].T, strict=True))
    np.testing.assert_array_equal(values["C(month(when))[T.7]"], when.dt.month == 7)
    for name, expected in (
        ("year", when.dt.year),
        ("hour", when.dt.hour),
        ("day", when.dt.day),
        ("day_of_year", when.dt.day_of_year),
    ):
        np.testing.assert_array_equal(values[f"{name}(when)"], expected)
    since = (when - pd.Timestamp("2020-01-01")).dt.total_seconds() / 86_400
    np.testing.assert_allclose(values["days_since(when, 2020-01-01)"], since, atol=1e-9)
    np.testing.assert_array_equal(design(data.recipe["plan"], pa.Table.from_pandas(frame)), data.records[:, : data.d])
    weekdays = planned("y ~ days_since(when) + (1 | weekday(when))", frame)
    assert weekdays.groups[0].name == "weekday(when)"
    np.testing.assert_array_equal(weekdays.groups[0].codes, when.dt.day_of_week.to_numpy()[weekdays.order])
    np.testing.assert_allclose(weekdays.records[weekdays.order.argsort()[0], 1], 18_260.25)
