"""A model from any log-likelihood of a row, written in JAX.

    log_lik(theta, row),    row = {"x": design row, "y": response, "offset": offset, and every column by its name}

theta is a flat array, or a dictionary of named parameters, some of them constrained (`transforms`). Rows are conditionally
independent given theta; their weights are powers of the likelihood. Samplers run compiled on these models too, and call JAX for
one batch of rows at a time.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tallbayes.data.dataset import Dataset
from tallbayes.engine.jax_rows import Program, import_jax, jax_rows
from tallbayes.engine.rows import ALLOWANCE, Rows
from tallbayes.errors import DataError, ModelError, OptionError
from tallbayes.model import Family, Model
from tallbayes.models.jax_prior import JaxPrior
from tallbayes.models.transforms import Parameters, parameters
from tallbayes.priors import Prior
from tallbayes.validation import require_switch

FAMILY = Family(
    name="jax",
    support="any number",
    remedy="",
    admits=np.isfinite,
    mean=lambda eta: eta,
    self_concordant=False,
    log_concave=False,
    examples=(),
    responses=(),
    link_name="",
    mean_known=False,
)
_CHECKED = 1000  # rows on which a new likelihood is tried


@dataclass(frozen=True)
class UserPrior(Prior):
    """A prior that the user wrote as a function of the parameters."""

    function: Callable[[Any], Any] | None = None
    fingerprint: str = ""

    def describe(self) -> str:
        """One line for summaries."""
        return "written by the user"

    def as_dict(self) -> dict[str, Any]:
        """What tells it from another one."""
        return {"name": self.name, "fingerprint": self.fingerprint}

    def sample(self, terms: Any, rng: np.random.Generator) -> np.ndarray:
        """Refused: only the density is known."""
        raise OptionError("a prior written as a function has no sampler; use init='laplace' or give an array.")


@dataclass(eq=False, repr=False)
class UserModel(Model):
    """A model whose likelihood of a row is a JAX function. Made by `from_jax` and `from_numpyro`."""

    program: Program | None = None
    parameters: Parameters | None = None
    dimension: int = 0
    start_at: np.ndarray | None = None
    bound: Callable[[Any, float], Any] | None = None
    bound_checked: bool = True  # whether rows that exceed the bound are searched for before it is used
    normaliser: Callable[[dict[str, Any]], Any] | float | None = None

    def __post_init__(self) -> None:
        self.default_prior = False
        if self.data.total_weight <= 0:
            raise DataError("all weights are zero: no row has a likelihood.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates of theta."""
        if self.parameters is not None:
            return self.parameters.names
        return tuple(f"theta[{j}]" for j in range(self.dimension))

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.dimension

    @property
    def rows(self) -> Rows:
        """The rows as compiled code sees them."""
        assert self.program is not None
        return self._rows._replace(rounding=ALLOWANCE * self.program.scale)

    @cached_property
    def _rows(self) -> Rows:
        assert self.program is not None
        return jax_rows(self.program, self.data.records, self.data.d, self.dimension)

    @cached_property
    def prior_terms(self) -> Any:
        """The prior on the flat vector."""
        if isinstance(self.prior, UserPrior):
            assert self.prior.function is not None
            return JaxPrior(self.prior.function, self.parameters, self.dimension)
        assert self.prior is not None
        return self.prior.coordinates(self.dimension)

    @property
    def linear(self) -> bool:
        """No: theta is what the user says."""
        return False

    def start(self) -> np.ndarray:
        """Where the search for the mode begins."""
        return np.zeros(self.dimension) if self.start_at is None else self.start_at.copy()

    def describe(self) -> dict[str, Any]:
        """What tells this model from another: the traced program, the parameters, the prior."""
        assert self.prior is not None and self.program is not None
        named = None if self.parameters is None else self.parameters.as_list()
        options = {"program": self.program.fingerprint(self.dimension), "parameters": named}
        return {"family": self.family.name, "options": options, "prior": self.prior.as_dict()}

    def log_normaliser(self, index: np.ndarray) -> np.ndarray:
        """What the user gave: the same for all rows, or a function of a row."""
        if self.normaliser is None:
            raise ModelError(
                "log_lik may leave out terms without theta, so its densities are known up to a factor only: give from_jax "
                "log_normaliser=, 0.0 if log_lik is a normalised log density, else a function of a row with the terms left out."
            )
        if not callable(self.normaliser):
            return np.full(index.shape, float(self.normaliser))
        values = self._of_rows(self.normaliser, np.asarray(self.data.records[index, : self.data.d + 3], float))
        if values.shape != index.shape or not np.isfinite(values).all():
            raise OptionError("log_normaliser(row) must give one finite number for a row.")
        return values

    def _of_rows(self, function: Callable[[dict[str, Any]], Any], block: np.ndarray) -> np.ndarray:
        """A function of a row at every row of a block."""
        assert self.program is not None
        program = self.program
        with program.jax.enable_x64(True):
            return np.asarray(program.jax.vmap(lambda record: function(program.row(record)) + 0.0 * record[0])(block))

    def third_bounds(self, index: np.ndarray, radius: float) -> np.ndarray:
        """The user's bound times the weight, for each row of the index."""
        assert self.bound is not None
        bound, block = self.bound, np.asarray(self.data.records[index, : self.data.d + 3], float)
        weight = block[:, -1]
        values = np.where(weight > 0.0, self._of_rows(lambda row: bound(row, radius), block) * np.maximum(weight, 1e-300), 0.0)
        if values.shape != index.shape or not (values >= 0).all():
            raise OptionError("third_derivative_bound(row, radius) must give one number >= 0 for a row.")
        return values


def from_jax(
    log_lik: Callable[[Any, dict[str, Any]], Any],
    data: Dataset,
    prior: Prior | Callable[[Any], Any] | None = None,
    dim: int | None = None,
    params: Mapping[str, Any] | None = None,
    *,
    coords: Mapping[str, Any] | None = None,
    start: Any = None,
    third_derivative_bound: Callable[[dict[str, Any], float], Any] | None = None,
    check_bound: bool = True,
    log_normaliser: Callable[[dict[str, Any]], Any] | float | None = None,
) -> Model:
    """A model from a function `log_lik(theta, row)` in JAX.

    Give `dim`, and theta is an array of that length, or `params`, {name: shape or transform}, and theta is a dictionary;
    `coords`, {name: labels}, names the elements of its vectors. `prior` is one of `tallbayes.priors`, on the unconstrained
    coordinates, or a function of the parameters that returns a log density on their constrained space; the Jacobian is added.
    `start` is where the search for the mode begins. Samplers that need a certificate run if `third_derivative_bound(row, radius)`
    bounds |d^3 log_lik(theta + t v, row) / dt^3|, |v| = 1, for |theta - reference| <= radius in the unconstrained coordinates. Rows
    that exceed it are searched for before the chains, in one or two passes over all rows, and end the run; `check_bound=False`
    leaves the search out. `log_normaliser` is what `log_lik` leaves out of the log density, for `Fit.loo`: 0.0 for nothing, a
    number, or a function of a row.

    >>> import jax, numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((200, 1)), np.random.default_rng(0).gamma(3.0, size=200))
    >>> def log_lik(theta, row):
    ...     return -row["y"] / theta["scale"] - jax.numpy.log(theta["scale"])
    >>> model = tb.models.from_jax(log_lik, data, tb.priors.normal(3.0), params={"scale": "positive"})
    >>> fit = tb.sample(model, "hmc", draws=50, warmup=100, chains=2, seed=1, progress=False)
    >>> fit.names, sorted(fit.idata.posterior)
    (('log(scale)',), ['scale'])
    """
    if not isinstance(data, Dataset):
        raise DataError(f"from_jax needs a Dataset; got a {type(data).__name__}. Use tallbayes.Dataset.from_arrays or read.")
    if (dim is None) == (params is None):
        raise OptionError("give either dim=, the length of theta, or params=, its named parts.")
    if params is None and coords is not None:
        raise OptionError("coords= labels the elements of named parameters; give params=.")
    named = None if params is None else parameters(params, coords)
    size = named.dim if named is not None else dim
    if not isinstance(size, int | np.integer) or size < 1:
        raise OptionError(f"dim must be a whole number of at least 1; got {dim!r}.")
    if prior is None:
        raise OptionError(
            "from_jax needs prior=: one of tallbayes.priors, such as normal(10.0), or a function of the parameters."
        )
    import_jax()
    import jax.numpy as jnp

    likelihood = log_lik if named is None else lambda theta, row: log_lik(named.unpack(theta, jnp), row)
    if log_normaliser is not None and not callable(log_normaliser) and not _finite(log_normaliser):
        raise OptionError(f"log_normaliser must be a finite number, or a function of a row; got {log_normaliser!r}.")
    model = assemble(likelihood, data, prior, int(size), named, start, third_derivative_bound, check_bound, log_lik)
    model.normaliser = log_normaliser
    return model


def _finite(number: Any) -> bool:
    return isinstance(number, int | float | np.number) and not isinstance(number, bool) and bool(np.isfinite(number))


def assemble(
    likelihood: Callable[[Any, dict[str, Any]], Any],
    data: Dataset,
    prior: Prior | Callable[[Any], Any],
    dim: int,
    named: Parameters | None,
    start: Any,
    bound: Callable[[dict[str, Any], float], Any] | None,
    check: bool,
    written: Callable[..., Any],
) -> UserModel:
    """The model of a likelihood on flat vectors, tried on the first rows."""
    program = Program(likelihood, data.columns, data.response)
    density = prior if isinstance(prior, Prior) else _user_prior(prior, named, dim)
    first = None if start is None else np.asarray(start, float)
    if first is not None and (first.shape != (dim,) or not np.isfinite(first).all()):
        raise OptionError(f"start must be {dim} finite numbers, on the unconstrained scale; got {start!r}.")
    require_switch("check_bound", check)
    model = UserModel(
        data,
        FAMILY,
        None,
        density,
        program=program,
        parameters=named,
        dimension=dim,
        start_at=first,
        bound=bound,
        bound_checked=check,
    )
    _try(model, written)
    return model


def _try(model: UserModel, written: Callable[..., Any]) -> None:
    """Shapes, then values and gradients of the first rows: what is wrong is said before any sampling."""
    assert model.program is not None
    count = min(_CHECKED, model.data.n)
    block = np.asarray(model.data.records[:count, : model.data.d + 3], float)
    theta = model.start()
    _require_arity(written)
    try:
        with model.program.jax.enable_x64(True):
            shape = model.program.jax.eval_shape(model.program.one, theta, block[0]).shape
    except (TypeError, KeyError, ValueError, IndexError, AttributeError) as error:
        known = ", ".join(sorted(model.program.row(block[0])))
        first = str(error).splitlines()[0]
        raise ModelError(f"log_lik fails on a row: {type(error).__name__}: {first}. A row has {known}.") from error
    if shape != ():
        raise ModelError(f"log_lik must give one number for a row; it gives an array of shape {shape}. Sum it, or index it.")
    value, slopes = model.program.call("weighted", theta, block), model.program.call("row_gradients", theta, block)
    for what, finite in (("value", np.isfinite(value)), ("gradient", np.isfinite(slopes).all(1))):
        if not finite.all():
            row = int(np.argmin(finite))
            raise ModelError(
                f"row {row}: the {what} of log_lik is not finite at the start, {theta.tolist()}. Give start= in the support, "
                "and guard branches inside jnp.where."
            )
    at_start = model.log_prior(theta)
    if not np.isfinite(at_start):
        raise ModelError(f"the log prior is {at_start} at the start, {theta.tolist()}; give start= in its support.")


def _require_arity(function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise ModelError("log_lik takes two arguments, (theta, row).") from None
    except ValueError:  # a function without a signature
        return


def _user_prior(function: Any, named: Parameters | None, dim: int) -> UserPrior:
    if not callable(function):
        raise OptionError(f"prior must come from tallbayes.priors or be a function of the parameters; got {function!r}.")
    jax = import_jax()
    terms = JaxPrior(function, named, dim)
    try:
        with jax.enable_x64(True):
            traced = jax.make_jaxpr(terms.density)(np.zeros(dim))
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise ModelError(f"the prior fails: {type(error).__name__}: {str(error).splitlines()[0]}") from error
    if traced.out_avals[0].shape != ():
        raise ModelError(f"the prior must give one number; it gives an array of shape {traced.out_avals[0].shape}.")
    digest = hashlib.blake2b(str(traced.jaxpr).encode(), digest_size=16)
    for constant in traced.consts:
        digest.update(np.asarray(constant).tobytes())
    return UserPrior("user", function=function, fingerprint=digest.hexdigest())
