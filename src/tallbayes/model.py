"""Model: a family and a prior over a data set, and what every family says of itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from tallbayes.data.dataset import CHUNK, Dataset
from tallbayes.engine import passes
from tallbayes.engine.rows import Rows, rows_of
from tallbayes.errors import DataError, ModelError, shown
from tallbayes.named_priors import resolve
from tallbayes.priors import Prior, PriorTerms, prior_gradient, prior_precision, prior_value
from tallbayes.scale_priors import ScalePrior

RESPONSES = ("binary", "count", "positive", "real", "class", "series", "time", "proportion", "successes", "ordinal")


class ResponseError(DataError):
    """A response that a family does not admit."""


@dataclass(frozen=True)
class Tangent:
    """A quadratic lower bound of the log-likelihood of a row, known in closed form: what Firefly takes if a family has one.

    `kind` makes the compiled bound: tangent at the reference if given None, or at the same xi in every row.
    """

    name: str
    kind: Callable[[float | None], Any]
    xi: float | None = None  # of an untuned bound; None if that is tangent at theta = 0
    origin: str = "at theta = 0"  # what theta = 0 means for the family


@dataclass(frozen=True)
class Family:
    """What a family says of itself: the support of y, its law, proven properties, and what it refuses.

    Other code asks for these facts and never for the name of a family.
    """

    name: str
    support: str
    remedy: str
    admits: Callable[[np.ndarray], np.ndarray]
    mean: Callable[[np.ndarray], np.ndarray]
    self_concordant: bool  # |f'''| <= |f''| for all eta and y
    log_concave: bool  # in the linear predictors
    examples: tuple[Any, ...]  # members that the contract tests check
    responses: tuple[float, ...]  # responses that the contract tests use
    aliases: tuple[str, ...] = ()  # other names by which users ask for it
    response: str = "real"  # one of RESPONSES: what kind of number y is
    response_scale: bool = False  # whether coefficients are in units of y
    link: Callable[[float], float] = lambda mean: 0.0  # a linear predictor that fits a mean response, to start from
    link_name: str = "identity"
    start: Callable[[Any], np.ndarray | None] | None = None  # a first guess of theta from a model, where the link is not enough
    mode_advice: str = ""  # what to do if the search for the mode stalls or finds a flat direction

    member_of: Callable[..., Any] = lambda **options: None  # the member with the options of a model
    predictors: Callable[[Any], int] = lambda member: 1  # linear predictors of a member
    second: Callable[[Any], int] = lambda member: 0  # columns of a second linear predictor of a member: the last ones
    second_name: str = ""  # what a formula of the second predictor is given as, such as "zi"; begins the names of its columns
    second_needed: bool = False  # whether there always is one: an intercept, unless a formula says otherwise
    row_options: Callable[[float, bool], dict[str, Any]] = lambda largest, intercept: {}
    """Options that follow from the largest response, and whether there is an intercept, where they are not given."""
    responses_decide: bool = (
        False  # whether a model depends on which responses there are: of a part of the rows, on those of all
    )
    full_mean: Callable[[Any, np.ndarray, np.ndarray], np.ndarray] | None = None
    """E[y] of a member at eta (rows, draws) given the nuisances (draws, count), where eta alone is not enough. Of ordered classes: their
    probabilities, (rows, draws, classes)."""
    mean_known: bool = True  # False if `mean` can only raise
    log_normaliser: Callable[[Any, np.ndarray], np.ndarray] | None = None
    """Log of the factor of the density that `value` leaves out, of a member and an array of responses; None if unknown."""
    simulate: Callable[[np.random.Generator, Any, np.ndarray, np.ndarray], np.ndarray] | None = None
    """Responses of a member at eta (rows, draws), or (rows, draws, predictors); nuisances are (draws, count)."""
    variance: Callable[[Any, np.ndarray, np.ndarray], np.ndarray] | None = None
    """Variance of y of a member given its mean (rows, draws) and the nuisances (draws, count)."""
    latent_variance: Callable[[Any, np.ndarray], Any] | None = None
    """Variance of a response on the scale of the linear predictor, of a member and the nuisances; None if it depends on the mean."""
    ratio: str = ""  # what e^coefficient is, such as "odds_ratio", where it is one
    prediction_refusal: str = ""  # why there are no predictions of new rows, and what to do instead

    bound: str | None = None  # the certified bound that "auto" takes; None to compare T6 and T9
    published_bound: str = ""  # the bound of the paper on confidence samplers: "T1", or "exponential" for f''' = kappa y e^-eta
    fourth_supremum: float | None = None  # sup of |f''''| over all eta and y, for bound T7
    fourth_ratio: Callable[[Any], float | None] = lambda member: None
    """Supremum of the fourth derivative over that of the third, the same for all responses; None where there are none."""
    fourth_concordant: Callable[[], bool] = lambda: True  # of a self-concordant family: whether |f''''| <= |f''| too
    centred_third: float | None = None  # sup of |D^3 f[v, v, v]| over centred unit vectors v of several predictors
    tangent: Tangent | None = None
    unit_scale_member: Callable[[Any], Any] = lambda member: None
    """For a member with an unknown scale, the one of scale 1 whose sums are its sufficient statistics; None for others."""
    nuisance_priors: Mapping[str, ScalePrior] = field(default_factory=dict)
    """Default priors of unknown parameters, such as {"size": inverse_gamma(0.4, 0.3)}; others are flat in the logarithm."""
    regression: bool = True  # whether columns predict the response; False of series, plain samples and vectors with a class
    trials: bool = False  # whether the weights of the rows are numbers of trials
    plain_sample: bool = False  # rows differ in y alone, and log-likelihoods are quadratic in it


def no_terms(member: Any, y: np.ndarray) -> np.ndarray:
    """The log normaliser of a family whose `value` is a log density."""
    return np.zeros(np.shape(y))


def start_scales(model: Any) -> np.ndarray:
    """Location and spread of the middle half of the responses: the logarithm of a scale is a second predictor, or the first nuisance."""
    theta, data = np.zeros(model.dim), model.data
    first = data.d - model.second
    picked = np.asarray(data.records[:: max(1, data.n // 20_000), data.d : data.d + 2], float)
    y = picked[:, 0] - picked[:, 1]
    low, middle, high = np.quantile(y, (0.25, 0.5, 0.75))
    spread = max(0.7 * (high - low), 1e-3 * float(np.std(y)), 1e-300)
    scale = data.column_of_ones(first, data.d) if model.second else data.d
    for place, value in ((data.column_of_ones(0, first), middle), (scale, math.log(spread))):
        if place is not None:
            theta[place] = value
    return theta


@dataclass(eq=False)
class Model:
    """Rows, a family and a prior: everything that defines a posterior. Make one with `tallbayes.models.logistic(...)` etc."""

    data: Dataset
    family: Family
    member: Any
    prior: Any = None  # a Prior once the model is made; priors by name become one
    nuisances: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    predictors: int = 1
    doubts: tuple[str, ...] = ()  # what its maker warned of, kept with every fit

    exchangeable: ClassVar[bool] = True  # rows are independent given theta: any part of them, in any order, has the same law
    row_limitation: ClassVar[str] = (
        ""  # what rows are or lack, if samplers made for rows with linear predictors cannot serve it
    )
    grouped: ClassVar[bool] = False  # whether it has effects of groups
    unknown_scales: ClassVar[bool] = False  # whether scales of its prior are unknown
    assumed: ClassVar[str] = ""  # on what ground its family was assumed, if the user named none
    domain: ClassVar[str] = ""  # why `admits` refuses a theta

    def __post_init__(self) -> None:
        if not isinstance(self.data, Dataset):
            raise DataError(
                f"a model needs a Dataset, not a {type(self.data).__name__}; use tallbayes.Dataset.from_arrays(X, y) or "
                "tallbayes.read(path, formula)."
            )
        if self.data.groups and not self.grouped:
            raise ModelError(
                f"{self.family.name} was given data with groups; make the model with tallbayes.models.{self.family.name}."
            )
        read = (self.data.recipe.get("plan") or {}).get("second")
        if read and self.linear and not self.second:
            raise ModelError(
                f"the rows were read with {read['name']}={read['formula']!r}, a second predictor that this {self.family.name} model does "
                f"not have; read them without it, or give {read['name']}= to a family that has it."
            )
        self.default_prior = self.prior is None
        if not (self.prior is None or isinstance(self.prior, Prior | Mapping)):
            raise DataError(
                "prior must come from tallbayes.priors, such as tallbayes.priors.normal(10), or be a dictionary of such priors by "
                f"name; got {shown(self.prior)}."
            )
        self.prior = resolve(self.prior, self.data.columns, *self._prior_names())
        self._check_response()
        clash = [name for name in self.nuisances if name in self.data.columns]
        if clash:
            raise DataError(f"column {clash[0]!r} has the name of a parameter of {self.family.name}; rename the column.")
        if not self.prior.proper and self.dim >= self.data.n:
            raise ModelError(
                f"{self.dim} parameters and {self.data.n} rows under a flat prior: the posterior is improper. Use a proper "
                "prior such as tallbayes.priors.normal(10.0), or fewer columns."
            )
        if self.data.total_weight <= 0:
            raise DataError("all weights are zero: no row has a likelihood.")

    def _prior_names(self) -> tuple[tuple[str, ...], tuple[str, ...], Mapping[str, ScalePrior]]:
        """Names of the parameters that prior= may name, those of unknown parameters of the family, and their default priors."""
        return self.names, self.nuisances, self.family.nuisance_priors

    def _check_response(self) -> None:
        y = self.data.y
        for start in range(0, y.size, CHUNK):
            chunk = y[start : start + CHUNK]
            good = self.family.admits(chunk)
            if not good.all():
                row = int(np.argmin(good))
                raise ResponseError(
                    f"row {start + row}: response {self.data.response!r} is {chunk[row]:g}, but {self.family.name} needs "
                    f"{self.family.support}. {self.family.remedy}".rstrip()
                )

    def _check_rows(self) -> None:
        """Refuse rows that the family cannot have: what is checked of rows that are added later."""
        self._check_response()

    def over(self, data: Dataset) -> Self:
        """The same model over other rows with the same columns: class, family, options, and the prior with its scales.

        The scales of a default prior stay those of the rows of this model, so that parts of the rows have the prior of all.
        The certificate of an expression covers the responses it was made from; others have no bound.

        >>> import numpy as np, tallbayes as tb
        >>> data = tb.Dataset.from_arrays(np.ones((6, 1)), [0, 1, 1, 0, 1, 1])
        >>> tb.models.logistic(data).over(tb.Dataset.from_arrays(np.ones((2, 1)), [0, 1]))
        Model(logistic, 2 rows, 1 parameters, prior weakly_informative)
        """
        if isinstance(data, Dataset) and data.columns != self.data.columns:
            raise DataError(
                f"the model has the columns {', '.join(self.data.columns)}, the new rows have {', '.join(data.columns)}; read "
                "them with the same formula."
            )
        model = replace(self, data=data)
        model.default_prior = self.default_prior
        model.__dict__["prior_terms"] = self.prior_terms
        return model

    def log_normaliser(self, index: np.ndarray) -> np.ndarray:
        """Log of the factors that the likelihoods of the indexed rows leave out, of weight one."""
        if self.family.log_normaliser is None:
            raise ModelError(
                f"the densities of the {self.family.name} model are known up to a factor only, so leave-one-out cannot compare "
                "them: give its Family a log_normaliser, or tallbayes.models.from_jax a log_normaliser=."
            )
        y = np.asarray(self.data.records[index, self.data.d], float)
        return self.family.log_normaliser(self.member, y)

    @property
    def partitions(self) -> Any:
        """Where the rows are, if they are not on this machine: `tallbayes.remote.Partitions`; otherwise None."""
        return self.data.partitions

    @property
    def conditioned_rows(self) -> int:
        """Rows at the beginning that have no likelihood of their own, because the others are conditioned on them."""
        return 0

    def startup(self, theta: np.ndarray) -> float | None:
        """What is left of the start of a window's recursion at the window itself; None if rows have no recursion."""
        return None

    def start(self) -> np.ndarray | None:
        """Where the search for the mode begins, if not at the values that fit the response's own mean and spread."""
        return None if self.family.start is None else self.family.start(self)

    @property
    def linear(self) -> bool:
        """Whether theta begins with coefficients of the columns."""
        return True

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates of theta."""
        if self.predictors > 1:
            return tuple(f"{c}[{k}]" for k in range(self.predictors) for c in self.data.columns) + self.nuisances
        return self.data.columns + self.nuisances

    @property
    def second(self) -> int:
        """Columns of a second linear predictor, the last ones; 0 if there is none."""
        return self.family.second(self.member)

    @property
    def several_indices(self) -> bool:
        """Whether rows depend on more than one linear predictor."""
        return self.predictors > 1 or bool(self.nuisances) or self.second > 0

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self.predictors * self.data.d + len(self.nuisances)

    @property
    def coordinates(self) -> int:
        """Parameters of the likelihood: all, unless the prior has some of its own."""
        return self.dim

    @cached_property
    def rows(self) -> Any:
        """The rows as compiled code sees them; of rows in partitions, their sums."""
        elsewhere = self.data.elsewhere
        return self.rows_over(self.data.records) if elsewhere is None else elsewhere

    def __getstate__(self) -> dict[str, Any]:
        """All but the rows as compiled code sees them: their addresses are those of a process, and another one makes its own."""
        return {name: value for name, value in self.__dict__.items() if not isinstance(value, Rows)}

    def rows_over(self, records: np.ndarray) -> Any:
        """Records of any rows of this model as compiled code sees them."""
        d, first = self.data.d, self.data.d - self.second
        if self.second:
            blocks = [(0, first, 0, True), (first, self.second, first, False)]
        else:
            blocks = [(0, d, k * d, True) for k in range(self.predictors)]
        unknown = self.predictors * d
        blocks += [(0, 0, unknown + k, False) for k in range(len(self.nuisances))]
        return rows_of(self.member, records, d, blocks)

    @cached_property
    def prior_terms(self) -> PriorTerms:
        """The prior as compiled code sees it."""
        assert self.prior is not None
        return self.prior.terms(self.data, self.predictors, len(self.nuisances), self.family.response_scale, self.second)

    @property
    def unit_scale_member(self) -> Any:
        """With an unknown scale, the member of scale 1 whose sums are the sufficient statistics; None for other models."""
        return self.family.unit_scale_member(self.member)

    def admits(self, theta: np.ndarray) -> bool:
        """Whether the posterior density is positive at a finite theta; the reason why not is `domain`."""
        return True

    def log_prior(self, theta: np.ndarray) -> float:
        """Log prior density up to a constant."""
        return float(prior_value(self.prior_terms, np.asarray(theta, float)))

    def log_posterior(self, theta: np.ndarray) -> float:
        """Log posterior density up to a constant: one full pass."""
        theta = self._parameter(theta)
        return passes.total_value(self.rows, theta) + self.log_prior(theta)

    def gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Log posterior density and its gradient: one full pass."""
        theta = self._parameter(theta)
        value, gradient = passes.total_gradient(self.rows, theta)
        return value + prior_gradient(self.prior_terms, theta, gradient), gradient

    def curvature(self, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """Log posterior, its gradient, the Hessian of the log-likelihood and the posterior precision: one full pass."""
        theta = self._parameter(theta)
        value, gradient, hessian = passes.total_hessian(self.rows, theta)
        value += prior_gradient(self.prior_terms, theta, gradient)
        return value, gradient, hessian, prior_precision(self.prior_terms, theta) - hessian

    def _parameter(self, theta: Any) -> np.ndarray:
        array = np.asarray(theta, float)
        if array.shape != (self.dim,):
            raise ModelError(f"theta must have {self.dim} elements ({', '.join(self.names)}); got shape {array.shape}.")
        return array

    def require_ungrouped(self, what: str) -> None:
        """Refuse a model with group effects for something that does not know of them."""
        if self.grouped:
            raise ModelError(f"{what} does not support models with group effects; use tallbayes.sample.")

    def describe(self) -> dict[str, Any]:
        """What is needed to build the model again over the same rows, in JSON types."""
        assert self.prior is not None
        return {"family": self.family.name, "options": self.options, "prior": self.prior.as_dict()}

    def __repr__(self) -> str:
        assert self.prior is not None
        return f"Model({self.family.name}, {self.data.n:,} rows, {self.dim} parameters, prior {self.prior.describe()})"
