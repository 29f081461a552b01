"""Families and priors. A model is a family and a prior over a Dataset."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from tallbayes import priors
from tallbayes.data.dataset import Dataset
from tallbayes.errors import OptionError, unknown
from tallbayes.families.arma import arma
from tallbayes.families.class_gaussian import class_gaussian
from tallbayes.families.gamma import gamma
from tallbayes.families.gaussian import gaussian
from tallbayes.families.logistic import logistic
from tallbayes.families.negbin import negbin
from tallbayes.families.normal import normal
from tallbayes.families.poisson import poisson
from tallbayes.families.probit import probit
from tallbayes.families.softmax import softmax
from tallbayes.families.student_t import student_t
from tallbayes.model import Family, Model
from tallbayes.models.expressions import expression, family
from tallbayes.models.jax_model import from_jax
from tallbayes.models.numpyro_model import from_numpyro
from tallbayes.models.transforms import interval, ordered, positive, real, simplex

FAMILIES: dict[str, Callable[..., Model]] = {
    "arma": arma,
    "class_gaussian": class_gaussian,
    "expression": expression,
    "gamma": gamma,
    "gaussian": gaussian,
    "logistic": logistic,
    "negbin": negbin,
    "normal": normal,
    "poisson": poisson,
    "probit": probit,
    "softmax": softmax,
    "student_t": student_t,
}


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


def build(family: str, data: Dataset, prior: priors.Prior | None = None, **options: Any) -> Model:
    """A model by the name of its family.

    >>> import numpy as np, tallbayes as tb
    >>> build("poisson", tb.Dataset.from_arrays(np.ones((2, 1)), [1, 0]))
    Model(poisson, 2 rows, 1 parameters, prior weakly_informative)
    """
    check_family(family, options)
    return FAMILIES[family](data, prior=prior, **options)


__all__ = [
    "FAMILIES",
    "Family",
    "Model",
    "arma",
    "build",
    "class_gaussian",
    "expression",
    "family",
    "from_jax",
    "from_numpyro",
    "gamma",
    "gaussian",
    "interval",
    "logistic",
    "negbin",
    "normal",
    "ordered",
    "poisson",
    "positive",
    "priors",
    "probit",
    "real",
    "simplex",
    "softmax",
    "student_t",
]
