"""Merged rows: the same posterior to rounding, the same default prior, and the way back from a file."""

import numpy as np
import pytest

import tallbayes as tb


def table(n=3000):
    import pyarrow as pa

    rng = np.random.default_rng(1)
    g, x, w = rng.integers(0, 3, n), rng.integers(0, 2, n), rng.integers(1, 4, n).astype(float)
    return pa.table(
        {
            "g": np.array(["a", "b", "c"])[g],
            "x": x.astype(float),
            "t": 1.0 + rng.integers(0, 2, n),
            "w": w,
            "y": rng.poisson(np.exp(0.2 * x)),
        }
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_posterior_stays_the_same(dtype):
    options = {"offset": "log(t)", "weights": "w", "dtype": dtype}
    plain, merged = (tb.read(table(), "y ~ x + C(g)", merge=merge, progress=False, **options) for merge in (False, True))
    assert merged.n < 150 and merged.recipe["merged_from"] == plain.n == 3000
    assert merged.total_weight == pytest.approx(plain.total_weight, rel=1e-12) and merged.columns == plain.columns
    first, second = (tb.models.poisson(data) for data in (plain, merged))
    rng = np.random.default_rng(2)
    for theta in 0.5 * rng.standard_normal((5, 4)):
        assert second.log_posterior(theta) == pytest.approx(first.log_posterior(theta), rel=1e-10)
    np.testing.assert_allclose(second.prior_terms.scale, first.prior_terms.scale, rtol=1e-12)
    np.testing.assert_allclose(second.prior_terms.centre, first.prior_terms.centre, rtol=1e-12)


def test_rows_that_differ_in_one_number_stay_apart():
    data = tb.Dataset.from_arrays([[1.0], [1.0], [1.0], [-0.0], [0.0]], [0, 1, 0, 2, 2], offset=[0.0, 0.0, 0.5, 0.0, 0.0])
    merged = tb.data.merge_rows(data)
    assert merged.n == 4 and merged.records[:, 3].tolist() == [1.0, 1.0, 1.0, 2.0]
    grouped = tb.Dataset.from_arrays(np.ones((4, 1)), [0, 1, 0, 1], groups={"g": [0, 1, 0, 1]})
    with pytest.raises(tb.DataError, match="rows with groups cannot be merged"):
        tb.data.merge_rows(grouped)
