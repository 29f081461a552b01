"""New rows for fits with smooths, ridge and horseshoe priors; and audits that find the rows of a fit by themselves."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arviz_stats.base import array_stats

import tallbayes as tb
from tallbayes.testing import THRESHOLD

RUN = {"draws": 2000, "warmup": 400, "chains": 2, "seed": 5, "progress": False}
SHORT = {**RUN, "draws": 60, "warmup": 60}


def error_of(draws):
    """Variance of the mean of draws (chains, draws)."""
    return draws.var() / array_stats.ess(draws, chain_axis=0, draw_axis=1)


def z_scores(one, other, names):
    """Differences of posterior means in standard errors, of scales on the log scale."""
    scores = []
    for name in names:
        draws = [fit.draws(name) for fit in (one, other)]
        if name.endswith(("_tau", "_sigma")) and name != "log_sigma":
            draws = [np.log(d) for d in draws]
        scores.append((draws[0].mean() - draws[1].mean()) / np.sqrt(sum(map(error_of, draws))))
    return np.abs(scores)


def arrays(rows, seed, spread=1.0):
    """Design and binary responses; columns have mean 0 and standard deviation `spread` exactly, so that a scaled prior is known."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3))
    X = spread * (X - X.mean(0)) / X.std(0, ddof=0)
    X = np.column_stack([np.ones(rows), X])
    return X, (rng.random(rows) < 1.0 / (1.0 + np.exp(-X @ [0.3, 0.5, 0.0, -0.2]))).astype(float)


def dataset(*parts):
    X, y = (np.concatenate(v) for v in zip(*parts, strict=True))
    return tb.Dataset.from_arrays(X, y)


def shrinkage(kind, standardise):
    narrow = tb.priors.half_cauchy(0.05)
    own = (
        tb.priors.horseshoe(0.05, standardise=standardise)
        if kind == "horseshoe"
        else tb.priors.ridge(narrow, standardise=standardise)
    )
    return {"x0": tb.priors.normal(5.0), "default": own}


@pytest.mark.parametrize("kind", ["horseshoe", "ridge"])
def test_an_updated_fit_with_unknown_scales_is_a_fit_of_all_rows(kind):
    """Columns of the first rows have standard deviation 1; the new ones are three times as wide, and do not change the prior."""
    old, new = arrays(120, 1), arrays(60, 2, 3.0)
    fit = tb.sample(tb.models.logistic(dataset(old), shrinkage(kind, True)), **RUN)
    updated = fit.update(dataset(new), seed=6, progress=False)
    whole = tb.sample(tb.models.logistic(dataset(old, new), shrinkage(kind, False)), **{**RUN, "seed": 7})
    assert updated.meta["rows"] == 180 and updated.guarantee.kind == "EXACT" and updated.names == whole.names
    assert [e["rows"] for e in updated.meta["history"]] == [120, 60] and updated.meta["history"][-1]["recentred"]
    assert z_scores(updated, whole, updated.names).max() < THRESHOLD
    assert z_scores(fit, whole, updated.names).max() > THRESHOLD  # the new rows matter


@pytest.mark.parametrize("kind", ["horseshoe", "ridge"])
def test_a_part_of_the_rows_has_the_scales_of_all(kind):
    model = tb.models.logistic(dataset(arrays(200, 1, 3.0)), shrinkage(kind, True))
    part = model.over(dataset(arrays(50, 2)))
    assert part.blocks.weight.tolist() == pytest.approx([1.0, 9.0, 9.0, 9.0])
    assert repr(part).startswith("Model(logistic, 50 rows, 5 parameters, prior ")


def table(rows, seed):
    """Rows with a curve of z, whose first two are the ends of the range of z."""
    rng = np.random.default_rng(seed)
    x, z, c = rng.standard_normal(rows), rng.uniform(-2.0, 2.0, rows), rng.choice(["a", "b"], rows)
    z[:2] = -2.0, 2.0
    eta = 0.3 + 0.5 * x + np.sin(1.5 * z) + 0.3 * (c == "b")
    return pa.table(
        {"x": x, "z": z, "c": c, "b": (rng.random(rows) < 1.0 / (1.0 + np.exp(-eta))).astype(int), "y": eta + x[::-1]}
    )


PRIOR = {"Intercept": tb.priors.normal(5.0), "x": tb.priors.normal(2.0), "s(z)_line": tb.priors.normal(2.0)}
CURVE = "b ~ x + s(z, k=6)"


def test_an_updated_smooth_is_that_of_all_rows():
    """The knots are those of the first rows, which have the same range; all columns but the intercept are those of all rows."""
    old, new = table(300, 1), table(300, 2)
    fit = tb.fit(CURVE, old, prior=PRIOR, **RUN)
    updated = fit.update(new, seed=6, progress=False)
    whole = tb.fit(CURVE, pa.concat_tables([old, new]), prior=PRIOR, **{**RUN, "seed": 7})
    assert updated.meta["rows"] == 600 and updated.names == whole.names and updated.meta["plan"] == fit.meta["plan"]
    assert z_scores(updated, whole, updated.names[1:]).max() < THRESHOLD
    points = {"x": [0.0, 1.0, -1.0], "z": [-1.5, 0.0, 1.5]}
    one, other = (f.predict(points, draws=4000)["mean"].to_numpy() for f in (updated, whole))
    assert np.abs(one - other).max() < 0.02


def test_rows_beyond_the_range_of_a_smooth_are_refused():
    fit = tb.fit(CURVE, table(300, 1), prior=PRIOR, **SHORT)
    beyond = table(5, 2).to_pandas()
    beyond["z"] = 3.0
    with pytest.raises(tb.DataError, match=r"'z' is 3, outside the range of the spline s\(z, k=6\), -2 to 2"):
        fit.update(beyond, progress=False)


@pytest.mark.parametrize(
    ("formula", "family", "prior"),
    [
        (CURVE, "logistic", PRIOR),
        ("b ~ x + z + c", "logistic", {"default": tb.priors.horseshoe(0.1)}),
        pytest.param("y ~ x + z", "gaussian", {"default": tb.priors.ridge()}, marks=pytest.mark.slow),
    ],
)
def test_a_saved_update_goes_on_with_the_prior_of_the_first_rows(tmp_path, formula, family, prior):
    """Through files, a second update draws what it draws with the models of this process, bit for bit."""
    paths = [tmp_path / f"{number}.parquet" for number in range(3)]
    for path, size, seed in zip(paths, (300, 50, 40), (1, 2, 3), strict=True):
        pq.write_table(table(size, seed), path)
    models = [tb.models.FAMILIES[family](tb.read(paths[0], formula, progress=False), prior)]
    for path in paths[1:]:
        models.append(tb.update(models[-1], path, progress=False))
    here = tb.sample(models[0], **SHORT).update(paths[1], model=models[0], seed=6, progress=False)
    here = here.update(paths[2], model=models[1], seed=7, progress=False)
    there = tb.fit(formula, paths[0], family, prior, store=tmp_path / "stores", memory="disk", **SHORT)
    for path, seed in ((paths[1], 6), (paths[2], 7)):
        there = tb.load(there.update(path, seed=seed, progress=False).save(tmp_path / f"{seed}.nc"))
    assert here.meta["rows"] == there.meta["rows"] == 390
    np.testing.assert_array_equal(there.theta, here.theta)
    audits = here.audit(models[2], pairs=3), there.audit(pairs=3)
    assert audits[0].passed and audits[0].facts == audits[1].facts


@pytest.mark.slow
@pytest.mark.parametrize(
    "prior", [{"default": tb.priors.ridge()}, {"default": tb.priors.horseshoe()}], ids=["ridge", "horseshoe"]
)
def test_gaussian_rows_with_unknown_scales_are_updated(prior):
    old, new = table(150, 1), table(150, 2)
    fit = tb.fit("y ~ x + z", old, "gaussian", prior, **RUN)
    updated = fit.update(new, seed=6, progress=False)
    assert (updated.evals == 0).all() and updated.meta["rows"] == 300
    whole = tb.fit("y ~ x + z", pa.concat_tables([old, new]), "gaussian", prior, **{**RUN, "seed": 7})
    # the prior is that of the first rows, in units of their y: a shift far below a posterior standard deviation
    for name in ("x", "z", "log_sigma"):
        assert abs(updated.draws(name).mean() - whole.draws(name).mean()) < 0.15 * whole.draws(name).std()


# Audits that find the rows.


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("audit") / "rows.parquet"
    pq.write_table(table(400, 4), path)
    return path


AUDITED = [
    pytest.param("b ~ x + c", "logistic", {"sampler": "exact-minibatch"}, id="minibatch"),
    pytest.param(CURVE, "logistic", {}, id="smooth"),
    pytest.param("b ~ x + c", "logistic", {"prior": tb.priors.horseshoe()}, id="horseshoe"),
    pytest.param("b ~ x + c", "logistic", {"sampler": "nuts"}, id="nuts", marks=pytest.mark.slow),
    pytest.param("b ~ x + c", "logistic", {"sampler": "hmc-ecs"}, id="hmc-ecs", marks=pytest.mark.slow),
    pytest.param("b ~ x + (1 | c)", "logistic", {}, id="groups", marks=pytest.mark.slow),
    pytest.param("y ~ x", "gaussian", {"sigma": "~ z", "sampler": "nuts"}, id="second", marks=pytest.mark.slow),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("formula", "family", "options"), AUDITED)
def test_an_audit_finds_the_rows_and_says_what_it_says_with_the_model(rows, tmp_path, formula, family, options):
    fit = tb.fit(formula, rows, family, **options, **SHORT)
    given = {k: v for k, v in options.items() if k not in ("sampler", "prior")}
    data = tb.read(rows, formula, progress=False, **given)
    model = tb.models.FAMILIES[family](
        data, prior=options.get("prior"), **({"sigma": fit.meta["model"]["options"]["sigma"]} if given else {})
    )
    wanted = fit.audit(model, pairs=3)
    assert wanted.passed and len(wanted.facts) > 2
    assert fit.audit(pairs=3).facts == wanted.facts
    loaded = tb.load(fit.save(tmp_path / "fit.nc"))
    assert loaded.data is None and loaded.audit(pairs=3).facts == wanted.facts


def test_an_audit_without_rows_asks_for_them(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(table(200, 5), path)
    fit = tb.fit("b ~ x + c", path, sampler="exact-minibatch", **SHORT)
    loaded = tb.load(fit.save(tmp_path / "fit.nc"))
    model = tb.models.logistic(tb.read(path, "b ~ x + c", progress=False))
    pq.write_table(table(200, 6), path)
    with pytest.raises(tb.StoreError, match="not the rows of the fit; give the Dataset or the model"):
        loaded.audit(pairs=1)
    path.unlink()
    with pytest.raises(tb.StoreError, match=r"cannot be read again .*give its Dataset or model"):
        loaded.audit(pairs=1)
    assert loaded.audit(model, pairs=1).passed
    with pytest.raises(tb.TallbayesError, match="must be the model of the fit"):
        loaded.audit("b ~ x + c")
    arrays_only = tb.sample(tb.models.logistic(dataset(arrays(3000, 1))), "exact-minibatch", **SHORT)
    saved = tb.load(arrays_only.save(tmp_path / "arrays.nc"))
    assert arrays_only.audit(pairs=1).passed
    with pytest.raises(tb.DataError, match="only in memory; give its Dataset or model"):
        saved.audit()
