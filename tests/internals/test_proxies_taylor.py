"""Internals of `tallbayes.proxies.taylor` and `sufficient_statistics`: sums of proxies and whitenings in one array each."""

import pickle

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.compile import jit
from tallbayes.proxies.sufficient_statistics import gaussian_moments
from tallbayes.proxies.taylor import (
    add_expansion_gradient,
    expansion,
    factor_of,
    proxy_value,
    reference_of,
    taylor,
    unwhiten,
    whiten,
    whitening_at,
    whitening_of,
)
from tallbayes.proxies.third_order import pair_near, whole_gradient


@jit
def compiled_value(proxy, white):
    return proxy_value(proxy, white)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_a_sum_is_its_expansion_in_python_and_compiled(order):
    rng = np.random.default_rng(order)
    gradient, half, white = rng.standard_normal(4), rng.standard_normal((4, 4)), rng.standard_normal(4)
    hessian = half + half.T
    proxy = expansion(order, gradient, hessian)
    slope = (gradient if order >= 1 else 0.0 * gradient) + (hessian @ white if order == 2 else 0.0)
    value = (gradient @ white if order >= 1 else 0.0) + (0.5 * white @ hessian @ white if order == 2 else 0.0)
    found = np.zeros(4)
    add_expansion_gradient(proxy, white, found)
    np.testing.assert_allclose(found, slope, atol=1e-13)
    assert abs(proxy_value(proxy, white) - value) < 1e-12 and abs(compiled_value(proxy, white) - value) < 1e-12
    assert not pair_near(proxy, white, white)
    if order == 2:
        assert abs(whole_gradient(proxy, white, found) - value) < 1e-12
        np.testing.assert_allclose(found, slope, atol=1e-13)


def test_a_whitening_is_in_the_order_of_rows_and_its_own_inverse():
    rng = np.random.default_rng(0)
    reference, factor, white = rng.standard_normal(3), np.tril(rng.standard_normal((3, 3))), rng.standard_normal(3)
    theta = np.empty(3)
    for given in (factor, np.asfortranarray(factor)):
        law = whitening_at(reference, given)
        assert law.rows.flags.c_contiguous and (reference_of(law) == reference).all() and (factor_of(law) == factor).all()
        unwhiten(law, white, theta)
        np.testing.assert_allclose(theta, reference + factor @ white, rtol=1e-14)
        np.testing.assert_allclose(whiten(law, theta), white, rtol=1e-10)


@pytest.mark.parametrize("d", [1, 2, 4])
def test_moments_are_the_whole_likelihood_of_gaussian_rows(d):
    rng = np.random.default_rng(d)
    X = np.column_stack([np.ones(60), rng.standard_normal((60, d - 1))])
    y = X @ rng.standard_normal(d) + 0.7 * rng.standard_normal(60)
    data = tb.Dataset.from_arrays(X, y, 0.1 * rng.standard_normal(60), rng.uniform(0.5, 2.0, 60))
    mode = tb.find_mode(tb.models.gaussian(data, tb.priors.normal(3.0)), progress=False)
    proxy, law, model = gaussian_moments(mode), whitening_of(mode), mode.model

    def log_likelihood(theta):
        return model.log_posterior(theta) - model.log_prior(theta)

    for white in 2.0 * rng.standard_normal((5, d + 1)):
        theta = np.empty(d + 1)
        unwhiten(law, white, theta)
        expected = log_likelihood(theta) - log_likelihood(mode.reference)
        assert abs(proxy_value(proxy, white) - expected) < 1e-10 * (1.0 + abs(expected))


def test_another_process_finds_the_functions_by_their_names():
    mode = tb.find_mode(
        tb.models.poisson(tb.Dataset.from_arrays(np.ones((9, 1)), np.ones(9)), tb.priors.flat()), progress=False
    )
    proxy = taylor(mode)
    again = pickle.loads(pickle.dumps(proxy))
    assert type(again) is type(proxy) and again[1:] == proxy[1:] and (again.numbers == proxy.numbers).all()
    assert b"taylor 2" in pickle.dumps(proxy)
