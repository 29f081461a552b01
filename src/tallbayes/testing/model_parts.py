"""References anywhere, and designs of new rows: what a run derives from a model, for rows and positions of the tester's choice."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.data import Dataset
from tallbayes.data.arrow import BATCH
from tallbayes.data.design import design
from tallbayes.mode import search
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.results import Fit

BATCH_ROWS = BATCH
"""Rows that are read at a time: tests of what must not depend on batches use more of them."""


def mode_at(model: Model, theta: np.ndarray) -> Mode:
    """What `tallbayes.find_mode` returns, at a position that need not be the mode: a poor reference, for instance.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.testing import mode_at
    >>> data = tb.Dataset.from_arrays(np.ones((10, 1)), np.arange(10.0))
    >>> mode_at(tb.models.gaussian(data, tb.priors.flat(), sigma=2.0), np.array([3.0])).reference
    array([3.])
    """
    return search.mode_at(model, np.asarray(theta, float))


def design_matrix(source: Dataset | Fit, rows: Any) -> np.ndarray:
    """The design matrix that the formula of a data set or a fit gives for other rows, an Arrow table.

    >>> import pyarrow as pa, tallbayes as tb
    >>> from tallbayes.testing import design_matrix
    >>> data = tb.read(pa.table({"y": [0.0, 1.0, 2.0], "x": [1.0, 2.0, 3.0]}), "y ~ center(x)", progress=False)
    >>> design_matrix(data, pa.table({"x": [7.0]}))
    array([[1., 5.]])
    """
    plan = source.meta["plan"] if isinstance(source, Fit) else source.recipe["plan"]
    return design(plan, rows)
