"""Average effects: against full computation, statsmodels, closed forms; from every kind of rows; in bounded memory."""

import tracemalloc
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import statsmodels.api as sm
from scipy import special
from support import known_fit

import tallbayes as tb
from tallbayes.testing import design_matrix

MEANS = {
    "logistic": special.expit, "probit": special.ndtr, "poisson": np.exp, "negbin": np.exp, "gamma": np.exp,
    "gaussian": lambda e: e, "student_t": lambda e: e,
}  # fmt: skip


def columns(n, seed=2):
    rng = np.random.default_rng(seed)
    return {
        "y": rng.integers(1, 2, n), "x": rng.standard_normal(n), "z": rng.uniform(0.2, 1.5, n), "g": rng.choice(list("abc"), n),
        "year": rng.choice([2019, 2020, 2021], n), "treated": rng.integers(0, 2, n), "t": rng.uniform(0.5, 2.0, n),
        "w": rng.integers(1, 4, n),
    }  # fmt: skip


FORMULA = "y ~ x*g + log(z) + bs(z, df=5) + C(year) + treated"


@pytest.fixture(scope="module")
def rows():
    return columns(700)


@pytest.fixture(scope="module")
def general(rows):
    return known_fit(tb.read(pa.table(rows), FORMULA, offset="log(t)", weights="w", progress=False))


def predicted(fit, table, function=special.expit):
    """E[y] of every row (rows, draws) at changed columns, with the offset."""
    x = design_matrix(fit, pa.table(table))
    eta = x @ fit.theta.reshape(-1, fit.theta.shape[2])[:, : x.shape[1]].T
    return function(eta + np.log(table["t"])[:, None])


def averaged(values, weights, group=None):
    keep = np.ones(values.shape[0], bool) if group is None else group
    return weights[keep] @ values[keep] / weights[keep].sum()


def test_comparisons_of_levels_and_numbers_are_those_of_all_rows(general, rows):
    low = averaged(predicted(general, {**rows, "g": np.full(700, "a")}), rows["w"])
    high = averaged(predicted(general, {**rows, "g": np.full(700, "c")}), rows["w"])
    for scale, value in (
        ("response", high - low), ("ratio", high / low), ("log", np.log(high / low)),
        ("odds", high / (1 - high) / (low / (1 - low))),
    ):  # fmt: skip
        table = general.comparisons({"g": ("a", "c")}, scale=scale)
        assert np.allclose(table.posterior[:, 0], value, rtol=1e-10)
        assert table["contrast"].tolist() == ["c vs a"] and table["rows_se"].max() == 0.0
        assert np.isclose(table["mean"][0], value.mean()) and np.isclose(table["lower"][0], np.quantile(value, 0.055))
    more = averaged(predicted(general, {**rows, "x": rows["x"] + 1}) - predicted(general, rows), rows["w"])
    assert np.allclose(general.comparisons("x").posterior[:, 0], more, rtol=1e-10)
    both = [averaged(predicted(general, {**rows, "treated": np.full(700, v)}), rows["w"]) for v in (0, 1)]
    table = general.comparisons("treated")
    assert table["contrast"].tolist() == ["1 vs 0"]
    assert np.allclose(table.posterior[:, 0], both[1] - both[0], rtol=1e-10)


def test_comparisons_say_what_they_compare(general):
    table = general.comparisons()
    assert table["variable"].tolist() == ["x", "z", "g", "g", "year", "year", "treated"]
    assert table["contrast"][0] == "+1" and table["contrast"].tolist()[2:] == [
        "b vs a",
        "c vs a",
        "2020 vs 2019",
        "2021 vs 2019",
        "1 vs 0",
    ]
    assert general.comparisons({"g": "pairwise"})["contrast"].tolist() == ["b vs a", "c vs a", "c vs b"]
    assert general.comparisons({"g": "sequential"})["contrast"].tolist() == ["b vs a", "c vs b"]
    assert general.comparisons({"x": 2, "z": (0.3, 1.0)})["contrast"].tolist() == ["+2", "1 vs 0.3"]


def test_slopes_go_through_interactions_logarithms_and_splines(general, rows):
    e = 1e-6
    for name in ("x", "z"):
        inside = {**rows, name: np.clip(rows[name], rows[name].min() + e, rows[name].max() - e)}
        up, down = ({**inside, name: inside[name] + s} for s in (e, -e))
        value = averaged((predicted(general, up) - predicted(general, down)) / (2 * e), rows["w"])
        assert np.allclose(general.slopes(name).posterior[:, 0], value, rtol=3e-4, atol=1e-6)
    g = rows["g"] == "b"
    by = general.slopes("x", by="g")
    up, down = (predicted(general, {**rows, "x": rows["x"] + s}) for s in (e, -e))
    assert by["g"].tolist() == ["a", "b", "c"]
    assert np.allclose(by.posterior[:, 1], averaged((up - down) / (2 * e), rows["w"], g), rtol=1e-6)
    link = general.slopes("x", scale="link", at={"g": "c"}).posterior[:, 0]
    flat = general.theta.reshape(-1, general.theta.shape[2])
    expected = flat[:, general.names.index("x")] + flat[:, general.names.index("x:g[T.c]")]
    assert np.allclose(link, expected, rtol=1e-7)


def test_predictions_at_values_and_by_groups(general, rows):
    table = general.predictions(at={"z": [0.3, 1.0], "g": ["a", "b"]})
    assert table[["z", "g"]].to_numpy().tolist() == [[0.3, "a"], [0.3, "b"], [1.0, "a"], [1.0, "b"]]
    changed = {**rows, "z": np.full(700, 1.0), "g": np.full(700, "b")}
    assert np.allclose(table.posterior[:, 3], averaged(predicted(general, changed), rows["w"]), rtol=1e-10)
    two = general.predictions(by=["g", "treated"])
    assert two[["g", "treated"]].to_numpy().tolist() == [[g, t] for g in "abc" for t in (0.0, 1.0)]
    part = (rows["g"] == "b") & (rows["treated"] == 1)
    assert np.allclose(two.posterior[:, 3], averaged(predicted(general, rows), rows["w"], part), rtol=1e-10)
    whole = averaged(predicted(general, rows), rows["w"])
    assert np.allclose(general.predictions(scale="odds").posterior[:, 0], whole / (1 - whole), rtol=1e-10)


@pytest.mark.parametrize("family", MEANS)
def test_every_family_with_one_predictor(rows, family):
    data = tb.read(pa.table(rows), "y ~ x + g", progress=False)
    fit = known_fit(data, family)
    x = design_matrix(data, pa.table(rows))
    eta = x @ fit.theta.reshape(-1, len(fit.names)).T[: x.shape[1]]
    assert np.allclose(fit.predictions().posterior[:, 0], MEANS[family](eta).mean(0), rtol=1e-9)
    slope = (MEANS[family](eta + 1e-6) - MEANS[family](eta - 1e-6)).mean(0) / 2e-6 * fit.draws("x").reshape(-1)
    assert np.allclose(fit.slopes("x").posterior[:, 0], slope, rtol=1e-5)


@pytest.mark.parametrize("model, family", [(sm.Logit, "logistic"), (sm.Probit, "probit"), (sm.Poisson, "poisson")])
def test_margins_of_statsmodels(model, family):
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(900), rng.uniform(0.5, 3.0, 900), rng.integers(0, 2, 900)])
    y = (rng.random(900) < special.expit(X @ [-0.5, 0.4, 0.6])).astype(float)
    found = model(y, X).fit(disp=0)
    data = tb.Dataset.from_arrays(X, y, columns=["one", "x", "treated"])
    fit = known_fit(data, family, np.tile(found.params, (2, 2, 1)))
    assert np.allclose(fit.slopes().posterior[0], found.get_margeff(at="overall").margeff, rtol=1e-7)
    assert np.allclose(fit.slopes(scale="log").posterior[0], found.get_margeff(at="overall", method="eydx").margeff, rtol=1e-7)
    elastic = fit.slopes("x", scale="elasticity").posterior[0, 0]
    assert np.isclose(elastic, found.get_margeff(at="overall", method="eyex").margeff[0], rtol=1e-7)
    dummy = found.get_margeff(at="overall", dummy=True).margeff[1]
    assert np.isclose(fit.comparisons("treated").posterior[0, 0], dummy, rtol=1e-7)


def test_remainders_of_a_few_rows_with_an_honest_standard_error():
    rng = np.random.default_rng(4)
    X = np.column_stack([np.ones(30_000), rng.standard_normal((30_000, 2)), rng.integers(0, 3, 30_000)])
    weights = rng.uniform(0.5, 2.0, 30_000)
    fit = known_fit(tb.Dataset.from_arrays(X, rng.integers(0, 2, 30_000), weights=weights), draws=60, spread=0.3)
    flat = fit.theta.reshape(-1, 4)
    eta = X @ flat.T
    p = special.expit(eta)
    full = weights @ p / weights.sum()
    center, steep = X @ flat.mean(0), special.expit(X @ flat.mean(0))
    tangent = weights @ (steep[:, None] + (steep * (1 - steep))[:, None] * (eta - center[:, None])) / weights.sum()
    scores, ratios = [], []
    other = weights @ special.expit(eta + flat[:, 1]) / weights.sum()
    for seed in range(40):
        table = fit.predictions(rows=400, seed=seed)
        scores.append((table.posterior[:, 0] - full) / table["rows_se"][0])
        compared = fit.comparisons("x1", scale="ratio", rows=400, seed=seed)
        ratios.append((compared.posterior[:, 0] - other / full) / compared["rows_se"][0])
    assert np.abs(tangent - full).mean() > 5 * table["rows_se"][0]  # without remainders the averages would be wrong
    for found in (np.array(scores), np.array(ratios)):
        assert 0.6 < np.sqrt((found**2).mean()) < 1.5
        assert np.abs(found.mean()) < 0.5
    assert np.allclose(fit.predictions(rows=30_000).posterior[:, 0], full, rtol=1e-10)
    groups = fit.predictions(by="x3", rows=300)
    exact = [weights[X[:, 3] == k] @ p[X[:, 3] == k] / weights[X[:, 3] == k].sum() for k in range(3)]
    for k in range(3):
        assert np.abs(groups.posterior[:, k] - exact[k]).max() < 4.9 * 3 * groups["rows_se"][k]


def test_a_million_rows_and_a_thousand_draws_in_little_memory():
    rng = np.random.default_rng(6)
    X = np.column_stack([np.ones(1_000_000), rng.standard_normal((1_000_000, 5))])
    data = tb.Dataset.from_arrays(X, rng.integers(0, 2, 1_000_000))
    fit = known_fit(data, draws=1000, spread=0.002)
    tracemalloc.start()
    try:
        fit.slopes("x1")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200e6


def test_a_column_without_a_term_of_its_own_needs_the_data(rows, tmp_path):
    table = pa.table(rows)
    fit = known_fit(tb.read(table, "y ~ I(x**2) + g", progress=False))
    with pytest.raises(tb.DataError, match="x cannot be recovered"):
        fit.slopes("x")
    given = fit.slopes("x", data=table).posterior
    pq.write_table(table, tmp_path / "rows.parquet")
    fit = known_fit(tb.read(tmp_path / "rows.parquet", "y ~ I(x**2) + g", progress=False))
    assert np.allclose(fit.slopes("x").posterior, given, rtol=1e-9)


def test_rows_are_found_again_after_saving(rows, tmp_path):
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    data = tb.read(tmp_path / "rows.parquet", FORMULA, offset="log(t)", weights="w", progress=False)
    fit = known_fit(data)
    fit.seconds.update(draws=1.0, total=1.0)
    loaded = tb.load(fit.save(tmp_path / "fit.nc"))
    assert loaded.data is None
    expected = fit.comparisons(by="g").posterior
    assert np.allclose(loaded.comparisons(by="g").posterior, expected, rtol=1e-9)
    assert np.allclose(loaded.comparisons(by="g", data=rows).posterior, expected, rtol=1e-9)
    assert np.allclose(loaded.comparisons(by="g", data=data).posterior, expected, rtol=1e-9)
    (tmp_path / "rows.parquet").unlink()
    with pytest.raises(tb.DataError, match="not in memory"):
        loaded.slopes("x")
    stored = known_fit(tb.read(pa.table(rows), "y ~ x + g", store=tmp_path / "store", progress=False), keep=False)
    assert stored.predictions(by="g").shape[0] == 3


def test_by_a_column_outside_the_model(rows):
    fit = known_fit(tb.read(pa.table(rows), "y ~ x", progress=False))
    table = fit.predictions(by="g", data=rows)
    x = np.column_stack([np.ones(700), rows["x"]])[rows["g"] == "b"]
    assert table["g"].tolist() == ["a", "b", "c"]
    assert np.allclose(table.posterior[:, 1], special.expit(x @ fit.theta.reshape(-1, 2).T).mean(0))
    with pytest.raises(tb.DataError, match="Give data="):
        fit.predictions(by="g")
    with pytest.raises(tb.DataError, match="more than 200 different values"):
        fit.predictions(by="x")


def test_weighted_draws_count_by_their_weights(general):
    w = np.ones(general.theta.shape[:2])
    w[:, ::2] = 0.0
    general.stats["weight"] = w
    try:
        weighted = general.predictions()
    finally:
        del general.stats["weight"]
    kept = weighted.posterior[w.reshape(-1) > 0, 0]
    assert np.isclose(weighted["mean"][0], kept.mean(), rtol=1e-10)


def test_refusals(general, rows):
    data = tb.Dataset.from_arrays(np.ones((6, 1)), [0, 1, 2, 0, 1, 2])
    cases = [
        (lambda: known_fit(data, "softmax").slopes("x"), tb.ModelError, "one linear predictor"),
        (lambda: general.slopes("g"), tb.OptionError, "use fit.comparisons"),
        (lambda: general.slopes("age"), tb.DataError, "unknown variable 'age'"),
        (lambda: general.slopes("x:g[T.b]"), tb.DataError, "column of the design"),
        (lambda: general.slopes("x", scale="odds"), tb.OptionError, "scale of slopes"),
        (lambda: general.predictions(at={"g": "q"}), tb.DataError, "level of g"),
        (lambda: general.predictions(at={"x": "q"}), tb.DataError, "'x' is a number"),
        (lambda: general.comparisons({"x": 0}), tb.OptionError, "other than 0"),
        (lambda: general.comparisons({"x": "iqr"}), tb.OptionError, "minmax"),
        (lambda: general.comparisons({"x": (1, 2, 3)}), tb.OptionError, "two values"),
        (lambda: general.predictions(prob=2), tb.OptionError, "prob"),
        (lambda: general.predictions(draws=0), tb.OptionError, "draws must be"),
        (lambda: general.predictions(data=rows, model=general), tb.OptionError, "not both"),
        (lambda: general.predictions(data={"x": [1.0]}), tb.DataError, "no column"),
        (lambda: general.comparisons({"z": (0.3, 9.0)}), tb.DataError, "range of the spline"),
    ]
    poisson = known_fit(tb.read(pa.table(rows), "y ~ x", progress=False), "poisson")
    gaussian = known_fit(tb.read(pa.table(rows), "y ~ x", progress=False), "gaussian")
    cases += [
        (lambda: poisson.comparisons("x", scale="odds"), tb.OptionError, "0 and 1"),
        (lambda: gaussian.comparisons("x", scale="ratio"), tb.OptionError, "positive mean"),
    ]
    alone = known_fit(tb.read(pa.table(rows), "y ~ 1", progress=False), "poisson")
    exposed = known_fit(tb.read(pa.table(rows), "y ~ t", offset="log(t)", progress=False), "poisson")
    cases += [
        (alone.slopes, tb.OptionError, "no slope"),
        (alone.comparisons, tb.OptionError, "intercept alone"),
        (lambda: exposed.slopes("t"), tb.DataError, "also the offset"),
    ]
    for call, error, text in cases:
        with pytest.raises(error, match=text):
            call()


def test_the_table_prints_what_was_averaged(general):
    table = general.slopes("x")
    assert repr(table).startswith("slopes in units of the response, averaged over 700 rows, weighted; 40 draws")
    assert "<table" in table._repr_html_() and "slopes in units" in table._repr_html_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert table[["mean"]].shape == (1, 1)
