"""What the commands print of a fit, and how they end."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any


def show(result: Any, out: Path | None, plots: Path | None, as_json: bool) -> None:
    """Print the posterior of a fit, as a table or as JSON; save it and its plots on request."""
    from tallbayes.results.report import warnings_of

    table = result.summary()
    if as_json:
        rows = json.loads(table.to_json(orient="index"))
        facts = {"status": result.status, "guarantee": str(result.guarantee), "why": result.why}
        if result.meta.get("assumed_family"):
            facts["assumed_family"] = result.meta["assumed_family"]
        facts["warnings"] = warnings_of(result)
        print(json.dumps({**facts, "cost": _strict(result.cost()), "summary": rows}, indent=1, allow_nan=False))
    else:
        print(table)
        if result.why.startswith("auto chose"):
            print(result.why)
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
        for kind in ("forest", "trace", "marginals", "cost", *(["levels"] if result.levels else [])):
            result.plot(kind, plots / f"{kind}.png")
    if out is not None:
        saved = result.save(out)
        if not as_json:
            print(f"saved to {saved}")


def end_run(result: Any, checkpoint: Path | None) -> None:
    """Say on standard error that a run was stopped, and how to continue it; Ctrl-C gives exit code 130."""
    from tallbayes.errors import StoppedError

    if result.status == "interrupted":
        message = "interrupted; the result contains the draws so far."
        raise StoppedError(message, result.status, None if checkpoint is None else str(checkpoint))
    if result.status == "time limit" and checkpoint is not None:
        print(continuation(checkpoint), file=sys.stderr)


def continuation(folder: Path | str) -> str:
    """The command that continues a run.

    >>> continuation("run")
    'continue the run with: tallbayes resume run'
    """
    return f"continue the run with: tallbayes resume {folder}"


def _strict(value: Any) -> Any:
    """The value with null for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {k: _strict(v) for k, v in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
