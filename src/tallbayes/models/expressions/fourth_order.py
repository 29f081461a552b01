"""What is proven of the fourth derivative of a family given by an expression: group effects need it.

Either |f''''| <= r sup |f'''| with one r for all eta and all responses of the data, or |f'''| and |f''''| <= |f''|. The first applies the
certificate of f to f', whose third derivative is f''''.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import sympy as sp

from tallbayes.models.expressions.asymptotes import exact, never_positive
from tallbayes.models.expressions.balls import arithmetic
from tallbayes.models.expressions.certificate import Builder, Pieces, Tables
from tallbayes.models.expressions.grammar import ETA
from tallbayes.models.expressions.special_functions import elementary
from tallbayes.models.expressions.stabilise import stabilised

_ROUNDING = 1.0 + 1e-12


def fourth_ratio(original: Any, builder: Builder, tables: Tables) -> float | None:
    """A proven r with |f''''| <= r sup |f'''|, sup |f'''| of the table of f; None if there is none.

    Between two knots sup |f''''| is below its chord as sup |f'''| is, so that the largest ratio at knots serves all responses.
    """
    if not np.isfinite(tables.everywhere).all():
        return None
    slope = sp.diff(original, ETA)
    with arithmetic():
        own = Builder(
            Pieces(stabilised(slope), builder.pieces.constants),
            slope,
            tables.edges,
            tables.knots,
            tables.linked,
            builder.cells_of_y,
            builder.shared,
            tables.location,
        )
        fourth = own.table().max(1)
    if not np.isfinite(fourth).all() or (fourth[tables.everywhere == 0.0] > 0.0).any():
        return None
    some = tables.everywhere > 0.0
    ratio = float((fourth[some] / tables.everywhere[some]).max(initial=0.0)) * _ROUNDING
    return ratio if math.isfinite(ratio) else None


def fourth_concordant(builder: Builder) -> bool:
    """Whether |f''''| <= |f''| is proven for all eta, given that f is concave.

    >>> from tallbayes.models.expressions.grammar import parse
    >>> from tallbayes.models.expressions.certificate import certified, survey_responses
    >>> law = parse("y*eta - exp(eta)")
    >>> fourth_concordant(certified(law, law, {}, survey_responses(np.array([0.0, 1.0, 3.0])))[2])
    True
    """
    extremes = builder.extremes()
    for y in extremes:
        second = sp.diff(exact(elementary(builder.plain.resolved(y)), builder.pieces.constants, y), ETA, 2)
        fourth = sp.diff(second, ETA, 2)
        if not (never_positive(second + fourth) and never_positive(second - fourth)):
            return False
    return bool(extremes)
