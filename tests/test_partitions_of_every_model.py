"""Rows in partitions give the posterior that the same rows give in memory, for every kind of model, or say what to do instead."""

import shutil
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arviz_stats.base import array_stats

import tallbayes as tb
from tallbayes.testing import THRESHOLD

ROWS, FILES = 900, 3
RUN = {"draws": 2000, "warmup": 400, "chains": 2, "seed": 5, "progress": False}
SHORT = {**RUN, "draws": 60, "warmup": 60}
HORSESHOE = tb.priors.horseshoe(0.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of rows for every family. Classes 3 of `o` are in the first file alone."""
    rng = np.random.default_rng(3)
    x, z, c = rng.standard_normal(ROWS), rng.uniform(-2.0, 2.0, ROWS), rng.choice(["a", "b", "c"], ROWS)
    eta = 0.3 + 0.5 * x + 0.6 * np.sin(2.0 * z) + 0.4 * (c == "b")
    mean, chance = np.exp(np.clip(eta, -3.0, 3.0)), 1.0 / (1.0 + np.exp(-eta))
    file = np.arange(ROWS) % FILES
    ordered = np.digitize(eta + rng.logistic(size=ROWS), [-1.0, 0.5, 2.0])
    successes = rng.binomial(5, chance)
    columns = {
        "x": x,
        "z": z,
        "c": c,
        "g": rng.choice(["p", "q", "r"], ROWS),
        "b": (rng.random(ROWS) < chance).astype(int),
        "y": eta + rng.standard_normal(ROWS),
        "heavy": eta + rng.standard_t(4.0, ROWS),
        "k": rng.negative_binomial(3, 3 / (3 + mean)),
        "t": mean * rng.weibull(1.5, ROWS),
        "share": np.clip(rng.beta(3.0 * chance, 3.0 * (1.0 - chance)), 1e-3, 1.0 - 1e-3),
        "positive": mean * rng.gamma(2.0, 0.5, ROWS),
        "part": successes / 5,
        "successes": successes,
        "trials": np.full(ROWS, 5),
        "o": np.where((ordered == 3) & (file > 0), 2, ordered),
        "gap": np.where(ordered == 3, 4, ordered),
        "s": np.where(rng.random(ROWS) < 0.5, 0, rng.integers(0, 3, ROWS)),
    }
    path = tmp_path_factory.mktemp("rows")
    for k in range(FILES):
        pq.write_table(pa.table({name: column[file == k] for name, column in columns.items()}), path / f"{k}.parquet")
    return path


def positions(fit):
    """Draws of all parameters, scales on the log scale, where they have moments."""
    scales = [name.endswith(("_tau", "_sigma")) and name != "log_sigma" for name in fit.names]
    return np.where(scales, np.log(np.where(scales, fit.theta, 1.0)), fit.theta)


def z_scores(one, other):
    """Differences of means and of mean squares about a common centre, in standard errors."""
    assert one.names == other.names
    draws = [positions(fit) for fit in (one, other)]
    centre = draws[1].mean((0, 1))
    scores = []
    for power in (1, 2):
        values = [(d - centre) ** power for d in draws]
        errors = [
            v.var((0, 1)) / np.array([array_stats.ess(v[:, :, j], chain_axis=0, draw_axis=1) for j in range(v.shape[2])])
            for v in values
        ]
        scores.append((values[0].mean((0, 1)) - values[1].mean((0, 1))) / np.sqrt(errors[0] + errors[1]))
    return np.abs(np.concatenate(scores))


def there_and_here(folder, formula, family, options, sampler):
    paths = str(folder / "*.parquet")
    there = tb.fit(formula, paths, family, memory="partitions", **options, **RUN)
    here = tb.fit(formula, paths, family, sampler=sampler, **options, **{**RUN, "seed": 6})
    return there, here


QUICK = {
    "gaussian": ("y ~ x + c", "gaussian", {}, "nuts", "exact-minibatch"),
    "smooth": ("b ~ x + s(z, k=6)", "logistic", {}, "auto", "surrogate-transition"),
    "horseshoe": ("b ~ x + z + c", "logistic", {"prior": HORSESHOE}, "auto", "surrogate-transition"),
}
OTHERS = {
    "gaussian smooth": ("y ~ x + s(z, k=6)", "gaussian", {}, "auto", "surrogate-transition"),
    "gaussian horseshoe": ("y ~ x + z + c", "gaussian", {"prior": HORSESHOE}, "auto", "surrogate-transition"),
    "ridge": ("k ~ x + z", "poisson", {"prior": tb.priors.ridge()}, "auto", "surrogate-transition"),
    "softmax horseshoe": ("s ~ x + z", "softmax", {"prior": HORSESHOE}, "auto", "surrogate-transition"),
    "ordinal": ("o ~ x + c", "ordinal", {}, "nuts", "hmc-ecs"),
    "ordinal without intercept": ("o ~ 0 + x", "ordinal", {}, "nuts", "hmc-ecs"),
    "student_t": ("heavy ~ x", "student_t", {"nu": 4.0}, "nuts", "hmc-ecs"),
    "student_t, nu unknown": ("heavy ~ x", "student_t", {}, "nuts", "hmc-ecs"),
    "weibull": ("t ~ x", "weibull", {}, "nuts", "hmc-ecs"),
    "lognormal": ("t ~ x", "lognormal", {}, "nuts", "hmc-ecs"),
    "loglogistic": ("t ~ x", "loglogistic", {}, "nuts", "hmc-ecs"),
    "negbin": ("k ~ x", "negbin", {}, "nuts", "hmc-ecs"),
    "gamma": ("positive ~ x", "gamma", {}, "nuts", "hmc-ecs"),
    "beta": ("share ~ x", "beta", {}, "nuts", "hmc-ecs"),
    "softmax": ("s ~ x", "softmax", {"prior": tb.priors.normal(2.0)}, "nuts", "exact-minibatch"),
    "binomial": ("part ~ x", "binomial", {"weights": "trials"}, "nuts", "exact-minibatch"),
}
CASES = [
    *(pytest.param(*case, id=name) for name, case in QUICK.items()),
    *(pytest.param(*case, id=name, marks=pytest.mark.slow) for name, case in OTHERS.items()),
]


@pytest.mark.parametrize(("formula", "family", "options", "reference", "sampler"), CASES)
def test_partitions_have_the_posterior_of_the_rows_in_memory(folder, formula, family, options, reference, sampler):
    there, here = there_and_here(folder, formula, family, options, reference)
    assert there.meta["sampler_name"] == sampler and there.data is None and there.meta["partitions"] == FILES
    assert z_scores(there, here).max() < THRESHOLD


def test_other_rows_are_told_apart(folder):
    """The comparison above can fail: partitions that hold two thirds of the rows."""
    formula, family, options, *_ = QUICK["horseshoe"]
    part = tb.fit(formula, [str(folder / f"{k}.parquet") for k in (0, 1)], family, memory="partitions", **options, **RUN)
    here = tb.fit(formula, str(folder / "*.parquet"), family, **options, **RUN)
    assert z_scores(part, here).max() > THRESHOLD


def test_sums_describe_gaussian_rows_and_none_is_read(folder):
    fit = tb.fit("y ~ x + c", str(folder), "gaussian", memory="partitions", **SHORT)
    assert fit.guarantee.kind == "EXACT" and (fit.evals == 0).all()


def test_coefficients_with_unknown_scales_are_drawn_from_streams(folder):
    fit = tb.fit("b ~ x + s(z, k=6)", str(folder), memory="partitions", **SHORT)
    streams = fit.meta["notes"]["streams"]
    assert fit.guarantee.kind == "EXACT" and streams["rows"] > 0 and (fit.stats["largest_ratio"] <= 1.0).all()
    assert fit.evals.mean() < 0.2 * ROWS


def test_a_resumed_run_with_unknown_scales_goes_on_in_its_streams(folder, tmp_path):
    formula, family, options, *_ = QUICK["horseshoe"]
    rows = tb.shards.Partitions.open(str(folder), formula, family, options["prior"])
    first = tb.sample(rows, **SHORT, checkpoint=tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    longer = tb.resume(tmp_path / "run", rows, draws=90, progress=False)
    tb.resume(
        tmp_path / "copy", tb.shards.Partitions.open(str(folder), formula, family, options["prior"]), draws=75, progress=False
    )
    stepwise = tb.resume(tmp_path / "copy", rows, draws=90, progress=False)
    np.testing.assert_array_equal(longer.theta[:, : SHORT["draws"]], first.theta)
    np.testing.assert_array_equal(longer.theta, stepwise.theta)


def test_the_mode_of_partitions_with_unknown_scales_is_that_of_the_rows_in_memory(folder):
    formula, family, options, *_ = QUICK["horseshoe"]
    there = tb.shards.find_mode(str(folder), formula, family=family, prior=options["prior"], progress=False)
    here = tb.find_mode(tb.models.logistic(tb.read(str(folder), formula, progress=False), options["prior"]), progress=False)
    assert there.reference.shape == here.reference.shape
    assert np.abs(there.reference - here.reference).max() < np.sqrt(np.diag(np.linalg.inv(here.precision))).max()


@pytest.mark.parametrize(
    ("formula", "family"), [("censored(t, b) ~ x + z", "weibull"), ("p(successes, trials) ~ x + z", "binomial")]
)
def test_responses_of_two_columns_have_the_mode_of_the_rows_in_memory(folder, formula, family):
    there = tb.shards.find_mode(str(folder), formula, family=family, progress=False)
    here = tb.find_mode(tb.models.build(family, tb.read(str(folder), formula, progress=False)), progress=False)
    gap = there.reference - here.reference
    assert gap @ here.precision @ gap < 1e-4


def test_successes_among_trials_need_no_family_in_partitions(folder):
    fits = [
        tb.fit("p(successes, trials) ~ x", str(folder), family, memory="partitions", **SHORT) for family in (None, "binomial")
    ]
    assert [fit.meta["model"]["family"] for fit in fits] == ["binomial", "binomial"]
    assert "binomial" in fits[0].meta["assumed_family"] and not fits[1].meta.get("assumed_family")
    np.testing.assert_array_equal(fits[0].theta, fits[1].theta)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("formula", "family", "prior"),
    [
        ("y ~ x + z", "gaussian", None),
        ("y ~ x + z", "logistic", HORSESHOE),
        ("y ~ x + z", "ordinal", None),
        ("y ~ x + z", "weibull", None),
        ("y ~ x + z", "student_t", None),
    ],
)
def test_the_mode_of_many_rows_is_found_from_a_sample_of_them(tmp_path, formula, family, prior):
    """The sample holds about a third of the rows, and none of the rare last class."""
    rng = np.random.default_rng(1)
    n = 200_000
    x, z = rng.standard_normal((2, n))
    eta = 0.3 + 0.5 * x - 0.2 * z
    y = {
        "gaussian": eta + rng.standard_normal(n),
        "logistic": (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(float),
        "ordinal": np.minimum(np.digitize(eta + rng.logistic(size=n), [0.0, 2.0]), 2) + (np.arange(n) == 5),
        "weibull": np.exp(eta) * rng.weibull(1.5, n),
        "student_t": eta + rng.standard_t(4.0, n),
    }[family]
    y = np.where(np.arange(n) == 5, y.max(), y)
    for k in range(4):
        pq.write_table(pa.table({"x": x[k::4], "z": z[k::4], "y": y[k::4]}), tmp_path / f"{k}.parquet")
    there = tb.shards.find_mode(str(tmp_path), formula, family=family, prior=prior, progress=False)
    here = tb.find_mode(tb.models.FAMILIES[family](tb.read(str(tmp_path), formula, progress=False), prior), progress=False)
    gap = there.reference - here.reference
    assert gap @ here.precision @ gap < (1e-2 if prior is None else 1.0)
    assert there.passes < 12


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as ready,
    ):
        yield ready


@pytest.mark.parametrize("kind", ["gaussian", "horseshoe"])
def test_workers_draw_what_this_process_draws(client, folder, kind):
    formula, family, options, *_ = QUICK[kind]
    here = tb.fit(formula, str(folder), family, memory="partitions", **options, **SHORT)
    there = tb.fit(formula, str(folder), family, client=client, **options, **SHORT)
    np.testing.assert_array_equal(there.theta, here.theta)


@pytest.mark.parametrize(
    ("formula", "family", "options", "message"),
    [
        ("b ~ x", "logistic", {"prior": HORSESHOE, "sampler": "nuts"}, "'surrogate-transition', which draws the few rows"),
        ("b ~ x", "logistic", {"sampler": "nuts"}, "'exact-minibatch', 'zigzag' or 'hmc-ecs'"),
        ("y ~ x", "gaussian", {"sigma": "~ z"}, "read them with memory='disk'"),
        ("k ~ x", "zero_inflated_poisson", {}, "read them with memory='disk'"),
        ("b ~ x + (1 | g)", "logistic", {}, "read all files together"),
        ("b ~ x", "class_gaussian", {}, "memory='disk'"),
        ("p(successes, trials) ~ x", "binomial", {"weights": "trials"}, r"weights= together with p\(successes, trials\)"),
        ("gap ~ x", "ordinal", {}, r"every one of the 5 classes needs rows"),
        ("y ~ x", "ordinal", {}, "partition 0: .*ordinal needs a class number"),
        ("y ~ x", "binomial", {}, "partition 0: .*Make response and weights"),
    ],
)
def test_what_partitions_cannot_do_is_said_with_a_remedy(folder, formula, family, options, message):
    with pytest.raises(tb.TallbayesError, match=message):
        tb.fit(formula, str(folder), family, memory="partitions", **options, **SHORT)


@pytest.mark.slow
def test_unknown_scales_need_a_bound_in_partitions(folder):
    with pytest.raises(tb.ModelError, match=r"need a certified bound .* negbin .*memory='disk'"):
        tb.fit("k ~ x", str(folder), "negbin", HORSESHOE, memory="partitions", **SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["hmc-ecs", "sgld", "zigzag"])
@pytest.mark.parametrize(
    ("formula", "family", "options"),
    [
        ("y ~ x", "gaussian", {}),
        ("b ~ x", "logistic", {"prior": HORSESHOE}),
        ("o ~ x", "ordinal", {}),
        ("t ~ x", "weibull", {}),
    ],
)
def test_every_sampler_of_partitions_draws_or_refuses(folder, formula, family, options, sampler):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fit = tb.fit(formula, str(folder), family, memory="partitions", sampler=sampler, **options, **SHORT)
        except tb.TallbayesError as error:
            assert "in partitions" in str(error) or "use" in str(error).lower()
        else:
            assert np.isfinite(fit.theta).all()


def test_single_rows_of_partitions_are_refused_by_name(folder):
    fit = tb.fit("y ~ x + c", str(folder), "gaussian", memory="partitions", **SHORT)
    rows = tb.shards.Partitions.open(str(folder), "y ~ x + c", "gaussian")
    for ask in (fit.loo, fit.audit, lambda: fit.update(pa.table({"y": [0.0], "x": [0.0], "c": ["a"]}))):
        with pytest.raises(tb.DataError, match=r"stayed in their partitions.*memory='disk'"):
            ask()
    with pytest.raises(tb.ModelError, match=r"an audit reads single rows.*memory='disk'"):
        fit.audit(rows.model)
