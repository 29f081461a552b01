"""Internals of `tallbayes.remote.row_weights`; what users see of it is tested in test_row_streams.py."""

import numpy as np
import pyarrow as pa
import pytest
from conftest import PRIOR
from scipy.stats import chi2
from support import logistic_arrays

import tallbayes as tb
from tallbayes.remote.row_weights import weigh
from tallbayes.remote.supply import open_streams
from tallbayes.samplers import ExactMinibatch
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


def streamed(parts, bound="T9", blocks=None, draws=1000, chains=1, seed=5, rate="mh-ss"):
    """A setup with streams, and its sampler."""
    sampler, mode = ExactMinibatch(bound=bound, rate=rate), parts.find_mode(progress=False)
    setup = sampler.setup(parts.model, mode, seed, False)
    description = {"warmup": 0, "draws": draws, "thin": 1, "seed": seed, "chains": chains}
    if blocks is not None:
        description["blocks"] = np.where(parts.stream_sums[1].sum(0) > 0, blocks, 0).tolist()
    return open_streams(setup, description), sampler, mode


def chi_square(counts, expected):
    """Tail probability of counts beside what is expected of them."""
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), counts.size - 1)


def test_blocks_are_allocated_and_drawn_by_their_law(parts):
    setup = streamed(parts, "T6", blocks=4)[0]
    source, sums = setup.supply, parts.stream_sums[1][:, 0]
    blocks, size = 3000, 4
    counts = np.array([source._allocation(0, 0, b) for b in range(blocks)])
    assert (counts.sum(1) == size).all()
    share = sums / sums.sum()
    assert chi_square(counts.sum(0), blocks * size * share) > 1e-6
    pairs = np.array([(c[:, None] * c).astype(float) - np.diag(c) for c in counts]).mean(0)  # E n_a (n_b - [a = b])
    assert pairs == pytest.approx(size * (size - 1) * np.outer(share, share), abs=0.4)
    source._fetch([(0, 0, b) for b in range(blocks)])
    first = np.concatenate([source.held[0, 0][b][0][:1] for b in range(blocks)])
    local = tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(60)), PRIOR)
    weighting = source.weighting
    weight = weigh(local, weighting, 0, 60)[0][0]
    row = [int(np.argmin(np.abs(local.data.records[:, 1] - r[1]))) for r in first]
    order = np.argsort(weight)[::-1]
    observed, expected = np.bincount(row, minlength=60)[order].astype(float), blocks * (weight / weight.sum())[order]
    tail = int(np.argmax(np.cumsum(expected[::-1]) > 10.0)) + 1  # rows that are hardly ever drawn count as one
    observed, expected = (np.append(v[:-tail], v[-tail:].sum()) for v in (observed, expected))
    assert chi_square(observed, expected) > 1e-6  # without the shuffle the first rows would be those of the first partition
    unshuffled = np.array([np.flatnonzero(c)[0] for c in counts])
    assert chi_square(np.bincount(unshuffled, minlength=3), blocks * share) < 1e-6
    records, given = source.held[0, 0][0]
    assert given == pytest.approx([weight[np.argmin(np.abs(local.data.records[:, 1] - r[1]))] for r in records], rel=1e-12)
