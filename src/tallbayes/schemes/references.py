"""Subsampled acceptance whose proxy moves: the nearest of several references, or a reference renewed along the way (S0 7.2.2).

The decision "accept iff log u < known + sum_i Delta_i" is the full-data one whatever reference the proxy has, so a rule that
errs with probability at most delta at every reference approximates the same Metropolis-Hastings kernel at each. This is
not so for samplers that are exact through their auxiliary variables: their reference is frozen.

Proposals are a random walk: a proposal around the reference would change with it, and its ratio would be wrong.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.uniform_ranges import moved, reference_passes, reference_scale
from tallbayes.compile import inlinable
from tallbayes.contract import init, step
from tallbayes.engine import passes
from tallbayes.engine.ledger import record
from tallbayes.engine.rows import range_hessian, rows_at_once
from tallbayes.model import Model
from tallbayes.moves import Move
from tallbayes.proxies.capabilities import HasBound
from tallbayes.proxies.taylor import ProxyTotal, Whitening, expansion, factor_of, proxy_value, whiten, whitening_at
from tallbayes.schemes.acceptance import AcceptancePolicy, Pair, State, decide, iterate
from tallbayes.target import Cache, Certified, Target, count, log_prior, row_total, stopped, total_residual_gap


class References(NamedTuple):
    """References, the Taylor sums at each in whitened coordinates, and what the bound knows of each."""

    whitenings: np.ndarray  # (references, 1 + d, d)
    sums: np.ndarray  # (references, d + d d): numbers of each expansion
    scales: np.ndarray
    order: int


class MovingState(NamedTuple):
    """Position, permutation of rows, what is cached, references, and iterations made."""

    theta: np.ndarray
    order: np.ndarray
    seen: Cache
    references: References
    age: int


class MovingOptions(NamedTuple):
    """Compiled options; `every` is the number of iterations between renewals, 0 for none."""

    kernel: Any
    rule: Any
    shuffled: bool
    every: int
    references: References


class FullRead(NamedTuple):
    """The rule of an iteration that reads everything: plain Metropolis-Hastings."""


@decide.register(FullRead)
def _decide(rng: np.random.Generator, target: Target, rule: FullRead, pair: Pair, info: np.ndarray) -> tuple[bool, int]:
    gap = total_residual_gap(target, pair.theta, pair.other, pair.white, pair.other_white, pair.seen)
    return pair.level < pair.known + gap, row_total(target)


@inlinable
def _copied(references: References) -> References:
    return References(
        references.whitenings.copy(),
        references.sums.copy(),
        references.scales.copy(),
        references.order,
    )


@inlinable
def _at(target: Target[HasBound], references: References, k: int) -> Target[Certified]:
    """The target with its proxy at reference k."""
    proxy = ProxyTotal(references.sums[k], target.proxy.proxy.value, references.order, 0.0)
    certified = Certified(Whitening(references.whitenings[k]), proxy, moved(target.proxy.bound, references.scales[k]))
    return Target(target.rows, target.prior, certified, target.counters)


@inlinable
def nearest(references: References, theta: np.ndarray) -> int:
    """The reference nearest to theta in whitened coordinates; the first of equals."""
    best, least = 0, np.inf
    for k in range(references.whitenings.shape[0]):
        white = whiten(Whitening(references.whitenings[k]), theta)
        size = 0.0
        for j in range(white.size):
            size += white[j] * white[j]
        if size < least:
            best, least = k, size
    return best


@inlinable
def expand(target: Target, theta: np.ndarray, gradient: np.ndarray, hessian: np.ndarray) -> float:
    """Gradient and lower triangle of the Hessian of the log-likelihood, written: n evaluations; papers do not count them."""
    n = row_total(target)
    count(target, n, n, 0)
    gradient[:] = 0.0
    hessian[:] = 0.0
    value, start, size = 0.0, 0, rows_at_once(target.rows)
    while start < n:
        if stopped(target):
            return -np.inf
        value += range_hessian(target.rows, start, min(n, start + size), theta, gradient, hessian)
        start += size
    return value


@inlinable
def _renewed(target: Target[HasBound], theta: np.ndarray, order: int) -> References:
    """The reference at theta: one pass, and one more if the bound asks for it."""
    d, factor = theta.size, factor_of(target.proxy.whitening)
    gradient, hessian = np.empty(d), np.empty((d, d))
    expand(target, theta, gradient, hessian)
    for a in range(d):
        for b in range(a):
            hessian[b, a] = hessian[a, b]
    whitenings, sums, half = np.empty((1, d + 1, d)), np.zeros((1, d + d * d)), np.zeros((d, d))
    whitenings[0, 0], whitenings[0, 1:] = theta, factor
    for a in range(d):
        for c in range(d):
            sums[0, a] += factor[c, a] * gradient[c]
            for b in range(d):
                half[a, b] += factor[c, a] * hessian[c, b]
    for a in range(d):
        for b in range(d):
            for c in range(d):
                sums[0, d + a * d + b] += half[a, c] * factor[c, b]
    count(target, reference_passes(target.proxy.bound) * row_total(target), 0, 0)
    scales = np.full(1, reference_scale(target.proxy.bound, target.rows, theta))
    return References(whitenings, sums, scales, order)


@init.register(MovingOptions)
def _init(rng: np.random.Generator, target: Target, options: MovingOptions, theta: np.ndarray) -> MovingState:
    order = np.arange(row_total(target) if options.shuffled else 0).astype(np.int32)
    return MovingState(theta.copy(), order, Cache(False, False), _copied(options.references), 0)


@step.register(MovingOptions)
def _step(
    rng: np.random.Generator, target: Target, options: MovingOptions, state: MovingState, info: np.ndarray
) -> MovingState:
    references = state.references
    here = _at(target, references, nearest(references, state.theta))
    white = whiten(here.proxy.whitening, state.theta)
    surrogate = proxy_value(here.proxy.proxy, white) + log_prior(target, state.theta)
    if options.every > 0 and state.age % options.every == 0:
        inner = State(state.theta, white, surrogate, state.order, Cache(state.seen.ours, False))
        inner = iterate(rng, here, options.kernel, FullRead(), inner, info)
        references = _renewed(target, inner.theta, references.order)
        seen = Cache(True, inner.seen.papers)
    else:
        inner = State(state.theta, white, surrogate, state.order, state.seen)
        inner = iterate(rng, here, options.kernel, options.rule, inner, info)
        seen = inner.seen
    return MovingState(inner.theta, state.order, seen, references, state.age + 1)


def references_at(model: Model, points: list[np.ndarray], factor: np.ndarray, order: int, bound: Any) -> References:
    """Taylor sums at each reference in the whitened coordinates of `factor`: one pass each."""
    sums = []
    for point in points:
        _, gradient, hessian = passes.total_hessian(model.rows, point)
        sums.append(expansion(order, factor.T @ gradient, factor.T @ hessian @ factor).numbers)
    record(len(points) * reference_passes(bound) * model.data.n)
    scales = np.array([reference_scale(bound, model.rows, point) for point in points])
    whitenings = np.array([whitening_at(point, factor).rows for point in points])
    return References(whitenings, np.array(sums), scales, order)


class MovingPolicy(AcceptancePolicy):
    """Warm-up as for a fixed reference: the step of the random walk alone is tuned."""

    def __init__(self, move: Move, rule: Any, model: Model, shuffled: bool, every: int, references: References) -> None:
        super().__init__(move, rule, model, shuffled)
        self.fixed = MovingOptions(None, rule, shuffled, every, references)

    def _blank(self, theta: np.ndarray) -> Any:
        return MovingState(theta, np.arange(self.rows, dtype=np.int32), Cache(False, False), self.fixed.references, 0)
