"""The kinds of model whose fits are asked questions, and their fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pandas as pd

import tallbayes as tb
from benchmarks.matrix_rows import response, table

LEVELS = 8  # of the first factor


class Kind(NamedTuple):
    """A formula's right-hand side, a family, and further arguments of `tb.fit`."""

    right: str
    family: str
    options: Callable[[], dict[str, Any]] = dict
    note: str = ""

    @property
    def formula(self) -> str:
        """Response and terms."""
        return f"{response(self.family)} ~ {self.right}"


KINDS = {
    "logistic": Kind("x + z + c", "logistic"),
    "negbin unknown": Kind("x + c", "negbin"),
    "gaussian": Kind("x + c", "gaussian"),
    "smooth": Kind("x + s(z)", "logistic"),
    "horseshoe": Kind("x + z + c", "logistic", lambda: {"prior": tb.priors.horseshoe()}, "prior=tb.priors.horseshoe()"),
    "(1|g)": Kind("x + (1|g)", "logistic"),
    "crossed": Kind("x + (1|g) + (1|h)", "logistic"),
    "(1+x|g) gaussian": Kind("x + (1+x|g)", "gaussian"),
    "zero-inflated": Kind("x", "zero_inflated_poisson"),
    "sigma~x": Kind("x", "gaussian", lambda: {"sigma": "~ z"}, 'sigma="~ z"'),
    "ordinal": Kind("x + c", "ordinal"),
    "softmax": Kind("x + c", "softmax"),
    "weibull": Kind("x + c", "weibull"),
    "student_t": Kind("x + c", "student_t"),
}


class Length(NamedTuple):
    """Of the runs behind the answers."""

    draws: int = 200
    warmup: int = 200
    chains: int = 2


@dataclass
class Fits:
    """Made-up rows, and fits of them that are made when they are first asked for."""

    n: int = 2000
    length: Length = field(default_factory=Length)
    known: dict[str, tb.Fit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows: pd.DataFrame = table(self.n, LEVELS)

    def fit(self, kind: str) -> tb.Fit:
        """The fit of a kind of model to all rows."""
        if kind not in self.known:
            self.known[kind] = self.make(kind, self.rows, 1)
        return self.known[kind]

    def make(self, kind: str, source: Any, seed: int, **more: Any) -> tb.Fit:
        """A fit of a kind of model to these rows."""
        own = KINDS[kind]
        run = {**self.length._asdict(), **own.options(), **more}
        return tb.fit(own.formula, source, own.family, seed=seed, progress=False, **run)
