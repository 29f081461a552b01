"""Every experiment, one after the other: what is finished is recorded and not run again.

python -m experiments.all --list | --quick | --full [--write] [--only NAME ...] [--again] [--folder DIR]

`--quick` runs each with few rows and draws, to see that it works; `--full` is what docs/results reports, and takes hours. Interrupt it
at any time: the same command goes on with the first experiment that is not finished. `--again` runs them anew. Output of each is in a
file of its own beside the record, in build/experiments unless `--folder` says otherwise.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from experiments.scoreboard import Experiment, experiments

ROOT = Path(__file__).parent.parent


def listing(found: list[Experiment], finished: dict[str, dict[str, object]]) -> Table:
    """Name, estimated minutes, what it reproduces, and whether it is finished."""
    table = Table(title="Experiments")
    for column in ("experiment", "minutes", "quick, s", "reproduces", "finished"):
        table.add_column(column)
    for item in found:
        done = [mode for mode in ("quick", "full") if finished.get(f"{item.name} {mode}", {}).get("status") == 0]
        table.add_row(item.name, f"{item.minutes:g}", f"{item.quick:g}", item.reproduces, ", ".join(done))
    total, quick = sum(e.minutes for e in found), sum(e.quick for e in found)
    table.caption = f"{len(found)} experiments; --full takes about {total:.0f} minutes, --quick about {quick / 60:.0f}"
    return table


def command(item: Experiment, mode: str, write: bool) -> list[str]:
    """What is run; tables are written only by a full run."""
    options = ["--quick"] if mode == "quick" else [*item.arguments, *(["--write"] if write else [])]
    return [sys.executable, "-m", f"experiments.{item.name}", *options]


def run_all(found: list[Experiment], mode: str, write: bool, again: bool, folder: Path) -> int:
    """Run what is not finished; returns the number of experiments that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "finished.json"
    finished = read_record(record)
    left = [e for e in found if again or finished.get(f"{e.name} {mode}", {}).get("status") != 0]
    estimate = {e.name: (e.quick if mode == "quick" else 60.0 * e.minutes) for e in left}
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn())
    failed = 0
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(f"{len(left)} of {len(found)} to run", total=sum(estimate.values()) or 1.0)
        for number, item in enumerate(left, 1):
            rest = sum(estimate[e.name] for e in left[number - 1 :]) / 60.0
            progress.update(task, description=f"{number}/{len(left)} {item.name}, about {rest:.0f} min left")
            begun = time.perf_counter()
            with (folder / f"{item.name}.{mode}.log").open("w") as log:
                status = subprocess.call(command(item, mode, write), cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
            seconds = time.perf_counter() - begun
            finished[f"{item.name} {mode}"] = {"status": status, "seconds": round(seconds, 1)}
            record.write_text(json.dumps(finished, indent=1))
            failed += status != 0
            outcome = "finished" if status == 0 else f"failed; see {folder / f'{item.name}.{mode}.log'}"
            progress.console.print(f"{item.name}: {outcome} after {seconds:.0f} s (estimated {estimate[item.name]:.0f})")
            progress.advance(task, estimate[item.name])
    return failed


def read_record(path: Path) -> dict[str, dict[str, object]]:
    """What earlier runs finished."""
    return json.loads(path.read_text()) if path.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument(
        "--list", action="store_true", help="experiments, estimated times, what they reproduce, which are finished"
    )
    mode.add_argument("--quick", action="store_true", help="run all with few rows and draws")
    mode.add_argument("--full", action="store_true", help="run all as docs/results reports them")
    parser.add_argument("--write", action="store_true", help="with --full: put tables and figures into docs/results")
    parser.add_argument("--only", nargs="+", default=None, metavar="NAME", help="these experiments alone")
    parser.add_argument("--again", action="store_true", help="run finished ones anew")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "experiments", help="record and output")
    options = parser.parse_args()
    found = experiments()
    unknown = set(options.only or ()) - {e.name for e in found}
    if unknown:
        parser.error(f"no experiment is called {', '.join(sorted(unknown))}; --list shows their names")
    found = [e for e in found if options.only is None or e.name in options.only]
    if options.list:
        Console(width=150).print(listing(found, read_record(options.folder / "finished.json")))
        return
    if run_all(found, "quick" if options.quick else "full", options.write, options.again, options.folder):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
