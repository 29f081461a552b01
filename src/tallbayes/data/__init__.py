"""Rows on disk or in memory, packed for random access."""

from tallbayes.data.dataset import Dataset
from tallbayes.data.merge import merge_rows
from tallbayes.data.read import read
from tallbayes.data.responses import censored, proportion
from tallbayes.data.smooths import smooth
from tallbayes.data.sources.database import Query

__all__ = ["Dataset", "Query", "censored", "merge_rows", "proportion", "read", "smooth"]
