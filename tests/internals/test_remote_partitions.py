"""Internals of `tallbayes.remote.partitions`; what users see of it is tested in test_row_streams.py."""

import numpy as np
import pyarrow as pa
import pytest
from conftest import PRIOR
from support import logistic_arrays

from tallbayes.auto import choose
from tallbayes.errors import ModelError
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


# What is refused.


def test_auto_takes_a_sampler_without_bounds_where_there_is_no_bound(parts, monkeypatch):
    def none(model, name):
        raise ModelError("there is no certified bound")

    mode = parts.find_mode(progress=False)
    choice = choose(parts.model, mode, None, 0, False)
    assert choice.sampler.name == "exact-minibatch" and "the 60 rows are in partitions" in choice.why
    monkeypatch.setattr(partitions, "bound_of", none)
    choice = choose(parts.model, mode, None, 0, False)
    assert choice.sampler.name == "hmc-ecs" and "exact-minibatch was skipped: there is no certified bound" in choice.why
    with pytest.raises(ModelError, match="there is no certified bound"):
        choose(parts.model, mode, "EXACT", 0, False)
