"""Families of times to an event with right censoring: what laws of location and scale of log t share besides `engine.failure_times`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tallbayes.data.dataset import Dataset
from tallbayes.engine.failure_times import admits_times, failure_normaliser, start_times
from tallbayes.model import Family, Model
from tallbayes.named_priors import PriorLike


def time_family(
    law: type,
    name: str,
    noise: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray],
    mean: Callable[[np.ndarray], np.ndarray],
    log_normaliser: Callable[[Any, np.ndarray], np.ndarray] = failure_normaliser,
) -> Family:
    """The family of log t = eta + sigma times `noise`; E[t] is e^eta times `mean` of sigma."""

    def simulate(rng: np.random.Generator, member: Any, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
        """Times of events: nothing is censored."""
        return np.exp(eta + np.exp(nuisances[:, 0]) * noise(rng, eta.shape))

    return Family(
        name=name,
        support="a time t > 0 of an event, or -t for one censored at t",
        remedy="Make the response with tallbayes.data.censored(time, event).",
        admits=admits_times,
        mean=np.exp,
        full_mean=lambda member, eta, nuisances: np.exp(eta) * mean(np.exp(nuisances[:, 0])),
        self_concordant=False,
        log_concave=True,
        examples=(law(),),
        responses=(0.3, 2.0, -1.5),
        response="time",
        link_name="log",
        start=start_times,
        member_of=law,
        log_normaliser=log_normaliser,
        simulate=simulate,
        ratio="time_ratio",
    )


def time_model(data: Dataset, prior: PriorLike, family: Family) -> Model:
    """A model of times; log sigma is the last coordinate of theta."""
    return Model(data, family, family.member_of(), prior, nuisances=("log_sigma",))
