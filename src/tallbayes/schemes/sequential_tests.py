"""Is a mean above a threshold? Decided from random draws of bounded values, wrongly with probability at most delta.

Values z lie in [low, high]; y = (z - low) / (high - low) in [0, 1] and m is the threshold on that scale. A decision is made
at the first look at which the data exclude one side. Three kinds of test, all valid at the data-dependent time they stop:

* `Looks`: a fixed-time half-width c_t at each look, the level shared over looks, delta_j = (p - 1) delta / (p j^p) (S1) or
  delta / (j (j + 1)): stop when |mean - m| >= c_t. Half-widths are Hoeffding-Serfling (Serfling 1974), empirical Bernstein
  (Audibert, Munos and Szepesvari 2009) and empirical Bernstein-Serfling (Bardenet and Maillard 2015).
* `PlugInBernstein`: the predictable plug-in empirical Bernstein supermartingale (Waudby-Smith and Ramdas 2024) at m.
* `Betting`: the capitals K+ = prod(1 + l+_i (y_i - m_i)) and K- = prod(1 - l-_i (y_i - m_i)) at m, stop when one reaches
  1 / delta.

Exactly one of "mean <= m" and "mean > m" is true, so only one error is possible: the last two tests need one hypothesis, and
neither a factor two nor a union over looks. Without replacement the mean of what is left replaces m at draw i:
m_i = (n m - sum of the draws before i) / (n - i + 1).

Looks are numbered from 1, and a test that has seen all n values without replacement ends with the exact answer.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import declared, generic, inlinable, jit

ACCEPT, REJECT, UNDECIDED, EXHAUSTED = 1, -1, 0, 2  # accept: the mean exceeds the threshold

LEVEL, LOW, LENGTH, ROWS, REPLACE, DRAWN, LOOK, TOTAL, MEAN, SCATTER, UP, DOWN, WEIGHT, SPREAD, EVIDENCE = range(15)
"""Places in the array of evidence: threshold on [0, 1], low, high - low, n, whether draws are with replacement, draws, looks,
sum, mean and sum of squared deviations (prior observations included in the tests that bet), two running sums, two more."""

HOEFFDING, BERNSTEIN, BERNSTEIN_SERFLING = 0, 1, 2
_SERFLING = 7.0 / 3.0 + 3.0 / math.sqrt(2.0)  # kappa of Bardenet and Maillard (2015)
_MIXTURE_CAP = 0.5


class Looks(NamedTuple):
    """Half-widths at looks. `power` is p of delta_j = (p - 1) delta / (p j^p); 0 takes delta / (j (j + 1)), which sums to delta."""

    kind: int
    delta: float
    growth: float
    first: int
    power: float


class PlugInBernstein(NamedTuple):
    """Predictable plug-in empirical Bernstein."""

    delta: float
    growth: float
    first: int


class Betting(NamedTuple):
    """Bets on one hypothesis; `cap` is the largest share of the capital that one draw can lose."""

    delta: float
    growth: float
    first: int
    cap: float


@inlinable
def _sampling_factor(drawn: int, n: int) -> float:
    """rho_t: what drawing without replacement takes off a variance."""
    if 2 * drawn <= n:
        return 1.0 - (drawn - 1.0) / n
    return (1.0 - drawn / n) * (1.0 + 1.0 / drawn)


@inlinable
def hoeffding_serfling(length: float, drawn: int, n: int, delta: float) -> float:
    """Half-width at level delta after a fixed number of draws without replacement.

    >>> round(hoeffding_serfling(1.0, 1000, 200_000, 0.05), 4)
    0.0428
    """
    return length * math.sqrt(_sampling_factor(drawn, n) * math.log(2.0 / delta) / (2.0 * drawn))


@inlinable
def hoeffding(length: float, drawn: int, delta: float) -> float:
    """Half-width at level delta after a fixed number of draws with replacement."""
    return length * math.sqrt(math.log(2.0 / delta) / (2.0 * drawn))


@inlinable
def empirical_bernstein(deviation: float, length: float, drawn: int, delta: float) -> float:
    """Half-width from the empirical standard deviation; valid with and (Hoeffding 1963) without replacement.

    >>> round(empirical_bernstein(0.068, 1.0, 1000, 0.05), 4)
    0.0184
    """
    level = math.log(3.0 / delta)
    return deviation * math.sqrt(2.0 * level / drawn) + 3.0 * length * level / drawn


@inlinable
def empirical_bernstein_serfling(deviation: float, length: float, drawn: int, n: int, delta: float) -> float:
    """The same for draws without replacement only.

    >>> round(empirical_bernstein_serfling(0.068, 1.0, 1000, 200_000, 0.05), 4)
    0.027
    """
    level = math.log(5.0 / delta)
    return deviation * math.sqrt(2.0 * _sampling_factor(drawn, n) * level / drawn) + _SERFLING * length * level / drawn


@inlinable
def look_level(delta: float, look: int, power: float) -> float:
    """Level of look 1, 2, ...: these sum to at most delta.

    >>> round(sum(look_level(0.1, j, 0.0) for j in range(1, 1000)), 4), round(look_level(0.1, 1, 2.0), 4)
    (0.0999, 0.05)
    """
    if power == 0.0:
        return delta / (look * (look + 1.0))
    return (power - 1.0) * delta / (power * look**power)


@inlinable
def begin_test(evidence: np.ndarray, threshold: float, low: float, high: float, n: int, replace: bool) -> int:
    """Fill `evidence` for a test of low < high; nothing is decided yet."""
    evidence[:] = 0.0
    evidence[LEVEL] = (threshold - low) / (high - low)
    evidence[LOW], evidence[LENGTH] = low, high - low
    evidence[ROWS], evidence[REPLACE] = n, 1.0 if replace else 0.0
    evidence[MEAN], evidence[SCATTER] = 0.5, 0.25  # one made-up observation at 1/2 for the tests that bet
    return UNDECIDED


@inlinable
def open_test(test: Any, evidence: np.ndarray, threshold: float, low: float, high: float, n: int, replace: bool) -> int:
    """Begin, or decide at no cost where the range alone tells on which side the mean is."""
    evidence[:] = 0.0
    if threshold >= high:
        return REJECT
    if threshold <= low:
        return ACCEPT
    return begin_test(evidence, threshold, low, high, n, replace)


@inlinable
def next_draws(test: Any, evidence: np.ndarray) -> int:
    """How many further values the test wants to see now."""
    drawn, n = int(evidence[DRAWN]), int(evidence[ROWS])
    if drawn == 0:
        return min(n, test.first)
    return min(n, max(drawn + 1, math.ceil(test.growth * drawn))) - drawn


@generic
@declared
def feed(test: Any, evidence: np.ndarray, values: np.ndarray) -> int:
    """Take a batch of values into account; ACCEPT, REJECT, UNDECIDED, or EXHAUSTED after n draws with replacement."""
    raise TypeError


@inlinable
def _at_the_end(evidence: np.ndarray) -> int:
    """After a batch that decided nothing."""
    if evidence[DRAWN] < evidence[ROWS]:
        return UNDECIDED
    if evidence[REPLACE] != 0.0:
        return EXHAUSTED
    return ACCEPT if evidence[TOTAL] > evidence[ROWS] * evidence[LEVEL] else REJECT


@inlinable
def _merge(evidence: np.ndarray, values: np.ndarray) -> None:
    """Mean and scatter of all values so far, the batch merged in one step."""
    count, before = values.size, evidence[DRAWN]
    total = 0.0
    for k in range(count):
        total += (values[k] - evidence[LOW]) / evidence[LENGTH]
    mean, scatter = total / count, 0.0
    for k in range(count):
        scatter += ((values[k] - evidence[LOW]) / evidence[LENGTH] - mean) ** 2
    if before == 0.0:
        evidence[MEAN], evidence[SCATTER] = mean, scatter
    else:
        gap, after = mean - evidence[MEAN], before + count
        evidence[MEAN] += gap * count / after
        evidence[SCATTER] += scatter + gap * gap * before * count / after
    evidence[TOTAL] += total
    evidence[DRAWN] = before + count


@feed.register(Looks)
def _feed_looks(test: Looks, evidence: np.ndarray, values: np.ndarray) -> int:
    _merge(evidence, values)
    evidence[LOOK] += 1.0
    drawn, n = evidence[DRAWN], evidence[ROWS]
    if drawn >= n and evidence[REPLACE] == 0.0:
        return _at_the_end(evidence)
    level = look_level(test.delta, evidence[LOOK], test.power)
    deviation = math.sqrt(evidence[SCATTER] / drawn)
    if test.kind == BERNSTEIN or (test.kind == BERNSTEIN_SERFLING and evidence[REPLACE] != 0.0):
        width = empirical_bernstein(deviation, 1.0, drawn, level)
    elif test.kind == BERNSTEIN_SERFLING:
        width = empirical_bernstein_serfling(deviation, 1.0, drawn, n, level)
    elif evidence[REPLACE] != 0.0:
        width = hoeffding(1.0, drawn, level)
    else:
        width = hoeffding_serfling(1.0, drawn, n, level)
    if abs(evidence[MEAN] - evidence[LEVEL]) >= width:
        return ACCEPT if evidence[MEAN] > evidence[LEVEL] else REJECT
    return _at_the_end(evidence)


@inlinable
def plug_in_bet(delta: float, variance: float, draw: float) -> float:
    """sqrt(2 log(1/delta) / (variance t log(1 + t))): the bet of a predictable mixture at draw t."""
    return math.sqrt(2.0 * math.log(1.0 / delta) / (variance * draw * math.log(1.0 + draw)))


@feed.register(PlugInBernstein)
def _feed_mixture(test: PlugInBernstein, evidence: np.ndarray, values: np.ndarray) -> int:
    evidence[LOOK] += 1.0
    n, level, goal = evidence[ROWS], evidence[LEVEL], math.log(1.0 / test.delta)
    for k in range(values.size):
        y = (values[k] - evidence[LOW]) / evidence[LENGTH]
        draw = evidence[DRAWN] + 1.0
        bet = min(_MIXTURE_CAP, plug_in_bet(test.delta, evidence[SCATTER] / draw, draw))  # prior included: draw observations
        left = n - draw + 1.0
        shift, weight = 0.0, 1.0
        if evidence[REPLACE] == 0.0:
            shift, weight = evidence[TOTAL] / left, n / left
        evidence[UP] += bet * (y + shift)
        evidence[WEIGHT] += bet * weight
        evidence[SPREAD] += (y - evidence[MEAN]) ** 2 * (-math.log1p(-bet) - bet)
        evidence[TOTAL] += y
        evidence[DRAWN] = draw
        evidence[MEAN] += (y - evidence[MEAN]) / (draw + 1.0)
        evidence[SCATTER] += (y - evidence[MEAN]) ** 2
        gap = evidence[UP] - level * evidence[WEIGHT]
        if abs(gap) >= goal + evidence[SPREAD]:
            evidence[DRAWN] += values.size - 1 - k  # read, though not needed
            return ACCEPT if gap > 0.0 else REJECT
    return _at_the_end(evidence)


@feed.register(Betting)
def _feed_betting(test: Betting, evidence: np.ndarray, values: np.ndarray) -> int:
    evidence[LOOK] += 1.0
    count, n, level = values.size, evidence[ROWS], evidence[LEVEL]
    goal, seen = math.log(1.0 / test.delta), evidence[DRAWN] + 1.0  # the made-up observation counts
    centre, variance = evidence[MEAN], evidence[SCATTER] / seen
    if evidence[DRAWN] == 0.0:
        up = math.sqrt(2.0 * goal / (variance * 0.5 * count * math.log(1.0 + count)))
        down = up
    else:
        gap = centre - level
        bet = gap / (variance + gap * gap)
        up, down = max(bet, 0.0), max(-bet, 0.0)
    total, scatter, verdict = 0.0, 0.0, UNDECIDED
    for k in range(count):
        y = (values[k] - evidence[LOW]) / evidence[LENGTH]
        if verdict == UNDECIDED:
            mean = level
            if evidence[REPLACE] == 0.0:
                mean = (n * level - (evidence[TOTAL] + total)) / (n - evidence[DRAWN] - k)
            if mean < 0.0:  # what is left cannot bring the mean down to the threshold
                verdict = ACCEPT
            elif mean > 1.0:
                verdict = REJECT
            else:
                bet_up = up if up * mean <= test.cap else test.cap / mean
                bet_down = down if down * (1.0 - mean) <= test.cap else test.cap / (1.0 - mean)
                evidence[UP] += math.log1p(bet_up * (y - mean))
                evidence[DOWN] += math.log1p(-bet_down * (y - mean))
                if evidence[UP] >= goal:
                    verdict = ACCEPT
                elif evidence[DOWN] >= goal:
                    verdict = REJECT
        total += y
        scatter += (y - centre) ** 2
    evidence[TOTAL] += total  # after the bets of the batch: they were made without knowing it
    evidence[SCATTER] += scatter
    evidence[DRAWN] += count
    evidence[MEAN] = (0.5 + evidence[TOTAL]) / (1.0 + evidence[DRAWN])
    if verdict != UNDECIDED:
        return verdict
    return _at_the_end(evidence)


@jit
def decide_values(
    rng: np.random.Generator, test: Any, values: np.ndarray, threshold: float, low: float, high: float, replace: bool
) -> tuple[int, int]:
    """Decide from an array of values in memory: the verdict and the number of draws. For studies of a test on its own.

    >>> rng = np.random.default_rng(0)
    >>> decide_values(rng, Betting(0.05, 1.5, 8, 0.75), rng.random(100_000), 0.4, 0.0, 1.0, False)[0] == ACCEPT
    True
    """
    n = values.size
    evidence, order = np.empty(EVIDENCE), np.arange(n)
    batch = np.empty(n)
    verdict = open_test(test, evidence, threshold, low, high, n, replace)
    while verdict == UNDECIDED:
        first, count = int(evidence[DRAWN]), next_draws(test, evidence)
        for k in range(count):
            if replace:
                batch[k] = values[rng.integers(0, n)]
            else:
                other = rng.integers(first + k, n)
                order[first + k], order[other] = order[other], order[first + k]
                batch[k] = values[order[first + k]]
        verdict = feed(test, evidence, batch[:count])
    drawn = int(evidence[DRAWN])
    if verdict == EXHAUSTED:
        verdict = ACCEPT if values.mean() > threshold else REJECT
    return verdict, drawn


@jit
def mixture_sequence(values: np.ndarray, delta: float, n: int, centre: np.ndarray, half: np.ndarray) -> None:
    """Confidence sequence of the mean of values in [0, 1]: centres and half-widths after each draw.

    n is the number of rows drawn from without replacement, or 0 for draws with replacement.
    """
    mean, scatter, total, weighted, weight, spread = 0.5, 0.25, 0.0, 0.0, 0.0, 0.0
    for i in range(values.size):
        y, draw = values[i], i + 1.0
        bet = min(_MIXTURE_CAP, plug_in_bet(0.5 * delta, scatter / draw, draw))
        shift, share = 0.0, 1.0
        if n > 0:
            shift, share = total / (n - i), n / (n - i)
        weighted += bet * (y + shift)
        weight += bet * share
        spread += (y - mean) ** 2 * (-math.log1p(-bet) - bet)
        total += y
        mean += (y - mean) / (draw + 1.0)
        scatter += (y - mean) ** 2
        centre[i], half[i] = weighted / weight, (math.log(2.0 / delta) + spread) / weight


@jit
def log_capital(values: np.ndarray, level: float, delta: float, n: int) -> float:
    """Largest log of the hedged capital max(K+, K-) / 2 against one mean so far, with the bets of a predictable mixture."""
    mean, scatter, total, up, down, largest = 0.5, 0.25, 0.0, 0.0, 0.0, -np.inf
    for i in range(values.size):
        y, draw = values[i], i + 1.0
        bet = plug_in_bet(0.5 * delta, scatter / draw, draw)
        here = (n * level - total) / (n - i) if n > 0 else level
        if here < 0.0 or here > 1.0:
            return np.inf
        up += math.log1p((bet if bet * here <= 0.5 else 0.5 / here) * (y - here))
        down += math.log1p(-(bet if bet * (1.0 - here) <= 0.5 else 0.5 / (1.0 - here)) * (y - here))
        largest = max(largest, max(up, down) - math.log(2.0))
        total += y
        mean += (y - mean) / (draw + 1.0)
        scatter += (y - mean) ** 2
    return largest


def betting_interval(values: np.ndarray, delta: float, n: int = 0, tolerance: float = 1e-7) -> tuple[float, float]:
    """The betting confidence interval of the mean of values in [0, 1], valid at any time; n as in `mixture_sequence`.

    >>> low, high = betting_interval(np.random.default_rng(1).beta(10, 30, 1000), 0.05)
    >>> bool(low < 0.25 < high), bool(high - low < 0.03)
    (True, True)
    """
    goal, inside = math.log(1.0 / delta), float(np.mean(values))
    ends = []
    for outside in (0.0, 1.0):
        near, far = inside, outside
        if log_capital(values, far, delta, n) < goal:
            ends.append(outside)
            continue
        while abs(far - near) > tolerance:
            middle = 0.5 * (near + far)
            near, far = (middle, far) if log_capital(values, middle, delta, n) < goal else (near, middle)
        ends.append(far)
    return ends[0], ends[1]


NAMES = ("betting", "predictable-bernstein", "empirical-bernstein", "empirical-bernstein-serfling", "hoeffding-serfling")


def make_test(name: str, delta: float, growth: float, first: int, power: float = 0.0) -> Any:
    """The test of a given name, one of `NAMES`.

    >>> make_test("betting", 0.02, 1.5, 8)
    Betting(delta=0.02, growth=1.5, first=8, cap=0.75)
    """
    if name == "betting":
        return Betting(delta, growth, first, 0.75)
    if name == "predictable-bernstein":
        return PlugInBernstein(delta, growth, first)
    kinds = {"empirical-bernstein": BERNSTEIN, "empirical-bernstein-serfling": BERNSTEIN_SERFLING}
    return Looks(kinds.get(name, HOEFFDING), delta, growth, first, power)
