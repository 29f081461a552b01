"""Internals of `tallbayes.bounds.joined_tables`; what users see of it is tested in test_update.py."""

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.bounds.catalogue import certify
from tallbayes.bounds.joined_tables import join_bounds
from tallbayes.bounds.tables import draw_row, rate_count, row_rate, total_rate
from tallbayes.engine import passes
from tallbayes.testing import mode_at


def batch(rows, seed):
    X, y = logistic_arrays(rows, seed=seed)
    return tb.Dataset.from_arrays(X, y)


def both(first, second):
    X, y = (
        np.concatenate(v)
        for v in zip(logistic_arrays(first[0], seed=first[1]), logistic_arrays(second[0], seed=second[1]), strict=True)
    )
    return tb.Dataset.from_arrays(X, y)


@pytest.mark.parametrize("name", ["T6", "T9", "T10"])
def test_joined_bounds_are_those_of_all_rows_at_the_reference(name):
    old, new = tb.models.logistic(batch(300, 1)), tb.models.logistic(batch(90, 2))
    whole = tb.models.logistic(both((300, 1), (90, 2)))
    mode, here, there = tb.find_mode(old, progress=False), mode_at(new, np.zeros(2)), mode_at(whole, np.zeros(2))
    for other in (here, there):
        other.reference = mode.reference
        other.__dict__["factor"] = mode.factor
    joined = join_bounds(certify(mode, name)[0], certify(here, name)[0], None)
    bound, rng = certify(there, name, indexed=True)[0], np.random.default_rng(0)
    for scale in (0.3, 1.0, 3.0):
        pair = scale * rng.standard_normal((2, 2))
        rates, expected = np.zeros(rate_count(joined)), np.zeros(rate_count(bound))
        total, one = total_rate(joined, *pair, rates), total_rate(bound, *pair, expected)
        assert total == pytest.approx(one, rel=1e-9) or name == "T9"  # classes of parts have other radii
        residual = np.abs(passes.residuals_at(whole.rows, np.arange(390), *_positions(mode, pair), mode.reference))
        counts, limit = np.zeros(390), np.zeros(390)
        for _ in range(4000):
            row, rate = draw_row(rng, joined, rates, total)
            counts[row] += 1
            limit[row] = rate
        seen = counts > 0
        assert (residual[seen] <= limit[seen] * (1 + 1e-9) + 1e-14).all() and seen[300:].any() and seen[:300].any()
        z = (counts[seen] - 4000 * limit[seen] / total) / np.sqrt(np.maximum(4000 * limit[seen] / total, 1.0))
        assert np.abs(z).max() < 8.0
        assert name == "T9" or np.allclose(limit[seen], [row_rate(bound, expected, r) for r in np.flatnonzero(seen)], rtol=1e-9)


def _positions(mode, pair):
    return [mode.reference + mode.factor @ w for w in pair]
