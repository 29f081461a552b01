"""General formulas: the columns of formulaic over streamed rows, what is refused, and plans that come out of a file."""

import contextlib
import copy
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from formulaic import model_matrix
from hypothesis import given, settings
from hypothesis import strategies as st

import tallbayes as tb
from tallbayes.data import read, transform_state
from tallbayes.data.design import DesignMatrices, design
from tallbayes.data.design_survey import survey
from tallbayes.data.formula import parse
from tallbayes.data.read import from_recipe
from tallbayes.errors import DataError, StoreError, TallbayesError
from tallbayes.testing import BATCH_ROWS

NAMES = ("y", "x", "z", "g", "h", "flag")
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


@pytest.mark.parametrize("right", ["x*g", "bs(z, df=6)", "poly(x, 4)", "scale(z):C(h)"])
def test_chunks_do_not_matter(right):
    parts = [planned(f"y ~ {right}", FRAME.head(200), size) for size in (7, 64, 200)]
    for data in parts[1:]:
        np.testing.assert_allclose(data.records, parts[0].records, rtol=1e-10, atol=1e-11)


def test_plain_sums_of_numbers_stay_on_the_fast_path():
    assert "design" not in planned("y ~ x + z - 1").recipe["plan"]
    assert "design" not in planned("y ~ . - g").recipe["plan"]


def test_a_level_first_seen_in_the_last_chunk_has_its_column():
    n = BATCH_ROWS + 100
    groups = np.where(np.arange(n) == n - 1, "aspen", np.where(np.arange(n) % 2, "birch", "cedar"))
    table = pa.table({"y": np.zeros(n), "g": groups, "x": np.linspace(0, 1, n)})
    data = read(table, "y ~ g + x", progress=False)
    assert data.columns == ("Intercept", "g[T.birch]", "g[T.cedar]", "x")
    np.testing.assert_array_equal(data.records[-1, :3], [1, 0, 0])
    np.testing.assert_array_equal(data.records[:2, :3], [[1, 0, 1], [1, 1, 0]])


@pytest.mark.parametrize("kind", ["dictionary", "large", "view"])
def test_text_of_every_arrow_type_gives_levels(kind):
    types = {"dictionary": pa.dictionary(pa.int8(), pa.string()), "large": pa.large_string(), "view": pa.string_view()}
    table = pa.table({"y": [0, 1, 1], "g": pa.array(["b", "a", "b"]).cast(types[kind])})
    np.testing.assert_array_equal(read(table, "y ~ g").records[:, :2], [[1, 1], [1, 0], [1, 1]])


def test_names_that_are_no_words_or_are_those_of_transforms():
    table = pa.table(
        {"y": [1.0, 2, 3], "unit price": [1.0, 2, 4], "log": [1.0, 3, 9], "a.b": ["u", "v", "u"], "True": [2.0, 3, 5]}
    )
    data = read(table, "y ~ log(`unit price`) + log(log) + a.b + I(`True` * `unit price`)", progress=False)
    assert data.columns == ("Intercept", "log(unit price)", "log(log)", "a.b[T.v]", "I(True * unit price)")
    np.testing.assert_allclose(data.records[:, 4], [2, 6, 20])
    np.testing.assert_array_equal(design(json.loads(json.dumps(data.recipe["plan"])), table), data.records[:, :5])


def test_poly_is_sound_for_sorted_columns_far_from_zero():
    x = np.sort(1e6 + np.random.default_rng(1).normal(size=5000)) + np.where(np.arange(5000) > 4990, 300.0, 0.0)
    data = planned("y ~ poly(x, 5)", pd.DataFrame({"y": x, "x": x}), size=64)
    columns = data.records[:, 1:6]
    np.testing.assert_allclose(columns.T @ columns, np.eye(5), atol=1e-7)
    np.testing.assert_allclose(columns.sum(0), 0.0, atol=1e-6)


def test_quantiles_come_from_a_sample_when_there_are_many_rows(monkeypatch):
    monkeypatch.setattr(transform_state, "EXACT_ROWS", 5000)
    monkeypatch.setattr(transform_state, "SAMPLED_ROWS", 1000)
    values = np.random.default_rng(2).normal(size=20_000)
    knots = []
    for size in (100, 999):
        spline = transform_state.Spline("bs(x, df=6)", {"df": 6}, "bs")
        for start in range(0, values.size, size):
            spline.add(values[start : start + size])
        assert spline.kept <= 4 * 1000 + size
        knots.append(spline.state()["knots"])
    assert knots[0] == knots[1]
    assert (knots[0][0], knots[0][-1]) == (values.min(), values.max())
    shares = [(values < k).mean() for k in knots[0][4:-4]]
    np.testing.assert_allclose(shares, [0.25, 0.5, 0.75], atol=4.9 * 0.5 / np.sqrt(1000))
    assert shares != [0.25, 0.5, 0.75]


@pytest.mark.parametrize(
    "right, message",
    [
        ("x | g", r"'\|' in the formula.*a group term stands in parentheses"),
        ("x^2", r"'\^' in the formula .*inside I\(\)"),
        ("x**2", r"'\*\*' in the formula"),
        ("x/z", "'/' in the formula"),
        ("g %in% h", "'%' in the formula"),
        ("2*x", "'2' in the formula"),
        ("x + 5", "'5' in the formula"),
        ("x:1", "'1' in the formula"),
        ("(1 + x):z", "0 and 1 stand outside"),
        ("x:", "ends without a term"),
        ("x*", "ends without a term"),
        ("log(x", "not closed"),
        ("(x + z", "not closed"),
        ("x)", r"'\)' in the formula"),
        ("x:(z", "not closed"),
        ("log()", "log takes one argument"),
        ("log(x, 2)", "log takes one argument"),
        ("log(q)", "unknown column 'q'"),
        ("q:x", "unknown column 'q'"),
        ("lag(x)", "unknown transform 'lag'"),
        ("bs(x, df=2)", "df must be at least 3"),
        ("bs(x, df=4, knots=[1])", "df or knots, not both"),
        ("bs(x, knots=[2, 1])", "increasing order"),
        ("bs(z, knots=[1e9])", "knots must be inside the range"),
        ("bs(x, extrapolation=1)", "unknown option of bs 'extrapolation'"),
        ("bs(x, df=2.5)", "df is a whole number"),
        ("bs(x, df=4, df=5)", "cannot be read|given twice"),
        ("bs(x, lower_bound=2, upper_bound=1)", "lower_bound must be below"),
        ("bs(x, 4, 5)", "knots is a list"),
        ("bs()", "bs needs a column"),
        ("poly(x, 99)", "degree is a whole number from 1 to 15"),
        ("poly(x, z)", "a number is needed"),
        ("poly(flag, 3)", "too few different values"),
        ("poly(x, raw=1)", "raw is True or False"),
        ("center(x, 1)", "center takes at most 0 options"),
        ("scale(scale(x))", "must not stand inside another transform"),
        ("bs(poly(x, 2), df=4)", "must not stand inside"),
        ("I(bs(x, df=4) * 2)", "must not stand inside"),
        ("scale(I(x * 0))", "cannot be scaled: its spread is 0"),
        ("bs(I(x * 0), df=4)", "only the value 0; a spline needs a range"),
        ("log(g)", "needs numbers, but column 'g' is text"),
        ("I(C(h))", "C must stand alone"),
        ("C(log(x))", "C takes one column"),
        ("C(h, levels=[1])", "C takes one column"),
        ("C(g, Sum)", "C takes one column|unknown column"),
        ("log(5)", "no column in it"),
        ("I(9**9**9**9 + x)", "a power of numbers"),
        ("I(x**1e999)", "a number is needed"),
        ("I(x^2)", r"write a power with \*\*"),
        ("I(x if z else y)", "cannot be read|response|unknown column"),
        ("I(x.__class__)", "unknown column"),
        ("I(x[0])", "Subscript in .* is not allowed"),
        ("I([x])", "List in .* is not allowed"),
        ("I(x == z)", "Compare|cannot be read"),
        ("I('x')", "in the formula"),
        ('log("x")', "in the formula"),
        ("I(lambda: x)", "unknown column|cannot be read|in the formula"),
        ("__import__(x)", "unknown transform '__import__'"),
        ("eval(x)", "unknown transform 'eval'"),
        ("np.sin(x)", "not allowed"),
        ("log(*x)", "Starred|cannot be read"),
        ("log(**x)", "log takes one argument|cannot be read"),
        ("{x}", r"'\{' in the formula"),
        ("x + y", "the response 'y' is also a predictor"),
        ("log(y)", "the response 'y' is also a predictor"),
        ("g - g - 1", "leaves no predictor"),
        ("(" * 60 + "x" + ")" * 60, "nested too deep"),
        ("log(" * 60 + "x" + ")" * 60, "nested too deep"),
        ("*".join(f"(x + z + g + h + flag + log(x{'+1' * k}))" for k in range(9)), "more than 1000 terms"),
    ],
)
def test_what_is_not_understood_is_refused(right, message):
    with pytest.raises(DataError, match=message):
        planned(f"y ~ {right}", FRAME.head(50))


def test_the_response_is_a_column():
    with pytest.raises(DataError, match=r"the response 'log\(y\)' must be a column; compute it"):
        planned("log(y) ~ g")
    with pytest.raises(DataError, match=r"the formula has no response; write it before ~, such as \w+ ~ \."):
        planned("~ g")
    with pytest.raises(DataError, match="unknown response column 'w'"):
        planned("w ~ g")
    with pytest.raises(DataError, match="at most 10,000 characters"):
        planned("y ~ g" + " + x" * 5000)
    with pytest.raises(DataError, match=r"column 'g' has type .*string.*, not a number"):
        planned("g ~ log(z)")


@pytest.mark.parametrize("row", [0, 450])
@pytest.mark.parametrize(
    "column, value, right, message",
    [
        ("g", None, "g", "row {row}, column 'g' is missing"),
        ("g", None, "C(g)", "row {row}, column 'g' is missing"),
        ("z", np.nan, "log(z)", "row {row}, column 'z' is (missing|nan)"),
        ("z", np.nan, "C(z)", "row {row}, column 'z' is (missing|nan)"),
        ("z", np.inf, "g*z", "row {row}, column 'z' is inf"),
        ("z", np.nan, "bs(z, df=4)", "row {row}, column 'z' is (missing|nan)"),
        ("z", 0.0, "log(z)", r"row {row}, column 'log\(z\)' is -inf"),
        ("z", -1.0, "sqrt(z)", r"row {row}, column 'sqrt\(z\)' is nan"),
        ("z", -1.0, "scale(log(z))", r"row {row}, column 'log\(z\)' is nan"),
        ("z", 1000.0, "exp(z)", r"row {row}, column 'exp\(z\)' is inf"),
        ("z", 0.0, "I(x/z)", r"row {row}, column 'I\(x / z\)' is inf"),
    ],
)
def test_values_that_cannot_be_used_are_named(column, value, right, message, row):
    frame = FRAME.head(600).copy()
    frame[column] = frame[column].astype(object)
    frame.loc[row, column] = value
    if column == "z":
        frame["z"] = frame["z"].astype(float)
    with pytest.raises(DataError, match=message.format(row=row)):
        planned(f"y ~ {right}", frame)


def test_too_many_levels_and_columns_are_refused_with_a_remedy():
    n = 10_001
    table = pa.table({"y": np.zeros(n), "g": [f"g{k}" for k in range(n)], "h": np.arange(n) % 200, "k": np.arange(n) % 150})
    with pytest.raises(DataError, match=r"column 'g' has more than 10,000 levels.*Group rare levels"):
        read(table, "y ~ g", progress=False)
    with pytest.raises(DataError, match=r"more than 20,000 columns, most of them from 'C\(h\):C\(k\)'"):
        read(table, "y ~ C(h):C(k)", progress=False)


def test_a_column_that_identifies_rows_is_refused_with_a_remedy():
    names = [f"id{k}" for k in range(400)]
    with pytest.raises(DataError, match=r"column 'id' has 400 levels in 400 rows.*`\. - id`"):
        read(pa.table({"y": np.arange(400.0), "id": names}), "y ~ .", progress=False)
    assert read(pa.table({"y": np.arange(1200.0), "id": names * 3}), "y ~ .", progress=False).d == 400


def test_many_levels_are_packed_in_small_pieces():
    n = 30_000
    codes = np.random.default_rng(3).integers(0, 600, n)
    data = read(pa.table({"y": np.zeros(n), "h": codes}), "y ~ 0 + C(h)", dtype="float32", progress=False)
    assert data.d == 600
    np.testing.assert_array_equal(data.records[:, :600].argmax(1), codes)
    np.testing.assert_array_equal(data.records[:, :600].sum(1), 1.0)


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


def test_a_store_of_a_general_formula_refuses_another_one():
    data = read(pa.Table.from_pandas(FRAME), "y ~ g + log(z)", memory="disk", progress=False)
    assert read(data.store, "y ~ g + log(z)").columns == data.columns
    for other in ("y ~ g", "y ~ g + log(z) - 1", "y ~ g*log(z)"):
        with pytest.raises(DataError, match="was packed with formula"):
            read(data.store, other)


def test_offsets_and_weights_go_with_general_formulas():
    data = read(pa.Table.from_pandas(FRAME), "y ~ g + log(x)", offset="log(z)", weights="h", progress=False)
    np.testing.assert_allclose(data.records[:, data.d + 1], np.log(FRAME["z"]))
    np.testing.assert_array_equal(data.records[:, data.d + 2], FRAME["h"])
    assert read(pa.Table.from_pandas(FRAME), "y ~ .", offset="log(z)", weights="h", progress=False).columns == (
        "Intercept",
        "x",
        "g[T.birch]",
        "g[T.cedar]",
        "flag",
    )


def test_a_run_over_a_general_formula_is_resumed_from_its_file(tmp_path):
    frame = FRAME.assign(y=(FRAME["y"] < 0.5).astype(int))
    frame.to_csv(tmp_path / "rows.csv", index=False)
    options = {"draws": 20, "warmup": 20, "chains": 2, "seed": 1, "sampler": "mh", "progress": False}
    first = tb.fit("y ~ g + scale(z)", tmp_path / "rows.csv", checkpoint=tmp_path / "run", **options)
    longer = tb.resume(tmp_path / "run", draws=30, progress=False)
    np.testing.assert_array_equal(longer.theta[:, :20], first.theta)


PIECES = [
    *NAMES,
    "C(",
    "bs(",
    "poly(",
    "log(",
    "I(",
    ")",
    "(",
    "+",
    "-",
    "*",
    ":",
    ",",
    "df=4",
    "2",
    "1",
    "0",
    ".",
    "`",
    "|",
    "**",
    "/",
]


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join), st.text(max_size=30)))
def test_any_formula_is_understood_or_refused(right):
    table = pa.Table.from_pandas(FRAME.head(40))
    with contextlib.suppress(TallbayesError):
        data = read(table, f"y ~ {right}", memory="ram", progress=False)
        assert np.isfinite(data.records).all()
        assert len(set(data.columns)) == data.d


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["x", "z", "g", "C(h)", "log(z)", "x:g", "g:C(h)", "z*g", "bs(z, df=4)", "poly(x, 2):g", "scale(x)", "0"]
        ),
        min_size=1,
        max_size=4,
        unique=True,
    )
)
def test_sums_of_terms_are_those_of_formulaic(terms):
    right = " + ".join(terms)
    expected = model_matrix(f"y ~ {right}", FRAME, context=CONTEXT).rhs
    if expected.shape[1] == 0:
        return
    data = planned(f"y ~ {right}")
    assert data.columns == tuple(expected.columns)
    np.testing.assert_allclose(data.records[:, : data.d], expected, rtol=1e-10, atol=1e-10)


def test_the_survey_counts_rows_and_keeps_json():
    general = parse("y ~ C(h) + poly(z, 2)", NAMES, {"g"})
    described, n = survey(general, pa.Table.from_pandas(FRAME).to_batches(max_chunksize=99))
    assert n == len(FRAME)
    assert json.loads(json.dumps(described)) == described
    with pytest.raises(DataError, match="no rows"):
        survey(general, [])


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


def test_a_reference_level_is_named_in_the_columns():
    assert planned('y ~ C(g, Treatment("cedar"))').columns[1:] == tuple(
        f"C(g, Treatment('cedar'))[T.{v}]" for v in ("ash", "birch")
    )


@pytest.mark.parametrize(
    "right, message",
    [
        ('C(g, Treatment("oak"))', "unknown level 'oak'.*ash, birch, cedar"),
        ("C(g, Treatment())", "Treatment takes one level"),
        ("C(g, Treatment('ash', 'birch'))", "Treatment takes one level"),
        ("C(g, Treatment(x))", "Treatment takes one level"),
        ("C(g, Sum('a'))", "C takes one column, and Treatment"),
        ("C('g')", "C takes one column"),
        ("cr(z)", "cr needs df or knots"),
        ("cr(z, df=1)", "df must be at least 2"),
        ("cr(z, df=4, knots=[1])", "df or knots, not both"),
        ("cr(h, df=9)", "4 different values are too few for 9 splines"),
        ("cr(z, knots=[1, 1])", "the knots must be different"),
        ("cr(z, knots=[1e9])", "inside the range"),
        ("I(cr(z, df=4))", "must not stand inside"),
        ("month(x)", r"month\(x\) needs dates, but column 'x' has type double"),
        ("month(q)", "unknown column 'q'"),
    ],
)
def test_reference_levels_splines_and_dates_that_mean_nothing_are_refused(right, message):
    with pytest.raises(DataError, match=message):
        planned(f"y ~ {right}", FRAME.head(400))


def test_categories_of_pandas_keep_their_order_from_frames_and_files(tmp_path):
    frame = FRAME.assign(g=pd.Categorical(FRAME.g, categories=["cedar", "unused", "birch", "ash"]))
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=300)
    for source in (lambda: frame, lambda: chunked(frame), lambda: tmp_path / "rows.parquet"):
        assert read(source(), "y ~ g", progress=False).columns == ("Intercept", "g[T.birch]", "g[T.ash]")
        labels = read(source(), "y ~ (1 | g)", progress=False).groups[0].labels
        assert labels.tolist() == ["cedar", "unused", "birch", "ash"]
        assert read(source(), "y ~ (1 | g:h)", progress=False).groups[0].labels[0] == "cedar:3"
    assert read(pa.table({"y": [0.0, 1.0], "g": pa.array(["b", "a"]).dictionary_encode()}), "y ~ g").columns[1] == "g[T.b]"


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


def test_local_times_count_in_zones():
    when = pd.date_range("2020-06-01 23:00", periods=4, freq="h", tz="UTC").tz_convert("Europe/Paris")
    data = read(
        pd.DataFrame({"y": np.zeros(4), "when": when}), "y ~ day(when) + days_since(when, '2020-06-01') + 0", progress=False
    )
    np.testing.assert_allclose(data.records[:, :2], [[2, 25 / 24], [2, 26 / 24], [2, 27 / 24], [2, 28 / 24]])


def test_dates_are_kept_by_stores_files_and_refused_without_a_function(tmp_path):
    frame = FRAME.assign(when=pd.date_range("2020-01-01", periods=2000, freq="D"))
    frame.to_parquet(tmp_path / "rows.parquet")
    data = read(tmp_path / "rows.parquet", "y ~ month(when)", memory="disk", store=tmp_path, progress=False)
    assert read(data.store, "y ~ month(when)").columns == ("Intercept", "month(when)")
    assert from_recipe(data.recipe, None, progress=False).fingerprint == data.fingerprint
    with pytest.raises(DataError, match=r"'when' has type .*not a number.*days_since\(when\)"):
        planned("y ~ when", frame)
    for right, message in (
        ("month(when, 'a')", "a column and nothing else"),
        ("days_since(when, 'May')", "counts from a day such as"),
    ):
        with pytest.raises(DataError, match=message):
            planned(f"y ~ {right}", frame)
    dates = frame.assign(when=frame.when.dt.date)
    with pytest.raises(DataError, match="has dates without times"):
        planned("y ~ hour(when)", dates)
    assert planned("y ~ weekday(when)", dates).columns == ("Intercept", "weekday(when)")


@pytest.mark.parametrize(
    "right, columns",
    [
        ("x + offset(log(z))", ("Intercept", "x")),
        ("offset(log(z)) + x", ("Intercept", "x")),
        ("offset( log(`z`) )", ("Intercept",)),
        ("x + offset(log(z)) - 1", ("x",)),
        ("g + offset(log(z)) + (1 | h)", ("Intercept", "g[T.birch]", "g[T.cedar]")),
    ],
)
def test_an_offset_may_stand_in_the_formula(right, columns):
    data, other = planned(f"y ~ {right}"), read(chunked(FRAME), "y ~ x", offset="log(z)", memory="ram", progress=False)
    assert data.columns == columns and data.has_offset
    order = np.arange(data.n) if data.order is None else data.order
    np.testing.assert_array_equal(data.records[:, data.d + 1], other.records[order, other.d + 1])
    assert "z" not in planned("y ~ . + offset(log(z))").columns


@pytest.mark.parametrize(
    "right, message",
    [
        ("x - offset(z)", r"an offset is added with \+"),
        ("x*offset(z)", r"an offset is added with \+"),
        ("offset(z)*x", r"an offset is added with \+"),
        ("offset(z) + offset(x)", "two offsets"),
        ("x + offset(z", r"an offset is added with \+"),
        ("x + offset(2*z)", "neither a column nor log"),
        ("x + offset(q)", "unknown offset column 'q'"),
    ],
)
def test_offsets_that_mean_nothing_are_refused(right, message):
    with pytest.raises(DataError, match=message):
        planned(f"y ~ {right}")
    with pytest.raises(DataError, match="two offsets"):
        read(chunked(FRAME), "y ~ offset(z)", offset="z", progress=False)


# Missing values and doubtful cells


def holes(n=3000):
    frame = frame_of(n)
    frame.loc[[5, 2500], "x"] = np.nan
    frame.loc[[5, 6, 7], "g"] = None
    return frame


@pytest.mark.parametrize("right", ["x", "x + g", "log(z) + x:g", "z + x + (1 | g)"])
def test_missing_values_are_counted_for_all_columns_at_once(right):
    message = r"row 5, column '\w' is (missing|nan)\. .*na='drop'.*'x' 2.*rows have some"
    for source in (holes(), chunked(holes()), pa.Table.from_pandas(holes(), preserve_index=False)):
        with pytest.raises(DataError, match=message) as caught:
            read(source, f"y ~ {right}", progress=False)
        if "g" in right and not isinstance(source, pa.RecordBatchReader):
            assert "'g' 3, 'x' 2; 4 of 3,000 rows have some" in str(caught.value)


@pytest.mark.parametrize("right", ["x", "x + g", "log(z) + x:g", "z + x + (1 | g)"])
@pytest.mark.parametrize("memory", ["ram", "disk"])
def test_rows_with_missing_values_are_dropped_and_counted(right, memory, tmp_path):
    used = ["y", "x", "z"] + ["g"] * ("g" in right)
    expected = read(holes().dropna(subset=used), f"y ~ {right}", memory="ram", progress=False)
    holes().to_parquet(tmp_path / "rows.parquet")
    for source in (holes(), chunked(holes()), tmp_path / "rows.parquet"):
        data = read(source, f"y ~ {right}", na="drop", memory=memory, progress=False)
        assert data.fingerprint == expected.fingerprint
        assert data.dropped == (4 if "g" in right else 2) and expected.dropped == 0
    assert read(tmp_path / "rows.parquet", f"y ~ {right}", na="drop", memory=memory, progress=False).dropped == data.dropped
    assert from_recipe(json.loads(json.dumps(data.recipe)), None, progress=False).fingerprint == expected.fingerprint
    with pytest.raises(tb.OptionError, match="unknown na 'omit'"):
        read(holes(), "y ~ x", na="omit")


def test_a_source_of_missing_rows_alone_has_no_rows():
    with pytest.raises(DataError, match="the source has no rows"):
        read(pa.table({"y": [None, 1.0], "x": [1.0, None]}), "y ~ x", na="drop", progress=False)


def test_a_text_cell_in_a_numeric_column_of_a_csv_is_named(tmp_path):
    path = tmp_path / "rows.csv"
    rows = [f"{k % 2},{k / 10},{'ABCD'[k % 4]},{k % 7}" for k in range(200)]
    rows[17] = "1,unknown,A,3"
    path.write_text("y,x,g,h\n" + "\n".join(rows) + "\n")
    for right in ("x", "x:g", "log(x)", "(x | g)"):
        with pytest.raises(
            DataError, match=r"rows.csv: row 17, column 'x' is 'unknown', but 199 of the first 200 cells are numbers.*C\(x\)"
        ):
            read(path, f"y ~ {right}", progress=False)
    with pytest.raises(DataError, match="row 17, column 'x' is 'unknown'"):
        read(path, "x ~ g", progress=False)
    assert read(path, "y ~ g + h", progress=False).columns == ("Intercept", "g[T.B]", "g[T.C]", "g[T.D]", "h")
    rows[17:] = [row.replace(row.split(",")[1], "2A") for row in rows[17:]]
    path.write_text("y,x,g,h\n" + "\n".join(rows) + "\n")
    assert len(read(path, "y ~ x", progress=False).columns) == 18  # mostly text: levels
