"""Internals of `tallbayes.bounds.uniform_ranges`; what users see of it is tested in test_confidence.py."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.bounds import uniform_ranges
from tallbayes.bounds.catalogue import certify
from tallbayes.engine import passes
from tallbayes.proxies.taylor import reference_of
from tallbayes.samplers import Confidence

ROWS = 2000


@pytest.fixture(scope="module")
def heavy():
    """Rows of very different norms, so that residuals have a long tail."""
    rng = np.random.default_rng(5)
    X = np.column_stack([np.ones(ROWS), rng.standard_t(3, (ROWS, 2))])
    y = rng.random(ROWS) < 1.0 / (1.0 + np.exp(-X @ [-0.5, 0.7, 0.3]))
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(2.0))
    return model, tb.find_mode(model, progress=False)


def families():
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(300), rng.standard_normal((300, 2))])
    data = lambda y: tb.Dataset.from_arrays(X, y)  # noqa: E731
    eta = X @ [0.2, 0.5, -0.4]
    return {
        "logistic": tb.models.logistic(data(rng.random(300) < 0.4)),
        "probit": tb.models.probit(data(rng.random(300) < 0.4)),
        "gamma": tb.models.gamma(data(rng.gamma(2.0, np.exp(eta) / 2.0)), shape=2.0),
        "poisson": tb.models.poisson(data(rng.poisson(np.exp(eta)))),
        "negbin": tb.models.negbin(data(rng.poisson(np.exp(eta))), size=2.0),
        "student_t": tb.models.student_t(data(eta + rng.standard_t(4, 300)), nu=4.0, scale=1.0),
        "gaussian": tb.models.gaussian(data(eta + rng.standard_normal(300)), sigma=1.0),
        "normal": tb.models.normal(rng.lognormal(0.0, 1.0, 300)),
    }


MODELS = families()


def gaps_of_all_rows(model, reference, order, theta, other):
    index = np.arange(model.data.n)
    gaps = passes.values_at(model.rows, index, other) - passes.values_at(model.rows, index, theta)
    proxies = [passes.proxies_at(model.rows, index, at, reference, order) for at in (other, theta)]
    return gaps - (proxies[0] - proxies[1])


CERTIFICATES = [
    *[("logistic", 2, name) for name in ("T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "T9", "published")],
    *[("gamma", 2, "T9"), ("gamma", 2, "published"), ("poisson", 2, "T9"), ("negbin", 2, "T9"), ("student_t", 2, "T6")],
    *[(family, 0, "lipschitz") for family in ("logistic", "student_t", "negbin")],
    *[(family, 1, "lipschitz") for family in ("logistic", "probit", "student_t", "negbin", "gaussian")],
    *[("normal", order, "extremes") for order in (0, 1, 2)],
]


@pytest.mark.parametrize("family, order, bound", CERTIFICATES)
def test_ranges_hold_for_every_row(family, order, bound):
    model, rng, ratios = MODELS[family], np.random.default_rng(2), []
    mode = tb.find_mode(model, progress=False)
    sampler = Confidence(order=order, bound=bound, rows="uniform")
    proxy = sampler.setup(model, mode, 0, False).proxy
    for spread in (0.3, 1.0, 3.0):
        for _ in range(10):
            white, other_white = spread * rng.standard_normal((2, model.dim))
            theta, other = mode.reference + mode.factor @ white, mode.reference + mode.factor @ other_white
            low, high = uniform_ranges.gap_range(
                proxy.bound, reference_of(proxy.whitening), order, theta, other, white, other_white
            )
            gaps = gaps_of_all_rows(model, mode.reference, order, theta, other)
            assert low - 1e-11 <= gaps.min() and gaps.max() <= high + 1e-11
            ratios.append(np.abs(gaps).max() / max(-low, high))
            if bound == "extremes":  # the smallest and the largest y are rows
                ends = gaps[[model.data.y.argmin(), model.data.y.argmax()]]
                assert min(abs(low - gaps.min()), abs(high - gaps.max())) <= 1e-9 + 1e-9 * np.abs(ends).max()
    assert max(ratios) > (1e-5 if bound in ("published", "T1", "T3", "T4") else 0.01)  # and says something


def test_a_collapsed_bound_is_the_largest_of_a_row(heavy):
    _, mode = heavy
    rng = np.random.default_rng(3)
    for name in ("T6", "T9"):
        bound, _ = certify(mode, name, indexed=True)
        small = uniform_ranges.collapse(bound)
        white, other = rng.standard_normal((2, 3))
        rates = np.zeros(uniform_ranges.rate_count(bound))
        uniform_ranges.total_rate(bound, white, other, rates)
        limits = [uniform_ranges.row_rate(bound, rates, row) for row in range(ROWS)]
        largest = uniform_ranges.largest_rate(small, white, other, np.zeros(uniform_ranges.rate_count(small)))
        if name == "T6":
            np.testing.assert_allclose(largest, max(limits), rtol=1e-9)
        assert 0.0 < largest <= max(limits) * (1 + 1e-9)  # T9 may take the other table of a class than the sum would
