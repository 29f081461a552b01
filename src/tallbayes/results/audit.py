"""`Fit.audit`: what a run claimed, checked again on the full data for a random few iterations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.bounds.catalogue import certify
from tallbayes.bounds.tables import Zero, rate_count, row_rates, total_rate
from tallbayes.contract import Sampler
from tallbayes.engine import passes
from tallbayes.engine.cubic_sums import third_order_residuals
from tallbayes.engine.rounding import rounding
from tallbayes.errors import ModelError, StoreError
from tallbayes.mode.laplace import Laplace, Mode
from tallbayes.mode.search import find_mode, mode_at
from tallbayes.mode.several import important
from tallbayes.mode.surrogate_reference import SurrogateMode
from tallbayes.model import Model
from tallbayes.moves.proposals import propose
from tallbayes.results.provenance import recorded_sampler
from tallbayes.results.rebuild import model_of
from tallbayes.samplers import ExactMinibatch, ModeJumping, SurrogateTransition
from tallbayes.schemes.poisson_minibatch import MHSS, Tuna, dominating, replay
from tallbayes.streams import Stream, generator
from tallbayes.validation import require_instance, require_seed, require_whole

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

_BLOCK = 1 << 20  # rows replayed at a time
_CANDIDATES = 2000.0  # candidate rows a replayed ratio should see, so that its mean is nearly normal
_MOST_REPEATS = 1_000_000
_ROUNDING = 1e-9  # of a sum over all rows


@dataclass(frozen=True, eq=False)
class Audit:
    """Findings of an audit: `facts` by name, and `problems`, empty if nothing is wrong."""

    facts: dict[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    def __repr__(self) -> str:
        lines = ["audit passed" if self.passed else "audit FAILED"]
        lines += [
            f"  {name}: {value:.4g}" if isinstance(value, float) else f"  {name}: {value}" for name, value in self.facts.items()
        ]
        return "\n".join(lines + [f"  PROBLEM: {p}" for p in self.problems])


def audit(fit: Fit, model: Model | None, pairs: int, repeats: int, seed: int, sampler: str | Sampler | None = None) -> Audit:
    """Replay a random few decisions or densities on the full data."""
    if model is None:
        model = model_of(fit)
    require_instance("model", model, Model, "the model of the fit, or None to build it again from the rows")
    for name, value in (("pairs", pairs), ("repeats", repeats)):
        require_whole(name, value, 1)
    require_seed(seed, fresh=False)
    if model.data.fingerprint != fit.meta["fingerprint"]:
        raise StoreError("these are not the rows of the fit; audit it with the model it was made from.")
    if model.partitions is not None:
        raise ModelError(
            "an audit reads single rows, but those of this model are in partitions; read them on one machine with "
            "tallbayes.read(..., memory='disk') and audit a fit of that model."
        )
    rng = generator(seed, Stream.AUDIT)
    sampler = recorded_sampler(fit.meta["sampler"], fit.meta.get("user_sampler", False), sampler, "the fit")
    facts: dict[str, Any] = {}
    problems: list[str] = []
    if isinstance(sampler, ExactMinibatch):
        _minibatch(fit, model, sampler, pairs, repeats, rng, facts, problems)
    elif isinstance(sampler, ModeJumping | SurrogateTransition):
        _references(fit, _drawn_at(fit, model), pairs, rng, facts, problems)
    else:
        replayed = sampler.audit(model, fit, pairs, repeats, rng)
        if replayed is None:
            _density(fit, model, pairs, rng, facts, problems)
        else:
            facts.update(replayed[0])
            problems.extend(replayed[1])
    white = Laplace(fit.laplace_mean, fit.laplace_factor, fit.names).whiten(fit.theta).reshape(-1, len(fit.names))
    facts["largest |mean| in Laplace sds"] = float(np.abs(white.mean(0)).max())
    facts["variances over Laplace variances"] = f"{white.var(0).min():.3f} to {white.var(0).max():.3f}"
    return Audit(facts, tuple(problems))


def _density(fit: Fit, model: Model, count: int, rng: np.random.Generator, facts: dict[str, Any], problems: list[str]) -> None:
    if model.grouped:
        facts["log densities"] = "none: that of the parameters alone is an integral over the effects of all levels"
        return
    if "lp" not in fit.stats:
        facts["log densities"] = "none: the sampler reports no 'lp' that could be recomputed"
        return
    chains, draws, _ = fit.theta.shape
    worst = 0.0
    for _ in range(count):
        c, k = rng.integers(chains), rng.integers(draws)
        exact = model.log_posterior(fit.theta[c, k])
        worst = max(worst, abs(exact - fit.stats["lp"][c, k]) / (1.0 + abs(exact)))
    facts["draws recomputed on all rows"] = count
    facts["largest relative error of log density"] = worst
    if worst > 1e-9:
        problems.append("a stored log density differs from its recomputation: the data or the code changed")


def _drawn_at(fit: Fit, model: Model) -> list[tuple[Mode, np.ndarray]]:
    """References found again, each with the draws that were decided there."""
    found = find_mode(model, progress=False)
    if isinstance(found, SurrogateMode):
        assert found.inner is not None
        return [(found.inner, fit.theta[:, :, : found.inner.reference.size].reshape(-1, found.inner.reference.size))]
    homes, theta = fit.stats["home"].reshape(-1), fit.theta.reshape(-1, model.dim)
    return [(mode, theta[homes == k]) for k, mode in enumerate(important(found)) if (homes == k).any()]


def _references(
    fit: Fit,
    references: list[tuple[Mode, np.ndarray]],
    pairs: int,
    rng: np.random.Generator,
    facts: dict[str, Any],
    problems: list[str],
) -> None:
    """Residuals of all rows between a draw and its reference, against their bounds."""
    facts["largest residual / bound in the run"] = float(fit.stats["largest_ratio"].max())
    facts["iterations that read all rows"] = float(fit.stats["full_read"].mean())
    ratio, count = 0.0, 0
    for mode, draws in references:
        if mode.model.unit_scale_member is not None:
            facts["rows read"] = "none: the likelihood is known from sufficient statistics"
            return
        try:
            bound, _ = certify(mode, indexed=True)
        except ModelError:
            facts["rows"] = "all were read for every decision: the model has no certified bound"
            return
        for _ in range(pairs):
            white = mode.laplace().whiten(draws[rng.integers(len(draws))])
            ratio = max(ratio, _full_gap(mode.model, mode, bound, MHSS(), np.zeros(white.size), white)[1])
            count += 1
    facts["draws checked on all rows"] = count
    facts["largest residual / bound over all rows of them"] = ratio
    if max(ratio, facts["largest residual / bound in the run"]) > 1.0 + 1e-9:
        problems.append("a residual exceeds its bound, so rows that matter are read too rarely: correct the bound")


def _minibatch(
    fit: Fit,
    model: Model,
    sampler: ExactMinibatch,
    pairs: int,
    repeats: int,
    rng: np.random.Generator,
    facts: dict[str, Any],
    problems: list[str],
) -> None:
    decided = fit.stats["stage_one"] == 1 if sampler.two_stage else np.ones(fit.theta.shape[:2], bool)
    facts["largest residual / bound in the run"] = float(fit.stats["largest_ratio"].max())
    facts["decisions that read no row"] = float((fit.stats["rows"][decided] == 0).mean()) if decided.any() else 1.0
    facts["iterations that read all rows"] = float(fit.stats["full_read"].mean())
    mode = mode_at(model, fit.laplace_mean)
    setup = sampler.setup(model, mode, fit.meta["seed"], False)
    options, target = setup.policy.options(setup.policy.begin(), True), setup.target()
    if isinstance(setup.proxy.bound, Zero):
        facts["rows read"] = "none: the likelihood is known from sufficient statistics"
        return
    bound, _ = sampler.certificate(mode, fit.meta["seed"], indexed=True)
    chains, draws, d = fit.theta.shape
    laplace = mode.laplace()
    ratio, score, lost = 0.0, 0.0, []
    for _ in range(pairs):
        white = laplace.whiten(fit.theta[rng.integers(chains), rng.integers(draws)])
        other = np.empty(d)
        propose(rng, options.kernel, white, other)
        exact, worst, spread, rate = _full_gap(model, mode, bound, options.rate, white, other, setup.proxy.proxy)
        ratio = max(ratio, worst)
        wanted = _CANDIDATES / max(rate, 1e-12)
        estimates = np.empty(int(max(repeats, wanted)) if wanted <= _MOST_REPEATS else repeats)
        if rate < model.data.n:
            replay(rng, target, options, white, other, estimates)
        else:
            estimates[:] = exact  # a full read: nothing is estimated
        if sampler.rate != "smh" and rate * estimates.size >= _CANDIDATES / 2 and rate < model.data.n:
            gap = abs(np.exp(np.minimum(estimates - exact, 50.0)).mean() - 1.0)
            score = max(score, max(0.0, gap - _ROUNDING) / np.sqrt(max(np.expm1(min(spread, 50.0)), 1e-300) / estimates.size))
        lost.append(min(1.0, np.exp(exact)) - np.minimum(1.0, np.exp(estimates)).mean())
    facts["pairs replayed on all rows"] = pairs
    facts["largest residual / bound over all rows of them"] = ratio
    if sampler.rate != "smh":
        facts["largest z of the estimated ratio against the exact one"] = score
    facts["acceptance lost to subsampling"] = float(np.mean(lost))
    if max(ratio, facts["largest residual / bound in the run"]) > 1.0 + 1e-9:
        problems.append("a residual exceeds its bound, so rows that matter are read too rarely: correct the bound")
    if score > 6.0:
        problems.append("the minibatch ratio is not unbiased for the full-data ratio")


def _full_gap(
    model: Model, mode: Mode, bound: Any, rate: Any, white: np.ndarray, other: np.ndarray, proxy: Any = None
) -> tuple[float, float, float, float]:
    """Over all rows: sum of residual differences, largest ratio of one to its bound, log(1 + relative variance) of the
    estimated ratio, sum (phi' - phi)^2 / phi, and the rate of candidates."""
    theta, proposal = mode.reference + mode.factor @ white, mode.reference + mode.factor @ other
    near = proxy is not None and proxy.reach > 0.0 and max(np.linalg.norm(white), np.linalg.norm(other)) <= proxy.reach
    rates = np.zeros(rate_count(bound))
    sum_of_limits = total_rate(bound, white, other, rates)
    extra = rate.chi * sum_of_limits if isinstance(rate, Tuna) else 0.0
    total, worst, spread = 0.0, 0.0, 0.0
    for start in range(0, model.data.n, _BLOCK):
        index = np.arange(start, min(model.data.n, start + _BLOCK))
        residuals = third_order_residuals if near else passes.residuals_at
        gaps = residuals(model.rows, index, theta, proposal, mode.reference)
        limits = np.empty(index.size)
        row_rates(bound, rates, start, limits)
        total += float(gaps.sum())
        known = limits > 0.0
        share = -gaps[known] / limits[known]
        worst = max(worst, float(np.abs(share).max(initial=0.0)))
        if not (np.abs(gaps[~known]) <= rounding(model.rows)).all():
            worst = np.inf  # a row that is never read, and matters
        if isinstance(rate, Tuna):
            forward = extra + 0.5 * (1.0 + share)
        else:
            forward = 1.0 + np.minimum(0.0, share)
        spread += float((limits[known] * share**2 / np.maximum(forward, 1e-12)).sum())
    return total, worst, spread, dominating(rate, sum_of_limits)
