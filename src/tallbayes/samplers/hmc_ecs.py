"""HMC with energy conserving subsampling: Hamiltonian dynamics of an estimated posterior whose rows stay fixed on the way.

The law on parameters and row numbers u that every transition leaves invariant is proportional to

    |L-hat(theta; u)| p(theta) p(u),

L-hat an estimator of the likelihood from a difference estimator with Taylor control variates. An iteration draws a block of u
anew (accepted with probability min{1, |L-hat(theta; u')| / |L-hat(theta; u)|}), then moves theta by HMC or NUTS with u fixed:
dynamics, gradient and acceptance belong to one and the same Hamiltonian, so acceptance does not suffer. Dang, Quiroz, Kohn,
Tran and Villani (2019), Algorithm 1.

* perturbed: the penalty estimator. theta has a law within O(1/(n m^2)) of the posterior in total variation. ASYMPTOTIC.
* signed: the block-Poisson estimator, unbiased but possibly negative; averages weighted by its sign are consistent.
  EXACT-SIGNED.

The perturbed law is improper for small m: if all m draws fall on few rows the correction vanishes and L-hat grows without bound.
Hence m >= 2 (d + 1), the bias is checked at a distance, and the density is 0 beyond a wall (ALGORITHMS F.1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.contract import Diagnosis, Guarantee, Outcome, Policy, Sampler, Setup, advance_pilot, init, positions, step
from tallbayes.diagnostics import likelihood_estimates
from tallbayes.diagnostics import subsample_pilot as pilots
from tallbayes.engine.random_rows import UniformRows, draw_rows
from tallbayes.errors import ModelError, OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.mode.search import mode_at
from tallbayes.model import Model
from tallbayes.moves import Move, hmc, tuning
from tallbayes.moves.hmc import with_factor
from tallbayes.moves.linear import inverse_factor
from tallbayes.moves.move import Point, move
from tallbayes.proxies.difference import BlockPoisson, PenaltyEstimator, difference
from tallbayes.schemes.estimates import (
    BEYOND,
    LIKELIHOOD,
    SIGN,
    VARIANCE,
    Auxiliary,
    EstimatedPosterior,
    add_reference_curvature,
    assemble,
    blank_rows,
    control_slopes,
    empty_like,
    first_rows,
    pulled_in,
    renewed_rows,
    same,
)
from tallbayes.streams import Stream, generator
from tallbayes.target import NOT_FINITE, Target, stop_run

PERTURBED, SIGNED = ("subsample", "blocks", "variance"), ("products", "batch", "refreshed", "shift", "pilot")  # options of each
_ABORT = 0.2  # share of iterations at the wall at which warm-up gives up


class Info(NamedTuple):
    """What a step reports, by position: the move's columns, those of the estimate, and signs."""

    lp: int
    acceptance_rate: int
    n_steps: int
    diverging: int
    tree_depth: int
    u_accepted: int
    log_likelihood: int
    variance: int
    wall: int
    sign_flips: int
    weight: int


AT = positions(Info)


class State(NamedTuple):
    """Position, its log-density with gradient, rows u with what is known of them there, and the estimate."""

    theta: np.ndarray
    log_density: float
    gradient: np.ndarray
    rows: Auxiliary
    log_likelihood: float
    sign: float
    variance: float


class SubsamplingOptions(NamedTuple):
    """Compiled options: the move, the estimator, and the precision of the mass matrix; a fixed one is inside the kernel."""

    kernel: Any
    estimator: Any
    precision: np.ndarray  # of prior and proxies at the reference: empty if the mass matrix is fixed


@inlinable
def _kernel(target: Target, options: SubsamplingOptions, rows: Auxiliary) -> Any:
    """The kernel as it is, or with the mass matrix of the conditional posterior given u: its curvature at the reference."""
    if options.precision.size == 0:
        return options.kernel
    precision = options.precision.copy()
    add_reference_curvature(target, rows.indices, -rows.scale / rows.indices.size, precision)
    factor = inverse_factor(precision)
    for j in range(factor.shape[0]):
        if not factor[j, j] < np.inf:  # the rows in use leave a direction flat: the choice depends on u alone
            return options.kernel
    return with_factor(options.kernel, factor)


@init.register(SubsamplingOptions)
def _init(rng: np.random.Generator, target: Target, options: SubsamplingOptions, theta: np.ndarray) -> Any:
    theta = pulled_in(target, theta)
    rows = first_rows(rng, target, options.estimator, theta)
    gradient, marks = np.empty(theta.size), np.zeros(4)
    value = assemble(target, options.estimator, rows, theta, gradient, marks)
    if not abs(value) < np.inf:
        stop_run(target, NOT_FINITE, 0)
    return State(theta, value, gradient, rows, marks[LIKELIHOOD], marks[SIGN], marks[VARIANCE])


@inlinable
def _renew(rng: np.random.Generator, target: Target, options: SubsamplingOptions, state: State, info: np.ndarray) -> State:
    """A part of u anew, accepted on the ratio of estimates; energy and gradient follow."""
    rows = renewed_rows(rng, target, options.estimator, state.rows, state.theta)
    gradient, marks = np.empty(state.theta.size), np.zeros(4)
    value = assemble(target, options.estimator, rows, state.theta, gradient, marks)
    info[AT.u_accepted] = 0.0
    if math.log(1.0 - rng.random()) < value - state.log_density:
        info[AT.u_accepted] = 1.0
        return State(state.theta, value, gradient, rows, marks[LIKELIHOOD], marks[SIGN], marks[VARIANCE])
    return state


@step.register(SubsamplingOptions)
def _step(rng: np.random.Generator, target: Target, options: SubsamplingOptions, state: Any, info: np.ndarray) -> Any:
    state = _renew(rng, target, options, state, info)
    sign = state.sign
    density = EstimatedPosterior(
        target, options.estimator, empty_like(state.rows), np.full(state.theta.size, np.nan), np.zeros(4)
    )
    here = Point(state.theta, state.log_density, state.gradient)
    point = move(rng, _kernel(target, options, state.rows), density, here, info)
    info[AT.wall] = density.marks[BEYOND]
    if not same(point.theta, state.theta):
        rows, marks, gradient = density.rows, density.marks, point.gradient
        if not same(point.theta, density.at):  # a tree keeps a point that is not its last
            gradient = np.empty(point.theta.size)
            control_slopes(target, rows.indices, point.theta, rows.values, rows.slopes)
            assemble(target, options.estimator, rows, point.theta, gradient, marks)
        state = State(point.theta, point.log_density, gradient, rows, marks[LIKELIHOOD], marks[SIGN], marks[VARIANCE])
    info[AT.log_likelihood], info[AT.variance] = state.log_likelihood, state.variance
    if info.size > AT.weight:
        info[AT.sign_flips] = 1.0 if state.sign != sign else 0.0
        info[AT.weight] = state.sign
    return state


class SubsamplingPolicy(Policy):
    """Warm-up tunes the step size by dual averaging; reference, sizes and mass matrix are fixed before it."""

    def __init__(
        self, move: Move, covariance: np.ndarray, estimator: Any, precision: np.ndarray, pilot: pilots.SubsamplePilot
    ) -> None:
        self.move, self.covariance, self.estimator, self.precision = move, covariance, estimator, precision
        self.pilot = pilot

    def begin(self) -> tuning.Tuning:
        """Covariance of the full-data Hessian, first step size."""
        return tuning.begin(self.move, self.covariance)

    def window_ends(self, warmup: int) -> list[int]:
        """As for moves."""
        return tuning.window_ends(warmup)

    def update(self, state: Any, draws: np.ndarray, info: dict[str, np.ndarray], end: int, warmup: int) -> tuning.Tuning:
        """Step size only. Gives up where signs are too mixed to be worth anything."""
        if "weight" in info and end == warmup and draws.shape[0] >= 20:
            positive = float((info["weight"] > 0).mean())
            if positive < likelihood_estimates.LEAST_POSITIVE:
                raise ModelError(
                    f"only {100 * positive:.0f} % of the likelihood estimates are positive at the end of warm-up, below "
                    f"{100 * likelihood_estimates.LEAST_POSITIVE:.0f} %: signed averages would be too noisy. Raise products= "
                    "or batch=, or use 'hmc-ecs'."
                )
        wall = float((info["wall"] > 0).mean())
        if 2 * end > warmup and draws.shape[0] >= 10 and wall > _ABORT:
            raise ModelError(
                f"{100 * wall:.0f} % of the iterations of a warm-up window met the wall around the reference: the estimated "
                "posterior lies far from it. Use recentre=2, more rows (subsample=, products=), or 'nuts'."
            )
        return tuning.update_step(self.move, state, info["acceptance_rate"])

    def options(self, state: Any, final: bool) -> SubsamplingOptions:
        """Kernel, estimator and mass matrix."""
        return SubsamplingOptions(tuning.kernel(self.move, state, final), self.estimator, self.precision)

    def rows_drawn(self, iterations: int) -> int:
        """Rows that a chain draws: all of u once, then a block per iteration."""
        return self.estimator.size + iterations * (self.estimator.size // self.estimator.blocks)

    def blank(self, theta: np.ndarray) -> State:
        """A state without rows."""
        return State(theta.copy(), 0.0, np.zeros(theta.size), blank_rows(self.pilot.records), 0.0, 1.0, 0.0)


@dataclass(frozen=True)
class HMCECS(Sampler):
    """HMC with energy conserving subsampling.

    `estimator` is "perturbed" or "signed", `move` hmc() or nuts(), `order` that of the control variates, `rows` "uniform" or
    "weighted" (drawn by their whitened norms), `mass` "full" (Hessian of all rows) or "conditional" (of the rows in use; differs
    for order below 2). The perturbed estimator draws `subsample` rows, by default so many that Var log L-hat is about `variance` (1),
    in `blocks` blocks (100). The signed one has `products` of minibatches of `batch` rows (30), of which `refreshed` are redrawn in an
    iteration, `pilot` rows (200) that centre it, and `shift` (1); sizes left out are chosen by a pilot at the least cost.
    `recentre` moves the reference to the mean of a pilot chain so many times: for a reference that is not the mode of all rows.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 2))])
    >>> y = (rng.random(20_000) < 1 / (1 + np.exp(-X @ [0.1, 0.5, -0.5]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    >>> fit = tb.sample(model, tb.samplers.HMCECS(), draws=100, warmup=100, chains=2, seed=1, progress=False)
    >>> bool(fit.evals.mean() < 0.05 * 20_000), fit.guarantee.kind
    (True, 'ASYMPTOTIC')
    """

    subsample: int | None = None
    blocks: int | None = None
    estimator: str = "perturbed"
    move: Move = field(default_factory=hmc)
    order: int = 2
    rows: str = "uniform"
    mass: str = "full"
    variance: float | None = None
    products: int | None = None
    batch: int | None = None
    refreshed: int | None = None
    shift: float | None = None
    pilot: int | None = None
    recentre: int = 0

    NEARLY: ClassVar[Guarantee] = Guarantee(
        "ASYMPTOTIC",
        "the distribution of the draws is within O(1/(n m^2)) of the posterior in total variation, for m rows",
        assumed=("the reference is near the mode of all rows", "the estimate of the log-likelihood is nearly normal"),
        checked=("variance of the estimate", "bias of the estimate at pilot points and draws", "distance from the reference"),
    )
    EXACT_SIGNED: ClassVar[Guarantee] = Guarantee(
        "EXACT-SIGNED",
        "averages weighted by the sign of the estimate are consistent for the posterior within a wall far from the mode",
        assumed=("most signs are positive, so averages have a finite variance in practice",),
        checked=("share of positive signs",),
    )
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "hmc-ecs": {"estimator": "perturbed"},
        "hmc-ecs-signed": {"estimator": "signed"},
    }
    streams: ClassVar[bool] = True
    Info: ClassVar[type] = Info
    cost: ClassVar[str] = "m rows per gradient, m set by a pilot run"

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        if self.estimator not in ("perturbed", "signed"):
            raise unknown("estimator", self.estimator, ("perturbed", "signed"))
        if self.move.name not in ("hmc", "nuts"):
            raise OptionError(f"HMC-ECS requires move=tallbayes.moves.hmc() or nuts(); got {self.move.name!r}.")
        if self.order not in (0, 1, 2):
            raise OptionError(f"order of the control variates must be 0, 1 or 2; got {self.order!r}.")
        if self.rows not in ("uniform", "weighted"):
            raise unknown("rows", self.rows, ("uniform", "weighted"))
        if self.mass not in ("full", "conditional"):
            raise unknown("mass", self.mass, ("full", "conditional"))
        for name in ("subsample", "products", "refreshed", "blocks", "batch", "pilot"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} must be a whole number of at least 1, or None (automatic); got {value!r}.")
        if self.recentre < 0:
            raise OptionError(f"recentre must be a whole number of at least 0; got {self.recentre!r}.")
        for name in ("variance", "shift"):
            value = getattr(self, name)
            if value is not None and not (value > 0.0 and math.isfinite(value)):
                raise OptionError(f"{name} must be positive and finite; got {value!r}.")
        other, foreign = ("perturbed", PERTURBED) if self.estimator == "signed" else ("signed", SIGNED)
        for name in foreign:
            if getattr(self, name) is not None:
                own = ", ".join(f"{k}=" for k in (SIGNED if other == "perturbed" else PERTURBED))
                raise OptionError(f"{name}= applies only to estimator={other!r}; the {self.estimator} one has {own}.")
        if self.estimator == "signed" and self.mass == "conditional":
            raise OptionError("mass='conditional' applies only to estimator='perturbed'; use mass='full'.")
        if self.products is not None and self.refreshed is not None and self.refreshed > self.products:
            raise OptionError(f"refreshed={self.refreshed} exceeds products={self.products}.")

    @property
    def guarantee(self) -> Guarantee:
        """That of the estimator."""
        return self.EXACT_SIGNED if self.estimator == "signed" else self.NEARLY

    @property
    def name(self) -> str:
        """That of the estimator."""
        return self.variant()

    @property
    def info(self) -> tuple[str, ...]:
        """Signs are reported where there are any."""
        return Info._fields if self.estimator == "signed" else Info._fields[: AT.sign_flips]

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Reference, rows to draw, and a pilot that chooses what was left open; further stages move the reference."""
        if model.partitions is not None and (self.estimator == "signed" or self.recentre):
            raise ModelError(
                f"{'estimator=' + repr('signed') if self.estimator == 'signed' else 'recentre='} needs rows on this machine before the "
                "chains start, but they are in partitions. Leave it out, use 'exact-minibatch', or read the rows with "
                "tallbayes.read(..., memory='disk')."
            )
        rng = generator(seed, Stream.LIKELIHOOD_ESTIMATES)
        setup = self._at(model, mode, rng)
        for stage in range(self.recentre):
            mode = self._recentred(setup, mode, rng, 0.5 if stage == 0 else 0.7)
            setup = self._at(model, mode, rng)
        pilots.require_near(mode, setup.notes["radius"])
        return replace(setup, notes={**setup.notes, "recentred": self.recentre})

    def _at(self, model: Model, mode: Mode, rng: np.random.Generator) -> Setup:
        pilot, scheme, samples, radius = pilots.prepare(mode, self.order, self.rows, rng)
        estimator: Any
        if self.estimator == "perturbed":
            guards = [pilot.at(t) for t in pilot.guard_points(rng)]
            m, blocks, notes = pilots.choose_size(
                samples, guards, model.dim, model.data.n, self.variance or 1.0, self.subsample, self.blocks or 100
            )
            estimator = PenaltyEstimator(m, blocks)
            why = f"{m} of {model.data.n:,} rows in {blocks} blocks, predicted Var log L-hat {notes['variance_predicted']:.2g}"
        else:
            estimator, notes = self._signed(samples, scheme, rng, model.data.n)
            why = (
                f"{estimator.products} products of minibatches of {estimator.batch} rows, predicted share of positive "
                f"signs {notes['positive_predicted']:.3f}"
            )
        notes.update(order=self.order, rows=self.rows, radius=radius, reference=mode.reference.tolist())
        precision = np.zeros((0, 0))
        if self.mass == "conditional" and self.order < 2:
            precision = np.ascontiguousarray(mode.precision + mode.hessian)  # the prior's: the rows in use add theirs
        policy = SubsamplingPolicy(self.move, mode.covariance, estimator, precision, pilot)
        proxy = difference(mode, self.order, scheme, radius)
        return Setup(model, policy, proxy, f"HMC-ECS ({self.estimator}), {why}", notes)

    def _signed(self, samples: list[Any], scheme: Any, rng: np.random.Generator, n: int) -> tuple[BlockPoisson, dict[str, Any]]:
        size, batch, shift = min(self.pilot or 200, n), self.batch or 30, 1.0 if self.shift is None else float(self.shift)
        index, scale = np.empty(size, np.int64), np.empty(size)
        if isinstance(scheme, UniformRows):
            index[:] = np.sort(rng.choice(n, size, replace=False))
        else:
            draw_rows(rng, scheme, 1, index, scale)
        gamma = float(np.quantile([s.cumulants()[0] for s in samples], 0.95))
        products = pilots.choose_products(gamma, batch, size) if self.products is None else self.products
        if self.products is None:
            pilots.require_hope(size + batch * products, n)
        refreshed = pilots.refreshed_products(products) if self.refreshed is None else self.refreshed
        notes = {
            "gamma": gamma,
            "products": products,
            "batch": batch,
            "refreshed": refreshed,
            "pilot": size,
            "positive_predicted": pilots.sign_probability(products, batch, gamma, shift),
            "variance_predicted": pilots.log_variance(products, batch, gamma, shift),
        }
        return BlockPoisson(index, products, batch, refreshed, shift), notes

    def _recentred(self, setup: Setup, mode: Mode, rng: np.random.Generator, skip: float) -> Mode:
        """A mode at the mean of the later draws of a pilot chain of 200 iterations."""
        options, blank = setup.policy.options(setup.policy.begin(), True), setup.policy.blank(mode.reference)
        theta, _, made = advance_pilot(rng, setup.target(), options, blank, 200, len(self.columns))
        if made < 200:
            raise ModelError("the pilot chain of recentre= met a density that is not finite; use the mode (recentre=0).")
        return mode_at(setup.model, theta[int(skip * 200) :].mean(0))

    def diagnose(self, outcome: Outcome) -> Diagnosis:
        """Variance and bias of the estimate at draws, the wall, and signs."""
        return likelihood_estimates.check(outcome, "'nuts'")

    def audit(
        self, model: Model, fit: Any, pairs: int, repeats: int, rng: np.random.Generator
    ) -> tuple[dict[str, Any], list[str]]:
        """Estimates against the full data at random draws."""
        return likelihood_estimates.audit(model, fit, pairs, rng)
