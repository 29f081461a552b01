"""A model over other rows: the same class, family, options and prior."""

import numpy as np
import pytest

import tallbayes as tb

RNG = np.random.default_rng(0)
X = np.column_stack([np.ones(60), RNG.standard_normal((60, 2))])
LABELS = np.arange(60) % 3
COUNTS = RNG.poisson(1.0, 60).astype(float)
WEIGHTS = RNG.random(60)


def built(name):
    data = tb.Dataset.from_arrays(X, COUNTS, weights=WEIGHTS, columns=["one", "a", "b"])
    classes = tb.Dataset.from_arrays(X, LABELS, weights=WEIGHTS)
    return {
        "poisson": lambda: tb.models.poisson(data),
        "gaussian": lambda: tb.models.gaussian(data),
        "softmax": lambda: tb.models.softmax(classes, tb.priors.normal(2.0)),
        "class_gaussian": lambda: tb.models.class_gaussian(
            classes, classes=3, mapping=np.eye(3)[:, :2], variances=[1.0, 2.0, 3.0]
        ),
        "expression": lambda: tb.models.family("y*eta - exp(eta)", data, support="count"),
        "scaled": lambda: tb.models.family("-log_scale - ((y - eta)*exp(-log_scale))**2", data),
    }[name]()


def test_other_columns_are_refused():
    with pytest.raises(
        tb.DataError, match="the model has the columns one, a, b, the new rows have x0; read them with the same"
    ):
        built("poisson").over(tb.Dataset.from_arrays(np.ones((5, 1)), np.ones(5)))


def test_partial_posteriors_of_labelled_vectors_have_all_their_parameters():
    rng = np.random.default_rng(1)
    labels = np.arange(400) % 2
    x = np.where(labels, 1.0, -1.0)[:, None] + rng.standard_normal((400, 2))
    model = tb.models.class_gaussian(tb.Dataset.from_arrays(x, labels), tb.priors.normal(5.0), sigma=1.0)
    done = tb.partial_posteriors(model, first=200, replications=3, draws=50, warmup=50, seed=2)
    assert done.mean.shape == (4,)
    assert (np.sign(done.mean) == [-1, -1, 1, 1]).all()


def test_partial_posteriors_of_a_series_are_refused():
    for data in (RNG.standard_normal(500), tb.Dataset.from_arrays(np.ones((500, 1)), RNG.standard_normal(500))):
        model = tb.models.arma(data, 1, 0)
        assert not model.exchangeable and tb.models.Model.exchangeable
        with pytest.raises(
            tb.ModelError, match=r"not exchangeable: their order matters\. Use sampler='informed' with rows='window'"
        ):
            tb.partial_posteriors(model, first=50)
