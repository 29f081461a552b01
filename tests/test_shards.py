"""Sharded runs against exact posteriors, partitions against the same rows in memory, and a real cluster that loses a worker."""

import contextlib
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.errors import DataError, ModelError, OptionError, StoreError, TallbayesWarning
from tallbayes.shards import Consensus, Nonparametric, Partitions, SubPosteriors, diagnose
from tallbayes.testing import THRESHOLD

ROWS, SHARDS = 3000, 4
PRIOR = tb.priors.normal(2.0)
TIGHT = 0.05  # prior sd of the linear model, whose posterior sd is 0.017: a prior counted B times, or 1/B times, shows


def linear_model(rows=ROWS, dtype="float64", weights=None):
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(rows), rng.standard_normal((rows, 2))])
    y = X @ [0.5, -1.0, 2.0] + rng.standard_normal(rows)
    return tb.models.gaussian(tb.Dataset.from_arrays(X, y, dtype=dtype, weights=weights), tb.priors.normal(TIGHT), sigma=1.0)


def exact(model):
    """Mean and covariance of the posterior of a Gaussian model with sigma = 1."""
    d = model.data.d
    x, y, w = model.data.records[:, :d], model.data.y, model.data.records[:, d + 2]
    precision = (x.T * w) @ x + np.eye(d) / TIGHT**2
    return np.linalg.solve(precision, x.T @ (w * y)), np.linalg.inv(precision)


def whitened_moments(theta, mean, covariance):
    white = (theta - mean) @ np.linalg.inv(np.linalg.cholesky(covariance)).T
    return white.mean(0), np.atleast_2d(np.cov(white.T))


@pytest.fixture(scope="module")
def linear():
    return linear_model()


@pytest.fixture(scope="module")
def logistic():
    return tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(ROWS)), PRIOR)


def sharded(model, combine, **options):
    given = {
        "sampler": "exact-minibatch",
        "shards": SHARDS,
        "draws": 1000,
        "warmup": 200,
        "seed": 5,
        "progress": False,
        **options,
    }
    return tb.sample_shards(model, combine=combine, **given)


EXACT = ("consensus", "gaussian", "moment-sharing")


@pytest.mark.parametrize("combine", EXACT)
def test_a_linear_model_is_combined_exactly(linear, combine):
    """Bounds from the effective size of the shards; estimated precisions multiply the variance of the mean by d + 3."""
    fit = sharded(linear, combine, sampler="mh", draws=5000)
    mean, covariance = exact(linear)
    size = min(s["ess"] for s in fit.meta["shards"]) / 2
    first, second = whitened_moments(fit.theta[0], mean, covariance)
    assert np.abs(first).max() < THRESHOLD * np.sqrt((linear.dim + 3) / size)
    assert np.abs(second - np.eye(linear.dim)).max() < THRESHOLD * np.sqrt(2.0 / size) + 0.02
    assert fit.guarantee.kind == "HEURISTIC" and fit.status == "complete" and len(fit.shards) == SHARDS
    assert fit.diagnostics["divergence_from_laplace"] < 0.1


@pytest.mark.filterwarnings("ignore:.*the chains disagree")  # of a shard, barely
def test_importance_weights_find_the_posterior(linear):
    fit = sharded(linear, "importance", sampler="mh", draws=2000)
    mean, covariance = exact(linear)
    white = (fit.theta[0] - mean) @ np.linalg.inv(np.linalg.cholesky(covariance)).T
    estimate = np.average(white, axis=0, weights=fit.weights[0])
    assert np.abs(estimate).max() < THRESHOLD / np.sqrt(fit.diagnostics["effective_draws"])
    assert fit.evals.sum() >= fit.theta.shape[1] * linear.data.n  # every draw is weighed on all rows


@pytest.mark.filterwarnings("ignore:.*the chains disagree")  # of a shard, barely
@pytest.mark.parametrize("combine", ["median", "wasserstein", "entropic"])
def test_averages_have_the_spread_of_the_posterior(linear, combine):
    """Sub-posteriors with the likelihood to the power B have the spread of the posterior, shifted by sqrt(B) of it."""
    said = (
        pytest.warns(TallbayesWarning, match="robust estimate of location") if combine == "median" else contextlib.nullcontext()
    )
    with said:
        fit = sharded(linear, combine, sampler="mh", draws=2000)
    assert ("sqrt(B)" in repr(fit.summary())) == (combine == "median")
    mean, covariance = exact(linear)
    sd = np.sqrt(np.diag(covariance))
    for shard in fit.shards:
        np.testing.assert_allclose(shard.theta.reshape(-1, 3).std(0) / sd, 1.0, atol=0.2)
    assert np.abs((fit.theta[0].mean(0) - mean) / sd).max() < THRESHOLD * np.sqrt(SHARDS)


@pytest.mark.parametrize(
    "prior", [tb.priors.cauchy(), tb.priors.weakly_informative(), tb.priors.student_t(2.0)], ids=lambda p: p.name
)
def test_a_prior_whose_power_is_improper_is_refused(prior):
    model = tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(400)), prior)
    for combine in ("consensus", "nonparametric", "moment-sharing"):
        with pytest.raises(OptionError, match="normal"):
            sharded(model, combine)


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")  # short chains
def test_results_do_not_depend_on_threads_and_any_sampler_serves(logistic):
    first = sharded(logistic, "consensus", sampler="mh", draws=100, warmup=50, workers=1)
    again = sharded(logistic, "consensus", sampler="mh", draws=100, warmup=50, workers=3)
    np.testing.assert_array_equal(first.theta, again.theta)
    assert sharded(logistic, "consensus", sampler="auto", draws=50, warmup=20).meta["shards"][0]["guarantee"] == "EXACT"
    assert sum(s["rows"] for s in first.meta["shards"]) == ROWS


def test_the_fit_is_complete_and_can_be_saved(logistic, tmp_path):
    fit = sharded(logistic, "gaussian", draws=200)
    total = sum(int(s.evals.sum()) for s in fit.shards)
    assert fit.evals.sum() == total and fit.theta.shape == (1, 400, 2)
    assert "gaussian of 4 shards" in repr(fit.summary()) and "HEURISTIC" in repr(fit.summary())
    back = tb.load(fit.save(tmp_path / "fit.nc"))
    np.testing.assert_array_equal(back.theta, fit.theta)
    assert len(back.meta["shards"]) == 4 and back.meta["notes"]["shards"] == 4
    assert fit.predict(np.ones((1, 2))).shape == (1, 3)
    assert fit.report(tmp_path / "fit.html", plots=False).exists()
    with pytest.raises(OptionError, match="no decisions on the full data"):
        fit.audit(logistic)


@pytest.mark.filterwarnings("ignore:.*the response .* is 0 in all")
def test_unreasonable_requests_are_refused(logistic, tmp_path):
    for options, message in (
        ({"combine": "consensus", "shards": 0}, "between 1 and the number of rows"),
        ({"combine": "consensus", "shards": 2000}, "use fewer"),
        ({"combine": "consensus", "shards": np.zeros(3)}, "one label for each"),
        ({"combine": "konsensus"}, "did you mean 'consensus'"),
        ({"combine": "consensus", "sampler": "hmcc"}, "unknown sampler"),
        ({"combine": "consensus", "draws": 0}, "draws"),
        ({"combine": "consensus", "seed": -1}, "seed"),
        ({"combine": "consensus", "formula": "y ~ x"}, "belongs to paths"),
        ({"combine": "consensus", "client": 7}, "dask.distributed.Client"),
        ({"combine": "consensus", "client": "tcp://127.0.0.1:1"}, "dask scheduler"),
    ):
        with pytest.raises(OptionError, match=message):
            sharded(logistic, **options)
    with pytest.raises(OptionError, match="paths need formula="):
        tb.sample_shards(str(tmp_path))
    flat = tb.models.logistic(tb.Dataset.from_arrays(np.ones((40, 1)), np.arange(40) < 3), tb.priors.flat())
    with pytest.raises(ModelError, match=r"shard \d+: .*the posterior under a flat prior is improper"):
        sharded(flat, "consensus", shards=8)


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")  # short chains
def test_a_checkpointed_run_goes_on_and_refuses_other_options(logistic, tmp_path):
    first = sharded(logistic, "consensus", sampler="mh", draws=100, checkpoint=tmp_path / "run")
    again = sharded(logistic, "consensus", sampler="mh", draws=100, checkpoint=tmp_path / "run", seed=None)
    np.testing.assert_array_equal(first.theta, again.theta)
    assert all(s["resumed"] for s in again.meta["shards"]) and not any(s["resumed"] for s in first.meta["shards"])
    with pytest.raises(StoreError, match="other options"):
        sharded(logistic, "consensus", sampler="mh", draws=200, checkpoint=tmp_path / "run")
    (tmp_path / "run" / "shards.json").write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        sharded(logistic, "consensus", sampler="mh", draws=100, checkpoint=tmp_path / "run")


def test_failures_that_can_be_foreseen_are_warned_of():
    """Disjoint supports, shards that do not count, skewed sub-posteriors in many batches, and a combination far from Laplace."""
    rng = np.random.default_rng(3)

    def said(draws, combiner, laplace=None):
        sub = SubPosteriors(draws, combiner.convention)
        return " ".join(diagnose(sub, combiner(sub, draws=200), combiner, laplace)[1])

    plain = rng.standard_normal((8, 1000, 2)) + rng.standard_normal((8, 1, 2))
    assert said(plain, Consensus(), (np.zeros(2), np.eye(2) / 8)) == ""
    far = plain + 30.0 * np.arange(8)[:, None, None]
    assert "not random parts of the rows" in said(far, Consensus())
    wide = rng.standard_normal((8, 400, 40)) + rng.standard_normal((8, 1, 40))
    assert "barely overlap" in said(wide, Nonparametric(bandwidth=1.0)) and "barely overlap" not in said(wide, Consensus())
    uneven = plain * np.array([1.0, *([20.0] * 7)])[:, None, None]
    assert "depends on" in said(uneven, Consensus())
    skewed = rng.gamma(2.0, 1.0, (32, 1000, 1))
    assert "are skewed" in said(skewed, Consensus()) and "are skewed" not in said(
        rng.standard_normal((32, 1000, 1)), Consensus()
    )
    assert "nats from the Laplace fit" in said(plain, Consensus(), (np.full(2, 10.0), np.eye(2) / 8))


# partitions in files


def write_files(folder, rows=4000, count=5, seed=4, last="abcd"):
    """Parquet files of counts with levels, a spline and an offset; the last file may have levels that no other has."""
    rng = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True)
    for k in range(count):
        m = rows // count + 7 * k
        x, z = rng.standard_normal(m), rng.uniform(0.0, 4.0, m)
        g = rng.choice(list("abc" if k < count - 1 else last), m)
        t = rng.uniform(0.5, 2.0, m)
        y = rng.poisson(t * np.exp(0.2 + 0.3 * x + 0.2 * np.sin(z) + 0.1 * (g == "b")))
        pq.write_table(pa.table({"y": y, "x": x, "z": z, "g": g, "t": t}), folder / f"{k}.parquet")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("parts"))


def test_partitions_refuse_what_they_cannot_do(folder, tmp_path):
    parts = Partitions.open(str(folder), "y ~ x", "poisson", PRIOR)
    assert parts.model.log_posterior(np.zeros(2)) == parts.total_value(np.zeros(2)) + parts.model.log_prior(np.zeros(2))
    with pytest.raises(ModelError, match="rows of this model are in partitions"):
        _ = parts.model.rows.records
    with pytest.raises(DataError, match="numbered from 0"):
        parts.take([10**9])
    with pytest.raises(OptionError, match="a file is the smallest"):
        Partitions.open(str(folder), "y ~ x", "poisson", PRIOR, partitions=99)
    with pytest.raises(DataError, match="partition 0: row 0: response 'x'"):
        Partitions.open(str(folder), "x ~ y", "poisson", PRIOR)
    with pytest.raises(OptionError, match="unknown family"):
        Partitions.open(str(folder), "y ~ x", "poison", PRIOR)
    with pytest.raises(ModelError, match="no class totals"):
        gaussian = Partitions.open(str(folder), "y ~ x", "gaussian", PRIOR)
        gaussian.totals(gaussian.find_mode(progress=False))
    write_files(tmp_path / "other", count=1)
    pq.write_table(pa.table({"y": [1]}), tmp_path / "other" / "z.parquet")
    with pytest.raises(DataError, match="different columns"):
        Partitions.open(str(tmp_path / "other"), "y ~ x", "poisson", PRIOR)


# a real cluster


@contextlib.contextmanager
def cluster(workers=2):
    distributed = pytest.importorskip("distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address=None,
                silence_logs=50,
            ) as local,
            distributed.Client(local) as client,
        ):
            yield client


@pytest.fixture(scope="module")
def client():
    with cluster() as found:
        yield found


def test_an_error_in_a_shard_is_raised_with_its_number_and_not_retried(client, tmp_path):
    write_files(tmp_path / "rows", count=3)
    table = pq.read_table(tmp_path / "rows" / "1.parquet")
    pq.write_table(table.set_column(0, "y", pa.array(np.full(table.num_rows, 0.5))), tmp_path / "rows" / "1.parquet")
    with pytest.raises(DataError, match=r"partition 1: .*'y' is 0\.5"):
        tb.sample_shards(
            str(tmp_path / "rows"), "mh", formula="y ~ x", family="poisson", prior=PRIOR, client=client, progress=False
        )


@pytest.mark.slow
def test_a_worker_needs_its_shard_and_a_constant(tmp_path):
    """Peak memory of a worker grows by less than twice the shard and 300 MB (the compiler) over what it has before it reads a row."""
    rng = np.random.default_rng(10)
    for k in range(2):
        x = rng.standard_normal((400_000, 10))
        columns = {f"x{j}": x[:, j] for j in range(10)}
        pq.write_table(pa.table({"y": (rng.random(400_000) < 0.3).astype(int), **columns}), tmp_path / f"{k}.parquet")
    with cluster() as found:
        fit = tb.sample_shards(
            str(tmp_path),
            "exact-minibatch",
            formula="y ~ .",
            family="logistic",
            prior=PRIOR,
            client=found,
            draws=200,
            progress=False,
        )
    for shard in fit.shards:
        before, after = shard.meta["shard"]["memory"]
        assert after - before < 2 * shard.meta["shard"]["bytes"] + 300e6
