"""`Fit.predict`: posterior of E[y | x], or predictive law of y, for each new row.

kind="mean": mean and equal-tailed interval of mu(x' theta) over posterior draws. kind="response": the same of y, one simulated
response per draw and row; its mean is that of mu, which has no noise of simulation, and a Bernoulli interval is exact. With
`function=`, a user's function in JAX takes the place of mu, or of the simulation.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from tallbayes.engine.jax_rows import Program, import_jax
from tallbayes.errors import ModelError, OptionError, StoreError, shown, unknown
from tallbayes.machine import sync_file
from tallbayes.model import Family
from tallbayes.models import family_of
from tallbayes.models.transforms import Parameters
from tallbayes.results.group_predictions import NewGroups, grouped
from tallbayes.results.id_columns import with_ids, with_index
from tallbayes.results.levels import joint_draws
from tallbayes.results.new_rows import BLOCK, Rows, design_blocks
from tallbayes.results.new_trials import new_trials
from tallbayes.streams import Stream, generator

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

KINDS = ("mean", "response")
STAMP = b"tallbayes"  # key in a file of predictions that says what it was made from


class Draws(NamedTuple):
    """Some draws of a fit, taken apart: coefficients, weights, and nuisances such as log sigma."""

    coefficients: np.ndarray  # (draws, predictors, columns)
    weights: np.ndarray
    nuisances: np.ndarray  # (draws, count)


def predict(
    fit: Fit,
    new: Any,
    kind: str,
    prob: float,
    draws: int,
    seed: int,
    offset: Any,
    out: str | Path | None,
    function: Any = None,
    id: str | Sequence[str] | None = None,
    groups: Any = True,
    new_levels: str = "sample",
    stamp: str | None = None,
    trials: Any = None,
) -> pd.DataFrame | Path:
    """The table of `Fit.predict`, or the path it was written to."""
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    family = family_of(fit.meta["model"])
    if family.prediction_refusal:
        raise ModelError(family.prediction_refusal)
    if not 0.0 < prob < 1.0:
        raise OptionError(f"prob is the probability of the interval, between 0 and 1; got {prob}.")
    if not isinstance(draws, int | np.integer) or draws < 1:
        raise OptionError(f"draws must be a whole number of at least 1; got {draws!r}.")
    wanted = "(theta, row)" if kind == "mean" else "(key, theta, row)"
    if function is not None and not _takes(function, wanted.count(",") + 1):
        raise OptionError(f"function= of kind={kind!r} is a function of {wanted} in JAX; got {shown(function)}.")
    counts = new_trials(fit, kind, function, trials)
    if function is None and not family.mean_known and family.simulate is None:
        raise OptionError(f"the {kind} of a model written in JAX is not known: give function=, a function of {wanted}.")
    if function is None:
        effects = grouped(fit, groups, new_levels, seed)
        rows = design_blocks(fit, new, offset, effects, groups, counts)
        blocks = _predicted(fit, family, rows, effects, kind, prob, int(draws), seed, counts is not None)
    else:
        blocks = _by_function(fit, new, function, kind, prob, int(draws), seed, offset)
    identified = with_ids(blocks, new, id)
    if out is not None:
        return _write(identified, Path(out), None if stamp is None else {STAMP: stamp.encode()})
    return with_index(pd.concat(list(identified), ignore_index=True), new)


def _takes(function: Any, count: int) -> bool:
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:  # not callable, or with other arguments
        return False
    except ValueError:  # a function without a signature
        return True
    return True


def _some(fit: Fit, count: int, seed: int, with_levels: bool = False) -> np.ndarray:
    """Positions of some draws, of those whose levels are kept if `with_levels`, chain after chain."""
    index = joint_draws(fit) if with_levels else np.arange(fit.weights.size)
    if count < index.size:
        index = index[np.sort(generator(seed, Stream.PREDICTION_DRAWS).choice(index.size, count, replace=False))]
    return index


def _taken(fit: Fit, predictors: int, second: int, index: np.ndarray) -> Draws:
    """The draws of these positions; of two predictors with columns of their own, each has zeros at those of the other."""
    flat, d = fit.theta.reshape(-1, len(fit.names))[index], len(fit.meta["columns"])
    if second:
        coefficients = np.stack([flat[:, :d], flat[:, :d]], axis=1)
        coefficients[:, 0, d - second :] = 0.0
        coefficients[:, 1, : d - second] = 0.0
        return Draws(coefficients, fit.weights.reshape(-1)[index], flat[:, d:])
    coefficients = flat[:, : predictors * d].reshape(-1, predictors, d)
    return Draws(coefficients, fit.weights.reshape(-1)[index], flat[:, predictors * d :])


def some_theta(fit: Fit, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """At most `count` draws, (draws, dim), and their weights."""
    index = _some(fit, count, seed)
    return fit.theta.reshape(-1, len(fit.names))[index], fit.weights.reshape(-1)[index]


def _predicted(
    fit: Fit,
    family: Family,
    rows: Iterable[Rows],
    groups: NewGroups | None,
    kind: str,
    prob: float,
    count: int,
    seed: int,
    counted: bool,
) -> Iterator[pd.DataFrame]:
    member = family.member_of(**fit.meta["model"]["options"])
    index, levels = _some(fit, count, seed, groups is not None), (0.5 - prob / 2, 0.5 + prob / 2)
    draws, d = _taken(fit, family.predictors(member), family.second(member), index), len(fit.meta["columns"])
    effects = [] if groups is None else groups.draws(index)
    simulated = counted or (kind == "response" and family.response not in ("binary", "class", "ordinal"))
    if simulated and not counted and family.simulate is None:
        raise ModelError(f"responses of the family {family.name!r} cannot be simulated; use kind='mean'.")
    for k, (whole, shift) in enumerate(rows):
        x, trials = (whole[:, :-1], whole[:, -1:]) if counted else (whole, None)
        if family.response == "class":
            yield _classes(x, draws, family.mean, kind, levels)
            continue
        eta = x[:, :d] @ draws.coefficients[:, 0].T
        eta = eta if shift is None else eta + shift[:, None]
        if groups is not None:
            groups.add(eta, x[:, d:], effects)
        both = eta if not family.second(member) else np.stack([eta, x[:, :d] @ draws.coefficients[:, 1].T], axis=2)
        values: Any = None
        with np.errstate(over="ignore"):
            rng = generator(seed, Stream.RESPONSES, k)
            if simulated and trials is None and family.simulate is not None:
                values = family.simulate(rng, member, both, draws.nuisances)
            if family.full_mean is not None:
                mean = family.full_mean(member, both, draws.nuisances)
            else:
                mean = values if simulated and not family.mean_known else family.mean(eta)
            if trials is not None:
                values, mean = rng.binomial(trials.astype(np.int64), mean).astype(float), trials * mean
        if family.response == "ordinal":
            yield _class_table(mean, draws, kind, levels)
            continue
        center = mean @ draws.weights / draws.weights.sum()
        if kind == "response" and not simulated:
            ends = np.stack([np.asarray(1.0 - center < level, float) for level in levels])
        else:
            ends = intervals(values if simulated else mean, draws.weights, levels)
        yield pd.DataFrame({"mean": center, "lower": ends[0], "upper": ends[1]})


def _by_function(
    fit: Fit, new: Any, function: Callable[..., Any], kind: str, prob: float, count: int, seed: int, offset: Any
) -> Iterator[pd.DataFrame]:
    """Mean and interval of the user's function of (theta, row), or of the responses it draws, for each new row."""
    jax = import_jax()
    import jax.numpy as jnp

    named = fit.meta.get("parameters")
    unpack = (lambda theta: theta) if named is None else (lambda theta: Parameters.from_list(named).unpack(theta, jnp))
    program = Program(lambda theta, row: function(unpack(theta), row), tuple(fit.meta["columns"]), fit.meta["response"])

    def draw_rows(keys: Any, theta: Any, records: Any) -> Any:
        return jax.vmap(lambda key, record: function(key, unpack(theta), program.row(record)))(keys, records)

    simulate = jax.jit(draw_rows)
    flat, weights = some_theta(fit, count, seed)
    levels = (0.5 - prob / 2, 0.5 + prob / 2)
    for k, (x, shift) in enumerate(design_blocks(fit, new, offset)):
        size = BLOCK if x.shape[0] > BLOCK // 16 else BLOCK // 16  # two shapes, whatever the number of rows
        records = np.zeros((size, x.shape[1] + 3))
        records[:, -1] = 1.0
        records[: x.shape[0], :-3] = x
        records[x.shape[0] :, :-3] = x[-1]
        records[: x.shape[0], -2] = 0.0 if shift is None else shift
        if kind == "mean":
            columns = [program.call("weighted", theta, records) for theta in flat]
        else:
            with jax.enable_x64(True):
                block = jax.random.fold_in(jax.random.key(seed), k)
                keys = [jax.random.split(jax.random.fold_in(block, s), size) for s in range(flat.shape[0])]
                columns = [np.asarray(simulate(key, theta, records), float) for key, theta in zip(keys, flat, strict=True)]
        values = np.stack([v[: x.shape[0]] for v in columns], axis=1)
        ends = intervals(values, weights, levels)
        yield pd.DataFrame({"mean": values @ weights / weights.sum(), "lower": ends[0], "upper": ends[1]})


def _classes(
    x: np.ndarray, draws: Draws, mean_of: Callable[[np.ndarray], np.ndarray], kind: str, levels: tuple[float, float]
) -> pd.DataFrame:
    """Probabilities of the classes of a softmax model; an offset is common to all classes and changes nothing."""
    return _class_table(mean_of(np.einsum("nd,skd->nsk", x, draws.coefficients)), draws, kind, levels)


def _class_table(p: np.ndarray, draws: Draws, kind: str, levels: tuple[float, float]) -> pd.DataFrame:
    """Means and intervals of the probabilities of classes, (rows, draws, classes), or the most probable class."""
    mean = np.einsum("nsk,s->nk", p, draws.weights) / draws.weights.sum()
    if kind == "response":
        return pd.DataFrame({"class": mean.argmax(1), "probability": mean.max(1)})
    ends = [intervals(p[:, :, k], draws.weights, levels) for k in range(mean.shape[1])]
    table = {f"mean[{k}]": mean[:, k] for k in range(mean.shape[1])}
    for at, name in enumerate(("lower", "upper")):
        table |= {f"{name}[{k}]": ends[k][at] for k in range(mean.shape[1])}
    return pd.DataFrame(table)


def intervals(values: np.ndarray, weights: np.ndarray, levels: tuple[float, float]) -> np.ndarray:
    """Weighted quantiles of each row of (rows, draws), as (levels, rows)."""
    if (weights == weights[0]).all():
        return np.quantile(values, levels, axis=1)
    order = np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    cumulative = np.maximum.accumulate(np.cumsum(weights[order], axis=1), axis=1)
    shares = cumulative / cumulative[:, -1:]
    return np.array([[np.interp(level, s, v) for s, v in zip(shares, ordered, strict=True)] for level in levels])


def _write(blocks: Iterable[pd.DataFrame], path: Path, metadata: dict[bytes, bytes] | None = None) -> Path:
    """Blocks into a Parquet file as they come: aside, synced and renamed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix != ".parquet":
        path = path.with_name(path.name + ".parquet")
    aside = path.with_name(path.name + ".part")
    writer = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for block in _grouped(blocks):
            table = pa.Table.from_pandas(block, preserve_index=False).replace_schema_metadata(metadata)
            writer = pq.ParquetWriter(aside, table.schema) if writer is None else writer
            writer.write_table(table)
        if writer is not None:
            writer.close()
        sync_file(aside)
        os.replace(aside, path)
    except BaseException as error:
        if writer is not None:
            writer.close()
        with contextlib.suppress(OSError):
            aside.unlink()
        if isinstance(error, OSError) and not isinstance(error, StoreError):
            raise StoreError(f"cannot write the predictions to {path}: {error}.") from error
        raise
    return path


def _grouped(blocks: Iterable[pd.DataFrame], size: int = 32) -> Iterator[pd.DataFrame]:
    """Blocks joined by the dozen, so that a file has few row groups."""
    waiting: list[pd.DataFrame] = []
    for block in blocks:
        waiting.append(block)
        if len(waiting) == size:
            yield pd.concat(waiting, ignore_index=True)
            waiting = []
    if waiting:
        yield pd.concat(waiting, ignore_index=True)
