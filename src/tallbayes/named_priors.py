"""Priors by name: `prior={"age": ..., "C(region)": ..., "Intercept": ..., "sigma": ..., "default": ...}`.

A name is that of a coefficient, of a term of the formula (all its coefficients), or of a parameter of the family such as "sigma", whose
logarithm is a coordinate of theta: a density of sigma becomes one of log sigma with its Jacobian. "default" is the prior of all other
coefficients.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from tallbayes.coefficient_priors import Prior
from tallbayes.data.dataset import Dataset
from tallbayes.data.smooths import smooth_blocks
from tallbayes.errors import OptionError, unknown
from tallbayes.prior_terms import POSITIVE, PriorTerms
from tallbayes.scale_priors import ScalePrior

DEFAULT = "default"
PriorLike: TypeAlias = Any
"""What `prior=` takes: one Prior, priors by name in a dictionary, or None for the default. A model turns it into a Prior."""


@dataclass(frozen=True)
class NamedPriors(Prior):
    """Priors of coefficients and of parameters of the family by name, and one for all other coefficients."""

    others: Prior = field(default_factory=lambda: Prior("weakly_informative"))
    by_name: tuple[tuple[str, Prior | ScalePrior], ...] = ()
    places: tuple[tuple[int, ...], ...] = ()  # coordinates of theta of each name, from `resolve`

    @property
    def proper(self) -> bool:
        """Whether all of them integrate to one over the coefficients."""
        return self.others.proper and all(prior.proper for _, prior in self.by_name if isinstance(prior, Prior))

    def terms(self, data: Dataset, predictors: int, nuisances: int, response_scale: bool, second: int = 0) -> PriorTerms:
        """Those of `others`, with the coordinates named replaced."""
        out = self.others.terms(data, predictors, nuisances, response_scale, second)
        for (_, prior), where in zip(self.by_name, self.places, strict=True):
            if isinstance(prior, Prior) and prior.name == "weakly_informative":
                own = prior.terms(data, predictors, nuisances, response_scale, second)
                _copy(own, np.array(where), out, np.array(where))
                if own.intercept in where and own.intercept >= 0:
                    out = out._replace(intercept=own.intercept, centre=own.centre)
                continue
            out = _replaced(out, prior, where)
        return out

    def coordinates(self, count: int, nuisances: int = 0) -> PriorTerms:
        """The same for parameters that are not coefficients of columns."""
        out = self.others.coordinates(count, nuisances)
        for (_, prior), where in zip(self.by_name, self.places, strict=True):
            out = _replaced(out, prior, where)
        return out

    def power(self, exponent: float) -> NamedPriors:
        """Each of them to a power."""
        by_name = tuple((name, prior.power(exponent)) for name, prior in self.by_name)
        return replace(self, others=self.others.power(exponent), by_name=by_name)

    def describe(self) -> str:
        """One line for summaries."""
        named = [f"{name}: {prior.describe()}" for name, prior in self.by_name]
        return ", ".join([*named, f"others: {self.others.describe()}"])

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON."""
        return {"name": self.name, "others": self.others.as_dict(), "by_name": {n: p.as_dict() for n, p in self.by_name}}


def _replaced(terms: PriorTerms, prior: Prior | ScalePrior, where: tuple[int, ...]) -> PriorTerms:
    if not where or max(where) >= terms.kind.size:  # a parameter of the family that these terms leave out
        return terms
    if terms.dense.size:
        raise OptionError(
            "multivariate_normal is a prior of all parameters together; leave out the others, or use normal(...)."
        )
    at = np.array(where)
    if isinstance(prior, ScalePrior):
        kind, scale, df = prior.terms()
        terms.kind[at], terms.location[at], terms.scale[at], terms.df[at] = POSITIVE + int(kind), 0.0, scale, df
        return terms
    _copy(prior.coordinates(len(where)), np.arange(len(where)), terms, at)
    return terms._replace(intercept=-1) if terms.intercept in where else terms


def _copy(source: PriorTerms, taken: np.ndarray, terms: PriorTerms, where: np.ndarray) -> None:
    for part in ("kind", "location", "scale", "df"):
        getattr(terms, part)[where] = getattr(source, part)[taken]


def resolve(
    prior: PriorLike,
    columns: tuple[str, ...],
    names: tuple[str, ...],
    nuisances: tuple[str, ...],
    defaults: Mapping[str, ScalePrior],
    also: tuple[str, ...] = (),
) -> Prior:
    """The prior of a model from what was given: names become coordinates, and parameters of the family have their default priors.

    `names` are those of theta, `nuisances` the last of them; `also` are names that are valid elsewhere.

    >>> from tallbayes.priors import half_normal, normal
    >>> given = {"C(g)": normal(1.0), "sigma": half_normal(2.0)}
    >>> names = ("Intercept", "C(g)[T.b]", "C(g)[T.c]", "log_sigma")
    >>> found = resolve(given, names[:3], names, names[3:], {})
    >>> found.places, found.describe()
    (((1, 2), (3,)), 'C(g): normal(location=0, scale=1), sigma: half_normal(2), others: weakly_informative')
    """
    if isinstance(prior, NamedPriors):
        given: dict[str, Any] = {**dict(prior.by_name), DEFAULT: prior.others}
    elif isinstance(prior, Mapping):
        given = dict(prior)
    else:
        given = {} if prior is None else {DEFAULT: prior}
    others = given.pop(DEFAULT, None)
    others = Prior("weakly_informative") if others is None else others
    if not isinstance(others, Prior) or isinstance(others, NamedPriors):
        raise OptionError(_wrong(DEFAULT, others, "normal(10)"))
    places = coordinates_by_name(columns, names, nuisances)
    for name, own in given.items():
        if name not in places:
            raise unknown("parameter in prior=", name, [*dict.fromkeys((*places, *also)), DEFAULT])
        _check(name, own, f"log_{name}" in nuisances and name not in names)
    if others.name not in ("multivariate_normal", "fixed"):  # fixed terms have those of the family already
        for name, own in defaults.items():
            if name not in given and f"log_{name}" not in given and name in places:
                given[name] = own
    if not given:
        return others
    return NamedPriors("named", others=others, by_name=tuple(given.items()), places=tuple(places[name] for name in given))


def coordinates_by_name(
    columns: tuple[str, ...], names: tuple[str, ...], nuisances: tuple[str, ...]
) -> dict[str, tuple[int, ...]]:
    """Every name that a prior may have, and the coordinates of theta it means.

    >>> coordinates_by_name(("Intercept", "g[T.b]", "g[T.c]"), ("Intercept", "g[T.b]", "g[T.c]", "log_size"), ("log_size",))
    {'Intercept': (0,), 'g[T.b]': (1,), 'g[T.c]': (2,), 'log_size': (3,), 'g': (1, 2), 'size': (3,)}
    """
    places: dict[str, tuple[int, ...]] = {name: (j,) for j, name in enumerate(names)}
    coefficients = names[: len(names) - len(nuisances)]
    terms: dict[str, list[int]] = {}
    for j, name in enumerate(coefficients):
        block = columns[j % len(columns)] if columns else name
        smooth = [name for name in smooth_blocks([block]) if "[" in name]
        for term in {block, re.sub(r"\[[^\[\]]*\]", "", block), re.sub(r"\[[^\[\]]*\]", "", name), *smooth}:
            if term not in places:
                terms.setdefault(term, []).append(j)
    places |= {term: tuple(where) for term, where in terms.items()}
    for j, name in enumerate(nuisances):
        if name.startswith("log_"):
            places.setdefault(name.removeprefix("log_"), (len(coefficients) + j,))
    return places


def _check(name: str, own: Any, positive: bool) -> None:
    if positive and not isinstance(own, ScalePrior):
        raise OptionError(_wrong(name, own, "half_normal(1.0)"))
    if not positive and (not isinstance(own, Prior) or isinstance(own, NamedPriors) or own.name == "multivariate_normal"):
        raise OptionError(_wrong(name, own, "normal(10)"))


def _wrong(name: str, own: Any, example: str) -> str:
    return f"the prior of {name!r} must come from tallbayes.priors, such as tallbayes.priors.{example}; got {own!r}."
