"""One made-up problem for every family and every kind of model: what the baseline, first calls and specialisations measure.

`CASES` has families and structures by name; `make(name, n)` gives a model of n rows. Data are the same for a name and n in every version.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tallbayes as tb

COLUMNS = 10
CLOGLOG = "y*log(1 - exp(-exp(eta))) - (1 - y)*exp(eta)"
NAMES = ["Intercept", *(f"x{k}" for k in range(1, COLUMNS))]


class Rows:
    """A design with an intercept, its linear predictor, and a generator of responses."""

    def __init__(self, n: int) -> None:
        self.n, self.rng = n, np.random.default_rng(28)
        self.X = np.column_stack([np.ones(n), self.rng.standard_normal((n, COLUMNS - 1))])
        self.eta = self.X @ np.linspace(0.4, -0.2, COLUMNS)

    @property
    def chance(self) -> np.ndarray:
        """Of success, by the logistic link."""
        return 1.0 / (1.0 + np.exp(-self.eta))

    @property
    def mean(self) -> np.ndarray:
        """By the logarithmic link."""
        return np.exp(self.eta)

    def data(self, y: Any, **options: Any) -> tb.Dataset:
        """The design with a response."""
        return tb.Dataset.from_arrays(self.X, y, **{"columns": NAMES, **options})

    def with_zeros(self, count: np.ndarray, family: str) -> tb.Dataset:
        """Counts with more zeros; an intercept and a column of their own predict these."""
        Z = self.X[:, :2]
        y = np.where(self.rng.random(self.n) < 0.3, 0, count + family.startswith("hurdle"))
        X = np.hstack([self.X, Z])
        return tb.Dataset.from_arrays(X, y, columns=[*NAMES, "zi_Intercept", "zi_x1"])


def _binary(family: str, **options: Any) -> Callable[[Rows], Any]:
    return lambda r: getattr(tb.models, family)(r.data(r.rng.random(r.n) < r.chance, **options), tb.priors.normal(2.0))


def _softmax(classes: int) -> Callable[[Rows], Any]:
    def build(r: Rows) -> Any:
        scores = np.outer(r.eta, np.linspace(-1.0, 1.0, classes)) + r.rng.gumbel(size=(r.n, classes))
        return tb.models.softmax(r.data(scores.argmax(1)), tb.priors.normal(2.0), classes=classes)

    return build


def _counts(family: str) -> Callable[[Rows], Any]:
    def build(r: Rows) -> Any:
        rate = r.mean * (r.rng.standard_gamma(3.0, r.n) / 3.0 if family.endswith("negbin") else 1.0)
        count = r.rng.poisson(rate)
        data = r.data(count) if family in ("poisson", "negbin") else r.with_zeros(count, family)
        return getattr(tb.models, family)(data)

    return build


def _survival(family: str) -> Callable[[Rows], Any]:
    def build(r: Rows) -> Any:
        noises = {"weibull": np.log(r.rng.standard_exponential(r.n)), "loglogistic": r.rng.logistic(size=r.n)}
        times = np.exp(r.eta + 0.6 * noises.get(family, r.rng.standard_normal(r.n)))
        limit = r.rng.exponential(5.0, r.n)
        return getattr(tb.models, family)(r.data(tb.data.censored(np.minimum(times, limit), times <= limit)))

    return build


def _beta(r: Rows) -> Any:
    return tb.models.beta(r.data(np.clip(r.rng.beta(6.0 * r.chance, 6.0 * (1.0 - r.chance)), 1e-9, 1.0 - 1e-9)))


def _binomial(r: Rows) -> Any:
    trials = r.rng.integers(1, 10, r.n)
    y, weights = tb.data.proportion(r.rng.binomial(trials, r.chance), trials)
    return tb.models.binomial(r.data(y, weights=weights))


def _ordinal(r: Rows) -> Any:
    y = np.digitize(r.eta + r.rng.logistic(size=r.n), [-1.0, 0.2, 1.4])
    return tb.models.ordinal(tb.Dataset.from_arrays(r.X[:, 1:], y, columns=NAMES[1:]))


def _sigma(r: Rows) -> Any:
    y = r.eta + np.exp(-0.3 + 0.4 * r.X[:, 1]) * r.rng.standard_normal(r.n)
    names = ["sigma_Intercept", "sigma_x1"]
    data = tb.Dataset.from_arrays(np.hstack([r.X, r.X[:, :2]]), y, columns=[*NAMES, *names])
    return tb.models.gaussian(data, sigma=names)


def _arma(r: Rows) -> Any:
    y, noise = np.zeros(r.n), r.rng.standard_normal(r.n)
    for t in range(1, r.n):
        y[t] = 0.5 * y[t - 1] + noise[t]
    return tb.models.arma(y, 1, 0)


def _jax(r: Rows) -> Any:
    import jax

    def log_lik(theta: Any, row: Any) -> Any:
        eta = row["x"] @ theta
        return row["y"] * eta - jax.numpy.logaddexp(0.0, eta)

    return tb.models.from_jax(log_lik, r.data(r.rng.random(r.n) < r.chance), tb.priors.normal(2.0), dim=COLUMNS)


def _groups(*factors: str) -> Callable[[Rows], Any]:
    """Logistic rows with levels: `g` has n / 200 (at least 20) of them, `h` 20; `g:x1` has slopes too."""

    def build(r: Rows) -> Any:
        eta, groups = r.eta.copy(), {}
        for factor in factors:
            name, _, slope = factor.partition(":")
            levels = max(20, r.n // 200) if name == "g" else 20
            codes = r.rng.integers(0, levels, r.n)
            codes[:levels] = np.arange(levels)
            eta += (0.5 * r.rng.standard_normal(levels))[codes]
            if slope:
                eta += (0.3 * r.rng.standard_normal(levels))[codes] * r.X[:, 1]
            groups[name] = (codes, ["1", slope]) if slope else codes
        return tb.models.logistic(r.data(r.rng.random(r.n) < 1.0 / (1.0 + np.exp(-eta)), groups=groups))

    return build


def _shrunk(prior: str) -> Callable[[Rows], Any]:
    return lambda r: tb.models.logistic(r.data(r.rng.random(r.n) < r.chance), getattr(tb.priors, prior)())


def _gaussian(r: Rows) -> Any:
    return tb.models.gaussian(r.data(r.eta + r.rng.standard_normal(r.n)))


def _class_gaussian(r: Rows) -> Any:
    labels = (r.rng.random(r.n) < 0.5).astype(float)
    X = r.rng.standard_normal((r.n, 2)) + labels[:, None]
    return tb.models.class_gaussian(tb.Dataset.from_arrays(X, labels), sigma=1.0)


FAMILIES: dict[str, Callable[[Rows], Any]] = {
    "logistic": _binary("logistic"),
    "probit": _binary("probit"),
    "poisson": _counts("poisson"),
    "negbin": _counts("negbin"),
    "gamma": lambda r: tb.models.gamma(r.data(r.mean * r.rng.standard_gamma(3.0, r.n) / 3.0)),
    "gaussian": _gaussian,
    "student_t": lambda r: tb.models.student_t(r.data(r.eta + 0.8 * r.rng.standard_t(5.0, r.n))),
    "inverse_gaussian": lambda r: tb.models.inverse_gaussian(r.data(r.rng.wald(r.mean, 3.0))),
    "beta": _beta,
    "binomial": _binomial,
    "ordinal": _ordinal,
    "softmax 3": _softmax(3),
    "softmax 10": _softmax(10),
    "zero_inflated_poisson": _counts("zero_inflated_poisson"),
    "zero_inflated_negbin": _counts("zero_inflated_negbin"),
    "hurdle_poisson": _counts("hurdle_poisson"),
    "hurdle_negbin": _counts("hurdle_negbin"),
    "weibull": _survival("weibull"),
    "loglogistic": _survival("loglogistic"),
    "lognormal": _survival("lognormal"),
    "normal": lambda r: tb.models.normal(1.0 + r.rng.standard_normal(r.n)),
    "class_gaussian": _class_gaussian,
    "arma": _arma,
    "expression": lambda r: tb.models.family(CLOGLOG, r.data(r.rng.random(r.n) < r.chance), support="binary"),
}

STRUCTURES: dict[str, Callable[[Rows], Any]] = {
    "student_t, known": lambda r: tb.models.student_t(r.data(r.eta + 0.8 * r.rng.standard_t(5.0, r.n)), nu=5.0, scale=0.8),
    "logistic float32": _binary("logistic", dtype="float32"),
    "sigma ~ x": _sigma,
    "JAX": _jax,
    "(1 | g)": _groups("g"),
    "(1 + x1 | g)": _groups("g:x1"),
    "crossed": _groups("g", "h"),
    "ridge": _shrunk("ridge"),
    "horseshoe": _shrunk("horseshoe"),
}

CASES = {**FAMILIES, **STRUCTURES}


def make(name: str, n: int) -> Any:
    """The model of a case over n made-up rows."""
    return CASES[name](Rows(n))


def write_partitions(folder: Path, n: int) -> None:
    """The rows of the logistic case as four Parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = Rows(n)
    columns = dict(zip(NAMES[1:], rows.X.T[1:], strict=True)) | {"y": (rows.rng.random(n) < rows.chance).astype(float)}
    table, size = pa.table(columns), -(-n // 4)
    for part in range(4):
        pq.write_table(table.slice(part * size, size), folder / f"part-{part}.parquet")
