"""Damaged files: a byte changed anywhere in a saved fit or a checkpoint is refused before anything parses it."""

import subprocess
import sys

import numpy as np
import pytest

import tallbayes as tb

SCRIPT = """
import pathlib, sys, numpy as np, tallbayes as tb
path, refused = pathlib.Path(sys.argv[1]), 0
original, rng = path.read_bytes(), np.random.default_rng(int(sys.argv[2]))
for k in range(300):
    damaged = bytearray(original)
    for at in rng.integers(0, len(original), rng.integers(1, 4)):
        damaged[at] ^= int(rng.integers(1, 256))
    path.write_bytes(damaged if k % 10 else original[: int(rng.integers(0, len(original)))])
    try:
        tb.load(path)
    except tb.StoreError:
        refused += 1
path.write_bytes(original)
tb.load(path)
print("refused", refused)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage")
    model = tb.models.gaussian(tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0)), sigma=10.0)
    fit = tb.sample(model, "hmc", draws=150, warmup=50, chains=2, seed=1, progress=False, checkpoint=folder / "run")
    return model, fit.save(folder / "fit.nc"), folder / "run"


def test_every_damaged_fit_is_refused_in_time(run):
    """In a process of its own, because nothing ends a hang inside the HDF5 library."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(run[1]), "5"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["refused", "300"]


def test_nothing_of_a_damaged_fit_is_parsed(run, monkeypatch, tmp_path):
    import xarray

    def never(*arguments, **options):
        raise AssertionError("a damaged file was parsed")

    monkeypatch.setattr(xarray, "open_datatree", never)
    path = tmp_path / "fit.nc"
    content = bytearray(run[1].read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(tb.StoreError, match="changed since it was written"):
        tb.load(path)
