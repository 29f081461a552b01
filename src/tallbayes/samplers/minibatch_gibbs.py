"""Minibatch Gibbs: hierarchical models drawn exactly at a few rows per sweep, independent of n.

eta_i = o_i + x_i . beta + z_i . b_g(i), b_g ~ N(0, Sigma). A sweep moves, in turn,

* the coefficients given the levels, and every level given the coefficients: two stages, first on the surrogate (second order, with the
  third-order terms of the levels), then on the residuals of a Poisson number of rows under certified bounds, as in exact-minibatch;
* the coefficients that levels carry (intercept, group covariates, random slopes), and Sigma, given the levels: no rows;
* Sigma, or the carried coefficients, with all levels taken along by an affine map and its Jacobian: levels with little information mix.

Every move leaves the joint posterior of (beta, Sigma, b) invariant. Tables, reference, steps and shares are frozen after warm-up. EXACT.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tallbayes.contract import Guarantee, Sampler, Setup
from tallbayes.errors import OptionError
from tallbayes.mode.hierarchical import HierarchicalMode
from tallbayes.mode.laplace import Mode
from tallbayes.mode.linear_mixed import LinearMode
from tallbayes.mode.linear_several import SeveralMode
from tallbayes.model import Model
from tallbayes.models.group_effects import HierarchicalModel
from tallbayes.proxies.centred_columns import centred_prior
from tallbayes.proxies.crossed_tables import CrossedTables, crossed_tables
from tallbayes.proxies.level_tables import LevelTables, level_tables
from tallbayes.schemes.blocked_draws import BlockedPolicy
from tallbayes.schemes.collapsed_draws import LinearPolicy
from tallbayes.schemes.crossed_sweep import CrossedPolicy
from tallbayes.schemes.gibbs_info import Info
from tallbayes.schemes.level_audit import audit_levels
from tallbayes.schemes.level_moves import OneEffect
from tallbayes.schemes.level_sweep import GibbsPolicy
from tallbayes.schemes.level_vectors import ManyEffects
from tallbayes.target import Target, counters


@dataclass(frozen=True, eq=False)
class GibbsSetup(Setup):
    """Rows level by level, and the prior of the coefficients alone."""

    def target(self, number: int = 0) -> Target:
        """A target for one chain."""
        assert isinstance(self.model, HierarchicalModel)
        terms = self.model.coefficient_terms
        if isinstance(self.proxy, LevelTables):
            terms = centred_prior(terms, self.proxy.surrogate.constant, self.proxy.surrogate.means)
        return Target(self.model.factor_rows(0), terms, self.proxy, counters())


@dataclass(frozen=True, eq=False)
class CrossedSetup(Setup):
    """Rows with their levels of all factors, and the prior of the coefficients alone."""

    rows: Any = None

    def target(self, number: int = 0) -> Target:
        """A target for one chain."""
        assert isinstance(self.model, HierarchicalModel)
        core = self.proxy.surrogate
        terms = centred_prior(self.model.coefficient_terms, core.constant, core.means)
        return Target(self.rows, terms, self.proxy, counters())


def crossed_reason(model: HierarchicalModel, tables: CrossedTables) -> str:
    """What a fit says of the sampler it was made with."""
    sizes = " and ".join(f"{f.levels:,} levels of {f.name!r}" for f in model.factors)
    kind = "exponential" if tables.exponential else "third- and fourth-derivative"
    carried = [
        f"{f.name!r} carries {model.data.columns[j]}"
        for f, own in zip(model.factors, tables.factors, strict=True)
        for j in own.carried
    ]
    return f"minibatch Gibbs over {sizes} with {kind} bounds" + (f"; {', '.join(carried)}" if carried else "")


@dataclass(frozen=True)
class MinibatchGibbs(Sampler):
    """Minibatch Gibbs for hierarchical models with one grouping factor or several, crossed or nested.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 2))])
    >>> shop = rng.integers(0, 50, 20_000)
    >>> eta = X @ [0.1, 0.5, -0.5] + 0.7 * rng.standard_normal(50)[shop]
    >>> y = (rng.random(20_000) < 1 / (1 + np.exp(-eta))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y, groups={"shop": shop}))
    >>> fit = tb.sample(model, "minibatch-gibbs", draws=200, warmup=200, chains=2, seed=1, progress=False)
    >>> fit.names, fit.draws("1|shop").shape, bool(fit.evals.mean() < 400)
    (('x0', 'x1', 'x2', '1|shop_sigma'), (2, 200, 50), True)
    """

    inflation: float | None = None
    guarantee: ClassVar[Guarantee] = Guarantee(
        "EXACT",
        "every move of a sweep leaves the posterior invariant; rows are drawn at random under certified bounds",
        assumed=("the proven bounds of the third and fourth derivative of the family", "arithmetic in double precision"),
        checked=("every residual read is within its bound",),
    )
    name: ClassVar[str] = "minibatch-gibbs"
    Info: ClassVar[type] = Info
    cost: ClassVar[str] = "a few rows per group, independent of n"
    needs_groups: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse what is out of range."""
        if self.inflation is not None and not self.inflation >= 1.0:
            raise OptionError(f"inflation of the rates must be at least 1; got {self.inflation}.")

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Tables at the reference: three passes over the rows."""
        assert isinstance(model, HierarchicalModel) and isinstance(mode, HierarchicalMode)
        if isinstance(mode, LinearMode | SeveralMode):
            if self.inflation is not None:
                raise OptionError("inflation= belongs to models whose rows are read; a linear mixed model reads none.")
            linear = LinearPolicy(model, mode) if isinstance(mode, LinearMode) else BlockedPolicy(model, mode)
            return GibbsSetup(
                model, linear, linear.tables, "linear mixed model: exact draws from sums of one pass, no rows are read"
            )
        if len(model.factors) > 1:
            several, rows = crossed_tables(mode)
            return CrossedSetup(
                model, CrossedPolicy(model, mode, several, self.inflation), several, crossed_reason(model, several), rows=rows
            )
        tables = level_tables(mode)
        form: Any = OneEffect() if len(model.factors[0].terms) == 1 else ManyEffects()
        policy = GibbsPolicy(model, mode, tables, form, self.inflation)
        carried = [model.data.columns[j] for j in tables.surrogate.carried]
        kind = "exponential" if tables.shares.exponential else "third- and fourth-derivative"
        why = f"minibatch Gibbs over {model.factors[0].levels:,} levels of {model.factors[0].name!r} with {kind} bounds"
        why += f"; the levels carry {', '.join(carried)}" if carried else ""
        return GibbsSetup(model, policy, tables, why)

    def audit(
        self, model: Model, fit: Any, pairs: int, repeats: int, rng: np.random.Generator
    ) -> tuple[dict[str, Any], list[str]] | None:
        """Decisions of every kind of step replayed on all rows concerned, between pairs of posterior draws."""
        assert isinstance(model, HierarchicalModel)
        from tallbayes.mode.search import find_mode

        mode = find_mode(model, progress=False)
        if isinstance(mode, LinearMode | SeveralMode):
            return {"rows read": "none: draws come from sums of one pass"}, []
        return audit_levels(model, self.prepare(model, mode, 0, False).target(), fit, pairs, rng)
