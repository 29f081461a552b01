"""Kernel Stein discrepancy and Stein thinning: the kernel by finite differences, its mean under the posterior, its power."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.errors import OptionError, StoreError
from tallbayes.results.stein import discrepancy, stein_kernel, thin
from tallbayes.testing import THRESHOLD


def test_the_kernel_is_the_stein_operator_applied_twice():
    """k = div_x div_y c + s_x . grad_y c + s_y . grad_x c + s_x . s_y c for c = (1 + |x - y|^2)^(-1/2), by differences."""
    rng = np.random.default_rng(0)
    x, y, sx, sy = rng.standard_normal((4, 3))
    h = 1e-4

    def base(a, b):
        return (1.0 + ((a - b) ** 2).sum()) ** -0.5

    steps = h * np.eye(3)
    grad_x = np.array([(base(x + e, y) - base(x - e, y)) / (2 * h) for e in steps])
    grad_y = np.array([(base(x, y + e) - base(x, y - e)) / (2 * h) for e in steps])
    mixed = sum(
        (base(x + e, y + e) - base(x + e, y - e) - base(x - e, y + e) + base(x - e, y - e)) / (4 * h * h) for e in steps
    )
    expected = mixed + sx @ grad_y + sy @ grad_x + sx @ sy * base(x, y)
    assert stein_kernel(np.array([x, y]), np.array([sx, sy]))[0, 1] == pytest.approx(expected, rel=1e-5)


def test_its_mean_is_zero_under_the_law_of_the_scores_alone():
    rng = np.random.default_rng(1)
    scores = []
    for spread in (1.0, 1.3):
        values = []
        for _ in range(60):
            x = spread * rng.standard_normal((100, 2))
            kernel = stein_kernel(x, -x)
            values.append((kernel.sum() - np.trace(kernel)) / (100 * 99))
        scores.append(np.mean(values) / (np.std(values, ddof=1) / np.sqrt(60)))
    assert abs(scores[0]) < THRESHOLD < scores[1]


def test_thinning_beats_the_first_draws_and_drops_outliers():
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.standard_normal((150, 2)), 6.0 + rng.standard_normal((50, 2))])
    kernel = stein_kernel(x, -x)
    picked = thin(kernel, 30)
    assert (picked < 150).all()
    assert discrepancy(kernel[np.ix_(picked, picked)]) < 0.5 * discrepancy(kernel[np.ix_(np.arange(30), np.arange(30))])
    best = min(range(200), key=lambda i: kernel[i, i])
    assert picked[0] == best


def test_a_fit_of_the_posterior_passes_and_one_of_another_law_does_not(small):
    fit = tb.sample(small.model, "nuts", draws=600, warmup=300, chains=2, seed=1, progress=False)
    found = fit.stein(small.model, candidates=150, progress=False)
    assert found.p_value > 1e-3 and found.ksd < 2.0 * found.expected
    assert found.candidates == 150 and found.evals == 150 * 60 and found.kept.shape == (37, 2)
    np.testing.assert_array_equal(found.theta, fit.theta[found.kept[:, 0], found.kept[:, 1]])
    assert found.ksd_kept < found.ksd and "evaluations" in repr(found)
    other = tb.sample(small.tempered, "nuts", draws=600, warmup=300, chains=2, seed=1, progress=False)
    mean = fit.theta.mean((0, 1))
    other.theta, other.meta["fingerprint"] = mean + 2.0 * (fit.theta - mean), fit.meta["fingerprint"]
    wide = other.stein(small.model, candidates=150, progress=False)
    assert wide.p_value < 0.01 and wide.ksd > 2.0 * found.ksd


def test_weights_count(small):
    fit = tb.sample(small.model, "nuts", draws=400, warmup=300, chains=2, seed=1, progress=False)
    before = fit.stein(small.model, progress=False).ksd
    fit.stats["weight"] = np.where(fit.theta[:, :, 1] > fit.theta[:, :, 1].mean(), 1.0, 0.05)
    assert fit.stein(small.model, progress=False).ksd > 1.5 * before


def test_wrong_arguments_are_refused(small, medium):
    fit = tb.sample(small.model, "hmc", draws=10, warmup=10, chains=1, seed=1, progress=False)
    with pytest.raises(OptionError, match="candidates"):
        fit.stein(small.model, candidates=1)
    with pytest.raises(OptionError, match="keep"):
        fit.stein(small.model, keep=0)
    with pytest.raises(StoreError, match="not the rows"):
        fit.stein(medium)
