"""What to tell a user whose posterior has no mode, or one that the rows do not determine."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from tallbayes.errors import ModelError
from tallbayes.model import Model


def name_flat_direction(model: Model, direction: np.ndarray) -> NoReturn:
    """Raise the error that names the columns of a direction in which the posterior is flat."""
    if not model.linear:
        names = [n for n, size in zip(model.names, np.abs(direction), strict=True) if size > 1e-3 * np.abs(direction).max()]
        raise ModelError(
            f"the posterior is flat, or has no maximum, along {', '.join(names)} near the last point of the search. Give "
            "start= closer to the mode, or a prior that separates these parameters."
        )
    moments, names = model.data.moments, direction_names(model, direction)
    constant = [
        model.data.columns[j] for j in range(model.data.d) if moments.low[j] == moments.high[j] and j != model.data.intercept
    ]
    if set(names) <= set(model.nuisances):
        raise ModelError(exact_fit(model))
    if model.family.mode_advice:
        raise ModelError(f"the data cannot tell {', '.join(map(repr, sorted(names)))} apart. {model.family.mode_advice}")
    if len(names) == 1:
        what = f"the data carry no information about {names[0]!r}: its column is zero or has no effect on any row"
    else:
        what = f"the columns {', '.join(repr(c) for c in sorted(names))} are collinear"
    if constant:
        what += f" (constant: {', '.join(repr(c) for c in constant)})"
    raise ModelError(f"{what}. Drop one of them, or use a proper prior such as tallbayes.priors.normal(10.0).")


def direction_names(model: Model, direction: np.ndarray) -> list[str]:
    """Coordinates that take part in a direction, in units of a typical value of their columns."""
    moments, d = model.data.moments, model.data.d
    spread = np.ones(direction.size)
    typical = np.sqrt(moments.mean[:d] ** 2 + moments.sd[:d] ** 2)
    spread[:d] = np.where(typical > 0, typical, 1.0)
    size = np.abs(direction) * spread
    return [model.names[j] for j in np.argsort(-size) if size[j] > 1e-3 * size.max()]


def exact_fit(model: Model) -> str:
    """The likelihood grows without limit as sigma vanishes."""
    return (
        f"{', '.join(map(repr, model.nuisances))} has no finite mode: the columns fit the response exactly (or it is "
        "constant). Give sigma=, or drop the column that repeats the response."
    )


def separable(model: Model) -> bool:
    """Whether a likelihood without a maximum means that columns tell 0 from 1 without error."""
    return model.family.response == "binary" and model.family.log_concave and not model.nuisances


def no_maximum(model: Model, culprit: str) -> str:
    """The likelihood has no maximum, and the prior is flat."""
    low, high = model.data.moments.low[model.data.d], model.data.moments.high[model.data.d]
    if low == high:
        why = f"every response is {low:g}"
    elif separable(model):
        why = f"the response is separable (first by {culprit!r}): some combination of columns predicts it without error"
    else:
        why = f"{culprit!r} has no finite estimate: all rows that inform it have extreme responses"
    return f"{why}, so the posterior under a flat prior is improper. Use tallbayes.priors.weakly_informative() or normal(2.5)."
