"""Factors of formulas as checked syntax trees: names of columns, numbers, arithmetic and the listed transforms, nothing else.

A tree that passed `parse_factor` holds no attribute, string, subscript or call of anything else, so it may be evaluated.
"""

from __future__ import annotations

import ast
import keyword
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tallbayes.errors import DataError, unknown

ELEMENTWISE: dict[str, Callable] = {
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "I": lambda values: values,
}
OPTIONS: dict[str, dict[str, type]] = {  # in the order of positional arguments, after the column
    "bs": {"df": int, "knots": list, "degree": int, "include_intercept": bool, "lower_bound": float, "upper_bound": float},
    "cr": {"df": int, "knots": list, "lower_bound": float, "upper_bound": float},
    "poly": {"degree": int, "raw": bool},
    "scale": {"center": bool, "scale": bool, "ddof": float},
    "center": {},
    "s": {"k": int, "by": ast.Name},
}
TRANSFORMS = ("C", *ELEMENTWISE, *OPTIONS)
_OPERATORS: dict[type, Callable] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.mod,
}
_PLACEHOLDER = re.compile(r"_(?:column|level)_(\d+)_")
_LEAST = {"degree": 1, "df": 1, "k": 4}
_LARGEST = {"degree": 15, "df": 1000, "k": 200}


def placeholder(number: int) -> str:
    """The name that stands for a column in a tree."""
    return f"_column_{number}_"


def number_of(name: str) -> int:
    """The inverse of `placeholder`."""
    match = _PLACEHOLDER.fullmatch(name)
    if match is None:
        raise DataError(f"{name!r} is neither a column nor a transform.")
    return int(match[1])


def with_names(text: str, names: tuple[str, ...], quoted: bool = False) -> str:
    """The text with the names of columns instead of placeholders.

    >>> with_names("log(_column_1_)", ("y", "unit price")), with_names("log(_column_1_)", ("y", "unit price"), quoted=True)
    ('log(unit price)', 'log(`unit price`)')
    """

    def name(match: re.Match) -> str:
        original = names[int(match[1])]
        plain = re.fullmatch(r"[^\W\d]\w*", original) and not keyword.iskeyword(original) and original not in TRANSFORMS
        return f"`{original}`" if quoted and not plain else original

    return _PLACEHOLDER.sub(name, text)


def parse_factor(source: str, shown: str) -> ast.expr:
    """The syntax tree of a factor; refuses whatever is not in the whitelist.

    >>> ast.unparse(parse_factor("I(_column_0_**2)", "I(x**2)"))
    'I(_column_0_ ** 2)'
    >>> parse_factor("I(_column_0_.__class__)", "I(x.__class__)")
    Traceback (most recent call last):
    ...
    tallbayes.errors.DataError: Attribute in 'I(x.__class__)' is not allowed: a term is made of columns, numbers, arithmetic and
    C, log, log10, log1p, exp, sqrt, I, bs, cr, poly, scale, center, s.
    """
    try:
        tree = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise DataError(f"{shown!r} cannot be read; check its parentheses and commas.") from None
    if _function_name(tree) == "C":
        assert isinstance(tree, ast.Call)
        coded = len(tree.args) == 2 and _function_name(tree.args[1]) == "Treatment"
        if len(tree.args) != 1 + coded or tree.keywords or not isinstance(tree.args[0], ast.Name):
            raise DataError(
                f"{shown!r}: C takes one column, and Treatment('a') after it for a as the reference level; compute other codings as "
                "columns first."
            )
        number_of(tree.args[0].id)
        reference_of(tree)
        return tree
    _check(tree, shown, True, True)
    if not any(isinstance(node, ast.Name) and _PLACEHOLDER.fullmatch(node.id) for node in ast.walk(tree)):
        raise DataError(f"{shown!r} has no column in it; it would be a constant.")
    return tree


def reference_of(tree: ast.expr) -> str | float | None:
    """The reference level of C(g, Treatment("a")), None for C(g) or anything else.

    >>> reference_of(ast.parse("C(g, Treatment('a'))", mode="eval").body)
    'a'
    """
    if _function_name(tree) != "C" or len(tree.args) == 1:  # type: ignore[attr-defined]
        return None
    call = tree.args[1]  # type: ignore[attr-defined]
    given = [*call.args, *(k.value for k in call.keywords if k.arg in ("reference", "base"))]
    value = given[0] if len(given) == 1 == len(call.args) + len(call.keywords) else None
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        return -_number(value.operand, ast.unparse(tree))
    if isinstance(value, ast.Constant) and type(value.value) in (str, int, float):
        return value.value  # type: ignore[return-value]
    raise DataError("Treatment takes one level, such as C(g, Treatment('a')) or C(k, Treatment(3)).")


def _function_name(node: ast.AST) -> str | None:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None


def _check(node: ast.AST, shown: str, stateful: bool, top: bool) -> None:
    if isinstance(node, ast.Name):
        number_of(node.id)
    elif isinstance(node, ast.Constant):
        _number(node, shown)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        _check(node.operand, shown, stateful, False)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        _check(node.left, shown, stateful, False)
        _check(node.right, shown, stateful, False)
        if isinstance(node.op, ast.Pow) and not any(isinstance(part, ast.Name) for part in ast.walk(node)):
            raise DataError(f"{shown!r}: write a power of numbers as one number.")
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
        raise DataError(f"{shown!r}: write a power with **, not ^.")
    elif isinstance(node, ast.Call) and (name := _function_name(node)) is not None:
        if name in ELEMENTWISE:
            if len(node.args) != 1 or node.keywords:
                raise DataError(f"{shown!r}: {name} takes one argument.")
            _check(node.args[0], shown, stateful, False)
        elif name in OPTIONS:
            if not stateful or (name in ("bs", "cr", "poly", "s") and not top):
                raise DataError(
                    f"{shown!r}: {name} must not stand inside another transform; compute the inner one as a column."
                )
            if not node.args:
                raise DataError(f"{shown!r}: {name} needs a column.")
            options(node, shown)
            _check(node.args[0], shown, False, False)
        elif name == "C":
            raise DataError(f"{shown!r}: C must stand alone, or in an interaction such as C(g):x.")
        else:
            raise DataError(f"{shown!r}: {unknown('transform', name, TRANSFORMS)}")
    else:
        what = type(node).__name__
        raise DataError(
            f"{what} in {shown!r} is not allowed: a term is made of columns, numbers, arithmetic and {', '.join(TRANSFORMS)}."
        )


def _number(node: ast.AST, shown: str) -> float:
    sign = 1
    while isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        sign, node = (-sign if isinstance(node.op, ast.USub) else sign), node.operand
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e300:
        raise DataError(f"{shown!r}: a number is needed instead of {ast.unparse(node)[:40]}.")
    return sign * value


def options(node: ast.Call, shown: str) -> dict[str, Any]:
    """The options of a call of bs, poly, scale, center or s, checked.

    >>> options(parse_factor("bs(_column_0_, df=5)", "bs(x, df=5)"), "bs(x, df=5)")
    {'df': 5}
    """
    name = _function_name(node)
    assert name is not None
    valid = OPTIONS[name]
    if len(node.args) - 1 > len(valid):
        raise DataError(f"{shown!r}: {name} takes at most {len(valid)} options: {', '.join(valid) or 'none'}.")
    given = list(zip(valid, node.args[1:], strict=False)) + [(k.arg, k.value) for k in node.keywords]
    out: dict[str, Any] = {}
    for key, value in given:
        if key not in valid:
            raise DataError(f"{shown!r}: {unknown(f'option of {name}', key, valid or ['none'])}")
        if key in out:
            raise DataError(f"{shown!r}: {key} is given twice.")
        if valid[key] is bool:
            if not (isinstance(value, ast.Constant) and isinstance(value.value, bool)):
                raise DataError(f"{shown!r}: {key} is True or False.")
            out[key] = value.value
        elif valid[key] is list:
            if not isinstance(value, ast.List | ast.Tuple):
                raise DataError(f"{shown!r}: {key} is a list of numbers such as [1, 2.5].")
            out[key] = [float(_number(v, shown)) for v in value.elts]
        elif valid[key] is ast.Name:
            out[key] = _levels_column(value, shown)
        else:
            number = _number(value, shown)
            least = _LEAST.get(key, -math.inf)
            if (valid[key] is int and not isinstance(number, int)) or not least <= number <= _LARGEST.get(key, math.inf):
                raise DataError(f"{shown!r}: {key} is a whole number from {least} to {_LARGEST.get(key)}.")
            out[key] = number
    if name in ("bs", "cr"):
        _check_spline(out, shown, name)
    return out


def _levels_column(node: ast.AST, shown: str) -> int:
    """Position of the column g of by=g or by=C(g)."""
    inner = node.args[0] if isinstance(node, ast.Call) and _function_name(node) == "C" and len(node.args) == 1 else node
    if not isinstance(inner, ast.Name):
        raise DataError(f"{shown!r}: by is a column of levels, such as by=g or by=C(g).")
    return number_of(inner.id)


def is_smooth(tree: ast.AST) -> bool:
    """Whether a checked tree is a smooth s(...)."""
    return _function_name(tree) == "s"


def smooth_term(tree: ast.expr, names: tuple[str, ...]) -> str:
    """The name of a smooth: its column and that of by=, whatever k.

    >>> smooth_term(parse_factor("s(log(_column_1_), k=20, by=C(_column_0_))", ""), ("g", "unit price"))
    's(log(unit price), by=g)'
    """
    assert isinstance(tree, ast.Call)
    given, inner = options(tree, ""), with_names(ast.unparse(tree.args[0]), names)
    return f"s({inner}, by={names[given['by']]})" if "by" in given else f"s({inner})"


def _check_spline(given: dict[str, Any], shown: str, name: str) -> None:
    if "df" in given and "knots" in given:
        raise DataError(f"{shown!r}: give df or knots, not both.")
    if name == "cr" and "df" not in given and "knots" not in given:
        raise DataError(f"{shown!r}: cr needs df or knots, such as cr(x, df=5).")
    least = 2 if name == "cr" else given.get("degree", 3) + bool(given.get("include_intercept"))
    if given.get("df", least) < least:
        raise DataError(f"{shown!r}: df must be at least {least}.")
    if given.get("knots", []) != sorted(given.get("knots", [])):
        raise DataError(f"{shown!r}: knots must be in increasing order.")
    if given.get("lower_bound", -math.inf) >= given.get("upper_bound", math.inf):
        raise DataError(f"{shown!r}: lower_bound must be below upper_bound.")


def stateful_calls(tree: ast.expr) -> list[ast.Call]:
    """Calls in a checked tree that need to know all rows."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _function_name(node) in OPTIONS]
    return [c for c in calls if not (_function_name(c) == "poly" and options(c, "").get("raw"))]


def transform_of(call: ast.Call) -> str:
    """Name of the transform of a checked call."""
    name = _function_name(call)
    assert name is not None
    return name


def evaluate(node: ast.AST, values: Mapping[str, np.ndarray]) -> Any:
    """The value of an elementwise tree that passed `parse_factor`.

    >>> evaluate(parse_factor("log10(10 * _column_0_)", ""), {"_column_0_": np.array([1.0, 10.0])})
    array([1., 2.])
    """
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.Constant):
        return float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp):
        value = evaluate(node.operand, values)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](evaluate(node.left, values), evaluate(node.right, values))
    assert isinstance(node, ast.Call)
    return ELEMENTWISE[transform_of(node)](evaluate(node.args[0], values))
