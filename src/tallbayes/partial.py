"""`partial_posteriors`: posterior expectations from random parts of the data, debiased (Strathmann, Sejdinovic, Girolami 2015).

Parts of sizes n_1 < n_2 < .. < n_T = n, each twice the one before, have posterior expectations phi_1 .. phi_T = phi. With a random
number of terms N, P(N >= t) = t-th tail of a geometric law on 1 .. T,

    phi_1 + sum_{t = 2}^{N} (phi_t - phi_{t-1}) / P(N >= t)

has mean phi_T: one replication costs a few small parts, and their average needs no run on all rows. The limits are those that
Bardenet, Doucet and Holmes (2017, section 4.2) name: every phi_t is itself an MCMC estimate of finite length, whose bias stays, so
the result is unbiased for what finite chains would give on all rows, not for the posterior expectation; and its variance is that
of the differences blown up by 1/P, so that a part as large as the data is needed now and then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.api import sample
from tallbayes.contract import Sampler
from tallbayes.data.dataset import Dataset
from tallbayes.errors import ModelError, OptionError
from tallbayes.model import Model
from tallbayes.option_types import checked
from tallbayes.run.options import require_length
from tallbayes.streams import Stream, generator
from tallbayes.validation import require_instance, shown


@dataclass(frozen=True, eq=False)
class PartialPosteriors:
    """Debiased expectations with their standard errors over replications, and what they cost."""

    mean: np.ndarray
    error: np.ndarray
    replications: np.ndarray  # (replications, functions)
    sizes: tuple[int, ...]  # of the parts
    terms: np.ndarray  # parts used in each replication
    evals: float
    full_evals: float  # what the same chains on all rows would have cost in every replication

    def __repr__(self) -> str:
        values = ", ".join(f"{m:.4g} +- {e:.2g}" for m, e in zip(self.mean, self.error, strict=True))
        return (
            f"partial posteriors of {self.sizes[0]:,} to {self.sizes[-1]:,} rows, {self.terms.size} replications: {values}; "
            f"{self.evals:,.3g} evaluations. Unbiased for chains of this length on all rows, not for the posterior."
        )


@checked
def partial_posteriors(
    model: Model,
    function: Callable[[np.ndarray], Any] | None = None,
    *,
    first: int = 500,
    replications: int = 20,
    decay: float = 0.6,
    sampler: str | Sampler = "hmc",
    draws: int = 200,
    warmup: int = 200,
    seed: int = 0,
) -> PartialPosteriors:
    """Debiased estimate of the posterior expectation of `function(theta)` (default theta) from partial posteriors.

    Parts double from `first` rows to all; part t + 1 is used with probability `decay` given t. Each part is sampled by one chain
    of `draws` draws. Under `decay` near 1/2 the expected cost is that of a few parts of a doubled size each.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((2000, 1)), np.random.default_rng(0).standard_normal(2000))
    >>> model = tb.models.gaussian(data, tb.priors.flat(), sigma=1.0)
    >>> done = tb.partial_posteriors(model, replications=8, draws=100, warmup=50)
    >>> done.sizes, bool(abs(done.mean[0] - data.y.mean()) < 5 * done.error[0])
    ((500, 1000, 2000), True)
    """
    require_instance("model", model, Model, "a model such as tallbayes.models.logistic(data)")
    if function is not None and not callable(function):
        raise OptionError(f"function= is a function of theta, or None for theta itself; got {shown(function)}.")
    require_length(draws, warmup, 1)
    model.require_ungrouped("partial_posteriors")
    n = model.data.n
    if not model.exchangeable:
        raise ModelError(
            f"partial posteriors take random rows, and those of a {model.family.name} model are not exchangeable: their order "
            "matters. Use sampler='informed' with rows='window', or a full-data sampler such as 'nuts'."
        )
    if not isinstance(first, int | np.integer) or first < 2 * (model.dim + 1):
        raise OptionError(
            f"first is the number of rows in the smallest part and must be at least 2 (d + 1) = {2 * (model.dim + 1)}; got "
            f"{first!r}."
        )
    if not isinstance(replications, int | np.integer) or replications < 2:
        raise OptionError(f"replications must be a whole number of at least 2; got {replications!r}.")
    if not 0.0 < decay < 1.0:
        raise OptionError(
            f"decay is the probability of continuing to the next part and must be between 0 and 1; got {decay!r}."
        )
    sizes = [min(int(first), n)]
    while sizes[-1] < n:
        sizes.append(min(2 * sizes[-1], n))
    apply = (lambda theta: theta) if function is None else function
    rng = generator(seed, Stream.PARTIAL)
    results, used, evals, per_row = [], [], 0.0, []
    for _ in range(replications):
        terms = min(int(rng.geometric(1.0 - decay)), len(sizes))
        order = rng.permutation(n)[: sizes[terms - 1]]
        total: Any = 0.0
        before: Any = 0.0
        for t in range(terms):
            part = _part(model, order[: sizes[t]])
            fit = sample(part, sampler, draws, warmup, 1, int(rng.integers(1 << 31)), progress=False)
            spent = float(sum(fit.cost()[k]["evals"] for k in ("setup", "warmup", "draws")))
            evals += spent
            per_row.append(spent / sizes[t])
            here = np.atleast_1d(np.asarray(fit.expect(apply), float))
            total = total + (here - before) / decay**t
            before = here
        results.append(total)
        used.append(terms)
    table = np.stack(results)
    error = table.std(0, ddof=1) / np.sqrt(replications)
    return PartialPosteriors(table.mean(0), error, table, tuple(sizes), np.array(used), evals, float(np.mean(per_row)) * n)


def _part(model: Model, index: np.ndarray) -> Model:
    """The model on some rows, under the prior of the whole model."""
    index = np.sort(index)
    rows = model.data.records[index].astype(float)
    d = model.data.d
    data = Dataset.from_arrays(
        rows[:, :d],
        rows[:, d],
        columns=list(model.data.columns),
        offset=rows[:, d + 1],
        weights=rows[:, d + 2],
    )
    return model.over(data)
