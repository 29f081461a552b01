"""After a run of a pseudo-marginal sampler: what its estimates of the likelihood were like, in sentences and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.contract import Diagnosis, Outcome, Setup
from tallbayes.diagnostics.subsample_pilot import LARGEST_BIAS
from tallbayes.engine import passes
from tallbayes.model import Model
from tallbayes.proxies.difference import Difference
from tallbayes.proxies.taylor import reference_of

LOWEST, HIGHEST = 0.2, 10.0  # variance of the log-likelihood estimate beyond which to warn (Bardenet et al. 2017, 4.1)
MOST_WALL = 0.001  # share of iterations that may meet the wall
LARGEST_BIAS_SD = 0.2  # of the bias of log L-hat over posterior draws: about as much changes a posterior mean by 0.1 sd
LEAST_POSITIVE = 0.8
SLOW_RENEWAL = 0.9  # autocorrelation of the estimate's error that a round of block updates may leave
ROUNDING = 1e-10  # of a sum over rows: for each of them, and for each unit of the sum
DRAWS = 50  # posterior draws at which the bias is computed


def check(outcome: Outcome, alternative: str) -> Diagnosis:
    """Notes and warnings on a finished run."""
    setup, theta, stats = outcome.setup, outcome.theta, outcome.stats
    notes, n = dict(setup.notes), setup.model.data.n
    variance = float(np.mean(stats["variance"]))
    notes["variance"] = variance
    notes["u_acceptance"] = float(np.mean(stats["u_accepted"]))
    if "accepted" in stats:
        notes["longest_run_without_acceptance"] = max(outcome.thin * _longest_run(chain == 0) for chain in stats["accepted"])
    out = _signs(stats, notes) if "weight" in stats else _bias(setup, theta, notes)
    if notes.get("bias_guard", 0.0) > LARGEST_BIAS:
        out.append(
            "at a distance of sqrt(d) + 3 posterior standard deviations from the mode, the bias of log L-hat reaches "
            f"{notes['bias_guard']:.2g}, above {LARGEST_BIAS:g}: with so few rows the chains may drift away. Use "
            f"subsample=None, or {alternative}."
        )
    if variance > HIGHEST:
        out.append(
            f"the log-likelihood estimate has a variance of {variance:.3g}, above {HIGHEST:g}: the chains get stuck and the "
            f"bias may be large. Use more rows ({'products' if 'weight' in stats else 'subsample'}=), or {alternative}."
        )
    out += _renewal(outcome, notes, variance)
    m = notes.get("subsample", 0)
    if variance < LOWEST and m >= 2 * max(notes.get("at_least", 0), 100) and m < n:
        out.append(
            f"the log-likelihood estimate has a variance of {variance:.3g}, below {LOWEST:g}: {m} rows are more than needed; a "
            "smaller subsample= would cost less."
        )
    rows = m or notes["products"] * notes["batch"] + notes["pilot"]
    if rows >= n:
        out.append(
            f"an estimate reads {rows:,} rows and the data have {n:,}: subsampling does not pay here; use {alternative}."
        )
    wall = float(np.mean(stats["wall"] > 0))
    notes["wall"] = wall
    if wall > MOST_WALL:
        out.append(
            f"{100 * wall:.2g} % of the iterations met the wall at {notes['radius']:.3g} posterior standard deviations: the "
            "draws are truncated there. The reference is poor or the posterior is strongly non-Gaussian; use recentre=2, more "
            f"rows, or {alternative}."
        )
    return Diagnosis(notes, tuple(out))


def _renewal(outcome: Outcome, notes: dict[str, Any], variance: float) -> list[str]:
    """Autocorrelation of log |L-hat| less the proxies after as many iterations as there are blocks: how fast rows are renewed.

    If every update is accepted, a share 1/e of the blocks is left after a round, and so is the autocorrelation.
    """
    theta, stats, proxy = outcome.theta, outcome.stats, outcome.setup.proxy
    if not isinstance(proxy, Difference) or "log_likelihood" not in stats:
        return []  # learned rows keep no sum of proxies
    blocks = notes["blocks"] if "blocks" in notes else notes["products"] / notes["refreshed"]
    lag = max(1, round(blocks / outcome.thin))
    if theta.shape[1] < 5 * lag:  # too short to say
        return []
    h = theta - reference_of(proxy.whitening)
    quadratic = h @ proxy.sums[0] + 0.5 * ((h @ proxy.sums[1:]) * h).sum(-1)
    error = stats["log_likelihood"] - (proxy.level + quadratic)
    error = error - error.mean()
    total = float((error * error).mean())
    # proxies that are exact leave rounding alone
    left = float((error[:, lag:] * error[:, :-lag]).mean()) / total if total > 1e-12 * (1.0 + variance) else 0.0
    notes["renewal_lag"], notes["renewal_autocorrelation"] = lag, left
    if variance > 1.0 and left > SLOW_RENEWAL:
        return [
            f"the error of the log-likelihood estimate still has an autocorrelation of {left:.2f} after a round of "
            f"{blocks:.0f} block updates, of which {100 * notes['u_acceptance']:.0f} % were accepted: the draws depend on rows "
            "that are replaced slowly. Use more rows (subsample=, products=)."
        ]
    return []


def _longest_run(rejected: np.ndarray) -> int:
    """Length of the longest stretch of True."""
    ends = np.flatnonzero(np.diff(np.concatenate([[0], rejected.astype(int), [0]])))
    return int((ends[1::2] - ends[::2]).max(initial=0))


def _bias(setup: Setup, theta: np.ndarray, notes: dict[str, Any]) -> list[str]:
    """The bias of log L-hat at some draws; a constant would not matter, so its spread counts."""
    flat = theta.reshape(-1, theta.shape[-1])
    points = flat[np.linspace(0, flat.shape[0] - 1, min(DRAWS, flat.shape[0])).astype(int)]
    pilot: Any = getattr(setup.policy, "pilot", None)
    if pilot is None:  # rows by a learned likelihood: the population of Z depends on theta
        return []
    samples = [pilot.at(t) for t in points]
    biases = np.array([s.bias(notes["subsample"]) for s in samples])
    notes["bias_mean"], notes["bias_sd"] = float(biases.mean()), float(biases.std())
    notes["variance_at_draws"] = float(np.mean([s.variance(notes["subsample"]) for s in samples]))
    if not biases.std() <= LARGEST_BIAS_SD:
        return [
            f"the bias of the log-likelihood estimate varies by {biases.std():.2g} (standard deviation) over the posterior: "
            "the distribution of the draws visibly differs from the posterior. Use more rows (subsample=), "
            "fit.reweight(model), or an exact sampler."
        ]
    return []


def _signs(stats: dict[str, np.ndarray], notes: dict[str, Any]) -> list[str]:
    signs = stats["weight"]
    positive, mean = float((signs > 0).mean()), float(signs.mean())
    notes["positive"] = positive
    sizes = max(1, int(np.sqrt(signs.shape[1])))
    batches = signs[:, : signs.shape[1] // sizes * sizes].reshape(-1, sizes).mean(1)
    error = float(batches.std(ddof=1) / np.sqrt(batches.size)) if batches.size > 1 else 1.0
    if abs(mean) < 4.0 * error:
        return [
            f"the mean sign is {mean:.2g} with a standard error of {error:.2g}: signed averages of these draws are "
            "meaningless. Raise products= or batch=, or use an exact sampler."
        ]
    if positive < LEAST_POSITIVE:
        return [
            f"only {100 * positive:.0f} % of the likelihood estimates are positive: signed averages are noisy. Raise products=."
        ]
    return []


def audit(model: Model, fit: Any, draws: int, rng: np.random.Generator) -> tuple[dict[str, Any], list[str]]:
    """Stored estimates of the log-likelihood against all rows, at random draws."""
    chains, length, _ = fit.theta.shape
    gaps, sds = np.empty(draws), np.empty(draws)
    for k in range(draws):
        c, i = rng.integers(chains), rng.integers(length)
        gaps[k] = fit.stats["log_likelihood"][c, i] - passes.total_value(model.rows, fit.theta[c, i])
        sds[k] = np.sqrt(fit.stats["variance"][c, i])
    facts = {
        "draws evaluated on all rows": draws,
        "mean of log L-hat less l": float(gaps.mean()),
        "sd of log L-hat less l": float(gaps.std()),
        "sd of log L-hat by its own estimate": float(sds.mean()),
    }
    problems = []
    rounding = ROUNDING * (
        model.data.n + np.abs(fit.stats["log_likelihood"]).max()
    )  # terms of both signs may cancel in the sum
    if np.abs(gaps).max() > 8.0 * (sds.max() + sds.max() ** 2) + rounding:
        problems.append("an estimate of the log-likelihood is further from the truth than its variance allows")
    return facts, problems
