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

import numpy as np

from tallbayes import families, priors
from tallbayes.data.dataset import CHUNK, Dataset
from tallbayes.errors import OptionError, unknown
from tallbayes.model import Family, Model, ResponseError, Tangent
from tallbayes.models import default_family, expressions, jax_model
from tallbayes.models.expressions import expression, family
from tallbayes.models.group_effects import HierarchicalModel, recorded_prior, with_groups
from tallbayes.models.jax_model import from_jax
from tallbayes.models.numpyro_model import from_numpyro
from tallbayes.models.transforms import interval, ordered, positive, real, simplex
from tallbayes.models.unknown_scales import UnknownScaleModel, with_unknown_scales
from tallbayes.named_priors import PriorLike
from tallbayes.option_types import checked

_MODULES = {m.name: importlib.import_module(f"{families.__name__}.{m.name}") for m in pkgutil.iter_modules(families.__path__)}
_BUILT_IN: dict[str, Callable[..., Model]] = {
    name: checked(with_unknown_scales(with_groups(getattr(module, name)))) for name, module in _MODULES.items()
}
FAMILIES: dict[str, Callable[..., Model]] = dict(
    sorted({**_BUILT_IN, "expression": checked(with_unknown_scales(with_groups(expression)))}.items())
)
"""The makers of models by the name of their family."""
globals().update(_BUILT_IN)
ALIASES: dict[str, str] = {alias: name for name, module in _MODULES.items() for alias in module.FAMILY.aliases}
"""Other names of families, as other packages have them."""


def __getattr__(name: str) -> Callable[..., Model]:
    """Every family is a name of this module already; this tells type checkers so."""
    raise AttributeError(f"module 'tallbayes.models' has no attribute {name!r}; its families are {', '.join(FAMILIES)}.")


def family_name(family: Any) -> str:
    """The name of a family that is asked for by its name or an alias.

    >>> family_name("bernoulli"), family_name("poisson")
    ('logistic', 'poisson')
    """
    name = ALIASES.get(family, family) if isinstance(family, str) else family
    if not isinstance(name, str) or name not in FAMILIES:
        raise unknown("family", family, [*FAMILIES, *ALIASES])
    return name


def check_assumed(options: Iterable[str]) -> None:
    """Refuse options of a family where no family is named.

    >>> check_assumed(["size"])
    Traceback (most recent call last):
    ...
    tallbayes.errors.OptionError: size= is an option of negbin; give family= as well.
    """
    for name in options:
        owners = [
            own for own in FAMILIES if name in family_options(own) and (own not in _MODULES or _MODULES[own].FAMILY.regression)
        ]
        if owners:
            raise OptionError(f"{name}= is an option of {default_family.listed(owners, 'and')}; give family= as well.")
        raise unknown("option of a family", name, {name for family in FAMILIES for name in family_options(family)})


def family_options(family: str) -> dict[str, bool]:
    """Names of the options of a family, and whether each must be given.

    >>> family_options("gaussian"), family_options("logistic")
    ({'sigma': False}, {})
    """
    parameters = list(inspect.signature(FAMILIES[family_name(family)]).parameters.values())[1:]  # the first are the rows
    return {p.name: p.default is p.empty for p in parameters if p.name != "prior"}


def second_formula(family: str, options: Mapping[str, Any]) -> dict[str, str]:
    """The formula of a second predictor among the options of a family, as `tallbayes.read` takes it; empty if there is none.

    >>> second_formula("gaussian", {"sigma": "~ x"}), second_formula("hurdle_poisson", {}), second_formula("poisson", {})
    ({'sigma': '~ x'}, {'zi': '~ 1'}, {})
    """
    module = _MODULES.get(family_name(family))
    if module is None or not module.FAMILY.second_name:
        return {}
    name = module.FAMILY.second_name
    given = options.get(name)
    if module.FAMILY.second_needed and not (given is None or isinstance(given, str)):
        raise OptionError(f"{name}= is a formula without a response, such as '~ x' or '~ 1'; got {given!r}.")
    if given is None:
        return {name: "~ 1"} if module.FAMILY.second_needed else {}
    return {name: given} if isinstance(given, str) else {}


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
    missing = [f"{name}=" for name, needed in valid.items() if needed and name not in given]
    if missing:
        raise OptionError(
            f"family {family!r} needs {' and '.join(missing)}: the posterior depends on it, and there is no default that suits all rows."
        )


@checked
def build(family: str, data: Dataset, prior: PriorLike = None, **options: Any) -> Model:
    """A model by the name of its family.

    >>> import numpy as np, tallbayes as tb
    >>> build("poisson", tb.Dataset.from_arrays(np.ones((2, 1)), [1, 0]))
    Model(poisson, 2 rows, 1 parameters, prior weakly_informative)
    """
    check_family(family, options)
    return FAMILIES[family_name(family)](data, prior=prior, **options)


def build_assumed(data: Dataset, prior: PriorLike = None) -> Model:
    """A model without the name of a family: logistic if every response is 0 or 1, binomial for p(successes, trials); others are refused.

    >>> import numpy as np, tallbayes as tb
    >>> build_assumed(tb.Dataset.from_arrays(np.ones((2, 1)), [1, 0])).assumed
    'no family was given: logistic, because y is 0 or 1 in every row'
    >>> build_assumed(tb.Dataset.from_arrays(np.ones((2, 1)), [1.5, -2.0]))
    Traceback (most recent call last):
    ...
    tallbayes.errors.DataError: the response 'y' has numbers from -2 to 1.5 (row 0: 1.5); without family=, only 0 and 1 are modelled
    (logistic). Give family=: gaussian or student_t for any numbers. Two classes are coded as 0 and 1, not -2 and 1.5, for
    family='logistic'.
    """
    function = default_family.response_function_of(data)
    name = family_for("binomial", data) if function == "p" else "logistic"
    if function != "censored" and default_family.may_be_binary(data):
        try:
            model = build(name, data, prior)
            model.assumed = default_family.sentence(data, name)  # type: ignore[misc]
            return model
        except ResponseError:
            pass  # a row between 0 and 1: the families that admit it are named
    default_family.ask_for_family(data, {name: module.FAMILY for name, module in _MODULES.items()})


def family_for(family: str, data: Dataset) -> str:
    """The family that is meant for these rows: binomial with a single trial in each row, as other packages say it, is logistic.

    >>> import numpy as np, tallbayes as tb
    >>> rows = {"y": np.array([0.0, 1.0]), "weights": np.array([1.0, 3.0])}
    >>> [family_for("binomial", tb.Dataset.from_arrays(np.ones((2, 1)), rows["y"], weights=w)) for w in (None, rows["weights"])]
    ['logistic', 'binomial']
    """
    if family_name(family) != "binomial":
        return family
    for start in range(0, data.n, CHUNK):
        part = slice(start, start + CHUNK)
        y, trials = data.y[part], data.trials(part)
        if not (np.isin(y, (0.0, 1.0)) & (trials == 1.0)).all():
            return family
    return "logistic"


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
    "UnknownScaleModel",
    "build",
    "expression",
    "family",
    "family_for",
    "family_of",
    "from_jax",
    "from_numpyro",
    "interval",
    "ordered",
    "positive",
    "priors",
    "real",
    "recorded_prior",
    "simplex",
]
__all__ += list(_BUILT_IN)
