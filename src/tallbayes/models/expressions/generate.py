"""Source of a family from its expression: forward differentiation, written out as straight-line code without branches.

A node of the expression has a jet, its value and first three derivatives in eta. Sums, products and the chain rule combine
jets; a derivative that is zero or one leaves no trace, so the code of y*eta - log(1 + exp(eta)) is that of the logistic family.
"""

from __future__ import annotations

import re
from typing import Any

import sympy as sp
from scipy.special import roots_jacobi

from tallbayes.errors import ModelError
from tallbayes.models.expressions import special_functions as own
from tallbayes.models.expressions.grammar import ETA, Y

NODES = 5  # of the quadrature of a residual
Atom = float | str  # a number known now, or the name of a variable
Jet = tuple[Atom, ...]  # value, first, second and third derivative

_COMPARISON = {sp.Eq: "==", sp.Ne: "!=", sp.Lt: "<", sp.Le: "<=", sp.Gt: ">", sp.Ge: ">="}
_NAME = re.compile(r"\bt\d+\b")


class Code:
    """Lines of assignments, each right-hand side only once."""

    def __init__(self) -> None:
        self.lines: list[tuple[tuple[str, ...], str]] = []
        self.known: dict[str, tuple[str, ...]] = {}

    def name(self, text: str, count: int = 1) -> tuple[str, ...]:
        """Names of the results of an expression of Python."""
        if text not in self.known:
            first = sum(len(names) for names, _ in self.lines)
            names = tuple(f"t{first + k}" for k in range(count))
            self.lines.append((names, text))
            self.known[text] = names
        return self.known[text]

    def call(self, function: str, *arguments: Atom) -> str:
        """The result of a function of one value."""
        return self.name(f"{function}({', '.join(map(_text, arguments))})")[0]

    def times(self, *factors: Atom) -> Atom:
        """A product."""
        number, names = 1.0, []
        for factor in factors:
            if isinstance(factor, str):
                names.append(factor)
            else:
                number *= factor
        if number == 0.0 or not names:
            return number
        if number == -1.0:
            return self.name("-" + " * ".join(names))[0]
        if number != 1.0:
            names.insert(0, _text(number))
        return names[0] if len(names) == 1 else self.name(" * ".join(names))[0]

    def plus(self, *terms: Atom) -> Atom:
        """A sum."""
        number = sum(t for t in terms if not isinstance(t, str))
        names = [t for t in terms if isinstance(t, str)]
        if not names:
            return float(number)
        if number != 0.0:
            names.append(_text(number))
        return names[0] if len(names) == 1 else self.name(" + ".join(names))[0]

    def needed(self, outputs: tuple[Atom, ...]) -> list[str]:
        """The lines on which the outputs depend, in order."""
        wanted = {o for o in outputs if isinstance(o, str)}
        kept = []
        for names, text in reversed(self.lines):
            if wanted.intersection(names):
                wanted.update(_NAME.findall(text))
                kept.append(f"{', '.join(names)} = {text}")
        return kept[::-1]


def _text(atom: Atom) -> str:
    if isinstance(atom, str):
        return atom
    return f"({atom!r})" if atom < 0 else repr(float(atom))


class Writer:
    """Jets of the nodes of an expression."""

    variables: tuple[Any, ...] = (ETA,)

    def __init__(self) -> None:
        self.code = Code()
        self.jets: dict[Any, Jet] = {}

    def _fixed(self, value: Atom) -> Jet:
        """The jet of a constant."""
        return value, 0.0, 0.0, 0.0

    def _variable(self, node: Any) -> Jet:
        """The jet of a variable."""
        return "eta", 1.0, 0.0, 0.0

    def jet(self, node: Any) -> Jet:
        """Value and derivatives of a node, written once."""
        if node not in self.jets:
            self.jets[node] = self._write(node)
        return self.jets[node]

    def _write(self, node: Any) -> Jet:
        if node in self.variables:
            return self._variable(node)
        if node == Y:
            return self._fixed("y")
        if node.is_Symbol:
            return self._fixed(self.code.name(f"family.{_field(node.name)}")[0])
        if node.is_number:
            return self._fixed(float(node))
        if node.is_Add:
            jets = [self.jet(a) for a in node.args]
            large, small = zip(*(self._summands(a, j[0]) for a, j in zip(node.args, jets, strict=True)), strict=True)
            return self.code.plus(*large, *small), *(self.code.plus(*(j[k] for j in jets)) for k in range(1, len(jets[0])))
        if node.is_Mul:
            free, bound = node.as_independent(*self.variables, as_Add=False)
            factors = [] if free == 1 else [self._plain(free)]
            factors += [self.jet(a) for a in sp.Mul.make_args(bound)] if bound != 1 else []
            total = factors[0]
            for factor in factors[1:]:
                total = self._product(total, factor)
            return total
        if node.is_Pow:
            return self._power(node)
        if isinstance(node, sp.Piecewise):
            return self._choice(node)
        return self._function(node)

    def _summands(self, node: Any, value: Atom) -> tuple[Atom, Atom]:
        """A term of a sum in two parts, the second small: log(1 + e^x) = max(x, 0) + log1p(e^-|x|) keeps its last digits so."""
        free, bound = node.as_independent(*self.variables, as_Add=False)
        if not isinstance(bound, own.softplus):
            return value, 0.0
        top, small, _, _, _ = self._logistic(self.jet(bound.args[0])[0])
        factor = self._plain(free)[0] if free != 1 else 1.0
        return self.code.times(factor, top), self.code.times(factor, small)

    def _logistic(self, x: Atom) -> tuple[str, ...]:
        return self.code.name(f"logistic_parts({_text(x)})", 5)

    def _plain(self, node: Any) -> Jet:
        """A product of constants."""
        values = [self.jet(a)[0] for a in sp.Mul.make_args(node)]
        return self._fixed(self.code.times(*values))

    def _product(self, a: Jet, b: Jet) -> Jet:
        times, plus = self.code.times, self.code.plus
        return (
            times(a[0], b[0]),
            plus(times(a[1], b[0]), times(a[0], b[1])),
            plus(times(a[2], b[0]), times(2.0, a[1], b[1]), times(a[0], b[2])),
            plus(times(a[3], b[0]), times(3.0, a[2], b[1]), times(3.0, a[1], b[2]), times(a[0], b[3])),
        )

    def _chain(self, u: Jet, value: Atom, g1: Atom, g2: Atom, g3: Atom) -> Jet:
        times, plus = self.code.times, self.code.plus
        return (
            value,
            times(g1, u[1]),
            plus(times(g2, u[1], u[1]), times(g1, u[2])),
            plus(times(g3, u[1], u[1], u[1]), times(3.0, g2, u[1], u[2]), times(g1, u[3])),
        )

    def _power(self, node: Any) -> Jet:
        base, exponent = node.args
        code = self.code
        if exponent.has(*self.variables):
            return self.jet(sp.exp(exponent * sp.log(base), evaluate=False))
        u = self.jet(base)
        if exponent.is_Integer and exponent > 0:
            n = int(exponent)
            powers: list[Atom] = [1.0, u[0]]
            for k in range(2, n + 1):
                powers.append(code.times(powers[k // 2], powers[k - k // 2]))
            below = [powers[n - k] if n >= k else 0.0 for k in range(4)]
            return self._chain(
                u,
                powers[n],
                code.times(float(n), below[1]),
                code.times(float(n * (n - 1)), below[2]),
                code.times(float(n * (n - 1) * (n - 2)), below[3]),
            )
        inverse = code.call("inverse", u[0])
        p = self.jet(exponent)[0]
        if exponent.is_Integer:
            value: Atom = inverse
            for _ in range(-int(exponent) - 1):
                value = code.times(value, inverse)
        elif exponent == sp.Rational(1, 2):
            value = code.call("root", u[0])
        else:
            value = code.call("power", u[0], p)
        g1 = code.times(p, value, inverse)
        g2 = code.times(code.plus(p, -1.0), g1, inverse)
        return self._chain(u, value, g1, g2, code.times(code.plus(p, -2.0), g2, inverse))

    def _choice(self, node: Any) -> Jet:
        branches = [(self.jet(value), condition) for value, condition in node.args]
        jet_of_branch = branches[-1][0]
        for jet, condition in reversed(branches[:-1]):
            left, right = (_text(self.jet(side)[0]) for side in (condition.lhs, condition.rhs))
            test = f"{left} {_COMPARISON[condition.func]} {right}"
            jet_of_branch = tuple(
                a if a == b else self.code.name(f"{_text(a)} if {test} else {_text(b)}")[0]
                for a, b in zip(jet, jet_of_branch, strict=True)
            )
        return jet_of_branch

    def _function(self, node: Any) -> Jet:
        u, code = self.jet(node.args[0]), self.code
        times, plus, x = code.times, code.plus, u[0]
        kind = type(node)
        if kind is sp.exp:
            value = code.call("exp", x)
            return self._chain(u, value, value, value, value)
        if kind is own.expm1:
            grown = code.call("exp", x)
            return self._chain(u, code.call("expm1", x), grown, grown, grown)
        if kind in (sp.log, own.log1p):
            name, inside = ("log", x) if kind is sp.log else ("log1p", plus(x, 1.0))
            g1 = code.call("inverse", inside)
            return self._chain(u, code.call(name, x), g1, times(-1.0, g1, g1), times(2.0, g1, g1, g1))
        if kind is own.softplus:
            top, small, s, v, skew = self._logistic(x)
            return self._chain(u, plus(top, small), s, v, times(v, skew))
        if kind is own.expit:
            _, _, s, v, skew = self._logistic(x)
            return self._chain(u, s, v, times(v, skew), times(v, plus(1.0, times(-6.0, v))))
        if kind is own.log1mexp:
            q = code.call("inverse", code.call("expm1", x))
            g2 = times(-1.0, q, plus(1.0, q))
            return self._chain(u, code.call("log1mexp", x), q, g2, times(-1.0, g2, plus(1.0, times(2.0, q))))
        if kind is own.log_ndtr:
            value, m, c = code.name(f"normal_parts({_text(x)})", 3)
            g3 = times(m, plus(times(c, c), times(m, c), -1.0))
            return self._chain(u, value, m, times(-1.0, m, c), g3)
        if kind is own.ndtr:
            density = code.call("normal_density", x)
            g3 = times(density, plus(times(x, x), -1.0))
            return self._chain(u, code.call("normal_distribution", x), density, times(-1.0, x, density), g3)
        if kind is sp.tanh:
            value, g1 = code.name(f"tanh_parts({_text(x)})", 2)
            g3 = times(g1, plus(times(4.0, value, value), times(-2.0, g1)))
            return self._chain(u, value, g1, times(-2.0, value, g1), g3)
        if kind in (sp.sinh, sp.cosh):
            up, down = code.call("exp", x), code.call("exp", times(-1.0, x))
            cosh, sinh = times(0.5, plus(up, down)), times(0.5, plus(up, times(-1.0, down)))
            return self._chain(u, *((sinh, cosh, sinh, cosh) if kind is sp.sinh else (cosh, sinh, cosh, sinh)))
        if kind in (sp.sin, sp.cos):
            sine, cosine = code.call("math.sin", x), code.call("math.cos", x)
            minus = times(-1.0, sine), times(-1.0, cosine)
            return self._chain(u, *((sine, cosine, *minus) if kind is sp.sin else (cosine, minus[0], minus[1], sine)))
        if kind is sp.atan:
            g1 = code.call("inverse", plus(times(x, x), 1.0))
            g2 = times(-2.0, x, g1, g1)
            g3 = times(plus(times(6.0, x, x), -2.0), g1, g1, g1)
            return self._chain(u, code.call("math.atan", x), g1, g2, g3)
        if kind is sp.loggamma:
            return self._fixed(code.call("math.lgamma", x))
        if kind is sp.Abs:
            return self._fixed(code.call("abs", x))
        if kind in (sp.Min, sp.Max):
            other = [self.jet(a)[0] for a in node.args]
            return self._fixed(code.call("min" if kind is sp.Min else "max", *other))
        raise ModelError(f"{kind.__name__} cannot be compiled; write the expression with the listed functions.")


def _field(constant: str) -> str:
    """Name of a constant in the member: never one of the member's own."""
    return f"c_{constant}"


def fields(constants: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the constants as the generated member has them."""
    return tuple(_field(c) for c in constants)


def source(expression: Any) -> str:
    """Functions `value`, `jet1`, `jet2`, `third` and `residual` of a stable expression.

    >>> from tallbayes.models.expressions.grammar import parse
    >>> print(source(parse("y*exp(eta)")).partition("\\n\\n")[0])
    def value(family, eta, y):
        t0 = exp(eta)
        t1 = y * t0
        return t1
    """
    writer = Writer()
    jet = writer.jet(expression)
    parts = []
    for name, outputs in (("value", jet[:1]), ("jet1", jet[:2]), ("jet2", jet[:3]), ("third", jet[3:])):
        lines = writer.code.needed(outputs)
        result = ", ".join(repr(o) if not isinstance(o, str) else o for o in outputs)
        parts.append("\n    ".join([f"def {name}(family, eta, y):", *lines, f"return {result}"]))
    return "\n\n\n".join([*parts, _residual()]) + "\n"


def _residual() -> str:
    """Taylor's remainder as an integral, by Gauss-Jacobi quadrature where the difference would cancel.

    f(eta + s) less its expansion is s^3/2 int_0^1 (1 - t)^2 f'''(eta + s t) dt.
    """
    terms = [f"{w!r} * third(family, eta + {x!r} * near, y)" for x, w in zip(*quadrature(), strict=True)]
    lines = [
        "def residual(family, eta, y, shift):",
        "near = min(max(shift, -family.window), family.window)",
        "f, slope, curvature = jet2(family, eta, y)",
        "difference = value(family, eta + shift, y) - f - shift * (slope + 0.5 * curvature * shift)",
        f"integral = {' + '.join(terms)}",
        "integral = integral * near * near * near",
        "return integral if abs(shift) < family.window else difference",
    ]
    return "\n    ".join(lines)


def quadrature() -> tuple[list[float], list[float]]:
    """Nodes t and weights w with int_0^1 (1 - t)^2 g(t) dt / 2 = sum of w g(t) for polynomials g up to degree 2 NODES - 1.

    >>> points, weights = quadrature()
    >>> round(sum(w * t**2 for t, w in zip(points, weights)), 12), round(1 / 60, 12)
    (0.016666666667, 0.016666666667)
    """
    points, weights = roots_jacobi(NODES, 2.0, 0.0)
    return ((points + 1.0) / 2.0).tolist(), (weights / 16.0).tolist()
