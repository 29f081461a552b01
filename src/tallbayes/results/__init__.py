"""Draws, cost, guarantee, predictions, plots, files."""

from tallbayes.results.files import load
from tallbayes.results.fit import Fit
from tallbayes.results.model_comparison import compare_models
from tallbayes.results.path_moments import path_moments
from tallbayes.results.predictive_checks import prior_predictive
from tallbayes.results.scores import calibration, roc

__all__ = ["Fit", "calibration", "compare_models", "load", "path_moments", "prior_predictive", "roc"]
