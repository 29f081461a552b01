"""Certified bounds on what a second-order Taylor proxy leaves out.

For a pair (theta, theta') the object is Delta_i = rho_i(theta') - rho_i(theta), rho the residual of a row. Every bound here
has the form |Delta_i| <= lambda_i(theta, theta') with lambda symmetric in the pair TO THE BIT, rows drawn in proportion to
lambda_i, and sum Lambda = sum lambda_i known without reading rows. Symmetry is what makes minibatch acceptance exact: a
bound evaluated from the other side with other roundings would be another kernel.

| name | lambda_i | needs |
|---|---|---|
| T1 | 1/24 |x_i|^3 (|h|^3 + |h'|^3) | logistic |
| T2 | m_i/6 |x_i|^3 (|h|^3 + |h'|^3) | sup f''' |
| T3 | m_i/6 max_j|x_ij|^3 (|h|_1^3 + |h'|_1^3) | sup f''' |
| T4 | m_i/6 ((b.|h|)^3 + (b.|h'|)^3), b_j = max_i |x_ij| | sup f''' |
| T5 | m_i/6 |a_i|^3 (|w|^3 + |w'|^3) | sup f''' |
| T6 | m_i/6 |a_i|^3 g(w, w') | sup f''' |
| T7 | |f'''_i*|/6 |a_i|^3 g + |a_i|^4/192 (|w|^4 + |w'|^4), or T6 if that is less in sum | logistic |
| T8 | T6 with rows weighted; the same here, where rows always are | sup f''' |
| T9 | |f''_i*|/6 psi(r_k max(|w|, |w'|)) |a_i|^3 g in class k of |a_i|, or T6 if less | self-concordant |
| T10 | m_i(R)/6 |a_i|^3 g, m_i(R) the supremum within reach of a pair, max(|w|, |w'|) <= R | sup f''' on intervals |

a_i = L'x_i, m_i = sup |f_i'''|, psi(S) = 2 (e^S - 1 - S) / S^2, and g the largest of |u'^3 - u^3| over projections (u, u')
of (w, w') on a unit vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.bounds.interval import ranged
from tallbayes.bounds.pair_functions import OVERFLOW, psi
from tallbayes.bounds.tables import BOX, EUCLID, SUM, WHITE, Angular, Classed, Cubes, Cubic, Local, Separable
from tallbayes.bounds.user_given import given
from tallbayes.compile import jit
from tallbayes.engine import passes
from tallbayes.engine.cubic_sums import thirds_of
from tallbayes.engine.ledger import record
from tallbayes.engine.neighbourhood import has_third_bounds
from tallbayes.engine.passes import row_count
from tallbayes.engine.random_rows import CHUNK, allocate, build
from tallbayes.errors import ModelError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.streams import Stream, generator

NAMES = ("T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "T9", "T10")


@dataclass(frozen=True)
class Survey:
    """What a pass over rows tells of them: whitened norm, |f''| at the reference, sup |f'''|."""

    norm: np.ndarray
    curvature: np.ndarray
    supremum: np.ndarray


def certify(mode: Mode, name: str = "auto", *, indexed: bool = False, seed: int = 0) -> tuple[Any, str]:
    """The bound of a given name over all rows of a model (one full pass), and its name.

    "auto" takes T6 or T9, whichever expects fewer rows on pairs of Laplace draws, judged on a random subsample.
    `indexed=True` lets `row_rate` look up any row of T9.
    """
    model = mode.model
    if name in mode.tables and not indexed:
        return mode.tables[name]
    if name != "auto" and name not in NAMES:
        raise unknown("bound", name, [*NAMES, "auto"])
    if model.partitions is not None:
        return model.partitions.certify(mode, name)
    if not model.linear:
        return given(mode), "given"
    if model.family.centred_third is not None:
        if name not in ("auto", "T6", "T8"):
            raise ModelError(f"{model.family.name} supports only the centred bound T6; use bound='T6' or 'auto'.")
        folder = None if model.data.store is None else model.data.store.parent
        return _centred(mode, model.family.centred_third, folder), "T6"
    several = model.several_indices
    certified = (model.family.bound == "T10" or has_third_bounds(model.member)) and name in ("auto", "T10")
    if several and not certified:
        raise ModelError(
            f"there is no certified bound for this {model.family.name} model; use a sampler that needs none, such as 'nuts' or 'hmc-ecs'."
        )
    chosen = ("T10" if several else model.family.bound or _choose(mode, seed)) if name == "auto" else name
    folder = None if model.data.store is None else model.data.store.parent
    if chosen in ("T6", "T8", "T5", "T2", "T3", "T4", "T1"):
        return _separable(mode, chosen, folder), chosen
    if chosen == "T7":
        return _local(mode, folder), chosen
    if chosen == "T10":
        return ranged(mode, folder), chosen
    return _classed(mode, folder, indexed), chosen


def _survey(mode: Mode, start: int, stop: int, factor: np.ndarray) -> Survey:
    return Survey(*passes.survey(mode.model.rows, start, stop, factor, mode.reference))


def _require_supremum(mode: Mode, name: str, supremum: np.ndarray) -> None:
    if not np.isfinite(supremum).all():
        raise ModelError(
            f"bound {name} needs a bounded third derivative, which {mode.model.family.name} is not known to have; use "
            "bound='T9' or 'T10'."
        )


def _separable(mode: Mode, name: str, folder: Path | None) -> Separable:
    rows, d = mode.model.rows, mode.model.data.d
    n = row_count(rows)
    if name == "T1" and mode.model.family.published_bound != "T1":
        raise ModelError("bound T1 was published for logistic regression only; use bound='auto'.")
    weight = allocate((n,), np.float64, folder)
    factor = np.eye(d) if name in ("T1", "T2") else mode.factor

    def work(start: int, stop: int) -> np.ndarray:
        facts = _survey(mode, start, stop, factor)
        x, _, _, omega = passes.block(rows, start, stop)
        supremum = 0.25 * omega if name == "T1" else facts.supremum
        norm = facts.norm
        if name == "T3":
            norm = np.abs(x).max(1)
        elif name == "T4":
            norm = np.ones(stop - start)
        _require_supremum(mode, name, supremum)
        weight[start:stop] = supremum / 6.0 * norm**3
        return np.abs(x).max(0)

    parts = passes.over_chunks(n, CHUNK, work)
    box = np.max(parts, axis=0)
    norms = {"T1": EUCLID, "T2": EUCLID, "T3": SUM, "T4": BOX, "T5": WHITE}
    pair = Cubes(norms[name], np.ascontiguousarray(mode.factor), box) if name in norms else Angular()
    return Separable(build(weight, folder=folder), pair)


def _centred(mode: Mode, supremum: float, folder: Path | None) -> Separable:
    """Several predictors: c_i = supremum/6 |A_i|^3, A_i the centred Jacobian of the K predictors in w, in its operator norm.

    A_i A_i' is the K x K covariance of the predictors of row i, centred over classes: its largest eigenvalue is |A_i|^2.
    """
    n = mode.model.data.n
    weight = allocate((n,), np.float64, folder)

    def work(start: int, stop: int) -> None:
        weight[start:stop] = centred_weights(mode, supremum, start, stop)

    passes.over_chunks(n, CHUNK, work)
    return Separable(build(weight, folder=folder), Cubic())


def centred_weights(mode: Mode, supremum: float, start: int, stop: int) -> np.ndarray:
    """c_i of a range of rows with several predictors."""
    d, k = mode.model.data.d, mode.model.predictors
    covariance = (mode.factor @ mode.factor.T).reshape(k, d, k, d)
    x, _, _, omega = passes.block(mode.model.rows, start, stop)
    inner = np.empty((stop - start, k, k))
    for a in range(k):
        for b in range(a + 1):
            inner[:, a, b] = inner[:, b, a] = ((x @ covariance[a, :, b, :]) * x).sum(1)
    inner -= inner.mean(1, keepdims=True)
    inner -= inner.mean(2, keepdims=True)
    largest = np.maximum(np.linalg.eigvalsh(inner)[:, -1], 0.0) * (1.0 + 1e-12)
    return omega * (supremum / 6.0) * largest**1.5


def _local(mode: Mode, folder: Path | None) -> Local:
    model, n = mode.model, mode.model.data.n
    fourth = model.family.fourth_supremum
    if fourth is None:
        raise ModelError(
            "bound T7 needs a bounded fourth derivative, which is known only for the logistic family; use bound='T6' or 'T9'."
        )
    weights = [allocate((n,), np.float64, folder) for _ in range(3)]

    def work(start: int, stop: int) -> None:
        facts = _survey(mode, start, stop, mode.factor)
        x, y, offset, omega = passes.block(model.rows, start, stop)
        size = np.abs(thirds_of(model.rows, x @ mode.reference + offset, y))
        weights[0][start:stop] = omega * size / 6.0 * facts.norm**3
        weights[1][start:stop] = omega * (fourth / 24.0) * facts.norm**4
        weights[2][start:stop] = facts.supremum / 6.0 * facts.norm**3

    passes.over_chunks(n, CHUNK, work)
    return Local(*(build(w, folder=folder) for w in weights))


def half_octave(norm: np.ndarray, largest: float) -> np.ndarray:
    """Class of each norm: 0 for the largest half-octave, at most 40; the smallest norms are pooled in the last."""
    with np.errstate(divide="ignore"):
        number = np.floor(2.0 * np.log2(largest / norm))
    return np.minimum(np.where(np.isfinite(number), number, 40), 40).astype(np.uint8)


def _classed(mode: Mode, folder: Path | None, indexed: bool) -> Classed:
    model = mode.model
    if not model.family.self_concordant:
        raise ModelError(f"bound T9 needs a self-concordant family, which {model.family.name} is not; use bound='T6'.")

    def weights(start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        facts = _survey(mode, start, stop, mode.factor)
        cube = facts.norm**3 / 6.0
        with np.errstate(invalid="ignore"):
            return facts.norm, facts.curvature * cube, facts.supremum * cube

    return classed_tables(model.data.n, weights, folder, indexed)


def classed_tables(
    n: int, weights: Callable[[int, int], tuple[np.ndarray, np.ndarray, np.ndarray]], folder: Path | None, indexed: bool
) -> Classed:
    """Rows in classes of their whitened norm; `weights` gives norms, local and global weights of a range of rows."""
    norm, local, globally = (allocate((n,), np.float64, folder) for _ in range(3))

    def work(start: int, stop: int) -> tuple[float, bool]:
        norm[start:stop], local[start:stop], everywhere = weights(start, stop)
        finite = np.isfinite(everywhere)
        globally[start:stop] = np.where(finite, everywhere, 0.0)
        return float(norm[start:stop].max(initial=0.0)), bool(finite.all())

    parts = passes.over_chunks(n, CHUNK, work)
    largest, bounded = max(p[0] for p in parts), all(p[1] for p in parts)
    classes = np.empty(n, np.uint8)
    passes.over_ranges(
        n, 16 * CHUNK, lambda a, b: classes.__setitem__(slice(a, b), half_octave(norm[a:b], max(largest, 1e-300)))
    )
    counts = np.bincount(classes, minlength=41)
    order = allocate((n,), np.int64, folder)
    _counting_sort(classes, counts, order)
    start, chunk, radius, first = [0], [0], [], 0
    for k in np.flatnonzero(counts):
        members = order[first : first + counts[k]]
        radius.append(float(norm[members].max()))
        start += [*range(first + CHUNK, first + counts[k], CHUNK), first + counts[k]]
        first += int(counts[k])
        chunk.append(len(start) - 1)
    position = np.empty(0, np.int64)
    if indexed:
        position = np.empty(n, np.int64)
        position[order] = np.arange(n)
    bounds = np.asarray(start, np.int64)
    near, far = (build(_permuted(w, order, folder), bounds, folder) for w in (local, globally))
    return Classed(order, position, np.asarray(radius), np.asarray(chunk, np.int64), near, far, bounded)


@jit
def _counting_sort(classes: np.ndarray, counts: np.ndarray, order: np.ndarray) -> None:
    """Rows in order of class, each class in order of rows."""
    place = np.zeros(counts.size, np.int64)
    for k in range(1, counts.size):
        place[k] = place[k - 1] + counts[k - 1]
    for i in range(classes.size):
        order[place[classes[i]]] = i
        place[classes[i]] += 1


def _permuted(values: np.ndarray, order: np.ndarray, folder: Path | None) -> np.ndarray:
    out = allocate(values.shape, np.float64, folder)
    np.take(values, order, out=out)
    return out


def _choose(mode: Mode, seed: int) -> str:
    """T6 or T9 by the expected number of candidate rows, estimated on a subsample of rows and pairs of Laplace draws."""
    model, rng = mode.model, generator(seed, Stream.BOUND)
    if not model.family.self_concordant:
        return "T6"
    n, size = model.data.n, min(model.data.n, 200_000)
    index = np.sort(rng.integers(0, n, size)) if size < n else np.arange(n)
    rows = model.rows._replace(records=np.ascontiguousarray(model.data.records[index]))
    facts = Survey(*passes.survey(rows, 0, size, mode.factor, mode.reference))
    record(size)
    if not np.isfinite(facts.supremum).all():
        return "T9"
    reach = math.sqrt(model.dim) + 1.0  # a typical larger |w| of two draws
    cube = facts.norm**3 / 6.0
    octave = half_octave(facts.norm, max(float(facts.norm.max()), 1e-300))
    everywhere = float((facts.supremum * cube).sum())
    classed = 0.0
    for k in np.unique(octave):
        inside = octave == k
        growth = psi(min(float(facts.norm[inside].max()) * reach, OVERFLOW))
        classed += min(float((facts.curvature * cube)[inside].sum()) * growth, float((facts.supremum * cube)[inside].sum()))
    return "T9" if classed < 0.7 * everywhere else "T6"
