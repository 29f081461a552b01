"""Confidence sampler: Metropolis-Hastings decisions from as many rows as a test needs to be right with probability 1 - delta.

At theta with proposal theta' and u ~ U(0, 1), the full-data decision is to accept iff

    (1/n) sum_i Delta_i > psi,    psi = (1/n) [log u - log of the proxy, prior and proposal ratios],

Delta_i(theta, theta') the change of l_i - q_i, certified to be in a known range. Rows are drawn until a test decides on
which side of psi the mean is. Acceptance probabilities then differ by delta at most for every pair, so if the full-data kernel is
uniformly ergodic, |P^k(theta, .) - pi| <= A rho^k, the stationary distribution is within A delta / (1 - rho) of pi in total variation.

Rows are drawn without replacement (range: the largest bound of a row), or with replacement in proportion to their own bounds
lambda_i: then Delta_i / lambda_i is in [-1, 1], its mean is sum Delta_i / sum lambda_i, and the mean bound replaces the largest.

Bardenet, Doucet and Holmes (2017), section 7; the betting test is that of Waudby-Smith and Ramdas (2024) at the one value psi.
TV-BOUND.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tallbayes.bounds.bound import DRAW, RANGE, TOTAL
from tallbayes.bounds.catalogue import NAMES, certify
from tallbayes.bounds.uniform_ranges import (
    FREE_OF_REFERENCE,
    Extremes,
    Oracle,
    collapse,
    extremes,
    lipschitz,
    published_gamma,
)
from tallbayes.contract import Diagnosis, Guarantee, Outcome, Setup
from tallbayes.engine.rounding import rounding
from tallbayes.errors import ModelError, OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves.proposals import as_proposal
from tallbayes.proxies.taylor import factor_of, taylor, whitening_of
from tallbayes.schemes.acceptance import AcceptancePolicy, SubsampledAcceptance, check_rows
from tallbayes.schemes.bounded_error import Info, Uniform, Weighted, beside_delta, check_test, summarise
from tallbayes.schemes.references import MovingPolicy, references_at
from tallbayes.schemes.sequential_tests import (
    make_test,
)
from tallbayes.target import (
    Certified,
)

_NAIVE = 1e-12  # rounding of a residual where it is a difference of log-likelihoods of order ten or a hundred


BOUNDS = (*NAMES, "lipschitz", "extremes", "oracle", "published")
ROWS = ("auto", "weighted", "uniform")


@dataclass(frozen=True, kw_only=True)
class Confidence(SubsampledAcceptance):
    """Confidence sampler with a Taylor proxy of `order` 0 (none), 1 or 2.

    `delta` bounds the probability of a wrong decision. `bound` is "auto" or one of T1 to T9 (order 2), "lipschitz" (orders 0 and
    1), "extremes" (normal samples), "oracle" (the true range, for experiments: its passes are listed separately in
    `fit.meta["notes"]`) or "published" (that of the paper, logistic and gamma). `test` is one of
    `tallbayes.schemes.sequential_tests.NAMES`; `first` rows are drawn at first and `growth` times as many at each look; `power`
    is p of the levels of looks, 0 for delta / (j (j + 1)). `rows` are "weighted" (with replacement), "uniform" (without) or
    "auto". `refresh=k` puts the reference at the current state every k iterations, which read everything; `references` gives
    several points in advance, the nearest of which is used. `zero_draws=False` forbids decisions from the range alone.
    `Confidence.published()` is the configuration of Bardenet, Doucet and Holmes (2017), section 8.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 2))])
    >>> y = (rng.random(20_000) < 1 / (1 + np.exp(-X @ [0.1, 0.5, -0.5]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    >>> fit = tb.sample(model, tb.samplers.Confidence(delta=0.05), draws=300, warmup=200, seed=1, progress=False)
    >>> bool(fit.evals.mean() < 200)
    True
    """

    delta: float = 0.02
    bound: str = "auto"
    test: str = "betting"
    rows: str = "auto"
    refresh: int | None = None
    references: tuple[tuple[float, ...], ...] | None = None
    growth: float = 1.5
    first: int = 8
    power: float = 0.0
    zero_draws: bool = True
    guarantee: ClassVar[Guarantee] = Guarantee(
        "TV-BOUND",
        "each decision differs from the one on all rows with probability at most delta, for every pair of states",
        assumed=(
            "the proven bound on the derivatives of the family",
            "uniform ergodicity of the full-data kernel, which turns delta into a bound on the distance from the posterior",
        ),
        checked=("every residual read is within its bound",),
    )
    name: ClassVar[str] = "confidence"
    cost: ClassVar[str] = "as many rows as a decision needs, often none with a proxy"
    Info: ClassVar[type] = Info

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        super().check()
        check_test(self.test, self.delta, self.growth, self.first, self.power)
        if self.bound != "auto" and self.bound not in BOUNDS:
            raise unknown("bound", self.bound, ["auto", *BOUNDS])
        if self.rows not in ROWS:
            raise unknown("rows", self.rows, ROWS)
        if self.bound in (*NAMES, "published") and self.order != 2:
            raise OptionError(f"bound {self.bound} is for a proxy of order 2; with order={self.order} use bound='lipschitz'.")
        if self.bound == "lipschitz" and self.order == 2:
            raise OptionError("bound='lipschitz' is for order=0 or 1; a proxy of order 2 has the bounds T1 to T9.")
        if self.rows == "weighted" and self.bound in ("extremes", "oracle", "published"):
            raise OptionError(
                f"bound={self.bound!r} is a single range for all rows; use rows='uniform', or another bound for weighted rows."
            )
        self._check_references()

    def _check_references(self) -> None:
        if self.refresh is not None and (not isinstance(self.refresh, int) or self.refresh < 1):
            raise OptionError(f"refresh must be a number of iterations of at least 1, or None; got {self.refresh!r}.")
        if self.references is not None:
            points = tuple(tuple(float(x) for x in np.atleast_1d(point)) for point in self.references)
            if not points or len({len(p) for p in points}) != 1 or not np.isfinite(points).all():
                raise OptionError("references must be one or more points with finite coordinates, all of the same length.")
            object.__setattr__(self, "references", points)
        if self.refresh is not None and self.references is not None:
            raise OptionError("refresh= moves the reference and references= fixes it; use only one of them.")
        if self.moving and as_proposal(self.move).share > 0.0:
            raise OptionError(
                "a reference that moves needs move=random_walk(): other proposals are centred at a fixed reference."
            )
        if self.moving and self.bound in ("T7", "T9"):
            raise OptionError(f"bound {self.bound} is computed at one fixed reference; with refresh= or references= use 'T6'.")

    @classmethod
    def published(cls, **options: Any) -> Confidence:
        """As in Bardenet, Doucet and Holmes (2017), section 8: empirical Bernstein, p = 2, gamma = 2, delta = 0.1, proxies dropped
        every ten iterations, uniform rows, and the paper's bounds (logistic and gamma).

        >>> Confidence.published().refresh
        10
        """
        paper = {
            "delta": 0.1,
            "bound": "published",
            "test": "empirical-bernstein",
            "rows": "uniform",
            "refresh": 10,
            "growth": 2.0,
            "first": 2,
            "power": 2.0,
            "zero_draws": False,
        }
        return cls(**{**paper, **options})

    @property
    def moving(self) -> bool:
        """Whether the reference is not one fixed point."""
        return self.refresh is not None or self.references is not None

    def rule(self, model: Model, mode: Mode, seed: int) -> tuple[Any, str, dict[str, Any]]:
        """The compiled rule; the bound is made in `setup`."""
        rows = self._rows(model)
        test = make_test(self.test, self.delta, self.growth, self.first, self.power)
        slack = float(rounding(model.rows)) if self.order == 2 else _NAIVE
        if rows == "weighted":
            return Weighted(test, self.zero_draws, slack), rows, {}
        return Uniform(test, self.bound in ("oracle", "published"), self.zero_draws, slack), rows, {}

    def _rows(self, model: Model) -> str:
        if self.rows != "auto":
            return self.rows
        one_range = self.bound in ("extremes", "oracle", "published") or model.unit_scale_member is not None
        return "uniform" if one_range else "weighted"

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Certify all rows (one pass), and expand at the references given (one each)."""
        bound, name = self._certificate(model, mode, seed)  # first: it also measures how far residuals are rounded
        rule, rows, _ = self.rule(model, mode, seed)
        if rows == "uniform":
            check_rows(model)
            bound = collapse(bound)
        elif isinstance(bound, Extremes):
            raise ModelError("a normal sample has one range for all rows; use rows='uniform'.")
        whitening, shuffled = whitening_of(mode), rows == "uniform"
        policy: AcceptancePolicy
        if self.moving:
            if not isinstance(bound, FREE_OF_REFERENCE):
                raise OptionError(
                    f"bound {name} is computed at one fixed reference; with refresh= or references= use another bound."
                )
            points = [mode.reference] if self.references is None else [np.array(p) for p in self.references]
            if any(p.size != model.dim for p in points):
                raise OptionError(f"references have {points[0].size} coordinates; the model has {model.dim}.")
            starts = references_at(model, points, factor_of(whitening), self.order, bound)
            policy = MovingPolicy(self.move, rule, model, shuffled, self.refresh or 0, starts)
        else:
            policy = AcceptancePolicy(self.move, rule, model, shuffled)
        why = (
            f"confidence sampler: {self.test} at delta = {self.delta:g}, {rows} rows, bound {name}, proxy of order {self.order}"
        )
        asked = (RANGE,) if rows == "uniform" else (TOTAL, DRAW)
        return Setup(model, policy, Certified(whitening, taylor(mode, self.order), bound), why, {"bound": name}, asked)

    def _certificate(self, model: Model, mode: Mode, seed: int) -> tuple[Any, str]:
        if self.bound == "oracle":
            return Oracle(), "oracle"
        if self.bound == "extremes" or (self.bound == "auto" and model.unit_scale_member is not None):
            if not model.family.plain_sample:
                raise ModelError(
                    f"{model.family.name} with unknown sigma has no certified bound here; use sampler='exact-minibatch', which "
                    "uses sufficient statistics, or give sigma=."
                )
            return extremes(mode), "extremes"
        if self.bound == "published":
            if model.family.published_bound == "exponential":
                return published_gamma(mode), "published"
            if not model.family.published_bound:
                raise ModelError(
                    f"the published bounds are for logistic and gamma models, not {model.family.name}; use bound='auto'."
                )
            return certify(mode, model.family.published_bound, seed=seed)
        if self.order < 2:
            return lipschitz(mode, self.order), "lipschitz"
        choice = "T6" if self.bound == "auto" and self.moving else self.bound
        return certify(mode, choice, seed=seed)

    def diagnose(self, outcome: Outcome) -> Diagnosis:
        """What a decision cost, kept in the notes; warnings if the test does not pay."""
        return super().diagnose(outcome) + summarise(outcome, self.order)

    def audit(
        self, model: Model, fit: Any, pairs: int, repeats: int, rng: np.random.Generator
    ) -> tuple[dict[str, Any], list[str]] | None:
        """Decisions replayed on the full data, beside delta; with moving references, the reference is the mode."""
        found = super().audit(model, fit, pairs, repeats, rng)
        return None if found is None else beside_delta(found, self.delta)
