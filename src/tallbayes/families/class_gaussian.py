"""Labelled vectors: x | class k ~ N(Phi theta_k, sigma_k^2 diag(v)), a Gaussian law for each class of the response.

With Phi the identity this is the two-class model of Maire, Friel and Alquier (2015), section 5.2; with Phi a map from templates
to images and sigma known it is the regression of their section 2.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tallbayes.data.dataset import Dataset
from tallbayes.engine.class_rows import Classes, class_rows
from tallbayes.engine.rows import Rows
from tallbayes.errors import OptionError
from tallbayes.model import Family, Model
from tallbayes.named_priors import PriorLike
from tallbayes.priors import Prior, PriorTerms
from tallbayes.validation import MOST_CLASSES, positive_number, require_whole, shown


class ClassModel(Model):
    """A Gaussian law of the columns for each class."""

    row_limitation: ClassVar[str] = "have no linear predictor"

    @property
    def names(self) -> tuple[str, ...]:
        """Coordinates of the first class, of the second and so on, then the log sigmas."""
        mapping, _, classes, _ = self.member
        d = mapping.shape[1]
        own = self.data.columns if self.options["mapping"] is None else tuple(f"t{c}" for c in range(d))
        return tuple(f"{c}[{k}]" for k in range(classes) for c in own) + self.nuisances

    @property
    def dim(self) -> int:
        """Number of parameters."""
        mapping, _, classes, _ = self.member
        return int(classes * mapping.shape[1]) + len(self.nuisances)

    @cached_property
    def rows(self) -> Rows:
        """The rows as compiled code sees them."""
        mapping, variances, classes, sigma = self.member
        return class_rows(Classes(mapping, variances, classes, sigma, self.data.d), self.data.records)

    @cached_property
    def prior_terms(self) -> PriorTerms:
        """The prior; the default is Cauchy with scale 20 times the size of the columns."""
        assert self.prior is not None
        prior = self.prior
        if prior.name == "weakly_informative":
            prior = Prior("cauchy", 0.0, 20.0 * _size(self.data))
        return prior.coordinates(self.dim - len(self.nuisances), len(self.nuisances))


def _size(data: Dataset) -> float:
    """Root mean square of the columns."""
    moments = data.moments
    return float(np.sqrt(np.mean(moments.mean[: data.d] ** 2 + moments.sd[: data.d] ** 2))) or 1.0


def _first_guess(model: Any) -> np.ndarray:
    theta = np.zeros(model.dim)
    theta[model.dim - len(model.nuisances) :] = np.log(_size(model.data))
    return theta


def _log_normaliser(member: tuple[np.ndarray, np.ndarray, int, float], y: np.ndarray) -> np.ndarray:
    """Of the density of the columns given the class."""
    _, variances, _, sigma = member
    each = -0.5 * np.log(2.0 * np.pi * variances) - math.log(sigma or 1.0)
    return np.full(np.shape(y), float(each.sum()))


FAMILY = Family(
    name="class_gaussian",
    regression=False,
    support="a class 0, 1, ..., classes - 1",
    remedy="Number the classes from 0, or raise classes=.",
    admits=lambda y: (y >= 0) & (y == np.floor(y)),
    mean=lambda eta: eta,
    self_concordant=False,
    log_concave=False,
    examples=(),
    responses=(),
    response="class",
    response_scale=True,
    start=_first_guess,
    mode_advice="Every class needs rows, more than one if its sigma is unknown; where the mapping cannot tell coordinates apart "
    "use a proper prior such as tallbayes.priors.normal(10.0).",
    log_normaliser=_log_normaliser,
    prediction_refusal="a class_gaussian model describes the columns given the class; classify with the densities at fit.theta.",
)


def class_gaussian(
    data: Dataset,
    prior: PriorLike = None,
    classes: int = 2,
    sigma: float | None = None,
    mapping: Any = None,
    variances: Any = None,
) -> ClassModel:
    """Gaussian vectors with a mean for each class: the columns are the vector, the response is the class 0 .. classes - 1.

    `mapping` is Phi, a matrix with one line for each column (the identity if None); `variances` are the relative variances v of
    the columns (1 if None). With `sigma=None` every class has its own sigma, in theta as log_sigma[k] with a flat prior.

    >>> import numpy as np, tallbayes as tb
    >>> x = np.array([[-1.0, 0.1], [-0.8, -0.1], [-1.3, 0.0], [1.0, 0.2], [1.1, -0.3], [0.9, 0.1]])
    >>> model = tb.models.class_gaussian(tb.Dataset.from_arrays(x, [0, 0, 0, 1, 1, 1]), tb.priors.flat(), sigma=1.0)
    >>> model.names
    ('x0[0]', 'x1[0]', 'x0[1]', 'x1[1]')
    >>> tb.find_mode(model, progress=False).reference.round(3) + 0.0
    array([-1.033,  0.   ,  1.   ,  0.   ])
    """
    require_whole("classes", classes, 1, MOST_CLASSES)
    sigma = None if sigma is None else positive_number("sigma", sigma, ", or None to learn one a class")
    columns = data.d if isinstance(data, Dataset) else 1
    phi = np.eye(columns) if mapping is None else _numbers("mapping", mapping)
    if phi.ndim != 2 or phi.shape[0] != columns or not np.isfinite(phi).all():
        raise OptionError(
            f"mapping must be a finite matrix with a line for each of the {columns} columns; got shape {phi.shape}."
        )
    v = np.ones(columns) if variances is None else _numbers("variances", variances)
    if v.shape != (columns,) or not (np.isfinite(v).all() and (v > 0).all()):
        raise OptionError(f"variances must be {columns} positive numbers, one for each column; got {shown(variances)}.")
    family = replace(
        FAMILY,
        support=f"a class 0 to {classes - 1}",
        admits=lambda y: np.isin(y, np.arange(classes)),
        log_concave=sigma is not None,
    )
    options = {
        "classes": int(classes),
        "sigma": sigma,
        "mapping": None if mapping is None else phi.tolist(),
        "variances": None if variances is None else v.tolist(),
    }
    member = (phi, v, int(classes), 0.0 if sigma is None else sigma)
    nuisances = () if sigma is not None else tuple(f"log_sigma[{k}]" for k in range(classes))
    return ClassModel(data, family, member, prior, nuisances, options)


def _numbers(name: str, values: Any) -> np.ndarray:
    try:
        return np.ascontiguousarray(values, float)
    except (TypeError, ValueError, OverflowError):
        raise OptionError(f"{name} must be an array of numbers, or None; got {shown(values)}.") from None
