"""A family and its model from an expression: generated code, certificate, and the checks that come before any sampling."""

from __future__ import annotations

import hashlib
import math
import sys
import types
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from flint import arb

from tallbayes.compile import SCALAR, inlinable
from tallbayes.data.dataset import Dataset
from tallbayes.engine import arithmetic
from tallbayes.engine.family_functions import jet1, jet2, residual, third, third_supremum, third_supremum_on, value
from tallbayes.engine.several_functions import vector_gradient, vector_hessian, vector_residual, vector_value
from tallbayes.errors import DataError, ModelError, OptionError, unknown, warn
from tallbayes.model import Family, Model
from tallbayes.models.expressions import balls, generate, normalisation, primitives
from tallbayes.models.expressions.arrays import mean_function
from tallbayes.models.expressions.certificate import (
    Certificate,
    Pieces,
    Responses,
    Tables,
    certified,
    is_location,
    survey_responses,
)
from tallbayes.models.expressions.fourth_order import fourth_concordant, fourth_ratio
from tallbayes.models.expressions.grammar import ETA, LOG_SCALE, Y, as_text, parse
from tallbayes.models.expressions.location_scale import ScaleCertificate, certify_scale
from tallbayes.models.expressions.simulate import family_normaliser, family_simulator
from tallbayes.models.expressions.stabilise import stabilised
from tallbayes.models.expressions.two_indices import pair_source
from tallbayes.named_priors import PriorLike
from tallbayes.validation import number as as_number
from tallbayes.validation import shown

OWN_FIELDS = ("window", "location", "knots", "linked", "edges", "table", "everywhere")
_CALLED = ("inverse", "log", "log1p", "expm1", "root", "power", "logistic_parts", "log1mexp", "tanh_parts", "normal_parts")
_SAFE = 30.0  # linear predictors up to which every function must be finite, or the user is told
_MODULE = "tallbayes_expressions"
_VERBS = {v.__name__: v for v in (value, jet1, jet2, third, residual, vector_value, vector_gradient, vector_hessian)}

SUPPORTS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "real": ("a number", np.isfinite),
    "binary": ("0 or 1", lambda y: (y == 0) | (y == 1)),
    "count": ("a whole number >= 0", lambda y: (y >= 0) & (y == np.floor(y))),
    "positive": ("a number > 0", lambda y: np.isfinite(y) & (y > 0)),
}


@dataclass(frozen=True)
class ExpressionFamily(Family):
    """A family made from an expression, with what was proven of it."""

    certificate: Certificate | ScaleCertificate | None = None


def family_of_options(options: Mapping[str, Any]) -> ExpressionFamily:
    """What the options alone say of a family: its law, before anything is proven of it."""
    support = options.get("support", "real")
    if not isinstance(support, str) or support not in SUPPORTS:
        raise unknown("support", support, SUPPORTS)
    return ExpressionFamily(
        name="expression",
        support=SUPPORTS[support][0],
        remedy="Check the response, or leave out support=.",
        admits=SUPPORTS[support][1],
        mean=mean_function(options.get("mean"), options.get("constants") or {}),
        self_concordant=False,
        log_concave=False,
        examples=(),
        responses=(),
        response=support,
        link_name="",
        mean_known=options.get("mean") is not None,
        log_normaliser=family_normaliser(options),
        simulate=family_simulator(options),
    )


def build(
    expression: Any,
    data: Dataset,
    prior: PriorLike,
    constants: Mapping[str, float] | None,
    mean: Any,
    support: str,
) -> Model:
    """The model of `tallbayes.models.family`."""
    if not isinstance(data, Dataset):
        raise DataError(f"a model needs a Dataset, not a {type(data).__name__}; use tallbayes.Dataset.from_arrays(X, y).")
    if not isinstance(support, str) or support not in SUPPORTS:
        raise unknown("support", support, SUPPORTS)
    numbers = _constants(constants)
    original = parse(expression, numbers)
    for symbol, remedy in ((ETA, "the linear predictor"), (Y, "the response")):
        if not original.has(symbol):
            raise ModelError(f"the expression {as_text(expression)!r} does not contain {symbol.name}, {remedy}.")
    _check_support(data, support)
    stable = stabilised(original)
    options = {
        "expression": as_text(expression),
        "constants": numbers,
        "mean": None if mean is None else as_text(mean, "mean"),
        "support": support,
    }
    family = family_of_options(options)
    if original.has(LOG_SCALE):
        model = _with_scale(stable, original, data, prior, options, family)
    else:
        model = _with_one_index(stable, original, data, prior, options, family)
    model.doubts = tuple(normalisation.doubts(options, data.y))
    for sentence in model.doubts:
        warn(sentence)
    return model


def _with_one_index(
    stable: Any, original: Any, data: Dataset, prior: PriorLike, options: dict[str, Any], family: ExpressionFamily
) -> Model:
    """A model of the linear predictor alone, with its certificate."""
    numbers = options["constants"]
    kind = member_type(generate.source(stable), (*generate.fields(tuple(numbers)), *OWN_FIELDS))
    responses = survey_responses(data.y)
    _check_defined(data, stable, numbers, responses)
    tables, certificate, proofs = certified(stable, original, numbers, responses)
    window = _window(Pieces(stable, numbers), tables, responses)
    member = kind(
        *numbers.values(),
        window,
        float(tables.location),
        *(np.ascontiguousarray(getattr(tables, k), float) for k in OWN_FIELDS[2:]),
    )
    _warn_of_overflow(member, tables)
    ratio = cache(lambda: fourth_ratio(original, proofs, tables))
    family = replace(
        family,
        self_concordant=certificate.self_concordant,
        log_concave=certificate.log_concave,
        examples=(member,),
        responses=tuple(tables.knots.tolist()),
        response_scale=tables.location,
        link=lambda average: _best_predictor(member, tables, average),
        bound="T10",
        certificate=certificate,
        fourth_ratio=lambda member: ratio(),
        fourth_concordant=cache(lambda: certificate.log_concave and fourth_concordant(proofs)),
    )
    return Model(data, family, member, prior, options=options)


def _constants(constants: Mapping[str, float] | None) -> dict[str, float]:
    if not isinstance(constants, Mapping | None):
        raise OptionError(f"constants must be numbers by name, such as {{'p': 0.3}}; got {shown(constants)}.")
    numbers = {}
    for name, number in (constants or {}).items():
        if not math.isfinite(as_number(number)):
            raise ModelError(f"the constant {name!r} must be a finite number; got {shown(number)}.")
        numbers[str(name)] = as_number(number)
    return numbers


def _check_support(data: Dataset, support: str) -> None:
    text, admits = SUPPORTS[support]
    good = admits(np.asarray(data.y))
    if not good.all():
        row = int(np.argmin(good))
        raise DataError(f"row {row}: response {data.response!r} is {data.y[row]:g}, but support={support!r} needs {text}.")


def member_type(source: str, names: tuple[str, ...]) -> Any:
    """The NamedTuple class of a family with its functions registered; the same class for the same source."""
    module = sys.modules.setdefault(_MODULE, types.ModuleType(_MODULE, "Families made from expressions in this process."))
    tag = hashlib.blake2b(repr((names, source)).encode(), digest_size=12).hexdigest()
    name = f"Expression_{tag}"
    if hasattr(module, name):
        return getattr(module, name)
    kind: Any = namedtuple(name, names, module=_MODULE)  # type: ignore[misc]
    setattr(kind, "cache_tag", tag)  # noqa: B010
    functions: dict[str, Any] = {"math": math, "exp": arithmetic.exp, "__name__": _MODULE}
    functions |= {k: getattr(primitives, k) for k in (*_CALLED, "normal_density", "normal_distribution")}
    for part in source.split("\n\n\n"):
        exec(compile(part, f"<{name}>", "exec"), functions)  # written by `generate` from a checked tree, never by a user
        function = part[4 : part.index("(")]
        functions[function] = inlinable(functions[function], options=SCALAR)
        _VERBS[function].register(kind)(functions[function])
    if "table" in names:
        third_supremum.register(kind)(primitives.table_supremum)
        third_supremum_on.register(kind)(primitives.table_supremum_on)
    elif "window" in names:
        vector_residual.register(kind)(primitives.pair_residual)
    setattr(module, name, kind)
    return kind


def _with_scale(
    stable: Any, original: Any, data: Dataset, prior: PriorLike, options: dict[str, Any], family: ExpressionFamily
) -> Model:
    """A model with log_scale as the last coordinate of theta; only a law of location and scale has a certificate."""
    numbers = options["constants"]
    certificate = certify_scale(stable, original, numbers)
    names = generate.fields(tuple(numbers))
    if certificate is None:
        member = member_type(pair_source(stable), names)(*numbers.values())
    else:
        member = member_type(pair_source(stable), (*names, "window"))(*numbers.values(), 0.0)
        member = member._replace(window=_pair_window(member))
    responses = survey_responses(data.y)
    location = is_location(original)
    for y in (responses.grid if responses.distinct is None else responses.distinct).tolist():
        for centre, tau in ((y, math.log(responses.spread)), (0.0, 0.0)):
            gradient, hessian = np.empty(2), np.empty((2, 2))
            with np.errstate(all="ignore"):
                f = vector_hessian(member, np.array([centre + 0.1, tau]), y, gradient, hessian)
            if np.isfinite([f, *gradient, *hessian.ravel()]).all():
                break
        else:
            raise ModelError(
                f"the expression or a derivative is not a finite number for the response {y:g} at eta near 0 or y; check its "
                "logarithms and divisions, or the coding of the response."
            )
    family = replace(
        family,
        examples=(member,),
        responses=tuple(responses.grid.tolist()),
        response_scale=location,
        link=float if location else lambda average: 0.0,
        bound=None if certificate is None else "T10",
        certificate=certificate,
    )
    return Model(data, family, member, prior, nuisances=("log_scale",), options=options)


def _check_defined(data: Dataset, stable: Any, constants: dict[str, float], responses: Responses) -> None:
    """Refuse responses at which the expression is no number, before the search for poles."""
    pieces = Pieces(stable, constants)
    with balls.arithmetic():
        for y in (responses.grid if responses.distinct is None else responses.distinct).tolist():
            program = pieces.programs[pieces.number(y)]
            if any(program.series(arb(eta), arb(y))[0].is_finite() for eta in (0.1, 1.1, -0.9)):
                continue
            row = int(np.argmin(np.abs(np.asarray(data.y) - y)))
            raise ModelError(
                f"the expression is not a finite number for the response {y:g} (row {row}) at eta near 0; check its logarithms and "
                "divisions, or the coding of the response."
            )


def _window(pieces: Pieces, tables: Tables, responses: Responses) -> float:
    """The largest shift for which the quadrature of a residual is right to eleven digits at a grid of points."""
    unit = responses.spread if tables.location else 1.0
    rows = [0.0] if tables.location else tables.knots[np.linspace(0, tables.knots.size - 1, 4).round().astype(int)].tolist()
    near = (0.03, 0.3, 1.0, 3.0, 8.0) if not tables.location else (0.003, 0.03, 0.1, 0.3, 1.0, 5.0)
    grid = [unit * sign * size for size in near for sign in (-1.0, 1.0)]
    points, weights = generate.quadrature()
    with balls.arithmetic():
        for halvings in range(-2, 14):
            width = unit * 2.0**-halvings
            programs = [(pieces.programs[pieces.number(y)], arb(y)) for y in sorted(set(rows))]
            if all(_agrees(p, y, eta, s, points, weights) for p, y in programs for eta in grid for s in (width, -width)):
                return width
    return 0.0


def _pair_window(member: Any) -> float:
    """The largest shift, in scales, for which five nodes and ten give the same residual to eleven digits at a grid of points."""
    rules = [primitives.residual_rule(k) for k in (5, 10)]
    centres = [(sign * size, 0.0) for size in (0.03, 0.3, 1.0, 3.0, 8.0) for sign in (-1.0, 1.0)]
    ways = [np.array(w) for w in ((1.0, 0.0), (0.0, 1.0), (0.7, 0.7), (-0.7, 0.7))]
    with np.errstate(all="ignore"):
        for halvings in range(14):
            width = 2.0**-halvings
            residuals = np.array(
                [
                    [primitives.integrated(member, np.array(c), width * w, 0.0, *rule) for rule in rules]
                    for c in centres
                    for w in ways
                ]
            )
            if (np.abs(residuals[:, 0] - residuals[:, 1]) <= 1e-11 * (np.abs(residuals[:, 1]) + 1e-3 * width**3)).all():
                return width
    return 0.0


def _agrees(program: balls.BallProgram, y: Any, eta: float, shift: float, points: Any, weights: Any) -> bool:
    start = program.series(arb(eta), y)
    exact = program.series(arb(eta) + arb(shift), y)[0] - start[0] - shift * (start[1] + shift * start[2])
    summed = sum(w * 6.0 * float(program.series(arb(eta + x * shift), y)[3]) for x, w in zip(points, weights, strict=True))
    leading = abs(float(start[3]) * shift**3)
    if not exact.is_finite() or not math.isfinite(summed):
        return False
    return balls.lower(exact - arb(summed * shift**3)) <= 1e-11 * max(abs(float(exact)), 1e-3 * leading)


def _best_predictor(member: Any, tables: Tables, average: float) -> float:
    """The linear predictor with the largest f at a response, on the grid of the certificate: where to start."""
    centre = average if tables.location else 0.0
    grid = tables.edges[np.abs(tables.edges) <= (np.inf if tables.location else _SAFE)] + centre
    with np.errstate(all="ignore"):
        heights = np.array([value(member, float(eta), float(average)) for eta in grid])
    return float(grid[np.nanargmax(heights)]) if np.isfinite(heights).any() else centre


def _warn_of_overflow(member: Any, tables: Tables) -> None:
    """Tell the user where floating-point numbers do not suffice for the expression, if that is anywhere near."""
    furthest = tables.edges[-1] / 70.0 if tables.location else _SAFE  # 30 times the spread of y
    reach = tables.edges[np.abs(tables.edges) <= furthest]
    for y in tables.knots.tolist():
        for eta in reach.tolist():
            with np.errstate(all="ignore"):
                jets = [*jet2(member, eta, y), third(member, eta, y)]
            if not np.isfinite(jets).all():
                warn(
                    f"the expression or a derivative overflows or cancels at eta = {eta:.4g}, y = {y:g}; a proposal there is "
                    "rejected. Write it with softplus, expit, log1p, expm1, logaddexp or log_ndtr, which do not overflow."
                )
                return
