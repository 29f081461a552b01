"""Numbers that decide the answer and are not estimated, and methods whose spread is not that of the posterior."""

import numpy as np
import pyarrow as pa
import pytest
from support import warned_everywhere

import tallbayes as tb

ROWS = pa.table({"x": np.linspace(-1.0, 1.0, 30), "y": np.arange(1.0, 31.0)})


@pytest.mark.parametrize(
    "family, options", [("student_t", {"nu": 4.0, "scale": 1.0}), ("negbin", {"size": 1.0}), ("gamma", {"shape": 1.0})]
)
def test_numbers_that_are_not_estimated_have_to_be_given(family, options):
    data = tb.read(ROWS, "y ~ x", progress=False)
    for left_out in options:
        given = {k: v for k, v in options.items() if k != left_out}
        with pytest.raises(tb.OptionError, match=f"family '{family}' needs {left_out}="):
            tb.fit("y ~ x", ROWS, family=family, progress=False, **given)
        with pytest.raises(tb.OptionError, match=f"needs {left_out}="):
            tb.models.build(family, data, **given)
        with pytest.raises(TypeError, match=left_out):
            getattr(tb.models, family)(data, **given)
    assert tb.models.build(family, data, **options).options == options


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
