"""What a thinned draw keeps of the iterations behind it: sums, means and largest values, not the last of them alone.

`advance` reports every iteration. A draw that stands for `thin` of them has one row of numbers: what was spent is summed, rates are
averaged, what must not exceed a bound is the largest. Everything else describes the state at the draw, or is looked at jointly with
other columns, and is that of the last iteration, which is a fair sample.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tallbayes.target import COUNTED

SUMMED = (*COUNTED, "n_steps", "diverging", "oracle_evals", "sign_flips")
LARGEST = ("largest_ratio", "tree_depth")
AVERAGED = (
    "acceptance_rate",
    "accepted",
    "u_accepted",
    "stages",
    "full_read",
    "noise",
    "rate",
    "turns",
    "refreshed",
    "looked",
    "brightened",
    "darkened",
)
"""Columns by name: a name means the same in every sampler."""


def thinned(info: np.ndarray, columns: Sequence[str], thin: int) -> np.ndarray:
    """Rows of `info` for draws, from those of their iterations: (draws x thin, columns) to (draws, columns).

    >>> thinned(np.array([[3.0, 0.0, 5.0], [1.0, 1.0, 6.0]]), ["evals", "accepted", "lp"], 2)
    array([[4. , 0.5, 6. ]])
    """
    if thin == 1:
        return info
    parts = info.reshape(-1, thin, info.shape[1])
    out = parts[:, -1].copy()
    for names, reduce in ((SUMMED, np.sum), (AVERAGED, np.mean), (LARGEST, np.max)):
        where = [k for k, name in enumerate(columns) if name in names]
        out[:, where] = reduce(parts[:, :, where], axis=1)
    return out
