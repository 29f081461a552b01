"""Whether float32 keeps what a column varies by.

A float32 number has 24 binary digits, so values of size m are rounded by up to m 2^-25. Where that is not small beside the standard
deviation of a column, the column that is packed is not the one that was given.
"""

from __future__ import annotations

import numpy as np

from tallbayes.data.moments import Moments
from tallbayes.errors import DataError

LARGEST = 1e-3  # rounding error relative to the standard deviation: 1e-6 of a variance


def lost_share(moments: Moments) -> np.ndarray:
    """Largest rounding error of float32 relative to the standard deviation of each column; 0 for constant columns.

    >>> moments = Moments(("x",))
    >>> moments.add(np.array([[1e8], [1e8 + 1.0], [1e8 + 2.0]]))
    >>> bool(lost_share(moments)[0] > 1.0)
    True
    """
    size = np.maximum(np.abs(moments.low), np.abs(moments.high))
    varies = moments.high > moments.low
    return np.divide(size * 2.0**-25, moments.sd, out=np.zeros_like(size), where=varies & (moments.sd > 0.0))


def require_kept(moments: Moments, kind: np.dtype) -> None:
    """Refuse columns whose variation records of this type do not keep."""
    if kind != np.dtype("f4"):
        return
    share = lost_share(moments)
    worst = int(np.argmax(share))
    if share[worst] <= LARGEST:
        return
    name, high, sd = moments.names[worst], moments.high[worst], moments.sd[worst]
    raise DataError(
        f"float32 does not keep the variation of {name!r}: its values reach {high:.6g} with a standard deviation of {sd:.3g}, and float32 "
        f"rounds them by up to {share[worst]:.2g} standard deviations. Use dtype='float64', or subtract a constant from the column."
    )
