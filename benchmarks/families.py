"""Families with unknown parameters against the tools people use for them, and what exact minibatch reads.

    python -m benchmarks.families [--write] [--only modes|samples] [--rows 100000] [--quick]

The mode under flat priors is the maximum likelihood fit; Laplace standard deviations are its standard errors. References are statsmodels
where it has the model, else SciPy's densities maximised by BFGS with standard errors from differences.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import optimize, stats

import tallbayes as tb
from benchmarks.options import parsed
from benchmarks.report import show

COEFFICIENTS = np.array([0.5, 0.4, -0.3, 0.2])
Reference = Callable[[np.ndarray, Any], tuple[np.ndarray, np.ndarray]]  # estimates and standard errors


def design(n: int) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(17)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 3))])
    return rng, X, X @ COEFFICIENTS


def by_density(log_density: Callable[[np.ndarray], float], start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The maximum of a log-likelihood, and standard errors from central differences of it."""
    loss = lambda v: -log_density(v)  # noqa: E731
    found = optimize.minimize(loss, start, method="BFGS", options={"gtol": 1e-3}).x
    step, hessian = 1e-4, np.empty((start.size, start.size))
    unit = step * np.eye(start.size)
    for i in range(start.size):
        for j in range(i + 1):
            ends = [loss(found + a * unit[i] + b * unit[j]) for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
            hessian[i, j] = hessian[j, i] = (ends[0] - ends[1] - ends[2] + ends[3]) / (4.0 * step**2)
    return found, np.sqrt(np.diag(np.linalg.inv(hessian)))


def negbin(n: int) -> tuple[tb.models.Model, str, Any]:
    import statsmodels.api as sm

    rng, X, eta = design(n)
    y = rng.poisson(np.exp(eta) * rng.standard_gamma(2.0, n) / 2.0)
    model = tb.models.negbin(tb.Dataset.from_arrays(X, y), {"default": tb.priors.flat(), "log_size": tb.priors.flat()})

    def reference() -> tuple[np.ndarray, np.ndarray]:
        fit = sm.NegativeBinomial(y, X).fit(disp=0, gtol=1e-8, maxiter=300)
        alpha = fit.params[-1]
        return np.append(fit.params[:-1], -np.log(alpha)), np.append(fit.bse[:-1], fit.bse[-1] / alpha)

    return model, "statsmodels", reference


def gamma(n: int) -> tuple[tb.models.Model, str, Any]:
    rng, X, eta = design(n)
    y = np.exp(eta) * rng.standard_gamma(3.0, n) / 3.0
    model = tb.models.gamma(tb.Dataset.from_arrays(X, y), tb.priors.flat())
    log_density = lambda v: stats.gamma(np.exp(v[4]), scale=np.exp(X @ v[:4] - v[4])).logpdf(y).sum()  # noqa: E731
    return model, "SciPy", lambda: by_density(log_density, np.append(COEFFICIENTS, 1.0))


def student(n: int) -> tuple[tb.models.Model, str, Any]:
    rng, X, eta = design(n)
    y = eta + 0.8 * rng.standard_t(5.0, n)
    prior = {"default": tb.priors.flat(), "log_nu": tb.priors.flat()}
    model = tb.models.student_t(tb.Dataset.from_arrays(X, y), prior)
    log_density = lambda v: stats.t(np.exp(v[5]), X @ v[:4], np.exp(v[4])).logpdf(y).sum()  # noqa: E731
    return model, "SciPy", lambda: by_density(log_density, np.append(COEFFICIENTS, [-0.2, 1.5]))


def inverse_gaussian(n: int) -> tuple[tb.models.Model, str, Any]:
    import statsmodels.api as sm

    rng, X, eta = design(n)
    y = rng.wald(np.exp(eta), 3.0)
    model = tb.models.inverse_gaussian(tb.Dataset.from_arrays(X, y), tb.priors.flat())

    def reference() -> tuple[np.ndarray, np.ndarray]:
        family = sm.families.InverseGaussian(sm.families.links.Log())
        fit = sm.GLM(y, X, family=family).fit(tol=1e-12)
        mean = fit.fittedvalues
        shape = n / np.sum((y - mean) ** 2 / (mean**2 * y))
        log_density = lambda v: stats.invgauss(np.exp(X @ v[:4] - v[4]), scale=np.exp(v[4])).logpdf(y).sum()  # noqa: E731
        _, error = by_density(log_density, np.append(fit.params, np.log(shape)))
        return np.append(fit.params, np.log(shape)), error

    return model, "statsmodels (errors SciPy)", reference


def beta(n: int) -> tuple[tb.models.Model, str, Any]:
    from statsmodels.othermod.betareg import BetaModel

    rng, X, eta = design(n)
    m = 1.0 / (1.0 + np.exp(-eta))
    y = np.clip(rng.beta(6.0 * m, 6.0 * (1.0 - m)), 1e-9, 1.0 - 1e-9)
    model = tb.models.beta(tb.Dataset.from_arrays(X, y), tb.priors.flat())

    def reference() -> tuple[np.ndarray, np.ndarray]:
        fit = BetaModel(y, X).fit(disp=0)
        return np.asarray(fit.params), np.asarray(fit.bse)

    return model, "statsmodels", reference


def binomial(n: int) -> tuple[tb.models.Model, str, Any]:
    import statsmodels.api as sm

    rng, X, eta = design(n)
    trials = rng.integers(1, 10, n)
    successes = rng.binomial(trials, 1.0 / (1.0 + np.exp(-eta)))
    y, weights = tb.data.proportion(successes, trials)
    model = tb.models.binomial(tb.Dataset.from_arrays(X, y, weights=weights), tb.priors.flat())

    def reference() -> tuple[np.ndarray, np.ndarray]:
        fit = sm.GLM(np.column_stack([successes, trials - successes]), X, family=sm.families.Binomial()).fit(tol=1e-12)
        return fit.params, fit.bse

    return model, "statsmodels", reference


def ordinal(n: int, link: str = "logit") -> tuple[tb.models.Model, str, Any]:
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    rng, X, eta = design(n)
    noise = rng.logistic(size=n) if link == "logit" else rng.standard_normal(n)
    y = np.digitize(eta - 0.5 + noise, [-1.0, 0.2, 1.4])
    model = tb.models.ordinal(tb.Dataset.from_arrays(X[:, 1:], y), tb.priors.flat(), link=link)

    def reference() -> tuple[np.ndarray, np.ndarray]:
        fit = OrderedModel(y, X[:, 1:], distr=link).fit(method="bfgs", disp=0, gtol=1e-6)
        cuts = fit.model.transform_threshold_params(fit.params)[1:-1]
        jacobian = np.eye(6)  # cut points are the first one plus exponentials of the others
        for i in range(1, 3):
            jacobian[3 + i, 3] = 1.0
            for j in range(1, i + 1):
                jacobian[3 + i, 3 + j] = np.exp(fit.params[3 + j])
        covariance = jacobian @ np.asarray(fit.cov_params()) @ jacobian.T
        return np.append(fit.params[:3], cuts), np.sqrt(np.diag(covariance))

    return model, "statsmodels", reference


def survival_rows(name: str, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns, times that were seen, and whether each is that of an event."""
    rng, X, eta = design(n)
    noises = {
        "weibull": lambda: np.log(rng.standard_exponential(n)),
        "loglogistic": lambda: rng.logistic(size=n),
        "lognormal": lambda: rng.standard_normal(n),
    }
    times, limit = np.exp(eta + 0.6 * noises[name]()), rng.exponential(5.0, n)
    return X, np.minimum(times, limit), times <= limit


def survival(name: str, n: int) -> tuple[tb.models.Model, str, Any]:
    X, seen, event = survival_rows(name, n)
    model = getattr(tb.models, name)(tb.Dataset.from_arrays(X, tb.data.censored(seen, event)), tb.priors.flat())
    laws = {
        "weibull": lambda v: stats.weibull_min(np.exp(-v[4]), scale=np.exp(X @ v[:4])),
        "loglogistic": lambda v: stats.fisk(np.exp(-v[4]), scale=np.exp(X @ v[:4])),
        "lognormal": lambda v: stats.lognorm(np.exp(v[4]), scale=np.exp(X @ v[:4])),
    }

    def log_density(v: np.ndarray) -> float:
        law = laws[name](v)
        return float(np.where(event, law.logpdf(seen), law.logsf(seen)).sum())

    return model, "SciPy", lambda: by_density(log_density, np.append(COEFFICIENTS, -0.5))


ZEROS = np.array([-0.5, 0.8])


def zero_counts(name: str, n: int) -> tuple[tb.models.Model, str, Any]:
    """Zero-inflated or hurdle counts, of two predictors; the first column predicts the zeros too.

    Standard errors of the reference are from differences of its likelihood: Hessians of its zero-inflated models lack the blocks that
    couple the predictors.
    """
    import statsmodels.api as sm
    from statsmodels.discrete.truncated_model import TruncatedLFNegativeBinomialP, TruncatedLFPoisson
    from statsmodels.tools.numdiff import approx_hess

    rng, X, eta = design(n)
    Z, sized = X[:, :2], name.endswith("negbin")
    rate = np.exp(eta) * (rng.standard_gamma(2.0, n) / 2.0 if sized else 1.0)
    y, zero = rng.poisson(rate), rng.random(n) < 1.0 / (1.0 + np.exp(-Z @ ZEROS))
    if name.startswith("hurdle"):
        keep = y > 0
        X, Z, y, zero, n = X[keep], Z[keep], y[keep], zero[keep], int(keep.sum())
    y = np.where(zero, 0, y)
    columns = ["Intercept", "x1", "x2", "x3", "zi_Intercept", "zi_x1"]
    wide = tb.priors.normal(100.0)  # a flat prior of the zeros of zero-inflated counts is improper
    prior = {
        "default": tb.priors.flat(),
        "zi_Intercept": wide,
        "zi_x1": wide,
        **({"log_size": tb.priors.flat()} if sized else {}),
    }
    model = getattr(tb.models, name)(tb.Dataset.from_arrays(np.hstack([X, Z]), y, columns=columns), prior)

    def fitted(peer: Any, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        params = np.asarray(peer.fit(start_params=start, disp=0, method="bfgs", maxiter=1000, gtol=1e-6).params)
        return params, np.sqrt(np.diag(np.linalg.inv(-approx_hess(params, peer.loglike))))

    def reference() -> tuple[np.ndarray, np.ndarray]:
        more = [0.5] * sized
        if name.startswith("zero"):
            kind = sm.ZeroInflatedNegativeBinomialP if sized else sm.ZeroInflatedPoisson
            start = np.concatenate([ZEROS, COEFFICIENTS, more])
            params, errors = (np.concatenate([v[2:6], v[:2], v[6:]]) for v in fitted(kind(y, X, exog_infl=Z), start))
        else:
            kind, counted = TruncatedLFNegativeBinomialP if sized else TruncatedLFPoisson, y > 0
            first = fitted(kind(y[counted], X[counted]), np.concatenate([COEFFICIENTS, more]))
            last = fitted(sm.Logit((~counted).astype(float), Z), ZEROS)
            params, errors = (np.concatenate([a[:4], b, a[4:]]) for a, b in zip(first, last, strict=True))
        if sized:  # alpha = 1 / size
            errors[-1] /= params[-1]
            params[-1] = -np.log(params[-1])
        return params, errors

    return model, "statsmodels", reference


def predicted_scale(n: int) -> tuple[tb.models.Model, str, Any]:
    rng, X, eta = design(n)
    y = eta + np.exp(X[:, :2] @ [-0.3, 0.4]) * rng.standard_normal(n)
    columns = ["Intercept", "x1", "x2", "x3", "sigma_Intercept", "sigma_x1"]
    data = tb.Dataset.from_arrays(np.hstack([X, X[:, :2]]), y, columns=columns)
    model = tb.models.gaussian(data, tb.priors.flat(), sigma=columns[4:])
    log_density = lambda v: stats.norm(X @ v[:4], np.exp(X[:, :2] @ v[4:])).logpdf(y).sum()  # noqa: E731
    return model, "SciPy", lambda: by_density(log_density, np.append(COEFFICIENTS, [-0.3, 0.4]))


FAMILIES: dict[str, Callable[[int], tuple[tb.models.Model, str, Any]]] = {
    "negbin, size unknown": negbin,
    "gamma, shape unknown": gamma,
    "student_t, scale and nu unknown": student,
    "inverse_gaussian": inverse_gaussian,
    "beta": beta,
    "binomial": binomial,
    "ordinal, logit": ordinal,
    "ordinal, probit": lambda n: ordinal(n, "probit"),
    "weibull, 30 % censored": lambda n: survival("weibull", n),
    "loglogistic, censored": lambda n: survival("loglogistic", n),
    "lognormal, censored": lambda n: survival("lognormal", n),
    "zero_inflated_poisson": lambda n: zero_counts("zero_inflated_poisson", n),
    "zero_inflated_negbin": lambda n: zero_counts("zero_inflated_negbin", n),
    "hurdle_poisson": lambda n: zero_counts("hurdle_poisson", n),
    "hurdle_negbin": lambda n: zero_counts("hurdle_negbin", n),
    "gaussian, sigma ~ x": predicted_scale,
}


def beside(
    label: str, tool: str, mode: Any, found: tuple[np.ndarray, np.ndarray], seconds: tuple[float, float]
) -> dict[str, Any]:
    """A mode beside the estimates and standard errors of another tool."""
    estimate, error = found
    return {
        "family": label,
        "reference": tool,
        "largest difference of estimates, in standard errors": float(np.abs((mode.reference - estimate) / error).max()),
        "largest relative difference of standard errors": float(np.abs(mode.laplace().sd / error - 1.0).max()),
        "seconds": seconds[0],
        "seconds of the reference": seconds[1],
    }


def modes(n: int) -> list[dict[str, Any]]:
    rows = []
    for label, make in FAMILIES.items():
        model, tool, reference = make(n)
        mode = tb.find_mode(model, progress=False)  # compiled
        start = time.perf_counter()
        mode = tb.find_mode(model, progress=False)
        ours = time.perf_counter() - start
        start = time.perf_counter()
        estimate, error = reference()
        theirs = time.perf_counter() - start
        rows.append(beside(label, tool, mode, (estimate, error), (ours, theirs)))
        print(rows[-1], flush=True)
    return rows


def samples(n: int, draws: int = 5000) -> list[dict[str, Any]]:
    rows = []
    for label, make in FAMILIES.items():
        model, _, _ = make(n)
        mode = tb.find_mode(model, progress=False)
        try:
            tb.samplers.ExactMinibatch().setup(model, mode, 1, False)
        except tb.ModelError:
            continue
        fit = tb.sample(model, "exact-minibatch", draws=draws, warmup=500, chains=2, seed=1, mode=mode, progress=False)
        flat, sd = fit.theta.reshape(-1, model.dim), mode.laplace().sd
        rows.append(
            {
                "family": label,
                "bound": fit.why.rpartition("bound ")[2].split(";")[0],
                "acceptance": float(fit.stats["acceptance_rate"].mean()),
                "rows per iteration": float(fit.stats["rows"].mean()),
                "smallest ESS per iteration": float(fit.ess.min()) / flat.shape[0],
                "largest |mean - mode| / sd": float(np.abs((flat.mean(0) - mode.reference) / sd).max()),
                "largest |sd / Laplace sd - 1|": float(np.abs(flat.std(0) / sd - 1.0).max()),
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/results")
    parser.add_argument("--only", choices=("modes", "samples"))
    parser.add_argument("--rows", type=int, default=100_000)
    options = parsed(parser, rows=2000)
    n = options.rows
    if options.only in (None, "modes"):
        note = f"n = {n:,}, three columns and an intercept, one of them and an intercept in a second predictor; hurdles have the rows "
        note += "whose counts are not zero and more zeros. Flat priors, but normal ones of scale 100 for predictors of zeros. Seconds of "
        note += "find_mode after compilation."
        show("Modes against other tools", modes(n), note, "family-modes" if options.write else None)
    if options.only in (None, "samples"):
        note = f"n = {n:,}; exact minibatch, two chains of 5,000 draws. Families without a certificate are left out."
        show(
            "Exact minibatch with unknown parameters",
            samples(n, 200 if options.quick else 5000),
            note,
            "family-samples" if options.write else None,
        )


if __name__ == "__main__":
    main()
