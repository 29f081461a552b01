"""`Fit.ppc` and `prior_predictive`: responses simulated from the model beside the observed ones, on a few rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import ModelError, OptionError
from tallbayes.model import Model
from tallbayes.models import family_of
from tallbayes.models.unknown_scales import UnknownScaleModel
from tallbayes.notebook import numbers_table
from tallbayes.option_types import checked
from tallbayes.priors import FLAT, NORMAL
from tallbayes.results.group_predictions import levels_of_rows
from tallbayes.results.provenance import origin
from tallbayes.results.rebuild import dataset_of
from tallbayes.streams import Stream, generator, sequence
from tallbayes.validation import MOST_WHOLE, require_whole

if TYPE_CHECKING:
    import pandas as pd

    from tallbayes.results.fit import Fit

STATISTICS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda y: y.mean(-1),
    "sd": lambda y: y.std(-1),
    "smallest": lambda y: y.min(-1),
    "largest": lambda y: y.max(-1),
    "share of zeros": lambda y: (y == 0).mean(-1),
}
UNLIKELY = 0.01  # of a p-value, on either side

MOST_DRAWS = 10**6


@dataclass(frozen=True, eq=False)
class PredictiveCheck:
    """Observed responses of some rows beside simulated ones.

    `statistics` has, for the mean, the standard deviation, the extremes and the share of zeros, the observed value, the mean and
    the 89 % interval of the simulated ones, and p, the share of simulated values at or above the observed one (ties count half).
    """

    observed: np.ndarray
    simulated: np.ndarray  # (draws, rows)
    rows: np.ndarray  # their numbers in the data
    kind: str = "posterior"

    @property
    def statistics(self) -> pd.DataFrame:
        """Statistics of the observed responses among those of the simulated ones."""
        return compared({name: (float(of(self.observed)), of(self.simulated)) for name, of in STATISTICS.items()})

    @property
    def surprises(self) -> list[str]:
        """Names of the statistics that the model hardly ever produces."""
        p = self.statistics["p"]
        return [str(name) for name in p.index[(p < UNLIKELY) | (p > 1.0 - UNLIKELY)]]

    def __repr__(self) -> str:
        draws, rows = self.simulated.shape
        found = ", ".join(self.surprises)
        verdict = f"the model does not reproduce: {found}" if found else "the model reproduces all statistics"
        text = self.statistics.to_string(float_format=lambda v: f"{v:.4g}")
        return f"{self.kind} predictive check of {rows:,} rows, {draws} simulations; {verdict}\n{text}"

    def _repr_html_(self) -> str:
        rows = [(name, *map(float, row)) for name, row in zip(self.statistics.index, self.statistics.to_numpy(), strict=True)]
        head = repr(self).split("\n")[0]
        return f"<p>{head}</p>" + numbers_table(["", *self.statistics.columns], rows)


def compared(found: dict[str, tuple[float, np.ndarray]]) -> pd.DataFrame:
    """Observed statistics among simulated ones, as a table."""
    import pandas as pd

    table = {}
    for name, (seen, each) in found.items():
        if np.ptp(each) == 0.0 and each[0] == seen:
            continue  # such as the smallest of zeros and ones
        low, high = np.quantile(each, (0.055, 0.945))
        p = float((each > seen).mean() + 0.5 * (each == seen).mean())
        table[name] = {"observed": seen, "simulated": float(each.mean()), "lower": low, "upper": high, "p": p}
    return pd.DataFrame.from_dict(table, orient="index", columns=["observed", "simulated", "lower", "upper", "p"])


def check(fit: Fit, rows: int, draws: int, seed: int, data: Any = None, kind: str = "posterior") -> PredictiveCheck:
    """The result of `Fit.ppc`."""
    for name, value in (("rows", rows), ("draws", draws)):
        require_whole(name, value, 2, MOST_DRAWS if name == "draws" else MOST_WHOLE)
    if "weight" in fit.stats:
        raise OptionError(
            "the draws of this fit have weights, which simulated responses would ignore; use an unweighted sampler."
        )
    found = dataset_of(fit, data)
    seeds = sequence(seed, Stream.CHECKED_ROWS).generate_state(int(draws))
    index = np.sort(generator(seed, Stream.CHECKED_ROWS).choice(found.n, min(int(rows), found.n), replace=False))
    records = found.records[index].astype(float)
    x, y = records[:, : found.d], records[:, found.d]
    offset = records[:, found.d + 1] if found.has_offset else None
    groups = levels_of_rows(found, index)
    made = np.stack([_responses(fit, x, offset, groups, found.trials(index), int(s)) for s in seeds])
    if family_of(fit.meta["model"]).response == "time" and (y < 0).any():
        from tallbayes.results.predict import some_theta
        from tallbayes.results.survival_checks import censored_alike

        theta = np.stack([some_theta(fit, 1, int(s))[0][0] for s in seeds])  # of the same draws
        scores = theta[:, : found.d] @ x.T + (0.0 if offset is None else offset)
        return censored_alike(y, made, scores, index, kind, seeds)
    return PredictiveCheck(y, made, index, kind)


def _responses(fit: Fit, x: np.ndarray, offset: np.ndarray | None, groups: Any, trials: np.ndarray, seed: int) -> np.ndarray:
    """One response of each row, at one draw; `trials` are those of proportions of successes."""
    response = family_of(fit.meta["model"]).response
    if response not in ("binary", "class", "ordinal", "successes"):
        return fit.predict(x, kind="response", draws=1, seed=seed, offset=offset, groups=groups)["lower"].to_numpy()
    table = fit.predict(x, draws=1, seed=seed, offset=offset, groups=groups)
    rng = generator(seed, Stream.CHECKED_RESPONSES)
    if response == "successes":
        return rng.binomial(np.round(trials).astype(np.int64), table["mean"].to_numpy()) / trials
    uniform = rng.random((x.shape[0], 1))
    if response == "binary":
        return (uniform[:, 0] < table["mean"].to_numpy()).astype(float)
    shares = np.cumsum(table[[c for c in table.columns if c.startswith("mean[")]].to_numpy(), axis=1)
    return (uniform > shares[:, :-1]).sum(1).astype(float)


@checked
def prior_predictive(model: Model, draws: int = 100, rows: int = 1000, seed: int = 0) -> PredictiveCheck:
    """Responses simulated from the prior, beside the observed ones: does the prior allow what is plausible, and no more?

    Parameters with a flat prior cannot be drawn; log sigma of a gaussian model, unless it has a prior, is set to the log of the standard
    deviation of y.

    >>> import numpy as np, tallbayes as tb
    >>> X = np.column_stack([np.ones(200), np.linspace(-1, 1, 200)])
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, np.tile([0, 1], 100)), tb.priors.normal(1.0))
    >>> tb.prior_predictive(model, draws=50).simulated.shape
    (50, 200)
    """
    from tallbayes.contract import Guarantee
    from tallbayes.results.fit import Fit

    if not isinstance(model, Model):
        raise OptionError(
            f"prior_predictive needs a model such as tallbayes.models.logistic(data); got a {type(model).__name__}."
        )
    require_whole("draws", draws, 2, MOST_DRAWS)
    model.require_ungrouped("prior_predictive")
    theta = _from_prior(model, int(draws), generator(seed, Stream.PRIOR_DRAWS))
    fit = Fit(
        theta=theta[None],
        stats={"evals": np.zeros((1, int(draws)))},
        names=model.names,
        guarantee=Guarantee("EXACT", "independent draws from the prior"),
        why="",
        status="complete",
        setup={},
        warmup={},
        seconds={},
        laplace_mean=np.zeros(model.dim),
        laplace_factor=np.eye(model.dim),
        meta={"model": model.describe(), **origin(model)},
        data=model.data,
    )
    try:
        return check(fit, rows, draws, seed, kind="prior")
    except ModelError as error:
        raise ModelError(f"a response cannot be simulated from this prior ({error}) Use a narrower prior.") from error


def _from_prior(model: Model, draws: int, rng: np.random.Generator) -> np.ndarray:
    assert model.prior is not None
    terms = model.prior_terms
    scales = [k for k, name in enumerate(model.names) if name == "log_sigma" and terms.kind[k] == FLAT]
    spread = float(np.std(model.data.y)) or 1.0
    if terms.dense.size == 0:
        kind = np.array(terms.kind)
        kind[scales] = NORMAL  # replaced below
        for _, _, where in model.members if isinstance(model, UnknownScaleModel) else ():
            kind[list(where)] = NORMAL  # replaced for every draw of the scales
        if (kind == FLAT).any():
            name = model.names[int(np.argmax(kind == FLAT))]
            raise OptionError(
                f"{name!r} has a flat prior, which has no draws; give a proper one such as tallbayes.priors.normal(2.0)."
            )
        terms = terms._replace(kind=kind)
    out = np.empty((draws, model.dim))
    for s in range(draws):
        for _ in range(1000):
            own, shared = model.draw_scales(terms, rng) if isinstance(model, UnknownScaleModel) else (terms, np.empty(0))
            theta = np.append(np.asarray(model.prior.sample(own, rng), float), shared)
            theta[scales] = np.log(spread)
            if np.isfinite(theta).all() and model.admits(theta):
                out[s] = theta
                break
        else:
            raise ModelError(f"1,000 draws from the prior were {model.domain}. Use a narrower prior.")
    return out
