"""A fit as an ArviZ DataTree, and back: the groups of `Fit.idata`, which are those of a saved fit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.contract import Guarantee
from tallbayes.errors import StoreError
from tallbayes.results.levels import LevelDraws
from tallbayes.results.posterior_variables import Variable, dataset

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

FORMAT = "tallbayes-fit-3"
_BLOCKS = ("setup", "warmup", "seconds", "meta")


def data_tree(fit: Fit) -> Any:
    """The tree: `posterior` by term, `sample_stats`, `parameters` with theta as it was sampled, `laplace`."""
    import xarray

    chains, draws, _ = fit.theta.shape
    names = {"parameter": list(fit.names)}
    levels = {
        name: Variable(own.values, {own.dimension: [str(label) for label in own.labels]}) for name, own in fit.levels.items()
    }
    sampled = {"theta": Variable(fit.theta, names)}
    laplace = xarray.Dataset(
        {"mean": ("parameter", fit.laplace_mean), "factor": (("parameter", "parameter2"), fit.laplace_factor)}, names
    )
    groups = {
        "posterior": dataset({**fit.variables, **levels}, chains, range(draws)),
        "sample_stats": dataset({name: Variable(values) for name, values in fit.stats.items()}, chains, range(draws)),
        "parameters": dataset(sampled, chains, range(draws)),
        "laplace": laplace,
    }
    tree = xarray.DataTree.from_dict(groups)
    tree.attrs.update(_attributes(fit))
    return tree


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
    parameters, stats, laplace = (tree[group].to_dataset() for group in ("parameters", "sample_stats", "laplace"))
    return Fit(
        theta=np.asarray(parameters["theta"].values, float),
        names=tuple(str(v) for v in parameters["parameter"].values),
        stats={str(v.attrs["term"]): np.asarray(v.values) for v in stats.data_vars.values()},
        laplace_mean=np.asarray(laplace["mean"].values, float),
        laplace_factor=np.asarray(laplace["factor"].values, float),
        levels=_levels(tree["posterior"].to_dataset(), json.loads(attributes["levels"])),
        guarantee=Guarantee(**guarantee),
        why=str(attributes["why"]),
        status=str(attributes["status"]),
        **{k: json.loads(attributes[k]) for k in _BLOCKS},
    )


def _levels(posterior: Any, factors: dict[str, str]) -> dict[str, LevelDraws]:
    by_term = {str(v.attrs["term"]): v for v in posterior.data_vars.values()}
    return {
        name: LevelDraws(
            factor, np.asarray(by_term[name][by_term[name].dims[-1]].values), np.asarray(by_term[name].values, float)
        )
        for name, factor in factors.items()
    }
