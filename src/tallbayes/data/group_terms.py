"""Group terms of formulas, `(1 + x | g)`: cut out of the tokens of a formula and taken apart as lme4, brms and bambi read them.

`(x || g)` has uncorrelated effects, `(1 | a:b)` an effect of each combination that occurs, `(1 | a/b)` is `(1 | a) + (1 | a:b)`.
Nothing is looked up here: tokens in, tokens and names out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

Token = tuple[str, str]  # kind and text
Refuse = Callable[[str, str], NoReturn]  # of a token, with the reason

_BARS = ("|", "||")
_ALONE = "a group term stands in parentheses of its own and is added with +, such as y ~ x + (1 | g)."


class GroupSyntax(NamedTuple):
    """One factor of a group term: tokens of its effects, the columns whose combinations are the levels, correlated or not."""

    effects: tuple[Token, ...]
    factor: tuple[str, ...]
    correlated: bool


def cut_group_terms(tokens: Sequence[Token], refuse: Refuse) -> tuple[list[Token], list[GroupSyntax]]:
    """The tokens without the group terms, and the group terms, nested ones expanded.

    >>> kinds = {"(": "symbol", ")": "symbol", "|": "symbol", "+": "symbol", "/": "symbol", "1": "number"}
    >>> tokens = [(kinds.get(t, "name"), t) for t in "x + ( 1 | a / b )".split()]
    >>> rest, groups = cut_group_terms(tokens, print)
    >>> [text for _, text in rest], [group.factor for group in groups]
    (['x'], [('a',), ('a', 'b')])
    """
    rest: list[Token] = []
    groups: list[GroupSyntax] = []
    position = 0
    while position < len(tokens):
        text = tokens[position][1]
        if text in _BARS:
            refuse(text, _ALONE)
        if text != "(" or (rest and rest[-1][0] == "name"):
            rest.append(tokens[position])
            position += 1
            continue
        end = _closing(tokens, position)
        inside = tokens[position + 1 : end]
        bars = [k for k, (_, t) in enumerate(inside) if t in _BARS]
        if not bars:
            rest += tokens[position : end + 1]
        else:
            _require_sum(tokens, position, end, refuse)
            if rest:
                rest.pop()  # the sign before it
            groups += _group(inside, bars, refuse)
        position = end + 1
    if rest and rest[0][1] == "+" and groups:
        rest = rest[1:]
    return rest, groups


def _closing(tokens: Sequence[Token], start: int) -> int:
    depth = 0
    for position in range(start, len(tokens)):
        depth += (tokens[position][1] == "(") - (tokens[position][1] == ")")
        if depth == 0:
            return position
    return len(tokens) - 1


def _require_sum(tokens: Sequence[Token], start: int, end: int, refuse: Refuse) -> None:
    before = tokens[start - 1][1] if start else "+"
    after = tokens[end + 1][1] if end + 1 < len(tokens) else "+"
    if tokens[end][1] != ")":
        refuse("(", "a parenthesis is not closed.")
    if before == "-":
        refuse("|", "a group term cannot be taken away; leave it out of the formula.")
    if before != "+" or after not in ("+", "-"):
        refuse("|", _ALONE)


def _group(inside: Sequence[Token], bars: list[int], refuse: Refuse) -> list[GroupSyntax]:
    """The terms of one pair of parentheses."""
    bar = inside[bars[0]][1]
    if len(bars) > 1:
        refuse(
            bar, "a group term has one bar; effects of different terms are not correlated, so write (1 | g), not (1 | id | g)."
        )
    left, right = tuple(inside[: bars[0]]), inside[bars[0] + 1 :]
    depth = 0
    for _, text in left:
        depth += (text == "(") - (text == ")")
    if depth:
        refuse(bar, _ALONE)
    if not left:
        refuse(bar, "there is no effect before it; write (1 | g) for an intercept of each level.")
    return [GroupSyntax(left, factor, bar == "|") for factor in _factors(bar, right, refuse)]


def _factors(bar: str, right: Sequence[Token], refuse: Refuse) -> list[tuple[str, ...]]:
    """The columns after a bar: a, a:b, and a/b for a and a:b."""
    out: list[tuple[str, ...]] = []
    names: tuple[str, ...] = ()
    expected = True
    for kind, text in right:
        if expected and kind == "name":
            name = text.strip("`")
            if name in names:
                refuse(text, "the column appears twice in one grouping factor; name it once.")
            names, expected = (*names, name), False
        elif not expected and text == ":":
            expected = True
        elif not expected and text == "/":
            out.append(names)
            expected = True
        elif text in ("+", "*"):
            refuse(
                text, "one term has one grouping factor; write (1 | a) + (1 | b) for two, and (1 | a:b) for their combinations."
            )
        elif text == "(" and not expected:
            refuse(text, "a grouping factor is a column or a combination of columns; compute it as a column first.")
        else:
            refuse(text, "a grouping factor is a column, a:b for combinations, or a/b for levels of b inside those of a.")
    if expected:
        refuse(bar, "there is no grouping factor after it; write (1 | g), g a column.")
    return [*out, names]
