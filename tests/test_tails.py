"""Tails that normal proposals rarely reach: seen in the draws, where R-hat and effective sizes see nothing."""

import numpy as np
import pyarrow as pa
import pytest

import tallbayes as tb
from tallbayes.diagnostics.tails import heavy_tails
from tallbayes.proxies.taylor import Whitening
from tallbayes.schemes.poisson_minibatch import tail_excess, tail_excesses
from tallbayes.shards import Partitions
from tallbayes.testing import THRESHOLD, counting_rows


def leverage_model(size):
    """Four rows far out: with 1,000 standard deviations the posterior of the slope has an exponential tail."""
    rng = np.random.default_rng(5)
    x, u = rng.standard_normal(500), rng.random(500)
    y = (u < 1.0 / (1.0 + np.exp(0.5 - x))).astype(float)
    x[:4], y[:4] = np.array([1.0, -1.0, 0.7, -0.4]) * size, [1.0, 0.0, 0.0, 0.0]
    return tb.models.logistic(tb.Dataset.from_arrays(np.column_stack([np.ones(500), x]), y), tb.priors.normal(2.0))


@pytest.mark.filterwarnings("ignore:the chains disagree")  # they may: that is what these tails do
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_posterior_with_heavier_tails_than_its_proposals_is_warned_of(seed):
    with pytest.warns(tb.TallbayesWarning, match=r"the sampler explores these tails poorly.*Use 'nuts'"):
        fit = tb.sample(leverage_model(1e3), "exact-minibatch", draws=2000, seed=seed, progress=False)
    (sentence,) = (s for s in fit.meta["warnings"] if "these tails" in s)
    assert fit.r_hat.max() < 1.1 and sentence in repr(fit.summary())
    tb.sample(leverage_model(2.0), "exact-minibatch", draws=2000, seed=seed, progress=False)


@pytest.mark.parametrize("rows", [400, 1000])
def test_the_excess_is_estimated_without_bias_and_counted(rows):
    model = leverage_model(1e3)
    mode = tb.find_mode(model, progress=False)
    setup = tb.samplers.ExactMinibatch().setup(model, mode, 0, False)
    white = np.array([0.5, 4.0])
    theta = mode.reference + mode.factor @ white
    exact = model.log_posterior(theta) - model.log_posterior(mode.reference) + 0.5 * white @ white
    with counting_rows() as account:
        found, error = tail_excess(setup, white, rows)
    assert exact > 3.0 and abs(found - exact) < max(THRESHOLD * error, 1e-6)
    assert account.rows == 2 * min(rows, 500)
    assert (error > 0.0) == (rows == 400)


@pytest.mark.parametrize("size", [1e3, 2.0])
def test_of_rows_in_partitions_the_excess_is_one_pass_unless_the_bound_excludes_it(size):
    model = leverage_model(size)
    table = pa.table({"y": model.data.y, "x": model.data.records[:, 1]})
    rows = Partitions.open([table.slice(0, 200), table.slice(200)], "y ~ x", prior=tb.priors.normal(2.0))
    mode = rows.find_mode(progress=False)
    setup = tb.samplers.ExactMinibatch().setup(rows.model, mode, 0, False)
    points = np.array([[0.0, 0.1], [0.5, 4.0], [1.0, 3.0]])
    thetas, before = mode.reference + points @ mode.factor.T, rows.passes
    exact = [model.log_posterior(t) - model.log_posterior(mode.reference) for t in thetas] + 0.5 * (points**2).sum(1)
    found = list(tail_excesses(setup, points))
    assert [f[0] for f in found] == pytest.approx(exact, abs=1e-6) and rows.passes == before + 1
    spared = list(tail_excesses(setup, points, enough=2.0))
    read = np.array([error == 0.0 for _, error in spared])
    assert rows.passes == before + 2 and read.tolist() == [False, True, size > 2.0]
    assert len(list(tail_excesses(setup, points[:1], enough=2.0))) == 1 and rows.passes == before + 2
    assert all(
        abs(ratio - e) <= error + 1e-6 and (error == 0.0 or e <= 2.0) for (ratio, error), e in zip(spared, exact, strict=True)
    )


def test_the_share_of_tails_is_that_of_the_normal_law():
    rng = np.random.default_rng(2)
    whitening = Whitening(np.array([1.0, -1.0]), np.array([[2.0, 0.0], [1.0, 0.5]]))
    white = rng.standard_normal((2, 5000, 2))

    def said(part):
        return heavy_tails(
            whitening, whitening.reference + part @ whitening.factor.T, lambda points: [(excess, 0.1)] * len(points), "Rest."
        )

    excess = 3.6
    assert said(white) == []
    excess = 3.8
    assert said(white)[0].startswith("at a draw 4.") and "45 times that of the Gaussian approximation" in said(white)[0]
    white[:, :50] *= 30.0
    assert said(white)[0].startswith("1 % of the draws") and said(white)[0].endswith("the reported ESS is too high. Rest.")
    assert said(white[:, 45:54]) == []  # too few to say anything
