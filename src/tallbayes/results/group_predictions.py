"""Group effects in predictions of new rows: levels of the fit with their draws, levels that are new from the population.

Rows of new data carry, behind the columns of the design, one column with the code of the level for each factor and one for each of its
terms. A level that the fit does not know is drawn from N(0, Sigma) at every draw, the same in all rows that have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tallbayes.data.dataset import Dataset
from tallbayes.data.groups import CONSTANT
from tallbayes.errors import DataError, OptionError, unknown
from tallbayes.results.levels import LevelDraws, label_text
from tallbayes.streams import Stream, generator

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

NEW_LEVELS = ("sample", "zero", "error")


class GroupDraws(NamedTuple):
    """Some draws of the effects of one factor: (draws, levels) of each term, and factors of its covariances (draws, terms, terms)."""

    effects: list[np.ndarray]
    factors: np.ndarray


class NewGroups:
    """The grouping factors of a fit, for rows that may have levels it does not know."""

    def __init__(self, fit: Fit, new_levels: str = "sample", seed: int = 0) -> None:
        if new_levels not in NEW_LEVELS:
            raise unknown("new_levels", new_levels, NEW_LEVELS)
        self.fit, self.new_levels, self.seed = fit, new_levels, seed
        self.blocks = term_blocks(fit.meta["model"])
        self.factors = {name: tuple(term for block in blocks for term in block) for name, blocks in self.blocks.items()}
        self.added: dict[str, dict[str, int]] = {name: {} for name in self.factors}

    @property
    def names(self) -> list[str]:
        """Names of the columns that rows carry, for messages."""
        return [text for name, terms in self.factors.items() for text in (name, *(f"{term} of {name}" for term in terms))]

    def _known(self, name: str) -> LevelDraws:
        return self.fit.levels[f"{self.factors[name][0]}|{name}"]

    def codes(self, name: str, values: Any, first: int = 0) -> np.ndarray:
        """The code of every row: the position of its level, one more than the last for zero effects, or beyond for a new level."""
        import pandas as pd

        place, labels = pd.factorize(np.asarray(values, object) if isinstance(values, list) else np.asarray(values))
        if (place < 0).any():
            row = first + int(np.argmax(place < 0))
            raise DataError(f"row {row}: the level of {name!r} is missing. Drop such rows, or predict with groups=False.")
        known = self._known(name).index
        texts = [label_text(label) for label in labels]
        found = known.get_indexer(texts).astype(np.int64)
        for k in np.flatnonzero(found < 0):
            if self.new_levels == "error":
                row = first + int(np.argmax(place == k))
                raise DataError(
                    f"row {row}: {texts[k]!r} is not among the {known.size:,} levels of {name!r} in the fit. Leave such rows out, or "
                    "allow new levels with new_levels='sample' or 'zero'."
                )
            own = self.added[name]
            found[k] = known.size if self.new_levels == "zero" else known.size + 1 + own.setdefault(texts[k], len(own))
        return found[place]

    def joined(self, given: Mapping[str, tuple[np.ndarray, np.ndarray | None]], x: np.ndarray) -> np.ndarray:
        """Design rows with codes and terms behind them; `given` has codes, and terms unless they are columns of the design."""
        columns, parts = list(self.fit.meta["columns"]), [x]
        for name, terms in self.factors.items():
            codes, matrix = given[name]
            parts.append(codes[:, None].astype(float))
            if matrix is None:
                matrix = np.ones((x.shape[0], len(terms)))
                for a, term in enumerate(terms):
                    if term != CONSTANT:
                        matrix[:, a] = x[:, columns.index(term)]
            parts.append(matrix)
        return np.hstack(parts)

    def from_mapping(self, groups: Any, x: np.ndarray) -> np.ndarray:
        """Design rows of an array with what the user gave: {factor: codes} or {factor: (codes, Z)}."""
        given: dict[str, tuple[np.ndarray, np.ndarray | None]] = {}
        for name, terms in self.factors.items():
            if not isinstance(groups, Mapping) or name not in groups:
                raise DataError(
                    f"the model has effects of {name!r}: give groups={{{name!r}: levels}} with one level for each row of new, or "
                    "groups=False for predictions without group effects."
                )
            values, matrix = (
                groups[name] if isinstance(groups[name], tuple) and len(groups[name]) == 2 else (groups[name], None)
            )
            matrix = None if matrix is None else np.asarray(matrix, float)
            matrix = matrix[:, None] if matrix is not None and matrix.ndim == 1 else matrix
            missing = [t for t in terms if t != CONSTANT and t not in self.fit.meta["columns"]]
            if matrix is None and missing:
                raise DataError(f"the effects of {missing[0]!r} vary by {name!r}: give groups={{{name!r}: (levels, Z)}}.")
            codes = self.codes(name, values)
            if codes.shape != (x.shape[0],) or (matrix is not None and matrix.shape != (x.shape[0], len(terms))):
                raise DataError(
                    f"groups[{name!r}] must have one level for each of the {x.shape[0]:,} rows of new, and Z one column for each of "
                    f"the terms {', '.join(terms)}."
                )
            given[name] = codes, matrix
        return self.joined(given, x)

    def translated(self, data: Dataset) -> dict[str, np.ndarray]:
        """For each factor of a Dataset, the code of each of its levels; those without rows are not looked at."""
        out = {}
        own = {factor.name: factor for factor in data.groups}
        for name, terms in self.factors.items():
            if terms != tuple(term for factor in data.groups if factor.name == name for term in factor.terms):
                raise DataError(
                    f"the model has effects of {', '.join(terms)} by {name!r}, but the Dataset does not; make it with the groups of the "
                    "fit, or predict with groups=False."
                )
            used = np.unique(own[name].codes)
            table = np.full(own[name].levels, -1, np.int64)
            table[used] = self.codes(name, own[name].labels[used])
            out[name] = table
        return out

    def draws(self, index: np.ndarray) -> list[GroupDraws]:
        """Effects at the draws of these positions in all chains, one after another."""
        fit, out = self.fit, []
        chains, draws, _ = fit.theta.shape
        flat = fit.theta.reshape(chains * draws, -1)[index]
        for name, terms in self.factors.items():
            effects = [fit.levels[f"{term}|{name}"].at(index, draws) for term in terms]
            out.append(GroupDraws(effects, _covariance_factors(fit.names, flat, name, self.blocks[name])))
        return out

    def add(self, eta: np.ndarray, extra: np.ndarray, draws: Sequence[GroupDraws]) -> None:
        """Add the effects of the levels to eta (rows, draws)."""
        at = 0
        for k, (name, terms) in enumerate(self.factors.items()):
            used, place = np.unique(extra[:, at].astype(np.int64), return_inverse=True)
            count = self._known(name).labels.size
            own = np.zeros((len(terms), used.size, eta.shape[1]))
            for a in range(len(terms)):
                own[a, used < count] = draws[k].effects[a][:, used[used < count]].T
            for j in np.flatnonzero(used > count):
                rng = generator(self.seed, Stream.NEW_LEVELS, k, int(used[j]) - count - 1)
                own[:, j] = np.einsum("sab,sb->as", draws[k].factors, rng.standard_normal((eta.shape[1], len(terms))))
            for a in range(len(terms)):
                eta += extra[:, at + 1 + a, None] * own[a][place]
            at += 1 + len(terms)


def term_blocks(described: Mapping[str, Any]) -> dict[str, list[tuple[str, ...]]]:
    """The effects of each grouping factor of a model, those that are correlated in one block.

    >>> term_blocks({"groups": {"1 | g": {"factor": "g", "terms": ["1"]}, "x | g": {"factor": "g", "terms": ["x"]}}})
    {'g': [('1',), ('x',)]}
    """
    out: dict[str, list[tuple[str, ...]]] = {}
    for name, own in described.get("groups", {}).items():
        out.setdefault(own.get("factor", name), []).append(tuple(own["terms"]))
    return out


def _covariance_factors(names: Sequence[str], theta: np.ndarray, factor: str, blocks: list[tuple[str, ...]]) -> np.ndarray:
    """Cholesky factors of the covariance of a level at each draw; effects of different blocks are uncorrelated."""
    terms = [term for block in blocks for term in block]
    sds = theta[:, [names.index(f"{term}|{factor}_sigma") for term in terms]]
    correlation, at = np.tile(np.eye(len(terms)), (theta.shape[0], 1, 1)), 0
    for block in blocks:
        for i in range(len(block)):
            for j in range(i):
                name = f"{factor}_corr" if len(block) == 2 else f"{factor}_corr[{block[j]},{block[i]}]"
                correlation[:, at + i, at + j] = correlation[:, at + j, at + i] = theta[:, names.index(name)]
        at += len(block)
    return sds[:, :, None] * np.linalg.cholesky(correlation)


def grouped(fit: Fit, groups: Any, new_levels: str, seed: int) -> NewGroups | None:
    """What `groups=` and `new_levels=` mean for a fit; None for predictions without group effects."""
    if not fit.meta["model"].get("groups"):
        if groups is not True and groups is not False:
            raise OptionError("groups= belongs to models with group effects, and the model has none; leave it out.")
        return None
    if not isinstance(groups, bool | Mapping):
        raise OptionError(f"groups is True, False or a dictionary such as {{'shop': levels}}; got {groups!r}.")
    return None if groups is False else NewGroups(fit, new_levels, seed)


def levels_of_rows(data: Dataset, index: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]] | bool:
    """Levels and terms of some records of a Dataset, as `groups=` of `Fit.predict` takes them; True if it has no groups."""
    if not data.groups:
        return True
    records = data.records[index].astype(float)
    return {f.name: (f.labels[f.codes[index]], effect_columns(data, f.name, records)) for f in data.groups}


def effect_columns(data: Dataset, name: str, records: np.ndarray) -> np.ndarray:
    """The columns of all effects of a factor in some records of a Dataset."""
    parts = [
        np.ones((records.shape[0], 1)) if f.first < 0 else records[:, f.first : f.first + len(f.terms)]
        for f in data.groups
        if f.name == name
    ]
    return np.hstack(parts)
