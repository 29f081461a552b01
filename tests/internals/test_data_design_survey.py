"""Internals of `tallbayes.data.design_survey`; what users see of it is tested in test_formula.py."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tallbayes.data.design_survey import survey
from tallbayes.data.formula import parse
from tallbayes.errors import DataError

NAMES = ("y", "x", "z", "g", "h", "flag")


@pytest.fixture(autouse=True)
def stores(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TALLBAYES_STORE", str(tmp_path_factory.mktemp("stores")))


def frame_of(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.random(n),
            "x": 1000.0 + rng.random(n),
            "z": rng.exponential(size=n) + 0.1,
            "g": rng.choice(["ash", "birch", "cedar"], n),
            "h": rng.integers(3, 7, n),
            "flag": rng.random(n) < 0.5,
        }
    )


FRAME = frame_of()


def test_the_survey_counts_rows_and_keeps_json():
    general = parse("y ~ C(h) + poly(z, 2)", NAMES, {"g"})
    described, n = survey(general, pa.Table.from_pandas(FRAME).to_batches(max_chunksize=99))
    assert n == len(FRAME)
    assert json.loads(json.dumps(described)) == described
    with pytest.raises(DataError, match="no rows"):
        survey(general, [])
