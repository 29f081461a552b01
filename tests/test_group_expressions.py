"""Families written as expressions, with group effects: what is proven of the fourth derivative, and draws as those of built-in families."""

import pytest
from test_hierarchical import OPTIONS, arrays

import tallbayes as tb
from tallbayes.testing import THRESHOLD, largest_disagreement

LAWS = {
    "logistic": "y*eta - log(1 + exp(eta))",
    "poisson": "y*eta - exp(eta)",
    "gamma": "-2*eta - 2*y*exp(-eta)",
    "student_t": "-5/2*log(1 + (y - eta)**2/4)",
}


def data_of(family, **options):
    X, y, codes = arrays(family=family, **options)
    return tb.Dataset.from_arrays(X, y, groups={"g": codes})


@pytest.mark.slow
@pytest.mark.parametrize("family", LAWS)
def test_expressions_and_built_in_families_agree(family):
    prior, options = tb.priors.normal(3.0), {"draws": 5000, "warmup": 1000, "chains": 2, "progress": False}
    written = tb.models.family(LAWS[family], data_of(family), prior)
    built_in = tb.models.build(family, data_of(family), prior, **OPTIONS.get(family, {}))
    fits = [tb.sample(m, "minibatch-gibbs", seed=k, **options) for k, m in enumerate((written, built_in))]
    assert largest_disagreement(*fits) < THRESHOLD


@pytest.mark.slow
def test_a_formula_with_group_terms_and_an_expression():
    import pandas as pd

    X, y, codes = arrays()
    table = pd.DataFrame({"y": y, "x": X[:, 1], "g": codes})
    fit = tb.fit(
        "y ~ x + (1 | g)",
        table,
        family="expression",
        expression=LAWS["logistic"],
        draws=100,
        warmup=200,
        seed=1,
        progress=False,
    )
    assert fit.draws("1|g").shape[2] == 8
