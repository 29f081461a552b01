"""Internals of `tallbayes.engine.gamma_functions`; what users see of it is tested in test_several_indices.py."""

import math

import mpmath
import pytest
from scipy import special

from tallbayes.engine.gamma_functions import binet, digamma, gamma_level, rising, trigamma

# Of each member: responses, and the law of one row as mpmath writes it, up to terms without parameters.


def test_gamma_functions():
    for x in (0.003, 0.4, 1.0, 3.7, 11.9, 12.1, 150.0, 3e5):
        assert digamma(x) == pytest.approx(special.digamma(x), rel=1e-13, abs=1e-14)
        assert trigamma(x) == pytest.approx(special.polygamma(1, x), rel=1e-13)
        with mpmath.workdps(40):
            mu = [
                mpmath.diff(lambda t: mpmath.loggamma(t) - (t - 0.5) * mpmath.log(t) + t - mpmath.log(2 * mpmath.pi) / 2, x, m)
                for m in range(4)
            ]
        assert list(binet(x)) == pytest.approx([float(v) for v in mu], rel=1e-9)
        for y in (0.0, 1.0, 5.0, 23.0, 24.0, 400.0):
            value, slope, curvature = rising(x, y)
            with mpmath.workdps(40):
                f = [
                    mpmath.diff(
                        lambda t, y=y: mpmath.loggamma(y + mpmath.exp(t)) - mpmath.loggamma(mpmath.exp(t)), mpmath.log(x), m
                    )
                    for m in range(3)
                ]
            assert [value, slope, curvature] == pytest.approx([float(v) for v in f], rel=1e-10, abs=1e-12)
        with mpmath.workdps(40):
            level = [
                mpmath.diff(lambda t: mpmath.exp(t) * (t - 1) - mpmath.loggamma(mpmath.exp(t)), mpmath.log(x), m)
                for m in range(4)
            ]
        assert list(gamma_level(math.log(x))) == pytest.approx([float(v) for v in level], rel=1e-9, abs=1e-13)
