"""Ordered classes 0, 1, .., K - 1 by cut points c_1 < .. < c_{K-1}: P(y <= k) = F(c_{k+1} - eta), F logistic or normal.

Cut points are coordinates of theta. With an intercept among the columns the first cut point is 0. With the logit link, a and b the
distances of the cut points below and above from eta, S the softplus function,

    f = b - S(b) - S(a) + log(1 - e^-(b - a)),

-S(-b) for the lowest class and -S(a) for the highest: three functions of one index each, the last with third derivative
e (1 + e) (1 + 2 e), e = 1 / (e^(b - a) - 1), which falls in b - a. That is a certificate for bound T10. The probit link has none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import ndtr

from tallbayes.compile import SCALAR, inlinable
from tallbayes.data.dataset import Dataset
from tallbayes.engine.arithmetic import exp, exp_remainder, log1p_remainder, log1p_unit
from tallbayes.engine.neighbourhood import SLACK, Neighbourhood, largest_on, third_bounds
from tallbayes.engine.several_functions import vector_gradient, vector_hessian, vector_residual, vector_value
from tallbayes.errors import DataError, OptionError, unknown
from tallbayes.families.logistic import bernoulli_residual
from tallbayes.model import Family, Model, no_terms
from tallbayes.named_priors import PriorLike
from tallbayes.validation import MOST_CLASSES, require_whole, shown

_ROOT = math.sqrt(0.5)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)


class CumulativeLogit(NamedTuple):
    """Ordered classes with a logistic law behind them."""

    classes: int
    fixed: int  # 1 if the first cut point is 0


class CumulativeProbit(NamedTuple):
    """Ordered classes with a normal law behind them."""

    classes: int
    fixed: int


@inlinable(options=SCALAR)
def _place(family: Any, cut: int) -> int:
    """Where cut point 1 .. K - 1 is in u; 0 for the one that is fixed."""
    return cut - family.fixed


@inlinable(options=SCALAR)
def _distance(family: Any, u: np.ndarray, cut: int) -> float:
    place = _place(family, cut)
    return (u[place] if place > 0 else 0.0) - u[0]


@inlinable(options=SCALAR)
def _logit_parts(x: float) -> tuple[float, float, float]:
    """S(x) and its first two derivatives."""
    z = exp(-abs(x))
    larger = 1.0 / (1.0 + z)
    return max(x, 0.0) + log1p_unit(z), larger if x >= 0.0 else z * larger, z * larger * larger


@inlinable(options=SCALAR)
def _logit_jet(family: CumulativeLogit, u: np.ndarray, y: float) -> tuple[float, float, float, float, float, float]:
    """f, its derivatives in a and b, and aa, ab, bb."""
    k = int(y)
    lowest, highest = k == 0, k == family.classes - 1
    a, b = 0.0, 0.0
    value, fa, fb, faa, fab, fbb = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    if not lowest:
        a = _distance(family, u, k)
        soft, p, v = _logit_parts(a)
        value, fa, faa = -soft, -p, -v
    if not highest:
        b = _distance(family, u, k + 1)
        soft, p, v = _logit_parts(b)
        value, fb, fbb = value + b - soft, 1.0 - p, -v
    if not lowest and not highest:
        gap = b - a
        if gap <= 0.0:
            return -np.inf, 0.0, 0.0, 0.0, 0.0, 0.0
        e = 1.0 / math.expm1(min(gap, 700.0))
        value += math.log(-math.expm1(-gap))
        fa, fb = fa - e, fb + e
        curvature = e * (1.0 + e)
        faa, fbb, fab = faa - curvature, fbb - curvature, curvature
    return value, fa, fb, faa, fab, fbb


@inlinable(options=SCALAR)
def _probit_jet(family: CumulativeProbit, u: np.ndarray, y: float) -> tuple[float, float, float, float, float, float]:
    k = int(y)
    lowest, highest = k == 0, k == family.classes - 1
    a = -np.inf if lowest else _distance(family, u, k)
    b = np.inf if highest else _distance(family, u, k + 1)
    mirrored = a > 0.0  # the other tail, where differences do not cancel
    first, last = (-b, -a) if mirrored else (a, b)
    p = 0.5 * (math.erfc(-last * _ROOT) - math.erfc(-first * _ROOT))
    if not p > 0.0:
        return -np.inf, 0.0, 0.0, 0.0, 0.0, 0.0
    low = 0.0 if lowest else _DENSITY * math.exp(-0.5 * a * a) / p
    high = 0.0 if highest else _DENSITY * math.exp(-0.5 * b * b) / p
    faa = 0.0 if lowest else a * low - low * low
    fbb = 0.0 if highest else -b * high - high * high
    return math.log(p), -low, high, faa, low * high, fbb


@inlinable(options=SCALAR)
def _spread_gradient(family: Any, y: float, fa: float, fb: float, gradient: np.ndarray) -> None:
    k = int(y)
    gradient[:] = 0.0
    gradient[0] = -fa - fb
    low, high = _place(family, k), _place(family, k + 1)
    if k > 0 and low > 0:
        gradient[low] += fa
    if k < family.classes - 1 and high > 0:
        gradient[high] += fb


@inlinable(options=SCALAR)
def _spread_hessian(family: Any, y: float, faa: float, fab: float, fbb: float, hessian: np.ndarray) -> None:
    k = int(y)
    hessian[:] = 0.0
    hessian[0, 0] = faa + 2.0 * fab + fbb
    low, high = _place(family, k), _place(family, k + 1)
    below, above = k > 0 and low > 0, k < family.classes - 1 and high > 0
    if below:
        hessian[low, low] += faa
        hessian[0, low] = -faa - fab
        hessian[low, 0] = -faa - fab
    if above:
        hessian[high, high] += fbb
        hessian[0, high] = -fbb - fab
        hessian[high, 0] = -fbb - fab
    if below and above:
        hessian[low, high] = fab
        hessian[high, low] = fab


@vector_value.register(CumulativeLogit)
def _logit_value(family: CumulativeLogit, u: np.ndarray, y: float) -> float:
    return _logit_jet(family, u, y)[0]


@vector_gradient.register(CumulativeLogit)
def _logit_gradient(family: CumulativeLogit, u: np.ndarray, y: float, gradient: np.ndarray) -> float:
    f, fa, fb, _, _, _ = _logit_jet(family, u, y)
    _spread_gradient(family, y, fa, fb, gradient)
    return f


@vector_hessian.register(CumulativeLogit)
def _logit_hessian(family: CumulativeLogit, u: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    f, fa, fb, faa, fab, fbb = _logit_jet(family, u, y)
    _spread_gradient(family, y, fa, fb, gradient)
    _spread_hessian(family, y, faa, fab, fbb, hessian)
    return f


@vector_residual.register(CumulativeLogit)
def _logit_residual(family: CumulativeLogit, base: np.ndarray, shift: np.ndarray, y: float) -> float:
    """Those of -S(a) and -S(b), and of log(1 - e^-gap): with x = e (1 - e^-s) it is log(1 + x) less its terms to second order in s."""
    k = int(y)
    total = 0.0
    low, high = _place(family, k), _place(family, k + 1)
    below, above = k > 0, k < family.classes - 1
    left, right = -shift[0], -shift[0]
    if below:
        left += shift[low] if low > 0 else 0.0
        total += bernoulli_residual(_distance(family, base, k), left)
    if above:
        right += shift[high] if high > 0 else 0.0
        total += bernoulli_residual(_distance(family, base, k + 1), right)
    if below and above:
        gap, s = _distance(family, base, k + 1) - _distance(family, base, k), right - left
        if gap + s <= 0.0:
            return -np.inf
        e = 1.0 / math.expm1(min(gap, 700.0))
        rest = -exp_remainder(-s)
        x = -e * math.expm1(-s)
        total += e * rest - 0.5 * e * (rest - 0.5 * s * s) * (x + e * s) + log1p_remainder(x)
    return total


@vector_value.register(CumulativeProbit)
def _probit_value(family: CumulativeProbit, u: np.ndarray, y: float) -> float:
    return _probit_jet(family, u, y)[0]


@vector_gradient.register(CumulativeProbit)
def _probit_gradient(family: CumulativeProbit, u: np.ndarray, y: float, gradient: np.ndarray) -> float:
    f, fa, fb, _, _, _ = _probit_jet(family, u, y)
    _spread_gradient(family, y, fa, fb, gradient)
    return f


@vector_hessian.register(CumulativeProbit)
def _probit_hessian(family: CumulativeProbit, u: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    f, fa, fb, faa, fab, fbb = _probit_jet(family, u, y)
    _spread_gradient(family, y, fa, fb, gradient)
    _spread_hessian(family, y, faa, fab, fbb, hessian)
    return f


_TURNS = tuple(0.5 * (1.0 + sign / math.sqrt(3.0)) for sign in (-1.0, 1.0))


@third_bounds.register
def _third_bounds(member: CumulativeLogit, near: Neighbourhood) -> np.ndarray:
    d = near.x.shape[1]
    cuts = np.concatenate([np.zeros(member.fixed), near.reference[d:]])
    moves = np.vstack([np.zeros((member.fixed, near.factor.shape[1])), near.factor[d:]])
    k, total = near.y.astype(np.int64), np.zeros(near.y.size)
    linear = near.x @ near.factor[:d]
    for inside, cut in ((k > 0, k - 1), (k < member.classes - 1, k)):
        at = np.clip(cut, 0, member.classes - 2)
        speed = np.linalg.norm(moves[at] - linear, axis=1) * SLACK
        low, high = near.between(cuts[at] - near.eta, speed)
        ends = 1.0 / (1.0 + np.exp(-low)), 1.0 / (1.0 + np.exp(-high))
        size = largest_on(lambda p: p * (1.0 - p) * (1.0 - 2.0 * p), ends[0], ends[1], _TURNS)
        total += np.where(inside, speed**3 * size, 0.0)
    if member.classes > 2:
        inner = np.clip(k, 1, member.classes - 2) - 1
        speed = np.linalg.norm(moves[inner + 1] - moves[inner], axis=1) * SLACK
        gap = near.between(cuts[inner + 1] - cuts[inner], speed)[0]
        e = 1.0 / np.expm1(np.where(gap > 1e-9, gap, 1.0))
        size = np.where(gap > 1e-9, e * (1.0 + e) * (1.0 + 2.0 * e), np.inf)
        total += np.where((k > 0) & (k < member.classes - 1), speed**3 * size, 0.0)
    return total * SLACK


@dataclass(eq=False, repr=False)
class OrdinalModel(Model):
    """A model of ordered classes."""

    domain: ClassVar[str] = "outside the model: cut points must increase"

    def admits(self, theta: np.ndarray) -> bool:
        """Whether the cut points increase."""
        cuts = np.concatenate([np.zeros(self.member.fixed), np.asarray(theta, float)[self.data.d :]])
        return bool((np.diff(cuts) > 0.0).all())


def _probabilities(member: Any, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    cuts = np.concatenate([np.zeros((nuisances.shape[0], member.fixed)), nuisances], axis=1)
    at = cuts[None] - eta[:, :, None]
    below = ndtr(at) if isinstance(member, CumulativeProbit) else 1.0 / (1.0 + np.exp(-at))
    ends = np.ones((*eta.shape, 1))
    return np.diff(np.concatenate([0.0 * ends, below, ends], axis=2), axis=2)


def _simulate(rng: np.random.Generator, member: Any, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    shares = np.cumsum(_probabilities(member, eta, nuisances), axis=2)[:, :, :-1]
    return (rng.random((*eta.shape, 1)) > shares).sum(2).astype(float)


def _start(model: Model) -> np.ndarray:
    """Cut points that give the classes the shares they have."""
    theta, member = np.zeros(model.dim), model.member
    counts = np.bincount(np.asarray(model.data.y, np.int64), minlength=member.classes)
    counts = np.maximum(counts, 0.5)  # a part of the rows need not have them all
    share = np.cumsum(counts)[:-1] / counts.sum()
    cuts = np.log(share / (1.0 - share))
    if member.fixed:
        if model.data.intercept is not None:
            theta[model.data.intercept] = -cuts[0] - model.data.moments.mean[model.data.d + 1]
        cuts = (cuts - cuts[0])[1:]
    theta[model.data.d :] = cuts
    return theta


LINKS = {"logit": CumulativeLogit, "probit": CumulativeProbit}


def _member(classes: int, fixed: int, link: str = "logit") -> Any:
    return LINKS[link](int(classes), int(fixed))


FAMILY = Family(
    name="ordinal",
    support="a class number 0, 1, ..., classes - 1",
    remedy="Number the classes in their order, from 0.",
    admits=lambda y: (y >= 0) & (y == np.floor(y)),
    mean=lambda eta: eta,
    full_mean=_probabilities,
    self_concordant=False,
    log_concave=True,
    examples=(CumulativeLogit(4, 0), CumulativeLogit(4, 1), CumulativeProbit(4, 0)),
    responses=(0.0, 1.0, 2.0, 3.0),
    response="ordinal",
    link_name="cumulative",
    start=_start,
    row_options=lambda largest, intercept: {"classes": int(largest) + 1, "fixed": int(intercept)},
    responses_decide=True,
    member_of=_member,
    log_normaliser=no_terms,
    simulate=_simulate,
    mode_advice="Pool neighbouring classes with few rows.",
)


def ordinal(
    data: Dataset, prior: PriorLike = None, *, link: str = "logit", classes: int | None = None, fixed: int | None = None
) -> Model:
    """Regression of ordered classes 0, 1, .., K - 1 with unknown cut points, link "logit" (proportional odds) or "probit".

    Cut points follow the coefficients in theta, `cut1` and so on, with flat priors unless `prior={"cut2": ...}` gives one. If the columns
    have an intercept, the first cut point is 0 and the intercept stands for it. Exact minibatch takes the logit link; the probit link has
    no certificate and needs 'nuts' or 'hmc-ecs'. `classes` (the number of classes) and `fixed` (1 if the first cut point is 0) are
    found from the data.

    >>> import numpy as np, tallbayes as tb
    >>> X = np.array([[-1.0], [0.0], [1.0], [0.5], [2.0], [-2.0]])
    >>> tb.models.ordinal(tb.Dataset.from_arrays(X, [0, 1, 2, 1, 2, 0])).names
    ('x0', 'cut1', 'cut2')
    """
    if not isinstance(link, str) or link not in LINKS:
        raise unknown("link", link, LINKS)
    if not isinstance(data, Dataset):
        raise DataError(f"a model needs a Dataset, not a {type(data).__name__}; use tallbayes.Dataset.from_arrays(X, y).")
    y = np.asarray(data.y)
    good = FAMILY.admits(y)
    if not good.all():
        row = int(np.argmin(good))
        raise DataError(
            f"row {row}: response {data.response!r} is {y[row]:g}, but ordinal needs {FAMILY.support}. {FAMILY.remedy}"
        )
    if y.max() >= max(y.size, MOST_CLASSES):
        raise DataError(
            f"response {data.response!r} reaches {y.max():g} in {y.size:,} rows, but every class 0, 1, .. up to it needs rows. Number the "
            "classes anew."
        )
    if classes is not None:
        require_whole("classes", classes, 2)
    if fixed is not None and fixed not in (0, 1):
        raise OptionError(f"fixed must be 1 if the first cut point is 0, and 0 otherwise; got {shown(fixed)}.")
    counts = np.bincount(y.astype(np.int64))
    number = counts.size if classes is None else int(classes)
    if number < 2 or counts.size != number or (counts == 0).any():
        raise OptionError(
            f"every one of the {max(number, 2)} classes needs rows; the counts are {counts.tolist()}. Number the classes anew."
        )
    at_zero = int(data.intercept is not None) if fixed is None else int(fixed)
    names = tuple(f"cut{k}" for k in range(1 + at_zero, number))
    options = {"link": link, "classes": number, "fixed": at_zero}
    return OrdinalModel(data, FAMILY, LINKS[link](number, at_zero), prior, nuisances=names, options=options)
