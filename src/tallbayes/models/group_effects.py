"""Hierarchical models: a family over rows with group effects, eta_i = o_i + x_i . beta + sum_k z_ik . b_{k, g_k(i)}.

The effects of level g of factor k are b ~ N(0, Sigma_k), Sigma_k = diag(sigma) R diag(sigma) with priors on sigma and R. The
parameters of the model are beta, the standard deviations and the correlations; the effects of the levels are drawn with them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np

from tallbayes.data.dataset import Dataset
from tallbayes.data.groups import GroupFactor
from tallbayes.engine import passes
from tallbayes.engine.grouped_rows import FactorRows
from tallbayes.engine.noncentred import NonCentredPrior, NonCentredRows, noncentred_prior_gradient, noncentred_prior_value
from tallbayes.engine.rows import rows_of
from tallbayes.errors import ModelError, OptionError
from tallbayes.model import Model
from tallbayes.named_priors import DEFAULT, resolve
from tallbayes.priors import Prior, PriorTerms, from_dict, prior_gradient, prior_value
from tallbayes.scale_priors import CorrelationPrior, ScalePrior, half_student_t

SERVED = ("expression", "gamma", "gaussian", "logistic", "negbin", "poisson", "probit", "student_t")
_LOG_LINK = ("gamma", "negbin", "poisson")


@prior_value.register(NonCentredPrior)
def _prior_value(prior: NonCentredPrior, theta: np.ndarray) -> float:
    return prior_value(prior.coefficients, theta[: prior.columns]) + noncentred_prior_value(prior, theta)


@prior_gradient.register(NonCentredPrior)
def _prior_gradient(prior: NonCentredPrior, theta: np.ndarray, gradient: np.ndarray) -> float:
    total = prior_gradient(prior.coefficients, theta[: prior.columns], gradient[: prior.columns])
    noncentred_prior_gradient(prior, theta, gradient)
    return total + noncentred_prior_value(prior, theta)


@dataclass(eq=False)
class HierarchicalModel(Model):
    """A model with group effects. Make one with `tallbayes.models.logistic(data)` etc., data with groups."""

    scale_priors: tuple[tuple[ScalePrior, ...], ...] = ()
    correlation_priors: tuple[CorrelationPrior, ...] = ()

    grouped: ClassVar[bool] = True
    domain: ClassVar[str] = (
        "outside the model: standard deviations must be positive and correlations a positive definite matrix"
    )

    @property
    def factors(self) -> tuple[GroupFactor, ...]:
        """The grouping factors."""
        return self.data.groups

    @property
    def names(self) -> tuple[str, ...]:
        """Names of coefficients, standard deviations and correlations."""
        out = [*self.data.columns, *self.nuisances]
        for factor in self.factors:
            out += [f"{term}|{factor.name}_sigma" for term in factor.terms]
            pairs = [(b, a) for i, a in enumerate(factor.terms) for b in factor.terms[:i]]
            out += [f"{factor.name}_corr" if len(factor.terms) == 2 else f"{factor.name}_corr[{b},{a}]" for b, a in pairs]
        return tuple(out)

    @property
    def dim(self) -> int:
        """Number of coefficients, standard deviations and correlations."""
        return len(self.names)

    @property
    def level_count(self) -> int:
        """Number of effects of levels, over all factors and terms."""
        return sum(factor.levels * len(factor.terms) for factor in self.factors)

    def level_names(self) -> tuple[tuple[str, str, np.ndarray], ...]:
        """For each factor and term: the name of the variable, the name of the factor and the labels of its levels."""
        return tuple((f"{term}|{f.name}", f.name, f.labels) for f in self.factors for term in f.terms)

    def _prior_names(self) -> tuple[tuple[str, ...], tuple[str, ...], Mapping[str, ScalePrior]]:
        """The coefficients; those of groups have priors of their own."""
        return self.data.columns, (), {}

    def factor_rows(self, k: int) -> FactorRows:
        """The rows of factor k, level by level."""
        f = self.factors[k]
        return FactorRows(self.member, self.data.records, self.data.d, f.first, len(f.terms), f.offsets, f.members)

    @cached_property
    def rows(self) -> Any:
        """The rows as gradient-based moves see them."""
        codes = np.stack([f.codes for f in self.factors])
        first, terms, levels = (np.array(v, np.int64) for v in zip(*((f.first, len(f.terms), f.levels) for f in self.factors)))  # noqa: B905
        return NonCentredRows(self.member, self.data.records, self.data.d, codes, first, terms, levels)

    @cached_property
    def coefficient_terms(self) -> PriorTerms:
        """The prior of the coefficients in numbers."""
        assert self.prior is not None
        return self.prior.terms(self.data, 1, 0, self.family.response_scale)

    @cached_property
    def prior_terms(self) -> Any:
        """The whole prior as gradient-based moves see it."""
        terms = np.array([len(f.terms) for f in self.factors], np.int64)
        scales = np.array([prior.terms() for own in self.scale_priors for prior in own])
        eta = np.array([float(prior.eta) for prior in self.correlation_priors])
        return NonCentredPrior(self.coefficient_terms, self.data.d, terms, scales, eta)

    def admits(self, theta: np.ndarray) -> bool:
        """Whether standard deviations are positive and correlation matrices positive definite."""
        return self.covariances(theta) is not None

    def covariances(self, theta: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]] | None:
        """Standard deviations and correlation matrix of each factor from the parameters; None if they are not valid."""
        at, out = self.data.d + len(self.nuisances), []
        for factor in self.factors:
            q = len(factor.terms)
            sigma, correlation, position = theta[at : at + q], np.eye(q), at + q
            for a in range(q):
                for b in range(a):
                    correlation[a, b] = correlation[b, a] = theta[position]
                    position += 1
            if not ((sigma > 0.0).all() and np.linalg.eigvalsh(correlation)[0] > 1e-10):
                return None
            out.append((sigma, correlation))
            at = position
        return out

    def conditional_values(self, index: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Log-likelihoods of the indexed rows given the effects of their levels, which follow the parameters in theta."""
        data, at = self.data, self.dim
        records = np.array(data.records[index])
        for factor in self.factors:
            codes = factor.codes[index]
            for a in range(len(factor.terms)):
                effect = theta[at : at + factor.levels][codes]
                records[:, data.d + 1] += effect if factor.first < 0 else effect * records[:, factor.first + a]
                at += factor.levels
        unknown = [(0, 0, data.d + k, False) for k in range(len(self.nuisances))]
        rows = rows_of(self.member, records, data.d, [(0, data.d, 0, True), *unknown])
        own = np.ascontiguousarray(theta[: data.d + len(self.nuisances)])
        return passes.values_at(rows, np.arange(index.size), own)

    def _no_density(self) -> ModelError:
        return ModelError(
            "the posterior density of the parameters alone is an integral over the effects of all levels, which is not computed. "
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

    def describe(self) -> dict[str, Any]:
        """What is needed to build the model again over the same rows, in JSON types."""
        names = [f.name for f in self.factors]
        own = {
            (f.name if names.count(f.name) == 1 else f"{' + '.join(f.terms)} | {f.name}"): {
                "factor": f.name,
                "terms": list(f.terms),
                "levels": f.levels,
                "scales": [prior.as_dict() for prior in scales],
                "correlations": correlation.as_dict(),
            }
            for f, scales, correlation in zip(self.factors, self.scale_priors, self.correlation_priors, strict=True)
        }
        return {**super().describe(), "groups": own}

    def __repr__(self) -> str:
        groups = ", ".join(f"({' + '.join(f.terms)} | {f.name}: {f.levels:,} levels)" for f in self.factors)
        return f"HierarchicalModel({self.family.name}, {self.data.n:,} rows, {self.data.d} coefficients, {groups})"


Constructor = TypeVar("Constructor", bound=Callable[..., Model])


def with_groups(constructor: Constructor) -> Constructor:
    """A constructor of models that makes a hierarchical one of data with groups, or refuses if its family has none."""

    @functools.wraps(constructor)
    def construct(data: Any, *arguments: Any, **options: Any) -> Model:
        if not getattr(data, "groups", ()):
            return constructor(data, *arguments, **options)
        if constructor.__name__ not in SERVED:
            raise ModelError(
                f"{constructor.__name__} has no hierarchical form; data with groups need one of {', '.join(SERVED)}. Leave groups= out."
            )
        prior = arguments[0] if arguments else options.pop("prior", None)
        return _hierarchical(constructor, data, prior, *arguments[1:], **options)

    return construct  # type: ignore[return-value]


def _hierarchical(constructor: Callable[..., Model], data: Dataset, prior: Any, *arguments: Any, **options: Any) -> Model:
    named = dict(prior) if isinstance(prior, Mapping) else {}
    coefficients = named.pop(DEFAULT, None) if named or isinstance(prior, Mapping) else prior
    plain = constructor(replace(data, groups=(), order=None), None, *arguments, **options)
    if plain.second:
        raise ModelError(
            f"{plain.family.second_name}= is not available together with group effects; leave one of them out, or write C(...) for a "
            "factor of few levels."
        )
    if plain.nuisances and plain.unit_scale_member is None:
        if plain.family.name == "expression":
            raise ModelError(
                "log_scale is not learned together with group effects. Write a name of your own for it and give its value in constants=, "
                "or write C(...) for a factor of few levels."
            )
        missing = " and ".join(f"{name.removeprefix('log_')}=" for name in plain.nuisances)
        raise ModelError(
            f"a hierarchical {plain.family.name} model needs {missing}, a number: it is not learned together with group effects. Fit the "
            "formula without its group terms first and give the value in fit.derived(), or write C(...) for a factor of few levels."
        )
    scales = tuple(
        tuple(_take(named, f"{term}|{f.name}_sigma", ScalePrior, _default_scale(plain)) for term in f.terms)
        for f in data.groups
    )
    correlations = tuple(_take(named, f"{f.name}_corr", CorrelationPrior, CorrelationPrior(1.0)) for f in data.groups)
    if named:
        sds = [f"{term}|{f.name}_sigma" for f in data.groups for term in f.terms] + [f"{f.name}_corr" for f in data.groups]
        coefficients = resolve({**named, DEFAULT: coefficients}, data.columns, data.columns, (), {}, also=tuple(sds))
    return HierarchicalModel(
        data, plain.family, plain.member, coefficients, plain.nuisances, plain.options, 1, plain.doubts, scales, correlations
    )


def _take(named: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    prior = named.pop(name, default)
    if not isinstance(prior, kind):
        example = "half_student_t(3, 2.5)" if kind is ScalePrior else "lkj(2.0)"
        raise OptionError(f"the prior of {name!r} must be one such as tallbayes.priors.{example}; got {prior!r}.")
    return prior


def _default_scale(model: Model) -> ScalePrior:
    """Half-Student-t with 3 degrees of freedom; scale 2.5, or the spread of the response on the scale of the linear predictor."""
    y = np.asarray(model.data.y, float)
    if model.family.name in _LOG_LINK:
        y = np.log(np.where(y == 0.0, 0.1, y))
    elif not model.family.response_scale:
        return half_student_t(3.0, 2.5)
    spread = 1.4826 * float(np.median(np.abs(y - np.median(y))))
    return half_student_t(3.0, max(2.5, round(spread, 1)))


def recorded_prior(description: Mapping[str, Any], default: bool) -> Prior | dict[str, Any] | None:
    """The `prior=` of a model from what `describe` says of it; `default` if it had none.

    >>> recorded_prior({"prior": {"name": "normal", "location": 0.0, "scale": 2.0, "df": 1.0}}, False).describe()
    'normal(location=0, scale=2)'
    """
    coefficients = description["prior"]
    if "groups" not in description:
        return None if default else from_dict(coefficients)
    out: dict[str, Any] = {}
    for own in description["groups"].values():
        for term, scale in zip(own["terms"], own["scales"], strict=True):
            out[f"{term}|{own['factor']}_sigma"] = ScalePrior(**scale)
        if len(own["terms"]) > 1:
            out[f"{own['factor']}_corr"] = CorrelationPrior(own["correlations"]["eta"])
    if "by_name" in coefficients:
        out |= {name: from_dict(prior) for name, prior in coefficients["by_name"].items()}
        coefficients = coefficients["others"]
    return out if default else {**out, DEFAULT: from_dict(coefficients)}
