"""Internals of `tallbayes.remote.partition_cache`; what users see of it is tested in test_shards.py."""

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
from tallbayes.errors import ModelError, OptionError, TallbayesWarning
from tallbayes.priors import prior_value
from tallbayes.remote import partition_cache, pool
from tallbayes.remote.partition_cache import forget, most_held
from tallbayes.results.distances import between
from tallbayes.shards import COMBINERS, Convention, Partitions
from tallbayes.testing import THRESHOLD, log_likelihood

ROWS, SHARDS = 3000, 4
PRIOR = tb.priors.normal(2.0)


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
