"""ARMA(p, q) by conditional likelihood: y_t = sum_i a_i y_{t-i} + sum_j b_j e_{t-j} + c + e_t, e_t ~ N(0, sigma^2).

The first p observations are conditioned on, and e is zero before them. The posterior is restricted to the stationary and
invertible region. Rows depend on those before them, so only full-data and informed samplers serve it.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.data.dataset import CHUNK, Dataset
from tallbayes.data.moments import Moments, check_finite
from tallbayes.engine.rows import Rows
from tallbayes.engine.series import Series, admissible, series_rows
from tallbayes.errors import DataError, ModelError, OptionError
from tallbayes.model import Family, Model
from tallbayes.named_priors import PriorLike
from tallbayes.priors import Prior, PriorTerms
from tallbayes.validation import MOST_WHOLE, is_whole, positive_number, shown

MOST = 20  # largest p and q
LEAD = 100  # rows that start the recursion of a window: 0.87^100 = 1e-6
_START_ROWS = 100_000  # on which the first guess is computed


class Order(NamedTuple):
    """What identifies an ARMA model besides its rows."""

    p: int
    q: int
    sigma: float  # 0 if unknown
    lead: int


class SeriesModel(Model):
    """A model whose rows are consecutive observations of one process."""

    exchangeable: ClassVar[bool] = False
    row_limitation: ClassVar[str] = "are not conditionally independent"
    domain: ClassVar[str] = (
        "outside the stationary and invertible region: all roots of 1 - ar1 z - ... and of 1 + ma1 z + ... must be outside the "
        "unit circle, such as |ar1| < 1 and |ma1| < 1"
    )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates of theta."""
        ar, ma = (
            tuple(f"{name}{k + 1}" for k in range(order)) for name, order in (("ar", self.member.p), ("ma", self.member.q))
        )
        return (*ar, *ma, "intercept", *self.nuisances)

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.names)

    @cached_property
    def rows(self) -> Rows:
        """The series as compiled code sees it."""
        return series_rows(Series(self.data.d, *self.member), self.data.records)

    @cached_property
    def prior_terms(self) -> PriorTerms:
        """The prior; the default is Cauchy with scale 2.5 on ar and ma, and 20 times the size of y on the intercept."""
        assert self.prior is not None
        count, prior = self.member.p + self.member.q + 1, self.prior
        if prior.name == "weakly_informative":
            d, moments = self.data.d, self.data.moments
            size = float(np.hypot(moments.mean[d], moments.sd[d])) or 1.0
            prior = Prior("cauchy", 0.0, np.append(np.full(count - 1, 2.5), 20.0 * size))
        return prior.coordinates(count, len(self.nuisances))

    def admits(self, theta: np.ndarray) -> bool:
        """Whether theta is in the stationary and invertible region."""
        return bool(admissible(self.member.p, self.member.q, np.asarray(theta, float)))

    @property
    def conditioned_rows(self) -> int:
        """The first p observations."""
        return int(self.member.p)

    def startup(self, theta: np.ndarray) -> float:
        """What is left of the start of a window's recursion at the window itself: the largest inverse root to the power lead."""
        p, q = self.member.p, self.member.q
        return float(np.abs(np.roots([1.0, *theta[p : p + q]])).max(initial=0.0) ** self.member.lead) if q else 0.0


def _first_guess(model: Any) -> np.ndarray:
    """Hannan and Rissanen (1982): innovations from a long autoregression, then least squares on lagged values of both."""
    p, q = model.member.p, model.member.q
    y = np.asarray(model.data.y[:_START_ROWS], float)
    if y.min() == y.max():
        raise ModelError(f"the first {y.size:,} observations are all {y[0]:g}: a constant series has no ARMA model.")
    order = min(20 + p + q, y.size // 4)
    errors = np.zeros(y.size)
    if q:
        errors[order:] = _regress(y, errors, order, 0, order)[1]
    coefficients, rest = _regress(y, errors, p, q, max(p, order + q if q else 0))
    theta = np.append(coefficients, np.log(max(float(np.std(rest)), 1e-300)) if model.nuisances else [])
    while not model.admits(theta):
        theta[: p + q] *= 0.9
    return theta


def _regress(y: np.ndarray, errors: np.ndarray, p: int, q: int, first: int) -> tuple[np.ndarray, np.ndarray]:
    lags = [y[first - k : y.size - k] for k in range(1, p + 1)] + [errors[first - k : y.size - k] for k in range(1, q + 1)]
    design = np.column_stack([*lags, np.ones(y.size - first)])
    coefficients = np.linalg.lstsq(design, y[first:], rcond=None)[0]
    return coefficients, y[first:] - design @ coefficients


def _log_normaliser(member: Order, y: np.ndarray) -> np.ndarray:
    """Of the rows after the first p, which are conditioned on."""
    return np.full(np.shape(y), -0.5 * math.log(2.0 * math.pi) - math.log(member.sigma or 1.0))


FAMILY = Family(
    name="arma",
    regression=False,
    support="a number",
    remedy="",
    admits=lambda y: np.isfinite(y),
    mean=lambda eta: eta,
    self_concordant=False,
    log_concave=False,
    examples=(),
    responses=(),
    response="series",
    response_scale=True,
    start=_first_guess,
    mode_advice="Lower p or q if the autoregressive and moving-average parts can share a root; difference a series that wanders "
    "without a mean.",
    member_of=lambda p, q, sigma, lead: Order(p, q, sigma or 0.0, lead),
    log_normaliser=_log_normaliser,
    prediction_refusal="predict is for rows that are independent given theta; the next values of a series depend on the last ones. "
    "Simulate them from fit.theta.",
)


def arma(
    data: Any, p: int = 1, q: int = 1, sigma: float | None = None, prior: PriorLike = None, lead: int = LEAD
) -> SeriesModel:
    """ARMA(p, q) of a series: an array in the order of time, or a Dataset with an intercept alone (`tallbayes.read` of "y ~ 1").

    theta is (ar1 .. arp, ma1 .. maq, intercept), then log sigma with a flat prior unless `sigma` is given. `lead` rows before a
    window start its recursion in informed subsampling; the posterior does not depend on it.

    >>> import numpy as np, tallbayes as tb
    >>> from scipy.signal import lfilter
    >>> y = lfilter([1.0, 0.7], [1.0, -0.5], np.random.default_rng(0).standard_normal(5000))
    >>> model = tb.models.arma(y, p=1, q=1)
    >>> model.names
    ('ar1', 'ma1', 'intercept', 'log_sigma')
    >>> tb.find_mode(model, progress=False).reference.round(1) + 0.0
    array([0.5, 0.7, 0. , 0. ])
    """
    for name, value, least in (("p", p, 0), ("q", q, 0), ("lead", lead, 0)):
        if not is_whole(value) or value < least or value > (MOST_WHOLE if name == "lead" else MOST):
            most = "" if name == "lead" else f" and at most {MOST}"
            raise OptionError(f"{name} must be a whole number of at least {least}{most}; got {shown(value)}.")
    if p + q == 0:
        raise OptionError("an ARMA model needs p or q of at least 1; for independent observations use tallbayes.models.normal.")
    sigma = None if sigma is None else positive_number("sigma", sigma, ", or None to learn it")
    series = data if isinstance(data, Dataset) else _packed(data)
    if isinstance(data, Dataset):
        _check_design(data)
    least = 2 * (p + q + 2) + 10
    if series.n < least:
        raise DataError(f"an ARMA({p}, {q}) model needs at least {least} observations; the series has {series.n}.")
    order = Order(int(p), int(q), 0.0 if sigma is None else sigma, int(lead))
    options = {"p": order.p, "q": order.q, "sigma": sigma, "lead": order.lead}
    return SeriesModel(series, FAMILY, order, prior, () if sigma is not None else ("log_sigma",), options)


def _packed(values: Any) -> Dataset:
    """A series in memory, eight bytes an observation: a Dataset without columns."""
    try:
        series: np.ndarray = np.ascontiguousarray(np.ma.filled(np.ma.asarray(values, float), np.nan))
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"a series must be a vector of numbers in the order of time; got {shown(values)}.") from None
    if series.ndim != 1 or series.size == 0:
        raise DataError(f"a series must be a vector of numbers in the order of time; its shape is {series.shape}.")
    names = ("y", "offset", "weights")
    moments = Moments(names)
    for start in range(0, series.size, CHUNK):
        part = series[start : start + CHUNK]
        chunk = np.column_stack([part, np.zeros(part.size), np.ones(part.size)])
        check_finite(chunk, names, start)
        moments.add(chunk)
    return Dataset(series[:, None], (), "y", moments)


def _check_design(data: Dataset) -> None:
    others = [c for k, c in enumerate(data.columns) if k != data.intercept]
    if others:
        raise DataError(
            f"arma has no regressors, and the data have column {others[0]!r}; read the series with formula 'y ~ 1'."
        )
    if data.has_offset or data.has_weights:
        raise DataError("arma takes neither offset nor weights; read the series without them.")
