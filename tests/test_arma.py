"""ARMA models: likelihood against a linear filter and against statsmodels, derivatives, windows, and who may sample them."""

import numpy as np
import pytest
from scipy.signal import lfilter

import tallbayes as tb
from tallbayes.errors import DataError, ModelError, OptionError
from tallbayes.samplers import SAMPLERS, resolve
from tallbayes.testing import THRESHOLD, exact_posterior, invariance_scores, log_likelihood

ORDERS = {
    (1, 1): [0.5, 0.7, 0.1],
    (2, 1): [0.5, -0.3, 0.6, 0.2],
    (0, 2): [0.4, 0.3, -0.1],
    (3, 0): [0.3, 0.2, -0.4, 0.5],
    (1, 3): [-0.6, 0.3, -0.2, 0.1, 0.0],
}
every_order = pytest.mark.parametrize("order", ORDERS, ids=str)


def series(n, seed=0, alpha=0.5, beta=0.7, shift=0.2):
    z = np.random.default_rng(seed).standard_normal(n + 200)
    return lfilter([1.0, beta], [1.0, -alpha], z)[200:] + shift


def innovations(y, theta, p, q, first=None):
    """e_t from `first` on (p if not given), zero before: by scipy's filter."""
    first = p if first is None else first
    u = y[first:] - theta[p + q]
    for i in range(p):
        u = u - theta[i] * y[first - 1 - i : y.size - 1 - i]
    return lfilter([1.0], np.concatenate([[1.0], theta[p : p + q]]), u)


@every_order
@pytest.mark.parametrize("sigma", [None, 1.3])
def test_the_likelihood_is_that_of_a_linear_filter(order, sigma):
    p, q = order
    y, theta = series(3000), np.array(ORDERS[order] + ([0.2] if sigma is None else []))
    tau, scale = (0.2, np.exp(0.2)) if sigma is None else (0.0, sigma)
    e = innovations(y, theta, p, q)
    expected = -e.size * tau - 0.5 * (e @ e) / scale**2
    found = log_likelihood(tb.models.arma(y, p=p, q=q, sigma=sigma), theta)
    assert abs(found - expected) <= 1e-10 * abs(expected)


def test_it_differs_from_the_exact_likelihood_by_an_amount_that_does_not_grow():
    from statsmodels.tsa.arima.model import ARIMA

    y, theta = series(8000), np.array([0.45, 0.6, 0.15, 0.1])
    gaps = []
    for n in (500, 2000, 8000):
        exact = ARIMA(y[:n], order=(1, 0, 1), trend="c").loglike([0.15 / (1 - 0.45), 0.45, 0.6, np.exp(0.2)])
        conditional = log_likelihood(tb.models.arma(y[:n]), theta) - 0.5 * (n - 1) * np.log(2 * np.pi)
        gaps.append(exact - conditional)
    assert abs(gaps[0]) < 20.0
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-6)


@pytest.fixture(scope="module")
def autoregression():
    y = series(150, beta=0.0, alpha=0.6)
    return tb.models.arma(y, prior=tb.priors.normal(2.0), p=1, q=0, sigma=1.0)


@pytest.mark.parametrize("name", ["mh", pytest.param("hmc", marks=pytest.mark.slow)])
def test_full_data_samplers_keep_exact_draws(name, autoregression):
    posterior = exact_posterior(autoregression, points=201)
    scores = invariance_scores(resolve(name), autoregression, posterior, starts=5000)
    assert np.abs(scores).max() < THRESHOLD
    y = autoregression.data.y
    tempered = tb.models.arma(y, prior=tb.priors.normal(2.0), p=1, q=0, sigma=1.0 / np.sqrt(1.2))
    assert np.abs(invariance_scores(resolve(name), tempered, posterior, starts=5000)).max() > THRESHOLD


def test_every_sampler_of_single_rows_refuses_a_series(autoregression):
    mode = tb.find_mode(autoregression, progress=False)
    refused = [name for name in SAMPLERS if not resolve(name).any_rows]
    assert "exact-minibatch" in refused and not {"mh", "nuts", "informed", "lwa"} & set(refused)
    for name in refused:
        with pytest.raises(ModelError, match=r"rows of arma are not conditionally independent.*'nuts'"):
            resolve(name).setup(autoregression, mode, 0, False)
    with pytest.raises(ModelError, match="not conditionally independent"):
        tb.sample(autoregression, "exact-minibatch", mode=mode, progress=False)
    assert tb.auto.choose(autoregression, mode, None, 0, False)[0].name == "nuts"


def test_a_run_is_saved_resumed_and_rebuilt_from_a_file(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    y = series(150, beta=0.0, alpha=0.6)
    pq.write_table(pa.table({"y": y}), tmp_path / "series.parquet")
    data = tb.read(tmp_path / "series.parquet", "y ~ 1", store=tmp_path / "store", progress=False)
    model = tb.models.arma(data, prior=tb.priors.normal(2.0), p=1, q=0, sigma=1.0)
    theta = np.array([0.5, 0.1])
    plain = tb.models.arma(y, prior=tb.priors.normal(2.0), p=1, q=0, sigma=1.0)
    assert model.log_posterior(theta) == pytest.approx(plain.log_posterior(theta), rel=1e-12)
    whole = tb.sample(model, "mh", draws=60, warmup=30, chains=1, seed=4, progress=False)
    tb.sample(model, "mh", draws=20, warmup=30, chains=1, seed=4, checkpoint=tmp_path / "run", progress=False)
    resumed = tb.resume(tmp_path / "run", draws=60, progress=False)
    np.testing.assert_array_equal(whole.theta, resumed.theta)
    again = tb.load(resumed.save(tmp_path / "fit.nc"))
    assert again.names == ("ar1", "intercept") and again.meta["model"] == model.describe()
    np.testing.assert_array_equal(again.theta, resumed.theta)
    with pytest.raises(ModelError, match="next values of a series depend on the last ones"):
        again.predict(np.ones((1, 1)))
    with pytest.raises(OptionError, match="independent given theta"):
        again.loo(model)
    assert again.audit(model, pairs=5).passed


def test_starts_are_inside_the_region(autoregression):
    with pytest.raises(OptionError, match=r"init \[1.1, 0.0\] is outside the stationary and invertible region"):
        tb.sample(autoregression, "mh", init=np.array([1.1, 0.0]), progress=False)
    near = tb.models.arma(series(40, beta=0.0, alpha=0.97), p=1, q=0, sigma=1.0)
    fit = tb.sample(near, "mh", draws=5, warmup=0, chains=20, seed=1, progress=False)
    assert (np.abs(fit.theta[:, :, 0]) < 1.0).all()
    prior = tb.sample(autoregression, "mh", draws=5, warmup=0, chains=20, seed=1, init="prior", progress=False)
    assert (np.abs(prior.theta[:, :, 0]) < 1.0).all()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda y: tb.models.arma(y, p=-1), "p must be a whole number of at least 0 and at most 20"),
        (lambda y: tb.models.arma(y, q=1.5), "q must be a whole number"),
        (lambda y: tb.models.arma(y, p=0, q=0), "use tallbayes.models.normal"),
        (lambda y: tb.models.arma(y, sigma=0.0), "sigma must be a positive number"),
        (lambda y: tb.models.arma(y, lead=-1), "lead must be a whole number of at least 0; got -1"),
        (lambda y: tb.models.arma(y[:12]), "needs at least 18 observations; the series has 12"),
        (lambda y: tb.models.arma(np.append(y, np.nan)), "row 100"),
        (lambda y: tb.models.arma(y.reshape(10, 10)), "a vector of numbers in the order of time"),
        (lambda y: tb.models.arma(tb.Dataset.from_arrays(np.arange(100.0), y)), "arma has no regressors.*'x0'"),
        (lambda y: tb.models.arma(tb.Dataset.from_arrays(np.ones(100), y, offset=y)), "neither offset nor weights"),
        (lambda y: tb.models.arma(y, prior=tb.priors.normal([1.0, 2.0])), None),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises((DataError, OptionError), match=message):
        make(series(100)).prior_terms  # noqa: B018


def test_a_constant_or_growing_series_has_a_clear_error():
    with pytest.raises(ModelError, match="a constant series has no ARMA model"):
        tb.find_mode(tb.models.arma(np.full(100, 2.0)), progress=False)
    growing = 1.05 ** np.arange(200) + 0.1 * np.random.default_rng(0).standard_normal(200)
    with pytest.raises(ModelError, match=r"Lower p or q.*difference a series"):
        tb.find_mode(tb.models.arma(growing, prior=tb.priors.flat(), p=1, q=0), progress=False)
