"""Internals of `tallbayes.results.design_terms`; what users see of it is tested in test_effects.py."""

import numpy as np
import pyarrow as pa
import pytest
from support import known_fit

import tallbayes as tb
from tallbayes.results.design_terms import DesignTerms
from tallbayes.results.raw_columns import RawColumns
from tallbayes.testing import design_matrix


def columns(n, seed=2):
    rng = np.random.default_rng(seed)
    return {
        "y": rng.integers(1, 2, n), "x": rng.standard_normal(n), "z": rng.uniform(0.2, 1.5, n), "g": rng.choice(list("abc"), n),
        "year": rng.choice([2019, 2020, 2021], n), "treated": rng.integers(0, 2, n), "t": rng.uniform(0.5, 2.0, n),
        "w": rng.integers(1, 4, n),
    }  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    return columns(700)


TERMS = ["x", "center(x)", "scale(x)", "poly(x, 3)", "bs(x, df=5)", "bs(x, df=6, include_intercept=True)", "exp(x)", "log(z)",
         "log1p(z)", "sqrt(z)", "log10(z)", "C(g)", "C(year)", "poly(x, 2, raw=True)"]  # fmt: skip


@pytest.mark.parametrize("text", TERMS)
def test_columns_come_back_from_their_terms(rows, text):
    data = tb.read(pa.table(rows), f"y ~ {text}", progress=False)
    fit = known_fit(data)
    name = DesignTerms(fit).variables[0]
    found = np.concatenate([b.columns[name] for b in RawColumns(fit).blocks({name})])
    levels = DesignTerms(fit).levels.get(name)
    assert (np.asarray(levels)[found] == rows[name]).all() if levels else np.allclose(found, rows[name], rtol=1e-9)


@pytest.mark.parametrize("right", ["x*g", "x*g*C(year)", "center(x)*scale(z)*g", "x:g + z", "g*C(year)", "x + g"])
def test_tables_of_levels_give_the_design_of_formulaic(rows, right):
    fit = known_fit(tb.read(pa.table(rows), f"y ~ {right}", progress=False))
    made = DesignTerms(fit)
    codes = {k: np.searchsorted(v, rows[k]) for k, v in made.levels.items()}
    values = {k: codes.get(k, rows[k]) for k in made.variables}
    whole = design_matrix(fit, pa.table(rows))
    for name in made.variables:
        assert made._affine({name})
        assert np.allclose(made.values(values, {name}, 700), whole[:, made.touched({name})], rtol=1e-12, atol=1e-12)
