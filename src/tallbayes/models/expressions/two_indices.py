"""Source of a family with an unknown scale: f(eta, tau), tau = `log_scale` the last coordinate of theta.

Jets are (f, f_eta, f_tau, f_eta_eta, f_eta_tau, f_tau_tau). A law of location and scale has a certificate (`location_scale`);
samplers that need one refuse other models of two indices, all others run.
"""

from __future__ import annotations

from typing import Any

from tallbayes.models.expressions.generate import Atom, Jet, Writer
from tallbayes.models.expressions.grammar import ETA, LOG_SCALE

_SECOND = ((1, 1), (1, 2), (2, 2))  # pairs of first derivatives, in the order of the second ones


class PairWriter(Writer):
    """Jets in two variables, to second order."""

    variables = (ETA, LOG_SCALE)

    def _fixed(self, value: Atom) -> Jet:
        return value, 0.0, 0.0, 0.0, 0.0, 0.0

    def _variable(self, node: Any) -> Jet:
        return ("u[0]", 1.0, 0.0, 0.0, 0.0, 0.0) if node == ETA else ("u[1]", 0.0, 1.0, 0.0, 0.0, 0.0)

    def _product(self, a: Jet, b: Jet) -> Jet:
        times, plus = self.code.times, self.code.plus
        first = [plus(times(a[k], b[0]), times(a[0], b[k])) for k in (1, 2)]
        second = [
            plus(times(a[3 + k], b[0]), times(a[i], b[j]), times(a[j], b[i]), times(a[0], b[3 + k]))
            for k, (i, j) in enumerate(_SECOND)
        ]
        return times(a[0], b[0]), *first, *second

    def _chain(self, u: Jet, value: Atom, g1: Atom, g2: Atom, g3: Atom) -> Jet:
        times, plus = self.code.times, self.code.plus
        second = [plus(times(g2, u[i], u[j]), times(g1, u[3 + k])) for k, (i, j) in enumerate(_SECOND)]
        return value, times(g1, u[1]), times(g1, u[2]), *second


def pair_source(expression: Any) -> str:
    """Functions `vector_value`, `vector_gradient` and `vector_hessian` of a stable expression of eta and log_scale.

    >>> print(pair_source(ETA * LOG_SCALE).partition("\\n\\n")[0])
    def vector_value(family, u, y):
        t0 = u[0] * u[1]
        return t0
    """
    writer = PairWriter()
    jet = writer.jet(expression)
    places = ("gradient[0]", "gradient[1]", "hessian[0, 0]", "hessian[0, 1]", "hessian[1, 1]")
    parts = []
    for name, arguments, count in (("value", "", 0), ("gradient", ", gradient", 2), ("hessian", ", gradient, hessian", 5)):
        lines = writer.code.needed(jet[: count + 1])
        lines += [f"{place} = {atom}" for place, atom in zip(places[:count], jet[1:], strict=False)]
        lines += ["hessian[1, 0] = hessian[0, 1]"] if count == 5 else []
        parts.append("\n    ".join([f"def vector_{name}(family, u, y{arguments}):", *lines, f"return {jet[0]}"]))
    return "\n\n\n".join(parts) + "\n"
