"""MHSubLhd: Metropolis-Hastings with subsampled likelihoods, without a proxy.

At theta with proposal theta' and u ~ U(0, 1), rows are drawn without replacement until the mean of log p(x|theta') / p(x|theta)
over the t rows drawn is further than c_t from psi = (1/n) log[u p(theta) q(theta'|theta) / (p(theta') q(theta|theta'))]; accept iff
the mean exceeds psi. c_t is a concentration bound at level delta_j = (p - 1) delta / (p j^p) of look j = 1, 2, ..., the number of
rows grows gamma times between looks, and t = n decides exactly. The decision is that of the full data with probability
1 - delta at least. Its range C = max_i |log p(x_i|theta') / p(x_i|theta)| must be known:

* range="lipschitz": sup|f'| |theta' - theta| max |x_i|, for families with a bounded slope;
* range="extremes": from the smallest and the largest y, for normal samples;
* range="oracle": by a pass over all rows, whose evaluations are counted apart: for studies.

Bardenet, Doucet and Holmes (2014), Figure 3, with looks numbered from 1 and a stop rule that can be met at t = n. TV-BOUND.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tallbayes.bounds.bound import RANGE
from tallbayes.bounds.uniform_ranges import Oracle, collapse, extremes, lipschitz
from tallbayes.contract import Diagnosis, Guarantee, Outcome, Setup
from tallbayes.errors import OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.proxies.taylor import taylor, whitening_of
from tallbayes.schemes.acceptance import AcceptancePolicy, SubsampledAcceptance, check_rows
from tallbayes.schemes.bounded_error import Info, Uniform, beside_delta, check_test, summarise
from tallbayes.schemes.sequential_tests import make_test
from tallbayes.target import Certified

BOUNDS = ("hoeffding-serfling", "empirical-bernstein", "empirical-bernstein-serfling")
RANGES = ("auto", "lipschitz", "extremes", "oracle")
_ROUNDING = 1e-12  # of a difference of log-likelihoods


@dataclass(frozen=True, kw_only=True)
class MHSubLhd(SubsampledAcceptance):
    """Metropolis-Hastings with subsampled likelihoods, as published: `bound`, `p`, `gamma` and `delta` of the paper.

    At equilibrium it reads a constant share of the rows, often most of them; `Confidence` is its successor with a proxy.
    `range="auto"` is "extremes" for normal samples and "lipschitz" otherwise.

    >>> import numpy as np, tallbayes as tb
    >>> model = tb.models.normal(np.random.default_rng(0).standard_normal(1000))
    >>> setup = tb.samplers.MHSubLhd(delta=0.05).setup(model, tb.find_mode(model), seed=1, progress=False)
    >>> setup.why
    'MHSubLhd: empirical-bernstein-serfling at delta = 0.05, range extremes'
    """

    order: int = 0
    bound: str = "empirical-bernstein-serfling"
    p: float = 2.0
    gamma: float = 2.0
    delta: float = 0.01
    first: int = 1
    range: str = "auto"
    guarantee: ClassVar[Guarantee] = Guarantee(
        "TV-BOUND",
        "each decision differs from the one on all rows with probability at most delta, for every pair of states",
        assumed=(
            "the proven bound on the slope of the family, or the range of the sample",
            "uniform ergodicity of the full-data kernel, which turns delta into a bound on the distance from the posterior",
        ),
        checked=("every log-likelihood ratio read is within its range",),
    )
    name: ClassVar[str] = "mhsublhd"
    cost: ClassVar[str] = "a share of the rows, often most of them"
    Info: ClassVar[type] = Info

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        super().check()
        if self.order != 0:
            raise OptionError("MHSubLhd does not support a proxy (order=0); use Confidence for a proxy.")
        if self.bound not in BOUNDS:
            raise unknown("bound", self.bound, BOUNDS)
        if self.range not in RANGES:
            raise unknown("range", self.range, RANGES)
        if not 1.0 < self.p < np.inf:
            raise OptionError(
                f"p must exceed 1: the levels (p - 1) delta / (p j^p) of looks sum to delta at most; got {self.p}."
            )
        if not 1.0 < self.gamma < np.inf:
            raise OptionError(f"gamma multiplies the number of rows at each look and must exceed 1; got {self.gamma}.")
        check_test(self.bound, self.delta, self.gamma, self.first, self.p)

    def rule(self, model: Model, mode: Mode, seed: int) -> tuple[Any, str, dict[str, Any]]:
        """Uniform draws, a symmetric range, and no decision without a draw."""
        test = make_test(self.bound, self.delta, self.gamma, self.first, self.p)
        return Uniform(test, True, False, _ROUNDING), self._range(model), {}

    def _range(self, model: Model) -> str:
        return self.range if self.range != "auto" else "extremes" if model.family.plain_sample else "lipschitz"

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """The range of a row: one pass, none for the oracle."""
        check_rows(model)
        rule, name, _ = self.rule(model, mode, seed)
        if name == "oracle":
            bound: Any = Oracle()
        else:
            bound = extremes(mode) if name == "extremes" else collapse(lipschitz(mode, 0, euclidean=True))
        certified = Certified(whitening_of(mode), taylor(mode, 0), bound)
        why = f"MHSubLhd: {self.bound} at delta = {self.delta:g}, range {name}"
        return Setup(model, AcceptancePolicy(self.move, rule, model), certified, why, {"range": name}, (RANGE,))

    def diagnose(self, outcome: Outcome) -> Diagnosis:
        """What a decision cost, kept in the notes; warnings if the test does not pay."""
        return super().diagnose(outcome) + summarise(outcome, 0)

    def audit(
        self, model: Model, fit: Any, pairs: int, repeats: int, rng: np.random.Generator
    ) -> tuple[dict[str, Any], list[str]] | None:
        """Decisions replayed on the full data, beside delta."""
        found = super().audit(model, fit, pairs, repeats, rng)
        return None if found is None else beside_delta(found, self.delta)
