"""Internals of `tallbayes.mode.several`; what users see of it is tested in test_modes.py."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.mode import several


def two_modes(shift=0.0):
    """y ~ N(theta^2, 1): the same likelihood at theta and -theta; a prior around `shift` tells them apart."""
    rng = np.random.default_rng(2)
    y = rng.normal(9.0, 1.0, 200)
    data = tb.Dataset.from_arrays(np.ones((200, 1)), y)

    def log_lik(theta, row):
        return -0.5 * (row["y"] - theta[0] ** 2) ** 2

    return tb.models.from_jax(log_lik, data, prior=tb.priors.normal(10.0, location=shift), dim=1)


def test_masses_are_those_of_quadrature():
    model = two_modes(shift=1.0)
    mode = tb.find_mode(model, progress=False)
    modes = [mode, *mode.others]
    grid = np.linspace(-4.0, 4.0, 4001)
    density = np.exp([model.log_posterior(np.array([t])) - mode.log_posterior for t in grid])
    right = density[grid > 0].sum() / density.sum()
    assert np.sign(modes[0].reference[0]) == (1.0 if right > 0.5 else -1.0)
    assert several.shares(modes)[0] == pytest.approx(max(right, 1.0 - right), abs=1e-3)


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_one_mode_is_proven_where_family_and_rows_are_log_concave(family):
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(2_000), rng.standard_normal(2_000)])
    model = getattr(tb.models, family)(tb.Dataset.from_arrays(X, rng.integers(0, 2, 2_000)))
    mode = tb.find_mode(model, progress=False)
    assert mode.searches == 0 and several.one_mode_proven(model, mode)
