"""Internals of `tallbayes.diagnostics.likelihood_estimates`; what users see of it is tested in test_pseudo_marginal.py."""

from types import SimpleNamespace

import numpy as np
import pytest
from test_hmc_ecs import plain, quad, scores  # noqa: F401

from tallbayes.diagnostics import likelihood_estimates


@pytest.mark.parametrize("gap, passes_audit", [(1e-5, True), (1e-2, False)])
def test_an_audit_allows_for_rounding_of_a_sum_whose_terms_cancel(gap, passes_audit, monkeypatch):
    """A million densities of both signs may add up to nothing; the rounding of their sum is that of the terms."""
    monkeypatch.setattr(likelihood_estimates.passes, "total_value", lambda rows, theta: 0.0)
    model = SimpleNamespace(rows=None, data=SimpleNamespace(n=1_000_000))
    stats = {"log_likelihood": np.full((1, 5), gap), "variance": np.zeros((1, 5))}
    fit = SimpleNamespace(theta=np.zeros((1, 5, 2)), stats=stats)
    _, problems = likelihood_estimates.audit(model, fit, 5, np.random.default_rng(0))
    assert (problems == []) is passes_audit
