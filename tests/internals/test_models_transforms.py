"""Internals of `tallbayes.models.transforms`; what users see of it is tested in test_jax_models.py."""

import numpy as np
import pytest

from tallbayes.models import interval, ordered, simplex
from tallbayes.models.transforms import Parameters, parameters

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_constrained_values():
    named = parameters(
        {"b": 2, "s": "positive", "p": interval(0, 2), "o": ordered(2), "w": simplex(3)}, {"b": ["left", "right"]}
    )
    theta = np.random.default_rng(1).standard_normal((4, 5, named.dim))
    found = named.unpack(theta, np)
    assert {k: v.shape for k, v in found.items()} == {"b": (4, 5, 2), "s": (4, 5), "p": (4, 5), "o": (4, 5, 2), "w": (4, 5, 3)}
    assert (found["s"] > 0).all() and ((found["p"] > 0) & (found["p"] < 2)).all() and (np.diff(found["o"]) > 0).all()
    np.testing.assert_allclose(found["w"].sum(-1), 1.0)
    assert named.names[:4] == ("b[left]", "b[right]", "log(s)", "logit(p)")
    assert Parameters.from_list(named.as_list()) == named
