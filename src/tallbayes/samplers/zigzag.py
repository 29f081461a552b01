"""The Zig-Zag process with control variates and weighted rows (Bierkens, Fearnhead and Roberts 2019), in whitened coordinates.

(w, v) with v in {-1, 1}^d moves on straight lines, dw/dt = v, and v_k changes its sign at the rate

    (v_k dU_k(w))^+ + sum_i (v_k dR_ik(w))^+,     dU_k + sum_i dR_ik = - d log posterior / d w_k,

which leaves posterior x uniform on {-1, 1}^d invariant in continuous time. Here dU is the gradient of the Laplace fit, w less a
constant: its events are drawn exactly. What is left of row i is dR_i = -c_i, the gradient of its second-order Taylor residual,
with |c_i| <= 3 lambda_i |w|^2 proven. Rows are candidates at the rate 3 sqrt(d) sum_i lambda_i |w + v t|^2, drawn in proportion
to lambda_i; a candidate turns coordinate k with probability |c_ik| / (3 sqrt(d) lambda_i |w|^2) if v_k c_ik < 0. Its row alone
is read. Priors with tails of Student's t add a term of the same kind for each coefficient.

Draws are the path at equal times. EXACT: no discretisation, no acceptance test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tallbayes.bounds.bound import DRAW, SLOPE
from tallbayes.bounds.catalogue import certify
from tallbayes.bounds.slopes import slope_rate
from tallbayes.bounds.tables import rate_count
from tallbayes.contract import Guarantee, Sampler, Setup
from tallbayes.errors import ModelError, OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.mode.search import mode_at
from tallbayes.model import Model
from tallbayes.proxies.taylor import taylor, whitening_of
from tallbayes.schemes.path_policy import PathPolicy, prior_rows
from tallbayes.schemes.paths import Info, candidates, prior_residual
from tallbayes.target import Certified

BOUNDS = ("T6", "T9")
HOPELESS, MANY = 100.0, 10_000  # candidates in the time of a draw, in units of n or of so many rows, that are refused


@dataclass(frozen=True)
class ZigZag(Sampler):
    """The Zig-Zag process with control variates and weighted rows.

    `interval` is the time between draws, in posterior standard deviations at unit speed; by default warm-up sets it. `bound` is
    "T6", "T9" or "auto", as for `ExactMinibatch`.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 2))])
    >>> y = (rng.random(20_000) < 1 / (1 + np.exp(-X @ [0.1, 0.5, -0.5]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    >>> fit = tb.sample(model, tb.samplers.ZigZag(), draws=500, seed=1, progress=False)
    >>> fit.guarantee.kind, bool(fit.evals.mean() < 10)
    ('EXACT', True)
    """

    interval: float | None = None
    bound: str = "auto"
    guarantee: ClassVar[Guarantee] = Guarantee(
        "EXACT",
        "targets the full-data posterior exactly, in continuous time; rows are drawn at random under certified rates",
        assumed=("the proven bound on the third derivative of the family", "arithmetic in double precision"),
        checked=("every rate is within its bound",),
    )
    name: ClassVar[str] = "zigzag"
    streams: ClassVar[bool] = True
    Info: ClassVar[type] = Info
    cost: ClassVar[str] = "a few rows, independent of n"

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        if self.interval is not None and not 0.0 < self.interval < math.inf:
            raise OptionError(f"interval must be a positive time between draws, or None to tune it; got {self.interval}.")
        if self.bound != "auto" and self.bound not in BOUNDS:
            raise unknown("bound", self.bound, [*BOUNDS, "auto"])

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Certify all rows (one pass), build the tables."""
        prior = prior_rows(mode)
        if not model.linear:
            raise ModelError(
                "Zig-Zag needs bounds on slopes, which third_derivative_bound= does not give; use 'exact-minibatch' with a "
                "bound, or 'hmc-ecs'."
            )
        bound, name = certify(mode, self.bound, seed=seed)
        policy = PathPolicy(mode, mode.factor.T @ mode.gradient, prior, self.interval)
        certified = Certified(whitening_of(mode), taylor(mode), bound)
        rates = np.zeros(rate_count(bound))
        rate = 3.0 * math.sqrt(model.dim) * model.dim * slope_rate(bound, math.sqrt(model.dim) + 1.0, rates)
        events = rate + 3.0 * model.dim**1.5 * float(prior.weight.sum())
        if events > HOPELESS * max(model.data.n, MANY):
            raise ModelError(
                f"the Zig-Zag process would have about {events:,.3g} candidate events per draw, {events / model.data.n:,.3g} "
                f"times the {model.data.n:,} rows: with bound {name} the posterior is too far from Gaussian. Use a full-data "
                "sampler such as 'nuts'."
            )
        why = f"Zig-Zag process with bound {name}, about {rate:.3g} candidate rows per unit of time"
        return Setup(model, policy, certified, why, {"candidate rows per unit of time": float(rate)}, (SLOPE, DRAW))

    def audit(
        self, model: Model, fit: Any, pairs: int, repeats: int, rng: np.random.Generator
    ) -> tuple[dict[str, Any], list[str]] | None:
        """At random draws: candidates against their bounds, and their mean against the gradient on all rows."""
        mode = mode_at(model, fit.laplace_mean)
        setup = self.setup(model, mode, fit.meta["seed"], False)
        options, target = setup.policy.options(setup.policy.begin(), True), setup.target()
        chains, draws, d = fit.theta.shape
        largest, score = float(fit.stats["largest_ratio"].max()), 0.0
        for _ in range(pairs):
            theta = np.ascontiguousarray(fit.theta[rng.integers(chains), rng.integers(draws)])
            white, gradients, limits = mode.laplace().whiten(theta), np.empty((repeats, d)), np.ones(repeats)
            total = candidates(rng, target, options, white, gradients, limits) if not _none(setup) else 0.0
            if total == 0.0:
                break
            terms = gradients * (total / limits)[:, None]
            sizes = np.sqrt((gradients**2).sum(1))
            largest = max(largest, float((sizes / (3.0 * limits * (white @ white))).max()))
            exact = mode.factor.T @ model.gradient(theta)[1] - options.centre + white
            for row in range(options.prior.weight.size):
                part = np.empty(d)
                prior_residual(options.prior, row, theta, part)
                exact -= part
            error = terms.std(0) / math.sqrt(repeats) + 1e-9 * (1.0 + np.abs(exact) + np.abs(white))
            score = max(score, float((np.abs(terms.mean(0) - exact) / error).max()))
        facts = {
            "draws at which gradients were recomputed on all rows": pairs,
            "largest rate / bound": largest,
            "largest z of the candidates' mean against the gradient on all rows": score,
        }
        problems = ["a rate exceeds its certified bound"] if largest > 1.0 + 1e-9 else []
        return facts, problems + (["the candidates are not unbiased for the gradient"] if score > 6.0 else [])


def _none(setup: Setup) -> bool:
    """Whether the likelihood is its proxy, so that no row is ever a candidate."""
    return not setup.notes["candidate rows per unit of time"] > 0.0
