"""Simulation-based calibration of models written by users: ranks of parameters drawn from the prior are uniform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

import tallbayes as tb

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
ROWS, KEPT, BINS = 60, 49, 10
CLOGLOG = "y*log(1 - exp(-exp(eta))) - (1 - y)*exp(eta)"


def ranks(simulate, build, sampler, replications, thin, draws=KEPT):
    """Ranks of the first two coordinates of theta among thinned posterior draws, each 0 to KEPT."""
    found = []
    for k in range(replications):
        rng = np.random.default_rng(1000 + k)
        theta = 0.7 * rng.standard_normal(2)
        fit = tb.sample(
            build(simulate(rng, theta)), sampler, draws=draws, warmup=200, chains=1, thin=thin, seed=k, progress=False
        )
        found.append((fit.theta[0] < theta).sum(0))
    return np.array(found)


def p_values(found):
    """Of the chi-squared statistic of each coordinate over equal bins."""
    counts = [np.histogram(column, BINS, (0, KEPT + 1))[0] for column in found.T]
    expected = found.shape[0] / BINS
    return np.array([chi2.sf(((c - expected) ** 2 / expected).sum(), BINS - 1) for c in counts])


def cloglog_rows(rng, theta):
    x = np.column_stack([np.ones(ROWS), rng.standard_normal(ROWS)])
    return tb.Dataset.from_arrays(x, (rng.random(ROWS) < -np.expm1(-np.exp(x @ theta))).astype(float))


def test_an_expression_is_calibrated_and_another_link_is_not():
    def build(text, prior=0.7):
        return lambda data: tb.models.family(text, data, tb.priors.normal(prior))

    assert p_values(ranks(cloglog_rows, build(CLOGLOG), "nuts", 200, 3)).min() > 1e-6
    wrong = ranks(cloglog_rows, build("y*eta - log(1 + exp(eta))"), "nuts", 200, 3)
    assert p_values(wrong).min() < 1e-6


def test_a_model_in_jax_is_calibrated():
    def curve(theta, row):
        p = 0.1 + 0.8 * jax.nn.sigmoid(jnp.exp(theta[1]) * (row["x"][0] - theta[0]))
        return row["y"] * jnp.log(p) + (1 - row["y"]) * jnp.log1p(-p)

    def rows(rng, theta):
        x = rng.uniform(-3, 3, ROWS)
        p = 0.1 + 0.8 / (1 + np.exp(-np.exp(theta[1]) * (x - theta[0])))
        return tb.Dataset.from_arrays(x[:, None], (rng.random(ROWS) < p).astype(float))

    found = ranks(rows, lambda data: tb.models.from_jax(curve, data, tb.priors.normal(0.7), dim=2), "nuts", 60, 3)
    assert p_values(found).min() > 1e-6
