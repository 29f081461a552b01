"""Expressions of users: text to a SymPy expression through a closed grammar. The text is never evaluated as Python.

An expression is made of `eta`, `y`, `log_scale`, named constants, numbers, + - * / **, the listed functions, and `where(condition, a, b)`
whose condition compares y with a number or a constant.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Mapping
from typing import Any

import sympy as sp
from sympy.printing.str import StrPrinter

from tallbayes.errors import ModelError, unknown
from tallbayes.models.expressions import special_functions as own

LONGEST = 4000  # characters of an expression
LARGEST_POWER = 100
_LARGEST = 300  # decimal digits of a number

FUNCTIONS: dict[str, Any] = {
    "exp": sp.exp,
    "log": sp.log,
    "log1p": own.log1p,
    "expm1": own.expm1,
    "sqrt": sp.sqrt,
    "sin": sp.sin,
    "cos": sp.cos,
    "atan": sp.atan,
    "sinh": sp.sinh,
    "cosh": sp.cosh,
    "tanh": sp.tanh,
    "expit": own.expit,
    "softplus": own.softplus,
    "ndtr": own.ndtr,
    "log_ndtr": own.log_ndtr,
    "lgamma": sp.loggamma,
    "abs": sp.Abs,
    "logaddexp": lambda a, b: sp.log(sp.exp(a) + sp.exp(b)),
    "min": sp.Min,
    "max": sp.Max,
    "where": None,
}
ARITY = dict.fromkeys(FUNCTIONS, 1) | {"logaddexp": 2, "min": 2, "max": 2, "where": 3}
NOT_SMOOTH = {sp.Abs: "abs", sp.Min: "min", sp.Max: "max", sp.loggamma: "lgamma", sp.sign: "sign"}
_OPERATORS = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}
_COMPARISONS = {ast.Eq: sp.Eq, ast.NotEq: sp.Ne, ast.Lt: sp.Lt, ast.LtE: sp.Le, ast.Gt: sp.Gt, ast.GtE: sp.Ge}

ETA = sp.Symbol("eta", real=True)
Y = sp.Symbol("y", real=True)
LOG_SCALE = sp.Symbol("log_scale", real=True)


def symbols(constants: Mapping[str, float]) -> dict[str, Any]:
    """The symbols that may occur, by name; constants are positive symbols if their value is."""
    for name in constants:
        if (
            not name.isidentifier()
            or keyword.iskeyword(name)
            or name in (*FUNCTIONS, "eta", "y", "log_scale", "pi")
            or name[0] == "_"
        ):
            raise ModelError(
                f"{name!r} cannot be the name of a constant; use a plain name that is not a function, eta, y, log_scale or pi."
            )
    known = {name: sp.Symbol(name, **({"positive": True} if v > 0 else {"real": True})) for name, v in constants.items()}
    return {"eta": ETA, "y": Y, "log_scale": LOG_SCALE, "pi": sp.pi, **known}


def parse(text: Any, constants: Mapping[str, float] | None = None, what: str = "expression", response: bool = True) -> Any:
    """The SymPy expression of a text, or of a SymPy expression of the same grammar.

    >>> parse("y*eta - log(1 + exp(eta))")
    eta*y - log(exp(eta) + 1)
    >>> parse("__import__('os')")
    Traceback (most recent call last):
    ...
    tallbayes.errors.OptionError: unknown function in the expression '__import__'. Valid: abs, atan, cos, ...
    """
    names = symbols(constants or {})
    if not response:
        names = {k: v for k, v in names.items() if k not in ("y", "log_scale")}
    text = as_text(text, what)
    if len(text) > LONGEST:
        raise ModelError(f"the {what} has {len(text):,} characters; at most {LONGEST:,} are read.")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        expression = _Reader(text, what, names).read(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, ModelError) or type(error).__module__.startswith("tallbayes"):
            raise
        raise ModelError(f"the {what} {_short(text)} cannot be read; check its parentheses, commas and operators.") from None
    if expression.has(sp.zoo, sp.nan, sp.oo, -sp.oo):
        raise ModelError(f"the {what} {_short(text)} divides by zero or is infinite whatever eta is.")
    if expression.has(sp.I) or expression.is_real is False:
        raise ModelError(f"the {what} {_short(text)} is not a real number.")
    for node in sp.preorder_traversal(expression):
        if type(node) in NOT_SMOOTH and node.has(ETA, LOG_SCALE):
            name = NOT_SMOOTH[type(node)]
            raise ModelError(
                f"{name} of an expression with eta or log_scale is not supported in {_short(text)}; {name} may take y and constants."
            )
    return expression


def as_text(expression: Any, what: str = "expression") -> str:
    """The text of an expression, whether given as text or in SymPy.

    >>> as_text(sp.Piecewise((sp.Symbol("eta"), sp.Eq(sp.Symbol("y"), 0)), (0, True)))
    'where(y == 0, eta, 0)'
    """
    if isinstance(expression, str):
        return expression
    if isinstance(expression, sp.Expr):
        return _Printer({"full_prec": False}).doprint(expression)
    raise ModelError(f"the {what} must be text or a SymPy expression; got a {type(expression).__name__}.")


class _Printer(StrPrinter):
    """SymPy expressions in the grammar of this file."""

    def _print_Piecewise(self, expr: Any) -> str:
        value, condition = expr.args[-1]
        if condition is not sp.true:
            raise ModelError("a Piecewise needs a last branch whose condition is True.")
        text = self._print(value)
        for value, condition in reversed(expr.args[:-1]):
            text = f"where({self._print(condition)}, {self._print(value)}, {text})"
        return text

    def _print_Relational(self, expr: Any) -> str:
        return f"{self._print(expr.lhs)} {expr.rel_op} {self._print(expr.rhs)}"

    def _print_loggamma(self, expr: Any) -> str:
        return f"lgamma({self._print(expr.args[0])})"

    def _print_Abs(self, expr: Any) -> str:
        return f"abs({self._print(expr.args[0])})"

    def _print_Min(self, expr: Any) -> str:
        return f"min({', '.join(self._print(a) for a in expr.args)})"

    def _print_Max(self, expr: Any) -> str:
        return f"max({', '.join(self._print(a) for a in expr.args)})"

    def _print_Exp1(self, expr: Any) -> str:
        return "exp(1)"

    def _print_Float(self, expr: Any) -> str:
        return repr(float(expr))


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


class _Reader:
    """Walks a syntax tree; whatever is not in the grammar is refused."""

    def __init__(self, text: str, what: str, names: Mapping[str, Any]) -> None:
        self.text, self.what, self.names = text, what, names

    def read(self, node: ast.AST) -> Any:
        """The SymPy expression of a node."""
        if isinstance(node, ast.Name):
            if node.id in FUNCTIONS:
                raise ModelError(f"{node.id} in the {self.what} is a function: write {node.id}(...).")
            if node.id not in self.names:
                error = unknown(f"name in the {self.what}", node.id, self.names)
                raise ModelError(f"{error}. Give other names a value with constants={{{node.id!r}: ...}}.")
            return self.names[node.id]
        if isinstance(node, ast.Constant):
            return self._number(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            value = self.read(node.operand)
            return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](self.read(node.left), self.read(node.right))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            return self._power(self.read(node.left), self.read(node.right))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
            raise ModelError(f"the {self.what} {_short(self.text)}: write a power with **, not ^.")
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Compare):
            raise ModelError(f"the {self.what}: a comparison belongs into where(condition, a, b).")
        raise ModelError(
            f"{type(node).__name__} in the {self.what} {_short(self.text)} is not allowed: it is made of eta, y, constants, numbers, "
            f"+ - * / ** and {', '.join(FUNCTIONS)}."
        )

    def _number(self, node: ast.Constant) -> Any:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 10.0**_LARGEST:
            raise ModelError(f"{str(value)[:40]!r} in the {self.what} is not a number that can be used.")
        return sp.Integer(value) if isinstance(value, int) else sp.Rational(repr(value))

    def _power(self, base: Any, exponent: Any) -> Any:
        if exponent.is_number:
            size = abs(float(exponent))
            if size > LARGEST_POWER:
                raise ModelError(f"a power of {float(exponent):g} in the {self.what}: at most {LARGEST_POWER} is allowed.")
            if base.is_number and base != 0 and size * abs(float(sp.log(abs(base), 10))) > _LARGEST:
                raise ModelError(f"a number in the {self.what} has more than {_LARGEST} digits.")
        return base**exponent

    def _call(self, node: ast.Call) -> Any:
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name not in FUNCTIONS:
            raise unknown(f"function in the {self.what}", name or ast.unparse(node.func)[:40], FUNCTIONS)
        assert name is not None
        if len(node.args) != ARITY[name] or node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            count = ARITY[name]
            raise ModelError(f"{name} in the {self.what} takes {count} argument{'s' * (count > 1)}; it has {len(node.args)}.")
        if name == "where":
            condition = self._condition(node.args[0])
            return sp.Piecewise((self.read(node.args[1]), condition), (self.read(node.args[2]), True))
        return FUNCTIONS[name](*(self.read(a) for a in node.args))

    def _condition(self, node: ast.AST) -> Any:
        if not (isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS):
            raise ModelError(f"the condition of where in the {self.what} is one comparison of y, such as y == 0.")
        left, right = self.read(node.left), self.read(node.comparators[0])
        if left != Y or right.has(ETA, Y, LOG_SCALE):
            raise ModelError(f"the condition of where in the {self.what} compares y with a number or a constant, as in y == 0.")
        return _COMPARISONS[type(node.ops[0])](left, right)
