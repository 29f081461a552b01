"""Proposition 4.2 of Bardenet, Doucet and Holmes (2017): the variance of pseudo-marginal Firefly's log-likelihood estimate.

python -m experiments.firefly_variance [--quick] [--write]

Given theta, lights are independent, z_i = 1 with probability 1 - I, and the variance of the log of equation (13) is

    I (1 - I) sum_i log^2[ I / (1 - I) (e^{l_i - b_i} - 1) ]                                                     (14).

It is evaluated at the mode and at draws of the posterior, with one I for all rows as in the paper, the mean of B_i / L_i, and with one for
each row, and set beside the variance of simulated estimates.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.acceptance_tools import arguments


def gaps(x: np.ndarray, y: np.ndarray, theta: np.ndarray, xi: np.ndarray) -> np.ndarray:
    """l_i - b_i of Jaakkola and Jordan's bound of logistic regression, tangent at |x_i theta| = xi_i."""
    t = (2.0 * y - 1.0) * (x @ theta)
    slope = np.where(xi > 1e-4, np.tanh(xi / 2.0) / (4.0 * np.maximum(xi, 1e-4)), 0.125)
    bound = -slope * (t * t - xi * xi) + 0.5 * (t - xi) - np.logaddexp(0.0, -xi)
    return np.maximum(-np.logaddexp(0.0, -t) - bound, 0.0)


def variance(gap: np.ndarray, unlit: np.ndarray) -> float:
    """Equation (14), with I_i = unlit_i; a row on its bound would never be lit, and its term has the limit zero."""
    odds = np.log(np.maximum(np.expm1(gap), 1e-300)) + np.log(unlit) - np.log1p(-unlit)
    return float(np.sum(np.where(gap > 0.0, unlit * (1.0 - unlit) * odds**2, 0.0)))


def simulated(gap: np.ndarray, unlit: np.ndarray, draws: int, rng: np.random.Generator) -> tuple[float, float]:
    """Variance of `draws` log estimates, and its standard error from their fourth moment."""
    lit_term = np.log(np.maximum(np.expm1(gap), 1e-300)) + np.log(unlit) - np.log1p(-unlit)
    sums = np.array([lit_term[rng.random(gap.size) > unlit].sum() for _ in range(draws)])
    centred = (sums - sums.mean()) ** 2
    return float(centred.mean()), float(centred.std() / np.sqrt(draws))


def problem(n: int, outliers: float) -> tuple[tb.models.Model, np.ndarray, np.ndarray]:
    """Two Gaussian classes; a share of the rows has its label turned round, far on the wrong side."""
    rng = np.random.default_rng(n)
    y = (rng.random(n) < 0.5).astype(float)
    x = rng.standard_normal((n, 2))
    x[:, 0] += np.where(y > 0.5, 1.0, -1.0)
    wrong = rng.random(n) < outliers
    x[wrong, 0] -= np.where(y[wrong] > 0.5, 6.0, -6.0)
    return tb.models.logistic(tb.Dataset.from_arrays(x, y), tb.priors.normal(2.0)), x, y


def main() -> None:
    options = arguments(__doc__)
    sizes, draws = ((1000,), 400) if options.quick else ((1000, 10_000, 100_000), 4000)
    rng, table = np.random.default_rng(0), []
    for outliers in (0.0, 0.01):
        for n in sizes:
            model, x, y = problem(n, outliers)
            mode = tb.find_mode(model, progress=False)
            spread = mode.laplace().draw(rng, 20)
            tuned = np.abs(x @ mode.reference)
            for label, xi in (("untuned, xi = 1.5", np.full(n, 1.5)), ("tuned at the mode", tuned)):
                each = [gaps(x, y, theta, xi) for theta in spread]
                typical = np.clip(np.mean([np.exp(-g) for g in each], axis=0), 1e-12, 1.0 - 1e-12)
                unlit = np.full(n, typical.mean())
                row: dict[str, Any] = {"rows far on the wrong side": f"{100 * outliers:g} %", "n": n, "bound": label}
                row["1 - I"] = float(1.0 - unlit[0])
                row["(14), median of 20 draws of theta"] = float(np.median([variance(g, unlit) for g in each]))
                value, error = simulated(each[0], unlit, draws if n < 100_000 else draws // 10, rng)
                row["(14) at the first of them"], row["simulated"] = variance(each[0], unlit), f"{value:.3g} ± {error:.2g}"
                row["z"] = (value - row["(14) at the first of them"]) / error
                row["(14), an I of each row"] = float(np.median([variance(g, typical) for g in each]))
                table.append(row)
                print(row, flush=True)
    note = (
        f"Logistic regression, two columns. I is the mean of B_i / L_i over rows and draws of the Laplace fit, or over the draws for each "
        f"row. {draws:,} simulated estimates, a tenth of that for n = 100,000. A pseudo-marginal chain needs a variance of about one."
    )
    show("Proposition 4.2", table, note, "firefly-variance" if options.write else None)


if __name__ == "__main__":
    main()
