"""Counts of evaluations as the papers on subsampled decisions state them, from what every iteration of a run reports.

Bardenet, Doucet and Holmes (2017) state their rule twice. A decision that reads T rows costs 2 T evaluations, or T if those of the
current state are known:

    "after 2n"         section 8.1.3: known if the iteration before was itself charged 2 n. An iteration charged n, which also leaves
                       all rows of the current state known, is forgotten: a chain that always reads all rows is charged 2 n and n in turn.
    "after full read"  section 6.4: known if the iteration before read all rows. Such a chain is charged n from its second iteration on.

Neither knows that values remain known while proposals are rejected; `fit.evals` does.
"""

from __future__ import annotations

import numpy as np

from tallbayes.errors import OptionError

AFTER_2N, AFTER_FULL_READ = "after 2n", "after full read"
READINGS = (AFTER_2N, AFTER_FULL_READ)


def published_evaluations(
    rows: np.ndarray, full: np.ndarray, n: int, reading: str = AFTER_2N, renewed: np.ndarray | None = None
) -> np.ndarray:
    """Evaluations charged to each iteration, (iterations,) or (chains, iterations), from `rows` it read and whether those were all.

    `stats["rows"]` and `stats["full_read"]` of a fit that was not thinned. `renewed` marks iterations that renew the reference of a
    proxy, which cost 2 n by either reading. Nothing is known before the first iteration.

    >>> rows = np.array([100, 100, 100, 20, 30])
    >>> published_evaluations(rows, rows == 100, 100)
    array([200, 100, 200,  20,  60])
    >>> published_evaluations(rows, rows == 100, 100, "after full read")
    array([200, 100, 100,  20,  60])
    """
    if reading not in READINGS:
        raise OptionError(f"reading must be {' or '.join(map(repr, READINGS))}; got {reading!r}.")
    lines, all_read = np.atleast_2d(rows), np.atleast_2d(full).astype(bool)
    new = np.zeros(lines.shape, bool) if renewed is None else np.broadcast_to(renewed, lines.shape)
    charged = np.empty(lines.shape, np.int64)
    cached = np.zeros(lines.shape[0], bool)
    for k in range(lines.shape[1]):
        charged[:, k] = np.where(new[:, k], 2 * n, np.where(cached, 1, 2) * lines[:, k])
        cached = new[:, k] | all_read[:, k]
        if reading == AFTER_2N:
            cached &= charged[:, k] == 2 * n
    return charged.reshape(np.shape(rows))
