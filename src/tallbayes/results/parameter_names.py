"""The names by which `Fit.draws` and `Fit.hypothesis` know a number: those of theta, of elements of terms in `fit.idata`.

The coefficient of x in class 1 of a softmax model is `x[1]`. That of level b of a factor c is `c[T.b]` or `c[b]`; in class 1 it is
`c[T.b][1]`, `c[b][1]`, or `c[1, b]` as ArviZ labels it.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tallbayes.errors import OptionError
from tallbayes.results.summary import labels

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

_NEAREST = 5
_LISTED = 30  # names that a message lists in full


def named_draws(fit: Fit) -> dict[str, np.ndarray]:
    """Draws of every single parameter and derived quantity by its names, each (chains, draws); those of theta come first."""
    out = {name: fit.theta[:, :, j] for j, name in enumerate(fit.names)}
    for name, values in fit.derived().items():
        each = values.reshape(*values.shape[:2], -1)
        for j, text in enumerate(labels(fit, name, values.shape[2:])):
            out.setdefault(text, each[:, :, j])
    by_class = f"{fit.meta['response']}_dim"
    for name, variable in fit.variables.items():
        own = list(variable.labels)
        for place, label in zip(
            np.ndindex(variable.values.shape[2:]), itertools.product(*variable.labels.values()), strict=True
        ):
            draws = variable.values[(slice(None), slice(None), *place)]
            for text in _spellings(name, label, own[:1] == [by_class]):
                out.setdefault(text, draws)
    return out


def _spellings(name: str, label: Sequence[str], by_class: bool) -> list[str]:
    """The names of an element of a term; the first label may be a class.

    >>> _spellings("c", ("1", "b"), True)
    ['c[1, b]', 'c[1,b]', 'c[b][1]']
    """
    if not label:
        return [name]
    out = list(dict.fromkeys([f"{name}[{', '.join(label)}]", f"{name}[{','.join(label)}]"]))
    return [*out, f"{name}[{', '.join(label[1:])}][{label[0]}]"] if by_class and len(label) > 1 else out


def unknown_parameter(name: str, valid: Sequence[str]) -> OptionError:
    """The error for a name that is not known."""
    return OptionError(f"unknown parameter {name!r}{nearest(name, valid)}")


def nearest(name: str, valid: Sequence[str]) -> str:
    """The end of a message about a name that is not known: the nearest ones, those of the same term first.

    >>> nearest("x", ["x[0]", "x[1]", "z[0]", "z[1]"])
    "; did you mean 'x[0]' or 'x[1]'? Valid: x[0], x[1], z[0], z[1]"
    """
    term = name.partition("[")[0]
    same = [v for v in valid if v.partition("[")[0] == term]
    close = difflib.get_close_matches(name, same, n=_NEAREST, cutoff=0.0) if "[" in name else same[:_NEAREST]
    close = close or difflib.get_close_matches(name, valid, n=_NEAREST, cutoff=0.5)
    quoted = [repr(v) for v in close]
    hint = (
        "." if not quoted else f"; did you mean {' or '.join([', '.join(quoted[:-1]), quoted[-1]] if quoted[1:] else quoted)}?"
    )
    every = f"Valid: {', '.join(valid)}" if len(valid) <= _LISTED else f"fit.names lists the {len(valid):,} parameters."
    return f"{hint} {every}"
