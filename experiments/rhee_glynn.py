"""Proposition 4.1 of Bardenet, Doucet and Holmes (2017) as a curve: the relative variance of Rhee and Glynn's estimate in n.

python -m experiments.rhee_glynn [--quick] [--write]

Exact second moment: with A = n (l - a) and v = n^2 sigma^2 / t the mean and variance of a term D,
E S^2 = sum_{j,k} (1 + eps)^min(j,k) E[prod_j D prod_k D] / (j! k!), E[..] = (A^2 + v)^min A^|j - k|.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.special import gammaln, logsumexp

from benchmarks.report import show


def log_relative_variance(mean: float, variance: float, epsilon: float) -> float:
    """log(Var Y / (E Y)^2), summed exactly."""
    top = int(mean + 12.0 * np.sqrt(mean + variance + 1.0) + (epsilon + variance / max(mean, 1.0)) * mean * 3.0 + 60.0)
    k = np.arange(top)
    low, gap = np.minimum.outer(k, k), np.abs(np.subtract.outer(k, k))
    # P(N >= j, N >= k) / (P(N >= j) P(N >= k)) = (1 + eps)^min(j, k)
    terms = (
        low * np.log1p(epsilon)
        + low * np.log(mean**2 + variance)
        + gap * np.log(mean)
        - np.add.outer(gammaln(k + 1), gammaln(k + 1))
    )
    second = logsumexp(terms) - 2.0 * mean
    return float(second + np.log1p(-np.exp(-second))) if second > 1e-12 else -np.inf


def log_bound(mean: float, variance: float, epsilon: float) -> float:
    """The leading term of (10) in logarithms, with the factor 1/4 that its proof has and the statement lost."""
    root = np.sqrt((1.0 + epsilon) * (variance + mean**2))
    return float(-2.0 * mean + 2.0 * root - np.log(4.0 * root))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    sizes = (10, 20, 50) if options.quick else (10, 20, 50, 100, 200, 500)
    spread, room = 0.5, 1.5  # chosen numbers: sd of a row's log-likelihood, and its mean above the lower bound a
    settings = {
        "t = 100, eps = 0.1": (lambda n: 100, lambda n: 0.1),
        "t = n, eps = 1/n": (lambda n: n, lambda n: 1.0 / n),
        "t = n^2, eps = 1/n": (lambda n: n * n, lambda n: 1.0 / n),
    }
    rows, curves = [], {}
    for label, (batch, epsilon) in settings.items():
        curves[label] = []
        for n in sizes:
            mean, variance, eps = n * room, n * n * spread**2 / batch(n), epsilon(n)
            exact, bound = log_relative_variance(mean, variance, eps), log_bound(mean, variance, eps)
            curves[label].append((exact, bound))
            found = {"setting": label, "n": n, "log relative variance": exact, "log of (10)": bound}
            rows.append(found | {"rows a likelihood": batch(n) / eps})
    note = (
        "l - a = 1.5 and sd(l_i) = 0.5 per row. A pseudo-marginal chain needs a variance of about one, a logarithm near zero."
    )
    show("Rhee-Glynn", rows, note, "rhee-glynn" if options.write else None)
    if options.write:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as plt

        canvas, axis = plt.subplots(figsize=(6, 3.6), constrained_layout=True)
        for (label, values), colour in zip(curves.items(), ("#d62728", "#ff7f0e", "#1f77b4"), strict=True):
            exact, bound = np.array(values).T
            axis.plot(sizes, exact, "-", color=colour, label=label)
            axis.plot(sizes, bound, ":", color=colour)
        axis.set_xscale("log")
        axis.set_yscale("symlog", linthresh=1.0)
        axis.axhline(0.0, color="0.6", lw=0.8)
        axis.set_xlabel("rows n")
        axis.set_ylabel("log relative variance of Y")
        axis.legend(frameon=False, fontsize=8, title="exact; dotted: Proposition 4.1", loc="center right")
        folder = Path(__file__).parent.parent / "docs" / "figures"
        folder.mkdir(exist_ok=True)
        canvas.savefig(folder / "rhee-glynn.png", dpi=80)


if __name__ == "__main__":
    main()
