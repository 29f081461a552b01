"""Exact minibatch Metropolis-Hastings: posterior draws that read a few rows per iteration, independent of n.

With residual energies U_i = -(l_i - q_i), dU_i = U_i(theta') - U_i(theta) and |dU_i| <= lambda_i(theta, theta') symmetric,
draw independent s_i ~ Poisson(phi_i(theta, theta')) for any phi_i >= 0 with phi_i(theta, theta') - phi_i(theta', theta) = dU_i.
Then accepting with probability

    min{1, e^(proxy, prior and proposal ratios) prod_i [phi_i(theta', theta) / phi_i(theta, theta')]^(s_i)}

satisfies detailed balance with respect to the posterior: the Poisson normalisers supply exp(-sum dU_i). Rates:

* mh-ss (Prado, Nemeth and Sherlock 2024): phi = lambda + min(0, dU).
* tuna (TunaMH: Zhang, Cooper and De Sa 2020): phi = chi lambda Lambda + (dU + lambda) / 2.
* smh (Cornish et al. 2019): phi = max(0, dU); any s_i > 0 rejects.

With order=3 the proxies of a pair of positions near the reference include their third-order terms, under a fourth-order bound.

Two stages (the default) first accept on the proxy alone and read rows only if that passes. EXACT.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.bounds.catalogue import NAMES, certify
from tallbayes.bounds.fourth_order import fourth_order
from tallbayes.bounds.tables import Zero
from tallbayes.contract import Diagnosis, Guarantee, Outcome, Sampler, Setup, init, step
from tallbayes.errors import ModelError, OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves import Move, ProposalMove, as_proposal, independence
from tallbayes.moves.proposals import HeavyTailedMove
from tallbayes.moves.surrogate import SurrogateMove, travel
from tallbayes.proxies.sufficient_statistics import gaussian_moments
from tallbayes.proxies.taylor import proxy_value, taylor, unwhiten, whiten, whitening_of
from tallbayes.proxies.third_order import higher_terms, pair_near, reach_of, third_order
from tallbayes.schemes.poisson_minibatch import AT, RATES, Info, residual_ratio, tail_excesses
from tallbayes.schemes.proposal_policy import ProposalPolicy
from tallbayes.schemes.surrogate_density import Surrogate
from tallbayes.target import Certified, Target, log_prior


class State(NamedTuple):
    """Position, its whitened coordinates, the log surrogate there (proxy sum plus log prior), and third-order terms if there are any."""

    theta: np.ndarray
    white: np.ndarray
    surrogate: float
    higher: float


class MinibatchOptions(NamedTuple):
    """Compiled options."""

    kernel: Any
    rate: Any
    two_stage: bool


@init.register(MinibatchOptions)
def _init(rng: np.random.Generator, target: Target, options: MinibatchOptions, theta: np.ndarray) -> Any:
    white = whiten(target.proxy.whitening, theta)
    surrogate = proxy_value(target.proxy.proxy, white) + log_prior(target, theta)
    return State(theta.copy(), white, surrogate, higher_terms(target.proxy.proxy, white))


@step.register(MinibatchOptions)
def _step(rng: np.random.Generator, target: Target, options: MinibatchOptions, state: Any, info: np.ndarray) -> Any:
    d = state.theta.size
    white, theta = np.empty(d), np.empty(d)
    density = Surrogate(target.proxy.proxy, target.proxy.whitening, target.prior)
    ratio, component, decided = travel(rng, options.kernel, density, state.white, white)
    info[:] = 0.0
    info[AT.component] = component
    if ratio == -np.inf:
        return state
    unwhiten(target.proxy.whitening, white, theta)
    surrogate = proxy_value(target.proxy.proxy, white) + log_prior(target, theta)
    higher = higher_terms(target.proxy.proxy, white)
    if not decided:
        ratio += surrogate - state.surrogate
        if pair_near(target.proxy.proxy, state.white, white):
            ratio += higher - state.higher
    level = math.log(1.0 - rng.random())
    if options.two_stage:
        if not level < ratio:
            return state
        ratio, level = 0.0, math.log(1.0 - rng.random())
        info[AT.stage_one] = 1.0
    ratio += residual_ratio(rng, target, options, state.theta, theta, state.white, white, info)
    if level < ratio:
        info[AT.accepted], info[AT.acceptance_rate] = 1.0, 1.0
        return State(theta, white, surrogate, higher)
    return state


def _proposing(move: Move) -> ProposalMove | SurrogateMove:
    return move if isinstance(move, SurrogateMove) else as_proposal(move)


@dataclass(frozen=True)
class ExactMinibatch(Sampler):
    """Exact minibatch Metropolis-Hastings.

    `rate` is "mh-ss", "tuna" (with `chi`) or "smh"; `bound` a name of `tallbayes.bounds.catalogue` or "auto"; `move` any
    with a known proposal ratio, or surrogate(). `order=3` adds third-order terms to the proxy, d^3 / 6 numbers: fewer rows for more
    arithmetic, for families with one predictor. Gaussian models use sufficient statistics and read no rows at all.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 2))])
    >>> y = (rng.random(20_000) < 1 / (1 + np.exp(-X @ [0.1, 0.5, -0.5]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    >>> fit = tb.sample(model, tb.samplers.ExactMinibatch(), draws=500, seed=1, progress=False)
    >>> bool(fit.evals.mean() < 10)
    True
    """

    rate: str = "mh-ss"
    move: Move = field(default_factory=independence)
    bound: str = "auto"
    two_stage: bool = True
    chi: float | None = None
    order: int = 2
    guarantee: ClassVar[Guarantee] = Guarantee(
        "EXACT",
        "targets the full-data posterior exactly; rows are drawn at random under certified bounds",
        assumed=("the proven bound on the third derivative of the family", "arithmetic in double precision"),
        checked=("every residual read is within its bound",),
    )
    name: ClassVar[str] = "exact-minibatch"
    Info: ClassVar[type] = Info
    cost: ClassVar[str] = "a few rows, independent of n"
    streams: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        if self.rate not in RATES:
            raise unknown("rate", self.rate, RATES)
        if self.bound != "auto" and self.bound not in NAMES:
            raise unknown("bound", self.bound, [*NAMES, "auto"])
        if self.chi is not None and self.rate != "tuna":
            raise OptionError(f"chi applies only to rate='tuna'; rate={self.rate!r} does not use it.")
        if self.chi is not None and not self.chi >= 0.0:
            raise OptionError(f"chi must be at least 0; got {self.chi}.")
        if self.order not in (2, 3):
            raise OptionError(f"order must be 2 or 3; got {self.order!r}.")
        _proposing(self.move)

    def diagnose(self, outcome: Outcome) -> Diagnosis:
        """Tails that proposals and first stage rarely reach."""
        from tallbayes.diagnostics.tails import EXCESS, heavy_tails

        setup = outcome.setup
        df = self.move.df if isinstance(self.move, HeavyTailedMove) and not self.two_stage else None
        remedy = "Use 'nuts'."
        if df is None:
            remedy = "Use 'nuts', or ExactMinibatch(rate='tuna', chi=2.0, move=independence(df=4), two_stage=False)."
        excess = partial(tail_excesses, setup, enough=EXCESS if df is None else -math.inf)
        return Diagnosis(warnings=tuple(heavy_tails(setup.proxy.whitening, outcome.theta, excess, remedy, df)))

    def policy(self, dim: int) -> ProposalPolicy:
        """Warm-up of the proposal; the rest of what `prepare` makes does not depend on move, rate or stages."""
        options = MinibatchOptions(None, RATES[self.rate](0.1 if self.chi is None else self.chi), self.two_stage)
        return ProposalPolicy(_proposing(self.move), dim, options, lambda theta: State(theta, np.zeros_like(theta), 0.0, 0.0))

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Whiten, certify all rows (one pass), build the tables."""
        policy = self.policy(model.dim)
        whitening = whitening_of(mode)
        if model.unit_scale_member is not None:
            if isinstance(self.move, SurrogateMove) and self.move.needs_gradient:
                raise ModelError(
                    "the sufficient statistics of a Gaussian model have no gradient here; use move=surrogate(independence())."
                )
            certified = Certified(whitening, gaussian_moments(mode), Zero())
            why = "the Gaussian likelihood follows from sufficient statistics, so no rows are read"
        else:
            proxy: Any = taylor(mode) if self.order == 2 else third_order(mode)
            bound, name = self.certificate(mode, seed)
            certified = Certified(whitening, proxy, bound)
            why = f"exact minibatch ({self.rate}) with bound {name}" + " and third-order proxies" * (self.order == 3)
        return Setup(model, policy, certified, why)

    def certificate(self, mode: Mode, seed: int, indexed: bool = False) -> tuple[Any, str]:
        """The certified bound of all rows and the name of its second-order part; `indexed` lets any row be looked up."""
        bound, name = certify(mode, self.bound, indexed=indexed, seed=seed)
        if self.order == 3:
            bound = fourth_order(mode, bound, reach_of(mode.model.dim), indexed)
        return bound, name
