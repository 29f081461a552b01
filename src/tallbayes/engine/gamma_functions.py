"""The gamma function and its derivatives, for compiled code: mu(x) = log Gamma(x) - (x - 1/2) log x + x - log(2 pi)/2 and what follows.

mu is Binet's function, the integral of a positive function times e^(-x t): mu > 0 > mu', mu'' > 0 > mu''', each decreasing in size.
By the recursion mu(x) = mu(x + 1) + (x + 1/2) log(1 + 1/x) - 1 up to x >= 12, then by its asymptotic series, whose first term left out is
below 3e-18.
"""

from __future__ import annotations

import math

from tallbayes.compile import SCALAR, inlinable

_FAR = 12.0
HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


@inlinable(options=SCALAR)
def binet(x: float) -> tuple[float, float, float, float]:
    """mu, mu', mu'' and mu''' at x > 0."""
    m0, m1, m2, m3 = 0.0, 0.0, 0.0, 0.0
    while x < _FAR:
        product = x * (x + 1.0)
        logarithm = math.log1p(1.0 / x)
        m0 += (x + 0.5) * logarithm - 1.0
        m1 += logarithm - (x + 0.5) / product
        m2 += 0.5 / (product * product)
        m3 -= (2.0 * x + 1.0) / (product * product * product)
        x += 1.0
    r = 1.0 / x
    q = r * r
    m0 += r * (1 / 12 - q * (1 / 360 - q * (1 / 1260 - q * (1 / 1680 - q * (1 / 1188 - q * (691 / 360360 - q / 156))))))
    m1 -= q * (1 / 12 - q * (1 / 120 - q * (1 / 252 - q * (1 / 240 - q * (1 / 132 - q * (691 / 32760 - q / 12))))))
    m2 += r * q * (1 / 6 - q * (1 / 30 - q * (1 / 42 - q * (1 / 30 - q * (5 / 66 - q * (691 / 2730 - q * (7 / 6)))))))
    m3 -= q * q * (1 / 2 - q * (1 / 6 - q * (1 / 6 - q * (3 / 10 - q * (5 / 6 - q * (691 / 210 - q * 17.5))))))
    return m0, m1, m2, m3


@inlinable(options=SCALAR)
def digamma(x: float) -> float:
    """The derivative of log Gamma at x > 0."""
    return math.log(x) - 0.5 / x + binet(x)[1]


@inlinable(options=SCALAR)
def trigamma(x: float) -> float:
    """Its second derivative."""
    return (1.0 + 0.5 / x) / x + binet(x)[2]


@inlinable(options=SCALAR)
def rising(k: float, y: float) -> tuple[float, float, float]:
    """log Gamma(y + k) - log Gamma(k) and its first two derivatives in log k, for whole y: sums over j < y of log(k + j)."""
    if y < 24.0:
        total, slope, curvature, product = 0.0, 0.0, 0.0, 1.0
        for j in range(int(y)):
            share = k / (k + j)
            slope += share
            curvature += share * (1.0 - share)
            product *= k + j
            if product > 1e200 or product < 1e-200:
                total += math.log(product)
                product = 1.0
        return total + math.log(product), slope, curvature
    far, near = binet(y + k), binet(k)
    gap = math.log1p(y / k)
    value = (y + k - 0.5) * gap + y * math.log(k) - y + far[0] - near[0]
    first = gap + 0.5 * y / (k * (y + k)) + far[1] - near[1]
    second = -y / (k * (y + k)) - 0.5 * y * (y + 2.0 * k) / (k * k * (y + k) * (y + k)) + far[2] - near[2]
    return value, k * first, k * first + k * k * second


@inlinable(options=SCALAR)
def gamma_level(a: float) -> tuple[float, float, float, float]:
    """alpha (a - 1) - log Gamma(alpha), alpha = e^a, and its first three derivatives in a: a/2 - log(2 pi)/2 - mu(alpha)."""
    alpha = math.exp(a)
    m0, m1, m2, m3 = binet(alpha)
    first, second, cubic = alpha * m1, alpha * alpha * m2, alpha * alpha * alpha * m3
    return 0.5 * a - HALF_LOG_TWO_PI - m0, 0.5 - first, -first - second, -first - 3.0 * second - cubic
