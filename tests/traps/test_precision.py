"""Trap: float32 records of a response around 1e8 with standard deviation 1 have lost it. Truth: a slope of 0.5."""

import numpy as np
import pyarrow as pa
import pytest

import tallbayes as tb
from tallbayes.errors import DataError


def rows(level):
    rng = np.random.default_rng(3)
    x = rng.standard_normal(5_000)
    return x, level + 0.5 * x + rng.standard_normal(5_000)


def test_a_response_that_float32_destroys_is_refused():
    x, y = rows(1e8)
    X = np.column_stack([np.ones(x.size), x])
    with pytest.raises(DataError, match=r"float32 does not keep the variation of 'y'.*float64"):
        tb.Dataset.from_arrays(X, y, dtype="float32")
    with pytest.raises(DataError, match="float32 does not keep the variation of 'y'"):
        tb.read(pa.table({"x": x, "y": y}), "y ~ x", dtype="float32", progress=False)
    mode = tb.find_mode(tb.models.gaussian(tb.Dataset.from_arrays(X, y)), progress=False)
    assert mode.reference[1] == pytest.approx(0.5, abs=0.1)


def test_an_offset_and_a_column_are_checked_too():
    x, y = rows(0.0)
    with pytest.raises(DataError, match="of 'offset'"):
        tb.Dataset.from_arrays(np.ones((x.size, 1)), y, offset=1e9 + x, dtype="float32")
    with pytest.raises(DataError, match="of 'x1'"):
        tb.Dataset.from_arrays(np.column_stack([np.ones(x.size), 1e7 + x]), y, dtype="float32")


@pytest.mark.parametrize("level", [0.0, 100.0])
def test_ordinary_columns_are_kept(level):
    x, y = rows(level)
    X = np.column_stack([np.ones(x.size), x, x + level])[:, :2]
    slopes = [
        tb.find_mode(tb.models.gaussian(tb.Dataset.from_arrays(X, y, dtype=kind)), progress=False).reference[1]
        for kind in ("float32", "float64")
    ]
    assert slopes[0] == pytest.approx(slopes[1], abs=1e-4)
