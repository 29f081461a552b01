"""Models whose coefficients have priors with unknown scales, such as ridge and horseshoe: rows depend on the coefficients alone."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from tallbayes.coefficient_priors import Prior
from tallbayes.data.dataset import Dataset
from tallbayes.data.smooths import smooth_blocks, split_block
from tallbayes.engine.scale_sweeps import Blocks
from tallbayes.errors import ModelError, OptionError
from tallbayes.model import Model
from tallbayes.named_priors import DEFAULT, NamedPriors, coordinates_by_name, resolve
from tallbayes.prior_terms import FLAT, NORMAL, PriorTerms
from tallbayes.unknown_scale_priors import UnknownScale, ridge

_OPTION = re.compile(r",\s*k\s*=\s*\d+(?=\s*[,)])")  # of a smooth, which is not part of its name


@dataclass(frozen=True)
class FixedTerms(Prior):
    """A prior that is given in numbers."""

    numbers: Any = None

    def terms(self, data: Dataset, predictors: int, nuisances: int, response_scale: bool, second: int = 0) -> PriorTerms:
        """The numbers."""
        return self.numbers

    def sample(self, terms: PriorTerms, rng: np.random.Generator) -> np.ndarray:
        """Refused: the scales are fixed only while the reference is searched for."""
        raise OptionError("a prior with scales fixed for the search has no draws of its own.")


@dataclass(eq=False, repr=False)
class UnknownScaleModel(Model):
    """A model with unknown prior scales. Make one with `tallbayes.models.logistic(data, tallbayes.priors.horseshoe())` etc."""

    given: Any = None  # the prior as it was given
    members: tuple[tuple[str, UnknownScale, tuple[int, ...]], ...] = ()  # name, prior and coordinates of each block

    unknown_scales: ClassVar[bool] = True
    domain: ClassVar[str] = "outside the model: scales must be positive"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.prior = self.given
        self.default_prior = False

    def over(self, data: Dataset) -> Self:
        """The same model over other rows, with the scales by which these rows standardise columns."""
        model = super().over(data)
        model.__dict__["blocks"] = self.blocks
        return model

    @property
    def names(self) -> tuple[str, ...]:
        """Names of coefficients, then of the scales."""
        return (*super().names, *(_scale_name(name, prior.parameter) for name, prior, _ in self.members))

    @property
    def coordinates(self) -> int:
        """Parameters of the likelihood: all but the scales."""
        return self.predictors * self.data.d + len(self.nuisances)

    @property
    def dim(self) -> int:
        """Number of coefficients and scales."""
        return self.coordinates + len(self.members)

    def _prior_names(self) -> Any:
        names, nuisances, defaults = super()._prior_names()
        return names[: self.coordinates], nuisances, defaults

    @cached_property
    def prior_terms(self) -> PriorTerms:
        """The fixed part of the prior: flat in coefficients with an unknown scale."""
        resolved = resolve(_placeholders(self.data, self.given, self.second), self.data.columns, *self._prior_names())
        terms = resolved.terms(self.data, self.predictors, len(self.nuisances), self.family.response_scale, self.second)
        for _, _, where in self.members:
            terms.kind[list(where)] = FLAT
        return terms

    @cached_property
    def blocks(self) -> Blocks:
        """The unknown scales as compiled code sees them."""
        d, count = self.coordinates, len(self.members)
        home, weight, unit = np.full(d, -1, np.int64), np.ones(d), np.ones(count)
        moments = self.data.moments
        for b, (_, prior, where) in enumerate(self.members):
            at = np.array(where)
            home[at] = b
            if self.family.response_scale and moments.sd[self.data.d] > 0 and at.max() < self.data.d - self.second:
                unit[b] = moments.sd[self.data.d]  # a second predictor is not in units of the response
            if prior.standardise:
                sd = moments.sd[at % self.data.d]
                weight[at] = np.where(sd > 0.0, sd, 1.0) ** 2
        priors = [prior for _, prior, _ in self.members]
        return Blocks(
            home,
            weight,
            np.bincount(home[home >= 0], minlength=count).astype(float),
            np.array([prior.local for prior in priors]),
            np.array([float(prior.df) for prior in priors]),
            np.array([float(prior.scale) for prior in priors]) * unit,
            np.array(
                [0.0 if prior.slab == 0.0 else 1.0 / (prior.slab * u) ** 2 for prior, u in zip(priors, unit, strict=True)]
            ),
        )

    def draw_scales(self, terms: PriorTerms, rng: np.random.Generator) -> tuple[PriorTerms, np.ndarray]:
        """Scales drawn from their prior: terms of the coefficients given them, and the shared ones."""
        blocks, d = self.blocks, self.coordinates
        shared = blocks.width * np.abs(rng.standard_t(blocks.df))
        inside, home = blocks.home >= 0, np.maximum(blocks.home, 0)
        own = np.where(blocks.local[home], np.abs(rng.standard_cauchy(d)), 1.0)
        precision = blocks.weight * (1.0 / (shared[home] * own) ** 2 + blocks.slab[home])
        kind, location = np.where(inside, NORMAL, terms.kind), np.where(inside, 0.0, terms.location)
        return terms._replace(kind=kind, location=location, scale=np.where(inside, precision**-0.5, terms.scale)), shared

    def conditional(self, precision: np.ndarray) -> Model:
        """The model of the coefficients given their scales, as prior precisions."""
        terms = self.prior_terms._replace(dense=np.diag(precision))
        return Model(
            self.data,
            self.family,
            self.member,
            FixedTerms("fixed", numbers=terms),
            self.nuisances,
            self.options,
            self.predictors,
        )

    def admits(self, theta: np.ndarray) -> bool:
        """Whether the scales are positive."""
        return bool((np.asarray(theta)[self.coordinates :] > 0.0).all())

    def _no_density(self) -> ModelError:
        return ModelError(
            "the posterior density of coefficients and shared scales alone is an integral over other variables, which is not computed. "
            "Draw from the posterior with tallbayes.sample."
        )

    def log_prior(self, theta: np.ndarray) -> float:
        """Not available: see the message."""
        raise self._no_density()

    def log_posterior(self, theta: np.ndarray) -> float:
        """Not available: see the message."""
        raise self._no_density()

    def gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Not available: see the message."""
        raise self._no_density()

    def curvature(self, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """Not available: see the message."""
        raise self._no_density()


Constructor = TypeVar("Constructor", bound=Callable[..., Model])


def with_unknown_scales(constructor: Constructor) -> Constructor:
    """A constructor of models that makes one with unknown scales where the prior has them."""

    @functools.wraps(constructor)
    def construct(data: Any, *arguments: Any, **options: Any) -> Model:
        given = arguments[0] if arguments else options.get("prior")
        prior, rest = with_smooths(getattr(data, "columns", ()), given), {k: v for k, v in options.items() if k != "prior"}
        if prior is given and not _has_unknown(prior):
            return constructor(data, *arguments, **options)
        if not _has_unknown(prior):
            return constructor(data, prior, *arguments[1:], **rest)
        if getattr(data, "groups", ()):
            smooths = "', '".join(dict.fromkeys(split_block(name)[0] for name in smooth_blocks(data.columns)))
            raise ModelError(
                "priors with unknown scales do not support models with group effects; use tallbayes.priors.normal(...) there"
                + (f", for the smooths as in prior={{'{smooths}': tallbayes.priors.normal(1.0)}}." if smooths else ".")
            )
        return _with_blocks(constructor, data, prior, *arguments[1:], **rest)

    return construct  # type: ignore[return-value]


def with_smooths(columns: tuple[str, ...], prior: Any) -> Any:
    """The prior with an unknown scale for every smooth among the columns that has no prior by name.

    >>> with_smooths(("x", "s(z)_line", "s(z)[1]", "s(z)[2]"), None)["s(z)"].describe()
    'ridge(sigma ~ half_student_t(3, 2.5))'
    """
    blocks = smooth_blocks(columns)
    named = {_OPTION.sub("", name) if isinstance(name, str) else name: own for name, own in _by_name(prior).items()}
    if not blocks or getattr(named.get(DEFAULT), "name", "") == "multivariate_normal":
        return prior
    for block, where in blocks.items():
        term, _ = split_block(block)
        if single := [columns[j] for j in where if columns[j] in named]:
            raise OptionError(f"give one prior to all of {term!r} rather than to {single[0]!r} alone.")
        if isinstance(named.get(term), UnknownScale) or term not in named:
            named.setdefault(block, named.get(term, ridge(standardise=False)))
    for term in {split_block(block)[0] for block in blocks} - set(blocks):
        if isinstance(named.get(term), UnknownScale):  # each level has a scale of its own
            del named[term]
    return named


def _scale_name(name: str, parameter: str) -> str:
    """Name of the scale of a block: that of a level of a smooth is "s(x, by=g)_sigma[b]"."""
    term, level = split_block(name)
    return f"{term}_{parameter}" if level is None else f"{term}_{parameter}[{level}]"


def _has_unknown(prior: Any) -> bool:
    if isinstance(prior, NamedPriors):
        return any(isinstance(own, UnknownScale) for own in (prior.others, *(own for _, own in prior.by_name)))
    if isinstance(prior, Mapping):
        return any(isinstance(own, UnknownScale) for own in prior.values())
    return isinstance(prior, UnknownScale)


def _by_name(prior: Any) -> dict[str, Any]:
    if isinstance(prior, NamedPriors):
        return {**dict(prior.by_name), DEFAULT: prior.others}
    return dict(prior) if isinstance(prior, Mapping) else {DEFAULT: prior}


def _placeholders(data: Dataset, prior: Any, second: int) -> dict[str, Any]:
    """The prior with normal ones in place of unknown scales; intercepts keep a prior of their own under a default."""
    named = _by_name(prior)
    out = {name: Prior("normal") if isinstance(own, UnknownScale) else own for name, own in named.items()}
    if isinstance(named.get(DEFAULT), UnknownScale):
        for constant in (data.intercept, data.column_of_ones(data.d - second, data.d) if second else None):
            if constant is not None:
                out.setdefault(data.columns[constant], Prior("weakly_informative"))
    return out


def _with_blocks(constructor: Callable[..., Model], data: Dataset, prior: Any, *arguments: Any, **options: Any) -> Model:
    plain = constructor(data, _placeholders(data, prior, 0), *arguments, **options)
    fixed = _placeholders(data, prior, plain.second)
    if not plain.linear or plain.row_limitation:
        raise ModelError(f"ridge and horseshoe are priors of coefficients; {plain.family.name} has none.")
    places = coordinates_by_name(data.columns, plain.names, plain.nuisances)
    named = _by_name(prior)
    taken = {j for name in fixed if name != DEFAULT for j in places[name]}
    members = []
    for name, own in named.items():
        if not isinstance(own, UnknownScale):
            continue
        if name != DEFAULT:
            members.append((name, own, tuple(places[name])))
            continue
        first, spans = data.d - plain.second, {own.name: range(plain.predictors * data.d)}
        if plain.second:
            spans = {own.name: range(first), f"{plain.family.second_name}_{own.name}": range(first, data.d)}
        for label, span in spans.items():
            if where := tuple(j for j in span if j not in taken):
                members.append((label, own, where))
    if not members:
        raise ModelError("no coefficient is left for the prior with an unknown scale; name fewer coefficients in prior=.")
    given = (
        prior
        if isinstance(prior, Prior)
        else NamedPriors("named", others=named.pop(DEFAULT, None) or Prior("weakly_informative"), by_name=tuple(named.items()))
    )
    return UnknownScaleModel(
        data,
        plain.family,
        plain.member,
        fixed,
        plain.nuisances,
        plain.options,
        plain.predictors,
        plain.doubts,
        given,
        tuple(members),
    )
