"""The posterior as ArviZ and bambi users expect it: one variable per term, factors with a dimension of levels.

`fit.theta` is the vector that was sampled. Here its coordinates are collected by term: "Intercept", "x", "region" with the dimension
"region_dim", "sigma" from its logarithm, "1|shop_sigma", "shop_corr", and the parameters of a model written by the user.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tallbayes.data.second_predictor import second_names
from tallbayes.models.transforms import Parameters

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

RESERVED = ("chain", "draw")  # names of dimensions
SLASH = "\u2215"  # in names of variables; "/" separates groups in a DataTree and in netCDF
LOGARITHM = "log_"  # begins the name of a scale parameter that is sampled as its logarithm
Term = tuple[str, list[int], list[str] | None]  # name, columns, and labels of these if they have a dimension
_ELEMENT = re.compile(r"^(.*)\[([^\[\]]*)\]$")


class Variable(NamedTuple):
    """Draws of a term, (chains, draws, ...), with the labels of each further dimension by its name."""

    values: np.ndarray
    labels: dict[str, list[str]] = {}  # noqa: RUF012 - never changed in place


def variables(fit: Fit) -> dict[str, Variable]:
    """Every population parameter of a fit by term, in order; effects of levels are not among them."""
    named = fit.meta.get("parameters")
    if named is not None:
        return _written_by_user(fit, Parameters.from_list(named))
    columns = list(fit.meta["columns"])
    classes = _classes(fit.names, columns)
    used = classes * len(columns)
    out = _coefficients(fit, columns, classes) if classes else {}
    rest = {name: fit.theta[:, :, used + k] for k, name in enumerate(fit.names[used:])}
    out |= {name: v for name, v in _scales(_elements(rest)).items() if name not in out}
    return out


def _written_by_user(fit: Fit, named: Parameters) -> dict[str, Variable]:
    dims, labels = named.coordinates
    out = {}
    for name, values in named.unpack(fit.theta, np).items():
        own = dims.get(name, [])
        out[name] = Variable(values, {d: list(labels.get(d, map(str, range(values.shape[2 + k])))) for k, d in enumerate(own)})
    return out


def _classes(names: Sequence[str], columns: Sequence[str]) -> int:
    """Blocks of coefficients, one for each class, named "x[0]", "x[1]"; 0 if the names are not those of columns."""
    if list(names[: len(columns)]) == list(columns):
        return 1
    count = 0
    while list(names[count * len(columns) : (count + 1) * len(columns)]) == [f"{c}[{count}]" for c in columns]:
        count += 1
    return count


def _coefficients(fit: Fit, columns: list[str], classes: int) -> dict[str, Variable]:
    d = len(columns)
    draws = fit.theta[:, :, : classes * d].reshape(*fit.theta.shape[:2], classes, d)
    out = {}
    for name, places, labels in terms_of(fit.meta, columns):
        values, own = draws[..., places], {} if labels is None else {f"{name}_dim": labels}
        if fit.names[0] == columns[0]:
            values = values[:, :, 0]
        else:
            own = {f"{fit.meta['response']}_dim": [str(k) for k in range(classes)], **own}
        out[name] = Variable(values[..., 0] if labels is None else values, own)
    return out


def terms_of(meta: dict[str, Any], columns: Sequence[str]) -> list[Term]:
    """Terms of the linear predictor: name, positions of its columns, and labels of these if it has levels or several columns."""
    plan = meta.get("plan")
    if plan and "second" in plan:
        other = {"response": plan["response"], **plan["second"]}
        first, prefix = len(columns) - len(second_names(plan)), f"{other['name']}_"
        before = terms_of({"plan": {k: v for k, v in plan.items() if k != "second"}}, columns[:first])
        after = terms_of({"plan": other}, [c.removeprefix(prefix) for c in columns[first:]])
        return [*before, *((prefix + name, [first + j for j in places], labels) for name, places, labels in after)]
    if not plan or "design" not in plan:
        return [(name, [j], None) for j, name in enumerate(columns)]
    from tallbayes.data.design import DesignMatrices
    from tallbayes.data.factors import is_smooth, smooth_term

    out: list[Term] = []
    matrices, start = DesignMatrices(plan), 0
    for factors, part in zip(matrices.formula.terms, matrices.spec.structure, strict=True):
        places = list(range(start, start + len(part.columns)))
        start += len(places)
        own = [columns[j] for j in places]
        if factors and is_smooth(factors[0].tree):
            out += _smooth_terms(smooth_term(factors[0].tree, matrices.formula.names), places, own)
            continue
        if len(own) == 1 and all(f.level is None for f in factors):
            out.append((own[0], places, None))
        elif own:
            texts = [f.text for f in factors]
            out.append((":".join(texts), places, labels_of(own, texts)))
    return out


def _smooth_terms(term: str, places: list[int], columns: list[str]) -> list[Term]:
    """Lines and penalised columns of a smooth, as two terms."""
    out: list[Term] = []
    for name in (f"{term}_line", term):
        own = [k for k, column in enumerate(columns) if column == name or column.startswith(f"{name}[")]
        labels = None if columns[own[0]] == name else [columns[k].removeprefix(f"{name}[").removesuffix("]") for k in own]
        out.append((name, [places[k] for k in own], labels))
    return out


def labels_of(columns: Sequence[str], texts: Sequence[str]) -> list[str]:
    """What tells the columns of a term apart.

    >>> labels_of(["g[T.b]:h[u]", "g[T.c]:h[u]"], ["g", "h"])
    ['b, u', 'c, u']
    """
    pattern = re.compile(":".join(re.escape(text) + r"(?:\[(?:T\.)?(.*)\])?" for text in texts))
    matches = [pattern.fullmatch(column) for column in columns]
    labels = [", ".join(part for part in m.groups() if part is not None) if m else "" for m in matches]
    return labels if len(set(labels)) == len(columns) and all(labels) else list(columns)


def _elements(draws: dict[str, np.ndarray]) -> dict[str, Variable]:
    """Names such as "ar[1]" and "ar[2]" as one variable."""
    parts: dict[str, dict[str | None, np.ndarray]] = {}
    for name, values in draws.items():
        found = _ELEMENT.match(name)
        parts.setdefault(found[1] if found else name, {})[found[2] if found else None] = values
    out = {}
    for name, own in parts.items():
        labels = [label for label in own if label is not None]
        plain = own.get(None)
        out[name] = (
            Variable(plain) if plain is not None else Variable(np.stack(list(own.values()), axis=2), {f"{name}_dim": labels})
        )
    return out


def _scales(found: dict[str, Variable]) -> dict[str, Variable]:
    """Logarithms of standard deviations as standard deviations."""
    out = {}
    for name, v in found.items():
        if name == LOGARITHM + "sigma":
            own = {d.removeprefix(LOGARITHM): labels for d, labels in v.labels.items()}
            out["sigma"] = Variable(np.exp(v.values), own)
        else:
            out[name] = v
    return out


def dataset(found: dict[str, Variable], chains: int, draws: Iterable[int]) -> Any:
    """Variables as an xarray Dataset; "/" in a name becomes "\u2215", and a column called "draw" becomes "draw_"."""
    import xarray

    dims = {d: labels for v in found.values() for d, labels in v.labels.items()}
    taken = {*RESERVED, *map(plain_name, dims)}
    data = {}
    for name, v in found.items():
        own = plain_name(name)
        while own in taken:
            own += "_"
        taken.add(own)
        attributes = {"term": name}
        data[own] = (("chain", "draw", *map(plain_name, v.labels)), v.values, attributes)
    coordinates = {"chain": np.arange(chains), "draw": np.asarray(draws), **{plain_name(d): v for d, v in dims.items()}}
    return xarray.Dataset(data, coordinates)


def plain_name(name: str) -> str:
    """A name without the separator of groups."""
    return name.replace("/", SLASH)
