"""Nanoseconds per row of the engine beside C, NumPy with BLAS, and JAX: logistic regression, one thread each.

C and tallbayes read the same packed records; NumPy and JAX get contiguous arrays of their own. Four kernels: differences of
Taylor residuals of random rows at two thetas, and the value, gradient and Hessian of a full pass. Contenders take turns, in
an order drawn anew for every repetition because each finds the caches as another left them; the fastest repetition of each
counts, in processor time. Results are compared with C's before anything is timed.

    python -m benchmarks.engine [--quick] [--json FILE]
"""

from __future__ import annotations

import os

os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1"))
os.environ["JAX_PLATFORMS"] = "cpu"

import argparse
import ctypes
import functools
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import report
from tallbayes.data import records as packed
from tallbayes.engine import passes
from tallbayes.engine.rows import one_index
from tallbayes.families.logistic import Logistic

KERNELS = ("residuals", "value", "gradient", "hessian")
CONTENDERS = ("C", "tallbayes", "numpy", "jax")
TOLERANCE = {"float64": 1e-8, "float32": 1e-3}  # NumPy and JAX multiply float32 in float32
GOAL = 1.5
FLAGS = ("-O3", "-march=native", "-ffast-math", "-shared", "-fPIC")


class Problem(NamedTuple):
    """Rows, three points, and a random order of the rows."""

    records: np.ndarray
    x: np.ndarray
    y: np.ndarray
    offset: np.ndarray
    weight: np.ndarray
    index: np.ndarray
    reference: np.ndarray
    theta: np.ndarray
    other: np.ndarray


Kernels = dict[str, Callable[[], Any]]


def problem(n: int, d: int, dtype: str) -> Problem:
    rng = np.random.default_rng(d)
    x = rng.standard_normal((n, d), np.float32).astype(dtype)
    y, offset, weight = rng.integers(0, 2, n), 0.1 * rng.standard_normal(n), 0.5 + rng.random(n)
    records = packed.empty(n, d, np.dtype(dtype))
    packed.pack(records, x, y, offset, weight)
    y, offset, weight = (records[:, d + k].astype(np.float64) for k in range(3))
    reference, theta, other = rng.standard_normal((3, d)) / np.sqrt(d)
    index = rng.permutation(n)
    return Problem(records, x, y, offset, weight, index, reference, reference + 0.3 * theta, reference + 0.3 * other)


def build(folder: Path, dtype: str) -> ctypes.CDLL:
    compiler = next(filter(None, map(shutil.which, ("gcc", "cc", "clang"))), None)
    if compiler is None:
        sys.exit("No C compiler: install gcc (or cc, clang) to build the C reference this benchmark compares with.")
    library = folder / f"reference_{dtype}.so"
    kind = "double" if dtype == "float64" else "float"
    source = Path(__file__).with_name("reference.c")
    command = [compiler, *FLAGS, f"-DT={kind}", str(source), "-o", str(library), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"The C reference does not compile:\n{' '.join(command)}\n{done.stderr}")
    loaded = ctypes.CDLL(str(library))
    for name in KERNELS[1:]:
        getattr(loaded, name).restype = ctypes.c_double
    return loaded


def c_kernels(p: Problem, library: ctypes.CDLL) -> Kernels:
    n, d = p.x.shape
    out, gradient, hessian = np.empty(n), np.empty(d), np.empty((d, d))
    head = (_address(p.records), p.records.shape[1], d)
    rows = (*head, ctypes.c_int64(n), _address(p.theta))

    def residuals() -> np.ndarray:
        points = map(_address, (p.theta, p.other, p.reference, out))
        library.residuals(*head, _address(p.index), ctypes.c_int64(n), *points)
        return out

    def with_gradient() -> tuple[float, np.ndarray]:
        gradient[:] = 0.0
        return library.gradient(*rows, _address(gradient)), gradient

    def with_hessian() -> tuple[float, np.ndarray, np.ndarray]:
        gradient[:], hessian[:] = 0.0, 0.0
        return library.hessian(*rows, _address(gradient), _address(hessian)), gradient, hessian

    return dict(zip(KERNELS, (residuals, lambda: library.value(*rows), with_gradient, with_hessian), strict=True))


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def tallbayes_kernels(p: Problem) -> Kernels:
    n, d = p.x.shape
    rows = one_index(Logistic(), p.records, d)
    out, gradient, hessian = np.empty(n), np.empty(d), np.empty((d, d))

    def residuals() -> np.ndarray:
        passes._residuals(rows, p.index, p.theta, p.other, p.reference, out)
        return out

    def with_gradient() -> tuple[float, np.ndarray]:
        gradient[:] = 0.0
        return passes._gradient(rows, 0, n, p.theta, gradient), gradient

    def with_hessian() -> tuple[float, np.ndarray, np.ndarray]:
        gradient[:], hessian[:] = 0.0, 0.0
        return passes._hessian(rows, 0, n, p.theta, gradient, hessian), gradient, hessian

    return dict(zip(KERNELS, (residuals, lambda: passes._value(rows, 0, n, p.theta), with_gradient, with_hessian), strict=True))


def array_functions(np: Any) -> tuple[Callable, ...]:
    """The kernels in array notation, for NumPy and for JAX."""

    def softplus(eta):
        return np.maximum(eta, 0.0) + np.log1p(np.exp(-np.abs(eta)))

    def residuals(p, points):
        eta = (p.x[p.index] @ points).astype(np.float64)
        base, first, second = eta[:, 0] + p.offset[p.index], eta[:, 1], eta[:, 2]
        mean = 1.0 / (1.0 + np.exp(-base))
        slope = mean + 0.5 * mean * (1.0 - mean) * (first + second)
        return p.weight[p.index] * (softplus(base + first) - softplus(base + second) + (second - first) * slope)

    def predictor(p):
        return (p.x @ p.theta.astype(p.x.dtype)).astype(np.float64) + p.offset

    def value(p):
        eta = predictor(p)
        return p.weight @ (p.y * eta - softplus(eta))

    def gradient(p):
        eta = predictor(p)
        slope = p.weight * (p.y - 1.0 / (1.0 + np.exp(-eta)))
        return p.weight @ (p.y * eta - softplus(eta)), slope.astype(p.x.dtype) @ p.x

    def hessian(p):
        eta = predictor(p)
        mean = 1.0 / (1.0 + np.exp(-eta))
        slope, curvature = p.weight * (p.y - mean), -p.weight * mean * (1.0 - mean)
        gram = p.x.T @ (curvature.astype(p.x.dtype)[:, None] * p.x)
        return p.weight @ (p.y * eta - softplus(eta)), slope.astype(p.x.dtype) @ p.x, gram

    return residuals, value, gradient, hessian


def _points(p: Problem) -> np.ndarray:
    return np.column_stack([p.reference, p.theta - p.reference, p.other - p.reference]).astype(p.x.dtype)


def numpy_kernels(p: Problem) -> Kernels:
    residuals, *others = array_functions(np)
    functions = (functools.partial(residuals, points=_points(p)), *others)
    return {name: functools.partial(f, p) for name, f in zip(KERNELS, functions, strict=True)}


def jax_kernels(p: Problem) -> Kernels:
    import jax

    jax.config.update("jax_enable_x64", True)
    residuals, *others = (jax.jit(f) for f in array_functions(jax.numpy))
    functions = (functools.partial(residuals, points=jax.numpy.asarray(_points(p))), *others)
    resident = Problem(*map(jax.numpy.asarray, p))
    return {
        name: functools.partial(lambda f: jax.block_until_ready(f(resident)), f)
        for name, f in zip(KERNELS, functions, strict=True)
    }


def disagreement(got: Any, expected: Any) -> float:
    """Largest difference of any part of two results, relative to the largest element of the part."""
    if isinstance(expected, tuple):
        return max(map(disagreement, got, expected))
    got, expected = (np.tril(part) if np.ndim(part) == 2 else np.asarray(part) for part in (got, expected))
    return float(np.max(np.abs(got - expected)) / np.max(np.abs(expected)))


def measure(d: int, n: int, dtype: str, library: ctypes.CDLL, repetitions: int) -> list[dict[str, Any]]:
    p = problem(n, d, dtype)
    contenders = {"C": c_kernels(p, library), "tallbayes": tallbayes_kernels(p), "numpy": numpy_kernels(p)}
    if importlib.util.find_spec("jax") is not None:
        contenders["jax"] = jax_kernels(p)
    lines, order = [], np.random.default_rng(0)
    for kernel in KERNELS:
        expected = contenders["C"][kernel]()
        for name, kernels in contenders.items():
            error = disagreement(kernels[kernel](), expected)
            if not error <= TOLERANCE[dtype]:
                sys.exit(f"{name} and C disagree on {kernel}, d = {d}, {dtype}: relative difference {error:.1e}")
        fastest = dict.fromkeys(contenders, np.inf)
        for _ in range(repetitions):
            for name in order.permutation(list(contenders)):
                start = time.process_time()
                contenders[name][kernel]()
                fastest[name] = min(fastest[name], time.process_time() - start)
        times = {name: seconds / n * 1e9 for name, seconds in fastest.items()}
        ratio = times["tallbayes"] / times["C"]
        lines.append({"kernel": kernel, "d": d, "dtype": dtype, "n": n, "nanoseconds": times, "ratio": ratio})
    return lines


def show(lines: list[dict[str, Any]], console: Console) -> None:
    table = Table(title="processor ns per row, one thread", caption=f"ratio: tallbayes / C, goal at most {GOAL}")
    for heading in ("kernel", "d", "type", *CONTENDERS, "ratio"):
        table.add_column(heading, justify="left" if heading in ("kernel", "type") else "right")
    for line in sorted(lines, key=lambda line: KERNELS.index(line["kernel"])):
        times = [f"{line['nanoseconds'][name]:.1f}" if name in line["nanoseconds"] else "–" for name in CONTENDERS]
        colour = "green" if line["ratio"] <= GOAL else "red"
        table.add_row(line["kernel"], str(line["d"]), line["dtype"], *times, f"[{colour}]{line['ratio']:.2f}[/]")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="d = 10 and 200,000 rows only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements to FILE")
    parser.add_argument("--write", action="store_true", help="put the table into docs/results")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # XLA has no reliable switch for one thread: a single core leaves it no choice
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    sizes = [(10, 200_000)] if options.quick else [(10, 1_000_000), (30, 1_000_000), (100, 300_000)]
    console, lines = Console(), []
    with tempfile.TemporaryDirectory() as folder:
        libraries = {dtype: build(Path(folder), dtype) for dtype in TOLERANCE}
        for d, n in sizes:
            for dtype, library in libraries.items():
                with console.status(f"d = {d}, {dtype}"):
                    lines += measure(d, n, dtype, library, repetitions=30 if options.quick else 8)
    show(lines, console)
    if options.json:
        options.json.write_text(json.dumps(lines, indent=1) + "\n")
    if options.write:
        write_results(lines)


def write_results(lines: list[dict[str, Any]]) -> None:
    """Nanoseconds per row of every contender, and the ratio to C, into docs/results."""
    rows = [
        {
            "kernel": line["kernel"],
            "d": line["d"],
            "rows as": line["dtype"],
            **{who: round(value, 1) for who, value in line["nanoseconds"].items()},
            "tallbayes / C": round(line["ratio"], 2),
        }
        for line in lines
    ]
    worst = max(line["ratio"] for line in lines)
    note = f"Processor nanoseconds per row, one thread, least of eight repetitions. Largest ratio to C: {worst:.2f}."
    report.write("engine", rows, note)


if __name__ == "__main__":
    main()
