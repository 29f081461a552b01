"""Internals of `tallbayes.named_priors`; what users see of it is tested in test_named_priors.py."""

import json

import numpy as np

import tallbayes as tb
from tallbayes.named_priors import coordinates_by_name
from tallbayes.priors import from_dict


def rows(n=60):
    rng = np.random.default_rng(3)
    return {
        "age": rng.normal(40.0, 9.0, n),
        "region": np.array(["a", "b", "c"])[rng.integers(0, 3, n)],
        "y": rng.normal(size=n),
    }


def data_of():
    import pyarrow as pa

    return tb.read(pa.table(rows()), "y ~ age + C(region) + age:C(region)")


def model_of(**priors):
    return tb.models.gaussian(data_of(), prior=priors)


def test_a_column_that_looks_like_a_parameter_is_the_column():
    X = np.column_stack([np.ones(20), np.arange(20.0)])
    data = tb.Dataset.from_arrays(X, np.arange(20.0) % 7, columns=["one", "sigma"])
    terms = tb.models.gaussian(data, {"sigma": tb.priors.normal(3.0)}).prior_terms
    assert terms.kind.tolist()[1:] == [1, 0] and terms.scale[1] == 3.0
    assert coordinates_by_name(("a",), ("a", "log_b"), ("log_b",)) == {"a": (0,), "log_b": (1,), "b": (1,)}


def test_they_survive_json_and_are_shown():
    prior = {"age": tb.priors.normal(0.5), "sigma": tb.priors.gamma(2.0, 0.5)}
    model = model_of(**prior)
    described = json.loads(json.dumps(model.describe()))
    again = tb.models.gaussian(data_of(), from_dict(described["prior"]), **described["options"])
    assert again.describe() == model.describe()
    assert again.prior.describe() == "age: normal(location=0, scale=0.5), sigma: gamma(2, 0.5), others: weakly_informative"
    for a, b in zip(again.prior_terms, model.prior_terms, strict=True):
        np.testing.assert_array_equal(a, b)
