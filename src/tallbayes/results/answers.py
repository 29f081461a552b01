"""Methods of `Fit` that answer questions about the world rather than about the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tallbayes.option_types import checked
from tallbayes.validation import require_instance

if TYPE_CHECKING:
    import pandas as pd

    from tallbayes.results.effects import Request
    from tallbayes.results.hypotheses import Hypothesis
    from tallbayes.results.predictive_checks import PredictiveCheck
    from tallbayes.results.table_text import Effects

MOST_SHOWN = 20  # parameters of a fit in a notebook


class Answers:
    """Average effects, probabilities of statements, ratios, predictive checks."""

    @checked
    def predictions(
        self: Any,
        at: Mapping[str, Any] | None = None,
        *,
        by: str | Sequence[str] | None = None,
        scale: str = "response",
        data: Any = None,
        model: Any = None,
        prob: float = 0.89,
        draws: int = 1000,
        rows: int | None = None,
        seed: int = 0,
    ) -> Effects:
        """Average prediction over the rows, as they are or with the columns of `at` set to the values given there.

        `at={"age": [20, 60]}` predicts for all rows as if everybody were 20, then 60. `by` names a column (or several): one
        average for each of its values. `scale` is "response", "link", "odds" or "log". The rows are those of the fit; `data=`
        gives others, `model=` those of a model. At most `draws` draws are used. The result is a table with the mean and the
        interval of each average, and its `posterior` at each draw.

        Memory does not grow with the rows: one pass sums tangents at the posterior mean, and the remainders are averaged over
        some rows at random, whose standard error is `rows_se`. More are taken until it is below 2 % of the posterior standard
        deviation, 20,000 at most, or exactly `rows` of each group.

        >>> import numpy as np, pyarrow as pa, tallbayes as tb
        >>> rng = np.random.default_rng(0)
        >>> age, region = rng.uniform(20, 60, 2000), rng.choice(["N", "S"], 2000)
        >>> bought = (rng.random(2000) < 1 / (1 + np.exp(3 - 0.05 * age - (region == "S")))).astype(int)
        >>> rows = pa.table({"bought": bought, "age": age, "region": region})
        >>> fit = tb.fit("bought ~ age + region", rows, draws=200, warmup=200, chains=2, seed=1, progress=False)
        >>> table = fit.predictions(at={"age": [20, 60]})
        >>> table[["age", "mean", "rows_se"]].round(1)
           age  mean  rows_se
        0   20   0.2      0.0
        1   60   0.6      0.0
        >>> bool(abs(fit.predictions()["mean"][0] - bought.mean()) < 0.01)
        True
        """
        from tallbayes.results import effects

        return effects.predictions(_request(self, "predictions", at, by, scale, data, model, prob, draws, rows, seed))

    @checked
    def comparisons(
        self: Any,
        variables: str | Sequence[str] | Mapping[str, Any] | None = None,
        *,
        at: Mapping[str, Any] | None = None,
        by: str | Sequence[str] | None = None,
        scale: str = "response",
        data: Any = None,
        model: Any = None,
        prob: float = 0.89,
        draws: int = 1000,
        rows: int | None = None,
        seed: int = 0,
    ) -> Effects:
        """How the average prediction changes with a variable, all other columns as they are.

        A column of levels is compared with its first level, a column of 0 and 1 as 1 with 0, a number with itself plus 1 (in
        a spline: half a standard deviation above the mean with half of one below). A dictionary says otherwise:
        `{"age": 10}`, `{"age": (20, 60)}`, `{"age": "sd"}` ("2sd", "minmax"), `{"region": "pairwise"}` ("sequential") or
        `{"region": ("N", "S")}`, from and to. `scale` is "response" (a difference of averages), "link", "ratio" (of averages:
        risk ratios and rate ratios), "odds" (odds ratios) or "log" (logarithm of the ratio). The other options are those of
        `predictions`.

        >>> import numpy as np, pyarrow as pa, tallbayes as tb
        >>> rng = np.random.default_rng(0)
        >>> region = rng.choice(["N", "S"], 2000)
        >>> rows = pa.table({"claims": rng.poisson(np.where(region == "S", 2.0, 1.0)), "region": region})
        >>> fit = tb.fit("claims ~ region", rows, "poisson", draws=200, warmup=200, chains=2, seed=1, progress=False)
        >>> fit.comparisons("region", scale="ratio")[["variable", "contrast", "mean"]].round(0)
          variable contrast  mean
        0   region   S vs N   2.0
        """
        from tallbayes.results import effects

        request = _request(self, "comparisons", at, by, scale, data, model, prob, draws, rows, seed)
        return effects.comparisons(request, variables)

    @checked
    def slopes(
        self: Any,
        variables: str | Sequence[str] | None = None,
        *,
        at: Mapping[str, Any] | None = None,
        by: str | Sequence[str] | None = None,
        scale: str = "response",
        data: Any = None,
        model: Any = None,
        prob: float = 0.89,
        draws: int = 1000,
        rows: int | None = None,
        seed: int = 0,
    ) -> Effects:
        """Average derivative of E[y | x] in a numeric column, through every term it is part of.

        Without `variables`, all numeric columns. `scale` is "response", "link", "log" (relative change for one unit) or
        "elasticity" (relative change for a relative change). The other options are those of `predictions`.

        >>> import numpy as np, pyarrow as pa, tallbayes as tb
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(0, 2, 2000)
        >>> rows = pa.table({"y": x**2 + 0.1 * rng.standard_normal(2000), "x": x})
        >>> model = tb.models.gaussian(tb.read(rows, "y ~ x + I(x**2)"), sigma=0.1)
        >>> fit = tb.sample(model, "hmc", draws=200, warmup=200, chains=2, seed=1, progress=False)
        >>> fit.slopes("x", at={"x": [0, 1, 2]})["mean"].round(1).abs().tolist()  # of x squared, 2x
        [0.0, 2.0, 4.0]
        """
        from tallbayes.results import effects

        return effects.slopes(_request(self, "slopes", at, by, scale, data, model, prob, draws, rows, seed), variables)

    @checked
    def hypothesis(self: Any, statement: str, prob: float = 0.89) -> Hypothesis:
        """The posterior probability of a statement about parameters, such as "x > 0", "a < 2 * b" or "-0.1 < x < 0.1".

        The evidence ratio is that of the statement to its opposite. Names that hold operators, such as `g[T.b]`, may stand in
        backquotes. A softmax model has a coefficient for each class, so "x[1] > x[0]" asks whether x favours class 1 over class 0.

        >>> import numpy as np, tallbayes as tb
        >>> data = tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0), columns=["level"])
        >>> model = tb.models.gaussian(data, tb.priors.flat(), sigma=1.0)
        >>> fit = tb.sample(model, "hmc", draws=200, warmup=100, chains=2, seed=1, progress=False)
        >>> fit.hypothesis("level > 24").probability
        1.0
        >>> 0.4 < fit.hypothesis("level > 24.5").probability < 0.6
        True
        """
        from tallbayes.results.hypotheses import hypothesis

        return hypothesis(self, statement, prob)

    @checked
    def odds_ratios(self: Any, prob: float = 0.89) -> pd.DataFrame:
        """e^coefficient: odds ratios of logistic models, rate ratios of poisson and negbin, ratios of means of gamma.

        Posterior median, interval, and probability that the ratio exceeds 1; the intercept is left out.

        >>> import numpy as np, tallbayes as tb
        >>> X = np.column_stack([np.ones(400), np.tile([0.0, 1.0], 200)])
        >>> data = tb.Dataset.from_arrays(X, np.tile([1, 2, 1, 2], 100), columns=["one", "treated"])
        >>> fit = tb.sample(tb.models.poisson(data), "hmc", draws=200, warmup=200, chains=2, seed=1, progress=False)
        >>> fit.odds_ratios().round(0)
                 rate_ratio  lower  upper  P(>1)
        treated         2.0    2.0    2.0    1.0
        """
        from tallbayes.results.hypotheses import ratios

        return ratios(self, prob)

    @checked
    def icc(self: Any, prob: float = 0.89) -> pd.DataFrame:
        """Intraclass correlation of each grouping factor: its share of the variance that the population effects leave.

        Variances are those of the random intercepts, with the residual variance of a gaussian model, pi^2/3 of a logistic one and 1
        of a probit one. With random slopes this is the share where their columns are zero.

        >>> import numpy as np, tallbayes as tb
        >>> data = tb.Dataset.from_arrays(np.ones((60, 1)), np.arange(60.0), groups={"shop": np.repeat(["a", "b", "c"], 20)})
        >>> fit = tb.sample(tb.models.gaussian(data), draws=200, warmup=200, chains=2, seed=1, progress=False)
        >>> bool(fit.icc().loc["shop", "mean"] > 0.5)
        True
        """
        from tallbayes.results.level_summaries import intraclass

        return intraclass(self, prob)

    @checked
    def ppc(self: Any, rows: int = 1000, draws: int = 100, seed: int = 0, *, data: Any = None) -> PredictiveCheck:
        """Posterior predictive check: responses simulated for `rows` random rows at `draws` draws, beside the observed ones.

        Its `statistics` tell which features of the response the model reproduces; `fit.plot("ppc")` shows the distributions.
        Where times are censored, the simulated ones are censored, too: the statistics and the plot are those of Kaplan-Meier curves.
        `data=` gives the Dataset or the model if the rows are neither in memory nor in a file that is still there.

        >>> import numpy as np, tallbayes as tb
        >>> data = tb.Dataset.from_arrays(np.ones((400, 1)), np.tile([0, 0, 0, 4], 100))  # too many zeros for a Poisson law
        >>> fit = tb.sample(tb.models.poisson(data), "hmc", draws=200, warmup=200, chains=2, seed=1, progress=False)
        >>> fit.ppc().surprises
        ['sd', 'share of zeros']
        """
        from tallbayes.results.predictive_checks import check

        return check(self, rows, draws, seed, data)

    def __getstate__(self) -> dict[str, Any]:
        """Without the rows: a pickled fit is as large as its draws."""
        return {**self.__dict__, "data": None}

    def _repr_html_(self: Any) -> str:
        from tallbayes.notebook import numbers_table

        table = self.summary()
        columns = [c for c in table.columns if c not in ("ess_tail", "mcse_mean")]
        rows = [(name, *(float(row[c]) for c in columns)) for name, row in table.head(MOST_SHOWN).iterrows()]
        from html import escape

        more = len(table) - len(rows)
        head = "<br>".join(escape(line) for line in table.header)
        return f"<p>{head}</p>" + numbers_table(["", *columns], rows, f"and {more} more parameters" if more > 0 else "")


def _request(
    fit: Any,
    method: str,
    at: Mapping[str, Any] | None,
    by: str | Sequence[str] | None,
    scale: str,
    data: Any,
    model: Any,
    prob: float,
    draws: int,
    rows: int | None,
    seed: int,
) -> Request:
    from tallbayes.errors import OptionError
    from tallbayes.model import Model
    from tallbayes.results.effects import Request

    if model is not None and data is not None:
        raise OptionError("give data= or model=, not both: the rows of model= are those of its data.")
    if model is not None:
        require_instance("model", model, Model, "a model of the rows to average over, or None for those of the fit")
    return Request(fit, at, by, scale, data if model is None else model.data, prob, draws, rows, seed, method)
