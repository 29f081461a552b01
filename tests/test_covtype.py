"""Real data, 400,000 rows: chains from dispersed starts agree with each other and with importance sampling."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.testing import THRESHOLD, effective_sizes, importance_moments


@pytest.mark.slow
def test_nuts_agrees_with_importance_sampling(covtype):
    mode = tb.find_mode(covtype, progress=False)
    fit = tb.sample(covtype, "nuts", draws=300, warmup=200, chains=4, seed=11, mode=mode, progress=False)
    estimate = importance_moments(covtype, draws=2000, mode=mode)
    assert fit.theta.shape == (4, 300, 11) and fit.names[:2] == ("Intercept", "Elevation")
    assert (fit.r_hat < 1.01).all() and not fit.stats["diverging"].any()
    assert estimate.ess > 200

    flat = fit.theta.reshape(-1, 11)
    mean, sd = flat.mean(0), flat.std(0, ddof=1)
    squares = (fit.theta - mean) ** 2
    mean_error = sd / np.sqrt(fit.ess)
    sd_error = squares.reshape(-1, 11).std(0, ddof=1) / np.sqrt(effective_sizes(squares)) / (2 * sd)
    assert (mean_error < 0.1 * sd).all() and (sd_error < 0.1 * sd).all()
    assert (np.abs(mean - estimate.mean) < THRESHOLD * np.hypot(mean_error, estimate.mean_error)).all()
    assert (np.abs(sd - estimate.sd) < THRESHOLD * np.hypot(sd_error, estimate.sd_error)).all()
