"""Bright rows of Firefly as n grows at fixed d: a tuned bound has O(d) of them, whatever n.

python -m experiments.s3_scaling [--quick] [--write]
"""

from __future__ import annotations

import argparse
from typing import Any

import tallbayes as tb
from benchmarks.problems import synthetic_rows
from benchmarks.report import show
from experiments.s3_table1 import measure
from tallbayes.proxies.lower_bounds import lower_bound, predicted_brightness


def row_of(n: int, d: int, draws: int) -> dict[str, Any]:
    model = tb.models.logistic(tb.Dataset.from_arrays(*synthetic_rows(n, d)), tb.priors.normal(3.0))
    mode = tb.find_mode(model, progress=False)
    row: dict[str, Any] = {"n": n, "d": d, "predicted bright": predicted_brightness(mode, lower_bound(mode)[0])}
    tuned = measure(mode, tb.samplers.Firefly(), draws, 1000)
    row |= {
        "bright": tuned["bright"],
        "evaluations per iteration": tuned["queries"],
        "CPU us per iteration": 1e6 * tuned["seconds"],
        "effective per 1000": tuned["per 1000"],
        "bright, taylor": measure(mode, tb.samplers.Firefly(bound="taylor"), draws, 1000)["bright"],
    }
    loose = tb.samplers.Firefly(bound="untuned", rate=0.1)
    row["bright, untuned"] = measure(mode, loose, max(20, min(draws, 3_000_000 // n)), 20, chains=1)["bright"]
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    cases = [(2000, 5)] if options.quick else [(n, 10) for n in (10_000, 100_000, 1_000_000)] + [(100_000, 20), (100_000, 40)]
    rows = [row_of(n, d, 200 if options.quick else 10_000) for n, d in cases]
    show(
        "Firefly: bright rows as n grows",
        rows,
        "Random walk, two chains. Predicted: half the trace of (H - H_B) P^-1.",
        "s3-scaling" if options.write else None,
    )


if __name__ == "__main__":
    main()
