"""Which questions a fit answers: every kind of model with every question, the answers checked by hand.

A cell is green if the answer equals what draws and rows give (`matrix_checks`), wrong if it does not, refused if a `TallbayesError` says
why there is none, and raw if another exception comes out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import tallbayes as tb
from benchmarks import matrix_checks as checks
from benchmarks.matrix_direct import Direct
from benchmarks.matrix_families import refusal
from benchmarks.matrix_kinds import KINDS, Fits, Length

LONG, QUICK = Length(), Length(60, 60, 2)
NEW = 50  # rows that are predicted
ADDED = 500  # rows that an update adds at most


class Case(NamedTuple):
    """A fit with its rows, what is known of it by hand, and a folder for files."""

    kind: str
    fits: Fits
    direct: Direct
    folder: Path

    @property
    def fit(self) -> tb.Fit:
        """The fit that is asked."""
        return self.direct.fit

    @property
    def rows(self) -> pd.DataFrame:
        """Its rows."""
        return self.fits.rows


class Question(NamedTuple):
    """What is asked, and a checker of the answer."""

    ask: Callable[[Case], Any]
    check: Callable[[Case, Any], None]


def added(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows for an update, whose x has the opposite sign: an update that ignored them would be far off."""
    return rows.tail(min(ADDED, len(rows) // 4)).assign(x=lambda part: -part["x"])


def _updated(case: Case, fit: tb.Fit) -> None:
    every = pd.concat([case.rows, added(case.rows)], ignore_index=True)
    checks.agree(fit, case.fits.make(case.kind, every, 3), len(every))


def _partitioned(case: Case) -> tb.Fit:
    for part in range(4):
        pq.write_table(pa.Table.from_pandas(case.rows.iloc[part::4], preserve_index=False), case.folder / f"part{part}.parquet")
    return case.fits.make(case.kind, str(case.folder / "*.parquet"), 4, memory="partitions")


def statement(kind: str) -> tuple[str, str | None]:
    """A parameter that is compared with zero, or with another one where a coefficient has no meaning by itself."""
    return ("x[1]", "x[0]") if kind == "softmax" else ("x", None)


def _hypothesis(case: Case) -> Any:
    left, right = statement(case.kind)
    return case.fit.hypothesis(f"{left} > {right or 0}")


def _saved(case: Case) -> tb.Fit:
    return tb.load(case.fit.save(case.folder / "fit.nc"))


def _drawn(kind: str, **more: Any) -> Callable[[Case], checks.Drawing]:
    def draw(case: Case) -> checks.Drawing:
        path = case.folder / f"{kind}.png"
        return checks.Drawing(case.fit.plot(kind, path, **more), path)

    return draw


QUESTIONS = {
    "summary": Question(lambda k: k.fit.summary(), lambda k, a: checks.summary(k.direct, a)),
    "predict": Question(
        lambda k: k.fit.predict(k.rows.head(NEW), draws=k.fit.weights.size),
        lambda k, a: checks.predict(k.direct, a, k.rows.head(NEW)),
    ),
    "predictions": Question(lambda k: k.fit.predictions(rows=len(k.rows)), lambda k, a: checks.predictions(k.direct, a)),
    "comparisons x": Question(
        lambda k: k.fit.comparisons("x", rows=len(k.rows)), lambda k, a: checks.comparison_of_x(k.direct, a)
    ),
    "comparisons c": Question(
        lambda k: k.fit.comparisons("c", rows=len(k.rows)), lambda k, a: checks.comparison_of_c(k.direct, a)
    ),
    "slopes x": Question(lambda k: k.fit.slopes("x", rows=len(k.rows)), lambda k, a: checks.slope_of_x(k.direct, a)),
    "odds/ratios": Question(lambda k: k.fit.odds_ratios(), lambda k, a: checks.ratios(k.direct, a)),
    "hypothesis": Question(_hypothesis, lambda k, a: checks.hypothesis(k.direct, a, *statement(k.kind))),
    "loo": Question(lambda k: k.fit.loo(rows=len(k.rows)), lambda k, a: checks.leave_one_out(k.direct, a)),
    "ppc": Question(lambda k: k.fit.ppc(rows=len(k.rows)), lambda k, a: checks.predictive_check(k.direct, a)),
    "compare_models": Question(
        lambda k: tb.compare_models({"a": k.fit, "b": k.fit}, rows=len(k.rows)),
        lambda k, a: checks.model_comparison(k.direct, a),
    ),
    "report": Question(lambda k: k.fit.report(k.folder / "report.html"), lambda k, a: checks.report(k.direct, a)),
    "audit": Question(lambda k: k.fit.audit(), lambda k, a: checks.audit(k.direct, a)),
    "save+load": Question(_saved, lambda k, a: checks.loaded(k.direct, a)),
    "update": Question(lambda k: k.fit.update(added(k.rows), seed=2, progress=False), _updated),
    "idata": Question(lambda k: k.fit.idata, lambda k, a: checks.data_tree(k.direct, a)),
    "partitions": Question(_partitioned, lambda k, a: checks.agree(a, k.fit, len(k.rows))),
    "plot forest": Question(_drawn("forest"), lambda k, a: checks.forest(k.direct, a)),
    "plot effect": Question(_drawn("effect", names="x"), lambda k, a: checks.effect(k.direct, a)),
    "plot ppc": Question(_drawn("ppc"), lambda k, a: checks.check_plot(k.direct, a)),
    "plot calibration": Question(_drawn("calibration"), lambda k, a: checks.calibration(k.direct, a)),
}


def meaningless(kind: str, question: str) -> str | None:
    """Why a cell means nothing, or None."""
    if question == "comparisons c" and "c" not in KINDS[kind].right.split(" + "):
        return "the model has no factor whose levels could be compared"
    return None


def cells() -> list[tuple[str, str]]:
    """Kinds of model and questions that mean something together."""
    return [(k, q) for k in KINDS for q in QUESTIONS if meaningless(k, q) is None]


def case(kind: str, fits: Fits, folder: Path) -> Case:
    """The fit of a kind of model, with all that is needed to question it."""
    return Case(kind, fits, Direct(fits.fit(kind), fits.rows), folder)


def outcome(kind: str, question: str, fits: Fits) -> dict[str, Any]:
    """Ask and check: "green", "wrong", "refused" or "raw"."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            asked = case(kind, fits, Path(folder))
            answer = QUESTIONS[question].ask(asked)
        except Exception as error:
            return refusal(error)
        try:
            QUESTIONS[question].check(asked, answer)
        except checks.Wrong as error:
            return {"outcome": "wrong", "message": str(error)}
        except Exception as error:  # an answer of another form
            return {"outcome": "wrong", "message": f"the answer cannot be checked: {type(error).__name__}: {error}"}
    return {"outcome": "green"}
