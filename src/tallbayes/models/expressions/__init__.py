"""Families that a user writes as one expression of `eta` and `y`, with machine-made certificates.

SymPy and python-flint (the extra `families`) are imported when the first such model is made.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from tallbayes.data.dataset import Dataset
from tallbayes.errors import OptionError
from tallbayes.model import Family, Model
from tallbayes.models.group_effects import with_groups
from tallbayes.named_priors import PriorLike

NEEDED = {"sympy": "sympy", "flint": "python-flint"}


def _require() -> None:
    missing = []
    for module, package in NEEDED.items():
        try:
            importlib.import_module(module)
        except ImportError:
            missing.append(package)
    if missing:
        raise OptionError(
            f"models from expressions need {' and '.join(missing)}: pip install 'tallbayes[families]' installs what they need."
        )


def family(
    expression: Any,
    data: Dataset,
    prior: PriorLike = None,
    *,
    constants: Mapping[str, float] | None = None,
    mean: Any = None,
    support: str = "real",
) -> Model:
    """A model whose log-likelihood of a row is an expression of its linear predictor `eta` and its response `y`.

    The expression is text, or SymPy, made of eta, y, numbers, + - * / **, exp, log, sqrt, expit, softplus, tanh and others, and
    `where(y == 0, a, b)`; `constants` gives other names a value, and `log_scale` is an unknown parameter, the last of theta.
    `mean`, an expression of eta, is for predictions; `support` ("binary", "count", "positive") has the responses checked. What
    was proven is in `model.family.certificate`.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((6, 1)), [0, 1, 1, 0, 1, 1])
    >>> model = tb.models.family("y*log(1 - exp(-exp(eta))) - (1 - y)*exp(eta)", data, support="binary")  # cloglog
    >>> round(float(model.log_posterior(np.zeros(1)) - model.log_prior(np.zeros(1))), 6)
    -3.834701
    """
    _require()
    from tallbayes.models.expressions.builder import build

    if getattr(data, "groups", ()):
        return _with_groups(data, prior, expression=expression, constants=constants, mean=mean, support=support)
    return build(expression, data, prior, constants, mean, support)


def expression(
    data: Dataset,
    prior: PriorLike = None,
    *,
    expression: Any,
    constants: Mapping[str, float] | None = None,
    mean: Any = None,
    support: str = "real",
) -> Model:
    """The same as `family`, by the name of a family: `tb.fit(..., family="expression", expression="...")`.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((3, 1)), [0, 2, 1])
    >>> tb.models.build("expression", data, expression="y*eta - exp(eta)")
    Model(expression, 3 rows, 1 parameters, prior weakly_informative)
    """
    if expression is None:
        raise OptionError("family 'expression' needs expression=, such as expression='y*eta - log(1 + exp(eta))'.")
    return family(expression, data, prior, constants=constants, mean=mean, support=support)


_with_groups = with_groups(expression)


def family_of_options(options: Mapping[str, Any]) -> Family:
    """What the family of a model says of itself by the options of the model, such as those in a saved fit."""
    _require()
    from tallbayes.models.expressions.builder import family_of_options

    return family_of_options(options)
