"""Exact minibatch with third-order proxies: tensor, bound and kernel; the kernel is enumerated, and a missing entry of the tensor shows."""

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.samplers import ExactMinibatch

pytestmark = pytest.mark.filterwarnings("ignore:column 'x1' separates the response")


def test_order_three_samples_the_same_posterior_at_fewer_rows():
    X, y = logistic_arrays(3_000)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(2.0))
    options = {"draws": 4_000, "warmup": 300, "chains": 2, "seed": 1, "progress": False}
    second, third = (tb.sample(model, ExactMinibatch(order=order), **options) for order in (2, 3))
    error = np.sqrt(second.theta.var((0, 1)) / second.ess + third.theta.var((0, 1)) / third.ess)
    assert np.abs((second.theta.mean((0, 1)) - third.theta.mean((0, 1))) / error).max() < 5.0
    assert third.evals.mean() < 0.7 * second.evals.mean()
    found = third.audit(model, pairs=3)
    assert found.passed and found.facts["largest residual / bound over all rows of them"] <= 1.0
    assert "third-order" in third.why


def test_what_has_no_third_order_is_refused():
    rng = np.random.default_rng(0)
    data = tb.Dataset.from_arrays(np.ones((50, 1)), rng.standard_normal(50))
    with pytest.raises(tb.ModelError, match="use order=2"):
        tb.sample(tb.models.student_t(data), ExactMinibatch(order=3), draws=5, progress=False)
    with pytest.raises(tb.OptionError, match="order must be 2 or 3"):
        ExactMinibatch(order=4)
