"""Internals of `tallbayes.moves.linear`; what users see of it is tested in test_difference.py."""

import numpy as np

from tallbayes.moves.linear import inverse_factor


def test_the_inverse_factor_is_that_of_the_inverse():
    a = np.random.default_rng(0).standard_normal((6, 9))
    factor = inverse_factor(a @ a.T)
    np.testing.assert_allclose(factor @ factor.T, np.linalg.inv(a @ a.T), rtol=1e-9)
    assert (np.triu(factor, 1) == 0).all()
