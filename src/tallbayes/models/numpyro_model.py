"""A model from a NumPyro program with one data plate: the latent sites become parameters, the observed site a row's likelihood.

The program is run on one row at a time, so that its plate has size one; its log density splits into that of the latent sites,
which is the prior, and that of the observed sites, which is the row's log-likelihood. Constrained sites are sampled on NumPyro's own
unconstrained space. Latent sites inside the plate, one for each row, are refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tallbayes.data.dataset import Dataset
from tallbayes.errors import DataError, ModelError, OptionError
from tallbayes.model import Model
from tallbayes.models.jax_model import assemble
from tallbayes.models.transforms import Parameters, Transform, interval, ordered, positive, simplex


def from_numpyro(
    program: Callable[..., Any],
    data: Dataset,
    arguments: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    *,
    start: Any = None,
) -> Model:
    """A model from a NumPyro program `program(x, y)` with one plate over rows.

    The program's arguments are filled by name with arrays of rows: `x` the design rows, `y` the response, or columns of the data;
    `arguments`, a function from those to keyword arguments, covers other signatures. The size of the plate must be taken from the
    shape of an argument, because the program is run on single rows.

    A program `def program(x, y)` that samples `beta`, opens `numpyro.plate("rows", x.shape[0])` and observes `y` there becomes a
    model by `tb.models.from_numpyro(program, data)`.
    """
    if not isinstance(data, Dataset):
        raise DataError(f"from_numpyro needs a Dataset; got a {type(data).__name__}.")
    try:
        import jax
        import jax.numpy as jnp
        from numpyro import handlers
        from numpyro.distributions.transforms import biject_to
    except ImportError:
        raise OptionError("NumPyro models need the extra: pip install 'tallbayes[numpyro]'.") from None

    fill = arguments or _by_name(program, data)

    def run(values: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        rows = {name: jnp.asarray(v)[None] for name, v in row.items()}
        seeded = handlers.seed(handlers.substitute(program, values), jax.random.PRNGKey(0))
        return handlers.trace(seeded).get_trace(**fill(rows))

    with jax.enable_x64(True):
        trace = run({}, _first_row(data))
        sites = _latent(trace)
        if not any(site["type"] == "sample" and site["is_observed"] for site in trace.values()):
            raise ModelError("the NumPyro program observes nothing: give obs= to the site of the response.")
        biject = {name: biject_to(site["fn"].support) for name, site in sites.items()}
        named = _parameters(sites, biject)

    def unpack(theta: Any) -> dict[str, Any]:
        parts, at = {}, 0
        for name, transform in named.items:
            parts[name] = theta[at : at + transform.size].reshape(_free(transform))
            at += transform.size
        return parts

    def constrained(theta: Any) -> dict[str, Any]:
        return {name: biject[name](z) for name, z in unpack(theta).items()}

    def log_lik(theta: Any, row: dict[str, Any]) -> Any:
        observed = [s for s in run(constrained(theta), row).values() if s["type"] == "sample" and s["is_observed"]]
        return sum(jnp.sum(s["fn"].log_prob(s["value"])) for s in observed)

    first = {name: np.asarray(v, float) for name, v in _first_row(data).items()}

    def log_prior(theta: Any) -> Any:
        total: Any = 0.0
        values = constrained(theta)
        latent = run(values, first)
        for name, z in unpack(theta).items():
            jacobian = biject[name].log_abs_det_jacobian(z, values[name])
            total = total + jnp.sum(latent[name]["fn"].log_prob(values[name])) + jnp.sum(jacobian)
        return total

    model = assemble(log_lik, data, log_prior, named.dim, None, start, None, False, log_lik)
    model.parameters = named
    model.normaliser = 0.0  # densities of NumPyro are normalised
    return model


def _first_row(data: Dataset) -> dict[str, Any]:
    x = np.asarray(data.records[0, : data.d], float)
    y, offset = (float(v) for v in data.records[0, data.d : data.d + 2])
    return {**dict(zip(data.columns, x, strict=True)), data.response: y, "x": x, "y": y, "offset": offset}


def _by_name(program: Callable[..., Any], data: Dataset) -> Callable[[dict[str, Any]], dict[str, Any]]:
    wanted = [p.name for p in inspect.signature(program).parameters.values() if p.default is inspect.Parameter.empty]
    optional = [p.name for p in inspect.signature(program).parameters.values() if p.default is not inspect.Parameter.empty]
    known = {*data.columns, data.response, "x", "y", "offset"}
    missing = [name for name in wanted if name not in known]
    if missing:
        raise ModelError(
            f"the NumPyro program takes {missing[0]!r}, which is neither 'x', 'y', 'offset' nor a column of the data; give "
            "arguments=, a function from a dictionary of rows to keyword arguments."
        )
    names = [*wanted, *(name for name in optional if name in known)]
    return lambda rows: {name: rows[name] for name in names}


def _latent(trace: dict[str, Any]) -> dict[str, Any]:
    sites = {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
    for name, site in sites.items():
        if site["cond_indep_stack"]:
            plate = site["cond_indep_stack"][-1].name
            raise ModelError(
                f"the latent site {name!r} lies in the plate {plate!r}, one value for each row; only parameters common to all rows "
                "are supported. Integrate it out, or use NumPyro itself."
            )
        if site["fn"].support.is_discrete:
            raise ModelError(f"the latent site {name!r} is discrete; sum it out.")
    if not sites:
        raise ModelError("the NumPyro program has no latent site.")
    return sites


def _parameters(sites: dict[str, Any], biject: dict[str, Any]) -> Parameters:
    """The sites as our own transforms; each must agree with NumPyro's bijection, checked on a few numbers."""
    from numpyro.distributions import constraints

    items = []
    for name, site in sites.items():
        support, shape = site["fn"].support, np.shape(site["value"])
        base = getattr(support, "base_constraint", support)
        if base is constraints.real:
            transform = Transform(shape)
        elif base is constraints.positive or base is constraints.nonnegative:
            transform = positive(shape)
        elif base is constraints.simplex and len(shape) == 1:
            transform = simplex(shape[0])
        elif base is constraints.ordered_vector and len(shape) == 1:
            transform = ordered(shape[0])
        elif hasattr(base, "lower_bound") and hasattr(base, "upper_bound") and np.ndim(base.lower_bound) == 0:
            transform = interval(float(base.lower_bound), float(base.upper_bound), shape)
        else:
            transform = None
        z = np.linspace(-0.7, 1.1, transform.size) if transform is not None else np.zeros(0)
        if transform is None or not np.allclose(
            transform.constrain(z, np), np.ravel(biject[name](z.reshape(_free(transform)))), rtol=1e-6
        ):
            raise ModelError(
                f"the support of the latent site {name!r}, {support}, has no counterpart here; use a site that is real, positive, in "
                "an interval, ordered or a simplex, and transform it in the program."
            )
        items.append((name, transform))
    return Parameters(tuple(items))


def _free(transform: Transform) -> tuple[int, ...]:
    return (transform.size,) if transform.kind == "simplex" else transform.shape
