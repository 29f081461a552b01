"""Responses of two columns in formulas: stores, weights, updates and predicted counts, against direct computation."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import tallbayes as tb

N = 240
RUN = {"sampler": "exact-minibatch", "draws": 60, "warmup": 60, "chains": 2, "seed": 1, "progress": False}
FORMULAS = {"binomial": "p(k, m) ~ x + c", "weibull": "censored(t, seen) ~ x + c"}
SECOND = {"binomial": "m", "weibull": "seen"}


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    x, c = rng.standard_normal(n), rng.choice(["a", "b"], n)
    m = rng.integers(1, 9, n)
    times, limit = np.exp(0.5 + 0.3 * x) * rng.standard_exponential(n) ** 0.7, rng.uniform(0.5, 4.0, n)
    rows = {"x": x, "c": c, "m": m, "k": rng.binomial(m, 1 / (1 + np.exp(-0.4 * x))), "w": rng.integers(1, 4, n)}
    return pd.DataFrame({**rows, "t": np.minimum(times, limit), "seen": times <= limit})


def model_of(rows, family, prior=None, **options):
    return tb.models.build(family, tb.read(rows, FORMULAS[family], progress=False, **options), prior or tb.priors.normal(2.0))


def repeated(rows):
    """Every row as often as its weight says."""
    return rows.loc[rows.index.repeat(rows["w"])]


@pytest.fixture(params=list(FORMULAS))
def family(request):
    return request.param


@pytest.mark.parametrize("memory", ["auto", "disk"])
def test_a_store_is_made_and_gives_the_same_draws(family, memory, tmp_path):
    rows, path = table(), tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pandas(rows), path)
    ram = tb.fit(FORMULAS[family], path, family, memory="ram", **RUN)
    stored = tb.fit(FORMULAS[family], path, family, store=tmp_path / "store", memory=memory, **RUN)
    entry = tb.store.list(tmp_path / "store")[0]
    assert ram.data.store is None and stored.data.store == entry.path and entry.rows == N
    assert (stored.theta == ram.theta).all() and stored.data.fingerprint == ram.data.fingerprint
    again = tb.read(path, FORMULAS[family], store=tmp_path / "store", progress=False)
    assert again.store == entry.path and len(tb.store.list(tmp_path / "store")) == 1
    opened = tb.read(entry.path, FORMULAS[family])
    assert opened.fingerprint == ram.data.fingerprint and opened.has_weights == (family == "binomial")
    from_store = tb.fit(FORMULAS[family], entry.path, family, **RUN)
    assert (from_store.theta == ram.theta).all()
    y = FORMULAS[family].partition("(")[2].partition(",")[0]
    with pytest.raises(tb.DataError, match="was packed with response"):
        tb.read(entry.path, f"{y} ~ x + c")


def test_memory_disk_without_a_folder_uses_the_default_one(family, tmp_path, monkeypatch):
    monkeypatch.setenv("TALLBAYES_STORE", str(tmp_path))
    data = tb.read(pa.Table.from_pandas(table()), FORMULAS[family], memory="disk", progress=False)
    assert data.store is not None and data.store.parent == tmp_path
    assert data.fingerprint == tb.read(table(), FORMULAS[family], memory="ram", progress=False).fingerprint


def test_a_weight_of_two_is_a_row_twice(family, tmp_path):
    rows = table()
    weighted = model_of(rows, family, weights="w")
    twice = model_of(repeated(rows), family)
    rng = np.random.default_rng(1)
    for theta in 0.5 * rng.standard_normal((5, weighted.dim)):
        values = weighted.log_posterior(theta), twice.log_posterior(theta)
        assert values[0] == pytest.approx(values[1], rel=1e-11)
    modes = [tb.find_mode(model, progress=False) for model in (weighted, twice)]
    assert modes[0].reference == pytest.approx(modes[1].reference, abs=1e-6)
    assert modes[0].precision == pytest.approx(modes[1].precision, rel=1e-4)
    disk = model_of(rows, family, weights="w", store=tmp_path, memory="disk")
    assert disk.data.store is not None and disk.data.fingerprint == weighted.data.fingerprint
    assert (disk.data.trials(slice(None)) == weighted.data.trials(slice(None))).all()


def test_trials_and_weights_stay_apart(tmp_path):
    rows = table()
    model = model_of(rows, "binomial", weights="w")
    data, every = model.data, np.arange(N)
    assert (data.records[:, data.d + 2] == rows["w"] * rows["m"]).all() and (data.trials(every) == rows["m"]).all()
    assert data.total_weight == (rows["w"] * rows["m"]).sum()
    expected = stats.binom.logpmf(rows["k"], rows["m"], rows["k"] / rows["m"])  # of a saturated model, without weights
    p = np.clip(rows["k"] / rows["m"], 1e-12, 1 - 1e-12)
    value = rows["m"] * (rows["k"] / rows["m"] * np.log(p) + (1 - rows["k"] / rows["m"]) * np.log1p(-p))
    assert value.to_numpy() + rows["m"].to_numpy() * model.log_normaliser(every) == pytest.approx(expected, abs=1e-8)
    fit = tb.fit(FORMULAS["binomial"], rows, "binomial", weights="w", **RUN)
    check = fit.ppc(rows=N, draws=50)
    counts = check.simulated * rows["m"].to_numpy()[check.rows]
    assert np.allclose(counts, np.round(counts)) and (counts <= rows["m"].to_numpy()[check.rows]).all()
    assert fit.loo(rows=N).elpd == pytest.approx(direct_loo(fit, rows), abs=1e-6)
    again = tb.load(fit.save(tmp_path / "fit.nc"))
    assert again.ppc(data=fit.data, rows=N, draws=50).simulated.tolist() == check.simulated.tolist()


def direct_loo(fit, rows):
    """Leave-one-out of weighted rows from all draws, row by row."""
    from arviz_stats.base import array_stats

    x = np.column_stack([np.ones(N), rows["c"] == "b", rows["x"]]).astype(float)
    x = x[:, [["Intercept", "c[T.b]", "x"].index(name) for name in fit.names]]
    p = 1 / (1 + np.exp(-x @ fit.theta.reshape(-1, 3).T))
    values = rows["w"].to_numpy()[:, None] * stats.binom.logpmf(rows["k"].to_numpy()[:, None], rows["m"].to_numpy()[:, None], p)
    weights, _ = array_stats.psislw(values, r_eff=min(1.0, float(fit.ess.min()) / p.shape[1]), axis=-1)
    return np.log(np.exp(weights + values).sum(1)).sum()


def test_weights_survive_merging_and_reading_again(tmp_path):
    rows = table()
    rows["x"] = np.round(rows["x"])
    pq.write_table(pa.Table.from_pandas(rows), tmp_path / "rows.parquet")
    whole = tb.read(tmp_path / "rows.parquet", FORMULAS["binomial"], weights="w", progress=False)
    merged = tb.read(tmp_path / "rows.parquet", FORMULAS["binomial"], weights="w", merge=True, progress=False)
    assert merged.n < whole.n and merged.total_weight == pytest.approx(whole.total_weight)
    groups = rows.assign(c=rows["c"] == "b").groupby(["x", "c", "k", "m"])["w"].sum()
    assert merged.n == len(groups)
    found = pd.DataFrame(
        {"x": merged.records[:, merged.columns.index("x")], "c": merged.records[:, merged.columns.index("c[T.b]")] == 1.0}
    )
    trials = merged.trials(slice(None))
    found["k"], found["m"] = np.round(merged.y * trials).astype(int), trials.astype(int)
    found["w"] = merged.records[:, merged.d + 2] / trials
    assert (found.set_index(["x", "c", "k", "m"])["w"].sort_index() == groups.sort_index()).all()
    theta = np.array([0.1, 0.2, -0.3])
    models = [tb.models.binomial(data, tb.priors.normal(2.0)) for data in (whole, merged)]
    assert models[0].log_posterior(theta) == pytest.approx(models[1].log_posterior(theta), rel=1e-12)


@pytest.mark.parametrize("options", [{}, {"weights": "w"}], ids=["plain", "weights"])
@pytest.mark.parametrize("where", ["memory", "store"])
def test_update_is_the_fit_of_all_rows(family, options, where, tmp_path):
    rows = table(400)
    more = {"store": tmp_path, "memory": "disk"} if where == "store" else {}
    first = tb.fit(FORMULAS[family], rows[:300], family, prior=tb.priors.normal(2.0), **RUN, **options, **more)
    grown = first.update(rows[300:], progress=False, seed=2)
    whole = model_of(rows, family, **options)
    assert grown.data.fingerprint == whole.data.fingerprint and grown.meta["rows"] == 400
    assert (grown.data.store is not None) == (where == "store")
    expected = tb.data.censored(rows["t"], rows["seen"]) if family == "weibull" else rows["k"] / rows["m"]
    assert (grown.data.y == expected).all()
    weight = (rows["w"] if options else 1.0) * (1.0 if family == "weibull" else rows["m"]) * np.ones(400)
    assert (grown.data.records[:, grown.data.d + 2] == weight).all()
    mode = tb.find_mode(whole, progress=False)
    model = tb.update(tb.models.build(family, first.data if where == "memory" else model_of(rows[:300], family, **options).data,
                                      tb.priors.normal(2.0)), rows[300:], progress=False)  # fmt: skip
    assert model.log_posterior(mode.reference) == pytest.approx(whole.log_posterior(mode.reference), rel=1e-12)
    sd = np.sqrt(np.diag(np.linalg.inv(mode.precision)))
    assert (np.abs(grown.theta.mean((0, 1)) - mode.reference) < sd).all()  # a tenth would be 5 standard errors of 120 draws
    assert grown.update(rows[:5], progress=False, seed=3).meta["rows"] == 405


def test_update_takes_the_columns_of_the_formula_only(family):
    fit = tb.fit(FORMULAS[family], table(), family, **RUN)
    with pytest.raises(tb.DataError, match=f"no column '{SECOND[family]}'"):
        fit.update(table(30).drop(columns=SECOND[family]), progress=False)
    wrong = table(30).assign(m=0, seen=2)
    with pytest.raises(tb.DataError, match="row 0"):
        fit.update(wrong, progress=False)


def test_update_with_arrays_of_proportions():
    rows = table()
    fit = tb.fit("p(k, m) ~ x", rows, "binomial", weights="w", **RUN)
    new = table(20, seed=3)
    X, (y, trials) = np.column_stack([np.ones(20), new["x"]]), tb.data.proportion(new["k"], new["m"])
    part = tb.Dataset.from_arrays(X, y, weights=trials, columns=["Intercept", "x"])
    part.response = "k"
    grown = fit.update(part, progress=False, seed=2)
    assert (grown.data.trials(slice(N, None)) == trials).all() and (grown.data.trials(slice(0, N)) == rows["m"]).all()
    plain = tb.fit("p(k, m) ~ x", rows, "binomial", **RUN)
    weighted = tb.read(new, "p(k, m) ~ x", weights="w", progress=False)
    with pytest.raises(tb.DataError, match="the new rows of p\\(successes, trials\\) have weights="):
        plain.update(weighted, progress=False)
    part.records[0, 2] = 0.21
    with pytest.raises(tb.DataError, match="not a whole number of successes"):
        fit.update(part, progress=False)


@pytest.fixture(scope="module")
def counted():
    return tb.fit(FORMULAS["binomial"], table(), "binomial", **{**RUN, "draws": 1000})


def mixture_cdf(fit, x, trials, count):
    """Posterior predictive probability of at most `count` successes."""
    p = 1 / (1 + np.exp(-fit.theta.reshape(-1, x.size) @ x))
    return stats.binom.cdf(count, trials, p).mean()


def test_predicted_counts_follow_the_binomial_law(counted):
    trials = np.array([1, 7, 400])
    new = {"x": [0.5, -1.0, 1.2], "c": ["a", "b", "a"], "m": trials}
    found = counted.predict(new, kind="response", draws=2000, prob=0.8)
    shares = counted.predict(new, draws=2000)
    assert found["mean"].to_numpy() == pytest.approx(trials * shares["mean"].to_numpy(), rel=1e-12)
    columns = {"Intercept": np.ones(3), "x": np.array(new["x"]), "c[T.b]": np.array([0.0, 1.0, 0.0])}
    design = np.column_stack([columns[name] for name in counted.names])
    for k in range(3):
        for end, level in (("lower", 0.1), ("upper", 0.9)):
            count, error = float(found[end][k]), 4.9 * np.sqrt(level * (1 - level) / 2000)
            below = mixture_cdf(counted, design[k], trials[k], np.ceil(count) - 1)
            assert below - error < level < mixture_cdf(counted, design[k], trials[k], np.floor(count)) + error
    wide = found["upper"] - found["lower"]
    assert wide[2] > 20 and (found[["lower", "upper"]].to_numpy() % 1 == 0).all()
    again = counted.predict(new, kind="response", draws=2000, prob=0.8)
    assert again.equals(found) and not counted.predict(new, kind="response", draws=2000, prob=0.8, seed=1).equals(found)


def test_trials_come_from_columns_arrays_and_datasets(counted, tmp_path):
    new = table(50, seed=5)
    expected = counted.predict(new, kind="response")
    pq.write_table(pa.Table.from_pandas(new), tmp_path / "new.parquet")
    assert counted.predict(tmp_path / "new.parquet", kind="response").equals(expected)
    folder = counted.predict(tmp_path / "new.parquet", kind="response", partitions=True, out=tmp_path / "out")
    parts = pd.read_parquet(folder / "new.parquet")
    assert parts["mean"].to_numpy() == pytest.approx(expected["mean"].to_numpy())
    data = tb.read(new, FORMULAS["binomial"], weights="w", progress=False)
    assert counted.predict(data, kind="response").equals(expected)
    X = data.records[:, : data.d]
    assert counted.predict(X, kind="response", trials=new["m"]).equals(expected)
    assert counted.predict(new.drop(columns="m")).equals(counted.predict(new))  # the mean needs no trials


@pytest.mark.parametrize(
    "change, options, sentence",
    [
        (lambda new: new.drop(columns="m"), {}, "new has no column 'm': the response is a number of successes"),
        (lambda new: new.assign(m=1.5), {}, "row 0, column 'm': 1.5 trials; use whole numbers"),
        (lambda new: new.assign(m=-1), {}, "row 0, column 'm': -1 trials"),
        (lambda new: new.assign(m=np.nan), {}, "row 0, column 'm' is missing"),
        (lambda new: np.ones((4, 3)), {}, "give trials=, one number for each row"),
        (lambda new: np.ones((4, 3)), {"trials": [1, 2]}, "one number for each of the 4 rows"),
        (lambda new: new, {"trials": [1] * 4}, "trials= belongs to an array of design rows"),
        (lambda new: np.ones((4, 3)), {"trials": [1] * 4, "kind": "mean"}, "trials= belongs to kind='response'"),
        (lambda new: tb.Dataset.from_arrays(np.ones((4, 3)), np.ones(4), columns=["Intercept", "x", "c[T.b]"]), {}, "has no numbers"),
    ],
)  # fmt: skip
def test_missing_or_impossible_trials(counted, change, options, sentence):
    with pytest.raises(tb.TallbayesError, match=sentence):
        counted.predict(change(table(4)), **{"kind": "response", **options})


def test_fits_of_arrays_take_trials_with_arrays():
    rows = table()
    y, trials = tb.data.proportion(rows["k"], rows["m"])
    X = np.column_stack([np.ones(N), rows["x"]])
    data = tb.Dataset.from_arrays(X, y, weights=trials, columns=["Intercept", "x"])
    fit = tb.sample(tb.models.binomial(data), **RUN)
    found = fit.predict(X, kind="response", trials=trials)
    assert found.equals(fit.predict(data, kind="response")) and (found["upper"] <= trials).all()
    with pytest.raises(tb.DataError, match="made from arrays, so their column has no name"):
        fit.predict({"x": [0.0], "m": [2]}, kind="response")
    poisson = tb.fit("k ~ x", rows, "poisson", **RUN)
    with pytest.raises(tb.OptionError, match="trials= belongs to kind='response' of models of p"):
        poisson.predict(X, kind="response", trials=trials)


def test_single_trials_in_the_rows_and_more_in_new_ones():
    rows = table().assign(m=1)
    rows["k"] = (rows["k"] > 1).astype(int)
    fit = tb.fit("p(k, m) ~ x", rows, "binomial", **RUN)  # a logistic model
    found = fit.predict({"x": [0.0, 0.0], "m": [1, 50]}, kind="response")
    assert found["mean"][1] == pytest.approx(50 * found["mean"][0]) and found["upper"][1] > 1


def test_partitions_read_both_columns(family, tmp_path):
    rows = table()
    for k in range(2):
        pq.write_table(pa.Table.from_pandas(rows[k::2]), tmp_path / f"part{k}.parquet")
    whole = model_of(rows, family)
    theta = np.full(whole.dim, 0.1)
    with tb.shards.Partitions.open(str(tmp_path), FORMULAS[family], family, tb.priors.normal(2.0)) as partitions:
        assert partitions.total_value(theta) == pytest.approx(whole.log_posterior(theta) - whole.log_prior(theta), rel=1e-12)
        assert partitions.n == N and partitions.total_value(theta) == partitions.total_value(theta)
    if family == "binomial":
        with pytest.raises(tb.DataError, match="weights= together with p\\(successes, trials\\) is not available"):
            tb.shards.Partitions.open(str(tmp_path), FORMULAS[family], family, weights="w")


def test_averages_use_the_weights_of_rows(tmp_path):
    """Of rows in memory and of rows read again from their file."""
    rows = table()
    pq.write_table(pa.Table.from_pandas(rows), tmp_path / "rows.parquet")
    fit, weight = tb.fit(FORMULAS["binomial"], tmp_path / "rows.parquet", "binomial", weights="w", **RUN), rows["w"] * rows["m"]
    each = fit.predict(rows, draws=120)["mean"].to_numpy()
    expected = np.average(each, weights=weight)
    assert fit.predictions()["mean"][0] == pytest.approx(expected, rel=1e-3)
    assert fit.predictions(data=rows)["mean"][0] == pytest.approx(expected, rel=1e-3)
    by = fit.predictions(by="m")  # a column that packed rows do not hold
    for level, mean in zip(by["m"], by["mean"], strict=True):
        own = (rows["m"] == level).to_numpy()
        assert mean == pytest.approx(np.average(each[own], weights=weight[own]), rel=1e-3)


def test_plans_of_earlier_versions_are_read(family, tmp_path):
    pq.write_table(pa.Table.from_pandas(table()), tmp_path / "rows.parquet")
    fit = tb.fit(FORMULAS[family], tmp_path / "rows.parquet", family, **RUN)
    expected = fit.predict(table(20, seed=2), kind="response")
    plan = fit.meta["plan"]
    fit.meta["plan"] = json.loads(
        json.dumps({**plan, "response_function": plan["response_function"]["name"], "weights": SECOND[family]})
    )
    fit.__dict__.pop("idata", None)
    again = tb.load(fit.save(tmp_path / "old.nc"))
    assert again.predict(table(20, seed=2), kind="response").equals(expected)
    assert again.loo(rows=50).elpd == fit.loo(rows=50).elpd
    assert again.ppc().simulated.shape == (100, N)


def test_what_is_refused(family):
    rows = table()
    for options, sentence in (
        ({"weights": "v"}, "unknown weights column 'v'"),
        ({"weights": "bad"}, "column 'bad': the weight is -1"),
        ({"response": "k"}, "not both"),
        ({"columns": ["x"]}, "not both"),
        ({"sigma": "~ x"}, "sigma= cannot be given together"),
    ):
        with pytest.raises(tb.TallbayesError, match=sentence):
            tb.read(rows.assign(bad=np.where(np.arange(N) == 7, -1.0, 1.0)), FORMULAS[family], progress=False, **options)
    with pytest.raises(tb.DataError, match="row 3"):
        tb.read(rows.assign(**{SECOND[family]: np.where(np.arange(N) == 3, 2.5, 1)}, k=0), FORMULAS[family], progress=False)
