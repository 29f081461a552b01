"""Predictions: against closed forms and simulation, from every kind of input, before and after a file."""

import dataclasses

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import special, stats
from sklearn import calibration as sklearn_calibration
from sklearn import metrics

import tallbayes as tb
from tallbayes.samplers import Guarantee

RUN = {"draws": 60, "warmup": 60, "chains": 2, "seed": 5, "progress": False}
X = np.column_stack([np.ones(5), [-1.0, -0.5, 0.0, 0.5, 1.0]])


def fitted(family, options=None, draws=4000, dim=2, theta=None, **meta):
    """A fit whose draws are known: theta ~ N(centre, 0.1^2), without a run."""
    rng = np.random.default_rng(1)
    options = options or {}
    names = ("Intercept", "x") if family != "softmax" else tuple(f"{c}[{k}]" for k in range(3) for c in ("Intercept", "x"))
    centre = np.linspace(0.2, 0.7, len(names))
    draw = centre + 0.1 * rng.standard_normal((2, draws // 2, len(names)))
    if options.get("sigma", 1) is None:
        names = (*names, "log_sigma")
        draw = np.concatenate([draw, np.full((2, draws // 2, 1), np.log(0.5))], axis=2)
    information = {"columns": ["Intercept", "x"], "intercept": 0, "has_offset": False, "plan": None, "rows": 10, **meta}
    return tb.Fit(
        draw, {"evals": np.zeros(draw.shape[:2])}, names, Guarantee("EXACT", ""), "", "complete", {}, {}, {},
        np.zeros(len(names)), np.eye(len(names)), {"model": {"family": family, "options": options}, **information},
    )  # fmt: skip


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(2)
    x, t = rng.standard_normal(9000), rng.uniform(0.5, 2.0, 9000)
    return pa.table({"n": rng.poisson(t * np.exp(0.3 + 0.5 * x)), "x": x, "t": t})


@pytest.fixture(scope="module")
def counts(table):
    return tb.fit("n ~ x", table, "poisson", sampler="exact-minibatch", offset="log(t)", **RUN)


MEANS = {
    "logistic": special.expit, "probit": special.ndtr, "poisson": np.exp, "negbin": np.exp, "gamma": np.exp,
    "gaussian": lambda e: e, "normal": lambda e: e, "student_t": lambda e: e,
}  # fmt: skip
OPTIONS = {"negbin": {"size": 3.0}, "gamma": {"shape": 2.0}, "gaussian": {"sigma": 0.5}, "normal": {"sigma": None},
           "student_t": {"nu": 5.0, "scale": 0.5}}  # fmt: skip


@pytest.mark.parametrize("family", MEANS)
def test_the_mean_is_that_of_the_draws(family):
    fit = fitted(family, OPTIONS.get(family))
    values = MEANS[family](X @ fit.theta.reshape(-1, fit.theta.shape[2])[:, :2].T)
    shown = fit.predict(X, draws=10_000, prob=0.8)
    np.testing.assert_allclose(shown["mean"], values.mean(1), rtol=1e-12)
    np.testing.assert_allclose(shown[["lower", "upper"]].T, np.quantile(values, [0.1, 0.9], axis=1), rtol=1e-12)


@pytest.mark.parametrize("family", MEANS)
def test_responses_have_the_law_of_the_family(family):
    """With theta fixed the predictive law is that of one distribution of scipy."""
    fit = fitted(family, OPTIONS.get(family), draws=40_000)
    fit.theta[:] = fit.theta[0, 0]
    mean = MEANS[family](X @ fit.theta[0, 0, :2])
    law = {
        "logistic": stats.bernoulli(mean), "probit": stats.bernoulli(mean), "poisson": stats.poisson(mean),
        "negbin": stats.nbinom(3.0, 3.0 / (3.0 + mean)), "gamma": stats.gamma(2.0, scale=mean / 2.0),
        "gaussian": stats.norm(mean, 0.5), "normal": stats.norm(mean, 0.5), "student_t": stats.t(5.0, mean, 0.5),
    }[family]  # fmt: skip
    shown = fit.predict(X, kind="response", prob=0.8, draws=40_000)
    np.testing.assert_allclose(shown["mean"], mean, rtol=1e-12)
    for name, level in (("lower", 0.1), ("upper", 0.9)):
        near = law.ppf([[level - 0.01], [level + 0.01]])  # 6.7 standard errors of the probability below a quantile
        assert (shown[name] >= near[0]).all() and (shown[name] <= near[1]).all()


def test_classes():
    fit = fitted("softmax", {"classes": 3})
    flat = fit.theta.reshape(-1, 3, 2)
    p = special.softmax(np.einsum("nd,skd->nsk", X, flat), axis=2)
    shown = fit.predict(X, draws=10_000)
    np.testing.assert_allclose(shown[[f"mean[{k}]" for k in range(3)]], p.mean(1), rtol=1e-12)
    np.testing.assert_allclose(shown["upper[1]"], np.quantile(p[:, :, 1], 0.945, axis=1), rtol=1e-12)
    likeliest = fit.predict(X, kind="response", draws=10_000)
    np.testing.assert_array_equal(likeliest["class"], p.mean(1).argmax(1))
    np.testing.assert_allclose(likeliest["probability"], p.mean(1).max(1), rtol=1e-12)


def test_weights_count():
    """Draws of weight zero do not matter, and a weight of two is a draw twice."""
    fit = fitted("logistic", draws=2000)
    kept = dataclasses.replace(fit, theta=fit.theta[:1], stats={"evals": np.zeros((1, 1000))})
    fit.stats["weight"] = np.stack([np.ones(1000), np.zeros(1000)])
    one, other = fit.predict(X, draws=5000), kept.predict(X, draws=5000)
    np.testing.assert_allclose(one["mean"], other["mean"], rtol=1e-12)
    np.testing.assert_allclose(one["lower"], other["lower"], atol=2e-3)
    assert abs(one["mean"] - fitted("logistic", draws=2000).predict(X, draws=5000)["mean"]).max() > 1e-5


def test_every_kind_of_input_gives_the_same(counts, table, tmp_path):
    path = tmp_path / "new.parquet"
    pq.write_table(table.drop(["n"]), path, row_group_size=1777)  # no response, odd batches
    x, t = table["x"].to_numpy(), table["t"].to_numpy()
    rows = np.column_stack([np.ones(9000), x])
    expected = counts.predict(rows, kind="response", offset=np.log(t))
    data = tb.read(table, "n ~ x", offset="log(t)", progress=False)
    for new in (data, table, pl.from_arrow(table), table.to_pandas(), {"x": x, "t": t}, path, str(path)):
        pd.testing.assert_frame_equal(counts.predict(new, kind="response"), expected)
    written = counts.predict(path, kind="response", out=tmp_path / "deep" / "predictions.parquet")
    assert written == tmp_path / "deep" / "predictions.parquet"
    pd.testing.assert_frame_equal(pq.read_table(written).to_pandas(), expected)
    assert [p.name for p in written.parent.iterdir()] == ["predictions.parquet"]


def test_predict_after_load_is_predict_before_save(counts, table, tmp_path):
    loaded = tb.load(counts.save(tmp_path / "fit.nc"))
    for kind in ("mean", "response"):
        pd.testing.assert_frame_equal(loaded.predict(table, kind), counts.predict(table, kind))


def test_seed_and_number_of_draws(counts, table):
    one, again, other = (counts.predict(table, "response", draws=50, seed=s) for s in (1, 1, 2))
    pd.testing.assert_frame_equal(one, again)
    assert (one["mean"] != other["mean"]).any()
    assert counts.predict(table, draws=1)["lower"].equals(counts.predict(table, draws=1)["upper"])


def test_predictions_are_good(counts, table):
    shown = counts.predict(table, kind="response", draws=120)
    inside = (table["n"].to_numpy() >= shown["lower"]) & (table["n"].to_numpy() <= shown["upper"])
    assert 0.89 < inside.mean() < 0.99  # counts are coarse: the interval covers at least its probability


def test_an_intercept_is_added_to_columns_by_name():
    fit = fitted("logistic")
    pd.testing.assert_frame_equal(fit.predict({"x": X[:, 1]}), fit.predict(X))
    pd.testing.assert_frame_equal(fit.predict({"x": X[:, 1], "Intercept": X[:, 0]}), fit.predict(X))


BAD = np.array([[1.0, 0.0], [1.0, np.nan]])


@pytest.mark.parametrize(
    "new, options, message",
    [
        ({"z": [1.0]}, {}, "no column 'x'"),
        ({"x": [1.0, np.nan]}, {}, "row 1, column 'x' is nan"),
        ({"x": ["a"]}, {}, "column 'x' has type"),
        ({"x": [1.0, 2.0], "Intercept": [1.0]}, {}, "do not make a table"),
        (np.ones((3, 1)), {}, "Include the column of ones"),
        (np.ones((3, 4)), {}, "must have 2 columns (Intercept, x)"),
        (np.ones((0, 2)), {}, "no rows"),
        (BAD, {}, "row 1, column 'x' is nan"),
        (X, {"offset": [1.0]}, "offset must have one number for each of the 5 rows"),
        ({"x": [1.0]}, {"offset": [1.0]}, "offset= belongs to an array"),
        (object(), {}, "cannot predict for a object"),
        ("new.csv", {}, "does not exist"),
        ("nowhere.parquet", {}, "does not exist"),
        (tb.Dataset.from_arrays(X, X[:, 0]), {}, "no column 'Intercept'"),
        (X, {"kind": "mode"}, "unknown kind 'mode'"),
        (X, {"prob": 1.0}, "prob is the probability"),
        (X, {"draws": 0}, "draws must be a whole number"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors_name_the_remedy(new, options, message):
    with pytest.raises(tb.TallbayesError) as caught:
        fitted("logistic").predict(new, **options)
    assert message in str(caught.value)


def test_offsets_are_asked_for(counts, table, tmp_path):
    with pytest.raises(tb.DataError, match="give offset="):
        counts.predict(X)
    with pytest.raises(tb.DataError, match="no column 't'"):
        counts.predict(table.drop(["t"]))
    with pytest.raises(tb.DataError, match="an exposure must be positive"):
        counts.predict({"x": [0.0], "t": [0.0]})
    with pytest.raises(tb.DataError, match="read it with offset="):
        counts.predict(tb.read(table, "n ~ x", progress=False))
    with pytest.raises(tb.DataError, match="whose column has no name"):
        fitted("poisson", has_offset=True).predict({"x": [0.0]})


def test_a_failed_prediction_leaves_no_file(counts, tmp_path):
    (tmp_path / "old.parquet").write_text("kept")
    with pytest.raises(tb.DataError):
        counts.predict({"x": [0.0, np.nan], "t": [1.0, 1.0]}, out=tmp_path / "old.parquet")
    assert [p.name for p in tmp_path.iterdir()] == ["old.parquet"] and (tmp_path / "old.parquet").read_text() == "kept"


def test_counts_beyond_numbers_are_refused():
    with pytest.raises(tb.ModelError, match="check its units"):
        fitted("poisson").predict(np.array([[1.0, 1e4]]), kind="response")


def test_every_family_can_be_predicted_or_says_why_not():
    for name in set(tb.models.FAMILIES) - {"expression"}:
        family = tb.models.family_of({"family": name, "options": {}})
        if name != "binomial":  # successes need a number of trials, which new rows do not have; means are predicted
            assert (family.simulate is None) == bool(family.prediction_refusal)


def test_roc_and_calibration_are_those_of_scikit_learn():
    rng = np.random.default_rng(3)
    p = rng.random(3000).round(2)  # ties
    y = (rng.random(3000) < p**1.5).astype(int)
    fpr, tpr, auc = tb.results.roc(y, p)
    expected = metrics.roc_curve(y, p, drop_intermediate=False)
    np.testing.assert_allclose(fpr, expected[0])
    np.testing.assert_allclose(tpr, expected[1])
    assert auc == pytest.approx(metrics.roc_auc_score(y, p))
    table = tb.results.calibration(y, p, bins=7)
    observed, predicted = sklearn_calibration.calibration_curve(y, p, n_bins=7)
    np.testing.assert_allclose(table["observed"], observed)
    np.testing.assert_allclose(table["predicted"], predicted)
    assert table["rows"].sum() == 3000 and table["z"].min() < -3
    honest = tb.results.calibration((rng.random(3000) < p).astype(int), p)
    assert honest["z"].abs().max() < 4.9


@pytest.mark.parametrize(
    "y, p, message",
    [([1, 1], [0.1, 0.2], "both responses"), ([0, 2], [0.1, 0.2], "0 or 1"), ([0], [0.1, 0.2], "same length")],
)
def test_scores_of_nonsense_are_refused(y, p, message):
    with pytest.raises(tb.DataError, match=message):
        tb.results.roc(y, p)


def test_predictions_keep_the_index_and_the_id_columns(tmp_path):
    fit = fitted("poisson")
    frame = pd.DataFrame({"x": np.linspace(-1, 1, 9000), "id": [f"r{k}" for k in range(9000)]}, index=np.arange(9000) * 7)
    plain = fit.predict({"x": frame.x.to_numpy()})
    kept = fit.predict(frame, id="id")
    assert list(kept.columns) == ["id", "mean", "lower", "upper"]
    assert kept.index.equals(frame.index) and kept["id"].tolist() == frame["id"].tolist()
    np.testing.assert_array_equal(kept["mean"], plain["mean"])
    frame.to_csv(tmp_path / "new.csv", index=False)
    written = pq.read_table(fit.predict(tmp_path / "new.csv", id=["id", "x"], out=tmp_path / "out")).to_pandas()
    assert list(written.columns) == ["id", "x", "mean", "lower", "upper"]
    assert written["id"].tolist() == frame["id"].tolist()
    np.testing.assert_array_equal(written["mean"], plain["mean"])


@pytest.mark.parametrize(
    "new, name, message",
    [
        ({"x": [0.0], "id": [1]}, "ident", "new has no column 'ident' for id=.*did you mean 'id'"),
        ({"x": [0.0], "mean": [1]}, "mean", "the predictions have a column 'mean'"),
        (X, "id", "id= names columns of new"),
        (pa.RecordBatchReader.from_batches(pa.schema({"x": pa.float64()}), []), "x", "can be read twice"),
    ],
)
def test_id_columns_that_are_not_there_are_refused(new, name, message):
    with pytest.raises(tb.DataError, match=message):
        fitted("poisson").predict(new, id=name)
