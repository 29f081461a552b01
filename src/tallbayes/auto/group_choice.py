"""Minibatch Gibbs or NUTS for a model with group effects: predictions, confirmed by pilots as for other models.

NUTS reads all rows for every gradient and works on a matrix over all parameters and levels. A sweep of minibatch Gibbs reads few rows
of tall data, but it visits every level, reads levels with little information in full, and its effective draws may take several sweeps.
With a few thousand rows in few levels NUTS may be cheaper.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tallbayes.auto.predictions import Prediction
from tallbayes.auto.weighing import Choice, Weighing
from tallbayes.contract import Sampler, Setup
from tallbayes.errors import ModelError
from tallbayes.models.group_effects import HierarchicalModel
from tallbayes.moves import nuts
from tallbayes.results.cost import effective_sizes
from tallbayes.samplers import FullData, MinibatchGibbs

TRIAL = 100  # iterations of warm-up of a pilot, and as many draws
_LONGER = 4  # times as long is a pilot made once, if it has
_FEWEST = 5.0  # effective draws or less, which tell next to nothing of what one costs,
_PATIENCE = 5e9  # and if that takes no more nanoseconds
_JUDGED_LEVELS = 50  # effects of levels that a pilot looks at, beside all other parameters
_SWEEP, _VISIT, _CROSSED_VISIT = (
    20_000.0,
    400.0,
    5000.0,
)  # nanoseconds of a sweep, and of each effect in it, of one factor or several
_GRADIENT = 2000.0  # nanoseconds beyond the rows


class GroupWeighing(Weighing):
    """The two samplers that serve group effects."""

    def choice(self) -> Choice:
        """Predict, try what looks cheapest, and say why; only the choice is left where a sampler refuses the model."""
        self._consider(MinibatchGibbs(), self._gibbs)
        self._consider(FullData(nuts()), self._full_data)
        if not self.candidates:
            raise ModelError("; ".join(self.refused.values()))
        if len(self.candidates) == 1:
            only = self.candidates[0]
            return Choice(only.sampler, only.setup, self._why(only, []), [])
        best = self._settled()
        others = [c for c in self.candidates if c is not best]
        return Choice(
            best.sampler, best.setup, self._why(best, others), [best, *others] if all(c.tried for c in others) else []
        )

    def _effects(self) -> int:
        """Effects of all levels."""
        assert isinstance(self.model, HierarchicalModel)
        return self.model.level_count

    def _gibbs(self, sampler: Sampler, setup: Setup) -> Prediction:
        """At best no row is read, and three sweeps make two effective draws."""
        assert isinstance(self.model, HierarchicalModel)
        visit = _CROSSED_VISIT if len(self.model.factors) > 1 else _VISIT
        sweep = _SWEEP + visit * self._effects()
        return Prediction(sampler, 0.0, 1.5, 30.0 + self.model.data.d, sweep, setup.why, setup)

    def _full_data(self, sampler: Sampler, setup: Setup) -> Prediction:
        """At best as many gradients as for a normal law of that dimension."""
        n, total = self.model.data.n, self.model.dim + self._effects()
        gradients = 2.5 * total**0.15
        facts = f"all {n:,} rows are read for every gradient"
        row = 60.0 + 4.0 * self.model.data.d  # measured
        return Prediction(sampler, n * gradients, 1.0, row, gradients * self._gradient(), facts, setup)

    def _gradient(self) -> float:
        """Nanoseconds of a gradient beyond the rows: a matrix over all parameters and levels."""
        return _GRADIENT + float(self.model.dim + self._effects()) ** 2

    def _pilot(self, candidate: Prediction) -> Prediction:
        """Iterations per effective draw of the parameter that mixes worst, from a short chain of the sampler itself."""
        self.pilots += 1
        tried, draws = self._tried(candidate, TRIAL)
        an_iteration = tried.nanoseconds_per_ess / tried.iterations_per_ess
        longer = _LONGER * TRIAL
        if _FEWEST * tried.iterations_per_ess >= draws < longer and 2 * longer * an_iteration <= _PATIENCE:
            tried, _ = self._tried(candidate, longer)
        return tried

    def _tried(self, candidate: Prediction, length: int) -> tuple[Prediction, int]:
        """The prediction from a pilot with so many draws, after as much warm-up; and its draws."""
        assert candidate.setup is not None
        theta, table = self._trial(candidate.sampler, candidate.setup, length, length)
        dim = self.model.dim
        shown = np.unique(np.linspace(dim, theta.shape[1] - 1, _JUDGED_LEVELS).astype(int))
        sizes = effective_sizes(theta[None][:, :, np.concatenate([np.arange(dim), shown])])
        iterations = theta.shape[0] / max(float(np.nan_to_num(sizes).min()), 1.0)
        evals, overhead = float(table["evals"].mean()), candidate.nanoseconds_per_iteration
        facts = f"{candidate.facts}; {evals / 2:,.3g} rows per sweep"
        if isinstance(candidate.sampler, FullData):
            gradients = evals / self.model.data.n
            overhead, facts = gradients * self._gradient(), f"{candidate.facts}, {gradients:,.3g} gradients per draw"
        facts += f" and {iterations:,.3g} iterations per effective draw in a pilot"
        confirmed = replace(
            candidate,
            evals_per_ess=evals * iterations,
            iterations_per_ess=iterations,
            nanoseconds_per_iteration=overhead,
            facts=facts,
            tried=True,
        )
        return confirmed, theta.shape[0]

    def _turning_point(self, best: Prediction) -> str:
        """What would change the choice."""
        if isinstance(best.sampler, MinibatchGibbs):
            return "; fewer rows in fewer levels would favour nuts"
        return "; more rows, or more levels, would favour minibatch-gibbs"
