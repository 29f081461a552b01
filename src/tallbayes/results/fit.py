"""Fit: draws with what they cost and how far they can be trusted; an ArviZ object underneath."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.contract import Guarantee
from tallbayes.errors import ModelError, OptionError
from tallbayes.models.transforms import Parameters
from tallbayes.option_types import checked
from tallbayes.results import cost as costs
from tallbayes.results.answers import Answers
from tallbayes.results.levels import LevelDraws
from tallbayes.results.posterior_variables import Variable, variables
from tallbayes.validation import shown


@dataclass(eq=False)
class Fit(Answers):
    """Draws from a posterior. Made by `tallbayes.sample`, `tallbayes.fit`, `tallbayes.resume` and `tallbayes.load`.

    `theta` holds the draws, (chains, draws, parameters), and `names` the names of the parameters. `stats` has what the sampler reports of
    each draw, `guarantee` how far the draws can be trusted, `why` the reason for the sampler, and `status` how the run ended. `meta`
    describes model, sampler, seed, versions and rows; `levels` has the draws of group effects by term, such as "1|shop".
    """

    theta: np.ndarray  # (chains, draws, dim)
    stats: dict[str, np.ndarray]  # each (chains, draws)
    names: tuple[str, ...]
    guarantee: Guarantee
    why: str
    status: str
    setup: dict[str, Any]  # passes, evaluations and seconds before the chains
    warmup: dict[str, Any]
    seconds: dict[str, float]
    laplace_mean: np.ndarray
    laplace_factor: np.ndarray
    meta: dict[str, Any] = field(default_factory=dict)  # model, sampler, seed, versions, fingerprint
    data: Any = field(default=None, repr=False)  # the Dataset, as long as it is in memory; not saved
    levels: dict[str, LevelDraws] = field(default_factory=dict)  # effects of levels by term, such as "1|shop"
    reference: Any = field(default=None, repr=False)  # of an updated fit: mode and tables, for the next update; not saved

    @property
    def evals(self) -> np.ndarray:
        """Likelihood evaluations behind each draw, (chains, draws)."""
        return self.stats["evals"].astype(np.int64)

    @property
    def weights(self) -> np.ndarray:
        """Weight of each draw, (chains, draws): ones unless the method is signed or re-weighted."""
        return self.stats.get("weight", np.ones(self.theta.shape[:2]))

    @property
    def thin(self) -> int:
        """Iterations for each draw."""
        return int(self.meta.get("thin", 1))

    def expect(self, function: Callable[[np.ndarray], Any]) -> Any:
        """Posterior expectation of `function(theta)`, theta one draw; uses the weights.

        >>> import numpy as np, tallbayes as tb
        >>> data = tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0))
        >>> model = tb.models.gaussian(data, tb.priors.flat(), sigma=1.0)
        >>> fit = tb.sample(model, "hmc", draws=200, warmup=100, chains=2, seed=1, progress=False)
        >>> bool(abs(fit.expect(lambda theta: theta[0]) - 24.5) < 0.1)
        True
        """
        if not callable(function):
            raise OptionError(f"expect needs a function of theta, one draw; got {shown(function)}.")
        flat, w = self.theta.reshape(-1, self.theta.shape[-1]), self.weights.reshape(-1)
        values = np.asarray([function(t) for t in flat], float)
        return np.tensordot(w, values, axes=1) / w.sum()

    @cached_property
    def ess(self) -> np.ndarray:
        """Bulk effective sample size of each coordinate (arviz-stats); of weighted means if the draws have weights."""
        return costs.effective_sizes(self.theta, self.stats.get("weight"))

    @cached_property
    def ess_tail(self) -> np.ndarray:
        """Effective sample size of the 5 % and 95 % quantiles of each coordinate, the smaller one (arviz-stats)."""
        return costs.tail_sizes(self.theta, self.stats.get("weight"))

    @cached_property
    def r_hat(self) -> np.ndarray:
        """Rank-normalised split R-hat of each coordinate (arviz-stats); that of a single chain compares its parts."""
        return costs.r_hats(self.theta)

    @checked
    def draws(self, name: str) -> np.ndarray:
        """Draws of one parameter, (chains, draws), or of a term with levels, (chains, draws, levels).

        The names are those of `fit.names` and of `fit.idata`: of a softmax model `x[1]` for the coefficient of x in class 1, `x` for all
        classes, and `c[T.b][1]` or `c[b][1]` for that of level b of a factor c.

        >>> import numpy as np, tallbayes as tb
        >>> data = tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0), columns=["one"])
        >>> fit = tb.sample(tb.models.gaussian(data, sigma=1.0), "hmc", draws=20, warmup=20, chains=2, seed=1, progress=False)
        >>> fit.draws("one").shape
        (2, 20)
        """
        if name in self.names:
            return self.theta[:, :, self.names.index(name)]
        if name in self.levels:
            return self.levels[name].values
        if name in self.variables:
            return self.variables[name].values
        from tallbayes.results.parameter_names import named_draws, unknown_parameter

        every = named_draws(self)
        if name in every:
            return every[name]
        raise unknown_parameter(name, list(dict.fromkeys([*self.names, *self.levels, *self.variables])))

    def _require_plain(self, what: str) -> None:
        if self.levels:
            raise ModelError(f"{what} is not available for models with group effects yet; use fit.theta and fit.draws(name).")

    def derived(self) -> dict[str, np.ndarray]:
        """What follows from theta: sigma and the like from their logs, and the named parameters of a model written by the user."""
        logs = [n for n in self.meta.get("nuisances", ["log_sigma"]) if n.startswith("log_") and n in self.names]
        found = {name.removeprefix("log_"): np.exp(self.theta[:, :, self.names.index(name)]) for name in logs}
        named = self.meta.get("parameters")
        return found if named is None else {**found, **Parameters.from_list(named).unpack(self.theta, np)}

    @cached_property
    def variables(self) -> dict[str, Variable]:
        """Population parameters by term, as in `idata.posterior`, with the labels of their dimensions."""
        return variables(self)

    @cached_property
    def idata(self) -> Any:
        """The draws as an ArviZ DataTree: posterior, sample_stats, parameters, laplace; attributes hold guarantee, cost and versions.

        `posterior` has one variable per term: "Intercept", "x", factors with a dimension of levels, "1|shop_sigma", "1|shop".

        >>> import numpy as np, tallbayes as tb
        >>> data = tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0), columns=["level"])
        >>> fit = tb.sample(tb.models.gaussian(data), "hmc", draws=20, warmup=20, chains=2, seed=1, progress=False)
        >>> list(fit.idata.posterior.data_vars)
        ['level', 'sigma']
        """
        from tallbayes.results.data_tree import data_tree

        return data_tree(self)

    def cost(self) -> dict[str, Any]:
        """What the run cost: evaluations and seconds of setup, warm-up and draws, and per effective draw.

        IF is iterations per effective draw (largest over parameters), CT = IF x evaluations per iteration.
        """
        return costs.account(self)

    @checked
    def summary(self, term: Any = None, prob: float = 0.89) -> Any:
        """Means, standard deviations, intervals, effective sizes and R-hat as a table; printing it states model and guarantee.

        With group effects, the table has population effects, standard deviations and correlations; `fit.summary("1|shop")` has the
        effect of each level, and `fit.summary("region")` the coefficients of a factor.

        >>> import numpy as np, tallbayes as tb
        >>> data = tb.Dataset.from_arrays(np.ones((60, 1)), np.arange(60.0), groups={"shop": np.repeat(["a", "b", "c"], 20)})
        >>> fit = tb.sample(tb.models.gaussian(data), draws=200, warmup=200, chains=2, seed=1, progress=False)
        >>> fit.summary().index.tolist(), fit.summary("1|shop").index.tolist()
        (['x0', 'log_sigma', '1|shop_sigma', 'sigma'], ['a', 'b', 'c'])
        """
        from tallbayes.results.summary import summarise
        from tallbayes.validation import check_probability

        check_probability(prob)
        if term is None:
            return summarise(self, prob)
        from tallbayes.results.level_summaries import term_summary

        return term_summary(self, term, prob)

    @checked
    def audit(self, model: Any = None, pairs: int = 20, repeats: int = 1000, seed: int = 0, *, sampler: Any = None) -> Any:
        """Check the run again on full data: replay random decisions, bounds on all rows, stored densities.

        The model is built again from the rows, in memory or in the file they came from, unless it is given. A sampler that is not part
        of the package has to be given as `sampler=`, with the options of the run.

        >>> import numpy as np, tallbayes as tb
        >>> rng = np.random.default_rng(0)
        >>> X = np.column_stack([np.ones(5000), rng.standard_normal(5000)])
        >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, rng.integers(0, 2, 5000)))
        >>> fit = tb.sample(model, "exact-minibatch", draws=200, chains=2, seed=1, progress=False)
        >>> fit.audit(pairs=3).passed
        True
        """
        from tallbayes.results.audit import audit

        return audit(self, model, pairs, repeats, seed, sampler)

    @checked
    def predict(
        self,
        new: Any,
        kind: str = "mean",
        prob: float = 0.89,
        draws: int = 200,
        seed: int = 0,
        *,
        offset: Any = None,
        out: str | Path | None = None,
        function: Any = None,
        id: str | Sequence[str] | None = None,
        groups: bool | Mapping[str, Any] = True,
        new_levels: str = "sample",
        trials: Any = None,
        partitions: bool = False,
        client: Any = None,
    ) -> Any:
        """Mean and interval for each row of new data: of E[y | x] (kind="mean") or of y itself (kind="response").

        `new` is an array of design rows (with `offset=` if the model has one), a Dataset, columns by name (a dictionary or
        anything with `__arrow_c_stream__`) or the path of a Parquet file, which is read a chunk at a time. `draws` posterior
        draws are used, with their weights. `out` names a Parquet file to write to as it goes; its path is returned then.
        `id` names columns of `new` that are copied to the result; a pandas frame keeps its index.
        `function(theta, row)`, in JAX, predicts anything else, for models written in JAX too; its row has no response. With
        kind="response" it is `function(key, theta, row)`, which draws a response. With `partitions=True`, or a Dask `client` whose
        workers do it, every file of a folder or pattern gets a file of its own in the folder `out`; a call that was interrupted goes on.
        Softmax: `mean[k]`, `lower[k]`, `upper[k]` of every class; kind="response" gives the likeliest `class` and its
        `probability`.
        With group effects, columns by name hold the levels; `groups={"shop": levels}` gives those of an array. A level that the
        fit does not know is drawn from the population ("sample"), has no effect ("zero") or is an error: `new_levels`.
        `groups=False` leaves all group effects out.
        Models of `p(successes, trials)`: kind="mean" is the probability, kind="response" the number of successes among the trials of each
        new row, which columns by name and a Dataset hold and `trials=` gives for an array.

        >>> import numpy as np, tallbayes as tb
        >>> data = tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0))
        >>> model = tb.models.gaussian(data, tb.priors.flat(), sigma=1.0)
        >>> fit = tb.sample(model, "hmc", draws=200, warmup=100, chains=2, seed=1, progress=False)
        >>> fit.predict(np.ones((1, 1))).round(1)
           mean  lower  upper
        0  24.5   24.3   24.7
        >>> fit.predict({"x0": [1.0, 1.0]}, kind="response").shape
        (2, 3)
        """
        from tallbayes.results.predict import predict
        from tallbayes.results.scoring import predict_files

        if partitions or client is not None:
            plain = all(v is None for v in (function, offset, id, trials)) and groups is True and new_levels == "sample"
            if not plain:
                raise OptionError(
                    "predictions of many files take their offset and their trials from the plan of the fit, and no function=, id=, groups= "
                    "or new_levels=."
                )
            return predict_files(self, new, out, client, kind, prob, draws, seed)
        return predict(self, new, kind, prob, draws, seed, offset, out, function, id, groups, new_levels, None, trials)

    def update(self, rows: Any, **options: Any) -> Fit:
        """The fit of the rows so far and of new ones, at the cost of a pass over the new ones; exact as before.

        `rows` is whatever `tallbayes.read` reads, by the same formula, or a Dataset with the same columns. Levels, knots and the
        scales of a prior stay those of the first rows; a level that was not among them is refused. Options are those of
        `tallbayes.sample`, otherwise as before, and `model=` if the rows of the fit cannot be found again. Packed stores grow in their
        place. The first update of a fit also makes two passes over the old rows; `meta["history"]` lists all of them.

        >>> import numpy as np, tallbayes as tb
        >>> rng = np.random.default_rng(0)
        >>> def rows(m):
        ...     X = np.column_stack([np.ones(m), rng.standard_normal(m)])
        ...     return tb.Dataset.from_arrays(X, rng.random(m) < 1 / (1 + np.exp(-X[:, 1])))
        >>> fit = tb.sample(tb.models.logistic(rows(5000)), "exact-minibatch", draws=200, seed=1, progress=False)
        >>> fit.update(rows(500), seed=2, progress=False).meta["rows"]
        5500
        """
        from tallbayes.results.rebuild import updater

        self._require_plain("update")
        return updater()(self, rows, options)

    @checked
    def loo(self, model: Any = None, rows: int = 1000, seed: int = 0, *, pointwise: bool = False) -> Any:
        """Expected log predictive density by leave-one-out on a random few rows, an `ELPDData` of arviz-stats.

        The model is built again from the rows, in memory or in the file they came from, unless it is given.
        One pass over the data and `rows` x 2000 numbers of memory at most; `subsampling_se` is the part of `se` that more
        rows would remove. Densities are normalised, so models of different families for the same response compare.
        `pointwise=True` adds the value of each sampled row, which `arviz_stats.compare` needs.

        >>> import numpy as np, tallbayes as tb
        >>> rng = np.random.default_rng(0)
        >>> model = tb.models.gaussian(tb.Dataset.from_arrays(np.ones((500, 1)), rng.standard_normal(500)), sigma=1.0)
        >>> fit = tb.sample(model, "hmc", draws=200, warmup=100, chains=2, seed=1, progress=False)
        >>> elpd = fit.loo(rows=100)
        >>> bool(abs(elpd.elpd + 500 * 1.42) < 4.9 * elpd.se), elpd.warning
        (True, False)
        """
        from tallbayes.results.leave_one_out import loo
        from tallbayes.results.rebuild import model_of

        return loo(self, model_of(self) if model is None else model, rows, seed, pointwise)

    @checked
    def reweight(self, model: Any, draws: int | None = None) -> Fit:
        """The fit of a pseudo-marginal sampler with importance weights that make it exact: w = L(theta) / L-hat(theta; u).

        The weight of a draw needs the likelihood on all rows, n evaluations; `draws` takes so many of each chain, evenly spaced.
        Weights are Pareto-smoothed (Vehtari et al. 2024); a shape above 0.7 is refused: the weights have no finite variance then.

        >>> import numpy as np, tallbayes as tb
        >>> rng = np.random.default_rng(0)
        >>> X = np.column_stack([np.ones(2000), rng.standard_normal(2000)])
        >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, rng.integers(0, 2, 2000)))
        >>> fit = tb.sample(model, "hmc-ecs", draws=500, warmup=100, chains=2, seed=1, progress=False)
        >>> exact = fit.reweight(model)
        >>> exact.guarantee.kind, exact.weights.shape, exact.meta["notes"]["pareto_k"] < 0.7
        ('EXACT', (2, 500), True)
        """
        self._require_plain("reweight")
        from tallbayes.results.reweight import reweight

        return reweight(self, model, draws)

    @checked
    def stein(self, model: Any, candidates: int = 100, keep: int | None = None, *, seed: int = 0, progress: bool = True) -> Any:
        """Kernel Stein discrepancy of the draws from the posterior, and Stein thinning: for methods whose law is unknown.

        The gradient on all rows is computed at `candidates` evenly spaced draws (n evaluations each); `keep` of them, a quarter
        unless given, are picked to represent the posterior. Read the discrepancy beside `expected`, that of independent
        posterior draws.

        >>> import numpy as np, tallbayes as tb
        >>> data = tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0))
        >>> model = tb.models.gaussian(data, tb.priors.flat(), sigma=1.0)
        >>> fit = tb.sample(model, "hmc", draws=200, warmup=100, chains=2, seed=1, progress=False)
        >>> found = fit.stein(model, progress=False)
        >>> bool(found.ksd < 2 * found.expected), found.theta.shape, found.evals
        (True, (25, 1), 5000)
        """
        self._require_plain("stein")
        from tallbayes.results.stein import stein

        return stein(self, model, candidates, keep, seed, progress)

    @checked
    def save(self, path: str | Path) -> Path:
        """Write the fit to a netCDF file, aside and renamed; read it with `tallbayes.load`."""
        from tallbayes.results.files import save

        return save(self, path)

    @checked
    def plot(
        self,
        kind: str = "forest",
        path: str | Path | None = None,
        most: int = 12,
        *,
        names: str | Sequence[str] | None = None,
        data: Any = None,
        prob: float = 0.89,
    ) -> Any:
        """A matplotlib figure, which notebooks show by themselves; saved to `path` if given.

        "forest": intervals of parameters and a line at zero. "marginals": histograms against the Laplace fit. "trace": chains.
        "effect": the average prediction as a variable changes, `names` being variables. "ppc": simulated beside observed
        responses. "levels": effects of the levels of a group in order. "calibration": predicted probabilities against
        observed shares. "cost": evaluations per iteration.

        `names` selects parameters, by name or by a pattern such as "region*"; otherwise the first `most` are shown. `data=` gives
        the Dataset if the rows of the fit cannot be found again.
        """
        from tallbayes.results.plots import draw

        return draw(self, kind, path, most, names, data, prob)

    @checked
    def report(self, path: str | Path = "report.html", plots: bool = True) -> Path:
        """One HTML page with everything about the fit: model, guarantee, posterior, cost, plots, diagnostics, versions.

        The page is self-contained: it loads nothing and runs no script. `plots=False` does without matplotlib.

        >>> import numpy as np, tallbayes as tb, tempfile
        >>> data = tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0))
        >>> fit = tb.sample(tb.models.gaussian(data, sigma=1.0), "hmc", draws=20, warmup=20, chains=2, seed=1, progress=False)
        >>> fit.report(tempfile.mkdtemp() + "/report.html", plots=False).name
        'report.html'
        """
        from tallbayes.results.report import report

        return report(self, path, plots)

    def __repr__(self) -> str:
        chains, draws, dim = self.theta.shape
        model = self.meta.get("model", {}).get("family", "?")
        return f"Fit({model}, {chains} chains x {draws:,} draws x {dim} parameters, {self.guarantee.kind}, {self.status})"
