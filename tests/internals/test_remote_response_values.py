"""Internals of `tallbayes.remote.response_values`; what users see of it is tested in test_row_streams.py."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from conftest import PRIOR
from support import logistic_arrays

import tallbayes as tb
from tallbayes.errors import DataError
from tallbayes.remote import partition_cache
from tallbayes.remote.response_values import join_values, response_values
from tallbayes.remote.row_weights import partition_model
from tallbayes.shards import Partitions

# Two iterations on one stream, every stream enumerated. Rows 0 and 1 are in one partition, row 2 in another; a stream has six rows, and
# rows after them come from the next block. Started at the posterior, the law after two iterations is the posterior.


# a handful of rows can be separated by a column; the enumeration does not mind
pytestmark = pytest.mark.filterwarnings("ignore:column 'x1' separates the response")


# The code that draws streams, on three partitions of very different size and one that is empty.


def tables(X, y, sizes=(45, 0, 12, 3)):
    """Partitions of the rows as Arrow tables."""
    ends = np.cumsum(sizes)
    assert ends[-1] == len(y)
    columns = {f"x{k}": X[:, k] for k in range(1, X.shape[1])}
    whole = pa.table({"y": y, **columns})
    return [whole.slice(end - size, size) for end, size in zip(ends, sizes, strict=True)]


EXPRESSION = {"expression": "y * eta - log1p(exp(eta))", "support": "binary"}


def by_response(X, y):
    """Partitions with responses of one kind each: none knows the certificate of all."""
    order = np.argsort(y, kind="stable")
    return tables(X[order], y[order], (20, 0, 12, 28))


def test_responses_of_all_partitions_are_known_to_an_expression():
    X, y = logistic_arrays(60)
    rows = Partitions.open(by_response(X, y), "y ~ x1", "expression", PRIOR, family_options=EXPRESSION)
    assert rows.spec.responses == (0.0, 1.0) and rows.model.family.certificate.self_concordant
    with partition_cache.partition(rows.files[0], rows.spec.plan, rows.spec.dtype) as first:
        pair = partition_model(rows.spec, first).member, rows.model.member
        assert set(first.y) == {0.0} and all(np.array_equal(a, b) for a, b in zip(*pair, strict=True))
    bad = [*tables(X, y, (45, 15)), pa.table({"y": [0.5], "x1": [0.0]})]
    with pytest.raises(DataError, match=r"partition 2: row 0: response 'y' is 0\.5, but support= needs 0 or 1"):
        Partitions.open(bad, "y ~ x1", "expression", PRIOR, family_options=EXPRESSION)
    many = [np.random.default_rng(k).standard_normal(1000) + k for k in range(3)]
    spec = replace(rows.spec, options={**EXPRESSION, "support": "real"})
    parts = [response_values(spec, tb.Dataset.from_arrays(np.ones((1000, 1)), v)) for v in many]
    joined = np.array(join_values(parts, [1000, 1000, 1000]))
    pooled = np.concatenate(many)
    assert joined[0] == pooled.min() and joined[-1] == pooled.max() and (np.diff(joined) >= 0).all()
    assert joined[64::64][:3] == pytest.approx(np.quantile(pooled, [0.25, 0.5, 0.75]), abs=0.05)
