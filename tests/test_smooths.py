"""Smooth terms s(x) of formulas: columns, priors, posterior and predictions. Truth: columns by hand, and quadrature over the scales."""

import json

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit
from typer.testing import CliRunner

import tallbayes as tb
from tallbayes.cli import app
from tallbayes.testing import effective_sizes


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    x, g = rng.uniform(-1.0, 3.0, n), rng.choice(["a", "b"], n)
    eta = np.sin(2.0 * x) + (g == "b") * (0.5 - x)
    return {
        "x": x,
        "z": rng.standard_normal(n),
        "g": g,
        "count": rng.integers(0, 3, n),
        "y": eta + 0.3 * rng.standard_normal(n),
        "won": (rng.random(n) < expit(eta)).astype(float),
    }


def read(formula, rows=None, **options):
    return tb.read(pa.table(table() if rows is None else rows), formula, progress=False, **options)


def matrix(data):
    return np.asarray(data.records[:, : data.d], float)


def test_columns_are_those_of_the_smooth_and_by_multiplies_them_by_levels():
    rows = table()
    part, own = tb.data.smooth(rows["x"], "x", k=6), tb.data.smooth(rows["z"], "z", k=5)
    data = read("y ~ g + s(x, k=6) + s(z, k=5, by=g)")
    lines = ("s(z, by=g)_line[b]", "s(z, by=g)[b, 1]", "s(z, by=g)[b, 2]", "s(z, by=g)[b, 3]")
    assert data.columns[2:7] == part.names and data.columns[-4:] == lines
    inside = (rows["g"] == "b")[:, None]
    expected = [
        part.columns(rows["x"]),
        np.where(inside, 0.0, own.columns(rows["z"])),
        np.where(inside, own.columns(rows["z"]), 0.0),
    ]
    np.testing.assert_allclose(matrix(data)[:, 2:], np.column_stack(expected), atol=1e-12)
    numbers = read("y ~ s(x, k=6, by=C(count))")
    assert numbers.columns[1:7:5] == ("s(x, by=count)_line[0]", "s(x, by=count)_line[1]")


def test_batches_and_stores_do_not_matter(tmp_path):
    whole = pa.table(table())
    batches = pa.Table.from_batches(whole.to_batches(max_chunksize=37))
    first, second = (tb.read(t, "y ~ s(x) + s(z, by=g)", progress=False) for t in (whole, batches))
    np.testing.assert_allclose(matrix(first), matrix(second), atol=1e-13)
    packed = tb.read(whole, "y ~ s(x) + s(z, by=g)", memory="disk", store=tmp_path, progress=False)
    again = tb.read(packed.store, "y ~ s(x) + s(z, by=g)")
    np.testing.assert_allclose(matrix(again), matrix(first), atol=1e-13)
    with pytest.raises(tb.DataError, match="was packed with formula"):
        tb.read(packed.store, "y ~ s(x, k=9) + s(z, by=g)")


@pytest.mark.parametrize(
    "formula, message",
    [
        ("y ~ s(g)", "needs numbers, but column 'g' is text"),
        ("y ~ s(x, k=3)", "k is a whole number from 4 to 200"),
        ("y ~ s(count)", "3 different values, fewer than k = 10"),
        ("y ~ log(s(x))", "must not stand inside another transform"),
        ("y ~ s(x):g", "a smooth stands alone; write s"),
        ("y ~ s(x)*z", "a smooth stands alone; write s"),
        ("y ~ (s(x) | g)", "does not vary by group"),
        ("y ~ s(x, by=z)", "by= needs levels"),
        ("y ~ s(x, by=3)", "by is a column of levels"),
        ("y ~ s(x, k=5) + s(x, k=6)", "two predictors are called"),
    ],
)
def test_what_is_no_smooth_is_refused(formula, message):
    with pytest.raises(tb.DataError, match=message):
        read(formula)


def test_priors_by_name():
    data = read("y ~ s(x, k=6) + s(z, k=5, by=g)")
    ridge = tb.priors.ridge(standardise=False).describe()
    model = tb.models.gaussian(data)
    scales = ("s(x)_sigma", "s(z, by=g)_sigma[a]", "s(z, by=g)_sigma[b]")
    assert model.names[-3:] == scales and model.members[1][2] == (7, 8, 9)
    assert model.prior.describe().count(ridge) == 3
    assert "s(x, by" not in model.prior.describe()
    part = tb.models.gaussian(data, {"s(x, k=6)": tb.priors.normal(1.0), "s(z, by=g)": tb.priors.horseshoe(0.5)})
    assert part.names[-2:] == ("s(z, by=g)_tau[a]", "s(z, by=g)_tau[b]")
    assert part.prior_terms.scale[2:6].tolist() == [1.0] * 4
    fixed = tb.models.gaussian(data, {"s(x)": tb.priors.normal(1.0), "s(z, by=g)": tb.priors.normal(2.0)})
    assert not fixed.unknown_scales and fixed.prior_terms.scale[[2, 7, 8, 9]].tolist() == [1.0, 2.0, 2.0, 2.0]
    assert fixed.prior_terms.scale[6] != 2.0  # the line is not penalised
    rebuilt = tb.models.build("gaussian", data, tb.priors.from_dict(model.describe()["prior"]))
    assert rebuilt.describe() == model.describe() and rebuilt.names == model.names
    with pytest.raises(tb.OptionError, match=r"all of 's\(x\)' rather than"):
        tb.models.gaussian(data, {"s(x)[1]": tb.priors.normal(1.0)})
    with pytest.raises(tb.ModelError, match=r"prior=\{'s\(x\)': tallbayes.priors.normal\(1.0\)\}"):
        tb.models.gaussian(read("y ~ s(x) + (1 | g)"))


def test_a_straight_line_is_reproduced_whatever_the_scale():
    rows = table()
    rows["y"] = 2.0 - 0.7 * rows["x"]
    data = read("y ~ s(x)", rows)
    for scale in (1e-4, 1.0):
        model = tb.models.gaussian(data, {"s(x)": tb.priors.normal(scale), "default": tb.priors.flat()}, sigma=1.0)
        fitted = matrix(data) @ tb.find_mode(model, progress=False).reference
        np.testing.assert_allclose(fitted, rows["y"], atol=1e-6)


def test_a_smooth_of_every_level_is_a_smooth_of_its_rows():
    """With a main effect of the factor the levels share nothing: the curve of a level is that of a fit to its rows alone."""
    rows = table()
    prior = {"s(x, by=g)": tb.priors.normal(0.4), "default": tb.priors.flat()}
    data = read("y ~ g + s(x, by=g, k=7)")
    joint = matrix(data) @ tb.find_mode(tb.models.gaussian(data, prior, sigma=1.0), progress=False).reference
    columns = tb.data.smooth(rows["x"], k=7).columns(rows["x"])
    for level in "ab":
        inside = rows["g"] == level
        X = np.column_stack([np.ones(inside.sum()), columns[inside]])
        penalty = np.diag([0.0, 0.0, *[0.4**-2] * 5])
        alone = X @ np.linalg.solve(X.T @ X + penalty, X.T @ rows["y"][inside])
        np.testing.assert_allclose(joint[inside], alone, atol=1e-6)


def marginal(X, y, width, penalised, others=5.0):
    """Means of log sigma, of log tau and of the fitted values under y ~ N(X b, sigma^2), by quadrature over both scales."""
    count, logs, points = X.shape[1], [], []
    for log_sigma in np.linspace(-1.5, 1.0, 80):
        for log_tau in np.linspace(-6.0, 4.0, 100):
            sigma, tau = np.exp(log_sigma), np.exp(log_tau)
            precision = np.where(np.arange(count) < count - penalised, others**-2.0, tau**-2.0)
            inner = X.T @ X / sigma**2 + np.diag(precision)
            mean = np.linalg.solve(inner, X.T @ y / sigma**2)
            value = -y.size * log_sigma + 0.5 * np.log(precision).sum() - 0.5 * np.linalg.slogdet(inner)[1]
            value += 0.5 * mean @ (X.T @ y) / sigma**2 - 0.5 * y @ y / sigma**2
            value += log_tau - 2.0 * np.log1p((tau / width) ** 2 / 3.0)
            logs.append(value)
            points.append(np.concatenate([[log_sigma, log_tau], X @ mean]))
    weights = np.exp(np.array(logs) - max(logs))
    return weights @ np.array(points) / weights.sum()


def test_a_gaussian_smooth_is_that_of_quadrature_and_predicts_new_rows():
    """Sigma and tau unknown: no row is read, and what the likelihood has beyond its expansion is corrected for."""
    rows = table(60, seed=3)
    data = read("y ~ s(x, k=6)", rows)
    model = tb.models.gaussian(data, {"default": tb.priors.normal(5.0)})
    fit = tb.sample(model, draws=20_000, warmup=500, chains=2, seed=1, progress=False)
    assert fit.guarantee.kind == "EXACT" and fit.evals.sum() == 0
    X, width = matrix(data), 2.5 * float(data.moments.sd[data.d])
    truth = marginal(X, rows["y"], width, 4)
    drawn = np.concatenate([fit.theta[:, :, 6:7], np.log(fit.theta[:, :, 7:]), fit.theta[:, :, :6] @ X[:8].T], axis=2)
    score = (drawn.mean((0, 1)) - truth[: drawn.shape[2]]) / drawn.std((0, 1)) * np.sqrt(effective_sizes(drawn))
    assert np.abs(score).max() < 5.0
    new = np.linspace(-0.5, 2.5, 5)
    columns = np.column_stack([np.ones(5), tb.data.smooth(rows["x"], k=6).columns(new)])
    by_hand = (fit.theta[:, :, :6].reshape(-1, 6) @ columns.T).mean(0)
    np.testing.assert_allclose(fit.predict({"x": new}, draws=40_000)["mean"], by_hand, rtol=1e-6, atol=1e-9)
    with pytest.raises(tb.DataError, match=r"outside the range of the spline s\(x, k=6\)"):
        fit.predict({"x": [9.0]})


def test_a_fit_of_smooths_has_effects_variables_and_files(tmp_path):
    rows = pa.table(table(3_000))
    fit = tb.fit(
        "won ~ g + s(x, k=6) + s(z, by=g, k=5)", rows, family="logistic", draws=300, warmup=200, seed=1, progress=False
    )
    assert fit.meta["sampler_name"] == "surrogate-transition"
    assert fit.evals.mean() < 3_000
    posterior = fit.idata.posterior
    assert posterior["s(x)"].shape[2:] == (4,) and "s(x)_line" in posterior and "s(x)_sigma" in posterior
    assert posterior["s(z, by=g)_sigma"].coords["s(z, by=g)_sigma_dim"].values.tolist() == ["a", "b"]
    grid = np.linspace(-0.8, 2.8, 9)
    link = fit.predictions({"x": grid}, scale="link", draws=5_000)["mean"].to_numpy()
    columns = tb.data.smooth(rows["x"].to_numpy(), k=6).columns(grid)
    mean = fit.theta.mean((0, 1))
    np.testing.assert_allclose(np.diff(link), np.diff(columns @ mean[2:7]), rtol=1e-6, atol=1e-9)
    slope = fit.slopes("x", at={"x": 1.0}, scale="link", draws=5_000)["mean"].iloc[0]
    step = tb.data.smooth(rows["x"].to_numpy(), k=6).columns(np.array([1.0 - 1e-4, 1.0 + 1e-4])) @ mean[2:7]
    assert abs(slope - (step[1] - step[0]) / 2e-4) < 1e-3
    assert fit.slopes("z")["sd"].iloc[0] > 0.0  # z is told from the lines of both levels
    assert fit.plot("effect", names=["x", "z"]) is not None
    loaded = tb.load(fit.save(tmp_path / "fit.nc"))
    new = {"x": [0.0, 1.0], "z": [0.1, 0.2], "g": ["a", "b"]}
    np.testing.assert_array_equal(loaded.predict(new)["mean"], fit.predict(new)["mean"])


def test_the_command_line_takes_smooths(tmp_path):
    import pyarrow.csv

    pyarrow.csv.write_csv(pa.table(table(2_000)), tmp_path / "rows.csv")
    arguments = ("--family", "logistic", "--draws", "60", "--warmup", "60", "--seed", "1", "--quiet", "--json")
    done = CliRunner().invoke(app, ["fit", str(tmp_path / "rows.csv"), "--formula", "won ~ s(x, k=6)", *arguments])
    assert done.exit_code == 0, done.output
    assert "s(x)_sigma" in json.dumps(json.loads(done.stdout))
