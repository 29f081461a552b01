"""Predictions of many files: each by itself, on the workers of a cluster or one at a time here; finished ones are not made again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.data.file_partitions import files_of, join_files
from tallbayes.errors import OptionError
from tallbayes.remote.pool import connect, gather
from tallbayes.results.predict import STAMP, predict, some_theta
from tallbayes.streams import Stream, sequence

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit


def predict_files(
    fit: Fit,
    paths: Any,
    out: str | Path | None,
    client: Any,
    kind: str,
    prob: float,
    draws: int,
    seed: int,
    progress: bool = False,
) -> Path:
    """Write a file of predictions for every file of `paths` into the folder `out`."""
    if out is None:
        raise OptionError("predictions of many files are written to a folder: give out=.")
    files, folder = files_of(paths), Path(out).absolute()
    targets = [folder / f"{Path(name).stem}.parquet" for name in files]
    if len(set(targets)) < len(targets):
        raise OptionError("two files have the same name, and so would their predictions; predict their folders one by one.")
    folder.mkdir(parents=True, exist_ok=True)
    theta, weights = some_theta(fit, draws, seed)
    light = replace(fit, theta=theta[None], stats={"weight": weights[None]}, data=None, reference=None)
    asked = json.dumps(
        [kind, prob, seed, fit.meta["model"], fit.meta["plan"], fit.meta["columns"]], sort_keys=True, default=str
    )
    digest = hashlib.blake2b(asked.encode() + theta.tobytes() + weights.tobytes(), digest_size=16).hexdigest()
    jobs = []
    for number, (name, target) in enumerate(zip(files, targets, strict=True)):
        own = int(sequence(seed, Stream.RESPONSES, 1 << 20, number).generate_state(1, np.uint64)[0])  # noise of its own
        jobs.append((light, name, str(target), kind, prob, own, digest))
    gather(_predict_file, jobs, connect(client), label="partitions", progress=progress, workers=1)
    return folder


def _predict_file(fit: Fit, name: str, target: str, kind: str, prob: float, seed: int, digest: str) -> bool:
    """Predict one file unless that is done; whether it was to be done."""
    stamp = hashlib.blake2b((digest + json.dumps(join_files([name]).identity)).encode(), digest_size=16).hexdigest()
    if _stamp_of(Path(target)) == stamp:
        return False
    predict(fit, name, kind, prob, fit.theta.shape[1], seed, None, target, stamp=stamp)
    return True


def _stamp_of(path: Path) -> str | None:
    """What the file of predictions was made from; None if there is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return (pq.read_schema(path).metadata or {}).get(STAMP, b"").decode()
    except (OSError, pa.ArrowException):
        return None
