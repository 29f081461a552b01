"""Families with one linear predictor: their links, their means and the slopes of these."""

from __future__ import annotations

import importlib

import numpy as np

from tallbayes.results.row_averages import Function

LINKS = {
    "logistic": "logit", "probit": "probit", "poisson": "log", "negbin": "log", "gamma": "log",
    "inverse_gaussian": "log", "binomial": "logit", "beta": "logit", "gaussian": "identity", "normal": "identity", "student_t": "identity",
}  # fmt: skip


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
