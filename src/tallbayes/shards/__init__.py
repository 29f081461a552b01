"""Divide and conquer: rows in shards, each sampled by itself, draws combined; and full passes over partitions on a cluster."""

from __future__ import annotations

from tallbayes.remote.partitions import Partitions, Totals
from tallbayes.remote.partitions import find_partitioned_mode as find_mode
from tallbayes.shards import combine
from tallbayes.shards.checks import diagnose, distances, divergence
from tallbayes.shards.combine import *  # noqa: F403  every combination is offered here too
from tallbayes.shards.repartition import repartition
from tallbayes.shards.sample import sample_shards
from tallbayes.shards.shard_fit import ShardFit

__all__ = [
    "Partitions",
    "ShardFit",
    "Totals",
    "diagnose",
    "distances",
    "divergence",
    "find_mode",
    "repartition",
    "sample_shards",
]
__all__ += combine.__all__
