"""Rows that live elsewhere: partitions, passes over them on a cluster or one at a time, and streams of rows drawn where they are."""

from __future__ import annotations

from tallbayes.remote.partitions import Partitions, Totals

__all__ = ["Partitions", "Totals"]
