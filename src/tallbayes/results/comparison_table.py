"""The table of `compare_models`."""

from __future__ import annotations

import pandas as pd


class ModelComparison(pd.DataFrame):
    """A table of models from best to worst, as `arviz_stats.compare` makes it; `elpd` has the `ELPDData` of each."""

    _metadata = ["elpd"]  # noqa: RUF012

    def __repr__(self) -> str:
        return self.to_string(float_format=lambda v: f"{v:.4g}")

    def _repr_html_(self) -> str:
        return self.to_html(float_format=lambda v: f"{v:.4g}")

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame
