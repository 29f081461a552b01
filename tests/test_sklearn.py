"""Estimators under scikit-learn's own checks, in pipelines, grid searches and cross-validation."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import special
from sklearn.base import clone
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from support import known_fit

import tallbayes as tb
from tallbayes.sklearn import BayesClassifier, BayesRegressor

RUN = {"sampler": "nuts", "draws": 100, "warmup": 100, "chains": 2, "random_state": 0}
REASON = "draws of rows with weights and of repeated rows differ by Monte Carlo error, and the default prior counts rows"


def expected_failures(estimator):
    return {"check_sample_weight_equivalence_on_dense_data": REASON}


@pytest.mark.filterwarnings("ignore")  # the checks fit a few dozen rows by short runs
@parametrize_with_checks([BayesClassifier(**RUN), BayesRegressor(**RUN)], expected_failed_checks=expected_failures)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((600, 3))
    return (
        X,
        (rng.random(600) < special.expit(1.5 * X[:, 0] - 0.5)).astype(int),
        1.0 + X @ [2.0, 0.0, -1.0] + 0.5 * rng.standard_normal(600),
    )


@pytest.fixture(scope="module")
def classifier(rows):
    return BayesClassifier(**{**RUN, "draws": 400}).fit(rows[0], np.where(rows[1] == 1, "yes", "no"))


@pytest.fixture(scope="module")
def regressor(rows):
    return BayesRegressor(**{**RUN, "draws": 400}).fit(rows[0], rows[2])


def test_probabilities_are_those_of_maximum_likelihood_where_rows_are_many(classifier, rows):
    other = LogisticRegression(C=np.inf).fit(rows[0], rows[1])
    assert classifier.classes_.tolist() == ["no", "yes"]
    assert np.abs(classifier.predict_proba(rows[0]) - other.predict_proba(rows[0])).max() < 0.03
    assert np.abs(classifier.coef_ - other.coef_[0]).max() < 0.1 and abs(classifier.intercept_ - other.intercept_[0]) < 0.1
    assert np.allclose(np.exp(classifier.predict_log_proba(rows[0])), classifier.predict_proba(rows[0]))


def test_predictive_deviations_are_those_of_bayesian_ridge(regressor, rows):
    mean, sd = regressor.predict(rows[0], return_std=True)
    other, deviation = BayesianRidge().fit(rows[0], rows[2]).predict(rows[0], return_std=True)
    assert np.abs(mean - other).max() < 0.05 and np.abs(sd / deviation - 1).max() < 0.1
    assert np.allclose(regressor.predict(rows[0]), mean)
    ends = regressor.predict_interval(rows[0], prob=0.8)
    assert 0.74 < ((rows[2] > ends[:, 0]) & (rows[2] < ends[:, 1])).mean() < 0.86


@pytest.mark.parametrize(
    "family, options, noise",
    [
        ("poisson", {}, lambda m: m),
        ("negbin", {"size": 3.0}, lambda m: m + m**2 / 3),
        ("gamma", {"shape": 2.0}, lambda m: m**2 / 2),
        ("student_t", {"nu": 4.0, "scale": 0.5}, lambda m: 0.5 + 0 * m),
    ],
)
def test_other_families_have_their_own_noise(regressor, family, options, noise):
    model = clone(regressor).set_params(family=family, family_options=options)
    theta = 0.1 * np.random.default_rng(2).standard_normal((2, 50, 4))
    data = tb.Dataset.from_arrays(np.ones((9, 4)) * [1.0, 1.1, 1.2, 1.3], np.ones(9))
    model.fit_, model.n_features_in_ = _known(data, family, options, theta), 3
    X = np.random.default_rng(3).standard_normal((5, 3))
    mean, sd = model.predict(X, return_std=True)
    mu = (np.exp if family != "student_t" else (lambda e: e))(np.column_stack([np.ones(5), X]) @ theta.reshape(-1, 4).T)
    assert np.allclose(mean, mu.mean(1)) and np.allclose(sd**2, mu.var(1) + noise(mu).mean(1))


def _known(data, family, options, theta):
    fit = known_fit(data, family, theta)
    fit.meta["model"]["options"] = options
    return fit


def test_pipelines_grids_and_folds(rows):
    X, y, _ = rows
    pipeline = make_pipeline(StandardScaler(), BayesClassifier(**RUN))
    assert cross_val_score(pipeline, X, y, cv=3).min() > 0.6
    search = GridSearchCV(pipeline, {"bayesclassifier__prior": [tb.priors.normal(0.001), tb.priors.normal(5.0)]}, cv=2)
    search.fit(X, y)
    assert search.best_params_["bayesclassifier__prior"].as_dict() == tb.priors.normal(5.0).as_dict()


def test_weights_are_powers_of_the_likelihood(rows):
    X, y, _ = rows
    weights = np.where(X[:, 1] > 0, 1.0, 0.0)
    some = BayesClassifier(**RUN).fit(X, y, sample_weight=weights).predict_proba(X)
    subset = BayesClassifier(**RUN).fit(X[weights > 0], y[weights > 0]).predict_proba(X)
    whole = BayesClassifier(**RUN).fit(X, y).predict_proba(X)
    assert np.abs(some - subset).mean() < 0.5 * np.abs(whole - subset).mean()
    with pytest.raises(ValueError, match="not be negative"):
        BayesClassifier(**RUN).fit(X, y, sample_weight=-weights)


def test_columns_keep_their_names_and_the_fit_answers(rows):
    frame = pd.DataFrame(rows[0], columns=["age", "income", "debt"])
    model = BayesClassifier(**RUN).fit(frame, rows[1])
    assert model.fit_.names == ("Intercept", "age", "income", "debt")
    assert model.fit_.slopes("age")["mean"][0] > 0.1
    assert (pickle.loads(pickle.dumps(model)).predict_proba(frame) == model.predict_proba(frame)).all()


def test_refusals(rows):
    X, y, _ = rows
    for model, text in (
        (BayesClassifier("poisson", **RUN), "family of a classifier"),
        (BayesRegressor("logistic", **RUN), "family of a regressor"),
        (BayesClassifier(**{**RUN, "draws": 0}), "draws must be"),
    ):
        with pytest.raises(ValueError, match=text):
            model.fit(X, y)
    with pytest.warns(tb.TallbayesWarning, match="without error"):
        exact = BayesRegressor(**RUN).fit(X, X[:, 0])
    assert np.abs(exact.predict(X) - X[:, 0]).max() < 0.01
