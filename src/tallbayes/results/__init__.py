"""Draws, cost, guarantee, plots, files."""

from tallbayes.results.files import load
from tallbayes.results.fit import Fit

__all__ = ["Fit", "load"]
