"""What a subsample of given size would do, from a pilot: variance and bias of the estimators, and sizes chosen by them.

Everything is a functional of the population of Z_i = d_i / p_i at a few points theta. On large data the population is known
from the rows of largest score, all of them, and a random sample of the rest with weights: the tails, which decide the bias, are
then seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln, log_ndtr, logsumexp, ndtr, polygamma

from tallbayes.engine import passes
from tallbayes.engine.random_rows import CHUNK, UniformRows, WeightedRows, allocate, build, probabilities
from tallbayes.engine.residuals import control_residuals, residual_slopes
from tallbayes.engine.rows import Rows
from tallbayes.errors import ModelError, OptionError
from tallbayes.mode.kinks import kinks_of
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model

TOP, REST = 2_000, 8_000  # rows of largest score, and random others, on which pilots are evaluated
POINTS = 20  # pilot draws, and guard points of each kind
UNIFORM_SHARE = 0.1  # of weighted rows drawn uniformly: bounds 1/p by 10 n
SCORED = 4  # draws at which residuals are measured where nothing is known of their size
LARGEST_BIAS, BIAS_SD = 1.0, 0.05  # of log L-hat at guard points, and its standard deviation over pilot draws (F.1)
HOPELESS, MANY = 20.0, 10_000  # rows of an estimate, in units of n or of so many rows, that are refused


@dataclass(frozen=True, eq=False)
class Population:
    """Rows that stand for all rows: `weight` sums to n."""

    index: np.ndarray
    weight: np.ndarray
    steepest: np.ndarray  # the rows of largest score
    records: Any = None  # what the index refers to, where that is not the rows of the model


def row_scores(mode: Mode, order: int) -> np.ndarray:
    """A cheap size of each row's residual: |a_i|^(order + 1) times a derivative of the family. One pass over the rows."""
    if not mode.model.linear:
        return _measured_scores(mode, order)
    return linear_scores(mode.model.rows, mode.model.family, mode.factor, mode.reference, order)


def linear_scores(
    rows: Any, family: Any, factor: np.ndarray, reference: np.ndarray, order: int, cores: int | None = None
) -> np.ndarray:
    """The same of any rows with linear predictors."""
    if order == 0 or not isinstance(rows, Rows) or rows.indices > 1:
        return passes.whitened_norms(rows, factor, cores) ** (order + 1)
    out = np.empty(passes.row_count(rows))

    def work(start: int, stop: int) -> None:
        norms, curvature, supremum = passes.survey(rows, start, stop, factor, reference)
        if order == 1:
            out[start:stop] = norms**2 * curvature
        else:
            size = np.minimum(curvature, supremum) if family.self_concordant else supremum
            out[start:stop] = norms**3 * np.where(np.isfinite(size), size, curvature)

    passes.over_blocks(out.size, work, cores)
    return out


def _measured_scores(mode: Mode, order: int) -> np.ndarray:
    """The same for rows without a linear predictor: the mean size of the residual at a few draws of the Laplace fit."""
    n, out = mode.model.data.n, np.zeros(mode.model.data.n)
    for theta in mode.laplace().draw(np.random.default_rng(0), SCORED):
        for start in range(0, n, CHUNK):
            index = np.arange(start, min(n, start + CHUNK))
            out[index] += np.abs(control_residuals(mode.model.rows, index, theta, mode.reference, order)) / SCORED
    return out


def scheme_of(mode: Mode, rows: str, scores: np.ndarray) -> Any:
    """How rows are drawn: "uniform", or "weighted" by their scores."""
    n = mode.model.data.n
    if rows == "uniform" or not scores.sum() > 0.0:
        return UniformRows(n)
    folder = None if mode.model.data.store is None else mode.model.data.store.parent
    weight = allocate((n,), np.float64, folder)
    weight[:] = scores
    return WeightedRows(n, build(weight, folder=folder), UNIFORM_SHARE)


def population(scores: np.ndarray, rng: np.random.Generator, top: int = TOP, rest: int = REST) -> Population:
    """All rows if they are few; else the `top` of largest score and `rest` others, drawn without replacement."""
    n = scores.size
    if n <= top + rest:
        return Population(np.arange(n), np.ones(n), np.argsort(scores)[::-1][:POINTS].copy())
    largest = np.argpartition(scores, n - top)[n - top :]
    largest = largest[np.argsort(scores[largest])[::-1]]
    others = np.ones(n, bool)
    others[largest] = False
    drawn = np.flatnonzero(others)[np.sort(rng.choice(n - top, rest, replace=False))]
    weight = np.concatenate([np.ones(top), np.full(rest, (n - top) / rest)])
    return Population(np.concatenate([largest, drawn]), weight, largest[:POINTS].copy())


@dataclass(frozen=True, eq=False)
class Sample:
    """Z of the population at one point, with the probability that a draw shows it."""

    z: np.ndarray
    p: np.ndarray

    @property
    def mean(self) -> float:
        """Sum of all residuals."""
        return float(self.p @ self.z)

    def cumulants(self) -> tuple[float, float, float]:
        """Second, third and fourth cumulants of Z."""
        x = self.z - self.mean
        second, third, fourth = (float(self.p @ x**k) for k in (2, 3, 4))
        return second, third, fourth - 3.0 * second**2

    def variance(self, m: int) -> float:
        """Var log L-hat of the penalty estimator with m rows: four terms of its expansion (F.1)."""
        second, third, fourth = self.cumulants()
        return max(0.0, second / m + second**2 / (2.0 * m**3) - third / m**2 + fourth / (4.0 * m**3))

    def bias(self, m: int) -> float:
        """log E L-hat - l of the penalty estimator with m rows.

        With y = (Z - E Z)/m, log L-hat - l = sum y - sum y^2 / 2 + (sum y)^2 / (2m), and e^(S^2/2m) is a normal integral:
        E = integral phi(t) [E exp((1 + t/sqrt m) y - y^2/2)]^m dt, exact for any population.
        """
        nodes, weights = np.polynomial.hermite_e.hermegauss(15)
        y = (self.z - self.mean) / m
        if m * float(self.p @ (y * y)) > 1e4:  # sums of this spread have no bias worth computing
            return math.inf
        inner = np.empty(nodes.size)
        for k, t in enumerate(nodes):
            inner[k] = m * np.log1p(self.p @ np.expm1((1.0 + t / math.sqrt(m)) * y - 0.5 * y * y))
        return float(logsumexp(inner, b=weights / weights.sum()))


def all_residuals(mode: Mode, order: int | None, points: np.ndarray) -> list[np.ndarray]:
    """l_i - q_i of all rows at each point, or l_i if no order is given: one pass each."""
    rows, everything = mode.model.rows, np.arange(mode.model.data.n)
    if order is None:
        return [passes.values_at(rows, everything, theta) for theta in points]
    return [control_residuals(rows, everything, theta, mode.reference, order) for theta in points]


class SubsamplePilot:
    """Populations of Z at points around a reference, each evaluated once."""

    def __init__(self, mode: Mode, order: int, scheme: Any, rows: Population) -> None:
        self.mode, self.order, self.rows = mode, order, rows
        self.records = mode.model.rows if rows.records is None else rows.records
        p = probabilities(scheme, rows.index)
        self.scale = 1.0 / p
        self.p = p * rows.weight / (p @ rows.weight)

    def at(self, theta: np.ndarray) -> Sample:
        """The population of Z at theta: an evaluation for each of its rows."""
        d = control_residuals(self.records, self.rows.index, theta, self.mode.reference, self.order)
        return Sample(d * self.scale, self.p)

    def draws(self, rng: np.random.Generator, count: int = POINTS) -> np.ndarray:
        """Points of the Laplace fit."""
        return self.mode.laplace().draw(rng, count)

    def guard_points(self, rng: np.random.Generator) -> np.ndarray:
        """Points at |w| = sqrt(d) + 3: random directions, and along the whitened rows of largest score (F.1, guard ii)."""
        d, records = self.mode.reference.size, self.records
        white = rng.standard_normal((POINTS, d))
        if isinstance(records, Rows) and records.indices == 1:
            along = (
                np.stack([records.records[i, : records.columns].astype(float) for i in self.rows.steepest]) @ self.mode.factor
            )
            along *= rng.choice([-1.0, 1.0], along.shape[0])[:, None]
            white = np.concatenate([white, along[(along**2).sum(1) > 0.0]])
        white *= (math.sqrt(d) + 3.0) / np.linalg.norm(white, axis=1)[:, None]
        return self.mode.reference + white @ self.mode.factor.T


def require_proxies(model: Model) -> None:
    """Refuse rows that have no Taylor proxies."""
    rows = model.rows if model.partitions is None else model.rows_over(model.data.records)
    if type(rows) not in residual_slopes.registry:
        raise ModelError(
            f"the rows of the {model.family.name} model have no Taylor control variates, which this sampler needs; use a "
            "full-data sampler such as 'nuts'."
        )


def prepare(mode: Mode, order: int, rows: str, rng: np.random.Generator) -> tuple[SubsamplePilot, Any, list[Sample], float]:
    """A pilot, the scheme of rows, populations at Laplace draws, and the radius of the wall (F.1, guard iii)."""
    require_proxies(mode.model)
    if mode.model.partitions is None:
        scores = row_scores(mode, order)
        scheme = scheme_of(mode, rows, scores)
        pilot = SubsamplePilot(mode, order, scheme, population(scores, rng))
    else:
        if rows != "uniform":
            raise ModelError("rows in partitions are drawn uniformly by this sampler; leave out rows='weighted'.")
        chosen = mode.model.partitions.population(mode, order, int(rng.integers(1 << 62)))
        pilot = SubsamplePilot(mode, order, UniformRows(mode.model.data.n), chosen)
        scheme = mode.model.partitions.uniform_scheme(mode, kept=True)
    points = pilot.draws(rng)
    furthest = float(np.linalg.norm(mode.laplace().whiten(points), axis=1).max())
    return pilot, scheme, [pilot.at(t) for t in points], max(math.sqrt(mode.reference.size) + 5.0, 1.5 * furthest)


def choose_size(
    samples: list[Sample], guards: list[Sample], dim: int, n: int, variance: float, fixed: int | None, blocks: int
) -> tuple[int, int, dict[str, Any]]:
    """Rows m and blocks G: Var log L-hat at most `variance` on 95 % of pilot draws, the bias nearly constant, the guard kept."""
    least = 2 * (dim + 1)
    gamma = float(np.quantile([s.cumulants()[0] for s in samples], 0.95))
    if fixed is not None:
        if fixed < least:
            raise OptionError(
                f"subsample={fixed} is below 2 (d + 1) = {least}: with so few rows the target is improper and the chain would "
                f"diverge. Use at least {least}, or None to choose it automatically."
            )
        m = fixed
    else:
        m = max(least, min(100, n), math.ceil(gamma / variance))
        while m < 2 * n and not _good(samples, guards, m, variance):
            m = 2 * m
        require_hope(m, n)
    groups = min(blocks, m)
    m = -(-m // groups) * groups
    biases = [s.bias(m) for s in samples]
    notes = {
        "subsample": m,
        "blocks": groups,
        "gamma": gamma,
        "variance_predicted": float(np.quantile([s.variance(m) for s in samples], 0.95)),
        "bias_sd_predicted": float(np.std(biases)),
        "bias_guard": float(max(g.bias(m) for g in guards)),
        "at_least": least,
    }
    return m, groups, notes


def require_hope(m: int, n: int) -> None:
    """Refuse an estimate of the likelihood from many times the rows there are."""
    if m > HOPELESS * max(n, MANY):
        raise ModelError(
            f"an estimate of the likelihood would need about {m:,.3g} rows, {m / n:,.3g} times the {n:,} there are: its Taylor "
            "proxies are inaccurate around this reference. Use the mode of all rows as the reference, order=2, or a full-data "
            "sampler such as 'nuts'."
        )


def _good(samples: list[Sample], guards: list[Sample], m: int, variance: float) -> bool:
    if float(np.quantile([s.variance(m) for s in samples], 0.95)) > 1.1 * variance:  # heavy tails: gamma / m is not all of it
        return False
    return all(g.bias(m) <= LARGEST_BIAS for g in guards) and float(np.std([s.bias(m) for s in samples])) <= BIAS_SD


def inefficiency(sd: float, correlation: float) -> float:
    """Iterations per effective draw with a noisy log-likelihood of this sd and correlation, proposals perfect (F.1).

    >>> round(inefficiency(1.0, 0.0), 2), round(inefficiency(1e-6, 0.5), 2)
    (5.43, 1.0)
    """
    if sd < 1e-8:
        return 1.0
    tau = sd * math.sqrt(1.0 - correlation**2)
    width = math.sqrt((1.0 - correlation) / (1.0 + correlation))
    w = -sd * correlation * width + width * np.linspace(-10.0, 10.0, 4001)
    density = np.exp(-0.5 * ((w + sd * correlation * width) / width) ** 2) / (math.sqrt(2.0 * math.pi) * width)
    accept = ndtr(-w - tau) + np.exp(-w * tau - 0.5 * tau**2 + log_ndtr(w))
    return float(np.trapezoid((2.0 - accept) / np.maximum(accept, 1e-300) * density, w))


def sign_probability(products: int, batch: int, gamma: float, shift: float = 1.0) -> float:
    """Pr(L-hat >= 0) of a block-Poisson estimator with normal minibatch means: (1 + exp(-2 lambda Phi(-mu/s)))/2 (F.4)."""
    s = math.sqrt(gamma / batch) / products
    return 0.5 * (1.0 + math.exp(-2.0 * products * float(ndtr(-shift / s)))) if s > 0.0 else 1.0


def log_variance(products: int, batch: int, gamma: float, shift: float = 1.0) -> float:
    """Var log |L-hat| of a block-Poisson estimator with normal minibatch means: lambda (eta^2 + nu^2) (F.4)."""
    s = math.sqrt(gamma / batch) / products
    if s < 1e-3 * shift:
        return products * ((s / shift) ** 2 + math.log(shift) ** 2)
    rate = 0.5 * (shift / s) ** 2
    j = np.arange(0, int(rate + 12.0 * math.sqrt(rate) + 60.0))
    p = np.exp(j * math.log(rate) - rate - gammaln(j + 1.0))
    psi = digamma(0.5 + j)
    mean = float(p @ psi)
    eta = math.log(s) + 0.5 * (math.log(2.0) + mean)
    nu2 = 0.25 * float(p @ polygamma(1, 0.5 + j) + p @ (psi - mean) ** 2)
    return products * (eta**2 + nu2)


def choose_products(gamma: float, batch: int, pilot: int) -> int:
    """lambda: evaluations x inefficiency / (2 Pr(L-hat >= 0) - 1)^2 at its least, over a grid of ratio 1.15."""
    best, cost = 1, math.inf
    lam = 1.0
    while lam < 1e6:
        products = round(lam)
        share = 2.0 * sign_probability(products, batch, gamma) - 1.0
        if share > 0.5:
            kept = 1.0 - refreshed_products(products) / products
            price = (pilot + batch * products) * inefficiency(math.sqrt(log_variance(products, batch, gamma)), kept) / share**2
            if price < cost:
                best, cost = products, price
            elif price > 3.0 * cost:
                break
        lam = max(lam + 1.0, 1.15 * lam)
    return best


def refreshed_products(products: int) -> int:
    """kappa: one in a hundred, at least one (F.4)."""
    return max(1, products // 100)


def require_near(mode: Mode, radius: float) -> None:
    """Refuse a reference so far from the mode that the posterior lies beyond the wall around it."""
    distance = float(np.linalg.norm(mode.factor.T @ mode.gradient))
    if (
        distance > radius and not kinks_of(mode.model.prior_terms).where.size
    ):  # at a kink the gradient is not that of the posterior
        raise ModelError(
            f"the reference is about {distance:,.3g} posterior standard deviations from the mode, and HMC-ECS stays within "
            f"{radius:.3g} of it. Leave out mode=, use recentre=2, or a full-data sampler such as 'nuts'."
        )
