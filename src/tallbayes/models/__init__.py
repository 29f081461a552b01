"""Families and priors. A model is a family and a prior over a Dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tallbayes import priors
from tallbayes.data.dataset import Dataset
from tallbayes.errors import unknown
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
from tallbayes.models.group_effects import HierarchicalModel, with_groups
from tallbayes.models.jax_model import from_jax
from tallbayes.models.numpyro_model import from_numpyro
from tallbayes.models.transforms import interval, ordered, positive, real, simplex

arma = with_groups(arma)
class_gaussian = with_groups(class_gaussian)
expression = with_groups(expression)
gamma = with_groups(gamma)
gaussian = with_groups(gaussian)
logistic = with_groups(logistic)
negbin = with_groups(negbin)
normal = with_groups(normal)
poisson = with_groups(poisson)
probit = with_groups(probit)
softmax = with_groups(softmax)
student_t = with_groups(student_t)

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


def build(family: str, data: Dataset, prior: priors.Prior | None = None, **options: Any) -> Model:
    """A model by the name of its family.

    >>> import numpy as np, tallbayes as tb
    >>> build("poisson", tb.Dataset.from_arrays(np.ones((2, 1)), [1, 0]))
    Model(poisson, 2 rows, 1 parameters, prior weakly_informative)
    """
    if family not in FAMILIES:
        raise unknown("family", family, FAMILIES)
    return FAMILIES[family](data, prior=prior, **options)


__all__ = [
    "FAMILIES",
    "Family",
    "HierarchicalModel",
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
