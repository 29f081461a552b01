"""Divide and conquer: rows in shards, each sampled by itself, draws combined; and full passes over partitions on a cluster."""

from __future__ import annotations

from tallbayes.shards.combine import (
    COMBINERS,
    Combined,
    Combiner,
    Consensus,
    Convention,
    GaussianProduct,
    Importance,
    Median,
    MomentSharing,
    Natural,
    Nonparametric,
    Semiparametric,
    SubPosteriors,
    Wasserstein,
    Weierstrass,
    refine,
    resolve,
)
from tallbayes.shards.diagnose import diagnose, distances, divergence
from tallbayes.shards.fit import ShardFit
from tallbayes.shards.partitions import Partitions, Totals
from tallbayes.shards.partitions import find_partitioned_mode as find_mode
from tallbayes.shards.repartition import repartition
from tallbayes.shards.sample import sample_shards

__all__ = [
    "COMBINERS",
    "Combined",
    "Combiner",
    "Consensus",
    "Convention",
    "GaussianProduct",
    "Importance",
    "Median",
    "MomentSharing",
    "Natural",
    "Nonparametric",
    "Partitions",
    "Semiparametric",
    "ShardFit",
    "SubPosteriors",
    "Totals",
    "Wasserstein",
    "Weierstrass",
    "diagnose",
    "distances",
    "divergence",
    "find_mode",
    "refine",
    "repartition",
    "resolve",
    "sample_shards",
]
