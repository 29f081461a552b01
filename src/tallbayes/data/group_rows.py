"""Group terms of streamed rows: what a plan says of them, and for every batch the codes of the levels and the columns of the effects.

`plan["groups"]` has one entry for each term: its factor, its effects as a formula, and what the first pass learned of these. Levels
are not part of a plan, as there may be millions: they are learned again when rows are read again, and kept beside a store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from tallbayes.data.arrow import Source
from tallbayes.data.design import DesignMatrices, plain_matrix
from tallbayes.data.design_survey import DesignSurvey
from tallbayes.data.formula import Formula, GroupTerm, parse
from tallbayes.data.groups import CONSTANT, GroupFactor
from tallbayes.data.level_index import LevelCounter, LevelIndex, level_column
from tallbayes.data.moments import check_finite
from tallbayes.errors import DataError
from tallbayes.progress import Progress


def describe_term(term: GroupTerm) -> dict[str, Any]:
    """What a plan says of a group term before the rows are seen."""
    effects = term.effects
    return {
        "factor": list(term.factor),
        "effects": effects.text,
        "columns": list(effects.columns),
        "intercept": effects.intercept,
    }


def described_text(term: dict[str, Any]) -> str:
    """The group term of an entry of a plan as it is written.

    >>> described_text({"factor": ["a", "b"], "effects": "1 + x"})
    '(1 + x | a:b)'
    """
    return f"({term['effects']} | {':'.join(term['factor'])})"


def group_columns(plan: dict[str, Any]) -> list[str]:
    """All columns of the source that group terms need."""
    return list(dict.fromkeys(c for term in plan.get("groups", ()) for c in (*term["factor"], *term["columns"])))


def factor_columns(plan: dict[str, Any]) -> list[tuple[str, ...]]:
    """The different factors of a plan, in order; several terms may have one factor."""
    return list(dict.fromkeys(tuple(term["factor"]) for term in plan.get("groups", ())))


def effect_names(term: dict[str, Any]) -> tuple[str, ...]:
    """Names of the effects of a term, "1" for the intercept."""
    if "design" in term:
        return tuple(CONSTANT if name == "Intercept" else name for name in term["design"]["names"])
    return (*((CONSTANT,) if term["intercept"] else ()), *term["columns"])


def effect_count(plan: dict[str, Any]) -> int:
    """Columns of a record that the effects of all terms take; an intercept alone takes none."""
    widths = [len(effect_names(term)) for term in plan.get("groups", ()) if effect_names(term) != (CONSTANT,)]
    return sum(widths)


def _effect_formula(plan: dict[str, Any], term: dict[str, Any], formula: Formula | None, k: int) -> Formula | None:
    """The formula of the effects of a term, if it takes a pass to learn its columns."""
    if "design" in term or formula is None:
        return None
    effects = formula.groups[k].effects
    return None if effects.plain else effects


class GroupLearner:
    """Pass one: levels of all factors, and what general formulas of effects need to know of all rows."""

    def __init__(self, plan: dict[str, Any], formula: Formula | None, ordered: frozenset[str]) -> None:
        self.plan = plan
        self.counters = {columns: LevelCounter(columns, ordered) for columns in factor_columns(plan)}
        self.surveys = {}
        for k, term in enumerate(plan.get("groups", ())):
            effects = _effect_formula(plan, term, formula, k)
            if effects is not None:
                self.surveys[k] = DesignSurvey(effects, ordered)

    def add(self, batch: Any) -> None:
        """Merge a batch."""
        for counter in self.counters.values():
            counter.add(batch)
        for survey in self.surveys.values():
            survey.add(batch)

    def terms(self) -> list[dict[str, Any]]:
        """The entries of the plan, complete."""
        out = []
        for k, term in enumerate(self.plan.get("groups", ())):
            learned = {"design": self.surveys[k].described()} if k in self.surveys else {}
            out.append({**term, **learned})
        return out

    def indexes(self) -> list[LevelIndex]:
        """The levels of all factors, in the order of `factor_columns`."""
        return [counter.index() for counter in self.counters.values()]


def learn_levels(rows: Source, plan: dict[str, Any], progress: bool) -> tuple[list[LevelIndex], Source]:
    """The levels of the factors of a plan that is complete otherwise: one pass."""
    learner, n = GroupLearner(plan, None, rows.ordered), 0
    with counted_batches(rows, group_columns(plan), "levels", progress) as batches:
        for batch in batches:
            learner.add(batch)
            n += batch.num_rows
    if n == 0:
        raise DataError("the source has no rows.")
    return learner.indexes(), replace(rows, n=n)


@contextmanager
def counted_batches(rows: Source, columns: Sequence[str], what: str, progress: bool) -> Iterator[Iterator[Any]]:
    """The batches of a source, with a progress bar."""
    with Progress(what, rows.n, progress) as bar:

        def batches() -> Iterator[Any]:
            for batch in rows.batches(list(columns)):
                bar.advance(batch.num_rows)
                yield batch

        yield batches()


class GroupRows:
    """Pass two: codes of levels, and columns of effects, of every batch."""

    def __init__(self, plan: dict[str, Any], indexes: Sequence[LevelIndex]) -> None:
        self.plan, self.indexes = plan, list(indexes)
        self.width = effect_count(plan)
        self.largest = int(np.argmax([index.levels for index in indexes]))  # rows are sorted by this factor
        self.effects_of, several = [], set()
        for term in plan["groups"]:
            names = effect_names(term)
            if len(names) > 1 and tuple(term["factor"]) in several:
                raise DataError(
                    f"two group terms of {':'.join(term['factor'])} have several effects each. Write them as one term, or with || for "
                    "uncorrelated effects."
                )
            if len(names) > 1:
                several.add(tuple(term["factor"]))
            if names != (CONSTANT,):
                own = {"response": plan["response"], **term}
                self.effects_of.append((own, DesignMatrices(own) if "design" in term else None, names))

    def effects(self, batch: Any, first_row: int) -> np.ndarray:
        """The columns of the effects of all terms."""
        out, at = np.empty((batch.num_rows, self.width)), 0
        for plan, matrices, names in self.effects_of:
            x = plain_matrix(plan, batch, first_row) if matrices is None else matrices.matrix(batch, first_row)
            check_finite(x, names, first_row)
            out[:, at : at + x.shape[1]] = x
            at += x.shape[1]
        return out

    def codes(self, batch: Any, first_row: int) -> np.ndarray:
        """Codes of the levels, (rows, factors)."""
        out = np.column_stack([index.codes(batch, first_row) for index in self.indexes])
        if (out < 0).any():
            raise DataError("the source has levels that it did not have before; it changed while it was read.")
        return out

    def described(self, first: int) -> list[dict[str, Any]]:
        """The terms as a store describes them; the columns of effects stand from position `first` of a record on."""
        out, files = [], {columns: k for k, columns in enumerate(factor_columns(self.plan))}
        for term in self.plan["groups"]:
            names = effect_names(term)
            at, first = (-1, first) if names == (CONSTANT,) else (first, first + len(names))
            k = files[tuple(term["factor"])]
            out.append({"name": self.indexes[k].name, "terms": list(names), "first": at, "file": k})
        return out

    def factors(
        self, first: int, codes: Sequence[np.ndarray], offsets: Sequence[np.ndarray], members: Sequence[np.ndarray]
    ) -> tuple[GroupFactor, ...]:
        """The factors of a data set, one for each term, from the arrays of each different factor."""
        out = []
        for term in self.described(first):
            k = term["file"]
            labels, names = self.indexes[k].labels, tuple(term["terms"])
            out.append(GroupFactor(term["name"], labels, codes[k], names, term["first"], offsets[k], members[k]))
        return tuple(out)


def with_group_columns(rows: Source, plan: dict[str, Any]) -> Source:
    """A source of new rows with a column for each factor and each effect of a plan, by the names that results have for them.

    >>> import pyarrow as pa
    >>> from tallbayes.data.sources import open_source
    >>> plan = {"response": "y", "groups": [{"factor": ["a", "b"], "effects": "1", "columns": [], "intercept": True}]}
    >>> source = with_group_columns(open_source(pa.table({"a": ["u", "v"], "b": [1, 2]})), plan)
    >>> next(source.batches(["a:b"])).to_pydict()
    {'a:b': ['u:1', 'v:2']}
    """
    import pyarrow as pa

    combined = {":".join(f): list(f) for f in factor_columns(plan) if len(f) > 1 and ":".join(f) not in rows.names}
    effects: dict[str, tuple[dict[str, Any], int]] = {}
    for term in plan.get("groups", ()):
        for place, name in enumerate(effect_names(term)):
            if name != CONSTANT and name not in rows.names and name not in effects:
                effects[name] = {"response": plan["response"], **term}, place
    matrices = {name: DesignMatrices(own) if "design" in own else None for name, (own, _) in effects.items()}
    if not combined and not effects:
        return rows

    def needed(name: str) -> list[str]:
        return combined[name] if name in combined else effects[name][0]["columns"] if name in effects else [name]

    def column(name: str, batch: Any, first_row: int) -> Any:
        if name in combined:
            parts = [level_column(batch, part, first_row).cast(pa.string()) for part in combined[name]]
            return pa.compute.binary_join_element_wise(*parts, ":")
        if name not in effects:
            return batch.column(name)
        (own, place), known = effects[name], matrices[name]
        x = plain_matrix(own, batch, first_row) if known is None else known.matrix(batch, first_row)
        return pa.array(x[:, place])

    def batches(columns: Sequence[str]) -> Iterator[Any]:
        first_row = 0
        for batch in rows.batches(list(dict.fromkeys(part for name in columns for part in needed(name)))):
            yield pa.RecordBatch.from_arrays([column(name, batch, first_row) for name in columns], names=list(columns))
            first_row += batch.num_rows

    types = (*rows.types, *(pa.string() for _ in combined), *(pa.float64() for _ in effects))
    return replace(rows, names=(*rows.names, *combined, *effects), types=types, batches=batches)


def parse_groups(formula: str, plan: dict[str, Any], known: Sequence[str], levels: Sequence[str]) -> Formula:
    """A formula against the columns of a plan."""
    text = [name for term in plan.get("groups", ()) if "design" in term for name in term["design"]["text"]]
    return parse(formula, tuple(dict.fromkeys((*known, *group_columns(plan), plan["response"]))), {*levels, *text})
