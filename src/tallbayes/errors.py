"""Errors a user can act on. Each message names what is wrong, where, and the remedy."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable
from typing import Any


class TallbayesError(Exception):
    """Base class of all errors that this package raises."""


class DataError(TallbayesError, ValueError):
    """The rows, columns or response cannot be used as given."""


class ModelError(TallbayesError, ValueError):
    """The model has no usable posterior: separable data, flat directions, no convergence."""


class OptionError(TallbayesError, ValueError):
    """An option or name is unknown or out of range."""


class StoppedError(OptionError):
    """A run ended before every chain had a draw; `status` says why, and `folder` has its checkpoint, if there is one.

    >>> StoppedError("no draws yet", "interrupted", "run").folder
    'run'
    """

    def __init__(self, message: str, status: str, folder: str | None = None) -> None:
        super().__init__(message)
        self.status, self.folder = status, folder

    def __reduce__(self) -> tuple[type[StoppedError], tuple[str, str, str | None]]:
        """Sent back by the workers of a cluster as it is."""
        return type(self), (str(self), self.status, self.folder)


class StoreError(TallbayesError, OSError):
    """A file written by tallbayes is missing, truncated, damaged, or belongs to something else."""


class CertificateError(TallbayesError, ArithmeticError):
    """A residual exceeded its proven bound: the run is invalid, and the bound or its implementation is wrong."""


class TallbayesWarning(UserWarning):
    """A problem that the user should know about; the result is returned nevertheless."""


def warn(sentence: str) -> None:
    """Issue a `TallbayesWarning` at the line of the user's code that called the package.

    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn("the columns are collinear.")
    >>> caught[0].category.__name__, "tallbayes" in caught[0].filename
    ('TallbayesWarning', False)
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "tallbayes":
        level, frame = level + 1, frame.f_back
    warnings.warn(sentence, TallbayesWarning, stacklevel=level)


LONGEST = 200  # characters of a value in a message


def shown(value: Any) -> str:
    """A value as messages show it: its repr, cut where it is long.

    >>> shown("x"), shown(10**5000)
    ("'x'", 'a whole number of more than 4,300 digits')
    """
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python does not write longer numbers out
        return "a whole number of more than 4,300 digits"
    except Exception:  # a repr of the user's own that fails
        text = f"a {type(value).__name__}"
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def unknown(kind: str, name: object, valid: Iterable[str]) -> OptionError:
    """The error for a name that is not in a list, with the nearest valid one.

    >>> print(unknown("family", "logistik", ["logistic", "poisson"]))
    unknown family 'logistik'; did you mean 'logistic'? Valid: logistic, poisson
    """
    names = sorted(valid)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5) if isinstance(name, str) else []
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return OptionError(f"unknown {kind} {shown(name)}{hint} Valid: {', '.join(names)}")
