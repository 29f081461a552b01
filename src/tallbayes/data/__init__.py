"""Rows on disk or in memory, packed for random access."""

from tallbayes.data.dataset import Dataset
from tallbayes.data.read import read

__all__ = ["Dataset", "read"]
