"""The reference of a hierarchical model: joint mode of coefficients and levels at estimated covariances, by Laplace-EM.

With Sigma fixed, Newton's step on (beta, b) has an arrow-shaped matrix: levels are eliminated one by one, leaving
H = A + P - sum_g C_g (D_g + Sigma^-1)^-1 C_g'. Then Sigma becomes the mean of b b' plus the posterior covariance of b. Several factors
take turns, each with the coefficients; after each round, levels of two factors that trade their intercepts are moved to the best
trade, which reads no rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tallbayes.data.groups import CONSTANT
from tallbayes.engine.grouped_rows import LevelSums, add_effects, level_sums
from tallbayes.errors import ModelError, warn
from tallbayes.mode.laplace import Mode
from tallbayes.mode.pairs import factor_pairs, part_shifts
from tallbayes.models.group_effects import HierarchicalModel
from tallbayes.priors import LAPLACE, prior_gradient, prior_precision, prior_value
from tallbayes.progress import Progress

_ROUNDS = 40
_SETTLED = 0.01  # relative change of every standard deviation at which the covariances are left alone
_NEAR = 0.05  # distance to the joint mode, in posterior standard deviations of the whole step, at which the search ends
_COLLINEAR = 1e-10


@dataclass(eq=False)
class HierarchicalMode(Mode):
    """Joint mode of coefficients and levels; `reference` has coefficients, standard deviations and correlations."""

    effects: list[np.ndarray] = field(default_factory=list)  # b* of each factor, (levels, terms)
    sigmas: list[np.ndarray] = field(default_factory=list)
    correlations: list[np.ndarray] = field(default_factory=list)
    weakness: list[np.ndarray] = field(default_factory=list)  # 1 / (1 + information of the rows x prior variance), by level

    @property
    def coefficients(self) -> np.ndarray:
        """beta*."""
        return self.reference[: self.model.data.d]


def find_joint_mode(model: HierarchicalModel, *, progress: bool = True, cores: int | None = None) -> HierarchicalMode:
    """The reference of a hierarchical model in about ten to twenty passes over the rows."""
    search = _Search(model, cores)
    with Progress("finding the mode", None, progress) as bar:
        settled = False
        for number in range(_ROUNDS):
            bar.update(f"full pass {search.passes + 1}")
            distance, change = search.round(settled)
            if settled and distance < _NEAR:
                break
            settled = settled or (number >= 3 and change < _SETTLED) or number >= _ROUNDS // 2
        else:
            raise ModelError(
                f"the search for the mode of the group effects did not converge in {_ROUNDS} rounds. Rescale columns with very "
                "large or very small values, or give a narrower prior."
            )
    mode = search.mode()
    _warn(model, mode, search)
    return mode


class _Search:
    def __init__(self, model: HierarchicalModel, cores: int | None) -> None:
        self.model, self.cores, self.passes = model, cores, 0
        d, moments = model.data.d, model.data.moments
        self.beta = np.zeros(d)
        if model.data.intercept is not None:
            self.beta[model.data.intercept] = model.family.link(float(moments.mean[d])) - moments.mean[d + 1]
        self.effects = [np.zeros((f.levels, len(f.terms))) for f in model.factors]
        self.rows = [model.factor_rows(k) for k in range(len(model.factors))]
        typical = [0.2 * np.array([p.scale for p in own]) for own in model.scale_priors]
        self.covariances = [np.diag(s**2) for s in typical]
        self.sums: list[LevelSums | None] = [None] * len(self.rows)
        self.covariance = np.eye(d)
        self.reached: LevelSums | None = None  # sums at the present point, if known
        self.pairs = factor_pairs(model)

    def round(self, settled: bool) -> tuple[float, float]:
        """One step of every factor with the coefficients; returns the length of the longest and the change of the covariances."""
        distance, change = 0.0, 0.0
        for k in range(len(self.rows)):
            before = np.sqrt(np.diag(self.covariances[k]))
            distance = max(distance, self._step(k, settled))
            after = np.sqrt(np.diag(self.covariances[k]))
            change = max(change, float(np.abs(np.log(after / before)).max()))
        for pair in range(self.pairs.counts.size):
            self._trade(pair)
        return distance, change

    def _trade(self, pair: int) -> None:
        """Shift the intercepts of two factors against each other, part by part, to where their priors have it."""
        k, m = self.pairs.factors[pair]
        ones = [self.model.factors[f].terms.index(CONSTANT) for f in (k, m)]
        inverses = [np.linalg.inv(self.covariances[f]) for f in (k, m)]
        scores = [(self.effects[f] @ inverse)[:, one] for f, inverse, one in zip((k, m), inverses, ones, strict=True)]
        both = (float(inverses[0][ones[0], ones[0]]), float(inverses[1][ones[1], ones[1]]))
        precision, linear = part_shifts(self.pairs, pair, scores[0], scores[1], both)
        shift = linear / precision
        for f, one, sign in ((k, ones[0], 1.0), (m, ones[1], -1.0)):
            begin = self.pairs.begins[f]
            self.effects[f] = self.effects[f].copy()
            self.effects[f][:, one] += sign * shift[self.pairs.parts[pair, begin : begin + len(self.effects[f])]]

    def _shift(self, k: int) -> np.ndarray:
        if len(self.rows) == 1:
            return np.empty(0)
        shift = np.zeros(self.model.data.n)
        for other in range(len(self.rows)):
            if other != k:
                add_effects(self.rows[other], self.effects[other], shift)
        return shift

    def _sums(self, k: int, beta: np.ndarray, effects: np.ndarray, shift: np.ndarray) -> LevelSums:
        self.passes += 1
        return level_sums(self.rows[k], beta, effects, shift, False, self.cores)

    def _value(self, k: int, sums: LevelSums, beta: np.ndarray, effects: np.ndarray) -> float:
        quadratic = np.einsum("ga,ab,gb->", effects, np.linalg.inv(self.covariances[k]), effects)
        return sums.value + prior_value(self.model.coefficient_terms, beta) - 0.5 * float(quadratic)

    def _step(self, k: int, settled: bool) -> float:
        terms, shift = self.model.coefficient_terms, self._shift(k)
        known = self.reached if len(self.rows) == 1 else None
        sums = self._sums(k, self.beta, self.effects[k], shift) if known is None else known
        value, self.reached = self._value(k, sums, self.beta, self.effects[k]), None
        if not np.isfinite(value):
            raise ModelError("the log posterior is not finite; rescale columns with very large values.")
        inverse = np.linalg.inv(self.covariances[k])
        gradient = sums.gradient.copy()
        prior_gradient(terms, self.beta, gradient)
        prior = _nonnegative(prior_precision(terms, self.beta))
        prior += np.diag(np.where(terms.kind == LAPLACE, 1.0 / terms.scale**2, 0.0))
        own = np.linalg.inv(_nonnegative(sums.curvatures) + inverse)  # (levels, q, q)
        score = sums.slopes - self.effects[k] @ inverse
        tied = np.einsum("gja,gab->gjb", sums.crossed, own)
        schur = sums.information + prior - np.einsum("gja,gka->jk", tied, sums.crossed)
        schur = self._definite(schur)
        step = np.linalg.solve(schur, gradient - np.einsum("gja,ga->j", tied, score))
        moves = np.einsum("gab,gb->ga", own, score - np.einsum("gja,j->ga", sums.crossed, step))
        gain = float(gradient @ step + (score * moves).sum())
        size, slack = 1.0, 1e-9 * (1.0 + abs(value))
        while gain > 1e-6:
            beta, effects = self.beta + size * step, self.effects[k] + size * moves
            self.reached = self._sums(k, beta, effects, shift)
            if self._value(k, self.reached, beta, effects) >= value + 1e-4 * size * gain - slack:
                break
            size *= 0.5
            if size < 1e-6:
                raise ModelError(
                    "the search for the joint mode stalled: no Newton step increases the log posterior. Rescale columns with "
                    "very large or very small values."
                )
        self.beta = self.beta + size * step
        self.effects[k] = self.effects[k] + size * moves
        self.covariance = np.linalg.inv(schur)
        if not settled:
            self._renew(k, own, tied)
        self.sums[k] = sums
        return float(np.sqrt(max(gain, 0.0) / max(1, self.beta.size + moves.size)))

    def _renew(self, k: int, own: np.ndarray, tied: np.ndarray) -> None:
        """The covariance that the levels would have if their effects were known, on average; a little of the prior in it."""
        levels = self.effects[k].shape[0]
        spread = self.effects[k].T @ self.effects[k] + own.sum(0) + np.einsum("gja,jk,gkb->ab", tied, self.covariance, tied)
        scales = np.array([p.scale for p in self.model.scale_priors[k]])
        self.covariances[k] = (spread + np.diag(0.05 * scales**2)) / (levels + 1)

    def _definite(self, schur: np.ndarray) -> np.ndarray:
        scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(schur)), 1e-300))
        values, vectors = np.linalg.eigh(schur * np.outer(scale, scale))
        if values.size and values[0] < _COLLINEAR:
            if self.model.prior is not None and not self.model.prior.proper:
                direction = np.abs(vectors[:, 0])
                names = [repr(self.model.data.columns[j]) for j in np.flatnonzero(direction > 0.1 * direction.max())]
                raise ModelError(
                    f"{', '.join(names)} are collinear with each other or with the levels, and the prior is flat. Drop one of "
                    "the columns, or use a proper prior such as tallbayes.priors.normal(10.0)."
                )
            inner = (vectors * np.maximum(values, _COLLINEAR)) @ vectors.T
            return inner / np.outer(scale, scale)
        return schur

    def mode(self) -> HierarchicalMode:
        """What was found, with rough standard deviations of the covariance parameters."""
        model, d = self.model, self.model.data.d
        sigmas = [np.sqrt(np.diag(c)) for c in self.covariances]
        correlations = [c / np.outer(s, s) for c, s in zip(self.covariances, sigmas, strict=True)]
        reference, variance, weakness = [*self.beta], [], []
        for sums, sigma, correlation in zip(self.sums, sigmas, correlations, strict=True):
            assert sums is not None
            information = np.maximum(np.einsum("gaa->ga", sums.curvatures), 0.0) * sigma**2
            weakness.append((1.0 / (1.0 + information)).max(1))
            told = ((information / (1.0 + information)) ** 2).sum(0)
            reference += [*sigma]
            variance += [*(sigma**2 / (2.0 * told + 2.0))]
            for a in range(sigma.size):
                for b in range(a):
                    reference.append(correlation[a, b])
                    variance.append((1.0 - correlation[a, b] ** 2) ** 2 / (min(told[a], told[b]) + 4.0))
        precision = np.zeros((model.dim, model.dim))
        precision[:d, :d] = np.linalg.inv(self.covariance)
        precision[range(d, model.dim), range(d, model.dim)] = 1.0 / np.array(variance)
        hessian = np.zeros((model.dim, model.dim))
        hessian[:d, :d] = -self.sums[0].information  # type: ignore[union-attr]
        value = float("nan")
        return HierarchicalMode(
            model,
            np.array(reference),
            value,
            np.zeros(model.dim),
            hessian,
            precision,
            self.passes,
            self.passes * model.data.n,
            effects=self.effects,
            sigmas=sigmas,
            correlations=correlations,
            weakness=weakness,
        )


def _nonnegative(matrices: np.ndarray) -> np.ndarray:
    """Symmetric matrices with negative eigenvalues set to zero."""
    if matrices.shape[-1] == 1:
        return np.maximum(matrices, 0.0)
    if matrices.size == 0:
        return matrices
    values, vectors = np.linalg.eigh(matrices)
    return np.einsum("...ab,...b,...cb->...ac", vectors, np.maximum(values, 0.0), vectors)


def _warn(model: HierarchicalModel, mode: HierarchicalMode, search: _Search) -> None:
    for factor, sums in zip(model.factors, search.sums, strict=True):
        assert sums is not None
        silent = np.flatnonzero(~(np.abs(np.einsum("gaa->ga", sums.curvatures)) > 0.0).all(1))
        if silent.size:
            shown = ", ".join(repr(str(factor.labels[g])) for g in silent[:5]) + (
                f" and {silent.size - 5:,} more" if silent.size > 5 else ""
            )
            warn(
                f"the rows carry no information about {silent.size:,} of {factor.levels:,} levels of factor {factor.name!r} ({shown}): "
                "their effects follow the population distribution. Drop unused levels unless this is intentional."
            )
    information = -mode.hessian[: model.data.d, : model.data.d]
    scale = 1.0 / np.sqrt(np.maximum(np.diag(information), 1e-300))
    values, vectors = np.linalg.eigh(information * np.outer(scale, scale))
    if values.size and values[0] < 1e-9:
        direction = np.abs(vectors[:, 0])
        names = [repr(model.data.columns[j]) for j in np.flatnonzero(direction > 0.1 * direction.max())]
        if len(names) == 1:
            warn(
                f"the rows carry no information about {names[0]}: its posterior is the prior. Drop it unless this is intentional."
            )
        else:
            warn(
                f"{', '.join(names)} are collinear; only the prior separates them. Drop one of them unless this is intentional."
            )
