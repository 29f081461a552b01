"""`Fit.report`: one HTML page that holds everything about a fit, plots included. It loads nothing and runs no script."""

from __future__ import annotations

import base64
import contextlib
import io
import math
import os
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import ModelError, OptionError, StoreError
from tallbayes.models import family_of
from tallbayes.results import convergence
from tallbayes.results.convergence import APART, FEW, measure
from tallbayes.results.findings import curved_variables, effects_of, formula_of, sentences
from tallbayes.results.page_style import STYLE

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

MOST_LEVELS = 200  # lines of a table of levels
MOST_OPEN = 15  # lines of a table that is not folded
_MOST = 12  # parameters in a plot


def report(fit: Fit, path: str | Path, plots: bool = True) -> Path:
    """Write the page aside and rename it; returns its path."""
    path = Path(path)
    if path.suffix not in (".html", ".htm"):
        if path.suffix:
            raise OptionError(f"a report is an HTML page; {path.name} should end in .html.")
        path = path.with_name(path.name + ".html")
    aside = path.with_name(path.name + ".part")
    text = page(fit, plots)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise StoreError(f"cannot write the report to {path}: {error}.") from error
    return path


def page(fit: Fit, plots: bool = True) -> str:
    """The whole page as text."""
    meta = fit.meta
    title = (
        f"{meta['model']['family']} model of {meta['response']}" if meta.get("response") else f"{meta['model']['family']} model"
    )
    problems = warnings_of(fit)
    parts = [_head(fit, title, problems), _findings(fit, plots), _levels(fit, plots), _trust(fit, problems)]
    parts += ["<h2>Appendix</h2>", _what(fit)]
    parts += [_summary(fit), _diagnostics(fit), _cost(fit)]
    if plots:
        parts += [_plots(fit)]
    parts += [_origin(fit)]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(p for p in parts if p)
        + "\n</main>\n</body>\n</html>\n"
    )


def warnings_of(fit: Fit) -> list[str]:
    """What a reader should know before the numbers; empty if nothing is wrong."""
    found = convergence.sentences(fit)
    sizes = fit.summary()[["ess_bulk", "ess_tail"]].min(axis=1)
    few = [name for name, size in sizes.items() if size < FEW]
    if few and not any("effective draws" in sentence for sentence in found):
        found.append(
            f"Few effective draws: fewer than {FEW} for {_listed(few)} (smallest {sizes.min():,.0f}). Intervals are rough; run longer."
        )
    if not np.isfinite(fit.r_hat).all():
        found.append(
            "R-hat is unknown for at least one parameter: it needs at least eight draws in total, and chains that moved."
        )
    if fit.status == "ess limit":
        found.append("The effective sample size requested by until_ess= was not reached; the sampler mixes too slowly.")
    elif fit.status != "complete":
        found.append(f"The run stopped early ({fit.status}).")
    if fit.guarantee.kind == "HEURISTIC":
        found.append("The sampler offers no guarantee: compare its draws with those of an exact one.")
    return found


def _head(fit: Fit, title: str, problems: list[str]) -> str:
    chains, draws, _ = fit.theta.shape
    state = '<span class="tag bad">read the warnings</span>' if problems else '<span class="tag good">no warnings</span>'
    return (
        f'<header><h1>{escape(title)}</h1><p class="soft">{fit.meta["rows"]:,} rows, {len(fit.names)} parameters, '
        f"{chains} chains &times; {draws:,} draws</p>"
        f'<span class="tag">{escape(fit.guarantee.kind)}</span><span class="tag">{escape(fit.status)}</span>{state}</header>'
    )


def _findings(fit: Fit, plots: bool) -> str:
    """The formula, the strongest effects in words, the forest plot and effects in units of the response."""
    parts = [f"<p><code>{escape(formula_of(fit))}</code></p>"]
    table = effects_of(fit)
    if table is not None:
        said = sentences(fit, table)
        if said:
            parts.append(f"<ul>{''.join(f'<li>{escape(t)}</li>' for t in said)}</ul>")
        else:
            parts.append("<p>No effect is clearly different from zero: every 89 % interval contains zero.</p>")
    if plots:
        parts.append(_image(fit, "forest", "Coefficients: medians with 50 % and 89 % intervals; the line is zero."))
        if table is not None and (curved := curved_variables(fit)):
            parts.append(_image(fit, "effect", "Average prediction as a variable changes, with 89 % intervals.", curved))
    if table is not None:
        rows = [
            [str(r["variable"]), str(r["contrast"]), *(_fixed(r[c], _places(r["sd"], 3)) for c in ("mean", "lower", "upper"))]
            for _, r in table.iterrows()
        ]
        binary = family_of(fit.meta["model"]).response == "binary"
        unit = "in probability" if binary else f"in units of {fit.meta.get('response', 'the response')}"
        note = f'<p class="soft">Average change {escape(unit)} over all rows, 89 % intervals.</p>'
        parts.append(note + _folded("effects", _table(["variable", "comparison", "mean", "lower", "upper"], rows), len(rows)))
    if family_of(fit.meta["model"]).ratio and len(fit.meta["columns"]) > (fit.meta.get("intercept") is not None):
        ratios = fit.odds_ratios()
        rows = [
            [str(name), *(_figure(float(v)) for v in row)] for name, row in zip(ratios.index, ratios.to_numpy(), strict=True)
        ]
        head = [c.replace("_", " ") for c in ratios.columns]
        parts.append(_folded(f"{head[0]}s", _table(["coefficient", *head], rows), MOST_OPEN + 1))
    return _section("Findings", "".join(parts))


def _levels(fit: Fit, plots: bool) -> str:
    """Group effects: intraclass correlation, caterpillar plot, and tables of levels that fold; of very many, the ends."""
    if not fit.levels:
        return ""
    counts = {own.factor: own.labels.size for own in fit.levels.values()}
    parts = [f"<p>{escape(', '.join(f'{count:,} levels of {name}' for name, count in counts.items()))}.</p>"]
    with contextlib.suppress(ModelError):  # the families that have one
        table = fit.icc()
        shares = [[str(name), *(_fixed(row[c], 3) for c in ("mean", "lower", "upper"))] for name, row in table.iterrows()]
        note = '<p class="soft">Intraclass correlation: share of the variance between levels, 89 % interval.</p>'
        parts.append(note + _table(["factor", "mean", "lower", "upper"], shares))
    if plots:
        parts.append(_image(fit, "levels", "Effects of levels in order; those whose 89 % interval contains zero are grey."))
    for name in fit.levels:
        table = fit.summary(name).sort_values("mean", ascending=False, kind="stable")
        shown = table if len(table) <= MOST_LEVELS else table.iloc[[*range(MOST_LEVELS // 2), *range(-MOST_LEVELS // 2, 0)]]
        rows = [
            [
                str(label),
                *(_fixed(v, _places(row.iloc[1], 3)) for v in row.iloc[:4]),
                _figure(row["ess_bulk"]),
                _figure(row["r_hat"], 4),
            ]
            for label, row in shown.iterrows()
        ]
        left = len(table) - len(shown)
        what = f"{name}: {len(table):,} levels" + (
            f"; the {MOST_LEVELS // 2} highest and the {MOST_LEVELS // 2} lowest are listed" if left else ""
        )
        head = ["level", *(str(c) for c in table.columns[:4]), "ESS", "R-hat"]
        parts.append(f"<details><summary>{escape(what)}</summary>{_table(head, rows)}</details>")
    return _section("Group effects", "".join(parts))


def _trust(fit: Fit, problems: list[str]) -> str:
    """Warnings, the guarantee, and what was checked."""
    alert = ""
    if problems:
        items = "".join(f"<li>{escape(p)}</li>" for p in problems)
        alert = f'<section class="warning" role="alert"><h2>Warnings</h2><ul>{items}</ul></section>'
    sizes = fit.summary()[["ess_bulk", "ess_tail"]].min(axis=None)
    facts = {
        "Largest R-hat": _figure(float(np.nanmax(fit.r_hat, initial=-np.inf)), 4),
        "Smallest effective size": f"{sizes:,.0f}",
        "Audit": "fit.audit() repeats decisions of the run on all rows",
    }
    return alert + _guarantee(fit, facts)


def _image(fit: Fit, kind: str, caption: str, names: list[str] | None = None) -> str:
    data = io.BytesIO()
    fit.plot(kind, most=_MOST, names=names).savefig(data, format="png", dpi=130)
    image = base64.b64encode(data.getvalue()).decode("ascii")
    return (
        f'<figure><figcaption>{caption}</figcaption><div class="wide"><img class="{kind}" alt="{kind} plot" '
        f'src="data:image/png;base64,{image}"></div></figure>'
    )


def _folded(what: str, content: str, lines: int) -> str:
    """A long table behind a line that opens it."""
    if lines <= MOST_OPEN:
        return content
    return f"<details><summary>{escape(what)}</summary>{content}</details>"


def _what(fit: Fit) -> str:
    meta = fit.meta
    options = {k: v for k, v in meta["model"].get("options", {}).items() if v is not None}
    family = meta["model"]["family"] + (f" ({', '.join(f'{k} = {v}' for k, v in options.items())})" if options else "")
    facts = {
        "Family": family,
        **({"Assumed": meta["assumed_family"]} if meta.get("assumed_family") else {}),
        "Response": meta.get("response", "?"),
        "Rows": f"{meta['rows']:,}",
        **({"Rows dropped": f"{meta['dropped']:,}, for missing values"} if meta.get("dropped") else {}),
        "Columns": f"{len(meta['columns'])}: {_listed(meta['columns'], 40)}",
        "Offset": _offset(meta),
        "Prior": meta["prior"] + (" (the default)" if meta.get("default_prior") else ""),
        "Sampler": meta["sampler_name"],
        "Why": fit.why,
        "Status": fit.status,
    }
    return _section("What was fitted", _facts(facts))


def _offset(meta: dict[str, Any]) -> str:
    plan = meta.get("plan") or {}
    if plan.get("offset"):
        return f"log({plan['offset']})" if plan.get("log_offset") else str(plan["offset"])
    return "given" if meta.get("has_offset") else ""


def _guarantee(fit: Fit, facts: dict[str, Any]) -> str:
    g = fit.guarantee
    lines = f"<p><strong>{escape(g.kind)}</strong>: {escape(g.statement)}</p>"
    lines += _facts(
        {"Assumed": list(g.assumed) or "nothing beyond the model", "Checked": list(g.checked) or "nothing in this run", **facts}
    )
    return _section("How far to trust it", lines)


def _summary(fit: Fit) -> str:
    table = fit.summary().drop(columns=["ess_bulk", "ess_tail", "r_hat"])
    rows = []
    for name, row in table.iterrows():
        places = _places(row["sd"], 3)
        rows.append([str(name), *(_fixed(row[c], places) for c in table.columns[:-1]), _figure(row["mcse_mean"], 2)])
    content = _folded(f"{len(rows)} parameters", _table(["parameter", *table.columns], rows), len(rows))
    return _section("Posterior", content)


def _cost(fit: Fit) -> str:
    cost, n = fit.cost(), fit.meta["rows"]
    rows = []
    for name, label in (("setup", "setup"), ("warmup", "warm-up"), ("draws", "draws")):
        part = cost[name]
        rows.append([label, _figure(part["evals"]), _figure(part["evals"] / n), _figure(part["seconds"])])
    each = cost["draws"]["evals_per_iteration"]
    facts = {
        "Evaluations per iteration": f"{_figure(each)} ({100 * each / n:.3g} % of the rows)",
        "Smallest effective size": _figure(cost["ess_min"]),
        "Evaluations per effective draw": _figure(cost["evals_per_ess"]),
        "Effective draws per second": _figure(cost["ess_per_second"]),
        "IF and CT": f"{_figure(cost['IF'])} iterations and {_figure(cost['CT'])} evaluations per effective draw",
        "Wall-clock time": f"{_figure(cost['seconds'])} s",
    }
    note = (
        '<p class="soft">An evaluation is one row at one parameter value; a pass is n of them. Seconds of warm-up and draws '
        "are summed over chains, compilation is in those of setup.</p>"
    )
    return _section("Cost", _table(["", "evaluations", "passes", "seconds"], rows) + note + _facts(facts))


def _diagnostics(fit: Fit) -> str:
    table = fit.summary()
    rows, classes = [], []
    for name, row in table.iterrows():
        rows.append([str(name), _figure(row["r_hat"], 4), _figure(row["ess_bulk"]), _figure(row["ess_tail"])])
        classes.append(
            ["", *("bad" if bad else "" for bad in (row["r_hat"] > APART, row["ess_bulk"] < FEW, row["ess_tail"] < FEW))]
        )
    note = f'<p class="soft">R-hat should be below {APART}, effective sizes above {FEW}; others are marked.</p>'
    numbers = measure(fit)
    facts = _facts(
        {"Longest stay at one point": f"{numbers.longest_stay:,} iterations", "Divergences": f"{numbers.divergences:,}"}
    )
    content = _table(["parameter", "R-hat", "ESS bulk", "ESS tail"], rows, classes)
    return _section("R-hat and effective sizes", note + _folded(f"{len(rows)} parameters", content, len(rows)) + facts)


def _plots(fit: Fit) -> str:
    captions = {
        "marginals": "Marginals: draws (bars) against the normal approximation at the mode (line).",
        "trace": "Traces: each colour is a chain; good chains overlap.",
        "cost": "Cost: evaluations per iteration, and passes over the data in total.",
    }
    figures = [
        _image(fit, kind, caption)
        for kind, caption in captions.items()
        if not (kind == "trace" and "weight" in fit.stats)  # a trace would ignore the weights
    ]
    return _section("Plots", "".join(figures))


def _origin(fit: Fit) -> str:
    meta = fit.meta
    kept = f"every {fit.thin}th iteration kept" if fit.thin > 1 else "every iteration kept"
    facts = {
        "Fingerprint of the rows": meta["fingerprint"],
        "Seed": str(meta.get("seed")),
        "Warm-up and thinning": f"{meta.get('warmup', '?')} iterations of warm-up, {kept}",
        "Versions": ", ".join(f"{k} {v}" for k, v in meta.get("versions", {}).items()),
        "Sampler options": str(meta.get("sampler", "")),
    }
    return _section("Where it comes from", _facts(facts) + _history(meta.get("history", [])))


def _history(entries: list[dict[str, Any]]) -> str:
    """The rows of an updated fit, batch by batch."""
    if not entries:
        return ""
    rows, total = [], 0
    for entry in entries:
        total += entry["rows"]
        source = (entry.get("source") or {}).get("path", "memory")
        moved = "" if entry.get("moved") is None else f"{entry['moved']:.2f}"
        anew = "" if "recentred" not in entry else ("yes" if entry["recentred"] else "no")
        rows.append([str(source), f"{entry['rows']:,}", f"{total:,}", moved, anew])
    header = ["Rows from", "Rows", "Total", "Mode moved, in posterior sd", "Reference searched for again"]
    return _folded("History of updates", _table(header, rows), len(rows))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _facts(facts: dict[str, Any]) -> str:
    lines = []
    for name, value in facts.items():
        if isinstance(value, list):
            text = f"<ul>{''.join(f'<li>{escape(str(v))}</li>' for v in value)}</ul>"
        else:
            text = escape(str(value))
        if text:
            lines.append(f"<dt>{escape(name)}</dt><dd>{text}</dd>")
    return f"<dl>{''.join(lines)}</dl>"


def _table(header: list[str], rows: list[list[str]], classes: list[list[str]] | None = None) -> str:
    head = "".join(f'<th scope="col">{escape(str(h))}</th>' for h in header)
    body = []
    for k, row in enumerate(rows):
        kinds = classes[k] if classes else [""] * len(row)
        cells = (f'<td class="{c}">{escape(v)}</td>' if c else f"<td>{escape(v)}</td>" for v, c in zip(row, kinds, strict=True))
        body.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def _listed(names: list[str], most: int = 5) -> str:
    shown = ", ".join(str(n) for n in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _figure(value: float, digits: int = 4) -> str:
    """A number people can read: 12,345 and 0.1234, not 1.2e4."""
    if not math.isfinite(value):
        return "–"
    return f"{value:.{digits}g}" if 0 < abs(value) < 1e-4 else _fixed(value, _places(value, digits))


def _fixed(value: float, places: int) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{value:.5g}" if abs(value) >= 1e12 or places > 9 else f"{value:,.{places}f}"


def _places(value: float, digits: int) -> int:
    """Decimal places that show `digits` digits of a number."""
    if not math.isfinite(value) or value == 0:
        return 0
    return max(0, digits - 1 - math.floor(math.log10(abs(value))))
