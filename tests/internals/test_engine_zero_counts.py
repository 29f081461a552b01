"""Internals of `tallbayes.engine.zero_counts`; what users see of it is tested in test_second_predictor.py."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import tallbayes as tb
import tallbayes.engine.zero_counts as zero_counts
from tallbayes.engine.neighbourhood import Neighbourhood, has_third_bounds, third_bounds
from tallbayes.engine.several_functions import vector_hessian, vector_value
from tallbayes.families.gaussian import PredictedScale
from tallbayes.families.hurdle_negbin import HurdleNegbin
from tallbayes.families.hurdle_poisson import HurdlePoisson
from tallbayes.families.student_t import PredictedFree, PredictedStudent
from tallbayes.families.zero_inflated_negbin import ZeroInflatedNegbin
from tallbayes.families.zero_inflated_poisson import ZeroInflatedPoisson
from tallbayes.testing import THRESHOLD, effective_sizes, exact_posterior

COUNTS = {
    "zero_inflated_poisson": ZeroInflatedPoisson(1),
    "zero_inflated_negbin": ZeroInflatedNegbin(1),
    "hurdle_poisson": HurdlePoisson(1),
    "hurdle_negbin": HurdleNegbin(1),
}
CERTIFIED = {
    **{name: (member, (0.0, 1.0, 7.0)) for name, member in COUNTS.items()},
    "gaussian": (PredictedScale(1), (-2.0, 0.3, 6.0)),
    "student_t": (PredictedStudent(4.0, 1), (-2.0, 0.3, 6.0)),
}
every_count = pytest.mark.parametrize(
    "name", ["zero_inflated_poisson", "zero_inflated_negbin", "hurdle_poisson", "hurdle_negbin"]
)
every_certified = pytest.mark.parametrize("name", CERTIFIED)


def log_law(name, eta, a, size, y):
    """The log probability of a count, from scipy."""
    law = stats.poisson(np.exp(eta)) if name.endswith("poisson") else stats.nbinom(size, size / (size + np.exp(eta)))
    q = 1.0 / (1.0 + np.exp(-a))
    zeros = q + (1.0 - q) * law.pmf(0) if name.startswith("zero") else q
    counts = law.pmf(y) if name.startswith("zero") else law.pmf(y) / law.sf(0)
    return np.log(np.where(y == 0, zeros, (1.0 - q) * counts))


def largest_gap(name):
    """Between the values of a family and the law it is named after."""
    member, normaliser = COUNTS[name], tb.models.family_of({"family": name}).log_normaliser
    rng, worst = np.random.default_rng(1), 0.0
    for eta, a, kappa in rng.standard_normal((40, 3)) * [1.5, 2.0, 1.0]:
        u = np.array([eta, a]) if name.endswith("poisson") else np.array([eta, a, kappa])
        for y in (0.0, 1.0, 4.0, 30.0):
            expected = float(log_law(name, eta, a, np.exp(kappa), y))
            found = vector_value(member, u, y) + float(normaliser(member, np.array(y)))
            worst = max(worst, abs(found - expected) / (1.0 + abs(expected)))
    return worst


@every_count
def test_values_are_the_law(name):
    assert largest_gap(name) < 1e-8
    member = COUNTS[name]
    for eta, a in ((-800.0, 0.3), (45.0, -30.0), (800.0, 700.0)):  # nothing overflows
        u = np.array([eta, a] if name.endswith("poisson") else [eta, a, 0.2])
        gradient, hessian = np.empty(u.size), np.empty((u.size, u.size))
        for y in (0.0, 2.0):
            assert not np.isnan(vector_hessian(member, u, y, gradient, hessian))
            assert not np.isnan(gradient).any() and not np.isnan(hessian).any()


def test_zeros_without_those_of_the_counts_are_found(monkeypatch):
    """The mutant that forgets the mass that a Poisson law has at zero."""
    monkeypatch.setattr(zero_counts, "_inflated", zero_counts._hurdle)
    assert largest_gap("zero_inflated_poisson") > 0.1


def neighbourhood(member, y, rng, radius):
    """One row with two columns of the first predictor and two of the second, a random reference and a random whitening."""
    width = 4 + (type(member) in (ZeroInflatedNegbin, HurdleNegbin))
    factor = np.tril(rng.standard_normal((width, width))) * rng.exponential(0.5)
    x, reference = rng.standard_normal((1, 4)), 0.7 * rng.standard_normal(width)
    return Neighbourhood(x, np.array([y]), 0.1 * rng.standard_normal(1), reference, factor, radius, 2)


def largest_share(member, near, rng, count=40, step=1e-4):
    """The largest |third derivative| over its bound, along lines of unit speed within the radius."""
    with np.errstate(over="ignore", invalid="ignore"):
        bound, y = third_bounds(member, near)[0], float(near.y[0])
    if not bound < 1e9:  # nothing to check by differences
        return 0.0
    jacobian = np.vstack([near.x[0, :2] @ near.factor[:2], near.x[0, 2:] @ near.factor[2:4], near.factor[4:]])
    start = np.concatenate([near.eta, near.other, near.reference[4:]])
    gradient, hessian, worst = np.empty(start.size), np.empty((start.size, start.size)), 0.0
    for k in range(count):
        w, v = rng.standard_normal((2, near.reference.size))
        w *= near.radius * (1.0 if k % 2 else rng.random()) / np.linalg.norm(w)
        v = jacobian @ (v / np.linalg.norm(v)) if k % 3 else jacobian @ (w / max(np.linalg.norm(w), 1e-300))
        ends = []
        for sign in (1.0, -1.0):
            vector_hessian(member, start + jacobian @ w + sign * step * v, y, gradient, hessian)
            ends.append(v @ hessian @ v)
        noise = 1e-9 * (1.0 + abs(ends[0])) / step
        worst = max(worst, (abs(ends[0] - ends[1]) / (2 * step) - noise) / bound)
    return worst


def shares(name, count=70):
    member, responses = CERTIFIED[name]
    rng = np.random.default_rng(4)
    return [
        largest_share(member, neighbourhood(member, y, rng, rng.exponential(0.5)), rng) for y in responses for _ in range(count)
    ]


@every_certified
def test_no_line_exceeds_the_certificate(name):
    assert 0.2 < max(shares(name)) <= 1.0  # a bound of a fifth of the size would be violated


@pytest.mark.parametrize("name", ["zero_inflated_poisson", "zero_inflated_negbin"])
def test_a_certificate_that_forgets_how_zeros_couple_the_predictors_is_found(name, monkeypatch):
    monkeypatch.setattr(zero_counts, "largest_on", lambda function, low, high, turns: 0.0 * low)
    assert max(shares(name)) > 1.0


def test_unknown_degrees_of_freedom_have_no_certificate():
    assert not has_third_bounds(PredictedFree(1))


def columns_of(n, seed=1):
    rng = np.random.default_rng(seed)
    return rng, np.column_stack([np.ones(n), rng.standard_normal(n)]), np.column_stack([np.ones(n), rng.standard_normal(n)])


def counts_of(name, n, seed=1):
    """Responses, and both designs."""
    rng, X, Z = columns_of(n, seed)
    rate = np.exp(X @ [0.5, 0.4])
    rate = rate if name.endswith("poisson") else rate * rng.standard_gamma(2.0, n) / 2.0
    y, zero = rng.poisson(rate), rng.random(n) < 1.0 / (1.0 + np.exp(0.5 - 0.8 * Z[:, 1]))
    if name.startswith("hurdle"):
        y = np.where(y == 0, 1 + (rng.random(n) < 0.2), y)
    return np.where(zero, 0, y), X, Z


def dataset(y, X, Z, name="zi"):
    return tb.Dataset.from_arrays(np.hstack([X, Z]), y, columns=["Intercept", "x", f"{name}_Intercept", f"{name}_z"])


def peer(name, y, X, Z):
    """Estimates of statsmodels and standard errors from differences of its likelihood (some of its Hessians lack blocks), in our order."""
    import statsmodels.api as sm
    from statsmodels.discrete.truncated_model import TruncatedLFNegativeBinomialP, TruncatedLFPoisson
    from statsmodels.tools.numdiff import approx_hess

    def fitted(model, start):
        params = np.asarray(model.fit(start_params=np.array(start), disp=0, method="bfgs", maxiter=1000, gtol=1e-8).params)
        return params, np.sqrt(np.diag(np.linalg.inv(-approx_hess(params, model.loglike))))

    more = [] if name.endswith("poisson") else [0.5]
    if name.startswith("zero"):
        kind = sm.ZeroInflatedNegativeBinomialP if more else sm.ZeroInflatedPoisson
        params, errors = (
            np.concatenate([v[2:4], v[:2], v[4:]]) for v in fitted(kind(y, X, exog_infl=Z), [-0.4, 0.7, 0.5, 0.4, *more])
        )
    else:
        kind, counted = TruncatedLFNegativeBinomialP if more else TruncatedLFPoisson, y > 0
        first, last = fitted(kind(y[counted], X[counted]), [0.5, 0.4, *more]), fitted(sm.Logit(~counted, Z), [0.0, 0.0])
        params, errors = (np.concatenate([a[:2], b, a[2:]]) for a, b in zip(first, last, strict=True))
    if more:  # the peer has alpha = 1 / size
        errors[-1] /= params[-1]
        params[-1] = -np.log(params[-1])
    return params, errors


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in ("zero_inflated_negbin", "hurdle_poisson") else ()) for n in COUNTS]
)
@pytest.mark.filterwarnings("ignore::Warning")  # of statsmodels
def test_modes_and_standard_errors_are_those_of_statsmodels(name):
    y, X, Z = counts_of(name, 3000)
    wide = tb.priors.normal(100.0)  # a flat one of zero-inflated counts is refused
    prior = {"default": tb.priors.flat(), "zi_Intercept": wide, "zi_z": wide}
    prior |= {} if name.endswith("poisson") else {"log_size": tb.priors.flat()}
    mode = tb.find_mode(getattr(tb.models, name)(dataset(y, X, Z), prior), progress=False)
    params, errors = peer(name, y, X, Z)
    assert np.abs((mode.reference - params) / errors).max() < 5e-3
    assert mode.laplace().sd == pytest.approx(errors, rel=2e-3)


def intercepts(name, n=2000):
    """A model of two intercepts, small enough for quadrature."""
    if name in COUNTS:
        data = tb.Dataset.from_arrays(np.ones((n, 2)), counts_of(name, n)[0], columns=["Intercept", "zi_Intercept"])
        return getattr(tb.models, name)(data, tb.priors.normal(2.0))
    y = 0.4 + 0.6 * np.random.default_rng(3).standard_t(5.0, n)
    data = tb.Dataset.from_arrays(np.ones((n, 2)), y, columns=["Intercept", "sigma_Intercept"])
    options = {"nu": 5.0} if name == "student_t" else {}
    return getattr(tb.models, name)(data, tb.priors.normal(2.0), sigma=["sigma_Intercept"], **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["zero_inflated_poisson", "hurdle_poisson", "gaussian", "student_t"])
def test_exact_minibatch_has_the_exact_posterior(name):
    model = intercepts(name)
    posterior = exact_posterior(model)
    fit = tb.sample(model, "exact-minibatch", draws=4000, warmup=300, chains=2, seed=2, progress=False)
    assert "T10" in fit.why and fit.guarantee.kind == "EXACT" and fit.evals.mean() < 1000
    for power in (1, 2):
        centred = (fit.theta - posterior.mean) ** power
        wanted = np.zeros(2) if power == 1 else np.diag(posterior.covariance)
        z = (centred.mean((0, 1)) - wanted) / (centred.std((0, 1)) / np.sqrt(effective_sizes(centred)))
        assert np.abs(z).max() < THRESHOLD


def table_of(n=600, seed=5):
    y, X, Z = counts_of("zero_inflated_poisson", n, seed)
    group = np.array(["a", "b", "c"])[np.random.default_rng(seed).integers(0, 3, n)]
    return pa.table({"y": y, "x": X[:, 1], "z": Z[:, 1], "g": group})


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """One fit of a formula with levels and a transform in the second predictor."""
    folder = tmp_path_factory.mktemp("counts")
    pq.write_table(table_of(), folder / "rows.parquet")
    options = {"draws": 200, "warmup": 200, "chains": 2, "seed": 1, "progress": False}
    fit = tb.fit("y ~ x", folder / "rows.parquet", "zero_inflated_poisson", sampler="nuts", zi="~ C(g) + center(z)", **options)
    return folder, fit
