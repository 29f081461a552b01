"""Rewrite an expression so that floating-point numbers neither overflow nor cancel.

log(e^a + e^b) becomes a + softplus(b - a), log(1 - e^-a) log1mexp(a), log Phi(a) log_ndtr(a), e^a / (1 + e^a) expit(a),
e^a - 1 expm1(a), log(1 + a) log1p(a). Every rule is an identity wherever the left side is defined.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from tallbayes.models.expressions.grammar import ETA
from tallbayes.models.expressions.special_functions import expit, expm1, log1mexp, log1p, log_ndtr, ndtr, softplus


def stabilised(expression: Any) -> Any:
    """The same function in other operations.

    >>> from tallbayes.models.expressions.grammar import parse
    >>> stabilised(parse("y*log(1 - exp(-exp(eta))) - (1 - y)*exp(eta)"))
    y*log1mexp(exp(eta)) - (1 - y)*exp(eta)
    >>> stabilised(parse("y*eta - log(3 + exp(eta))"))
    eta*y - softplus(eta - log(3)) - log(3)
    """
    if not expression.args or not expression.has(ETA):
        return expression
    if isinstance(expression, sp.Piecewise):
        return sp.Piecewise(*((stabilised(value), condition) for value, condition in expression.args))
    rebuilt = expression.func(*(stabilised(a) for a in expression.args))
    if isinstance(rebuilt, sp.log):
        return _logarithm(rebuilt.args[0])
    if isinstance(rebuilt, log1p):
        inside = 1 + rebuilt.args[0]
        return _logarithm(_sum(inside) if inside.is_Add else inside)
    if rebuilt.is_Add:
        return _sum(rebuilt)
    if rebuilt.is_Pow:
        return _power(rebuilt)
    if rebuilt.is_Mul:
        return _product(rebuilt)
    return rebuilt


def log_of(term: Any) -> Any:
    """log(term) in stable operations if the term is positive by its form, else None."""
    if isinstance(term, sp.exp):
        return term.args[0]
    if isinstance(term, expit):
        return -softplus(-term.args[0])
    if isinstance(term, ndtr):
        return log_ndtr(term.args[0])
    if isinstance(term, sp.cosh):
        return softplus(2 * term.args[0]) - term.args[0] - sp.log(2)
    if term.is_Pow and term.exp.is_real and not term.exp.has(ETA):
        inner = log_of(term.base)
        return None if inner is None else term.exp * inner
    if term.is_Mul:
        parts = [log_of(factor) for factor in term.args]
        return None if any(p is None for p in parts) else sp.Add(*parts)
    if term.is_positive and not term.has(ETA):
        return sp.log(term)
    return None


def _logarithm(inside: Any) -> Any:
    whole = log_of(inside)
    if whole is not None:
        return whole
    for sign in (1, -1):
        if isinstance(sign * inside, expm1):
            exponent = (sign * inside).args[0]
            return log1mexp(-exponent) if sign < 0 else exponent + log1mexp(exponent)
    if inside.is_Mul:
        known = [f for f in inside.args if log_of(f) is not None]
        if known:
            return sp.Add(*(log_of(f) for f in known)) + _logarithm(inside / sp.Mul(*known))
    if inside.is_Add:
        return _logarithm_of_sum(inside)
    return sp.log(inside)


def _logarithm_of_sum(inside: Any) -> Any:
    terms = sorted(inside.args, key=lambda t: (t.has(ETA), sp.default_sort_key(t)))
    logs = [log_of(t) for t in terms]
    if all(l is not None for l in logs):
        total = logs[0]
        for l in logs[1:]:
            total = total + softplus(l - total)
        return total
    if len(terms) == 2:
        first, second = (0, 1) if logs[0] is not None else (1, 0)
        taken = log_of(-terms[second])
        if logs[first] is not None and taken is not None:
            return logs[first] + log1mexp(logs[first] - taken)
    return log1p(inside - 1) if any(t == 1 for t in terms) else sp.log(inside)


def _sum(total: Any) -> Any:
    """c - c e^a as -c expm1(a), c - c expit(a) as c expit(-a), and the same for Phi."""
    terms = list(total.args)
    for term in total.args:
        for factor in term.args if term.is_Mul else (term,):
            if not (isinstance(factor, sp.exp | expit | ndtr) and factor.has(ETA)):
                continue
            coefficient = term / factor
            if coefficient.has(ETA) or -coefficient not in terms or term not in terms:
                continue
            terms.remove(term)
            terms.remove(-coefficient)
            if isinstance(factor, sp.exp):
                terms.append(coefficient * expm1(factor.args[0]))
            else:
                terms.append(-coefficient * factor.func(-factor.args[0]))
    return sp.Add(*terms)


def _power(term: Any) -> Any:
    """(1 + e^a)^-n as expit(-a)^n."""
    base, exponent = term.base, term.exp
    if base.is_Add and len(base.args) == 2 and exponent.is_Integer and exponent < 0:
        logs = [log_of(t) for t in sorted(base.args, key=lambda t: (t.has(ETA), sp.default_sort_key(t)))]
        if logs[0] is not None and logs[1] is not None and not logs[0].has(ETA):
            scale = sp.exp(logs[0]) ** exponent
            return scale * expit(logs[0] - logs[1]) ** (-exponent)
    return term


def _product(term: Any) -> Any:
    """e^a expit(-a) as expit(a)."""
    factors = list(term.args)
    for factor in term.args:
        opposite = expit(-factor.args[0]) if isinstance(factor, sp.exp) else None
        if opposite in factors:
            factors.remove(factor)
            factors.remove(opposite)
            factors.append(expit(factor.args[0]))
    return sp.Mul(*factors)
