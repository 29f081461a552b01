"""Names of coefficients by class: what `draws` and `hypothesis` know, and what they say of names they do not know."""

import numpy as np
import pandas as pd
import pytest

import tallbayes as tb

RUN = {"sampler": "hmc", "draws": 60, "warmup": 60, "chains": 2, "seed": 1, "progress": False}


@pytest.fixture(scope="module")
def fit():
    rng = np.random.default_rng(0)
    table = {"x": rng.standard_normal(300), "c": rng.choice(["a", "b", "d"], 300), "s": rng.integers(0, 3, 300)}
    return tb.fit("s ~ x + c", pd.DataFrame(table), "softmax", **RUN)


@pytest.mark.parametrize("name", ["c[T.b][1]", "c[b][1]", "c[1, b]", "c[1,b]"])
def test_levels_of_a_factor_by_class(fit, name):
    expected = fit.theta[:, :, fit.names.index("c[T.b][1]")]
    assert (fit.draws(name) == expected).all()
    assert fit.hypothesis(f"{name} > 0.1").probability == (expected > 0.1).mean()
    assert fit.hypothesis(f"`{name}` > 0.1").probability == (expected > 0.1).mean()


def test_coefficients_by_class_are_those_of_the_terms(fit):
    for k in range(3):
        assert (fit.draws("x")[:, :, k] == fit.draws(f"x[{k}]")).all()
    for variable in fit.idata.posterior.data_vars.values():
        for place in np.ndindex(variable.shape[2:]):
            labels = [str(variable[dim].values[k]) for dim, k in zip(variable.dims[2:], place, strict=True)]
            draws = fit.draws(f"{variable.attrs['term']}[{', '.join(labels)}]")
            assert (draws == variable.values[(slice(None), slice(None), *place)]).all()
    gap = fit.draws("x[1]") - fit.draws("x[0]")
    found = fit.hypothesis("x[1] > x[0]")
    assert found.probability == (gap > 0).mean() and found.mean == pytest.approx(gap.mean())


def test_every_name_of_theta_stays_a_name(fit):
    for j, name in enumerate(fit.names):
        assert (fit.draws(name) == fit.theta[:, :, j]).all()
        assert fit.hypothesis(f"{name} > 0").probability == (fit.theta[:, :, j] > 0).mean()


@pytest.mark.parametrize(
    "statement, sentence",
    [
        ("x > 0", r"'x' has 3 coefficients: name one of them, or compare two, such as 'x\[1\] > x\[0\]'"),
        ("x > 0", r"did you mean 'x\[0\]', 'x\[1\]' or 'x\[2\]'"),
        ("x[7] > 0", r"'x\[7\]' is not a parameter; did you mean 'x\["),
        ("x[s=1] > 0", r"'x\[s=1\]' is not a parameter; did you mean 'x\[1\]'"),
        ("c[b][7] - x[1] > 0", r"'c\[b\]\[7\]' is not a parameter; did you mean 'c\["),
        ("c > 0", r"did you mean 'c\[T.b\]\[0\]'"),
        ("Intercpt[1] > 0", r"did you mean 'Intercept\[1\]'"),
    ],
)
def test_a_name_that_is_not_known_names_the_nearest(fit, statement, sentence):
    with pytest.raises(tb.OptionError, match=sentence):
        fit.hypothesis(statement)


@pytest.mark.parametrize("name, nearest", [("c[7]", r"'c\[T"), ("x1", "'x"), ("Intercpt", "'Intercept'")])
def test_draws_of_a_name_that_is_not_known(fit, name, nearest):
    with pytest.raises(tb.OptionError, match=f"unknown parameter .*; did you mean {nearest}"):
        fit.draws(name)


def test_levels_of_a_factor_without_classes():
    rng = np.random.default_rng(0)
    table = {"x": rng.standard_normal(300), "c": rng.choice(["a", "b", "d"], 300), "y": rng.standard_normal(300)}
    fit = tb.fit("y ~ x + c", pd.DataFrame(table), "gaussian", **RUN)
    assert (fit.draws("c[b]") == fit.draws("c[T.b]")).all()
    assert fit.hypothesis("c[b] > c[T.d]").probability == (fit.draws("c[T.b]") > fit.draws("c[T.d]")).mean()
    assert fit.hypothesis("sigma > 1").probability == (np.exp(fit.draws("log_sigma")) > 1).mean()
    with pytest.raises(tb.OptionError, match=r"'c\[e\]' is not a parameter; did you mean 'c\["):
        fit.hypothesis("c[e] > 0")
    with pytest.raises(tb.OptionError, match="did you mean 'sigma'"):
        fit.hypothesis("sigm > 0")
