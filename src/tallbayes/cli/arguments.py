"""Options of the command line that describe a model, and what they mean: a family, or an expression in its place, and a prior."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from tallbayes.errors import OptionError, unknown

FamilyName = Annotated[
    str | None,
    typer.Option(
        "--family", help="Name of the family, such as poisson, gaussian or gamma; default: logistic, if the response is 0 or 1."
    ),
]
Expression = Annotated[
    str | None,
    typer.Option(help="Log-likelihood of a row as an expression, instead of a family; for example 'y*eta - exp(eta)'."),
]
Constant = Annotated[list[str] | None, typer.Option(help="Constant of the expression, for example p=0.3; can be repeated.")]
Mean = Annotated[str | None, typer.Option(help="Mean of the response as an expression of eta, used for predictions.")]
Support = Annotated[str | None, typer.Option(help="Kind of response of the expression: real, binary, count or positive.")]
Sigma = Annotated[
    str | None,
    typer.Option(help="Known standard deviation of a gaussian model, or a formula of its logarithm, for example '~ x'."),
]
Zeros = Annotated[
    str | None,
    typer.Option("--zi", help="Formula of the zeros of a zero-inflated or hurdle model, for example '~ x'; default: '~ 1'."),
]
FamilyOption = Annotated[
    list[str] | None, typer.Option("--option", help="Option of the family, for example shape=2 or classes=3; can be repeated.")
]


def family_of(
    family: str | None,
    sigma: str | None,
    zi: str | None,
    further: list[str] | None,
    expression: str | None,
    constants: list[str] | None,
    mean: str | None,
    support: str | None,
) -> tuple[str | None, dict[str, Any]]:
    """Name and options of the family that the options of a command describe; None if they name no family."""
    given = {"expression": expression, "mean": mean, "support": support, "sigma": _sigma(sigma), "zi": zi}
    options: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
    if constants:
        options["constants"] = dict(_constant(text) for text in constants)
    if expression is not None and family not in (None, "expression"):
        raise OptionError(f"--expression already defines the family; remove --family {family}.")
    if expression is None and set(options) - {"sigma", "zi"}:
        raise OptionError("--constant, --mean and --support apply only to models from an expression; add --expression.")
    for text in further or []:
        key, value = _option(text)
        if key in options:
            raise OptionError(f"{key} is given twice.")
        options[key] = value
    return "expression" if expression is not None else family, options


def _sigma(text: str | None) -> float | str | None:
    """A number, or a formula."""
    if text is None or "~" in text:
        return text
    try:
        return float(text)
    except ValueError:
        raise OptionError(f"cannot read --sigma {text!r}; write a number, or a formula such as '~ x'.") from None


def _option(text: str) -> tuple[str, Any]:
    """An option of a family from text such as "shape=2"; numbers become numbers."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise OptionError(f"cannot read --option {text!r}; write it like shape=2.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _constant(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name.strip(), float(number)
    except ValueError:
        raise OptionError(f"cannot read the constant {text!r}; write it like p=0.3.") from None


def prior_of(text: str) -> Any:
    """A prior from text such as normal:10; None for the default."""
    from tallbayes import priors

    if not text:
        return None
    name, _, rest = text.partition(":")
    makers = {k: getattr(priors, k) for k in ("flat", "normal", "laplace", "cauchy", "student_t", "weakly_informative")}
    if name not in makers:
        raise unknown("prior", name, makers)
    try:
        numbers = [float(v) for v in rest.split(",")] if rest else []
        return makers[name](*numbers)
    except (ValueError, TypeError):
        raise OptionError(f"cannot read the prior {text!r}; write it like normal:10 or student_t:4,2.5.") from None


def keep_of(texts: list[str] | None) -> str | float | list[str] | None:
    """What `--keep` says of the draws of levels: a word, a number of bytes, or terms.

    >>> keep_of(["summary"]), keep_of(["2e9"]), keep_of(["1|shop", "x|shop"]), keep_of(None)
    ('summary', 2000000000.0, ['1|shop', 'x|shop'], None)
    """
    if not texts:
        return None
    if len(texts) > 1 or "|" in texts[0]:
        return texts
    try:
        return float(texts[0])
    except ValueError:
        return texts[0]
