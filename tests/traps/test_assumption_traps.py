"""Numbers that decide the answer and are not estimated, and methods whose spread is not that of the posterior."""

import numpy as np
import pyarrow as pa
import pytest
from support import warned_everywhere

import tallbayes as tb

ROWS = pa.table({"x": np.linspace(-1.0, 1.0, 30), "y": np.arange(1.0, 31.0)})


@pytest.mark.parametrize(
    "family, names", [("student_t", ("log_scale", "log_nu")), ("negbin", ("log_size",)), ("gamma", ("log_shape",))]
)
def test_numbers_that_are_not_given_are_learned(family, names):
    data = tb.read(ROWS, "y ~ x", progress=False)
    assert tb.models.build(family, data).names == ("Intercept", "x", *names)


@pytest.mark.parametrize("shape", [0.25, 1.0, 4.0])
def test_such_a_number_decides_the_width(shape):
    """Gamma responses with the mean e^eta: the standard deviation of eta is 1 / sqrt(n shape)."""
    data = tb.Dataset.from_arrays(np.ones((400, 1)), np.random.default_rng(0).gamma(2.0, 1.0, 400))
    mode = tb.find_mode(tb.models.gamma(data, tb.priors.flat(), shape=shape), progress=False)
    assert np.sqrt(mode.covariance[0, 0]) == pytest.approx(1.0 / np.sqrt(400 * shape), rel=1e-6)


@pytest.mark.slow
def test_lwa_has_the_spread_of_its_rows(tmp_path):
    """Lognormal data, normal model: the posterior sd of the mean is sd(y) / sqrt(n), that of 200 rows seven times as much."""
    y = np.exp(np.random.default_rng(3).standard_normal(10_000))
    model = tb.models.normal(tb.Dataset.from_arrays(np.ones((10_000, 1)), y))
    with pytest.warns(tb.TallbayesWarning, match="times the variance of the Laplace fit: LWA draws from the posterior of"):
        fit = tb.sample(model, "lwa", seed=1, progress=False)
    assert fit.theta[:, :, 0].std() > 3.0 * y.std() / 100.0
    assert warned_everywhere(fit, "Use 'informed', which scales sub-posteriors to all rows", tmp_path)
