"""Families with one linear predictor: their links, their means and the slopes of these."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import numpy as np

from tallbayes.errors import ModelError
from tallbayes.results.row_averages import Function

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

LINKS = {
    "logistic": "logit", "probit": "probit", "poisson": "log", "negbin": "log", "gamma": "log",
    "inverse_gaussian": "log", "binomial": "logit", "beta": "logit", "gaussian": "identity", "normal": "identity", "student_t": "identity",
}  # fmt: skip


def has_second(fit: Fit) -> bool:
    """Whether a fit has a second linear predictor, such as that of a standard deviation."""
    from tallbayes.models import family_of

    family = family_of(fit.meta["model"])
    return family.second_name != "" and family.second(family.member_of(**fit.meta["model"]["options"])) > 0


def require_link(fit: Fit) -> str:
    """The family of a fit, which must have one linear predictor."""
    family = fit.meta["model"]["family"]
    if family not in LINKS:
        raise ModelError(
            f"effects are known for families with one linear predictor ({', '.join(LINKS)}), not for {family!r}. Compare "
            "predictions at two values with fit.predict, or compute them from fit.theta."
        )
    if has_second(fit):
        raise ModelError("effects need one linear predictor, and the model has two. Compare predictions with fit.predict.")
    return family


def mean_of(family: str) -> Function:
    """E[y | eta] of a family with one linear predictor."""
    from tallbayes.models import FAMILIES

    return importlib.import_module(FAMILIES[family].__module__).FAMILY.mean


def slope_of(link: str, mean: Function) -> Function:
    """The derivative of the mean in eta."""
    if link == "logit":
        return lambda eta: (p := mean(eta)) * (1.0 - p)
    if link == "probit":
        return lambda eta: np.exp(-0.5 * eta**2) / np.sqrt(2.0 * np.pi)
    return mean if link == "log" else np.ones_like
