"""A checker for every question to a fit: is the answer what draws and rows give, computed by NumPy and SciPy?

A checker takes what is known by hand and the answer of the package, and raises `Wrong` if they differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import tallbayes as tb
from benchmarks.matrix_direct import Direct, interval
from benchmarks.matrix_families import distances

EXACT = 1e-8  # relative, of two computations of one number
LIMIT = 4.9  # standard errors between two runs, or two simulations
STEP = 1e-4  # of a numerical derivative


class Wrong(AssertionError):
    """An answer that differs from what draws and rows give."""


class Drawing(NamedTuple):
    """A figure, and the file it was saved to."""

    figure: Any
    path: Path


def same(what: str, got: Any, expected: Any, relative: float = EXACT) -> None:
    """Refuse numbers that differ by more than rounding."""
    got, expected = np.asarray(got, float), np.asarray(expected, float)
    if got.shape != expected.shape:
        raise Wrong(f"{what}: shape {got.shape} instead of {expected.shape}")
    scale = max(1e-12, float(np.abs(expected).max(initial=0.0)))
    gap = np.abs(got - expected)
    if not (gap <= relative * scale).all():
        at = int(np.argmax(np.where(np.isnan(gap), np.inf, gap)))
        raise Wrong(f"{what}: {got.flat[at]:.8g} instead of {expected.flat[at]:.8g}")


def true(what: str, fact: bool) -> None:
    """Refuse what is not so."""
    if not fact:
        raise Wrong(what)


def described(what: str, values: np.ndarray, row: Mapping[str, Any] | pd.Series) -> None:
    """Mean, sd and 89 % interval of draws against a line of a table."""
    low, high = interval(values)
    expected = {"mean": values.mean(), "sd": values.std(), "lower": low, "upper": high}
    for name in sorted(expected.keys() & set(row.keys())):
        same(f"{name} of {what}", row[name], expected[name])


def summary(direct: Direct, table: pd.DataFrame) -> None:
    from arviz_stats.base import array_stats

    fit = direct.fit
    missing = set(fit.names) - set(table.index)
    true(f"the summary lacks {sorted(missing)}", not missing)
    for name, row in table.iterrows():
        values = (
            fit.theta[:, :, fit.names.index(name)]
            if name in fit.names
            else np.exp(fit.theta[:, :, fit.names.index(f"log_{name}")])
        )
        described(
            str(name), values.reshape(-1), {"mean": row["mean"], "sd": row["sd"], "lower": row.iloc[2], "upper": row.iloc[3]}
        )
        same(f"ess of {name}", row["ess_bulk"], array_stats.ess(values, chain_axis=0, draw_axis=1, method="bulk"), 1e-6)
        same(f"R-hat of {name}", row["r_hat"], array_stats.rhat(values, chain_axis=0, draw_axis=1), 1e-6)
    true("the printed summary does not name the guarantee", fit.guarantee.kind in str(table))


def predict(direct: Direct, table: pd.DataFrame, rows: pd.DataFrame) -> None:
    mean = direct.mean(rows)
    true(f"{len(table)} predictions of {len(rows)} rows", len(table) == len(rows))
    columns = [("", mean)] if mean.ndim == 2 else [(f"[{k}]", mean[:, :, k]) for k in range(mean.shape[2])]
    for label, values in columns:
        low, high = interval(values)
        for name, expected in (("mean", values.mean(0)), ("lower", low), ("upper", high)):
            same(f"{name}{label}", table[f"{name}{label}"], expected)


def predictions(direct: Direct, table: pd.DataFrame) -> None:
    values = direct.average()
    true(f"{len(table)} lines instead of 1", len(table) == 1)
    described("the average", values, table.iloc[0])
    same("the posterior", np.sort(table.posterior[:, 0]), np.sort(values))


def comparison_of_x(direct: Direct, table: pd.DataFrame) -> None:
    true(f"{len(table)} lines instead of 1", len(table) == 1)
    described("x + 1", direct.average(x=direct.rows["x"] + 1.0) - direct.average(), table.iloc[0])


def comparison_of_c(direct: Direct, table: pd.DataFrame) -> None:
    true(f"contrasts {list(table['contrast'])}", list(table["contrast"]) == ["b vs a", "c vs a"])
    for level, (_, row) in zip("bc", table.iterrows(), strict=True):
        described(f"{level} vs a", direct.average(c=level) - direct.average(c="a"), row)


def slope_of_x(direct: Direct, table: pd.DataFrame) -> None:
    x = direct.rows["x"]
    slope = (direct.average(x=x + STEP) - direct.average(x=x - STEP)) / (2.0 * STEP)
    low, high = interval(slope)
    true(f"{len(table)} lines instead of 1", len(table) == 1)
    for name, expected in (("mean", slope.mean()), ("sd", slope.std()), ("lower", low), ("upper", high)):
        same(f"{name} of the slope", table.iloc[0][name], expected, 1e-5)


def ratios(direct: Direct, table: pd.DataFrame) -> None:
    names = [name for name in direct.fit.names if name in direct.fit.meta["columns"] and name != "Intercept"]
    true(f"ratios of {list(table.index)} instead of {names}", list(table.index) == names)
    for name in names:
        ratio = np.exp(direct.named[name])
        logs = np.quantile(direct.named[name], (0.5, 0.055, 0.945))
        same(f"ratio of {name}", table.loc[name].iloc[:3], np.exp(logs))
        same(f"P(>1) of {name}", table.loc[name, "P(>1)"], (ratio > 1.0).mean())


def hypothesis(direct: Direct, answer: Any, left: str, right: str | None) -> None:
    gap = direct.named[left] - (0.0 if right is None else direct.named[right])
    share = float((gap > 0.0).mean())
    same("probability", answer.probability, share)
    true(f"evidence ratio {answer.evidence_ratio}", share == 1.0 or abs(answer.evidence_ratio * (1.0 - share) - share) < 1e-8)
    described("the difference", gap, {name: getattr(answer, name) for name in ("mean", "sd", "lower", "upper")})


def leave_one_out(direct: Direct, elpd: Any) -> None:
    expected = direct.leave_one_out()
    same("elpd", elpd.elpd, expected["elpd"], 1e-7)
    same("its standard error", elpd.se, expected["se"], 1e-6)
    same("effective parameters", elpd.p, expected["p"], 1e-4)
    true(f"elpd {elpd.elpd} is far from {expected['plain']}, that of plain importance sampling",
         abs(elpd.elpd - expected["plain"]) < 0.05 * expected["se"])  # fmt: skip


def model_comparison(direct: Direct, table: pd.DataFrame) -> None:
    expected = direct.leave_one_out()
    true(f"models {sorted(table.index)}", sorted(table.index) == ["a", "b"])
    same("elpd", [elpd.elpd for elpd in table.elpd.values()], [expected["elpd"]] * 2, 1e-7)
    same("difference of a model from itself", table[["elpd_diff", "dse"]].to_numpy(), np.zeros((2, 2)))
    same("sum of weights", table["weight"].sum(), 1.0)


def predictive_check(direct: Direct, check: Any) -> None:
    chosen = direct.order[check.rows]
    y = direct.y[chosen]
    timed = direct.family == "weibull"
    same("observed responses", np.abs(check.observed) if timed else check.observed, np.abs(y) if timed else y)
    true(f"simulated shape {check.simulated.shape}", check.simulated.shape[1] == y.size)
    table = check.statistics
    true(f"statistics {list(table.index)}", len(table) >= 2 and {"observed", "simulated", "p"} <= set(table.columns))
    true(f"implausible p-values {table['p'].to_dict()}", bool(table["p"].between(0.0, 1.0).all()))
    if timed:  # statistics of censored times are those of survival curves
        true("the model that made the rows is a surprise to itself", len(check.surprises) < len(table))
        return
    made = direct.simulated(200, 0)[:, chosen]
    for name, of in {"mean": np.mean, "sd": np.std}.items():
        each, others = of(check.simulated, axis=1), of(made, axis=1)
        same(f"observed {name}", table.loc[name, "observed"], of(y))
        same(f"simulated {name}", table.loc[name, "simulated"], each.mean())
        same(f"p of {name}", table.loc[name, "p"], (each > of(y)).mean() + 0.5 * (each == of(y)).mean())
        error = np.hypot(each.std() / np.sqrt(each.size), others.std() / np.sqrt(others.size))
        z = abs(each.mean() - others.mean()) / error
        true(f"simulated {name} {each.mean():.4g}, by hand {others.mean():.4g}: {z:.1f} standard errors", z < LIMIT)
        spread = np.log(each.std() / others.std()) * np.sqrt(2.0 / (1.0 / each.size + 1.0 / others.size))
        true(f"spread of simulated {name}: {spread:.1f} standard errors", abs(spread) < LIMIT)


def report(direct: Direct, path: Path) -> None:
    """Every parameter has a line with its mean, standard deviation and interval, as far as digits are shown."""
    text = Path(path).read_text()
    found: dict[str, list[list[str]]] = {}
    for line in re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL):
        cells = [
            unescape(re.sub(r"<[^>]*>", "", cell)).strip() for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", line, re.DOTALL)
        ]
        if len(cells) > 4:
            found.setdefault(cells[0], []).append(cells[1:5])
    for name, values in direct.named.items():
        numbers = (values.mean(), values.std(), *interval(values))
        true(f"the report has no line of {name}", name in found)
        agree = any(all(_shown(text, number) for text, number in zip(line, numbers, strict=True)) for line in found[name])
        true(f"the report says {found[name]} of {name} instead of {numbers}", agree)


def _shown(text: str, number: float) -> bool:
    """Whether a text is the number, rounded to its digits."""
    try:
        shown = float(text.replace(",", "").replace("−", "-"))
    except ValueError:
        return False
    mantissa, _, power = text.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    return abs(shown - number) <= 0.51 * 10.0 ** (int(power or 0) - digits)


def audit(direct: Direct, answer: Any) -> None:
    fit = direct.fit
    true(f"the audit found {answer.problems}", answer.passed and not answer.problems)
    white = np.linalg.solve(fit.laplace_factor, (fit.theta.reshape(-1, len(fit.names)) - fit.laplace_mean).T)
    same("largest mean in Laplace sds", answer.facts["largest |mean| in Laplace sds"], np.abs(white.mean(1)).max(), 1e-6)
    true(f"the audit has facts {list(answer.facts)} alone", len(answer.facts) > 2)


def loaded(direct: Direct, other: tb.Fit) -> None:
    fit = direct.fit
    true(
        "names differ",
        fit.names == other.names and list(fit.stats) == list(other.stats) and list(fit.levels) == list(other.levels),
    )
    arrays = {"theta": (other.theta, fit.theta)} | {f"stats {k}": (other.stats[k], fit.stats[k]) for k in fit.stats}
    arrays |= {f"levels {k}": (other.levels[k].values, fit.levels[k].values) for k in fit.levels}
    for name, (got, expected) in arrays.items():
        true(f"{name} differ", np.array_equal(got, expected, equal_nan=True))
    pd.testing.assert_frame_equal(pd.DataFrame(other.summary()), pd.DataFrame(fit.summary()))
    true("guarantees differ", other.guarantee == fit.guarantee and other.meta["fingerprint"] == fit.meta["fingerprint"])


def agree(fit: tb.Fit, reference: tb.Fit, rows: int) -> None:
    """Two runs of one posterior: number of rows, and means of all parameters."""
    true(f"the fit has {fit.meta['rows']} rows instead of {rows}", fit.meta["rows"] == rows)
    z = distances(fit, reference)
    worst = max(z, key=z.__getitem__)
    true(f"{worst}: {z[worst]:.1f} standard errors from a fit of all rows", z[worst] < LIMIT)


def data_tree(direct: Direct, tree: Any) -> None:
    """Every variable is a parameter, the exponential of one, or an effect of levels, under its label; and none is missing."""
    fit, posterior = direct.fit, tree.posterior
    sources = {name: fit.theta[:, :, k] for k, name in enumerate(fit.names)}
    sources |= {n.removeprefix("log_"): np.exp(v) for n, v in sources.items() if n.startswith("log_")}
    sources |= {
        f"{n}[{label}]": own.values[:, :, k] for n, own in fit.levels.items() for k, label in enumerate(own.label_texts)
    }
    matched = set()
    for name, variable in posterior.data_vars.items():
        array = np.asarray(variable.values).reshape(*variable.shape[:2], -1)
        labels = [np.asarray(posterior[d].values).astype(str) for d in variable.dims[2:]]
        texts = [[]] if not labels else np.stack([g.reshape(-1) for g in np.meshgrid(*labels, indexing="ij")], axis=1)
        for k, parts in enumerate(texts):
            origin = [n for n, v in sources.items() if np.array_equal(v, array[:, :, k])]
            good = [n for n in origin if all(part in n for part in parts) and str(name).split("_")[0].rstrip("_") in n]
            true(f"{name} {list(parts)} is not a parameter of the fit, but {origin}", bool(good))
            matched.update(good)
    wanted = {n.removeprefix("log_") if n.startswith("log_") else n for n in fit.names} | {
        n for n in sources if n not in fit.names
    }
    missing = {n for n in wanted if n not in matched and f"log_{n}" not in matched}
    true(f"the posterior lacks {sorted(missing)}", not missing)
    true("theta differs", np.array_equal(np.asarray(tree["parameters"]["theta"].values), fit.theta))


def _picture(drawing: Drawing) -> None:
    from matplotlib import image

    data = drawing.path.read_bytes()
    true("the file is not a picture in the format PNG", data[:8] == b"\x89PNG\r\n\x1a\n")
    pixels = image.imread(drawing.path)[:, :, :3]
    true(f"a picture of {pixels.shape[1]} x {pixels.shape[0]} pixels", min(pixels.shape[:2]) > 100)
    ink = float((pixels.min(2) < 0.8).mean())
    true(f"the picture is blank: {100 * ink:.2f} % of it is drawn", ink > 0.004)


def coefficient(direct: Direct, name: str) -> bool:
    """Whether a parameter is a coefficient with a meaning of its own: no intercept, and no part of a smooth."""
    base = name.rpartition("[")[0] if direct.family == "softmax" else name
    return base not in ("Intercept", "") and not base.startswith("s(") and direct.column(base, direct.rows.head(1)) is not None


def forest(direct: Direct, drawing: Drawing) -> None:
    _picture(drawing)
    axis = drawing.figure.axes[0]
    labels = [text.get_text() for text in axis.get_yticklabels()]
    dots = {-round(float(line.get_ydata()[0])): float(line.get_xdata()[0]) for line in axis.lines if line.get_marker() == "o"}
    expected = [name for name in direct.named if coefficient(direct, name)]
    true(f"the plot shows {labels} instead of {expected}", labels[: len(expected)] == expected[:12])
    for place, name in enumerate(labels):
        same(f"median of {name}", dots[place], np.median(direct.named[name]))


def effect(direct: Direct, drawing: Drawing) -> None:
    _picture(drawing)
    curve = drawing.figure.axes[0].lines[0]
    x, y = np.asarray(curve.get_xdata()), np.asarray(curve.get_ydata())
    true("the curve has few points", x.size > 10 and np.ptp(x) > 2.0)
    spread = max(float(direct.average(x=value).std()) for value in x[::10])
    for place in range(0, x.size, 5):  # remainders of the rows are sampled: 2 % of a posterior standard deviation
        gap = abs(float(direct.average(x=x[place]).mean()) - y[place])
        true(f"the curve is {y[place]:.5g} at x = {x[place]:.3g}, off by {gap:.2g}", gap < 0.1 * spread)


def check_plot(direct: Direct, drawing: Drawing) -> None:
    _picture(drawing)
    y = direct.y[direct.order[direct.fit.ppc().rows]]
    axis = drawing.figure.axes[0]
    if direct.family == "weibull":
        curve = next(line for line in axis.lines if str(line.get_label()).startswith("observed"))
        times, height = np.asarray(curve.get_xdata()), np.asarray(curve.get_ydata())
        same("the observed curve", height, kaplan_meier(y, times), 1e-6)
    elif (y == np.round(y)).all():
        bars = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in axis.patches}
        same("observed shares", list(bars.values()), [float((y == value).mean()) for value in bars])
        true("few bars", sum(bars.values()) > 0.95)
    else:
        curve = next(line for line in axis.lines if line.get_label() == "observed")
        middle = np.asarray(curve.get_xdata())
        step = middle[1] - middle[0]
        bins = np.append(middle - step / 2, middle[-1] + step / 2)
        same("observed density", curve.get_ydata(), np.histogram(y, bins, density=True)[0], 0.05)


def kaplan_meier(y: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Share without an event after each time; responses of censored rows are negative."""
    every, share, out = np.abs(y), 1.0, np.ones(times.size)
    for event in np.unique(y[y > 0]):
        share *= 1.0 - (y == event).sum() / (every >= event).sum()
        out[times >= event] = share
    return out


def calibration(direct: Direct, drawing: Drawing) -> None:
    _picture(drawing)
    axis, below = drawing.figure.axes[:2]
    points = next(line for line in axis.lines if line.get_marker() == "o")
    counts = np.array([bar.get_height() for bar in below.patches])
    predicted, observed = np.asarray(points.get_xdata()), np.asarray(points.get_ydata())
    same("rows in the bins", counts.sum(), direct.y.size)
    same("average observed share", observed @ counts, direct.y.sum())
    gap = abs(predicted @ counts / counts.sum() - direct.average().mean())
    true(f"average predicted probability: off by {gap:.2g}", gap < 0.5 * direct.average().std())
