"""Times and counts that are kept, and what has become of them since.

    python -m benchmarks.baseline --write [--tests MINUTES | --run-tests]   measure this version into benchmarks/baseline.json
    python -m benchmarks.baseline --against [COMMIT]                        ratios to a commit, that of the file unless one is named
    python -m benchmarks.baseline [--only SECTION ...] [--cases TEXT]       measure and print

Times of two days or two machines cannot be compared. So `--against` measures both versions in one run: the sources of the commit are
unpacked into build/baseline, both versions take turns, each section in a process of its own, and the least time of all turns counts. The
column `turns` has the ratios of single turns: where they differ as much as the ratio differs from 1, the ratio says nothing. Code
that was compiled stays in build/baseline; delete the folder when it is no longer needed. Close what else uses the machine.

What is measured: see `benchmarks.measures` and, for the section `first_call`, `benchmarks.first_call`. Counts, such as evaluations, are
exact. `BARS` has what a step may not exceed; `--against` ends with a table of them.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from benchmarks import first_call
from benchmarks.report import show

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_suffix(".json")
WORKERS = ("passes", "families", "samplers", "modes", "signatures", "arrays")
SECTIONS = (*WORKERS, "first_call", "tests")
COUNTS = ("evaluations", "signatures", "arrays")  # units that no clock is needed for
Key = tuple[str, str, str, str]  # section, case, quantity, unit
Measured = dict[Key, float]


class Bar(NamedTuple):
    """What a step may not exceed: patterns of section, case and quantity; the limit is of the ratio, or of the value itself."""

    what: str
    section: str
    cases: tuple[str, ...]
    quantity: str
    most: float
    of: str = "ratio"


FEW = ("exact-minibatch, order *", "hmc-ecs", "sgld", "confidence", "firefly")
ONE_INDEX = ("logistic", "probit", "poisson", "gaussian", "gamma", "logistic float32")
SEVERAL = ("softmax 3", "softmax 10", "negbin", "ordinal")
LATER = ("probit", "poisson", "gamma", "negbin", "student_t", "expression", "JAX")
BARS = (
    Bar("an iteration from few rows", "samplers", FEW, "time", 1.10),
    Bar("evaluations of it", "samplers", FEW, "evaluations", 1.01),
    Bar("exact minibatch and HMC-ECS on families", "families", ("*",), "time", 1.10),
    Bar("full gradient, one index", "passes", ONE_INDEX, "gradient", 1.05),
    Bar("full Hessian, one index", "passes", ONE_INDEX, "Hessian", 1.05),
    Bar("full gradient, several indices", "passes", SEVERAL, "gradient", 1.05),
    Bar("full Hessian, several indices", "passes", SEVERAL, "Hessian", 1.05),
    Bar("Firefly and HMC-ECS of softmax", "samplers", ("*, softmax *",), "time", 1.05),
    Bar("a pass of 64 blocks, searches for the mode", "modes", ("*",), "time", 1.10),
    Bar("first call of logistic regression", "first_call", ("logistic",), "empty cache", 1.0),
    Bar("first calls after it, s", "first_call", LATER, "after logistic", 2.0, "value"),
    Bar("signatures of advance", "signatures", ("*kinds*",), "signatures", 2, "value"),
    Bar("arrays in a target", "arrays", ("*",), "arrays", 12, "value"),
    Bar("HMC-ECS on a JAX model over native", "samplers", ("hmc-ecs, JAX over native",), "ratio", 3, "value"),
    Bar("make test, min", "tests", ("make test",), "time", 15, "value"),
)


def source() -> Path:
    """The folder of the package that this process would import."""
    found = importlib.util.find_spec("tallbayes")
    if found is None or found.origin is None:
        sys.exit("tallbayes is not installed, and its sources are not beside this folder: run from the root of the repository.")
    return Path(found.origin).parents[1]


def git(*arguments: str) -> str:
    """What git prints; ends with its message if it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"git {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def checkout(commit: str) -> Path:
    """Sources of a commit in build/baseline, where those of an earlier run are used again, compiled code included."""
    full = git("rev-parse", "--verify", f"{commit}^{{commit}}")
    folder = ROOT / "build" / "baseline" / full[:12]
    if not (folder / "src").is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            archive, unpacked = Path(name) / "src.tar", Path(name) / "unpacked"
            git("archive", "--output", str(archive), full, "src")
            with tarfile.open(archive) as tar:
                tar.extractall(unpacked, filter="data")
            unpacked.rename(folder)  # whole, or not there at all
    return folder / "src"


def measured(source: Path, section: str, options: argparse.Namespace) -> Measured:
    """One section with the package in `source`, in a process of its own."""
    if section == "first_call":
        cases = list(first_call.QUICK if options.quick else first_call.CASES)
        chosen = [case for case in cases if options.cases in case]
        rows = 2000 if options.quick else first_call.ROWS
        return collected(first_call.lines(source, chosen, n=rows))
    command = [
        sys.executable,
        "-m",
        "benchmarks.measures",
        section,
        "--cases",
        options.cases,
        "--repeats",
        str(options.repeats),
    ]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    with subprocess.Popen(
        [*command, *(["--quick"] if options.quick else [])], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        found = collected(json.loads(line) for line in process.stdout)
    if process.returncode:
        sys.exit(f"Measuring {section} with {source} failed with status {process.returncode}; its message is above.")
    return found


def collected(lines: Iterable[Any]) -> Measured:
    """Measurements by section, case, quantity and unit."""
    found = {}
    for section, case, quantity, unit, value in lines:
        found[section, case, quantity, unit] = float(value)
        print(f"  {section}: {case}, {quantity}: {value:.4g} {unit}", file=sys.stderr, flush=True)
    return found


def combined(turns: list[Measured]) -> Measured:
    """One value of several turns: the least of times, the median of counts and of what is a ratio itself."""
    keys = dict.fromkeys(key for turn in turns for key in turn)
    together = {}
    for key in keys:
        values = [turn[key] for turn in turns if key in turn]
        together[key] = statistics.median(values) if key[3] in COUNTS or key[2] == "ratio" else min(values)
    return together


def ratio(new: float, old: float) -> float:
    """New over old; of two zeros it is 1.

    >>> ratio(3.0, 2.0), ratio(0.0, 0.0), ratio(1.0, 0.0)
    (1.5, 1.0, inf)
    """
    return new / old if old else 1.0 if not new else float("inf")


def compared(old: list[Measured], new: list[Measured]) -> list[dict[str, Any]]:
    """A line for each thing that either version measured: both values, their ratio, and that of each turn."""
    first, last = combined(old), combined(new)
    lines = []
    for key in dict.fromkeys([*first, *last]):
        section, case, quantity, unit = key
        line: dict[str, Any] = {"section": section, "case": case, "quantity": quantity, "unit": unit}
        line |= {"before": first.get(key, ""), "now": last.get(key, "")}
        if key in first and key in last:
            line["ratio"] = ratio(last[key], first[key])
            turns = [ratio(b[key], a[key]) for a, b in zip(old, new, strict=True) if key in a and key in b]
            line["turns"] = " ".join(f"{turn:.2f}" for turn in turns)
        lines.append(line)
    return lines


def bars(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The worst case of each bar, of what was measured."""
    table = []
    for bar in BARS:
        column = "now" if bar.of == "value" else "ratio"
        found = [
            (line[column], line["case"])
            for line in lines
            if line["section"] == bar.section
            and line["quantity"] == bar.quantity
            and isinstance(line.get(column), float)
            and any(fnmatch(line["case"], pattern) for pattern in bar.cases)
        ]
        if found:
            worst, case = max(found)
            met = "yes" if worst <= bar.most else "no"
            table.append({"bar": bar.what, "of": bar.of, "at most": bar.most, "worst": worst, "case": case, "met": met})
        else:
            table.append({"bar": bar.what, "of": bar.of, "at most": bar.most, "worst": "", "case": "not measured", "met": ""})
    return table


def run_tests() -> float:
    """Minutes of `make test` with an empty compile cache."""
    with tempfile.TemporaryDirectory() as cache:
        begun = time.perf_counter()
        if subprocess.call(["make", "test"], cwd=ROOT, env={**os.environ, "NUMBA_CACHE_DIR": cache}):
            sys.exit("make test failed, so its minutes are not kept; its message is above.")
        return (time.perf_counter() - begun) / 60.0


def minutes(options: argparse.Namespace) -> Measured:
    """Those of `make test`, if they were given or asked for."""
    taken = options.tests if options.tests is not None else run_tests() if options.run_tests else None
    return {} if taken is None else {("tests", "make test", "time", "min"): float(taken)}


def machine() -> dict[str, Any]:
    """Where the numbers come from."""
    packages = {name: version(name) for name in ("numpy", "numba", "llvmlite")}
    return {"processor": processor(), "cores": os.cpu_count(), "python": platform.python_version(), **packages}


def processor() -> str:
    """Its name, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def read(file: Path) -> dict[str, Any]:
    """What is kept."""
    if not file.exists():
        sys.exit(f"{file} does not exist; name a commit, or write it first: python -m benchmarks.baseline --write")
    return json.loads(file.read_text())


def lines_of(kept: dict[str, Any]) -> Measured:
    """Measurements of the file."""
    return {(line["section"], line["case"], line["quantity"], line["unit"]): line["value"] for line in kept["lines"]}


def write(file: Path, found: Measured, commit: str, quick: bool, replaced: tuple[str, ...]) -> None:
    """Put measurements into the file; sections that were not measured stay if they belong to the same sources."""
    before: Measured = {}
    if file.exists():
        kept = read(file)
        if kept["commit"] == commit or not git("diff", "--name-only", kept["commit"], commit, "--", "src"):
            before = {key: value for key, value in lines_of(kept).items() if key[0] not in replaced}
    order = {section: at for at, section in enumerate(SECTIONS)}
    together = sorted({**before, **found}.items(), key=lambda item: order[item[0][0]])
    names = ("section", "case", "quantity", "unit")
    lines = [json.dumps({**dict(zip(names, key, strict=True)), "value": float(f"{value:.6g}")}) for key, value in together]
    head = {
        "commit": commit,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "quick": quick,
        "machine": machine(),
    }
    text = json.dumps(head, indent=1)[:-2] + ',\n "lines": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"
    file.write_text(text)


def committed(file: Path, quick: bool) -> str:
    """The commit whose sources are measured; ends if there is none."""
    if quick:
        if file == FILE:
            sys.exit("--quick measures too little to be kept: name another file with --file, or leave out --quick.")
        return git("rev-parse", "HEAD")
    if source() != ROOT / "src":
        sys.exit(
            f"PYTHONPATH names the sources in {source()}, which are not those of this repository: --write would keep a wrong commit."
        )
    if git("status", "--porcelain", "--", "src"):
        sys.exit(
            "There are changes in src that are not committed: commit them first, so that the file names the sources it was made with."
        )
    return git("rev-parse", "HEAD")


def sections(options: argparse.Namespace) -> Iterator[str]:
    """Those to measure by clocks and counts of our own, which the tests are not."""
    chosen = options.only or [name for name in SECTIONS if not (name == "first_call" and options.without_first_call)]
    return (name for name in chosen if name != "tests")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.baseline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true", help="keep what is measured in benchmarks/baseline.json")
    what.add_argument(
        "--against", nargs="?", const="", metavar="COMMIT", help="ratios to a commit; without one, to that of the file"
    )
    parser.add_argument("--only", nargs="+", choices=SECTIONS, metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--without-first-call", action="store_true", help="all sections but that one, which takes longest")
    parser.add_argument("--cases", default="", metavar="TEXT", help="only cases whose name contains it")
    parser.add_argument("--rounds", type=int, help="turns of each version; 2 with --against, else 1")
    parser.add_argument("--repeats", type=int, default=3, help="runs within a turn, of which the fastest counts")
    tests = parser.add_mutually_exclusive_group()
    tests.add_argument("--tests", type=float, metavar="MINUTES", help="how long `make test` took with an empty compile cache")
    tests.add_argument("--run-tests", action="store_true", help="run `make test` with an empty compile cache and measure it")
    parser.add_argument("--quick", action="store_true", help="a few cases, few rows and draws: to see that it works")
    parser.add_argument("--file", type=Path, default=FILE, help="another file than benchmarks/baseline.json")
    options = parser.parse_args()
    if options.rounds is None:
        options.rounds = 1 if options.against is None else 2
    if min(options.rounds, options.repeats) < 1:
        parser.error("--rounds and --repeats must be at least 1")
    return options


def rounds(section: str, options: argparse.Namespace) -> range:
    """Turns of a section: one where nothing is timed."""
    return range(1 if section in ("signatures", "arrays") else options.rounds)


def against(options: argparse.Namespace) -> None:
    """Both versions in turns, and the tables."""
    commit = options.against or read(options.file)["commit"]
    old, new = checkout(commit), source()
    before: list[Measured] = [{} for _ in range(options.rounds)]
    now: list[Measured] = [{} for _ in range(options.rounds)]
    for section in sections(options):
        for turn in rounds(section, options):
            for label, folder, into in (("before", old, before), ("now", new, now)):
                print(f"{section}, turn {turn + 1}, {label}", file=sys.stderr, flush=True)
                into[turn] |= measured(folder, section, options)
    now[0] |= minutes(options)
    if options.file.exists():
        before[0] |= {key: value for key, value in lines_of(read(options.file)).items() if key[0] == "tests"}
    lines = compared(before, now)
    note = f"before: {commit}; now: {new}. Ratio: now / before, of the least of {options.rounds} turns."
    show("Ratios to the baseline", lines, note)
    show("Bars", bars(lines))


def main() -> None:
    options = parsed()
    if options.against is not None:
        against(options)
        return
    commit = committed(options.file, options.quick) if options.write else ""  # before an hour is spent
    turns: list[Measured] = []
    for section in sections(options):
        turns += [measured(source(), section, options) for _ in rounds(section, options)]
    found = combined([*turns, minutes(options)])
    rows = [
        dict(zip(("section", "case", "quantity", "unit", "value"), (*key, value), strict=True)) for key, value in found.items()
    ]
    show("Baseline", rows)
    if options.write:
        replaced = tuple({key[0] for key in found}) if not options.cases else ()
        write(options.file, found, commit, options.quick, replaced)
        Console().print(f"kept in {options.file}")


if __name__ == "__main__":
    main()
