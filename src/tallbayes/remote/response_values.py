"""Responses of all partitions in a few numbers, where they decide what the model is: one model then serves every partition.

An expression gets its certificate from them, ordered classes their cut points. Where responses are few they are all known; otherwise
quantiles are, and the smallest and the largest. A response that is not covered has no bound (`Model.over`), so what is proven never
depends on how well the numbers describe the rows.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tallbayes import models
from tallbayes.data.dataset import Dataset
from tallbayes.data.plan import plan_names
from tallbayes.errors import DataError
from tallbayes.model import Model
from tallbayes.models.unknown_scales import with_unknown_scales
from tallbayes.named_priors import PriorLike
from tallbayes.priors import normal

if TYPE_CHECKING:
    from tallbayes.remote.partition_passes import ModelSpec

FEW = 64  # distinct responses that are all sent
POINTS = 257  # quantiles that are sent otherwise


def response_values(spec: ModelSpec, data: Dataset) -> np.ndarray:
    """Responses of a partition that suit the support of the family: distinct ones, or quantiles."""
    family = models.family_of({"family": models.family_name(spec.family), "options": spec.options})
    y = np.asarray(data.y, float)
    good = family.admits(y)
    if not good.all():
        row = int(np.argmin(good))
        raise DataError(
            f"row {row}: response {data.response!r} is {y[row]:g}, but {'support=' if 'expression' in spec.options else family.name} "
            f"needs {family.support}. {family.remedy}"
        )
    distinct = np.unique(y)
    return distinct if distinct.size <= FEW else np.quantile(y, np.linspace(0.0, 1.0, POINTS))


def join_values(parts: list[np.ndarray], counts: list[int]) -> tuple[float, ...]:
    """Those of all partitions: every distinct response if they are few, otherwise quantiles with both ends.

    >>> join_values([np.array([0.0, 1.0]), np.array([1.0, 2.0])], [10, 20])
    (0.0, 1.0, 2.0)
    """
    distinct = np.unique(np.concatenate(parts))
    if distinct.size <= FEW:
        return tuple(distinct.tolist())
    values = np.concatenate(parts)
    weight = np.concatenate([np.full(p.size, count / p.size) for p, count in zip(parts, counts, strict=True)])
    order = np.argsort(values, kind="stable")
    levels = np.cumsum(weight[order]) / weight.sum()
    inner = np.interp(np.linspace(0.0, 1.0, POINTS)[1:-1], levels, values[order])
    return (float(distinct[0]), *inner.tolist(), float(distinct[-1]))


def model_of_responses(spec: ModelSpec, data: Dataset, prior: PriorLike) -> Model:
    """The model over any rows, as the responses of all partitions make it."""
    return with_unknown_scales(lambda rows, own: replace(_template(spec), data=rows, prior=own))(data, prior)


_templates: dict[str, Model] = {}


def _template(spec: ModelSpec) -> Model:
    """A model of a few rows with these responses. The last is kept: a certificate takes longer than a pass over a small partition."""
    names = plan_names(spec.plan)
    key = repr((spec.family, spec.options, spec.responses, names))
    made = _templates.get(key)
    if made is None:
        few = Dataset.from_arrays(np.ones((len(spec.responses), len(names))), np.array(spec.responses), columns=names)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `Partitions.open` says what there is to say, once
            made = models.build(spec.family, few, normal(1.0), **spec.options)
        _templates.clear()
        _templates[key] = made
    return made
