"""Tables of posteriors as text: as many decimals in each row as its standard deviation supports, so that ends of intervals differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

_MOST_PLACES = 8  # beyond, numbers are written with an exponent


def decimals(values: Sequence[float], sd: float, digits: int = 3) -> list[str]:
    """Numbers of one row with the decimals that show `digits` digits of their standard deviation.

    >>> decimals([245013.21, 245001.3, 245025.9], 12.41), decimals([0.031671, -0.0285], 0.00192)
    (['245013.2', '245001.3', '245025.9'], ['0.03167', '-0.02850'])
    >>> decimals([3.1e-12, 2.9e-12], 1e-13), decimals([0.5, float("nan")], 0.0)
    (['3.1e-12', '2.9e-12'], ['0.5', 'nan'])
    """
    if not (math.isfinite(sd) and sd > 0.0):
        return [f"{v:.4g}" for v in values]
    places = max(0, digits - 1 - math.floor(math.log10(sd)))
    largest = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    if places <= _MOST_PLACES and largest < 1e12:
        return [f"{v:.{places}f}" for v in values]
    needed = digits + max(0, math.floor(math.log10(max(largest, sd))) - math.floor(math.log10(sd)))
    return [f"{v:.{min(needed, 16)}g}" for v in values]


FORMATS: dict[str, Callable[[float], str]] = {
    "ess_bulk": lambda v: f"{v:.0f}",
    "ess_tail": lambda v: f"{v:.0f}",
    "r_hat": lambda v: f"{v:.3f}",
    "mcse_mean": lambda v: f"{v:.2g}",
    "rows_se": lambda v: f"{v:.2g}",
}


def as_text(table: pd.DataFrame, by_sd: Sequence[str]) -> pd.DataFrame:
    """The table with text for numbers: columns `by_sd` by the column `sd`, others by their name.

    >>> as_text(pd.DataFrame({"mean": [100.25], "sd": [0.5], "ess_bulk": [901.5]}), ["mean", "sd"]).iloc[0].tolist()
    ['100.250', '0.500', '902']
    """
    out: dict[str, Any] = {}
    wanted = [name for name in by_sd if name in table]
    rows = [decimals(list(values), sd) for values, sd in zip(table[wanted].to_numpy(float), table["sd"], strict=True)]
    for k, name in enumerate(table.columns):
        if name in wanted:
            out[name] = [row[wanted.index(name)] for row in rows]
        elif pd.api.types.is_float_dtype(table.dtypes.iloc[k]):
            out[name] = [FORMATS.get(name, lambda v: f"{v:.4g}")(v) for v in table[name]]
        else:
            out[name] = table[name]
    return pd.DataFrame(out, index=table.index)


class Effects(pd.DataFrame):
    """A table of effects. `header` says what was averaged; `posterior` has the effects at each draw, (draws, lines)."""

    _metadata = ["header", "posterior"]  # noqa: RUF012

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def __repr__(self) -> str:
        return "\n".join([*self.header, self._text().to_string(index=False)])

    def _text(self) -> pd.DataFrame:
        return as_text(self, ["mean", "sd", "lower", "upper"])

    def _repr_html_(self) -> str:
        from html import escape

        lines = "<br>".join(escape(line) for line in self.header)
        return f"<p>{lines}</p>" + self._text().to_html(index=False)
