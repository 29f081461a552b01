"""What samplers share whose decisions are wrong with probability at most delta: options, notes, and an audit beside delta."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.contract import Diagnosis, Outcome
from tallbayes.errors import OptionError, unknown
from tallbayes.schemes import sequential_tests


def check_test(test: str, delta: float, growth: float, first: int, power: float) -> None:
    """Validate the options of a test."""
    if test not in sequential_tests.NAMES:
        raise unknown("test", test, sequential_tests.NAMES)
    if not 0.0 < delta < 1.0:
        raise OptionError(f"delta is the probability of a wrong decision, between 0 and 1; got {delta}.")
    if not 1.0 < growth < np.inf:
        raise OptionError(f"growth multiplies the number of rows at each look and must exceed 1; got {growth}.")
    if not isinstance(first, int) or first < 1:
        raise OptionError(f"first is the number of rows of the first look, 1 or more; got {first!r}.")
    if power != 0.0 and not 1.0 < power < np.inf:
        raise OptionError(f"power must exceed 1, or be 0 for levels delta / (j (j + 1)); got {power}.")


def summarise(outcome: Outcome, order: int) -> Diagnosis:
    """Median half-range of the sum (C n), shares of iterations without a draw and with a full read."""
    n, stats = outcome.setup.model.data.n, outcome.stats
    half = float(np.median(stats["half_range"]))
    full = float(np.mean(stats["full_read"]))
    notes = {
        "median C n": half,
        "iterations without a draw": float(np.mean((stats["draws"] == 0) & (stats["full_read"] == 0))),
        "iterations that read all rows": full,
        "mean draws / n": float(np.mean(stats["draws"])) / n,
        "largest residual / bound": float(np.max(stats["largest_ratio"], initial=0.0)),
    }
    if stats["oracle_evals"].any():
        notes["evaluations by the oracle, in no other count"] = float(stats["oracle_evals"].sum())
    if full <= 0.5:
        return Diagnosis(notes)
    remedy = "use sampler='exact-minibatch' or 'mh'" if order == 2 else "use a proxy, order=2"
    warning = f"{100 * full:.0f} % of the iterations read all rows: the range (median C n = {half:.3g}) is too wide; {remedy}."
    return Diagnosis(notes, (warning,))


def beside_delta(found: tuple[dict[str, Any], list[str]], delta: float) -> tuple[dict[str, Any], list[str]]:
    """Add delta to the facts of replayed decisions, and a problem if the flip rate is above it beyond chance (1e-6)."""
    from scipy.stats import binom

    facts, problems = dict(found[0]), list(found[1])
    trials, rate = facts["decisions replayed"], facts["flip rate"]
    facts["delta"] = delta
    if binom.sf(round(rate * trials) - 1, trials, delta) < 1e-6:
        problems.append(f"{100 * rate:.2f} % of the decisions are wrong, more than delta = {100 * delta:g} % allows")
    return facts, problems
