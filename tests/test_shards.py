"""Sharded runs against exact posteriors, partitions against the same rows in memory, and a real cluster that loses a worker."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.bounds.catalogue import certify
from tallbayes.data.moments import Moments
from tallbayes.data.split import exchangeability_doubts, merge_moments, take, to_power
from tallbayes.errors import DataError, ModelError, OptionError, StoreError, TallbayesWarning
from tallbayes.priors import prior_value
from tallbayes.remote import partition_cache, pool
from tallbayes.remote.partition_cache import forget, most_held
from tallbayes.results.distances import between
from tallbayes.shards import COMBINERS, Consensus, Convention, Nonparametric, Partitions, SubPosteriors, diagnose
from tallbayes.testing import THRESHOLD, log_likelihood

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
@pytest.mark.parametrize("combine", ["median", "wasserstein"])
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


def test_sub_models_multiply_to_the_posterior(logistic):
    """The product convention at random points: the sum of sub-posterior log densities is the log posterior, up to a constant."""
    from tallbayes.shards.jobs import Job, ModelRows, shard_densities

    parts = np.array_split(np.random.default_rng(0).permutation(ROWS), SHARDS)
    jobs = [Job(k, ModelRows(logistic, p), 1.0, PRIOR.power(1 / SHARDS)) for k, p in enumerate(parts)]
    theta = np.random.default_rng(1).standard_normal((6, 2))
    found = np.sum([shard_densities(job, theta) for job in jobs], axis=0)
    whole = np.array([logistic.log_posterior(t) for t in theta])
    np.testing.assert_allclose(found - found[0], whole - whole[0], rtol=1e-10)
    powered = Job(0, ModelRows(logistic, parts[0]), 4.0, PRIOR, logistic.prior_terms).model()
    likelihood = jobs[0].model().log_posterior(theta[0]) - jobs[0].model().log_prior(theta[0])
    assert powered.log_posterior(theta[0]) == pytest.approx(4.0 * likelihood + logistic.log_prior(theta[0]), rel=1e-12)
    assert powered.data.total_weight == 4.0 * parts[0].size


def test_shards_of_an_average_share_the_prior_of_all_rows():
    """The default prior takes its scales from columns: a shard must not take them from its own."""
    X, y = logistic_arrays(400)
    X[:200, 1] *= 10.0
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    with pytest.warns(TallbayesWarning):
        fit = sharded(model, "wasserstein", shards=np.repeat([0, 1], 200), draws=200)
    assert fit.meta["default_prior"]
    from tallbayes.shards.jobs import Job, ModelRows

    sub = Job(0, ModelRows(model, np.arange(200)), 2.0, model.prior, model.prior_terms).model()
    own = Job(0, ModelRows(model, np.arange(200)), 2.0, model.prior).model()
    theta = np.array([0.3, 2.0])
    assert sub.log_prior(theta) == model.log_prior(theta) != own.log_prior(theta)


@pytest.mark.parametrize(
    "prior", [tb.priors.cauchy(), tb.priors.weakly_informative(), tb.priors.student_t(2.0)], ids=lambda p: p.name
)
def test_a_prior_whose_power_is_improper_is_refused(prior):
    model = tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(400)), prior)
    for combine in ("consensus", "nonparametric", "moment-sharing"):
        with pytest.raises(OptionError, match="normal"):
            sharded(model, combine)


def test_powers_of_priors():
    """prior.power(p) is the density to the power p, up to a constant, for every kind that has one."""
    data = tb.Dataset.from_arrays(*logistic_arrays(50))
    joint = tb.priors.multivariate_normal([0.5, -1.0], [[2.0, 0.7], [0.7, 1.0]])
    thetas = np.random.default_rng(2).standard_normal((10, 2)) * 3
    kinds = [tb.priors.flat(), PRIOR, tb.priors.normal([1.0, 3.0], [0.5, -1.0]), tb.priors.laplace(0.7, 0.2), joint]
    for prior, power in [*((k, 0.25) for k in kinds), (tb.priors.student_t(np.array([5.0, 9.0]), 2.0), 0.5)]:
        whole, part = prior.terms(data, 1, 0, False), prior.power(power).terms(data, 1, 0, False)
        values = np.array([[prior_value(t, theta) for t in (whole, part)] for theta in thetas])
        values -= values[0]
        np.testing.assert_allclose(values[:, 1], power * values[:, 0], atol=1e-10)
    assert joint.power(1.0) is joint
    with pytest.raises(OptionError, match="positive"):
        PRIOR.power(0.0)


def test_the_joint_normal_prior_has_its_derivatives_and_draws():
    from tallbayes.priors import from_dict, prior_gradient, prior_precision

    mean, precision = np.array([0.5, -1.0]), np.array([[2.0, 0.7], [0.7, 1.0]])
    prior = tb.priors.multivariate_normal(mean, precision)
    data = tb.Dataset.from_arrays(*logistic_arrays(50))
    terms, theta = from_dict(prior.as_dict()).terms(data, 1, 0, False), np.array([0.2, 0.4])
    gradient = np.zeros(2)
    value = prior_gradient(terms, theta, gradient)
    assert value == pytest.approx(-0.5 * (theta - mean) @ precision @ (theta - mean)) == prior_value(terms, theta)
    np.testing.assert_allclose(gradient, -precision @ (theta - mean))
    np.testing.assert_array_equal(prior_precision(terms, theta), precision)
    rng = np.random.default_rng(0)
    draws = np.array([prior.sample(terms, rng) for _ in range(4000)])
    np.testing.assert_allclose(np.cov(draws.T), np.linalg.inv(precision), atol=THRESHOLD * 2.0 / np.sqrt(4000))
    with pytest.raises(OptionError, match="one for each parameter"):
        tb.priors.multivariate_normal(np.zeros(3), np.eye(3)).terms(data, 1, 0, False)
    with pytest.raises(OptionError, match="positive definite"):
        tb.priors.multivariate_normal(np.zeros(2), -np.eye(2))
    with pytest.raises(OptionError, match="same size"):
        tb.priors.multivariate_normal(np.zeros(2), np.eye(3))


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
    with pytest.raises(OptionError, match="formula= and family="):
        tb.sample_shards(str(tmp_path))
    flat = tb.models.logistic(tb.Dataset.from_arrays(np.ones((40, 1)), np.arange(40) < 3), tb.priors.flat())
    with pytest.raises(ModelError, match=r"shard \d+: .*the posterior under a flat prior is improper"):
        sharded(flat, "consensus", shards=8)


def test_a_series_is_not_split(tmp_path):
    """Rows of an ARMA model depend on those before them: an array of them, one read from a file, and partitions are refused."""
    rng = np.random.default_rng(11)
    y = np.convolve(rng.standard_normal(600), [1.0, 0.5], "valid")
    read = tb.Dataset.from_arrays(np.ones((y.size, 1)), y, columns=["Intercept"])
    for series in (y, read):
        for shards in (2, np.repeat([0, 1], [300, 299])):
            with pytest.raises(ModelError, match=r"not exchangeable.*tallbayes\.sample\(model\)"):
                tb.sample_shards(tb.models.arma(series, prior=PRIOR), shards=shards, progress=False)
    for k, part in enumerate(np.array_split(y, 2)):
        pq.write_table(pa.table({"y": part}), tmp_path / f"{k}.parquet")
    with pytest.raises(ModelError, match="not exchangeable"):
        tb.sample_shards(str(tmp_path), formula="y ~ 1", family="arma", prior=PRIOR, progress=False)
    with pytest.raises(ModelError, match="not exchangeable"):
        Partitions.open(str(tmp_path), "y ~ 1", "arma", PRIOR)
    assert most_held() <= 2  # errors do not keep the rows of their partition


def test_without_dask_the_error_names_the_extra():
    code = (
        "import sys; sys.modules['distributed'] = None\n"
        "import tallbayes as tb\n"
        "from tallbayes.remote.pool import connect\n"
        "try: connect('tcp://host:8786')\n"
        "except tb.OptionError as error: print(error)\n"
    )
    path = os.pathsep.join(str(p) for p in [os.path.dirname(os.path.dirname(tb.__file__))])
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert "pip install 'tallbayes[dask]'" in found.stdout, found.stderr


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


def test_parts_of_a_data_set():
    data = linear_model(weights=np.random.default_rng(0).uniform(0.5, 2.0, ROWS)).data
    parts = np.array_split(np.random.default_rng(1).permutation(ROWS), 3)
    pieces = [take(data, p) for p in parts]
    whole = merge_moments([p.moments for p in pieces])
    for name in ("mean", "scatter", "low", "high", "two_valued"):
        np.testing.assert_allclose(getattr(whole, name), getattr(data.moments, name), rtol=1e-10)
    powered = to_power(take(data, parts[0]), 3.0)
    again = Moments(data.moments.names)
    again.add(powered.records[:, : data.d + 3])
    for name in ("mean", "scatter", "low", "high"):
        np.testing.assert_allclose(getattr(powered.moments, name), getattr(again, name), rtol=1e-10)
    with pytest.raises(DataError, match="empty"):
        take(data, np.empty(0, int))


def test_sorted_partitions_are_told_from_random_ones():
    data = linear_model().data
    random = np.array_split(np.random.default_rng(2).permutation(ROWS), 8)
    by_value = np.array_split(np.argsort(data.records[:, 1]), 8)
    assert exchangeability_doubts([take(data, p).moments for p in random]) == []
    said = exchangeability_doubts([take(data, p).moments for p in by_value])
    assert "'x1'" in said[0] and "repartition" in said[0]


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


FORMULA = "y ~ x + C(g) + bs(z, df=5)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("parts"))


@pytest.fixture(scope="module")
def local(folder):
    data = tb.read(str(folder), FORMULA, offset="log(t)", progress=False)
    return tb.models.poisson(data, PRIOR)


def assert_passes_agree(parts, model):
    theta = 0.1 * np.random.default_rng(5).standard_normal(model.dim)
    assert parts.model.names == model.names and parts.n == model.data.n
    from tallbayes.engine import passes

    for found, expected in zip(parts.total_hessian(theta), passes.total_hessian(model.rows, theta), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())
    assert parts.total_value(theta) == pytest.approx(log_likelihood(model, theta), rel=1e-10)
    np.testing.assert_allclose(parts.total_gradient(theta)[1], passes.total_gradient(model.rows, theta)[1], rtol=1e-9)
    mode, here = parts.find_mode(tolerance=1e-9, progress=False), tb.find_mode(model, progress=False, tolerance=1e-9)
    np.testing.assert_allclose(mode.reference, here.reference, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(mode.precision, here.precision, rtol=1e-9, atol=1e-9 * np.abs(here.precision).max())
    assert parts.largest_norm(mode) == pytest.approx(here.norms.max(), rel=1e-9)
    assert_totals_agree(parts.totals(mode), here)
    return mode


def assert_totals_agree(totals, mode):
    """The totals of T9 class by class, and the rate of a pair, against the tables that one machine builds."""
    from tallbayes.bounds.tables import rate_count, total_rate

    bound, _ = certify(mode, "T9")
    sums = np.diff(bound.local.cumulative[bound.chunk])
    filled = np.flatnonzero(totals.counts)
    np.testing.assert_allclose(totals.local[filled], sums, rtol=1e-9)
    np.testing.assert_allclose(totals.radius[filled], bound.radius, rtol=1e-9)
    assert totals.counts.sum() == mode.model.data.n and totals.bounded == bound.bounded
    rng = np.random.default_rng(6)
    for _ in range(5):
        a, b = rng.standard_normal((2, mode.model.dim))
        assert totals.rate(a, b) == pytest.approx(total_rate(bound, a, b, np.zeros(rate_count(bound))), rel=1e-8)


def test_partitions_equal_the_same_rows_in_memory(folder, local):
    parts = Partitions.open(str(folder), FORMULA, "poisson", PRIOR, offset="log(t)")
    assert_passes_agree(parts, local)
    assert max(parts.held) <= 2 and most_held() <= 2
    index = np.array([0, local.data.n - 1, 1700, 5])
    np.testing.assert_array_equal(parts.take(index).records, local.data.records[index])
    assert Partitions.open(str(folder), FORMULA, "poisson", PRIOR, offset="log(t)", partitions=2).n == parts.n
    forget()


def kept_partitions():
    """Partitions that the cache of this process keeps alive."""
    gc.collect()
    return 0 if partition_cache._kept is None else 1


def test_partitions_are_released_when_a_run_is_over(folder):
    """By close, by the end of a with block, by the end of the last reference, and by `sample_shards`."""
    gc.collect()  # partitions of other tests
    rows = Partitions.open(str(folder), "y ~ x", "poisson", PRIOR)
    rows.total_value(np.zeros(2))
    assert kept_partitions() == 1  # for the next pass
    rows.close()
    assert kept_partitions() == 0 and np.isfinite(rows.total_value(np.zeros(2))) and kept_partitions() == 1
    del rows
    assert kept_partitions() == 0
    with Partitions.open(str(folder), "y ~ x", "poisson", PRIOR) as again:
        assert kept_partitions() == 1
    assert kept_partitions() == 0 and again.n > 0
    tb.shards.find_mode(str(folder), "y ~ x", family="poisson", prior=PRIOR, progress=False)
    assert kept_partitions() == 0


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


def test_files_are_sampled_as_shards_and_sorted_ones_warned_of(tmp_path):
    rng = np.random.default_rng(8)
    x, g = np.sort(rng.standard_normal(4000)), rng.choice(["a", "b"], 4000)
    table = pa.table({"y": (rng.random(4000) < 1 / (1 + np.exp(-x))).astype(int), "x": x, "g": g})
    (tmp_path / "sorted").mkdir()
    for k in range(4):
        pq.write_table(table.slice(1000 * k, 1000), tmp_path / "sorted" / f"{k}.parquet")
    options = {"family": "logistic", "prior": PRIOR, "draws": 200, "warmup": 200, "seed": 7, "progress": False}
    options |= {"formula": "y ~ x + C(g)", "combine": "gaussian", "sampler": "exact-minibatch"}
    with pytest.warns(TallbayesWarning, match="random parts of the rows"):
        tb.sample_shards(str(tmp_path / "sorted"), **options)
    files = tb.shards.repartition(str(tmp_path / "sorted"), tmp_path / "spread", shards=4, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TallbayesWarning)
        fit = tb.sample_shards(files, **options)
    assert kept_partitions() == 0
    assert fit.names == ("Intercept", "x", "C(g)[T.b]") and len(fit.shards) == 4
    assert abs(fit.theta[0, :, 1].mean() - 1.0) < THRESHOLD * fit.laplace_factor[1, 1] * 2


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


def kept_partitions_of_worker():
    from tallbayes.remote import partition_cache

    return partition_cache._kept is not None


@pytest.fixture(scope="module")
def client():
    with cluster() as found:
        yield found


def test_passes_on_a_cluster_equal_local_ones(client, folder, local):
    parts = Partitions.open(str(folder), FORMULA, "poisson", PRIOR, offset="log(t)", client=client)
    assert_passes_agree(parts, local)
    assert max(parts.held) <= 2 and max(client.run(most_held).values()) <= 2
    assert any(client.run(kept_partitions_of_worker).values())
    parts.close()
    assert not any(client.run(kept_partitions_of_worker).values())


def test_a_killed_worker_loses_only_its_shard(client, logistic, folder, monkeypatch):
    """A worker is killed in the middle of its second shard: its first result is kept, the second is computed elsewhere."""
    options = {"combine": "consensus", "sampler": "mh", "draws": 15_000, "warmup": 500}
    quiet = sharded(logistic, **options)
    killed, plain = [], pool.run

    def deadly(task, arguments, client=None, **given):
        for number, result in plain(task, arguments, client, **given):
            if given.get("label") == "shards" and not killed:
                time.sleep(0.5)  # the worker is in its next shard
                killed.append(result.meta["shard"]["process"])
                os.kill(killed[0], signal.SIGKILL)
            yield number, result

    monkeypatch.setattr(pool, "run", deadly)
    fit = sharded(logistic, client=client, **options)
    processes = [s["process"] for s in fit.meta["shards"]]
    assert killed and processes.count(killed[0]) == 1 and len(set(processes)) >= 2
    np.testing.assert_array_equal(fit.theta, quiet.theta)  # whoever computed them, the draws are those of the seed


def test_an_error_in_a_shard_is_raised_with_its_number_and_not_retried(client, tmp_path):
    write_files(tmp_path / "rows", count=3)
    table = pq.read_table(tmp_path / "rows" / "1.parquet")
    pq.write_table(table.set_column(0, "y", pa.array(np.full(table.num_rows, 0.5))), tmp_path / "rows" / "1.parquet")
    with pytest.raises(DataError, match=r"partition 1: .*'y' is 0\.5"):
        tb.sample_shards(
            str(tmp_path / "rows"), "mh", formula="y ~ x", family="poisson", prior=PRIOR, client=client, progress=False
        )


@pytest.mark.slow
def test_a_killed_worker_goes_on_from_the_checkpoint(logistic, tmp_path, monkeypatch):
    """Chains are saved every fifth of a second here; the shard that was killed goes on, bit for bit."""
    options = {"combine": "consensus", "sampler": "mh", "draws": 60_000, "warmup": 500}
    quiet = sharded(logistic, **options)

    def often():
        from tallbayes.run import driver

        driver.SAVE_SECONDS = 0.2

    def progressed():
        return [p for p in (tmp_path / "run").glob("shard-*/chain-0.draws") if p.stat().st_size > 0.3 * 60_000 * 8 * 10]

    with cluster() as found:
        found.run(often)
        import threading

        def assassin():
            while not progressed():
                time.sleep(0.05)
            os.kill(next(iter(found.run(os.getpid).values())), signal.SIGKILL)

        thread = threading.Thread(target=assassin)
        thread.start()
        fit = sharded(logistic, client=found, checkpoint=tmp_path / "run", **options)
        thread.join()
    assert any(s["resumed"] for s in fit.meta["shards"])
    np.testing.assert_array_equal(fit.theta, quiet.theta)


@pytest.mark.slow
@pytest.mark.parametrize("combine", list(COMBINERS))
def test_every_combination_is_near_the_posterior_of_a_logistic_model(logistic, combine):
    """Few shards, two parameters, 3000 rows: normal products are near, kernels smooth by a part of a sd, averages drift by sqrt(B)."""
    reference = tb.sample(logistic, "exact-minibatch", draws=5000, seed=9, progress=False).theta.reshape(-1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TallbayesWarning)
        fit = sharded(logistic, combine, draws=4000)
    distance = between(fit.theta[0], reference, fit.weights[0])
    combiner = tb.shards.resolve(combine)
    bound = 0.25 if combiner.convention is Convention.PRODUCT and not combiner.overlap else 1.0 if combiner.overlap else 1.5
    assert distance.w1_largest < bound


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
