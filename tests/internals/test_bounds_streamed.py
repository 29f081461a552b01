"""Internals of `tallbayes.bounds.streamed`; what users see of it is tested in test_row_streams.py."""

import numpy as np
import pyarrow as pa
import pytest
from conftest import PRIOR
from support import logistic_arrays

import tallbayes as tb
from tallbayes.bounds.catalogue import certify
from tallbayes.bounds.streamed import StreamedClasses, StreamedSeparable
from tallbayes.bounds.tables import rate_count, total_rate
from tallbayes.remote import partitions
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


@pytest.fixture(scope="module")
def parts():
    return Partitions.open(tables(*logistic_arrays(60)), "y ~ x1", prior=PRIOR)


@pytest.mark.parametrize("name", ["T6", "T9"])
def test_bounds_of_partitions_are_those_of_the_rows_in_memory(parts, small, name, monkeypatch):
    coarse, given = parts.certify(small.mode, name)
    largest = float(small.mode.norms.max())
    limit = partitions.norm_limit(parts.data.moments, small.mode.factor)
    assert largest <= limit < 3.0 * largest  # where classes begin
    monkeypatch.setattr(partitions, "norm_limit", lambda *given: largest)  # as in memory
    bound = parts.certify(small.mode, name)[0]
    assert given == name and isinstance(bound, StreamedClasses if name == "T9" else StreamedSeparable)
    local, rng = certify(small.mode, name)[0], np.random.default_rng(0)
    for scale in (0.1, 1.0, 3.0, 30.0):
        pair = scale * rng.standard_normal((2, 2))
        expected = total_rate(local, *pair, np.zeros(rate_count(local)))
        assert total_rate(bound, *pair, np.zeros(rate_count(bound))) == pytest.approx(expected, rel=1e-9)
        assert total_rate(coarse, *pair, np.zeros(rate_count(coarse))) == pytest.approx(expected, rel=0.3)


@pytest.mark.parametrize(
    "family, options, kind",
    [
        ("probit", {}, StreamedSeparable),
        ("softmax", {"classes": 3}, StreamedSeparable),
        ("negbin", {"size": 2.0}, StreamedClasses),
    ],
)
def test_other_families_have_the_bounds_of_the_rows_in_memory(family, options, kind):
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(80), rng.standard_normal(80)])
    y = rng.integers(0, 2 if family == "probit" else 3, 80).astype(float)
    rows = Partitions.open(tables(X, y, (50, 30)), "y ~ x1", family, PRIOR, family_options=options)
    model = tb.models.build(family, tb.Dataset.from_arrays(X, y, columns=["Intercept", "x1"]), PRIOR, **options)
    mode, remote = tb.find_mode(model, progress=False, tolerance=1e-9), rows.find_mode(1e-9, progress=False)
    assert remote.reference == pytest.approx(mode.reference, abs=1e-8)
    bound, local = rows.certify(remote)[0], certify(mode)[0]
    assert isinstance(bound, kind)
    pair = rng.standard_normal((2, model.dim))
    expected = total_rate(local, *pair, np.zeros(rate_count(local)))
    if family != "negbin":  # there one machine may prefer T6
        assert total_rate(bound, *pair, np.zeros(rate_count(bound))) == pytest.approx(expected, rel=1e-6)


EXPRESSION = {"expression": "y * eta - log1p(exp(eta))", "support": "binary"}


def by_response(X, y):
    """Partitions with responses of one kind each: none knows the certificate of all."""
    order = np.argsort(y, kind="stable")
    return tables(X[order], y[order], (20, 0, 12, 28))


@pytest.mark.slow
def test_expressions_have_one_certificate_for_all_partitions(small):
    rows = Partitions.open(by_response(*logistic_arrays(60)), "y ~ x1", "expression", PRIOR, family_options=EXPRESSION)
    mode = rows.find_mode(progress=False)
    assert mode.reference == pytest.approx(small.mode.reference, abs=1e-6)
    bound, local = rows.certify(mode)[0], certify(small.mode, "T9")[0]
    assert isinstance(bound, StreamedClasses)
    for pair in np.random.default_rng(0).standard_normal((5, 2, 2)):
        expected = total_rate(local, *pair, np.zeros(rate_count(local)))
        assert expected * 0.999 < total_rate(bound, *pair, np.zeros(rate_count(bound))) < expected * 1.1
