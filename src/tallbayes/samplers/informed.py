"""Informed subsampling (ISS) and Light and Widely Applicable MCMC (LWA): a subset U of m rows that represents all n, and theta.

The pair (theta, U) approximately has the law nu(U) pi(theta | U), with

    nu(U) ~ exp(-eps |Delta(U)|^2),   Delta(U) = S(U) - S(all rows),
    pi(theta | U) ~ p(theta) exp((n/m) sum_{i in U} l_i(theta))    (LWA: without the power n/m).

U is refreshed by Metropolis-Hastings on nu, whatever theta is; then theta makes one move on pi(. | U), `repeats` moves if U
changed. The law is exact only as `repeats` grows: a fresh U comes with the theta of the old one. Maire, Friel and Alquier
(2015), Algorithm 1, there called LWA; (2019) for the power and the inverse temperature. HEURISTIC.

With scores as statistics, Delta is in posterior standard deviations and draws have about 1 + 1/(2 eps) times the variances of
the posterior. LWA's spread is that of m rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.contract import Diagnosis, Guarantee, Outcome, Sampler, Setup, init, positions, step
from tallbayes.errors import ModelError, OptionError, unknown
from tallbayes.mode.laplace import Laplace, Mode
from tallbayes.model import Model
from tallbayes.moves import Move, from_dict, random_walk
from tallbayes.moves.move import Point, move, start
from tallbayes.samplers.full_data import MovePolicy
from tallbayes.schemes import subset_statistics
from tallbayes.schemes.subsets import Swap, Windows, blank_subset, choose, density_of, distance, refresh
from tallbayes.target import NOT_FINITE, Target, stop_run, stopped

FIXED, INFORMED, FREE = 0, 1, 2
SUBSETS = {"fixed": FIXED, "informed": INFORMED, "free": FREE}
ROWS = ("auto", "swap", "window")
COLD = 5.0  # default inverse temperature of scores: variances inflated by at most a tenth
EFFECTIVE = 0.01  # share of windows that the default inverse temperature leaves in play
_RARE = 0.01  # refresh rate below which a run is warned of
_STARTUP = 0.01  # of the start of a recursion that may be left at a window
_WIDE = 2.0  # variance relative to the Laplace fit above which a run is warned of


class Info(NamedTuple):
    """What a step reports, by position: the move's columns, and what happened to the subset."""

    lp: int
    acceptance_rate: int
    n_steps: int
    diverging: int
    tree_depth: int
    refreshed: int
    distance: int


AT = positions(Info)


class InformedState(NamedTuple):
    """Position with its density on the subset, the subset, and |Delta|^2."""

    theta: np.ndarray
    log_density: float
    gradient: np.ndarray
    subset: Any
    squared: float


class InformedOptions(NamedTuple):
    """Compiled options."""

    kernel: Any
    scheme: Any
    kind: int
    penalty: float
    power: float
    repeats: int
    settle: int  # refreshes before the first move, so that U is a draw from nu


@init.register(InformedOptions)
def _init(rng: np.random.Generator, target: Target, options: InformedOptions, theta: np.ndarray) -> Any:
    subset = choose(rng, options.scheme, target)
    squared = distance(options.scheme, target, subset)
    if options.kind == INFORMED:
        for _ in range(options.settle):
            if stopped(target):
                break
            subset, squared, _ = refresh(rng, options.scheme, target, options.penalty, subset, squared)
    point = start(options.kernel, density_of(options.scheme, target, subset, options.power), theta)
    if not abs(point.log_density) < np.inf:
        stop_run(target, NOT_FINITE, 0)
    return InformedState(point.theta, point.log_density, point.gradient, subset, squared)


@step.register(InformedOptions)
def _step(rng: np.random.Generator, target: Target, options: InformedOptions, state: Any, info: np.ndarray) -> Any:
    subset, squared, moved = state.subset, state.squared, False
    if options.kind == INFORMED:
        subset, squared, moved = refresh(rng, options.scheme, target, options.penalty, subset, squared)
    elif options.kind == FREE:
        subset = choose(rng, options.scheme, target)
        squared, moved = distance(options.scheme, target, subset), True
    density = density_of(options.scheme, target, subset, options.power)
    point = Point(state.theta, state.log_density, state.gradient)
    if moved:
        point = start(options.kernel, density, state.theta)
    repeats = options.repeats if moved else 1
    acceptance, steps = 0.0, 0.0
    for _ in range(repeats):
        point = move(rng, options.kernel, density, point, info)
        acceptance += info[AT.acceptance_rate] / repeats
        steps += info[AT.n_steps]
    info[AT.acceptance_rate] = acceptance
    info[AT.n_steps] = steps
    info[AT.refreshed] = 1.0 if moved else 0.0
    info[AT.distance] = math.sqrt(squared)
    return InformedState(point.theta, point.log_density, point.gradient, subset, squared)


class InformedPolicy(MovePolicy):
    """Warm-up of the move on sub-posteriors."""

    def __init__(self, move: Move, mode: Mode, share: float, fixed: InformedOptions, blank: Any) -> None:
        super().__init__(move, mode)
        prior = mode.precision + mode.hessian
        self.fixed, self.subset = fixed, blank
        self.covariance = mode.covariance if share == 1.0 else np.linalg.inv(prior - share * mode.hessian)
        self.factor = np.linalg.cholesky(self.covariance)

    def options(self, state: Any, final: bool) -> Any:
        """The kernel with what never changes."""
        return self.fixed._replace(kernel=super().options(state, final).kernel)

    def blank(self, theta: np.ndarray) -> Any:
        """A state without density."""
        return InformedState(theta.copy(), 0.0, np.zeros(theta.size), self.subset, 0.0)


@dataclass(frozen=True)
class Informed(Sampler):
    """Informed subsampling ("informed") or, with `scaled=False`, LWA-MCMC ("lwa").

    `subsample` is m; by default about sqrt(2 n d), where exchanging one row moves a sub-posterior by about one standard
    deviation. `statistics` is "score"; on a series also "quantiles-autocorrelations", "autocorrelations" or "extremes"; or a
    function, evaluated once before the chains: `f(x, y)` of a chunk of independent rows, whose means over a subset are
    compared, or `f(windows)` of an array (windows, m) of pieces of a series. Either `inverse_temperature` (eps of
    exp(-eps |Delta|^2)) or `bandwidth` (exp(-|Delta|^2 / 2 bandwidth^2), as in the LWA paper) may be given.
    `subset` is "informed", "free" (a new uniform subset each iteration) or "fixed". `rows` is "swap" (`swaps` rows of U, 1
    unless given, are exchanged; independent rows only) or "window" (contiguous rows; a local jump with discrete Laplace law of
    rate `rate` (0.1) with probability `local` (0.9), else a uniform one).

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(5000), rng.standard_normal(5000)])
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, rng.integers(0, 2, 5000)))
    >>> fit = tb.sample(model, tb.samplers.Informed(subsample=500), draws=100, chains=2, seed=1, progress=False)
    >>> fit.guarantee.kind, int(fit.evals.max())
    ('HEURISTIC', 1000)
    """

    subsample: int | None = None
    statistics: Any = "score"
    inverse_temperature: float | None = None
    bandwidth: float | None = None
    subset: str = "informed"
    rows: str = "auto"
    swaps: int | None = None
    local: float | None = None
    rate: float | None = None
    scaled: bool = True
    repeats: int = 1
    move: Move = field(default_factory=random_walk)
    guarantee: ClassVar[Guarantee] = Guarantee(
        "HEURISTIC",
        "draws follow sub-posteriors of subsets that resemble all rows in some statistics; their error is unknown",
        assumed=("statistics predict how a subset shifts the posterior", "theta adapts faster than the subset changes"),
        checked=("refresh rate", "variances against the Laplace fit"),
    )
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"informed": {"scaled": True}, "lwa": {"scaled": False}}
    Info: ClassVar[type] = Info
    cost: ClassVar[str] = "m selected rows, 2m when the subset changes"
    any_rows: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        if not (callable(self.statistics) or isinstance(self.statistics, MissingStatistics)) and (
            not isinstance(self.statistics, str) or self.statistics not in ("score", *subset_statistics.SUMMARIES)
        ):
            raise unknown("statistics", self.statistics, ["score", *subset_statistics.SUMMARIES])
        if self.subset not in SUBSETS:
            raise unknown("subset", self.subset, SUBSETS)
        if self.rows not in ROWS:
            raise unknown("rows", self.rows, ROWS)
        for name, least in (("swaps", 1), ("repeats", 1), ("subsample", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise OptionError(f"{name} must be a whole number of at least {least}; got {value!r}.")
        if self.inverse_temperature is not None and self.bandwidth is not None:
            raise OptionError("give inverse_temperature or bandwidth, not both: inverse_temperature = 1 / (2 bandwidth^2).")
        if self.inverse_temperature is not None and not 0.0 <= self.inverse_temperature < math.inf:
            raise OptionError(f"inverse_temperature must be at least 0 and finite; got {self.inverse_temperature}.")
        if self.bandwidth is not None and not 0.0 < self.bandwidth < math.inf:
            raise OptionError(f"bandwidth must be positive and finite; got {self.bandwidth}.")
        if self.local is not None and not 0.0 <= self.local <= 1.0:
            raise OptionError(f"local is a probability; got {self.local}.")
        if self.rate is not None and not 0.0 < self.rate < math.inf:
            raise OptionError(f"rate must be positive and finite; got {self.rate}.")
        if (
            self.statistics != "score"
            and self.inverse_temperature is None
            and self.bandwidth is None
            and self.subset == "informed"
        ):
            raise OptionError(
                "custom statistics need bandwidth= (or inverse_temperature=), because only scores have a known scale."
            )

    @property
    def name(self) -> str:
        """Whether sub-posteriors are scaled to all rows decides."""
        return self.variant()

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Compute the statistics of every row or window."""
        window = self.rows == "window" or not model.exchangeable
        if self.rows == "swap" and window:
            raise OptionError(
                f"rows='swap' needs independent rows, which a {model.family.name} model does not have; use rows='window'."
            )
        for name in ("swaps",) if window else ("local", "rate"):
            if getattr(self, name) is not None:
                raise OptionError(
                    f"{name}= belongs to rows='{'swap' if window else 'window'}'; these rows are "
                    f"{'windows' if window else 'swapped'}. Leave it out."
                )
        local, rate = 0.9 if self.local is None else self.local, 0.1 if self.rate is None else self.rate
        first = model.conditioned_rows
        n = model.data.n - first
        m = self._size(n, model.dim)
        scheme: Any = Windows(first, n - m + 1, m, local, rate) if window else Swap(m, min(self.swaps or 1, m, n - m))
        table: Any = (
            self._windows(model, mode, first, m) if window else subset_statistics.RowFeatures(self._features(model, mode))
        )
        penalty = self._penalty(table)
        notes: dict[str, Any] = {"subsample": m, "rows": "window" if window else "swap"}
        if window:
            effective, squared = subset_statistics.effective_windows(table, penalty)
            notes |= {"windows": scheme.starts, "effective_windows": effective}
        else:
            squared = model.dim / (2.0 * penalty + 1.0 / (n / m - 1.0)) if self.statistics == "score" else math.nan
        if self.statistics == "score" and self.scaled and self.subset != "fixed":
            notes["predicted_variance_ratio"] = 1.0 + squared / model.dim
        notes["inverse_temperature"] = penalty
        startup = model.startup(mode.reference)
        if startup is not None:
            notes["startup"] = startup
        power = n / m if self.scaled else 1.0
        settle = 1000 + 20 * math.isqrt(m)  # about sqrt(m) accepted swaps bring Delta from a uniform subset's to its law
        fixed = InformedOptions(0, scheme, SUBSETS[self.subset], penalty, power, self.repeats, settle)
        policy = InformedPolicy(self.move, mode, power * m / n, fixed, blank_subset(scheme, table))
        why = f"{self.name} with {m:,} of {n:,} rows, {self.subset} {notes['rows']} subsets, as requested"
        return Setup(model, policy, table, why, notes)

    def _size(self, n: int, dim: int) -> int:
        m = min(max(100, math.ceil(math.sqrt(2.0 * n * dim))), n // 2) if self.subsample is None else int(self.subsample)
        if not 1 <= m <= n // 2:
            raise OptionError(f"subsample must be at most half of the {n:,} rows; got {m:,}. Use 'nuts' to read all rows.")
        return m

    def _features(self, model: Model, mode: Mode) -> np.ndarray:
        if self.statistics == "score":
            return subset_statistics.score_features(mode)
        if isinstance(self.statistics, str):
            raise OptionError(f"statistics={self.statistics!r} apply only to a series; for independent rows use f(x, y).")
        return subset_statistics.row_features(model, self.statistics)

    def _windows(self, model: Model, mode: Mode, first: int, m: int) -> subset_statistics.WindowDistances:
        if model.exchangeable:
            return subset_statistics.feature_windows(self._features(model, mode), 0, m)
        if self.statistics == "score":
            return subset_statistics.feature_windows(subset_statistics.score_features(mode, first), first, m)
        if isinstance(self.statistics, str):
            return subset_statistics.summary_windows(model.data.y, self.statistics, first, m)
        return subset_statistics.function_windows(model.data.y, self.statistics, first, m)

    def _penalty(self, table: Any) -> float:
        if self.subset != "informed":
            return 0.0
        if self.bandwidth is not None:
            return 0.5 / self.bandwidth**2
        if self.inverse_temperature is not None:
            return float(self.inverse_temperature)
        if isinstance(table, subset_statistics.WindowDistances):
            return subset_statistics.mildest(table, EFFECTIVE * table.squared.size, COLD)
        return COLD

    def diagnose(self, outcome: Outcome) -> Diagnosis:
        """Refresh rate and spread."""
        setup, theta, stats = outcome.setup, outcome.theta, outcome.stats
        mode: Mode = setup.policy.mode  # type: ignore[attr-defined]
        ratio = spread(mode.laplace(), theta)
        rate = float(stats["refreshed"].mean())
        notes = {"refresh_rate": rate, "distance": float(stats["distance"].mean()), "variance_ratio": ratio}
        warnings = []
        if self.subset == "informed" and rate < _RARE:
            warnings.append(
                f"the subset was refreshed in {100 * rate:.2g} % of iterations, so the draws come from few subsets; lower "
                "inverse_temperature (raise bandwidth), or raise subsample."
            )
        if setup.notes.get("startup", 0.0) > _STARTUP:
            warnings.append(
                f"{100 * setup.notes['startup']:.2g} % of the initial value of a window's recursion remains at the window; "
                "give the model a longer lead=."
            )
        if ratio > _WIDE:
            m, n = setup.notes["subsample"], setup.model.data.n
            reason = "subsets shift the posterior; raise subsample or inverse_temperature."
            if not self.scaled:
                reason = (
                    f"LWA draws from the posterior of {m:,} rows, not of all {n:,}. Use 'informed', which scales "
                    "sub-posteriors to all rows, or an exact sampler."
                )
            warnings.append(f"the draws have up to {ratio:.3g} times the variance of the Laplace fit: {reason}")
        return Diagnosis(notes, tuple(warnings))

    def audit(
        self, model: Model, fit: Any, pairs: int, repeats: int, rng: np.random.Generator
    ) -> tuple[dict[str, Any], list[str]]:
        """Full-data densities of a few draws: their distance from the mode must be that of draws from the posterior."""
        chains, draws, d = fit.theta.shape
        top = model.log_posterior(fit.laplace_mean)
        drops = [2.0 * (top - model.log_posterior(fit.theta[rng.integers(chains), rng.integers(draws)])) for _ in range(pairs)]
        ratio = float(np.mean(drops)) / d
        facts = {
            "refresh rate": float(fit.stats["refreshed"].mean()),
            "mean |Delta|": float(fit.stats["distance"].mean()),
            "draws recomputed on all rows": pairs,
            "their mean 2 (log posterior at the mode - at the draw) / dimension, 1 for normal posteriors": ratio,
        }
        if ratio > 1.5 + 4.9 * math.sqrt(2.0 / (d * pairs)):
            return facts, ["the draws are spread wider than the posterior; raise subsample or inverse_temperature"]
        return facts, []

    def as_dict(self) -> dict[str, Any]:
        """Class and options in JSON types; a function is stored by its name alone."""
        names = (
            "subsample",
            "inverse_temperature",
            "bandwidth",
            "subset",
            "rows",
            "swaps",
            "local",
            "rate",
            "scaled",
            "repeats",
        )
        statistics = self.statistics if isinstance(self.statistics, str) else {"function": _name(self.statistics)}
        options = {k: getattr(self, k) for k in names}
        return {"class": "Informed", **options, "statistics": statistics, "move": self.move.as_dict()}

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> Informed:
        """The inverse of `as_dict`; a function that was stored by name cannot be called."""
        statistics = options["statistics"]
        if isinstance(statistics, dict):
            statistics = MissingStatistics(statistics["function"])
        return cls(**{**options, "statistics": statistics, "move": from_dict(options["move"])})


@dataclass(frozen=True)
class MissingStatistics:
    """Statistics of a saved run that were a function of the user's."""

    name: str

    def __call__(self, *arguments: Any) -> Any:
        """A checkpoint cannot hold a function."""
        raise ModelError(
            f"the statistics of this run were the function {self.name!r}, which cannot be stored in a file, so the run cannot "
            "be resumed; call tallbayes.sample again with the function."
        )


def _name(function: Any) -> str:
    return (
        function.name
        if isinstance(function, MissingStatistics)
        else str(getattr(function, "__name__", type(function).__name__))
    )


def spread(laplace: Laplace, theta: np.ndarray) -> float:
    """Largest variance of the draws along a coordinate, relative to the Laplace fit."""
    white = laplace.whiten(theta).reshape(-1, theta.shape[-1])
    return float(white.var(axis=0).max())
