"""A fit as an ArviZ DataTree, and back: the groups of `Fit.idata`, which are those of a saved fit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.contract import Guarantee
from tallbayes.data.response_functions import current_plan
from tallbayes.errors import StoreError
from tallbayes.results.levels import LevelDraws
from tallbayes.results.posterior_variables import Variable, dataset, plain_name
from tallbayes.results.running_levels import SCORES, LevelStatistics

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

FORMAT = "tallbayes-fit-3"
_BLOCKS = ("setup", "warmup", "seconds", "meta")


def data_tree(fit: Fit) -> Any:
    """The tree: `posterior` by term, `sample_stats`, `parameters` with theta as it was sampled, `laplace`."""
    import xarray

    chains, draws, _ = fit.theta.shape
    names = {"parameter": list(fit.names)}
    levels = {name: Variable(own.values, {own.dimension: own.label_texts}) for name, own in fit.levels.items()}
    whole = {name: v for name, v in levels.items() if fit.levels[name].positions is None}
    sampled = {"theta": Variable(fit.theta, names)}
    laplace = xarray.Dataset(
        {"mean": ("parameter", fit.laplace_mean), "factor": (("parameter", "parameter2"), fit.laplace_factor)}, names
    )
    groups = {
        "posterior": dataset({**fit.variables, **whole}, chains, range(draws)),
        "sample_stats": dataset({name: Variable(values) for name, values in fit.stats.items()}, chains, range(draws)),
        "parameters": dataset(sampled, chains, range(draws)),
        "laplace": laplace,
    }
    thinned = {name: v for name, v in levels.items() if name not in whole}
    if thinned:
        positions = fit.levels[next(iter(thinned))].positions
        assert positions is not None
        groups["thinned_posterior"] = dataset(thinned, chains, positions)
        groups["level_statistics"] = _statistics({name: fit.levels[name] for name in thinned})
    tree = xarray.DataTree.from_dict(groups)
    tree.attrs.update(_attributes(fit))
    return tree


def _statistics(levels: dict[str, LevelDraws]) -> Any:
    """Statistics of levels whose draws were not all kept: mean, sd, ess, r_hat and quantiles at `SCORES`, by term."""
    import xarray

    rows = [*LevelStatistics._fields[:-1], *(f"score {z:g}" for z in SCORES)]
    data, labels = {}, {}
    for name, own in levels.items():
        assert own.statistics is not None
        dimension = plain_name(own.dimension)
        data[plain_name(name)] = (("statistic", dimension), np.vstack(own.statistics), {"term": name})
        labels[dimension] = own.label_texts
    return xarray.Dataset(data, {"statistic": rows, **labels})


def _attributes(fit: Fit) -> dict[str, Any]:
    guarantee = {k: getattr(fit.guarantee, k) for k in ("kind", "statement", "assumed", "checked")}
    blocks = {"guarantee": guarantee, **{k: getattr(fit, k) for k in _BLOCKS}}
    return {
        "format": FORMAT,
        "why": fit.why,
        "status": fit.status,
        "weighted": int("weight" in fit.stats),
        "levels": json.dumps({name: own.factor for name, own in fit.levels.items()}),
        **{k: json.dumps(v) for k, v in blocks.items()},
    }


def from_tree(tree: Any) -> Fit:
    """The inverse of `data_tree`."""
    from tallbayes.results.fit import Fit

    attributes = {str(k): v for k, v in tree.attrs.items()}
    if attributes["format"] != FORMAT:
        raise StoreError("the file is not a fit saved by tallbayes, or is in the format of another version.")
    guarantee = json.loads(attributes["guarantee"])
    guarantee["assumed"], guarantee["checked"] = tuple(guarantee["assumed"]), tuple(guarantee["checked"])
    blocks = {k: json.loads(attributes[k]) for k in _BLOCKS}
    blocks["meta"]["plan"] = current_plan(blocks["meta"].get("plan"))
    parameters, stats, laplace = (tree[group].to_dataset() for group in ("parameters", "sample_stats", "laplace"))
    return Fit(
        theta=np.asarray(parameters["theta"].values, float),
        names=tuple(str(v) for v in parameters["parameter"].values),
        stats={str(v.attrs["term"]): np.asarray(v.values) for v in stats.data_vars.values()},
        laplace_mean=np.asarray(laplace["mean"].values, float),
        laplace_factor=np.asarray(laplace["factor"].values, float),
        levels=_levels(tree, json.loads(attributes["levels"])),
        guarantee=Guarantee(**guarantee),
        why=str(attributes["why"]),
        status=str(attributes["status"]),
        **blocks,
    )


def _levels(tree: Any, factors: dict[str, str]) -> dict[str, LevelDraws]:
    groups = [name for name in ("posterior", "thinned_posterior", "level_statistics") if name in tree.children]
    found = {g: {str(v.attrs["term"]): v for v in tree[g].to_dataset().data_vars.values()} for g in groups}
    out = {}
    for name, factor in factors.items():
        whole = name in found["posterior"]
        v = found["posterior" if whole else "thinned_posterior"][name]
        labels, values = np.asarray(v[v.dims[-1]].values), np.asarray(v.values, float)
        if whole:
            out[name] = LevelDraws(factor, labels, values)
            continue
        table, first = np.asarray(found["level_statistics"][name].values, float), len(LevelStatistics._fields) - 1
        described = LevelStatistics(table[0], table[1], table[2], table[3], table[first:])
        out[name] = LevelDraws(factor, labels, values, np.asarray(v["draw"].values), described)
    return out
