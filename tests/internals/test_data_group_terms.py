"""Internals of `tallbayes.data.group_terms`; what users see of it is tested in test_group_formula.py."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallbayes.data.formula import parse
from tallbayes.errors import DataError

NAMES = ("y", "x", "z", "g", "h", "c")


@pytest.fixture(autouse=True)
def stores(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("stores")
    monkeypatch.setenv("TALLBAYES_STORE", str(folder))
    return folder


# Syntax


@pytest.mark.parametrize(
    "right, population, groups",
    [
        ("(1|g)", "1", ["(1 | g)"]),
        ("x + (1 | g)", "1 + x", ["(1 | g)"]),
        ("(1 | g) + x", "1 + x", ["(1 | g)"]),
        ("(1 | g) - 1 + x", "0 + x", ["(1 | g)"]),
        ("x + (x | g)", "1 + x", ["(1 + x | g)"]),
        ("x + (1 + x | g)", "1 + x", ["(1 + x | g)"]),
        ("x + (0 + x | g)", "1 + x", ["(0 + x | g)"]),
        ("x + (x - 1 | g)", "1 + x", ["(0 + x | g)"]),
        ("x + (x || g)", "1 + x", ["(1 | g)", "(0 + x | g)"]),
        ("x + (0 + x || g)", "1 + x", ["(0 + x | g)"]),
        ("(1|g) + (1|h)", "1", ["(1 | g)", "(1 | h)"]),
        ("(1 | g/h)", "1", ["(1 | g)", "(1 | g:h)"]),
        ("(1 | g/h/c)", "1", ["(1 | g)", "(1 | g:h)", "(1 | g:h:c)"]),
        ("(1 | g/h:c)", "1", ["(1 | g)", "(1 | g:h:c)"]),
        ("(1 | g:h)", "1", ["(1 | g:h)"]),
        (". + (1 | g)", "1 + x + z + h + c", ["(1 | g)"]),
        (". + (z | g:h)", "1 + x + z + c", ["(1 + z | g:h)"]),
        ("(x + z)*c + (log(z):x + (x) | `g`)", "1 + x + z + c + x:c + z:c", ["(1 + x + log(z):x | g)"]),
    ],
)
def test_group_terms_are_read_as_lme4_brms_and_bambi_read_them(right, population, groups):
    formula = parse(f"y ~ {right}", NAMES, {"g", "c"})
    assert (formula.text, [term.text for term in formula.groups]) == (population, groups)


@pytest.mark.parametrize(
    "right, message",
    [
        ("x | g", r"in parentheses of its own and is added with \+"),
        ("x*(1 | g)", "in parentheses of its own"),
        ("(1 | g):x", "in parentheses of its own"),
        ("((1 | g))", "in parentheses of its own"),
        ("log(x | g)", "in parentheses of its own"),
        ("(x + (1 | g))", "in parentheses of its own"),
        ("(1 | g) x", "in parentheses of its own"),
        ("x - (1 | g)", "cannot be taken away"),
        ("(1 | g + h)", r"write \(1 \| a\) \+ \(1 \| b\) for two"),
        ("(1 | g * h)", r"write \(1 \| a\) \+ \(1 \| b\) for two"),
        ("(1 | i | g)", r"one bar.*not \(1 \| id \| g\)"),
        ("( | g)", "no effect before it"),
        ("(1 | )", "no grouping factor after it"),
        ("(1 | g/)", "no grouping factor after it"),
        ("(1 | C(g))", "compute it as a column first"),
        ("(1 | 2)", "a grouping factor is a column"),
        ("(1 | g:g)", "twice in one grouping factor"),
        ("(. | g)", "name the effects"),
        ("(1 | g", "not closed"),
        ("(0 | g)", "leaves no predictor"),
        ("0 + (1 | g)", "leaves no predictor"),
        ("(1 | q)", "unknown column 'q'"),
        ("(q | g)", "unknown column 'q'"),
        ("(1 | y)", "the response 'y' is also a grouping factor"),
        ("(y | g)", "the response 'y' is also a predictor"),
        ("(1 | g) + (1 | g)", r"'1' of 'g' appears twice.*\(0 \+ x \| g\)"),
        ("(1 | g) + (x | g)", "'1' of 'g' appears twice"),
    ],
)
def test_group_terms_that_mean_nothing_are_refused_with_the_reason(right, message):
    with pytest.raises(DataError, match=message):
        parse(f"y ~ {right}", NAMES, {"g", "c"})


@given(st.lists(st.sampled_from(["x", "g", "(", ")", "|", "||", "+", "-", ":", "/", "*", "1", "0", "C(", "."]), max_size=12))
@settings(max_examples=300, deadline=None)
def test_any_tokens_are_understood_or_refused(tokens):
    try:
        formula = parse("y ~ " + " ".join(tokens), NAMES, {"g"})
    except DataError:
        return
    again = parse(f"y ~ {formula.text} + {' + '.join(t.text for t in formula.groups)}".rstrip(" +"), NAMES, {"g"})
    assert (again.text, [t.text for t in again.groups]) == (formula.text, [t.text for t in formula.groups])
