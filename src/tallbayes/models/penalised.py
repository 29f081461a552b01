"""Models whose coefficients have a prior of unknown scale: ridge and horseshoe, for all coefficients or by term.

theta is (beta, log tau), one tau per prior of this kind. Rows depend on beta alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from tallbayes.data.dataset import Dataset
from tallbayes.engine.rows import SingleIndex
from tallbayes.errors import ModelError
from tallbayes.hyperpriors import HYPER, HyperTerms
from tallbayes.model import Model
from tallbayes.named_priors import DEFAULT, NamedPriors, coordinates_by_name
from tallbayes.prior_terms import FLAT, LAPLACE, NORMAL, PriorTerms
from tallbayes.priors import Prior

Constructor = TypeVar("Constructor", bound=Callable[..., Model])


class Shrinkage(NamedTuple):
    """A prior of unknown scale over some coefficients."""

    name: str
    kind: str
    scale: float
    where: tuple[int, ...]
    standardised: bool = True  # whether in units of the columns


@dataclass(eq=False, repr=False)
class PenalisedModel(Model):
    """A model with priors of unknown scale. Make one with `tallbayes.models.logistic(data, tallbayes.priors.horseshoe())` etc."""

    hyper: ClassVar[bool] = True
    shrunk: tuple[Shrinkage, ...] = ()
    plain: Model | None = None  # the same rows and family, with the prior of the other coefficients

    @cached_property
    def rows(self) -> Any:
        """The rows, which depend on the coefficients alone."""
        return SingleIndex(self.member, self.data.records, self.data.d)

    @cached_property
    def prior_terms(self) -> Any:
        """The joint density of coefficients and log tau, local scales integrated out."""
        assert self.plain is not None
        d, sd = self.data.d, self.data.moments.sd[: self.data.d]
        group, rest = np.full(d, -1, np.int64), self.plain.prior_terms
        kind = rest.kind.copy()
        for k, own in enumerate(self.shrunk):
            group[list(own.where)] = k
            kind[list(own.where)] = FLAT
        unit = np.where((sd > 0) & np.isfinite(sd), 1.0 / np.where(sd > 0, sd, 1.0), 1.0)
        for own in self.shrunk:
            unit[list(own.where)] = unit[list(own.where)] if own.standardised else 1.0
        local = np.array([int(own.kind == "horseshoe") for own in self.shrunk], np.int64)
        scale = np.array([own.scale for own in self.shrunk])
        return HyperTerms(np.zeros(self.dim, np.int64), rest._replace(kind=kind), group, unit, local, scale)

    def stand_in(self, width: np.ndarray) -> Model:
        """The model with normal priors of these standard deviations in place of those of unknown scale."""
        assert self.plain is not None
        model, terms = self.plain.over(self.data), self.prior_terms
        inside, rest = terms.group >= 0, terms.rest
        model.__dict__["prior_terms"] = PriorTerms(
            np.where(inside, NORMAL, rest.kind),
            np.where(inside, 0.0, rest.location),
            np.where(inside, width, rest.scale),
            rest.df,
            rest.centre,
            rest.intercept,
            rest.dense,
        )
        return model


def with_hyperpriors(constructor: Constructor) -> Constructor:
    """A constructor of models that serves priors of unknown scale, or refuses them."""

    @functools.wraps(constructor)
    def construct(data: Any, *arguments: Any, **options: Any) -> Model:
        prior = arguments[0] if arguments else options.get("prior")
        given = {DEFAULT: prior} if isinstance(prior, Prior) and not isinstance(prior, NamedPriors) else prior
        if isinstance(prior, NamedPriors):
            given = {**dict(prior.by_name), DEFAULT: prior.others}
        if not isinstance(given, Mapping) or not any(isinstance(p, Prior) and p.name in HYPER for p in given.values()):
            return constructor(data, *arguments, **options)
        rest = {k: v for k, v in options.items() if k != "prior"}
        return _penalised(constructor, data, prior, dict(given), arguments[1:], rest)

    return construct  # type: ignore[return-value]


def _penalised(
    constructor: Callable[..., Model],
    data: Dataset,
    prior: Any,
    given: dict[str, Any],
    arguments: tuple[Any, ...],
    options: dict[str, Any],
) -> Model:
    hyper = {name: p for name, p in given.items() if isinstance(p, Prior) and p.name in HYPER}
    fixed = {name: p for name, p in given.items() if name not in hyper}
    plain = constructor(data, fixed or None, *arguments, **options)
    if plain.grouped or plain.nuisances or plain.predictors != 1 or not plain.linear:
        raise ModelError(
            f"priors of unknown scale are learned with one linear predictor and no other unknown parameter, which this {plain.family.name} "
            "model has. Give its parameters as numbers, or use a prior with a known scale."
        )
    if (plain.prior_terms.kind == LAPLACE).any():
        raise ModelError(
            "priors of unknown scale cannot be combined with a Laplace prior of other coefficients; use normal or student_t."
        )
    places = coordinates_by_name(data.columns, data.columns, ())
    shrunk, taken = [], {j for name in fixed if name in places for j in places[name]}
    for name, own in hyper.items():
        if name != DEFAULT and name in places:
            shrunk.append(Shrinkage(name, own.name, float(own.scale), places[name], bool(own.df)))
            taken |= set(places[name])
    if DEFAULT in hyper:
        own = hyper[DEFAULT]
        where = tuple(j for j in range(data.d) if j not in taken and j != data.intercept)
        shrunk.append(Shrinkage(DEFAULT, own.name, float(own.scale), where, bool(own.df)))
    shrunk = [own for own in shrunk if own.where]
    names = ("log_tau",) if len(shrunk) == 1 else tuple(f"log_tau[{own.name}]" for own in shrunk)
    return PenalisedModel(data, plain.family, plain.member, prior, names, plain.options, 1, tuple(shrunk), plain)
