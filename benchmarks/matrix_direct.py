"""Answers computed from draws and rows by NumPy and SciPy alone: what the package says is compared with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import special, stats

import tallbayes as tb

Parts = dict[str, np.ndarray]  # "eta", "second", "classes", and nuisances of each draw, (draws, rows) or (draws, 1)


class Law(NamedTuple):
    """Mean, normalised log density and simulation of a response given the parts of the model."""

    mean: Callable[[Parts], np.ndarray]
    log_density: Callable[[Parts, np.ndarray], np.ndarray]
    simulate: Callable[[Parts, np.random.Generator], np.ndarray]


def _normal_scale(p: Parts) -> np.ndarray:
    return np.exp(p["second"] if "second" in p else p["log_sigma"])


def _negbin(p: Parts) -> Any:
    size = np.exp(p["log_size"])
    return stats.nbinom(size, size / (size + np.exp(p["eta"])))


def _zero_inflated(p: Parts, y: np.ndarray) -> np.ndarray:
    zero = special.expit(p["second"])
    counted = np.log1p(-zero) + stats.poisson.logpmf(y, np.exp(p["eta"]))
    return np.where(y == 0, np.logaddexp(np.log(zero), counted), counted)


def _ordinal(p: Parts) -> np.ndarray:
    cuts = [p[name] for name in sorted(name for name in p if name.startswith("cut"))]
    below = [special.expit(cut - p["eta"]) for cut in (np.zeros_like(p["eta"]), *cuts)]
    ends = [np.zeros_like(p["eta"]), *below, np.ones_like(p["eta"])]
    return np.diff(np.stack(ends, axis=2), axis=2)


def _softmax(p: Parts) -> np.ndarray:
    return special.softmax(p["classes"], axis=2)


def _of_class(shares: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.log(
        np.take_along_axis(shares, np.broadcast_to(y.astype(int)[None, :, None], (*shares.shape[:2], 1)), axis=2)[:, :, 0]
    )


def _class_drawn(shares: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (rng.random((*shares.shape[:2], 1)) > np.cumsum(shares, axis=2)[:, :, :-1]).sum(2).astype(float)


def _weibull(p: Parts) -> Any:
    return stats.weibull_min(np.exp(-p["log_sigma"]), scale=np.exp(p["eta"]))


def _survival(p: Parts, y: np.ndarray) -> np.ndarray:
    """Rows that are censored at t have the response -t."""
    return np.where(y > 0, _weibull(p).logpdf(np.abs(y)), _weibull(p).logsf(np.abs(y)))


def _student(p: Parts) -> Any:
    return stats.t(np.exp(p["log_nu"]), loc=p["eta"], scale=np.exp(p["log_scale"] if "log_scale" in p else p["log_sigma"]))


LAWS = {
    "logistic": Law(
        lambda p: special.expit(p["eta"]),
        lambda p, y: stats.bernoulli.logpmf(y.astype(int), special.expit(p["eta"])),
        lambda p, rng: (rng.random(p["eta"].shape) < special.expit(p["eta"])).astype(float),
    ),
    "negbin": Law(
        lambda p: np.exp(p["eta"]), lambda p, y: _negbin(p).logpmf(y), lambda p, rng: _negbin(p).rvs(p["eta"].shape, rng)
    ),
    "gaussian": Law(
        lambda p: p["eta"],
        lambda p, y: stats.norm.logpdf(y, p["eta"], _normal_scale(p)),
        lambda p, rng: p["eta"] + _normal_scale(p) * rng.standard_normal(p["eta"].shape),
    ),
    "zero_inflated_poisson": Law(
        lambda p: special.expit(-p["second"]) * np.exp(p["eta"]),
        _zero_inflated,
        lambda p, rng: np.where(rng.random(p["eta"].shape) < special.expit(p["second"]), 0, rng.poisson(np.exp(p["eta"]))),
    ),
    "ordinal": Law(_ordinal, lambda p, y: _of_class(_ordinal(p), y), lambda p, rng: _class_drawn(_ordinal(p), rng)),
    "softmax": Law(_softmax, lambda p, y: _of_class(_softmax(p), y), lambda p, rng: _class_drawn(_softmax(p), rng)),
    "weibull": Law(
        lambda p: np.exp(p["eta"]) * special.gamma(1.0 + np.exp(p["log_sigma"])),
        _survival,
        lambda p, rng: _weibull(p).rvs(p["eta"].shape, rng),
    ),
    "student_t": Law(
        lambda p: p["eta"], lambda p, y: _student(p).logpdf(y), lambda p, rng: _student(p).rvs(p["eta"].shape, rng)
    ),
}


@dataclass
class Direct:
    """A fit, the rows it was made from, and the answers they give by hand."""

    fit: tb.Fit
    rows: pd.DataFrame

    @property
    def family(self) -> str:
        """Name of the family."""
        return self.fit.meta["model"]["family"]

    @property
    def law(self) -> Law:
        """What is known of the family."""
        return LAWS[self.family]

    @cached_property
    def named(self) -> dict[str, np.ndarray]:
        """Draws of each parameter as sampled, chain after chain."""
        return {name: self.fit.theta[:, :, k].reshape(-1) for k, name in enumerate(self.fit.names)}

    @cached_property
    def levels(self) -> dict[str, np.ndarray]:
        """Draws of the effects of levels by term, (draws, levels)."""
        return {name: own.values.reshape(-1, own.values.shape[2]) for name, own in self.fit.levels.items()}

    @cached_property
    def y(self) -> np.ndarray:
        """The response of every row; times of censored rows are negative."""
        if self.family == "weibull":
            return np.where(self.rows["event"] == 1, self.rows["time"], -self.rows["time"])
        return self.rows[self.fit.meta["response"]].to_numpy(float)

    def column(self, name: str, rows: pd.DataFrame) -> np.ndarray | None:
        """A column of the design matrix, or None if no such column exists; those of a smooth are taken from the rows of the fit."""
        if name == "Intercept":
            return np.ones(len(rows))
        if name in ("x", "z"):
            return rows[name].to_numpy(float)
        if name.startswith("c[T."):
            return (rows["c"] == name[4:-1]).to_numpy(float)
        if name.startswith("s(") and name in self.fit.meta["columns"]:
            return self._smooth[:, self.fit.meta["columns"].index(name)][rows.index.to_numpy()]
        return None

    @cached_property
    def _smooth(self) -> np.ndarray:
        return self.fit.data.records

    @cached_property
    def order(self) -> np.ndarray:
        """Which row of the table is each row of the Dataset, which sorts rows by group: found by their values of x."""
        packed = self.fit.data.records[:, self.fit.meta["columns"].index("x")]
        order = np.empty(len(self.rows), int)
        order[np.argsort(packed, kind="stable")] = np.argsort(self.rows["x"].to_numpy(), kind="stable")
        return order

    def parts(self, rows: pd.DataFrame) -> Parts:
        """Predictors of the rows at every draw."""
        found: Parts = {"eta": np.zeros((self.fit.weights.size, len(rows)))}
        scores: dict[int, np.ndarray] = {}
        for name, values in self.named.items():
            column, base = self.column(name, rows), name.rpartition("[")[0]
            second = next((name.removeprefix(p) for p in ("sigma_", "zi_") if name.startswith(p)), None)
            if self.family == "softmax" and (column := self.column(base, rows)) is not None:
                number = int(name[len(base) + 1 : -1])
                scores[number] = scores.get(number, 0.0) + np.outer(values, column)
            elif column is not None:
                found["eta"] += np.outer(values, column)
            elif second is not None and (column := self.column(second, rows)) is not None:
                found["second"] = found.get("second", 0.0) + np.outer(values, column)
            else:
                found[name] = values[:, None]
        for term, effects in self.levels.items():
            slope, _, factor = term.partition("|")
            code = pd.Index(self.fit.levels[term].label_texts).get_indexer(rows[factor])
            found["eta"] += effects[:, code] * (1.0 if slope == "1" else rows[slope].to_numpy(float))
        if scores:
            found["classes"] = np.stack([scores[k] for k in sorted(scores)], axis=2)
        return found

    def mean(self, rows: pd.DataFrame) -> np.ndarray:
        """E[y] of the rows at every draw, (draws, rows), or probabilities of classes, (draws, rows, classes)."""
        return self.law.mean(self.parts(rows))

    def average(self, **values: Any) -> np.ndarray:
        """The average over all rows of E[y], with some columns set, at every draw."""
        return self.mean(self.rows.assign(**values)).mean(1)

    def log_density(self) -> np.ndarray:
        """Of every row at every draw, (draws, rows)."""
        return self.law.log_density(self.parts(self.rows), self.y)

    def leave_one_out(self) -> dict[str, float]:
        """Expected log predictive density by importance sampling with Pareto-smoothed weights, over all rows."""
        from arviz_stats.base import array_stats

        table = self.log_density().T
        total = table.shape[1]
        sizes = [array_stats.ess(self.fit.theta[:, :, k], chain_axis=0, draw_axis=1) for k in range(len(self.fit.names))]
        weights, _ = array_stats.psislw(table, r_eff=min(1.0, float(np.nanmin(sizes)) / total), axis=-1)
        each = special.logsumexp(weights + table, axis=1)
        full = special.logsumexp(table, axis=1) - np.log(total)
        plain = np.log(total) - special.logsumexp(-table, axis=1)
        return {
            "elpd": float(each.sum()),
            "se": float(np.sqrt(each.size) * each.std()),
            "p": float((full - each).sum()),
            "plain": float(plain.sum()),
        }

    def simulated(self, count: int, seed: int) -> np.ndarray:
        """Responses of all rows at some draws, at most (count, rows)."""
        rng = np.random.default_rng(seed)
        chosen = rng.choice(self.fit.weights.size, min(count, self.fit.weights.size), replace=False)
        parts = {name: values[chosen] for name, values in self.parts(self.rows).items()}
        return np.asarray(self.law.simulate(parts, rng), float)


def interval(values: np.ndarray, prob: float = 0.89) -> tuple[np.ndarray, np.ndarray]:
    """Equal-tailed interval over the draws, the first axis."""
    low, high = np.quantile(values, (0.5 - prob / 2, 0.5 + prob / 2), axis=0)
    return low, high
