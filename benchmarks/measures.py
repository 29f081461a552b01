"""What a step of development is compared by: time of passes and iterations, rows read, signatures, arrays. Prints JSON lines.

    python -m benchmarks.measures SECTION ... [--quick] [--repeats 3] [--cases TEXT]

Run by `benchmarks.baseline`, in a process of its own for each version, with PYTHONPATH naming the sources. So everything here is said
in public names, but for the part that is marked "adapters". Nothing is compiled within what is timed.

passes      processor ns per row of value, gradient and Hessian over all rows; one core
families    exact minibatch, or HMC-ECS where no bound is certified, on every family: µs and evaluations per iteration; one core
samplers    every sampler on its standard problem: the same
modes       ms of a pass of 64 blocks and of searches for the mode; all cores, elapsed time
signatures  of `advance` that one process compiles for families, a JAX model, partitions and float32
arrays      in the target that compiled code is given
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tallbayes as tb
from benchmarks import standard

COUNTS = ("evaluations", "signatures", "arrays", "JAX / native")
"""Units of what hardly depends on the machine; all others are times."""


class Line(NamedTuple):
    """One measurement: the least of several if it is a time."""

    section: str
    case: str
    quantity: str
    unit: str
    value: float


class Size(NamedTuple):
    """How much is run."""

    quick: bool
    repeats: int
    cases: str  # only those whose name has it

    def rows(self, n: int) -> int:
        """Rows of a problem of n rows."""
        return min(n, 2000) if self.quick else n

    def draws(self, count: int) -> int:
        """Draws of a run of so many."""
        return min(count, 20) if self.quick else count

    def chosen(self, names: Any, quick: tuple[str, ...]) -> list[str]:
        """The names to run."""
        return [name for name in names if self.cases in name and (not self.quick or name in quick or bool(self.cases))]


class Run(NamedTuple):
    """A sampler on a problem of `benchmarks.standard`."""

    sampler: str | Callable[[], Any]
    draws: int
    case: str = "logistic"
    n: int = 20_000
    warmup: int = 200


ENOUGH = 10.0  # seconds of repeated runs, some of which have a long setup
LARGE = 400_000  # rows of the standard problem of samplers that read few
S = tb.samplers
RUNS = {
    "exact-minibatch, order 2": Run("exact-minibatch", 100_000, n=LARGE),
    "exact-minibatch, order 3": Run(lambda: S.ExactMinibatch(order=3), 100_000, n=LARGE),
    "exact-minibatch, float32": Run("exact-minibatch", 100_000, "logistic float32", LARGE),
    "hmc-ecs": Run("hmc-ecs", 2000, n=LARGE),
    "hmc-ecs-signed": Run("hmc-ecs-signed", 2000, n=LARGE),
    "hmc-ecs, softmax 3": Run("hmc-ecs", 500, "softmax 3"),
    "hmc-ecs, softmax 10": Run("hmc-ecs", 100, "softmax 10"),
    "hmc-ecs, logistic, 20,000 rows": Run("hmc-ecs", 1000),
    "hmc-ecs, JAX": Run("hmc-ecs", 1000, "JAX"),
    "sgld": Run("sgld", 50_000, n=LARGE),
    "sghmc": Run("sghmc", 5000, n=LARGE),
    "sgnht": Run("sgnht", 50_000, n=LARGE),
    "confidence": Run("confidence", 20_000, n=LARGE),
    "firefly": Run("firefly", 20_000, n=LARGE),
    "firefly, softmax 3": Run("firefly", 2000, "softmax 3"),
    "firefly, softmax 10": Run("firefly", 500, "softmax 10"),
    "zigzag": Run("zigzag", 5000, n=LARGE),
    "block-pseudo-marginal": Run("block-pseudo-marginal", 5000, n=LARGE),
    "minibatch-barker": Run("minibatch-barker", 5000, n=LARGE),
    "noise-exchange": Run(lambda: S.NoiseExchange(order=2), 2000, n=LARGE),
    "penalty-mh": Run("penalty-mh", 5000, n=LARGE),
    "delayed-acceptance": Run("delayed-acceptance", 2000),
    "mh": Run("mh", 2000),
    "mala": Run("mala", 1000),
    "hmc": Run("hmc", 100),
    "nuts": Run("nuts", 100),
    "slice": Run("slice", 300),
    "mode-jumping": Run("mode-jumping", 20_000),
    "pseudo-marginal-firefly": Run("pseudo-marginal-firefly", 1000),
    "rhee-glynn": Run("rhee-glynn", 2000),
    "mhsublhd": Run("mhsublhd", 300),
    "austerity": Run("austerity", 1000),
    "informed": Run("informed", 2000),
    "informed, arma": Run("informed", 2000, "arma"),
    "lwa": Run("lwa", 2000),
    "naive-subsampling": Run("naive-subsampling", 2000),
    "naive-hmc": Run("naive-hmc", 1000),
    "mh, class_gaussian": Run("mh", 1000, "class_gaussian"),
    "minibatch-gibbs, (1 | g)": Run("minibatch-gibbs", 500, "(1 | g)", 50_000),
    "minibatch-gibbs, (1 + x1 | g)": Run("minibatch-gibbs", 300, "(1 + x1 | g)", 50_000),
    "minibatch-gibbs, crossed": Run("minibatch-gibbs", 300, "crossed", 50_000),
    "surrogate-transition, ridge": Run("surrogate-transition", 2000, "ridge"),
    "surrogate-transition, horseshoe": Run("surrogate-transition", 2000, "horseshoe"),
}
QUICK = ("exact-minibatch, order 2", "hmc-ecs, logistic, 20,000 rows", "sgld", "mh", "logistic", "softmax 3", "poisson")

PASSES = [name for name in standard.FAMILIES if name != "arma"] + ["logistic float32", "sigma ~ x", "arma"]
SLOW = ("softmax 3", "softmax 10", "arma")  # fewer rows
NOT_LINEAR = ("arma", "class_gaussian")  # neither applies to rows without a linear predictor
NO_BOUND = ("student_t", "beta")
EIGHT = ("logistic", "probit", "poisson", "negbin", "gamma", "gaussian", "student_t, known", "softmax 3")


# Adapters: what is not public, or may move. Try the new name first and keep the old one.


def advance_signatures() -> int:
    """How many times this process has compiled, or loaded, the loop over iterations."""
    return len(tb.samplers.advance.signatures)


def target_of(sampler: Any, model: Any, mode: Any) -> Any:
    """What compiled code of a sampler is given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sampler.setup(model, mode, 1, False).target()


# End of the adapters.


def arrays(thing: Any) -> int:
    """Arrays in nested tuples.

    >>> arrays((np.zeros(2), (1, (np.zeros(3), 2.0)), "text"))
    2
    """
    if isinstance(thing, np.ndarray):
        return 1
    return sum(map(arrays, thing)) if isinstance(thing, tuple) else 0


def least(work: Callable[[], Any], repeats: int, clock: Callable[[], float] = time.process_time) -> float:
    """Seconds of the fastest of some calls; one more comes first, which compiles."""
    work()
    seconds = []
    for _ in range(repeats):
        begun = clock()
        work()
        seconds.append(clock() - begun)
    return min(seconds)


def one_core() -> None:
    """Keep this process on one core, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def quiet_mode(model: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tb.find_mode(model, progress=False)


def passes(size: Size) -> Iterator[Line]:
    one_core()
    for name in size.chosen(PASSES, QUICK):
        n = size.rows(50_000 if name in SLOW else 200_000)
        model = standard.make(name, n)
        theta = quiet_mode(model).reference
        for what, function in (("value", model.log_posterior), ("gradient", model.gradient), ("Hessian", model.curvature)):
            seconds = least(lambda f=function, theta=theta: f(theta), 3 * size.repeats)
            yield Line("passes", name, what, "ns per row", 1e9 * seconds / n)


def iterations(section: str, name: str, run: Run, size: Size) -> Iterator[Line]:
    """Two lines of a run: time and evaluations per iteration of its draws."""
    model = standard.make(run.case, size.rows(run.n))
    mode = quiet_mode(model)
    sampler = tb.samplers.resolve(run.sampler) if isinstance(run.sampler, str) else run.sampler()
    options: dict[str, Any] = {"chains": 1, "cores": 1, "seed": 1, "mode": mode, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tb.sample(model, sampler, draws=4, warmup=0, **options)  # compiled
        draws = size.draws(run.draws)
        fits: list[tb.Fit] = []
        begun = time.perf_counter()
        while len(fits) < size.repeats and (not fits or time.perf_counter() - begun < ENOUGH):
            fits.append(tb.sample(model, sampler, draws=draws, warmup=size.draws(run.warmup), **options))
    seconds = min(fit.seconds["draws"] for fit in fits)
    yield Line(section, name, "time", "µs per iteration", 1e6 * seconds / draws)
    yield Line(section, name, "evaluations", "evaluations", float(fits[0].evals.mean()))


def families(size: Size) -> Iterator[Line]:
    one_core()
    names = [name for name in [*standard.FAMILIES, "student_t, known", "sigma ~ x"] if name not in NOT_LINEAR]
    for name in size.chosen(names, QUICK):
        draws, n = (500, 20_000) if name in ("softmax 10", *NO_BOUND) else (20_000, 100_000)
        sampler = "hmc-ecs" if name in NO_BOUND else "exact-minibatch"
        label = f"{name}, {sampler}" if name in NO_BOUND else name
        yield from iterations("families", label, Run(sampler, draws, name, n), size)


def samplers(size: Size) -> Iterator[Line]:
    one_core()
    times = {}
    for name in size.chosen(RUNS, QUICK):
        for line in iterations("samplers", name, RUNS[name], size):
            times[name, line.quantity] = line.value
            yield line
    pair = [times.get((name, "time")) for name in ("hmc-ecs, JAX", "hmc-ecs, logistic, 20,000 rows")]
    if pair[0] and pair[1]:
        yield Line("samplers", "hmc-ecs, JAX over native", "ratio", "JAX / native", pair[0] / pair[1])


def modes(size: Size) -> Iterator[Line]:
    names = size.chosen(("64 blocks", "logistic", "softmax 3", "negbin", "student_t", "ordinal", "(1 | g)"), ("64 blocks",))
    for name in names:
        if name == "64 blocks":  # 1,024 rows each
            model = standard.make("logistic", 65_536)
            theta = np.full(model.dim, 0.1)
            seconds = least(lambda m=model, t=theta: m.gradient(t), 20 * size.repeats, time.perf_counter)
            yield Line("modes", "gradient of 64 blocks", "time", "ms", 1e3 * seconds)
        else:
            model = standard.make(name, size.rows(100_000))
            seconds = least(lambda m=model: quiet_mode(m), 2 * size.repeats, time.perf_counter)
            yield Line("modes", f"search, {name}", "time", "ms", 1e3 * seconds)


def signatures(size: Size) -> Iterator[Line]:
    for name in ("exact-minibatch", "hmc-ecs")[: 1 if size.quick else 2]:
        before, cases = advance_signatures(), [*EIGHT, "logistic float32"]
        if size.quick:
            cases = cases[:2]
        elif name == "hmc-ecs":
            cases.append("JAX")
        for number, case in enumerate(cases, 1):
            n = 2000
            drawn(standard.make(case, n), name)
            if case == "logistic":
                yield Line("signatures", f"{name}, one family", "signatures", "signatures", advance_signatures() - before)
            print(f"{name}: {number} of {len(cases)}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            standard.write_partitions(Path(folder), 4000)
            formula = "y ~ " + " + ".join(standard.NAMES[1:])
            with tb.shards.Partitions.open(f"{folder}/part-*.parquet", formula, "logistic", tb.priors.normal(2.0)) as rows:
                drawn(rows, name)
        label = f"{name}, {len(cases)} kinds of model and partitions"
        yield Line("signatures", label, "signatures", "signatures", advance_signatures() - before)


def drawn(model: Any, sampler: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tb.sample(model, sampler, draws=2, warmup=2, chains=1, seed=1, progress=False)


ARRAYS = [
    "exact-minibatch, order 2",
    "exact-minibatch, order 3",
    "hmc-ecs",
    "firefly",
    "firefly, softmax 3",
    "sgld",
    "confidence",
    "zigzag",
    "nuts",
    "mode-jumping",
    "minibatch-gibbs, (1 | g)",
    "minibatch-gibbs, crossed",
    "surrogate-transition, ridge",
]


def targets(size: Size) -> Iterator[Line]:
    for name in size.chosen(ARRAYS, QUICK):
        run = RUNS[name]
        sampler = tb.samplers.resolve(run.sampler) if isinstance(run.sampler, str) else run.sampler()
        model = standard.make(run.case, 2000)
        yield Line("arrays", name, "arrays", "arrays", arrays(target_of(sampler, model, quiet_mode(model))))


SECTIONS: dict[str, Callable[[Size], Iterator[Line]]] = {
    "signatures": signatures,  # first: what others compile in this process would be missing from its numbers
    "passes": passes,
    "families": families,
    "samplers": samplers,
    "modes": modes,
    "arrays": targets,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measures", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all if none")
    parser.add_argument("--quick", action="store_true", help="a few cases, few rows and draws: to see that it works")
    parser.add_argument("--repeats", type=int, default=3, help="of which the fastest counts")
    parser.add_argument("--cases", default="", metavar="TEXT", help="only cases whose name contains it")
    options = parser.parse_args()
    unknown = [name for name in options.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section is called {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    size = Size(options.quick, 1 if options.quick else options.repeats, options.cases)
    for section in [name for name in SECTIONS if name in (options.sections or SECTIONS)]:
        for line in SECTIONS[section](size):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
