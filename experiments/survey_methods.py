"""Methods that Bardenet, Doucet and Holmes (2017) review without a figure: learned rows, pseudo-marginal Firefly, Rhee and Glynn's
estimate in a chain, partial posteriors, naive subsampling; and the bound on total variation behind confidence samplers.

python -m experiments.survey_methods [--part chains|naive|variation] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import math
import re
import warnings
from typing import Any

import numpy as np
from scipy.special import logsumexp

import tallbayes as tb
from benchmarks.report import show
from experiments.confidence_scaling import two_classes
from tallbayes.engine import passes
from tallbayes.schemes import sequential_tests

PARTS = ("chains", "naive", "variation")


def chains(quick: bool, write: bool) -> None:
    """Pseudo-marginal chains (sections 4.2, 4.3 and 6.2.1) and partial posteriors on logistic regression with two columns."""
    n, draws = (2000, 300) if quick else (100_000, 20_000)
    big, table = two_classes(n), []
    proper = tb.priors.normal(2.0)  # few rows may be separable: a Cauchy prior would leave a posterior without variance
    small = {size: tb.models.logistic(two_classes(size).data, proper) for size in (10, 20, 50, 100)}
    cases: list[tuple[str, Any, Any]] = [
        ("rows drawn by a learned likelihood (6.2.1)", big, tb.samplers.BlockPseudoMarginal(rows="learned")),
        ("rows drawn by a learned likelihood (6.2.1)", two_classes(2000), tb.samplers.BlockPseudoMarginal(rows="learned")),
        ("uniform rows, Taylor proxy of order 2", big, tb.samplers.BlockPseudoMarginal()),
        ("pseudo-marginal Firefly, tuned bounds (4.3)", big, tb.samplers.PseudoMarginalFirefly()),
        ("pseudo-marginal Firefly, untuned bounds", big, tb.samplers.PseudoMarginalFirefly(bound="untuned")),
        ("pseudo-marginal Firefly, Taylor-Lagrange bounds", big, tb.samplers.PseudoMarginalFirefly(bound="taylor")),
        ("Rhee-Glynn on residuals of order 2 (4.2)", two_classes(2000), tb.samplers.RheeGlynn()),
    ]
    for size, model in small.items():
        cases.append(("Rhee-Glynn as published, t = 100, eps = 0.1", model, tb.samplers.RheeGlynn(None, 100, 0.1)))
        if 10 < size < 100:
            cases.append(
                (f"the same, t = {10 * size}, eps = {1 / size:g}", model, tb.samplers.RheeGlynn(None, 10 * size, 1.0 / size))
            )
    for label, model, sampler in cases:
        row: dict[str, Any] = {"method": label, "n": model.data.n}
        try:
            exact = tb.sample(model, "nuts" if model.data.n < 1000 else "exact-minibatch", 5000, 500, 2, 9, progress=False)
            length = draws if model.data.n > 2000 or quick else 5 * draws if model.data.n < 100 else draws // 4
            fit = tb.sample(model, sampler, length, 1000, 1, 1, progress=False)
        except tb.TallbayesError as error:
            table.append(row | {"outcome": "refused: " + re.split(r"; |\. | \(|, and", str(error))[0]})
            print(table[-1], flush=True)
            continue
        moved = np.flatnonzero(np.any(np.diff(fit.theta[0], axis=0) != 0.0, axis=1))
        longest = int(np.diff(np.concatenate([[-1], moved, [fit.theta.shape[1] - 1]])).max())
        mean, sd = exact.theta.mean((0, 1)), exact.theta.std((0, 1))
        table.append(
            row
            | {
                "outcome": "ran",
                "evaluations / n": float(fit.evals.mean()) / model.data.n,
                "accepted": moved.size / (fit.theta.shape[1] - 1),
                "longest stay, iterations": longest,
                "iterations": fit.theta.shape[1],
                "effective draws": float(fit.ess.min()),
                "largest error of a mean, sds": float((np.abs(fit.theta.mean((0, 1)) - mean) / sd).max()),
                "sd / exact": " to ".join(f"{v:.2f}" for v in sorted(fit.theta.std((0, 1)) / sd)),
            }
        )
        print(table[-1], flush=True)
    model = two_classes(2000 if quick else 20_000)
    exact = tb.sample(model, "exact-minibatch", 5000, 500, 2, 9, progress=False)
    done = tb.partial_posteriors(model, first=500, replications=5 if quick else 40, draws=200, warmup=100)
    gap, sd = np.abs(done.mean - exact.theta.mean((0, 1))), exact.theta.std((0, 1))
    table.append(
        {
            "method": f"partial posteriors, {done.terms.size} replications (4.2)",
            "n": model.data.n,
            "outcome": f"standard error {(done.error / sd).max():.2f} sds; {done.evals / done.full_evals:.2f} runs on all rows",
            "largest error of a mean, sds": float((gap / sd).max()),
        }
    )
    note = (
        "Logistic regression, two columns, a unit normal for each class; up to 100 rows with prior N(0, 4). Errors against a long exact "
        "run. A chain that accepts rarely and stays long has no errors worth reading: its effective draws say so."
    )
    show("S0: methods without a figure", table, note, "survey-methods" if write else None)


def naive(quick: bool, write: bool) -> None:
    """Section 6.1: what naive subsampling draws from, beside equations (18) and (20), where the chain moves at all."""
    table = []
    draws = 2000 if quick else 200_000
    for n, share, estimator in (
        (20, 0.5, "unbiased"),
        (20, 0.9, "unbiased"),
        (20, 0.5, "biased"),
        (20, 0.9, "biased"),
        (100, 0.9, "unbiased"),
        (100, 0.99, "unbiased"),
        (100, 0.9, "biased"),
        (100_000, 0.99999, "unbiased"),
        (100_000, 0.1, "unbiased"),
    ):
        y = np.random.default_rng(n).standard_normal(n)
        model = tb.models.gaussian(tb.Dataset.from_arrays(np.ones((n, 1)), y), tb.priors.normal(10.0), sigma=1.0)
        sampler = tb.samplers.NaiveSubsampling(share, estimator, tb.moves.random_walk())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tb.TallbayesWarning)
            fit = tb.sample(model, sampler, draws if n < 1000 else max(500, draws // 50), 0, 1, 1, progress=False)
        row: dict[str, Any] = {"n": n, "lambda": f"{share:g}", "estimate": "(17)" if estimator == "unbiased" else "(19)"}
        row |= {"variance of the estimate": float(fit.meta["notes"]["estimate_variance"])}
        row |= {"accepted": float(fit.stats["acceptance_rate"].mean()), "effective draws": float(fit.ess.min())}
        spread = float(fit.theta[..., 0].std())
        exact = 1.0 / math.sqrt(n + 0.01)
        row["sd of the draws / posterior sd"] = spread / exact
        if n <= 100:
            grid = np.linspace(-60.0, 60.0, 24_001)
            values = np.array([passes.values_at(model.rows, np.arange(n), np.array([t])) for t in grid])
            prior = np.array([model.log_prior(np.array([t])) for t in grid])
            power = 1.0 / share if estimator == "unbiased" else 1.0
            product = np.logaddexp(math.log(share) + power * values, math.log1p(-share)).sum(1) + prior
            binomial = n * np.logaddexp(math.log(share) + power * values.mean(1), math.log1p(-share)) + prior
            row["of the law that it has"] = _spread(grid, product) / exact
            row["by (18) or (20)"] = _spread(grid, binomial) / exact
        table.append(row)
        print(table[-1], flush=True)
    note = (
        f"Mean of a normal sample of variance 1, prior N(0, 100); {draws:,} iterations, a fiftieth of that for n = 100,000; random "
        "walk with steps of 2.38 posterior sds: a step adapted to an acceptance rate shrinks to nothing where the noise alone "
        "rejects. The law is p(theta) prod [lambda p_i^(1/lambda) + 1 - lambda], by quadrature, or the same without the power for "
        "the biased estimate; (18) and (20) take all subsets of one size to be alike."
    )
    show("S0 6.1: naive subsampling", table, note, "naive-subsampling" if write else None)


def _spread(grid: np.ndarray, log_density: np.ndarray) -> float:
    """Standard deviation of a density on a grid."""
    weight = np.exp(log_density - logsumexp(log_density))
    mean = weight @ grid
    return math.sqrt(float(weight @ (grid - mean) ** 2))


def variation(quick: bool, write: bool) -> None:
    """Distance of the stationary law from the posterior when decisions are wrong with probability at most delta, on 21 states."""
    rng, n, states = np.random.default_rng(0), 200, 9 if quick else 21
    y = rng.standard_normal(n)
    theta = y.mean() + np.linspace(-3.0, 3.0, states) / math.sqrt(n)
    log_likelihood = -0.5 * (y[:, None] - theta) ** 2
    total = log_likelihood.sum(0)
    posterior = np.exp(total - logsumexp(total))
    accept = np.exp(np.minimum(0.0, total[None, :] - total[:, None]))  # of a move from row to column, proposals uniform
    honest = _kernel(accept)
    doeblin = float(honest.min(axis=0).sum())  # P(x, .) >= doeblin nu(.) for all x: uniform ergodicity in one step
    table, repeats = [], 20 if quick else 400
    for delta in (0.01, 0.05, 0.1, 0.2):
        row: dict[str, Any] = {"delta": delta, "bound delta / (1 - rho)": delta / doeblin}
        flipped = _kernel(accept + delta * (1.0 - 2.0 * accept))
        row["every decision flipped with probability delta"] = _distance(flipped, posterior)
        for name in ("hoeffding-serfling", "empirical-bernstein-serfling", "betting"):
            power = 0.0 if name == "betting" else 2.0
            test = sequential_tests.make_test(name, delta, 1.5, 8, power)
            found, wrong, read = np.zeros((states, states)), np.zeros((states, states)), []
            for a in range(states):
                for b in range(states):
                    gaps = log_likelihood[:, b] - log_likelihood[:, a]
                    low, high = float(gaps.min()), float(gaps.max())
                    for _ in range(repeats if a != b else 0):
                        psi = math.log(1.0 - rng.random()) / n
                        verdict, rows = sequential_tests.decide_values(rng, test, gaps, psi, low, high, False)
                        found[a, b] += verdict == sequential_tests.ACCEPT
                        wrong[a, b] += (verdict == sequential_tests.ACCEPT) != (float(gaps.mean()) > psi)
                        read.append(rows)
            row[f"{name}: distance"] = _distance(_kernel(found / repeats), posterior)
            row[f"{name}: rows / n"] = float(np.mean(read)) / n
            row[f"{name}: wrong decisions, worst pair"] = float(wrong.max()) / repeats
        noise = rng.binomial(repeats, accept) / repeats
        row["distance from Monte Carlo error alone"] = _distance(_kernel(noise), posterior)
        table.append(row)
        print(table[-1], flush=True)
    note = (
        f"Mean of {n} normal values on a grid of {states} points within three posterior sds, uniform proposals. Distances in total "
        f"variation from the posterior, stationary laws by linear algebra; acceptance of each pair from {repeats} decisions. "
        f"1 - rho = {doeblin:.3g}, the share that all rows of the kernel have in common. A wrong decision is "
        "unlike that on all rows with the same uniform number; its probability is at least the difference of the acceptance probabilities "
        "that Lemma 3.1 bounds by delta."
    )
    show("TV bound of confidence samplers", table, note, "survey-variation" if write else None)


def _kernel(accept: np.ndarray) -> np.ndarray:
    """Transition matrix of uniform proposals with these acceptance probabilities."""
    size = accept.shape[0]
    moves = accept / size
    np.fill_diagonal(moves, 0.0)
    np.fill_diagonal(moves, 1.0 - moves.sum(1))
    return moves


def _distance(kernel: np.ndarray, posterior: np.ndarray) -> float:
    """Total variation between the stationary law of a kernel and the posterior."""
    size = kernel.shape[0]
    system = np.vstack([kernel.T - np.eye(size), np.ones(size)])
    law = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0]
    return float(0.5 * np.abs(law - posterior).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, default=None, help="one part alone")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", tb.TallbayesWarning)
    for name, part in {"chains": chains, "naive": naive, "variation": variation}.items():
        if options.part in (None, name):
            part(options.quick, options.write)


if __name__ == "__main__":
    main()
