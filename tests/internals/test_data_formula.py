"""Internals of `tallbayes.data.formula`; what users see of it is tested in test_data.py."""

import pytest

from tallbayes.data.formula import parse
from tallbayes.errors import DataError


@pytest.fixture(autouse=True)
def stores(tmp_path, monkeypatch):
    folder = tmp_path / "stores"
    monkeypatch.setenv("TALLBAYES_STORE", str(folder))
    return folder


AVAILABLE = ("y", "a", "b c", "d.e", "t")


@pytest.mark.parametrize(
    "formula, columns, intercept",
    [
        ("y ~ a", ("a",), True),
        ("y~a+d.e", ("a", "d.e"), True),
        ("y ~ d.e + a", ("d.e", "a"), True),
        ("y ~ .", ("a", "b c", "d.e"), True),
        ("y ~ . + t", ("a", "b c", "d.e", "t"), True),
        ("y ~ . - a", ("b c", "d.e"), True),
        ("y ~ . - `b c` - d.e", ("a",), True),
        ("y ~ . - .", (), True),
        ("y ~ . - y", ("a", "b c", "d.e"), True),
        ("y ~ (d.e + a)", ("d.e", "a"), True),
        ("y ~ . - . + a", ("a",), True),
        ("y ~ a + 0", ("a",), False),
        ("y ~ 0 + a", ("a",), False),
        ("y ~ a - 1", ("a",), False),
        ("y ~ -1 + a", ("a",), False),
        ("y ~ a - 0", ("a",), True),
        ("y ~ a - 1 + 1", ("a",), True),
        ("y ~ 1", (), True),
        ("y ~ a + a", ("a",), True),
        ("`y` ~ `a` + `b c`", ("a", "b c"), True),
        (" `b c` ~ a ", ("a",), True),
    ],
)
def test_formulas_choose_columns(formula, columns, intercept):
    response = "b c" if "`b c` ~" in formula else "y"
    terms = parse(formula, AVAILABLE, reserved=("t",))
    assert (terms.response, terms.columns, terms.intercept, terms.plain) == (response, columns, intercept, True)


@pytest.mark.parametrize(
    "formula, message",
    [
        ("y", "exactly one ~"),
        ("y ~ a ~ t", "exactly one ~"),
        ("z ~ a", "unknown response column 'z'"),
        ("y ~ aa", "unknown column 'aa'; did you mean 'a'"),
        ("y ~ `b`", "unknown column 'b'"),
        ("y ~ a ^ t", r"'\^' in the formula .* inside I\(\), such as"),
        ("y ~ a + 2", "'2' in the formula"),
        ("y ~ `a", "'`' in the formula"),
        ("y ~ a t", "no \\+ or - before 't'"),
        ("y ~ 10", "'10' in the formula"),
        ("y ~ a + + t", "sign without a term before 't'"),
        ("y ~ a + - t", "sign without a term before 't'"),
        ("y ~ a - - t", "sign without a term before 't'"),
        ("y ~ + a", "sign without a term before 'a'"),
        ("y ~ a +", "ends without a term"),
        ("y ~ ", "ends without a term"),
        ("y ~ 0", "leaves no predictor"),
        ("y ~ . - . - 1", "leaves no predictor"),
        ("y ~ a + y", "the response 'y' is also a predictor"),
    ],
)
def test_formulas_are_refused_with_a_reason(formula, message):
    with pytest.raises(DataError, match=message):
        parse(formula, AVAILABLE)
