"""What holds for all eta, by algebra: bounds in the tails, and signs on the whole line.

A derivative that is a rational function of x = e^eta or of eta itself is one of finitely many polynomials: its tail is the
neighbourhood of 0 in x or 1/x, where ball arithmetic encloses it at once, and its sign is settled by counting real roots
(Sturm). Where a derivative is not of this form nothing is claimed about all eta.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import sympy as sp
from flint import arb

from tallbayes.models.expressions.balls import BallProgram, ball, rational, upper
from tallbayes.models.expressions.grammar import ETA, Y

_X = sp.Symbol("x", positive=True)
_MOST_OPERATIONS = 2000  # of a derivative that is brought to a common denominator


class Rational(NamedTuple):
    """A function of eta as a quotient of polynomials, lowest degree first, in e^(k eta) or in eta; coefficients are in y."""

    numerator: list[Any]
    denominator: list[Any]
    rate: Any  # k > 0 where the variable is e^(k eta), 0 where it is eta


def as_rational(expression: Any) -> Rational | None:
    """The quotient, or None if the function is of another kind.

    >>> as_rational(ETA / (1 + sp.exp(ETA))) is None
    True
    >>> as_rational(1 / (1 + sp.exp(ETA)))
    Rational(numerator=[1], denominator=[1, 1], rate=1)
    """
    if expression.count_ops() > _MOST_OPERATIONS:
        return None
    expression = expression.rewrite([sp.sinh, sp.cosh, sp.tanh], sp.exp)
    forms = [(expression, ETA, sp.Integer(0))]
    rate = _common_rate(expression)
    if rate is not None:
        forms.insert(0, (sp.powsimp(sp.expand(expression.subs(ETA, sp.log(_X) / rate), power_exp=True)), _X, rate))
    for form, variable, rate in forms:
        if (rate and form.has(ETA)) or not form.is_rational_function(variable):
            continue
        try:
            above, below = sp.fraction(sp.cancel(sp.together(form)))
            parts = [sp.Poly(p, variable).all_coeffs()[::-1] for p in (above, below)]
        except sp.PolynomialError:
            continue
        if not any(c.has(variable) for part in parts for c in part):
            return Rational(parts[0], parts[1], rate)
    return None


def _common_rate(expression: Any) -> Any:
    """The largest k > 0 such that every exponential is a whole power of e^(k eta) times a constant."""
    rates = []
    for exponent in {e.args[0] for e in expression.atoms(sp.exp) if e.has(ETA)}:
        rate = sp.diff(exponent, ETA)
        if not rate.is_Rational or rate == 0:
            return None
        rates.append(abs(rate))
    if not rates:
        return None
    common = math.lcm(*(int(r.q) for r in rates))
    return sp.Rational(math.gcd(*(int(r * common) for r in rates)), common)


class Tail:
    """Bounds of |g| beyond a point, g a rational function in the above sense."""

    def __init__(self, function: Rational, constants: Mapping[str, float]) -> None:
        self.function = function
        self.programs = [[BallProgram(c, constants) for c in part] for part in (function.numerator, function.denominator)]

    def bound(self, side: int, start: float, y: Any) -> float:
        """A proven bound of |g| for side * eta >= start > 0; infinite if there is none."""
        above, below = ([p.run(None, y) for p in part] for part in self.programs)
        if self.function.rate:
            small = (-arb(start) * rational(self.function.rate)).exp()
            variable = ball(0.0, math.nextafter(float(small.upper()), 1.0))
            at_infinity = side > 0
        else:
            small = math.nextafter(1.0 / start, 1.0 + 1.0 / start)
            variable = ball(0.0, small) if side > 0 else ball(-small, 0.0)
            at_infinity = True
        if at_infinity:  # in 1/x: coefficients in reverse order, and a power of 1/x to make up for the degrees
            excess = len(below) - len(above)
            if excess < 0:
                return math.inf
            above, below = above[::-1], below[::-1]
            above = [arb(0)] * excess + above
        return upper(_horner(above, variable) / _horner(below, variable))


def _horner(coefficients: list[Any], x: Any) -> Any:
    total = arb(0)
    for c in reversed(coefficients):
        total = total * x + c
    return total


def never_positive(expression: Any) -> bool:
    """Whether an expression in eta alone is proven to be at most 0 for all eta.

    >>> never_positive(-sp.exp(ETA) / (1 + sp.exp(ETA)) ** 2), never_positive(sp.exp(ETA) - 1)
    (True, False)
    """
    function = as_rational(expression)
    if function is None:
        return False
    variable = _X if function.rate else ETA
    sides = [sum(c * variable**k for k, c in enumerate(part)) for part in function[:2]]
    product = sp.expand(sides[0] * sides[1])
    if product == 0:
        return True
    low = 0 if function.rate else None
    try:
        _, factors = sp.factor_list(product, variable)
        for factor, multiplicity in factors:
            polynomial = sp.Poly(factor, variable, domain="QQ")
            if multiplicity % 2 == 0 or polynomial.degree() == 0:
                continue
            roots = polynomial.count_roots(low, None)
            if low == 0 and polynomial.eval(0) == 0:
                roots -= 1  # x = e^eta is never 0
            if roots:
                return False
    except (sp.PolynomialError, NotImplementedError, sp.polys.polyerrors.CoercionFailed):
        return False
    sample = sp.Integer(1) if product.subs(variable, 1) != 0 else sp.Integer(2)
    return bool(product.subs(variable, sample) <= 0)


def exact(expression: Any, constants: Mapping[str, float], y: float | None = None) -> Any:
    """The expression with the numbers in place of the names, as the rational numbers that floats are."""
    values = {s: sp.Rational(constants[s.name]) for s in expression.free_symbols if s not in (ETA, Y)}
    if y is not None:
        values[Y] = sp.Rational(y)
    return expression.subs(values)
