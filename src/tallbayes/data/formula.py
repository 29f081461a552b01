"""Formulas: from text to terms, by one parser. Nothing is evaluated here.

`parse` reads sums of columns (`y ~ x1 + x2`, `y ~ .`, `y ~ . - x3`, `+ 0` or `- 1` for no intercept), levels, interactions and
transforms, each checked against a whitelist, group terms `(1 + x | g)`, and `offset(log(exposure))`. Names that are not plain words
stand in backquotes. A formula that only names numeric columns is `plain`: its design matrix is those columns, and no pass over the
rows is needed to know it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

from tallbayes.data.factors import TRANSFORMS, is_smooth, number_of, options, parse_factor, placeholder, with_names
from tallbayes.data.group_terms import GroupSyntax, Token, cut_group_terms
from tallbayes.errors import DataError, unknown


def _response(left: str, available: tuple[str, ...]) -> str:
    response = left.strip().strip("`")
    if response in available:
        return response
    if not response:
        raise DataError(f"the formula has no response; write it before ~, such as {available[0]} ~ .")
    if re.search(r"[()+*/-]", response):
        raise DataError(f"the response {response!r} must be a column; compute it as a column first.")
    raise DataError(str(unknown("response column", response, available)))


MOST_TERMS = 1000
_DEEPEST = 40
_GENERAL = re.compile(
    r"\s*(?:(?P<name>[^\W\d][\w.]*|`[^`]+`)|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<all>\.)"
    r"|(?P<text>\"[^\"\\\n]*\"|'[^'\\\n]*')"
    r"|(?P<symbol>\*\*|//|\|\||[-+*/:^%|()\[\],=])|(?P<other>\S))"
)
_UNDERSTOOD = "a formula has columns, transforms and + - : * ( ) . 0 1; arithmetic goes inside I(), such as I(x**2)."


@dataclass(frozen=True)
class Factor:
    """One factor of a term: its canonical text, its checked tree over placeholders, and the columns it needs."""

    text: str
    tree: ast.expr
    numbers: tuple[int, ...]  # positions of the columns used as numbers
    level: int | None = None  # position of the column used as levels


Products = dict[frozenset[str], tuple[Factor, ...]]


@dataclass(frozen=True)
class Formula:
    """What a formula asks for: terms in the order of formulaic, each a product of factors."""

    response: str
    terms: tuple[tuple[Factor, ...], ...]
    names: tuple[str, ...]  # the columns that placeholders count
    groups: tuple[GroupTerm, ...] = ()

    @property
    def text(self) -> str:
        """The right-hand side in canonical form."""
        parts = [":".join(f.text for f in term) if term else "1" for term in self.terms]
        return " + ".join(parts if self.intercept else ["0", *parts])

    @property
    def plain(self) -> bool:
        """Whether the terms are numeric columns as they are, with or without an intercept."""
        return all(len(term) < 2 and all(f.level is None and isinstance(f.tree, ast.Name) for f in term) for term in self.terms)

    @property
    def intercept(self) -> bool:
        """Whether there is a column of ones."""
        return () in self.terms

    @property
    def factors(self) -> tuple[Factor, ...]:
        """All different factors."""
        return tuple({f.text: f for term in self.terms for f in term}.values())

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read: those of a plain formula as written, others in the order of the source."""
        if self.plain:
            return tuple(self.names[f.numbers[0]] for f in self.factors)
        used = {k for f in self.factors for k in (*f.numbers, *(() if f.level is None else (f.level,)))}
        return tuple(self.names[k] for k in sorted(used))


@dataclass(frozen=True)
class GroupTerm:
    """Effects that vary by the levels of a factor: a formula of the effects, and the columns whose combinations are levels."""

    effects: Formula
    factor: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the factor."""
        return ":".join(self.factor)

    @property
    def text(self) -> str:
        """Canonical form."""
        return f"({self.effects.text} | {self.name})"


def parse(formula: str, available: tuple[str, ...], levels: Collection[str] = (), reserved: tuple[str, ...] = ()) -> Formula:
    """Read a formula against the columns of a source; `.` means every column not used elsewhere, `levels` are those that are text.

    Every factor passes the whitelist of `factors.parse_factor`. The terms come in the order of formulaic: by degree, then as
    written.

    >>> parse("y ~ . - b", ("y", "a", "b", "c")).columns
    ('a', 'c')
    >>> parse("y ~ a*g - g + log(b)", ("y", "a", "b", "g"), {"g"}).text
    '1 + a + log(b) + a:g'
    >>> [term.text for term in parse("y ~ a + (a || g/b)", ("y", "a", "b", "g"), {"g"}).groups]
    ['(1 | g)', '(0 + a | g)', '(1 | g:b)', '(0 + a | g:b)']
    """
    if formula.count("~") != 1:
        raise DataError(f"the formula {formula!r} needs exactly one ~ between response and predictors.")
    left, right = formula.split("~")
    response = _response(left, available)
    refuse = partial(_refuse, formula)
    tokens, syntax = cut_group_terms(_tokens(formula, right), refuse)
    reserved = (*reserved, *(name for group in syntax for name in group.factor))

    def formula_of(tokens: Sequence[Token]) -> Formula:
        terms = _Parser(formula, tokens, response, available, levels, reserved).terms()
        out = Formula(response, tuple(sorted(terms.values(), key=len)), available)
        for name in () if out.plain else out.columns:
            if "`" in name or "~" in name:
                raise DataError(f"the name of column {name!r} has a ` or ~ in it; rename the column.")
        return out

    population = formula_of(tokens or ([("number", "1")] if syntax else []))
    groups = [term for group in syntax for term in _group_terms(formula, group, formula_of(group.effects))]
    _check_groups(formula, groups, available, response)
    return replace(population, groups=tuple(groups))


def _refuse(formula: str, token: str, reason: str) -> NoReturn:
    raise DataError(f"{token!r} in the formula {formula!r}: {reason}")


def _tokens(formula: str, right: str) -> list[Token]:
    out = []
    for match in _GENERAL.finditer(right):
        kind, token = match.lastgroup or "", match.group().strip()
        if kind == "other":
            _refuse(formula, token, _UNDERSTOOD)
        module, _, function = token.partition(".")
        out.append((kind, function if module in ("np", "numpy") and function in TRANSFORMS else token))
    return out


def _group_terms(formula: str, group: GroupSyntax, effects: Formula) -> list[GroupTerm]:
    """One term, or one of each effect if they are not correlated."""
    if any(kind == "all" for kind, _ in group.effects):
        _refuse(formula, ".", "name the effects that vary by group.")
    if any(is_smooth(f.tree) for f in effects.factors):
        _refuse(formula, "s", "a smooth does not vary by group; write s(x, by=g) for one of every level.")
    if group.correlated:
        return [GroupTerm(effects, group.factor)]
    return [GroupTerm(replace(effects, terms=(term,)), group.factor) for term in effects.terms]


def _check_groups(formula: str, groups: list[GroupTerm], available: tuple[str, ...], response: str) -> None:
    seen: set[tuple[str, str]] = set()
    for group in groups:
        for name in group.factor:
            if name not in available:
                raise DataError(str(unknown("column", name, available)))
            if name == response:
                raise DataError(f"the response {name!r} is also a grouping factor in the formula {formula!r}.")
        for term in group.effects.terms:
            text = ":".join(f.text for f in term) or "1"
            if (text, group.name) in seen:
                raise DataError(
                    f"the effect {text!r} of {group.name!r} appears twice in the formula {formula!r}. (x | g) has an intercept, too: write "
                    "(0 + x | g) for the slope alone."
                )
            seen.add((text, group.name))


class _Parser:
    """Recursive descent over the right-hand side; terms are kept under the set of the texts of their factors."""

    def __init__(
        self,
        formula: str,
        tokens: Sequence[Token],
        response: str,
        available: tuple[str, ...],
        levels: Collection[str],
        reserved: tuple[str, ...],
    ) -> None:
        self.formula, self.response, self.available, self.levels = formula, response, available, levels
        self.rest = tuple(c for c in available if c != response and c not in reserved)
        self.positions = {name: k for k, name in reversed(list(enumerate(available)))}
        self.position, self.depth, self.sign = 0, 0, "+"
        self.tokens = list(tokens)

    def refuse(self, token: str, reason: str) -> NoReturn:
        _refuse(self.formula, token, reason)

    def peek(self) -> str:
        return self.tokens[self.position][1] if self.position < len(self.tokens) else ""

    def terms(self) -> Products:
        terms = self.sum({frozenset(): ()})
        if self.position < len(self.tokens):
            if self.tokens[self.position][0] in ("name", "number", "all"):
                raise DataError(f"the formula {self.formula!r} has no + or - before {self.peek()!r}.")
            self.refuse(self.peek(), _UNDERSTOOD)
        if not terms:
            raise DataError(f"the formula {self.formula!r} leaves no predictor.")
        return terms

    def sum(self, terms: Products) -> Products:
        sign = "+"
        if self.peek() == "-":
            sign, self.position = "-", self.position + 1
        while True:
            if self.peek() in ("0", "1"):
                if self.depth:
                    self.refuse(self.peek(), "0 and 1 stand outside parentheses.")
                if (self.peek() == "1") == (sign == "+"):
                    terms = {frozenset(): (), **terms}
                else:
                    terms.pop(frozenset(), None)
                self.position += 1
            else:
                outer, self.sign = self.sign, sign
                product = self.product()
                self.sign = outer
                if sign == "-":
                    for key in product:
                        terms.pop(key, None)
                else:
                    terms = {**terms, **{k: v for k, v in product.items() if k not in terms}}
            if self.peek() not in ("+", "-"):
                return terms
            sign = self.peek()
            self.position += 1

    def product(self) -> Products:
        terms = self.interaction()
        while self.peek() == "*":
            self.position += 1
            other = self.interaction()
            terms = {**terms, **other, **self.cross(terms, other)}
        return terms

    def interaction(self) -> Products:
        terms = self.atom()
        while self.peek() == ":":
            self.position += 1
            terms = self.cross(terms, self.atom())
        return terms

    def cross(self, terms: Products, other: Products) -> Products:
        if len(terms) * len(other) > MOST_TERMS:
            raise DataError(f"the formula {self.formula!r} has more than {MOST_TERMS} terms; name those that matter.")
        for factor in (f for product in (*terms.values(), *other.values()) for f in product if is_smooth(f.tree)):
            self.refuse(factor.text, "a smooth stands alone; write s(x, by=g) for a smooth of every level of g.")
        return {a | b: tuple({f.text: f for f in (*s, *t)}.values()) for a, s in terms.items() for b, t in other.items()}

    def atom(self) -> Products:
        if self.position >= len(self.tokens):
            raise DataError(f"the formula {self.formula!r} ends without a term; write y ~ 1 for an intercept alone.")
        kind, token = self.tokens[self.position]
        self.position += 1
        if token == "(":
            self.depth += 1
            if self.depth > _DEEPEST:
                self.refuse(token, "parentheses are nested too deep.")
            terms = self.sum({})
            if self.peek() != ")":
                self.refuse(self.peek() or "(", "a parenthesis is not closed.")
            self.depth -= 1
            self.position += 1
            return terms
        if token in ("+", "-"):
            raise DataError(f"the formula {self.formula!r} has a sign without a term before {self.peek()!r}.")
        if kind == "all":
            return {frozenset([f.text]): (f,) for f in map(self.column, self.rest)}
        if kind != "name":
            self.refuse(token, _UNDERSTOOD)
        factor = self.call() if self.peek() == "(" and not token.startswith("`") else self.column(token.strip("`"))
        return {frozenset([factor.text]): (factor,)}

    def place(self, name: str) -> int:
        if name not in self.positions:
            raise DataError(str(unknown("column", name, self.available)))
        if name == self.response and self.sign == "+":
            raise DataError(f"the response {name!r} is also a predictor in the formula {self.formula!r}.")
        return self.positions[name]

    def column(self, name: str) -> Factor:
        number = self.place(name)
        tree = ast.Name(placeholder(number), ast.Load())
        text = with_names(tree.id, self.available, quoted=True)
        return Factor(text, tree, (), number) if name in self.levels else Factor(text, tree, (number,))

    def call(self) -> Factor:
        """A call such as bs(x, df=5): its tokens up to the closing parenthesis, as one Python expression."""
        start, depth, parts = self.position - 1, 0, []
        for position in range(start, len(self.tokens)):
            kind, token = self.tokens[position]
            following = self.tokens[position + 1][1] if position + 1 < len(self.tokens) else ""
            if kind == "name" and following not in ("(", "=") and token not in ("True", "False", "None"):
                token = placeholder(self.place(token.strip("`")))
            elif kind == "text" and self.tokens[start][1] != "C":
                self.refuse(token, _UNDERSTOOD)
            elif token.startswith("`"):
                self.refuse(token, "a column stands where a function or an option is needed.")
            parts.append(token)
            depth += (token in ("(", "[")) - (token in (")", "]"))
            if depth > _DEEPEST:
                self.refuse(token, "parentheses are nested too deep.")
            if depth == 0 and position > start:
                break
        else:
            self.refuse("(", "a parenthesis is not closed.")
        self.position = position + 1
        source = " ".join(parts)
        tree = parse_factor(source, with_names(source.replace(" ", ""), self.available))
        inner = tree.args[0] if isinstance(tree, ast.Call) and is_smooth(tree) else tree
        numbers = sorted({number_of(n.id) for n in ast.walk(inner) if isinstance(n, ast.Name) and n.id.startswith("_column_")})
        text = with_names(ast.unparse(tree), self.available, quoted=True)
        if parts[0] == "C":
            return Factor(text, tree, (), numbers[0])
        by = options(tree, text).get("by") if isinstance(tree, ast.Call) and is_smooth(tree) else None
        if by is not None and "C" not in parts and self.available[by] not in self.levels:
            raise DataError(
                f"{text!r}: by= needs levels, but column {self.available[by]!r} is a number; write by=C(...) around it."
            )
        for number in numbers:
            if self.available[number] in self.levels:
                name = self.available[number]
                raise DataError(f"{text!r} needs numbers, but column {name!r} is text; use {name} or C({name}) by itself.")
        return Factor(text, tree, tuple(numbers), by)
