"""General formulas: the columns of formulaic over streamed rows, what is refused, and plans that come out of a file."""

import contextlib

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from formulaic import model_matrix
from hypothesis import given, settings
from hypothesis import strategies as st

import tallbayes as tb
from tallbayes.data import read
from tallbayes.errors import DataError, TallbayesError
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


def test_poly_is_sound_for_sorted_columns_far_from_zero():
    x = np.sort(1e6 + np.random.default_rng(1).normal(size=5000)) + np.where(np.arange(5000) > 4990, 300.0, 0.0)
    data = planned("y ~ poly(x, 5)", pd.DataFrame({"y": x, "x": x}), size=64)
    columns = data.records[:, 1:6]
    np.testing.assert_allclose(columns.T @ columns, np.eye(5), atol=1e-7)
    np.testing.assert_allclose(columns.sum(0), 0.0, atol=1e-6)


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


# Reference levels, categories, dates, offsets, natural splines


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


def test_local_times_count_in_zones():
    when = pd.date_range("2020-06-01 23:00", periods=4, freq="h", tz="UTC").tz_convert("Europe/Paris")
    data = read(
        pd.DataFrame({"y": np.zeros(4), "when": when}), "y ~ day(when) + days_since(when, '2020-06-01') + 0", progress=False
    )
    np.testing.assert_allclose(data.records[:, :2], [[2, 25 / 24], [2, 26 / 24], [2, 27 / 24], [2, 28 / 24]])


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
