"""Is this version as fast as another one? Processor time of the same runs, the two versions taking turns.

    python -m benchmarks.versions FOLDER_OF_THE_OTHER_VERSION/src

Every run is warmed up first, so that nothing is compiled, and the fastest of three counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

RUN = """
import json, sys, time, warnings
import numpy as np, tallbayes as tb
warnings.simplefilter("ignore")
rng, n = np.random.default_rng(1), 200_000
X = np.column_stack([np.ones(n), rng.standard_normal((n, 9))])
y = (rng.random(n) < 1 / (1 + np.exp(-X @ np.linspace(-0.5, 0.5, 10)))).astype(float)
model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
mode, out = tb.find_mode(model, progress=False), {}
for name, draws in json.loads(sys.argv[1]).items():
    options = {"chains": 1, "cores": 1, "seed": 1, "mode": mode, "progress": False}
    tb.sample(model, name, draws=5, warmup=0, **options)
    seconds = []
    for _ in range(3):
        begun = time.process_time()
        fit = tb.sample(model, name, draws=draws, warmup=100, **options)
        seconds.append(time.process_time() - begun)
    out[name] = [min(seconds), float(fit.evals.mean())]
print(json.dumps(out))
"""
DRAWS = {"exact-minibatch": 100_000, "firefly": 20_000, "sgld": 20_000, "nuts": 60}


def measure(source: Path) -> dict[str, list[float]]:
    """Seconds and evaluations per draw of every run, with the package in `source`."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, "-c", RUN, json.dumps(DRAWS)]
    return json.loads(
        subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    )


def main() -> None:
    here, there = Path(__file__).resolve().parents[1] / "src", Path(sys.argv[1]).resolve()
    turns = [(measure(there), measure(here)) for _ in range(2)]
    print("| sampler, n = 200,000, d = 10 | draws | other version, s | this version, s | ratio |\n|---|---|---|---|---|")
    for name, draws in DRAWS.items():
        other, ours = (min(turn[k][name][0] for turn in turns) for k in (0, 1))
        print(f"| {name} | {draws:,} | {other:.3f} | {ours:.3f} | {ours / other:.2f} |")


if __name__ == "__main__":
    main()
