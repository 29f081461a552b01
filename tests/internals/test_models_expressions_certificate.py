"""Certificates by ball arithmetic: never below what a grid finds, tight where they should be, and silent where unproven."""

import math

import numpy as np
import pytest
import sympy as sp
from flint import ctx

import tallbayes as tb
from tallbayes.engine.family_functions import third_supremum, third_supremum_on
from tallbayes.models.expressions import balls
from tallbayes.models.expressions.asymptotes import as_rational, never_positive
from tallbayes.models.expressions.certificate import Pieces, certified, is_affine, is_location, survey_responses
from tallbayes.models.expressions.grammar import ETA, Y, parse
from tallbayes.models.expressions.special_functions import elementary
from tallbayes.models.expressions.stabilise import stabilised

UNARY = (
    "exp({})",
    "softplus({})",
    "expit({})",
    "tanh({})",
    "sin({})",
    "cos({})",
    "atan({})",
    "log1p(({})**2)",
    "log(2 + cos({}))",
)
UNARY += ("sqrt(1 + ({})**2)", "log_ndtr({})", "ndtr({})", "1/(1 + ({})**2)", "expm1({})", "cosh({})", "sinh({})")


def random_expression(rng, depth=3):
    """A smooth expression of eta and y."""
    if depth == 0:
        return rng.choice(["eta", "y*eta", "(y - eta)", "0.7*eta", "(eta - 0.3)", "eta/2"])
    inner = random_expression(rng, depth - 1)
    form = rng.integers(4)
    if form == 0:
        return f"({inner} + {random_expression(rng, depth - 1)})"
    if form == 1:
        return f"({inner})*({random_expression(rng, 0)})"
    return str(rng.choice(UNARY)).format(f"({inner})/2")


def grid_maximum(expression, low, high, y, points=1201):
    """max |f'''| on a grid, by SymPy's derivative and mpmath-free double arithmetic."""
    derivative = sp.diff(elementary(expression), ETA, 3).subs(Y, sp.Rational(y))
    from scipy.special import erfc

    evaluate = sp.lambdify(ETA, derivative, [{"erfc": erfc}, "numpy"])
    with np.errstate(all="ignore"):
        values = np.abs(np.broadcast_to(evaluate(np.linspace(low, high, points)), points))
    return float(np.nanmax(values))


@pytest.mark.parametrize("seed", range(30))
def test_certified_suprema_of_random_expressions_are_above_a_dense_grid(seed):
    rng = np.random.default_rng(seed)
    text = random_expression(rng)
    y, low = float(rng.choice([-1.0, 0.0, 1.0, 2.5])), float(rng.uniform(-3.0, 0.0))
    high = low + float(rng.uniform(0.5, 3.0))
    expression = stabilised(parse(text))
    below, above = balls.supremum(balls.BallProgram(expression.subs(Y, sp.Rational(y))), low, high, y)
    largest = grid_maximum(parse(text), low, high, y)
    assert math.isfinite(above)
    assert largest <= above * (1.0 + 1e-6) + 1e-9  # the grid is in double precision
    assert above <= 1.002 * below + 1e-280
    assert above <= 1.01 * largest + 1e-7


def test_a_bound_without_the_remainder_would_be_caught(monkeypatch):
    monkeypatch.setattr(balls, "_WEIGHT", [6.0] + [0.0] * balls.ORDER)
    failures = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        text = random_expression(rng)
        cell = balls.Cell(balls.BallProgram(stabilised(parse(text)).subs(Y, 1)), -1.0, 1.0, balls.ball(1.0, 1.0))
        failures += grid_maximum(parse(text), -1.0, 1.0, 1.0) > cell.above * (1.0 + 1e-6) + 1e-9
    assert failures > 10


def test_a_cell_of_responses_is_covered():
    program = balls.BallProgram(stabilised(parse("-log(1 + (y - eta)**2) - y**2*exp(-eta)")))
    below, above = balls.supremum(program, -1.0, 1.0, 0.5, 0.6)
    single = [balls.supremum(program, -1.0, 1.0, y)[0] for y in (0.5, 0.53, 0.57, 0.6)]
    assert max(single) <= above <= 1.3 * max(single)
    assert below <= above


def test_the_precision_of_arb_is_restored():
    before = ctx.prec, ctx.cap
    with pytest.raises(ZeroDivisionError), balls.arithmetic():
        assert (ctx.prec, ctx.cap) != before
        1 / 0  # noqa: B018
    assert (ctx.prec, ctx.cap) == before


def made(text, y, constants=None):
    original = parse(text, constants or {})
    return certified(stabilised(original), original, constants or {}, survey_responses(np.asarray(y, float)))[:2]


def third_on_grid(text, y, low, high, constants=None):
    expression = Pieces(parse(text, constants or {}), constants or {}).resolved(y)
    values = {s: sp.Rational(constants[s.name]) for s in expression.free_symbols - {ETA, Y}} if constants else {}
    return grid_maximum(expression.subs(values), low, high, y, 400)


RNG = np.random.default_rng(8)
TABLES = {
    "few responses": ("y*eta - (y + 2)*log(2 + exp(eta))", [0.0, 1.0, 4.0], [0.0, 1.0, 4.0], {}),
    "chords": ("-k*y*exp(-eta) - k*eta", RNG.gamma(2.0, 1.0, 500), [0.11, 0.9, 2.345, 4.0], {"k": 1.5}),
    "chords beside a condition": (
        "where(y == 0, log(p + (1 - p)*exp(-exp(eta))), y*eta - y*log(1 + exp(eta)))",
        np.append(RNG.poisson(200.0, 900), 0.0),
        [0.0, 170.0, 199.0, 230.0],
        {"p": 0.3},
    ),
    "location": ("-2.5*log(1 + (y - eta)**2/4)", RNG.standard_normal(100), [-1.3, 0.01, 2.2, 40.0], {}),
    "cells of responses": ("-(y - exp(eta/4))**2*y/2", RNG.uniform(0.2, 2.0, 200), [0.3, 0.9, 1.7], {}),
}


@pytest.mark.parametrize("case", TABLES)
def test_tables_are_above_a_grid_on_any_interval_and_response(case):
    text, ys, probed, constants = TABLES[case]
    tables, report = made(text, ys, constants)
    assert np.diff(tables.knots).min(initial=1.0) > 0.0 and np.diff(tables.edges).min() > 0.0
    model = tb.models.family(text, tb.Dataset.from_arrays(np.ones((len(ys), 1)), ys), constants=constants)
    rng = np.random.default_rng(9)
    low_y, high_y = float(np.min(ys)), float(np.max(ys))
    for y in [v for v in probed if tables.location or low_y <= v <= high_y]:
        for width in (0.0, 1e-3, 0.2, 3.0):
            low = float(rng.uniform(-5.0, 2.0))
            found = third_supremum_on(model.member, y, low, low + width)
            truth = third_on_grid(text, y, low, low + width, constants)
            assert truth <= found * (1.0 + 1e-9) + 1e-12
            looser = third_on_grid(text, y, low - 0.3, low + width + 0.3, constants)
            assert found <= (6.0 if case == "cells of responses" else 1.5) * looser + 1e-6
            assert found <= third_supremum(model.member, y)
            if width and not tables.location:
                assert truth <= report.third_supremum(low, low + width, y) * (1.0 + 1e-9) + 1e-12


def test_responses_that_no_certificate_covers_have_no_bound():
    data = tb.Dataset.from_arrays(np.ones((4, 1)), [0.0, 1.0, 1.0, 4.0])
    member = tb.models.family("y*eta - (y + 2)*log(2 + exp(eta))", data).member
    for y in (-1.0, 0.5, 5.0, np.nan):
        assert third_supremum(member, y) == third_supremum_on(member, y, 0.0, 1.0) == np.inf
    assert third_supremum_on(member, 1.0, 2.0, np.nan) == np.inf


def test_a_table_finds_its_cells_at_and_beyond_the_edges():
    data = tb.Dataset.from_arrays(np.ones((2, 1)), [0.0, 1.0])
    member = tb.models.family("y*eta - log(1 + exp(eta))", data).member
    assert third_supremum_on(member, 1.0, -np.inf, np.inf) == third_supremum(member, 1.0)
    edge = float(member.edges[300])
    inside = third_supremum_on(member, 1.0, edge, edge)
    assert inside >= abs(np.exp(-abs(edge)) * (1 - np.exp(-abs(edge))) / (1 + np.exp(-abs(edge))) ** 3)
    assert third_supremum_on(member, 1.0, edge - 1e-9, edge + 1e-9) >= inside
    assert third_supremum_on(member, 1.0, 1e5, 1e6) < 1e-300


FACTS = {
    "y*eta - log(1 + exp(eta))": ([0, 1], True, True, True),
    "y*eta - exp(eta)": ([0, 1, 5], True, True, False),
    "-exp(2*eta) + y*eta": ([0, 1], True, False, False),  # |f'''| = 2 |f''|
    "-2.5*log(1 + (y - eta)**2/4)": (RNG.standard_normal(20), False, False, True),
    "-log(cosh((y - eta)/2))": (RNG.standard_normal(20), True, True, True),
    "-log(cosh(y - eta))": (RNG.standard_normal(20), True, False, True),
    "y*log(1 - exp(-exp(eta))) - (1 - y)*exp(eta)": ([0, 1], False, False, False),  # true, but not proven for all eta
    "y*sin(eta)": ([0, 1], False, False, False),
    "-(y - eta)**2": ([0, 1], True, True, True),
    "-(y**2 - 1)*eta**2": (RNG.uniform(-3.0, 3.0, 200), False, False, True),  # concave at the ends of y, not between
    "-(1 + y**2)*exp(eta)": (RNG.uniform(-3.0, 3.0, 200), False, False, False),  # true, but knots do not cover all of y
    "-y*exp(eta)": (RNG.uniform(0.5, 3.0, 200), True, True, False),  # affine: the ends of y cover the rest
}


REFUTED = ("y*sin(eta)", "-2.5*log(1 + (y - eta)**2/4)", "-(y**2 - 1)*eta**2")


@pytest.mark.parametrize("text", FACTS)
def test_log_concavity_self_concordance_and_global_suprema(text):
    ys, concave, concordant, bounded = FACTS[text]
    _, report = made(text, ys)
    assert (report.log_concave, report.self_concordant, math.isfinite(report.supremum)) == (concave, concordant, bounded)
    assert ("not log-concave" in report.curvature) == (text in REFUTED)
    assert str(report).startswith("sup |f'''| over all eta: " + ("" if bounded else "no bound proven"))


def test_partial_proofs_say_for_which_predictors():
    _, report = made("y*log(1 - exp(-exp(eta))) - (1 - y)*exp(eta)", [0, 1])
    assert report.curvature.startswith("log-concave, proven for eta from -2")


def test_signs_are_settled_by_counting_roots():
    x = sp.exp(ETA)
    assert never_positive(-((x - 1) ** 2)) and not never_positive((x - 1) * (x - 2)) and never_positive(sp.Integer(0) * ETA)
    assert not never_positive(-(ETA**2) + sp.Rational(1, 10**6)) and never_positive(-(ETA**4) - 1)
    assert not never_positive(-sp.exp(-x))  # true, but not of the form that is decided
    assert never_positive(-sp.exp(ETA / 3) / (1 + sp.exp(ETA / 2)))
    assert as_rational(ETA * x) is None


def test_forms_in_y_are_recognised():
    assert is_location(parse("-sqrt(1 + (y - eta)**2)")) and not is_location(parse("-(y - 2*eta)**2"))
    assert is_affine(parse("y*eta - exp(eta)")) and not is_affine(parse("y**2*eta"))


def test_many_responses_are_surveyed_in_blocks():
    y = np.arange(1000.0)
    found = survey_responses(y, chunk=64)
    assert found.distinct is None and found.grid[0] == 0.0 and found.grid[-1] == 999.0
    few = survey_responses(np.tile([3.0, 1.0], 500), chunk=64)
    np.testing.assert_array_equal(few.distinct, [1.0, 3.0])


def test_bad_intervals_are_refused():
    _, report = made("y*eta - exp(eta)", [0, 1])
    with pytest.raises(tb.ModelError, match="a finite interval"):
        report.third_supremum(0.0, np.inf, 1.0)
    with pytest.raises(tb.ModelError, match="a finite interval"):
        report.third_supremum(1.0, 0.0, 1.0)
