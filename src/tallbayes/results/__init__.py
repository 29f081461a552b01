"""Draws, cost, guarantee, predictions, plots, files."""

from tallbayes.results.files import load
from tallbayes.results.fit import Fit
from tallbayes.results.path_moments import path_moments
from tallbayes.results.scores import calibration, roc

__all__ = ["Fit", "calibration", "load", "path_moments", "roc"]
