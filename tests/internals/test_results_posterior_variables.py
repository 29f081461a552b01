"""Internals of `tallbayes.results.posterior_variables`; what users see of it is tested in test_posterior_variables.py."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import tallbayes as tb
from tallbayes.results.posterior_variables import Variable, dataset, variables

CHAINS, DRAWS = 2, 30


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    columns = {"x": rng.uniform(1.0, 2.0, 200), "draw": rng.standard_normal(200)}
    levels = {"g": rng.choice(["a", "b", "c [x]"], 200), "h": rng.choice(["u", "v"], 200)}
    return pa.table({"y": rng.integers(0, 3, 200), **columns, **levels})


def stand_in(names, columns, plan=None, **meta):
    """A fit with draws that tell their parameter."""
    theta = np.arange(CHAINS * DRAWS * len(names), dtype=float).reshape(CHAINS, DRAWS, len(names))
    return SimpleNamespace(
        theta=theta, names=tuple(names), meta={"columns": list(columns), "plan": plan, "response": "y", **meta}
    )


def read_fit(rows, formula, more=()):
    data = tb.read(rows, formula, progress=False)
    return stand_in([*data.columns, *more], data.columns, data.recipe["plan"])


def covered(fit, found):
    """The coordinates of theta behind each variable, in order of its elements."""
    first = fit.theta[0, 0]
    return {name: [int(np.flatnonzero(first == v)[0]) for v in own.values[0, 0].reshape(-1)] for name, own in found.items()}


def test_terms_of_a_formula(rows):
    fit = read_fit(rows, "y ~ x + g + g:h + x:g + poly(x, 2) + I(x / 2)")
    found = variables(fit)
    assert list(found) == ["Intercept", "x", "g", "poly(x, 2)", "I(x / 2)", "g:h", "x:g"]
    assert found["x"].labels == {} and found["x"].values.shape == (CHAINS, DRAWS)
    assert found["g"].labels == {"g_dim": ["b", "c [x]"]}
    assert found["x:g"].labels == {"x:g_dim": ["b", "c [x]"]}
    assert found["g:h"].labels == {"g:h_dim": ["a, v", "b, v", "c [x], v"]}
    assert found["poly(x, 2)"].labels == {"poly(x, 2)_dim": ["1", "2"]}
    places = covered(fit, found)
    assert sorted(j for own in places.values() for j in own) == list(range(len(fit.names)))
    assert [fit.names[j] for j in places["g"]] == ["g[T.b]", "g[T.c [x]]"]


def test_a_factor_of_two_levels_keeps_its_dimension(rows):
    assert variables(read_fit(rows, "y ~ h"))["h"].labels == {"h_dim": ["v"]}


def test_scales_classes_and_groups():
    found = variables(stand_in(["one", "x", "log_sigma"], ["one", "x"]))
    assert list(found) == ["one", "x", "sigma"]
    np.testing.assert_array_equal(found["sigma"].values, np.exp(stand_in(["one", "x", "log_sigma"], []).theta[:, :, 2]))
    fit = stand_in(["one[0]", "x[0]", "one[1]", "x[1]", "log_sigma[0]", "log_sigma[1]"], ["one", "x"])
    found = variables(fit)
    assert {k: v.labels for k, v in found.items()} == {
        "one": {"y_dim": ["0", "1"]}, "x": {"y_dim": ["0", "1"]}, "sigma": {"sigma_dim": ["0", "1"]}
    }  # fmt: skip
    np.testing.assert_array_equal(found["x"].values, fit.theta[:, :, [1, 3]])
    groups = ["1|g_sigma", "x|g_sigma", "z|g_sigma", "g_corr[1,x]", "g_corr[1,z]", "g_corr[x,z]"]
    found = variables(stand_in(["one", *groups], ["one"]))
    assert list(found) == ["one", "1|g_sigma", "x|g_sigma", "z|g_sigma", "g_corr"]
    assert found["g_corr"].labels == {"g_corr_dim": ["1,x", "1,z", "x,z"]}
    assert variables(stand_in(["a", "g_corr"], ["a"]))["g_corr"].labels == {}


def test_columns_of_arrays_keep_their_names():
    assert list(variables(stand_in(["g[1]", "g[2]"], ["g[1]", "g[2]"]))) == ["g[1]", "g[2]"]


def test_names_that_xarray_refuses_are_changed():
    draws = np.zeros((CHAINS, DRAWS))
    found = {
        "draw": Variable(draws),
        "a/b": Variable(draws),
        "g": Variable(draws[..., None], {"g": ["u"]}),
        "chain": Variable(draws),
    }
    tree = dataset(found, CHAINS, range(DRAWS))
    assert list(tree.data_vars) == ["draw_", "a\u2215b", "g_", "chain_"]
    assert [tree[v].attrs["term"] for v in tree.data_vars] == list(found)


@pytest.fixture(scope="module")
def fit(rows):
    return tb.fit(
        "y ~ x + g + draw + I(1 / x)", rows, "poisson", tb.priors.normal(1.0), "mh", draws=40, warmup=20, seed=1, chains=2, progress=False
    )  # fmt: skip
