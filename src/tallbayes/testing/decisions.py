"""Decisions of subsampled acceptance rules replayed beside those on all rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallbayes.errors import OptionError, TallbayesError
from tallbayes.mode.laplace import Mode
from tallbayes.mode.search import find_mode
from tallbayes.model import Model
from tallbayes.proxies.taylor import proxy_value_at, whitened
from tallbayes.samplers import Sampler
from tallbayes.schemes.acceptance import Pair, SubsampledAcceptance, replay
from tallbayes.streams import Stream, generator
from tallbayes.target import STATUS, Cache


class Decisions(NamedTuple):
    """Whether each decision accepted, (pairs, repeats), and the log ratio of each pair on all rows."""

    accepted: np.ndarray
    exact: np.ndarray

    def wrong(self, levels: np.ndarray) -> np.ndarray:
        """How many decisions of each pair differ from those on all rows, which accept if level < exact."""
        return np.asarray((self.accepted != (levels < self.exact[:, None])).sum(axis=1))


def replay_decisions(
    sampler: Sampler,
    model: Model,
    pairs: np.ndarray,
    levels: np.ndarray,
    *,
    mode: Mode | None = None,
    seed: int = 0,
) -> Decisions:
    """Decisions of a sampler's rule on stored pairs of positions (pairs, 2, dim), each at its own levels (pairs, repeats).

    A level is log u of a decision. Proposals count as symmetric. For samplers that decide from a subsample as a
    `SubsampledAcceptance` does; nothing is kept from one decision to the next.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.testing import replay_decisions
    >>> X, y = np.ones((50, 1)), np.arange(50) % 2
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(1.0))
    >>> pairs, levels = np.array([[[0.0], [0.2]], [[0.1], [-0.3]]]), np.log([[0.2, 0.9], [0.5, 0.99]])
    >>> decisions = replay_decisions(tb.samplers.Austerity(batch=50), model, pairs, levels)
    >>> decisions.wrong(levels)  # all rows were read
    array([0, 0])
    """
    if not isinstance(sampler, SubsampledAcceptance):
        raise OptionError(
            f"replay_decisions is for samplers that decide by an acceptance rule on a subsample; {sampler.name} does not."
        )
    mode = find_mode(model, progress=False) if mode is None else mode
    setup = sampler.setup(model, mode, seed, False)
    rule, target = setup.policy.options(setup.policy.begin(), True).rule, setup.target()
    rng = generator(seed, Stream.AUDIT)
    order = setup.policy.blank(mode.reference).order
    accepted, exact = np.empty(levels.shape, np.bool_), np.empty(len(pairs))
    for k, (theta, other) in enumerate(np.ascontiguousarray(pairs, float)):
        white, other_white = whitened(target.proxy.whitening, theta), whitened(target.proxy.whitening, other)
        proxies = proxy_value_at(target.proxy.proxy, other_white) - proxy_value_at(target.proxy.proxy, white)
        known = float(proxies + model.log_prior(other) - model.log_prior(theta))
        exact[k] = model.log_posterior(other) - model.log_posterior(theta)
        pair = Pair(theta, other, white, other_white, known, 0.0, order, Cache(False, False))
        replay(rng, target, rule, pair, np.ascontiguousarray(levels[k], float), accepted[k], np.zeros(len(sampler.info)))
        if target.counters[STATUS] != 0:
            raise TallbayesError(f"a decision failed; the counters of the target are {target.counters}.")
    return Decisions(accepted, exact)
