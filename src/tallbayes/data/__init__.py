"""Rows on disk or in memory, packed for random access."""

from tallbayes.data.dataset import Dataset
from tallbayes.data.read import read
from tallbayes.data.sources.database import Query

__all__ = ["Dataset", "Query", "read"]
