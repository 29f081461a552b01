"""Where the search for the mode of rows in partitions begins: at the mode of a few rows, corrected by one pass over all of them.

The first pass sends a random sample of the rows. Its mode theta0 is about sqrt(n / m) posterior standard deviations from that of all
rows, and a Newton step from there leaves an error of the third order. The sample knows the third order, though: with the gradient and
Hessian of all rows at theta0, one pass, the log-likelihood

    sample(theta) + (g - g_sample)'(theta - theta0) + (theta - theta0)'(H - H_sample)(theta - theta0) / 2

of the scaled sample has those of all rows at theta0 and nearly their higher derivatives (Jordan, Lee and Yang 2019, Communication-efficient
distributed statistical inference, extended to the Hessian). Its mode is closer than a Newton step by the relative error of a sample, a
factor of sqrt(m): about sqrt(n) (d / m)^1.5 posterior standard deviations from that of all rows, where a second pass confirms it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from tallbayes.data import records as packed
from tallbayes.data.dataset import Dataset
from tallbayes.data.moments import Moments
from tallbayes.engine import ledger, passes
from tallbayes.errors import ModelError
from tallbayes.mode.centring import centring_of
from tallbayes.mode.newton import newton
from tallbayes.mode.search import mode_of_part, start
from tallbayes.model import Model

Sums = tuple[float, np.ndarray, np.ndarray]

BYTES = 4e6  # of the sample, if that is at least TIMES rows per column
TIMES = 10
CLOSE = 1e-4  # posterior standard deviations to the mode of a corrected sample


def sample_size(columns: int, dtype: str, partitions: int) -> int:
    """Rows that each partition sends.

    >>> sample_size(10, "float32", 20), sample_size(500, "float64", 20)
    (3847, 250)
    """
    rows = max(TIMES * columns, int(BYTES / ((columns + 3) * np.dtype(dtype).itemsize)))
    return -(-rows // partitions)


def proportional(samples: list[np.ndarray], sizes: list[int]) -> np.ndarray:
    """Of every partition the same share of its rows, so that all rows had the same chance: the first ones of random samples.

    >>> proportional([np.arange(4)[:, None], np.arange(4)[:, None]], [400, 200]).ravel()
    array([0, 1, 2, 3, 0, 1])
    """
    share = min(rows.shape[0] / size for rows, size in zip(samples, sizes, strict=True))
    return np.concatenate([rows[: round(share * size)] for rows, size in zip(samples, sizes, strict=True)])


def starting_point(model: Model, sample: np.ndarray, likelihood: Callable[[np.ndarray], Sums]) -> tuple[np.ndarray, int]:
    """A point near the mode, by one pass unless the sample holds all rows; and the evaluations of the sample."""
    few = _sample_model(model, sample)
    theta, scale = _start(model, few), model.data.n / few.data.n
    centring = centring_of(model)
    total = passes.total_hessian if centring is None else centring.total_hessian
    with ledger.counting() as account, suppress(ModelError):  # a part may be separable or collinear where the whole is not
        theta = mode_of_part(few, None, 1e-3).reference
        theta = newton(model, lambda at: total(few.rows, at), theta, scale, CLOSE, centring).theta
    ledger.record(account.rows)
    if scale > 1.0 and centring is None:
        theta = _corrected(model, few, theta, scale, likelihood(theta))
    return theta, account.rows


def _sample_model(model: Model, sent: np.ndarray) -> Model:
    """The model over the sample, with the prior of all rows."""
    kind = model.data
    records = packed.empty(sent.shape[0], kind.d, kind.records.dtype)
    records[:, : sent.shape[1]] = sent
    moments = Moments(kind.moments.names)
    moments.add(sent.astype(float))
    data = Dataset(records, kind.columns, kind.response, moments, kind.has_offset, kind.has_weights, None, dict(kind.recipe))
    return model.over(data)


def _start(model: Model, few: Model) -> np.ndarray:
    """Where a search over all rows begins: their moments are known, and single rows, where a family asks for them, are the sample's."""
    looked_at = few.over(replace(few.data, moments=model.data.moments))
    return start(looked_at)


def _corrected(model: Model, few: Model, centre: np.ndarray, scale: float, whole: Sums) -> np.ndarray:
    """The mode of the sample with the gradient and Hessian of all rows at its centre; the centre where there is none."""
    _, gradient, hessian = passes.total_hessian(few.rows, centre)
    slope, curvature = whole[1] - scale * gradient, whole[2] - scale * hessian

    def corrected(theta: np.ndarray) -> Sums:
        value, gradient, hessian = passes.total_hessian(few.rows, theta)
        step = theta - centre
        bent = curvature @ step
        total = scale * value + float(step @ (slope + 0.5 * bent))
        return total, scale * gradient + slope + bent, scale * hessian + curvature

    with suppress(ModelError):
        return newton(model, corrected, centre, 1.0, CLOSE, None).theta
    return centre
