"""The table of `Fit.summary`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tallbayes.results.convergence import sentences
from tallbayes.results.cost import effective_sizes, quantiles, r_hats, tail_sizes
from tallbayes.results.table_text import as_text
from tallbayes.validation import check_probability

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

_FOLDED = 20  # rows shown of a table that is longer than its `most`


class Summary(pd.DataFrame):
    """A data frame that states model, prior, guarantee and cost above its rows when printed; its parts print alike, without these lines.

    With `most`, longer tables print their first and last rows only.
    """

    _metadata = ["most"]  # noqa: RUF012
    header: Sequence[str] = ()
    most: int | None = None

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return Summary

    def __repr__(self) -> str:
        shown = None if self.most is None else min(self.most, _FOLDED)
        cut = self.most is not None and len(self) > self.most
        rows = self._text().to_string(max_rows=self.most, min_rows=shown)
        return "\n".join([*self.header, rows, *([f"{shown} of {len(self):,} rows"] if cut else [])])

    def _text(self) -> pd.DataFrame:
        """The numbers as text; a part of a table without its standard deviations has four digits throughout."""
        names = [str(c) for c in self.columns]
        if "sd" not in names:
            return pd.DataFrame(self).map(lambda v: f"{v:.4g}" if isinstance(v, float) else v)
        return as_text(self, [name for name in names if name in ("mean", "sd") or name.endswith("%")])

    def _repr_html_(self) -> str:
        lines = "<br>".join(escape(line) for line in self.header)
        return (f"<p>{lines}</p>" if lines else "") + self._text().to_html(max_rows=self.most)


def summarise(fit: Fit, prob: float = 0.89) -> Summary:
    """Weighted means, standard deviations and equal-tailed intervals, with effective sizes and R-hat."""
    check_probability(prob)
    flat, w = fit.theta.reshape(-1, len(fit.names)), fit.weights.reshape(-1)
    given = fit.stats.get("weight")
    names, columns = list(fit.names), [flat[:, j] for j in range(flat.shape[1])]
    ess, tail, r_hat = fit.ess.tolist(), fit.ess_tail.tolist(), fit.r_hat.tolist()
    shown = set(names)
    for name, values in fit.derived().items():
        each = values.reshape(*values.shape[:2], -1)
        each_label = labels(fit, name, values.shape[2:])
        fresh = [j for j, label in enumerate(each_label) if label not in shown]
        names += [each_label[j] for j in fresh]
        columns += [each[:, :, j].reshape(-1) for j in fresh]
        ess += effective_sizes(each[:, :, fresh], given).tolist() if fresh else []
        tail += tail_sizes(each[:, :, fresh], given).tolist() if fresh else []
        r_hat += r_hats(each[:, :, fresh]).tolist() if fresh else []
    levels = (0.5 - prob / 2, 0.5 + prob / 2)
    rows = []
    for values in columns:
        mean = np.average(values, weights=w)
        sd = np.sqrt(max(0.0, np.average((values - mean) ** 2, weights=w)))
        rows.append([mean, sd, *quantiles(values, w, levels)])
    low, high = (f"{100 * q:.4g}%" for q in levels)
    table = Summary(rows, index=names, columns=["mean", "sd", low, high])
    table["ess_bulk"], table["ess_tail"], table["r_hat"] = ess, tail, r_hat
    table["mcse_mean"] = table["sd"] / np.sqrt(np.maximum(table["ess_bulk"], 1e-300))
    table.header = _header(fit)
    return table


def labels(fit: Fit, name: str, shape: tuple[int, ...]) -> list[str]:
    """Names of the elements of a derived quantity."""
    given = {p["name"]: p["labels"] for p in fit.meta.get("parameters") or []}.get(name)
    if given:
        return [f"{name}[{label}]" for label in given]
    return [name + (f"[{','.join(map(str, k))}]" if k else "") for k in np.ndindex(shape)]


def _header(fit: Fit) -> list[str]:
    meta, cost = fit.meta, fit.cost()
    chains, draws, _ = fit.theta.shape
    default = " (the default)" if meta.get("default_prior") else ""
    lines = [
        f"{_family(meta['model'])} model of {meta['rows']:,} rows, prior {meta['prior']}{default}",
        f"{meta['sampler_name']}: {fit.guarantee}",
        f"{chains} chains x {draws:,} draws, {fit.status}; {cost['draws']['evals_per_iteration']:,.3g} evaluations per "
        f"iteration, {cost['evals_per_ess']:,.3g} per effective draw; {cost['seconds']:.3g} s",
    ]
    if meta.get("assumed_family"):
        lines.insert(1, meta["assumed_family"])
    if "positive" in cost:
        lines.append(
            f"{100 * cost['positive']:.1f} % of the draws have a positive sign; means, intervals and ess use the signs."
        )
    if fit.status == "ess limit":
        lines.append(f"until_ess= was not reached: the smallest ess is {cost['ess_min']:,.0f}; another sampler may mix better.")
    return lines + sentences(fit)


def _family(described: dict[str, Any]) -> str:
    """The family with the numbers it was given, which are assumptions: negbin(size=1)."""
    given = {k: v for k, v in described["options"].items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return described["family"] + (f"({', '.join(f'{k}={v:g}' for k, v in given.items())})" if given else "")
