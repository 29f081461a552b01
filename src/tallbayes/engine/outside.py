"""Likelihoods that are no function of a few indices of a row: verbs in theta behind one address.

Models in JAX, time series and labelled vectors give one function of all verbs. It gets what the verbs of `rows` get, and writes values to
`total` (a sum) or `out`, gradients to `out`, where they are added, slopes and Hessians to `table`. It returns a status, 0 for success;
another one marks the rows as failed, which ends the chunk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from tallbayes.compile import HELPER, SCALAR
from tallbayes.pointers import calls

(
    ROW_VALUES,  # out[j] of index[j]
    WEIGHTED_GRADIENT,  # total[0], and out as the gradient
    RESIDUAL_DIFFERENCES,  # out[j]: at `other` less at theta
    PROXY_VALUES,  # out[j]
    RANGE_VALUE,  # total[0]
    RANGE_GRADIENT,  # total[0] and out
    RANGE_HESSIAN,  # total[0], out, and the lower triangle added to `table`
    RESIDUAL_VALUES,  # out[j]
    RESIDUAL_SLOPES,  # out[j] and table[j]
    ADD_SLOPES,  # from `table` and factors, added to out
    ADD_CURVATURES,  # the lower triangle added to `table`
    CONTROL_GRADIENT,  # added to out
    RANGE_SCORES,  # table[i - start]
) = range(13)
UNKNOWN = 1  # status of a verb that a likelihood does not have

_numbers, _table, _index, _whole = (
    types.Array(types.float64, 1, "C"),
    types.Array(types.float64, 2, "C"),
    types.Array(types.int64, 1, "C"),
    types.int64,
)


def signature(records: types.Type) -> Any:
    """Of the function of all verbs, for records of a type of numbers.

    (records, layout, p, verb, index, start, stop, theta, other, reference, order, factors, total, out, table) -> status
    """
    rows = types.Array(records, 2, "C")
    return _whole(
        rows,
        _index,
        _numbers,
        _whole,
        _index,
        _whole,
        _whole,
        _numbers,
        _numbers,
        _numbers,
        _whole,
        _numbers,
        _numbers,
        _numbers,
        _table,
    )


DOUBLE, SINGLE = signature(types.float64), signature(types.float32)
call_outside = calls(DOUBLE, SINGLE)


def row_numbers(index: np.ndarray) -> np.ndarray:
    """An index as the function of all verbs takes it: permutations of rows are kept in fewer bytes."""
    return np.ascontiguousarray(index, np.int64)


@overload(row_numbers, jit_options={**SCALAR, **HELPER}, strict=False)
def _compiled_row_numbers(index: Any) -> Any:
    if index.dtype == types.int64 and index.layout == "C":
        return lambda index: index
    return lambda index: index.astype(np.int64)
