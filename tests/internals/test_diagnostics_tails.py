"""Internals of `tallbayes.diagnostics.tails`; what users see of it is tested in test_tails.py."""

import numpy as np

from tallbayes.diagnostics.tails import heavy_tails
from tallbayes.proxies.taylor import factor_of, reference_of, whitening_at


def test_the_share_of_tails_is_that_of_the_normal_law():
    rng = np.random.default_rng(2)
    whitening = whitening_at(np.array([1.0, -1.0]), np.array([[2.0, 0.0], [1.0, 0.5]]))
    white = rng.standard_normal((2, 5000, 2))

    def said(part):
        return heavy_tails(
            whitening,
            reference_of(whitening) + part @ factor_of(whitening).T,
            lambda points: [(excess, 0.1)] * len(points),
            "Rest.",
        )

    excess = 3.6
    assert said(white) == []
    excess = 3.8
    assert said(white)[0].startswith("at a draw 4.") and "45 times that of the Gaussian approximation" in said(white)[0]
    white[:, :50] *= 30.0
    assert said(white)[0].startswith("1 % of the draws") and said(white)[0].endswith("the reported ESS is too high. Rest.")
    assert said(white[:, 45:54]) == []  # too few to say anything
