"""Internals of `tallbayes.results.new_rows`; what users see of it is tested in test_predict.py."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.results import new_rows
from tallbayes.samplers import Guarantee


def fitted(family, options=None, draws=4000, dim=2, theta=None, **meta):
    """A fit whose draws are known: theta ~ N(centre, 0.1^2), without a run."""
    rng = np.random.default_rng(1)
    options = options or {}
    names = ("Intercept", "x") if family != "softmax" else tuple(f"{c}[{k}]" for k in range(3) for c in ("Intercept", "x"))
    centre = np.linspace(0.2, 0.7, len(names))
    draw = centre + 0.1 * rng.standard_normal((2, draws // 2, len(names)))
    if options.get("sigma", 1) is None:
        names = (*names, "log_sigma")
        draw = np.concatenate([draw, np.full((2, draws // 2, 1), np.log(0.5))], axis=2)
    information = {"columns": ["Intercept", "x"], "intercept": 0, "has_offset": False, "plan": None, "rows": 10, **meta}
    return tb.Fit(
        draw, {"evals": np.zeros(draw.shape[:2])}, names, Guarantee("EXACT", ""), "", "complete", {}, {}, {},
        np.zeros(len(names)), np.eye(len(names)), {"model": {"family": family, "options": options}, **information},
    )  # fmt: skip


@pytest.mark.parametrize("size", [1, new_rows.BLOCK - 1, new_rows.BLOCK, 2 * new_rows.BLOCK + 3])
def test_blocks_cover_all_rows(size):
    fit = fitted("gaussian", {"sigma": 1.0}, draws=20)
    x = np.random.default_rng(0).standard_normal(size)
    shown = fit.predict({"x": x}, draws=20)
    np.testing.assert_allclose(
        shown["mean"], np.column_stack([np.ones(size), x]) @ fit.theta.mean((0, 1)), rtol=1e-10, atol=1e-12
    )
