"""Responses that cannot tell anything about predictors: the same number in every row."""

from __future__ import annotations

from tallbayes.data.dataset import Dataset
from tallbayes.errors import warn


def warn_of_constant_response(data: Dataset) -> None:
    """Say so if the response is the same in all rows.

    >>> import numpy as np, tallbayes as tb, warnings
    >>> data = tb.Dataset.from_arrays(np.ones((5, 1)), np.zeros(5))
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_constant_response(data)
    >>> print(caught[0].message)
    the response 'y' is 0 in all 5 rows, so nothing can be learned about the predictors. Check how it was computed.
    """
    low, high = data.moments.low[data.d], data.moments.high[data.d]
    if low == high and data.n > 1:
        warn(
            f"the response {data.response!r} is {low:g} in all {data.n:,} rows, so nothing can be learned about the predictors. Check "
            "how it was computed."
        )
