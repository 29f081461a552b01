"""`compare_models`: leave-one-out on the same few rows of every model, so that differences are paired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from tallbayes.errors import DataError, OptionError
from tallbayes.model import Model
from tallbayes.option_types import checked
from tallbayes.results.rebuild import model_of

if TYPE_CHECKING:
    from tallbayes.results.comparison_table import ModelComparison
    from tallbayes.results.fit import Fit

_BLOCK = 1 << 18


@checked
def compare_models(
    fits: Mapping[str, Fit],
    *,
    models: Mapping[str, Model] | None = None,
    rows: int = 1000,
    seed: int = 0,
    method: str = "stacking",
) -> ModelComparison:
    """Compare models of the same rows by leave-one-out (Magnusson et al. 2020).

    `elpd_diff` is how much worse a model predicts than the best one, `dse` its standard error and `subsampling_dse` the part of
    that which more `rows` would remove. All models use the same random rows. `method` of the weights is "stacking",
    "BB-pseudo-BMA" or "pseudo-BMA". Models are built again from their fits; `models=` gives those that cannot be, such as models
    in JAX. `arviz_stats.compare` makes the table and accepts its `elpd`.

    >>> import numpy as np, pyarrow as pa, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal(800)
    >>> rows = pa.table({"y": rng.poisson(np.exp(0.5 * x)), "x": x})
    >>> run = {"family": "poisson", "sampler": "hmc", "draws": 200, "warmup": 200, "chains": 2, "seed": 1, "progress": False}
    >>> fits = {"with x": tb.fit("y ~ x", rows, **run), "without": tb.fit("y ~ 1", rows, **run)}
    >>> table = tb.compare_models(fits, rows=200)
    >>> table.index.tolist(), bool(table["elpd_diff"].iloc[1] > 4 * table["dse"].iloc[1])
    (['with x', 'without'], True)
    """
    import arviz_stats

    from tallbayes.results.comparison_table import ModelComparison

    if not (
        isinstance(fits, Mapping) and isinstance(models, Mapping | None) and all(hasattr(f, "theta") for f in fits.values())
    ):
        raise OptionError(
            "fits= and models= are dictionaries, of fits and of their models by name, such as {'a': fit_a, 'b': fit_b}."
        )
    if len(fits) < 2:
        raise OptionError("give at least two fits, such as {'a': fit_a, 'b': fit_b}.")
    given = dict(models or {})
    if unknown := [name for name in given if name not in fits]:
        raise OptionError(f"models= names {unknown[0]!r}, which is not among the fits.")
    built = {name: model_of(fit, given.get(name)) for name, fit in fits.items()}
    names = list(built)
    first = built[names[0]]
    for name in names[1:]:
        _same_response(names[0], first, name, built[name])
    elpd = {name: fits[name].loo(built[name], rows, seed, pointwise=True) for name in names}
    table = ModelComparison(arviz_stats.compare(elpd, method="pseudo-BMA" if method == "stacking" else method))
    if method == "stacking":
        index = np.asarray(elpd[names[0]].loo_subsample_observations)
        table["weight"] = stacking_weights(np.stack([elpd[name].elpd_i.values[index] for name in table.index], axis=1))
    table.elpd = elpd
    return table


def stacking_weights(values: np.ndarray) -> np.ndarray:
    """Weights of models that maximise the mean log density of their mixture (Yao et al. 2018), by EM from equal ones.

    >>> stacking_weights(np.log([[0.9, 0.1], [0.8, 0.1], [0.7, 0.2]])).round(3)
    array([1., 0.])
    """
    relative = np.exp(values - values.max(1, keepdims=True))
    weights = np.full(values.shape[1], 1.0 / values.shape[1])
    for _ in range(5000):
        mixed = relative * weights
        weights, before = (mixed / mixed.sum(1, keepdims=True)).mean(0), weights
        if np.abs(weights - before).max() < 1e-10:
            break
    return weights


def _same_response(name: str, model: Model, other: str, against: Model) -> None:
    a, b = model.data, against.data
    if a.n != b.n:
        raise DataError(f"{name!r} has {a.n:,} rows and {other!r} {b.n:,}; only models of the same rows can be compared.")
    for start in range(0, a.n, _BLOCK):
        part = slice(start, start + _BLOCK)
        for what, column in (("response", 0), ("weight", 2)):
            if not np.array_equal(a.records[part, a.d + column].astype(float), b.records[part, b.d + column].astype(float)):
                raise DataError(
                    f"{name!r} and {other!r} differ in the {what} of at least one row; only models of the same rows, in the same "
                    "order, can be compared."
                )
