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

from tallbayes.contract import Diagnosis, Guarantee, Outcome, Sampler, Setup
from tallbayes.errors import OptionError, unknown
from tallbayes.mode.laplace import Laplace, Mode
from tallbayes.model import Model
from tallbayes.moves import Move, from_dict, random_walk
from tallbayes.samplers.full_data import MovePolicy
from tallbayes.schemes import refresh_tuning, subset_statistics, subset_tables
from tallbayes.schemes.refresh_tuning import RefreshTuning
from tallbayes.schemes.semi_automatic import Fitted
from tallbayes.schemes.stored_statistics import restored, stored
from tallbayes.schemes.subset_chain import SUBSETS, Info, InformedOptions, InformedState
from tallbayes.schemes.subsets import Swap, Windows, blank_subset
from tallbayes.validation import shown

ROWS = ("auto", "swap", "window")
ADAPTIVE = "adaptive"
GOAL = 0.1  # default refresh rate of an adaptive bandwidth
COLD = 5.0  # default inverse temperature of scores: variances inflated by at most a tenth
EFFECTIVE = 0.01  # share of windows that the default inverse temperature leaves in play
_RARE = 0.01  # refresh rate below which a run is warned of
_STARTUP = 0.01  # of the start of a recursion that may be left at a window
_EXPLAINED = 0.5  # share of the shifts of sub-posteriors below which a run with semi-automatic statistics is warned of
_WIDE = 2.0  # variance relative to the Laplace fit above which a run is warned of


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


class AdaptiveTuning(NamedTuple):
    """What warm-up knows of the move and of the inverse temperature."""

    move: Any
    refresh: RefreshTuning


class AdaptivePolicy(InformedPolicy):
    """Warm-up of the move, and of the inverse temperature towards a refresh rate."""

    goal = GOAL

    def begin(self) -> Any:
        """The inverse temperature that was prepared."""
        return AdaptiveTuning(super().begin(), refresh_tuning.begin(self.fixed.penalty))

    def update(self, state: Any, draws: np.ndarray, info: dict[str, np.ndarray], end: int, warmup: int) -> Any:
        """Both, from the same window."""
        move = super().update(state.move, draws, info, end, warmup)
        return AdaptiveTuning(move, refresh_tuning.update(state.refresh, float(info["refreshed"].mean()), self.goal))

    def options(self, state: Any, final: bool) -> Any:
        """The kernel at the present inverse temperature."""
        return super().options(state.move, final)._replace(penalty=refresh_tuning.penalty(state.refresh, final))


@dataclass(frozen=True)
class Informed(Sampler):
    """Informed subsampling ("informed") or, with `scaled=False`, LWA-MCMC ("lwa").

    `subsample` is m; by default about sqrt(2 n d), where exchanging one row moves a sub-posterior by about one standard
    deviation. `statistics` is "score" or "semi-automatic", combinations of `candidates` that predict the modes of sub-posteriors
    (by default scores and products of two columns, or "quantiles-autocorrelations" of a series); on a series also
    "quantiles-autocorrelations", "autocorrelations" or "extremes"; or a function, evaluated once before the chains: `f(x, y)` of a
    chunk of independent rows, whose means over a subset are compared, or `f(windows)` of an array (windows, m) of pieces of a
    series; candidates may be one, too. Either `inverse_temperature` (eps of
    exp(-eps |Delta|^2)) or `bandwidth` (exp(-|Delta|^2 / 2 bandwidth^2), as in the LWA paper) may be given;
    `bandwidth="adaptive"` is tuned in warm-up until a share `refresh_rate` (0.1) of iterations changes the subset, then frozen.
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
    bandwidth: float | str | None = None
    subset: str = "informed"
    rows: str = "auto"
    swaps: int | None = None
    local: float | None = None
    rate: float | None = None
    scaled: bool = True
    repeats: int = 1
    move: Move = field(default_factory=random_walk)
    candidates: Any = None
    refresh_rate: float | None = None
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
        for what, value, names in (
            ("statistics", self.statistics, subset_tables.NAMES),
            ("candidates", self.candidates, subset_statistics.SUMMARIES),
        ):
            if what == "candidates" and not (value is None or isinstance(value, str) or callable(value)):
                raise OptionError(f"candidates of Informed must be a text, a function or None; got {shown(value)}.")
            if (
                not callable(value)
                and (value is not None or what == "statistics")
                and (not isinstance(value, str) or value not in names)
            ):
                raise unknown(what, value, names)
        if self.candidates is not None and self.statistics != subset_tables.SEMI_AUTOMATIC:
            raise OptionError("candidates= belong to statistics='semi-automatic'. Leave them out, or give them as statistics=.")
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
        if isinstance(self.bandwidth, str) and self.bandwidth != ADAPTIVE:
            raise unknown("bandwidth", self.bandwidth, [ADAPTIVE])
        if self.bandwidth == ADAPTIVE:
            if self.subset != "informed":
                raise OptionError(f"bandwidth='adaptive' is for subset='informed'; subset is {self.subset!r}.")
        elif self.refresh_rate is not None:
            raise OptionError("refresh_rate= is what bandwidth='adaptive' aims at. Leave it out, or let the bandwidth adapt.")
        elif self.bandwidth is not None and not 0.0 < self.bandwidth < math.inf:  # type: ignore[operator]
            raise OptionError(f"bandwidth must be positive and finite; got {self.bandwidth}.")
        if self.refresh_rate is not None and not 0.0 < self.refresh_rate < 1.0:
            raise OptionError(f"refresh_rate must be between 0 and 1; got {self.refresh_rate}.")
        if self.local is not None and not 0.0 <= self.local <= 1.0:
            raise OptionError(f"local is a probability; got {self.local}.")
        if self.rate is not None and not 0.0 < self.rate < math.inf:
            raise OptionError(f"rate must be positive and finite; got {self.rate}.")
        if (
            self.statistics not in subset_tables.SCALED
            and self.inverse_temperature is None
            and self.bandwidth is None
            and self.subset == "informed"
        ):
            raise OptionError(
                "custom statistics need bandwidth= (or inverse_temperature=), because only scores have a known scale. "
                "bandwidth='adaptive' finds one."
            )

    @property
    def name(self) -> str:
        """Whether sub-posteriors are scaled to all rows decides."""
        return self.variant()

    @property
    def info(self) -> tuple[str, ...]:
        """With the inverse temperature, if every chain has its own."""
        return (*Info._fields, "inverse_temperature") if self.bandwidth == ADAPTIVE else Info._fields

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
        table: Any
        fitted: Fitted | None
        if window:
            table, fitted = subset_tables.window_table(model, mode, self.statistics, self.candidates, first, m, seed)
        else:
            table, fitted = subset_tables.swap_table(model, mode, self.statistics, self.candidates, m, seed)
        penalty = self._penalty(table, n, m)
        notes: dict[str, Any] = {"subsample": m, "rows": "window" if window else "swap"}
        if fitted is not None:
            notes |= {"candidates": fitted.weights.shape[1], "explained": fitted.explained}
        if window:
            notes["windows"] = scheme.starts
        if self.bandwidth == ADAPTIVE:
            notes["refresh_goal"] = GOAL if self.refresh_rate is None else self.refresh_rate
        else:
            notes |= self._predicted(table, penalty, model.dim, n / m, fitted)
            notes["inverse_temperature"] = penalty
        startup = model.startup(mode.reference)
        if startup is not None:
            notes["startup"] = startup
        power = n / m if self.scaled else 1.0
        settle = 1000 + 20 * math.isqrt(m)  # about sqrt(m) accepted swaps bring Delta from a uniform subset's to its law
        fixed = InformedOptions(0, scheme, SUBSETS[self.subset], penalty, power, self.repeats, settle)
        policy = InformedPolicy(self.move, mode, power * m / n, fixed, blank_subset(scheme, table))
        if self.bandwidth == ADAPTIVE:
            policy = AdaptivePolicy(self.move, mode, power * m / n, fixed, policy.subset)
            policy.goal = notes["refresh_goal"]
        why = f"{self.name} with {m:,} of {n:,} rows, {self.subset} {notes['rows']} subsets, as requested"
        return Setup(model, policy, table, why, notes)

    def _predicted(self, table: Any, penalty: float, dim: int, power: float, fitted: Fitted | None) -> dict[str, float]:
        """The effective number of windows, and the variance of the draws relative to the posterior's where it is known."""
        notes = {}
        if isinstance(table, subset_statistics.WindowDistances):
            notes["effective_windows"], squared = subset_statistics.effective_windows(table, penalty)
        elif fitted is not None:
            squared = float(sum(v / (2.0 * penalty * v + 1.0) for v in fitted.predicted))
        else:
            squared = dim / (2.0 * penalty + 1.0 / (power - 1.0))
        if self.statistics in subset_tables.SCALED and self.scaled and self.subset != "fixed":
            left = 0.0 if fitted is None else fitted.left
            notes["predicted_variance_ratio"] = 1.0 + squared / dim + left
        return notes

    def _size(self, n: int, dim: int) -> int:
        m = min(max(100, math.ceil(math.sqrt(2.0 * n * dim))), n // 2) if self.subsample is None else int(self.subsample)
        if not 1 <= m <= n // 2:
            raise OptionError(f"subsample must be at most half of the {n:,} rows; got {m:,}. Use 'nuts' to read all rows.")
        return m

    def _penalty(self, table: Any, n: int, m: int) -> float:
        if self.subset != "informed":
            return 0.0
        if self.bandwidth == ADAPTIVE:
            return subset_statistics.first_penalty(table, n, m)
        if self.bandwidth is not None:
            return 0.5 / self.bandwidth**2  # type: ignore[operator]
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
        notes: dict[str, Any] = {"refresh_rate": rate, "distance": float(stats["distance"].mean()), "variance_ratio": ratio}
        if self.bandwidth == ADAPTIVE:
            notes["inverse_temperature"] = [float(chain[-1]) for chain in stats["inverse_temperature"]]
        warnings = []
        goal = setup.notes.get("refresh_goal", rate)
        if not 0.5 * goal <= rate <= 2.0 * goal:
            warnings.append(
                f"the adaptive bandwidth has not reached its refresh rate: the subset changed in {100 * rate:.2g} % of iterations, "
                f"not {100 * goal:.2g} %. Warm up longer, or give bandwidth= or another refresh_rate=."
            )
        explained = setup.notes.get("explained", 1.0)
        if explained < _EXPLAINED:
            warnings.append(
                f"the candidates explain only {100 * explained:.2g} % of how subsets shift the posterior; give candidates= "
                "others, or use statistics='score'."
            )
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
            "refresh_rate",
        )
        options = {k: getattr(self, k) for k in names} | {k: stored(getattr(self, k)) for k in ("statistics", "candidates")}
        return {"class": "Informed", **options, "move": self.move.as_dict()}

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> Informed:
        """The inverse of `as_dict`; a function that was stored by name cannot be called."""
        functions = {k: restored(options.get(k)) for k in ("statistics", "candidates")}
        return cls(**{**options, **functions, "move": from_dict(options["move"])})


def spread(laplace: Laplace, theta: np.ndarray) -> float:
    """Largest variance of the draws along a coordinate, relative to the Laplace fit."""
    white = laplace.whiten(theta).reshape(-1, theta.shape[-1])
    return float(white.var(axis=0).max())
