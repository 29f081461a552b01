"""Internals of `tallbayes.models.expressions.grammar`; what users see of it is tested in test_expressions.py."""

import pytest
import sympy as sp

import tallbayes as tb
from tallbayes.models.expressions.grammar import ETA, as_text, parse

ZERO_INFLATED = "where(y == 0, log(p + (1 - p)*exp(-exp(eta))), log(1 - p) + y*eta - exp(eta))"


# The grammar.


def test_a_sympy_expression_is_read_like_text():
    eta, y, p = sp.symbols("eta y p")
    written = sp.Piecewise(
        (sp.log(p + (1 - p) * sp.exp(-sp.exp(eta))), sp.Eq(y, 0)), (sp.log(1 - p) + y * eta - sp.exp(eta), True)
    )
    assert parse(written, {"p": 0.3}) == parse(ZERO_INFLATED, {"p": 0.3})
    assert parse(as_text(written), {"p": 0.3}) == parse(written, {"p": 0.3})
    assert parse(sp.Max(y, 1) * eta - sp.loggamma(y + 1) + sp.Abs(y)) == parse("max(y, 1)*eta - lgamma(y + 1) + abs(y)")
    with pytest.raises(tb.OptionError, match="zeta"):
        parse(sp.zeta(eta) * y)


def test_numbers_are_the_decimals_that_were_written():
    assert parse("0.1*eta") == sp.Rational(1, 10) * ETA
