"""Estimators for scikit-learn: regression and classification with posterior draws, in pipelines and grid searches.

>>> from tallbayes.sklearn import BayesClassifier
>>> BayesClassifier(draws=500).get_params()["draws"]
500
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from tallbayes import api, models
from tallbayes.data.dataset import Dataset
from tallbayes.errors import OptionError, TallbayesError, unknown, warn
from tallbayes.named_priors import PriorLike
from tallbayes.validation import require_instance, require_switch, shown

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, check_random_state, validate_data
except ImportError:
    raise TallbayesError("tallbayes.sklearn needs scikit-learn 1.6 or later: pip install 'tallbayes[sklearn]'.") from None

BINARY = ("logistic", "probit")
NUMERIC = ("gaussian", "student_t", "poisson", "negbin", "gamma")
BLOCK = 4096  # rows predicted at a time
_INTERPOLATED = 1e-6  # of the spread of y: a residual spread below it means that a scale cannot be learned


class _BayesEstimator(BaseEstimator):
    """What classifier and regressor have in common. Parameters are those of `tallbayes.sample`."""

    def __init__(
        self,
        family: str,
        prior: PriorLike,
        sampler: Any,
        draws: int,
        warmup: int,
        chains: int,
        fit_intercept: bool,
        family_options: dict[str, Any] | None,
        random_state: Any,
    ) -> None:
        self.family = family
        self.prior = prior
        self.sampler = sampler
        self.draws = draws
        self.warmup = warmup
        self.chains = chains
        self.fit_intercept = fit_intercept
        self.family_options = family_options
        self.random_state = random_state

    def _check_parameters(self, families: tuple[str, ...], kind: str) -> dict[str, Any]:
        """Refuse parameters that cannot be meant; those of a run are checked by `tallbayes.sample`. Returns the options of the family."""
        if not isinstance(self.family, str) or self.family not in families:
            raise unknown(f"family of a {kind}", self.family, families)
        require_switch("fit_intercept", self.fit_intercept)
        if self.family_options is None:
            return {}
        require_instance("family_options", self.family_options, dict, "a dictionary of options of the family, or None")
        return dict(self.family_options)

    def _names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        listed = [f"x{j}" for j in range(self.n_features_in_)] if names is None else [str(c) for c in names]
        return (["Intercept"] if self.fit_intercept else []) + listed

    def _design(self, X: np.ndarray) -> np.ndarray:
        return np.column_stack([np.ones(X.shape[0]), X]) if self.fit_intercept else np.asarray(X, float)

    def _sample(self, X: np.ndarray, y: np.ndarray, sample_weight: Any, family: str, options: dict[str, Any]) -> None:
        if np.iscomplexobj(np.asarray(sample_weight)):
            raise OptionError("sample_weight must be a number, or one for each row of X; got complex numbers.")
        try:
            weights = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64)
        except (ValueError, TypeError, OverflowError) as error:
            raise OptionError(f"sample_weight must be a number, or one for each row of X: {error}") from error
        if weights is not None and (weights < 0).any():
            raise OptionError("sample_weight must not be negative: each weight is a power of the likelihood of its row.")
        data = Dataset.from_arrays(self._design(X), y, weights=weights, columns=self._names())
        try:
            seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        except (ValueError, TypeError) as error:
            raise OptionError(
                f"random_state must be a whole number from 0 to 2^32 - 1, a RandomState of NumPy, or None; got {shown(self.random_state)}."
            ) from error
        model = models.build(family, data, self.prior, **options)
        self.fit_ = api.sample(
            model, self.sampler, draws=self.draws, warmup=self.warmup, chains=self.chains, seed=seed, progress=False
        )
        self.n_iter_ = int(self.warmup + self.draws)

    def _coefficients(self) -> np.ndarray:
        """Draws of the coefficients of the columns, (draws, predictors, columns)."""
        d = len(self.fit_.meta["columns"])
        predictors = int(self.fit_.meta["model"]["options"].get("classes") or 1)
        return self.fit_.theta.reshape(-1, self.fit_.theta.shape[2])[:, : predictors * d].reshape(-1, predictors, d)

    def _set_means(self) -> None:
        mean = np.average(self._coefficients(), axis=0, weights=self.fit_.weights.reshape(-1))
        first = int(self.fit_intercept)
        self.coef_ = mean[:, first:] if mean.shape[0] > 1 else mean[0, first:]
        self.intercept_ = mean[:, 0] if first and mean.shape[0] > 1 else float(mean[0, 0]) if first else 0.0


class BayesClassifier(ClassifierMixin, _BayesEstimator):
    """Bayesian classification: logistic or probit regression of two classes, multinomial regression of more.

    Parameters
    ----------
    family : "logistic" or "probit"
        The link for two classes. More than two classes are always multinomial logistic ("softmax").
    prior : prior of tallbayes.priors, optional
        The weakly informative default if None.
    sampler : str or sampler, default "auto"
    draws, warmup, chains : int
        As in `tallbayes.sample`.
    fit_intercept : bool, default True
    family_options : dict, optional
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : the classes in order.
    coef_, intercept_ : posterior means.
    fit_ : the `tallbayes.Fit`: draws, summary, guarantee, slopes, comparisons.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 2))
    >>> y = np.where(rng.random(500) < 1 / (1 + np.exp(-2 * X[:, 0])), "yes", "no")
    >>> model = BayesClassifier(sampler="nuts", draws=200, warmup=200, chains=2, random_state=0).fit(X, y)
    >>> model.classes_.tolist(), model.predict_proba(X[:2]).shape, bool(model.score(X, y) > 0.7)
    (['no', 'yes'], (2, 2), True)
    """

    def __init__(
        self,
        family: str = "logistic",
        *,
        prior: PriorLike = None,
        sampler: Any = "auto",
        draws: int = 1000,
        warmup: int = 1000,
        chains: int = 4,
        fit_intercept: bool = True,
        family_options: dict[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(family, prior, sampler, draws, warmup, chains, fit_intercept, family_options, random_state)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Draw from the posterior; `sample_weight` is the power of the likelihood of each row."""
        options = self._check_parameters(BINARY, "classifier")
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if self.classes_.size < 2:
            raise OptionError(f"a classifier needs at least two classes; y has one class, {self.classes_[0]}.")
        if self.classes_.size == 2:
            self._sample(X, codes.astype(float), sample_weight, self.family, options)
        else:
            self._sample(X, codes.astype(float), sample_weight, "softmax", {**options, "classes": int(self.classes_.size)})
        self._set_means()
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Posterior mean of the probability of each class."""
        check_is_fitted(self)
        X = self._design(validate_data(self, X, dtype=np.float64, reset=False))
        table = self.fit_.predict(X, draws=self.fit_.theta.shape[0] * self.fit_.theta.shape[1])
        if self.classes_.size == 2:
            p = table["mean"].to_numpy()
            return np.column_stack([1.0 - p, p])
        return table[[f"mean[{k}]" for k in range(self.classes_.size)]].to_numpy()

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithm of `predict_proba`."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most likely class of each row."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(1)]


class BayesRegressor(RegressorMixin, _BayesEstimator):
    """Bayesian regression: gaussian, student_t, poisson, negbin or gamma.

    Parameters
    ----------
    family : str, default "gaussian"
    family_options : dict, optional
        Such as {"nu": 4.0, "scale": 1.0} of student_t; sigma of "gaussian" is estimated by default.
    prior, sampler, draws, warmup, chains, fit_intercept, random_state
        As in `BayesClassifier`.

    Attributes
    ----------
    coef_, intercept_ : posterior means.
    fit_ : the `tallbayes.Fit`: draws, summary, guarantee, slopes, comparisons.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 2))
    >>> y = 1.0 + 2.0 * X[:, 0] + rng.standard_normal(300)
    >>> model = BayesRegressor(sampler="nuts", draws=200, warmup=200, chains=2, random_state=0).fit(X, y)
    >>> mean, sd = model.predict(X[:3], return_std=True)
    >>> bool(abs(model.coef_[0] - 2.0) < 0.3), bool((abs(sd - 1.0) < 0.2).all())
    (True, True)
    """

    def __init__(
        self,
        family: str = "gaussian",
        *,
        prior: PriorLike = None,
        sampler: Any = "auto",
        draws: int = 1000,
        warmup: int = 1000,
        chains: int = 4,
        fit_intercept: bool = True,
        family_options: dict[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(family, prior, sampler, draws, warmup, chains, fit_intercept, family_options, random_state)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Draw from the posterior; `sample_weight` is the power of the likelihood of each row."""
        options = self._check_parameters(NUMERIC, "regressor")
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        if "sigma" in models.family_options(self.family) and options.get("sigma") is None:
            options["sigma"] = self._known_scale(X, y)
        self._sample(X, y.astype(float), sample_weight, self.family, options)
        self._set_means()
        return self

    def _known_scale(self, X: np.ndarray, y: np.ndarray) -> float | None:
        """A scale for a response that the columns explain to the last digit; None if it can be learned."""
        design, spread = self._design(X), float(np.std(y)) or 1.0
        left = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
        freedom = y.size - np.linalg.matrix_rank(design)
        if freedom > 0 and np.sqrt((left**2).sum() / freedom) > _INTERPOLATED * spread:
            return None
        warn(
            "the columns explain y without error, so its noise cannot be estimated; sigma is set to a thousandth of the spread "
            "of y. Use fewer columns or more rows."
        )
        return 1e-3 * spread

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Posterior mean of E[y | x]; with `return_std` also the standard deviation of a new response."""
        from tallbayes.results.links import mean_of

        check_is_fitted(self)
        X = self._design(validate_data(self, X, dtype=np.float64, reset=False))
        theta, weights = self._coefficients()[:, 0], self.fit_.weights.reshape(-1) / self.fit_.weights.sum()
        function, means, spreads = mean_of(self.family), [], []
        for start in range(0, X.shape[0], BLOCK):
            mu = function(X[start : start + BLOCK] @ theta.T)
            means.append(mu @ weights)
            if return_std:
                between = ((mu - means[-1][:, None]) ** 2) @ weights
                spreads.append(np.sqrt(np.maximum(0.0, between + self._noise(mu) @ weights)))
        mean = np.concatenate(means)
        return (mean, np.concatenate(spreads)) if return_std else mean

    def _noise(self, mean: np.ndarray) -> np.ndarray:
        """Variance of y given its mean, at each draw."""
        family, described = models.family_of(self.fit_.meta["model"]), self.fit_.meta["model"]
        assert family.variance is not None
        nuisances = self.fit_.theta.reshape(-1, self.fit_.theta.shape[-1])[:, len(self.fit_.meta["columns"]) :]
        return family.variance(family.member_of(**described["options"]), mean, nuisances)

    def predict_interval(self, X: Any, prob: float = 0.89) -> np.ndarray:
        """Ends of the interval that holds a new response with this probability, (rows, 2)."""
        check_is_fitted(self)
        X = self._design(validate_data(self, X, dtype=np.float64, reset=False))
        return self.fit_.predict(X, kind="response", prob=prob, draws=1000)[["lower", "upper"]].to_numpy()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.family in ("poisson", "negbin", "gamma")
        return tags
