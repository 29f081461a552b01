"""Data in the shape of those of Dang et al. (2019): logistic regressions of the size of HIGGS and of the bankruptcy data, reduced."""

from __future__ import annotations

import numpy as np

import tallbayes as tb


def higgs_like(rows: int = 300_000, seed: int = 0) -> tb.models.Model:
    """An intercept and 28 correlated columns, a third of them skewed and positive, as kinematic features are; half the responses 1."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((rows, 4)) @ rng.standard_normal((4, 28)) * 0.4
    x = common + rng.standard_normal((rows, 28))
    x[:, ::3] = np.exp(0.4 * x[:, ::3])
    x = (x - x.mean(0)) / x.std(0)
    return _model(x, rng.standard_normal(28) * 0.25, 0.1, rng)


def bankruptcy_like(rows: int = 200_000, seed: int = 1) -> tb.models.Model:
    """An intercept and ten smooth functions of each of eight columns, 81 in all; about one response in a hundred is 1."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((rows, 8))
    knots = np.linspace(-1.8, 1.8, 9)
    blocks = [z, *(np.tanh(1.5 * (z - knot)) for knot in knots)]
    x = np.concatenate(blocks, axis=1)
    x = (x - x.mean(0)) / x.std(0)
    return _model(x, rng.standard_normal(80) * 0.08, -4.7, rng)


def _model(x: np.ndarray, effect: np.ndarray, intercept: float, rng: np.random.Generator) -> tb.models.Model:
    y = rng.random(x.shape[0]) < 1.0 / (1.0 + np.exp(-(intercept + x @ effect)))
    design = np.column_stack([np.ones(x.shape[0]), x])
    return tb.models.logistic(tb.Dataset.from_arrays(design, y.astype(float)), tb.priors.normal(10.0))
