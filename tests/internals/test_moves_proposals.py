"""Internals of `tallbayes.moves.proposals`; what users see of it is tested in test_moves.py."""

import importlib
import math
import pkgutil
from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import kstest, multivariate_t, norm
from scipy.stats import t as student

import tallbayes as tb
from tallbayes.moves.proposals import propose
from tallbayes.samplers import FullData
from tallbayes.testing import THRESHOLD, invariance_scores

MODULES = {m.name: importlib.import_module(f"tallbayes.moves.{m.name}") for m in pkgutil.iter_modules(tb.moves.__path__)}


@pytest.mark.parametrize("proposal", [tb.moves.independence(), tb.moves.pcn(0.7), tb.moves.pcn(0.7, share=0.3)], ids=repr)
def test_the_ratio_of_a_proposal_is_that_of_its_densities(proposal):
    kernel, rng, white = proposal.kernel(np.eye(2), 0.9), np.random.default_rng(4), np.array([0.4, -1.3])
    used = set()
    for _ in range(30):
        other = np.empty(2)
        ratio, component = propose(rng, kernel, white, other)
        used.add(component)
        centre, sd = (proposal.rho, (1 - proposal.rho**2) ** 0.5) if component == 0 else (1.0, 0.9 * 2.38 / 2**0.5)
        backward, forward = norm(centre * other, sd).logpdf(white).sum(), norm(centre * white, sd).logpdf(other).sum()
        assert abs(ratio - (backward - forward)) < 1e-12
        assert np.abs((other - centre * white) / sd).max() < 6.0
    assert used == {0, 1}


def test_the_ratio_of_heavy_tailed_proposals_is_that_of_their_densities():
    kernel, rng, white = (
        tb.moves.independence(share=1.0, df=3).kernel(np.eye(2), 1.0),
        np.random.default_rng(4),
        np.array([0.4, -1.3]),
    )
    law, others = multivariate_t(np.zeros(2), np.eye(2), df=3), np.empty((2000, 2))
    for other in others:
        ratio, component = propose(rng, kernel, white, other)
        assert component == 0 and abs(ratio - (law.logpdf(white) - law.logpdf(other))) < 1e-10
    assert kstest(others[:, 0], student(3).cdf).pvalue > 1e-5


def test_heavy_tailed_proposals_without_their_ratio_are_rejected(small, monkeypatch):
    class Careless(NamedTuple):
        df: float

    @propose.register(Careless)
    def _careless(rng, kernel, white, proposal):
        spread = math.sqrt(kernel.df / rng.chisquare(kernel.df))
        for j in range(white.size):
            proposal[j] = spread * rng.standard_normal()
        return 0.0, 0

    proposals = MODULES["proposals"]
    monkeypatch.setattr(proposals, "HeavyTailed", Careless)
    try:
        scores = invariance_scores(
            FullData(tb.moves.independence(df=4)), small.model, small.posterior, mode=small.mode, starts=12_000
        )
    finally:
        propose.registry.pop(Careless)
    assert np.abs(scores).max() > THRESHOLD
