"""Log-likelihoods of all rows or of some, and how many rows a computation outside the chains has read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tallbayes.engine import ledger, passes
from tallbayes.model import Model


def log_likelihood(model: Model, theta: np.ndarray) -> float:
    """The log-likelihood of all rows at theta: one full pass.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.testing import log_likelihood
    >>> data = tb.Dataset.from_arrays(np.ones((2, 1)), [0, 1])
    >>> np.isclose(log_likelihood(tb.models.logistic(data), np.zeros(1)), -2 * np.log(2))
    np.True_
    """
    return float(passes.total_value(model.rows, np.asarray(theta, float)))


def log_likelihood_gradient(model: Model, theta: np.ndarray) -> np.ndarray:
    """The gradient of the log-likelihood of all rows at theta, without the prior: one full pass.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.testing import log_likelihood_gradient
    >>> data = tb.Dataset.from_arrays(np.ones((3, 1)), [0, 1, 1])
    >>> log_likelihood_gradient(tb.models.logistic(data), np.zeros(1))
    array([0.5])
    """
    return np.asarray(passes.total_gradient(model.rows, np.asarray(theta, float))[1])


def row_log_likelihoods(model: Model, theta: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """The log-likelihood of each row at theta, or of the rows with these numbers.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.testing import row_log_likelihoods
    >>> data = tb.Dataset.from_arrays(np.ones((3, 1)), [0, 1, 1])
    >>> row_log_likelihoods(tb.models.logistic(data), np.array([1.0]), np.array([0, 2])).round(4)
    array([-1.3133, -0.3133])
    """
    index = np.arange(model.data.n) if rows is None else np.asarray(rows, np.int64)
    return np.asarray(passes.values_at(model.rows, index, np.asarray(theta, float)))


class RowCount:
    """Rows read so far."""

    def __init__(self, account: ledger.Account) -> None:
        self._account = account

    @property
    def rows(self) -> int:
        """Evaluations of rows while the count was open."""
        return self._account.rows


@contextmanager
def counting_rows() -> Iterator[RowCount]:
    """Count the rows that full passes, pilots and preparations read; chains report theirs as `fit.evals`.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.testing import counting_rows, log_likelihood
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(np.ones((3, 1)), [0, 1, 1]))
    >>> with counting_rows() as count:
    ...     value = log_likelihood(model, np.zeros(1))
    >>> count.rows
    3
    """
    with ledger.counting() as account:
        yield RowCount(account)
