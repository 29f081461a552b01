"""Functions that SymPy lacks in a form that can be evaluated without overflow or cancellation."""

from __future__ import annotations

from typing import Any

import sympy as sp


class softplus(sp.Function):
    """log(1 + e^x)."""

    nargs = 1

    def fdiff(self, argindex: int = 1) -> Any:
        """expit(x)."""
        return expit(self.args[0])

    def elementary(self) -> Any:
        """In SymPy's own functions."""
        return sp.log(1 + sp.exp(self.args[0]))


class expit(sp.Function):
    """1 / (1 + e^-x)."""

    nargs = 1

    def fdiff(self, argindex: int = 1) -> Any:
        """expit(x) expit(-x)."""
        return expit(self.args[0]) * expit(-self.args[0])

    def elementary(self) -> Any:
        """In SymPy's own functions."""
        return sp.exp(self.args[0]) / (1 + sp.exp(self.args[0]))


class log1mexp(sp.Function):
    """log(1 - e^-x), x > 0."""

    nargs = 1

    def fdiff(self, argindex: int = 1) -> Any:
        """1 / (e^x - 1)."""
        return 1 / expm1(self.args[0])

    def elementary(self) -> Any:
        """In SymPy's own functions."""
        return sp.log(1 - sp.exp(-self.args[0]))


class log1p(sp.Function):
    """log(1 + x)."""

    nargs = 1

    def fdiff(self, argindex: int = 1) -> Any:
        """1 / (1 + x)."""
        return 1 / (1 + self.args[0])

    def elementary(self) -> Any:
        """In SymPy's own functions."""
        return sp.log(1 + self.args[0])


class expm1(sp.Function):
    """e^x - 1."""

    nargs = 1

    def fdiff(self, argindex: int = 1) -> Any:
        """e^x."""
        return sp.exp(self.args[0])

    def elementary(self) -> Any:
        """In SymPy's own functions."""
        return sp.exp(self.args[0]) - 1


class ndtr(sp.Function):
    """Phi(x), the normal distribution function."""

    nargs = 1

    def fdiff(self, argindex: int = 1) -> Any:
        """phi(x)."""
        return sp.exp(-(self.args[0] ** 2) / 2) / sp.sqrt(2 * sp.pi)

    def elementary(self) -> Any:
        """In SymPy's own functions."""
        return sp.erfc(-self.args[0] / sp.sqrt(2)) / 2


class log_ndtr(sp.Function):
    """log Phi(x)."""

    nargs = 1

    def fdiff(self, argindex: int = 1) -> Any:
        """phi(x) / Phi(x)."""
        return sp.exp(-(self.args[0] ** 2) / 2 - log_ndtr(self.args[0])) / sp.sqrt(2 * sp.pi)

    def elementary(self) -> Any:
        """In SymPy's own functions."""
        return sp.log(sp.erfc(-self.args[0] / sp.sqrt(2)) / 2)


OWN = (softplus, expit, log1mexp, log1p, expm1, ndtr, log_ndtr)


def elementary(expression: Any) -> Any:
    """The expression in SymPy's own functions.

    >>> x = sp.Symbol("x", real=True)
    >>> elementary(softplus(x))
    log(exp(x) + 1)
    """
    while expression.has(*OWN):
        expression = expression.replace(lambda e: isinstance(e, OWN), lambda e: e.elementary())
    return expression
