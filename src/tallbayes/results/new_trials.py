"""Numbers of trials in predictions of counts: those of new rows, from where their columns come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.data.dataset import Dataset
from tallbayes.data.response_functions import trials_column
from tallbayes.errors import DataError, OptionError, unknown
from tallbayes.models import family_of

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

_NEEDED = "the response is a number of successes, so every new row needs its number of trials"


class NewTrials:
    """The numbers of trials of new rows: `given` with an array, otherwise the column that the formula names, or those of a Dataset."""

    def __init__(self, fit: Fit, given: Any) -> None:
        self.own, self.given = trials_column(fit.meta.get("plan")), given

    @property
    def name(self) -> str:
        """Name of the column, for messages."""
        return self.own or "trials"

    def column(self, available: tuple[str, ...]) -> str:
        """Name of the column of a source."""
        self._require_array("columns by name hold them")
        if self.own is None:
            raise DataError(
                f"{_NEEDED}: the fit was made from arrays, so their column has no name. Give new as an array with trials=, or as a Dataset "
                "with the trials as weights."
            )
        if self.own not in available:
            raise DataError(
                f"new has no column {self.own!r}: {_NEEDED}. Add it, or predict probabilities with kind='mean'. "
                f"{unknown('column', self.own, available)}"
            )
        return self.own

    def of(self, data: Dataset, part: Any) -> np.ndarray:
        """The numbers of trials of some rows of a Dataset."""
        self._require_array("a Dataset has its own")
        if not data.has_weights:
            raise DataError(
                f"the Dataset has no numbers of trials: {_NEEDED}. Read it with the formula of the fit, or give them as weights=."
            )
        return data.trials(part)

    def of_array(self, n: int) -> np.ndarray:
        """Those given with an array."""
        if self.given is None:
            raise DataError(f"{_NEEDED}: give trials=, one number for each row of new.")
        given = np.asarray(self.given)
        if given.dtype.kind not in "fiub" or given.shape != (n,):
            raise DataError(
                f"trials must have one number for each of the {n} rows; its shape is {given.shape}, its type {given.dtype}."
            )
        return given.astype(float)

    def behind(self, x: np.ndarray, trials: np.ndarray, first: int = 0) -> np.ndarray:
        """Design rows with the numbers of trials behind them, which must be whole; missing ones are found with those of other columns."""
        bad = np.isfinite(trials) & ((trials < 0) | (trials != np.floor(trials)))
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(f"row {first + row}, column {self.name!r}: {trials[row]:g} trials; use whole numbers.")
        return np.column_stack([x, trials])

    def _require_array(self, why: str) -> None:
        if self.given is not None:
            raise DataError(f"trials= belongs to an array of design rows; {why}.")


def new_trials(fit: Fit, kind: str, function: Any, given: Any) -> NewTrials | None:
    """What `trials=` means for a prediction; None unless responses are numbers of successes."""
    counted = family_of(fit.meta["model"]).response == "successes" or trials_column(fit.meta.get("plan")) is not None
    if counted and kind == "response" and function is None:
        return NewTrials(fit, given)
    if given is not None:
        raise OptionError(
            "trials= belongs to kind='response' of models of p(successes, trials), which predicts numbers of successes; leave it out."
        )
    return None
