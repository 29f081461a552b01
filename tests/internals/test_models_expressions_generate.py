"""Internals of `tallbayes.models.expressions.generate`; what users see of it is tested in test_expressions.py."""

from tallbayes.models.expressions.generate import quadrature

# Stable forms and generated code.


def test_the_quadrature_is_exact_for_polynomials_and_no_further():
    points, weights = quadrature()
    for degree in range(12):
        exact = 0.5 * sum((-1) ** k * c / (degree + k + 1) for k, c in enumerate((1, 2, 1)))
        found = sum(w * t**degree for t, w in zip(points, weights, strict=True))
        assert (abs(found - exact) < 1e-15) == (degree < 2 * len(points))
