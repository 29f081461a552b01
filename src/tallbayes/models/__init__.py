"""Families and priors. A model is a family and a prior over a Dataset.

The families are the files of `tallbayes.families`: each declares FAMILY, what the family says of itself, and a function of the
file's own name, which makes a model. They are listed, not named here.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tallbayes import families, priors
from tallbayes.data.dataset import Dataset
from tallbayes.errors import OptionError, unknown
from tallbayes.model import Family, Model, Tangent
from tallbayes.models import expressions, jax_model
from tallbayes.models.expressions import expression, family
from tallbayes.models.group_effects import HierarchicalModel, with_groups
from tallbayes.models.jax_model import from_jax
from tallbayes.models.numpyro_model import from_numpyro
from tallbayes.models.penalised import with_hyperpriors
from tallbayes.models.transforms import interval, ordered, positive, real, simplex
from tallbayes.named_priors import PriorLike

_MODULES = {m.name: importlib.import_module(f"{families.__name__}.{m.name}") for m in pkgutil.iter_modules(families.__path__)}
_BUILT_IN: dict[str, Callable[..., Model]] = {
    name: with_hyperpriors(with_groups(getattr(module, name))) for name, module in _MODULES.items()
}
FAMILIES: dict[str, Callable[..., Model]] = dict(
    sorted({**_BUILT_IN, "expression": with_hyperpriors(with_groups(expression))}.items())
)
"""The makers of models by the name of their family."""
globals().update(_BUILT_IN)


def __getattr__(name: str) -> Callable[..., Model]:
    """Every family is a name of this module already; this tells type checkers so."""
    raise AttributeError(f"module 'tallbayes.models' has no attribute {name!r}; its families are {', '.join(FAMILIES)}.")


def family_options(family: str) -> dict[str, bool]:
    """Names of the options of a family, and whether each must be given.

    >>> family_options("gaussian"), family_options("logistic")
    ({'sigma': False}, {})
    """
    if not isinstance(family, str) or family not in FAMILIES:
        raise unknown("family", family, FAMILIES)
    parameters = list(inspect.signature(FAMILIES[family]).parameters.values())[1:]  # the first are the rows
    return {p.name: p.default is p.empty for p in parameters if p.name != "prior"}


def check_family(family: str, options: Iterable[str]) -> None:
    """Refuse a family or the name of an option that does not exist, or an option left out, before any row is read.

    >>> check_family("gaussian", ["sgima"])
    Traceback (most recent call last):
    ...
    tallbayes.errors.OptionError: unknown option of gaussian 'sgima'; did you mean 'sigma'? Valid: sigma
    """
    valid, given = family_options(family), set(options)
    for name in given - set(valid):
        raise unknown(f"option of {family}", name, valid or ["none"])
    for name, needed in valid.items():
        if needed and name not in given:
            raise OptionError(f"family {family!r} needs {name}=.")


def build(family: str, data: Dataset, prior: PriorLike = None, **options: Any) -> Model:
    """A model by the name of its family.

    >>> import numpy as np, tallbayes as tb
    >>> build("poisson", tb.Dataset.from_arrays(np.ones((2, 1)), [1, 0]))
    Model(poisson, 2 rows, 1 parameters, prior weakly_informative)
    """
    check_family(family, options)
    return FAMILIES[family](data, prior=prior, **options)


def family_of(description: Mapping[str, Any]) -> Family:
    """The family of a model by its description, such as the one in a saved fit: what it says of itself, without any rows.

    >>> family_of({"family": "probit", "options": {}}).support
    '0 or 1'
    """
    name = description["family"]
    if name in _MODULES:
        return _MODULES[name].FAMILY
    if name not in _WRITTEN:
        raise unknown("family of the fit", name, [*FAMILIES, *_WRITTEN])
    return _WRITTEN[name](description["options"])


_WRITTEN: dict[str, Callable[[Mapping[str, Any]], Family]] = {
    "expression": expressions.family_of_options,
    jax_model.FAMILY.name: lambda options: jax_model.FAMILY,
}

__all__ = [
    "FAMILIES",
    "Family",
    "HierarchicalModel",
    "Model",
    "Tangent",
    "build",
    "expression",
    "family",
    "family_of",
    "from_jax",
    "from_numpyro",
    "interval",
    "ordered",
    "positive",
    "priors",
    "real",
    "simplex",
]
__all__ += list(_BUILT_IN)
