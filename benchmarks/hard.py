"""Posteriors that are hard to sample: how right and how costly `auto`, NUTS and the Laplace fit are, beside the truth.

python -m benchmarks.hard [NAME ...] [--draws 2000] [--no-peer] [--quick] [--write]

NUTS of this package and of NumPyro run on all rows, with as many draws as `BUDGET` evaluations allow; NumPyro's runs one chain, in
coordinates whitened by the Laplace fit, as ours does. The model written in JAX is left out there, and so is the one with 300
columns, for lack of time. A run of this package that takes longer than `LIMIT` is cut off, and the line says so.

Truth: importance sampling from Student's t around the Laplace fit where its effective size allows, with more than ten columns
around the mean that a first round of it finds; else long NUTS that aims at an acceptance of 0.98; quadrature for several modes
and for separation. Errors are in posterior standard deviations: of means, of standard deviations (relative), and of the 1 % and
99 % quantiles, the largest over all coefficients. Coefficients under a Cauchy prior have no mean where the data are separated, so
errors there are those of their asinh.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import tallbayes as tb
from benchmarks.options import installed, parsed
from benchmarks.peers import jax_log_density
from benchmarks.problems import synthetic_rows
from benchmarks.report import kept, show
from tallbayes.results.cost import effective_sizes, r_hats

LEVELS = (0.01, 0.99)
IMPORTANCE = 20_000  # draws, if that many passes are affordable
EFFECTIVE = 2_000.0  # of them, to be taken for the truth
AFFORDABLE = 1e10  # row evaluations for the truth
BUDGET = 3e9  # row evaluations of a sampler that reads all rows
LIMIT = 150.0  # seconds of a run of this package


class Plan(NamedTuple):
    """What the methods that read all rows may do on a problem."""

    warmup: int = 500
    draws: int | None = None  # of NUTS and of NumPyro; None: by `BUDGET`
    acceptance: float = 0.98  # of the NUTS that is taken for the truth
    importance: int = IMPORTANCE  # draws of importance sampling
    peer: bool = True  # whether NumPyro runs


PLANS = {
    "rare-events": Plan(150, 150, importance=6000),
    "many-columns": Plan(80, 120, importance=4000, peer=False),
    "separation": Plan(300, 300),
}


class Truth(NamedTuple):
    """Means, standard deviations and quantiles, and where they are from."""

    mean: np.ndarray
    sd: np.ndarray
    quantiles: np.ndarray  # (2, dim)
    how: str


def _logistic(x: np.ndarray, y: np.ndarray, prior: Any = None) -> tb.models.Model:
    return tb.models.logistic(tb.Dataset.from_arrays(x, y), prior)


def rare_events() -> tb.models.Model:
    """About 138 positives of 300,000 rows, 30 columns."""
    x, _ = synthetic_rows(300_000, 30)
    rng = np.random.default_rng(1)
    effect = rng.standard_normal(30) / np.sqrt(30)
    score = x[:, 1:] @ effect[1:]
    chance = np.exp(score) / np.exp(score).sum() * 138.0
    return _logistic(x, (rng.random(300_000) < chance).astype(float))


def many_columns() -> tb.models.Model:
    """300 columns, 100,000 rows."""
    return _logistic(*synthetic_rows(100_000, 300))


def skewed() -> tb.models.Model:
    """2,000 rows, 25 positives, ten columns."""
    x, _ = synthetic_rows(2_000, 10)
    rng = np.random.default_rng(2)
    score = 0.7 * x[:, 1] - 0.5 * x[:, 2]
    return _logistic(x, (rng.random(2_000) < np.exp(score) / np.exp(score).sum() * 25.0).astype(float))


def unknown_scale() -> tb.models.Model:
    """Student's t with unknown location and scale, 30 rows, written in JAX."""
    import jax.numpy as jnp

    y = np.random.default_rng(3).standard_t(2, 30)

    def log_lik(theta: Any, row: dict[str, Any]) -> Any:
        z = (row["y"] - theta["location"]) / theta["scale"]
        return -jnp.log(theta["scale"]) - 2.0 * jnp.log1p(z * z / 3.0)

    data = tb.Dataset.from_arrays(np.ones((30, 1)), y)
    return tb.models.from_jax(log_lik, data, tb.priors.normal(5.0), params={"location": "real", "scale": "positive"})


def cauchy_spike() -> tb.models.Model:
    """A Cauchy prior with a narrow scale against a weak likelihood: a spike with a long shoulder."""
    x, _ = synthetic_rows(500, 3)
    rng = np.random.default_rng(4)
    y = (rng.random(500) < 1 / (1 + np.exp(-0.25 * x[:, 1]))).astype(float)
    return _logistic(x, y, tb.priors.student_t(1.0, 0.02))


def separation() -> tb.models.Model:
    """A column that tells 0 from 1 without error, under the default prior."""
    rng = np.random.default_rng(5)
    x = np.column_stack([np.ones(400), rng.standard_normal((400, 2))])
    return _logistic(x, (x[:, 1] > 0.0).astype(float))


def collinear() -> tb.models.Model:
    """Two columns with a correlation of 0.99995."""
    x, _ = synthetic_rows(20_000, 5)
    rng = np.random.default_rng(6)
    x[:, 2] = x[:, 1] + 0.01 * rng.standard_normal(20_000)
    return _logistic(x, (rng.random(20_000) < 1 / (1 + np.exp(-x[:, 1]))).astype(float))


def bimodal() -> tb.models.Model:
    """Student's t with two clumps of responses: two modes of the intercept."""
    rng = np.random.default_rng(7)
    y = np.r_[rng.normal(-3.0, 0.3, 20), rng.normal(3.0, 0.3, 20)]
    return tb.models.student_t(tb.Dataset.from_arrays(np.ones((40, 1)), y), tb.priors.normal(5.0), nu=1.0, scale=1.0)


def heavy_columns() -> tb.models.Model:
    """A few rows a thousand standard deviations out."""
    rng = np.random.default_rng(8)
    x, u = rng.standard_normal(500), rng.random(500)
    y = (u < 1.0 / (1.0 + np.exp(0.5 - x))).astype(float)
    x[:4], y[:4] = np.array([1e3, -1e3, 7e2, -4e2]), [1.0, 0.0, 0.0, 0.0]
    return _logistic(np.column_stack([np.ones(500), x]), y, tb.priors.normal(2.0))


PROBLEMS: dict[str, Callable[[], tb.models.Model]] = {
    "rare-events": rare_events,
    "many-columns": many_columns,
    "skewed": skewed,
    "unknown-scale": unknown_scale,
    "cauchy-spike": cauchy_spike,
    "separation": separation,
    "collinear": collinear,
    "bimodal": bimodal,
    "heavy-columns": heavy_columns,
}


def weighted(draws: np.ndarray, weights: np.ndarray, how: str) -> Truth:
    """Moments and quantiles of weighted draws (draws, dim)."""
    weights = weights / weights.sum()
    mean = weights @ draws
    sd = np.sqrt(weights @ (draws - mean) ** 2)
    quantiles = np.empty((2, draws.shape[1]))
    for j, column in enumerate(draws.T):
        order = np.argsort(column)
        quantiles[:, j] = np.interp(LEVELS, np.cumsum(weights[order]), column[order])
    return Truth(mean, sd, quantiles, how)


def importance(model: tb.models.Model, mode: Any, draws: int) -> Truth | None:
    """From Student's t, 1.2 times as wide as the Laplace fit, or in many dimensions around the mean that a first round finds; None if
    weights are too uneven."""
    d, rng = model.dim, np.random.default_rng(0)
    if draws * model.data.n > AFFORDABLE:
        return None
    df, width = (4.0, 1.2) if d <= 10 else (5.0 * d, 1.0)

    def drawn(centre: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        white = width * rng.standard_normal((count, d)) * np.sqrt(df / rng.chisquare(df, count))[:, None]
        theta = centre + white @ mode.factor.T
        log_weights = np.array([model.log_posterior(t) for t in theta])
        log_weights += 0.5 * (df + d) * np.log1p((white**2).sum(1) / (df * width**2))
        return theta, np.exp(log_weights - log_weights.max())

    centre = mode.reference
    if d > 10:
        theta, weights = drawn(centre, draws // 4)
        centre = weights @ theta / weights.sum()
    theta, weights = drawn(centre, draws)
    size = weights.sum() ** 2 / (weights**2).sum()
    return weighted(theta, weights, f"importance sampling, {size:,.0f} effective draws") if size > EFFECTIVE else None


def on_a_line(model: tb.models.Model) -> Truth:
    """Quadrature over a single coefficient."""
    points = np.linspace(-8.0, 8.0, 8001)
    values = np.array([model.log_posterior(np.array([p])) for p in points])
    return weighted(points[:, None], np.exp(values - values.max()), "quadrature")


def on_a_cone(model: tb.models.Model) -> Truth:
    """Quadrature over (log b1, b0 / b1, b2 / b1) where the sign of the second column is the response; of the asinh of coefficients."""
    x, y = model.data.records[:, :3], model.data.records[:, 3]
    side = np.sinh(np.linspace(0.0, 11.0, 71)) / np.sinh(11.0)
    edges = np.concatenate([-side[:0:-1], side])
    u, v = (part.ravel() for part in np.meshgrid(edges, edges, indexing="ij"))
    area = np.outer(np.gradient(edges), np.gradient(edges)).ravel()
    score = x[:, :1] * u + x[:, 1:2] + x[:, 2:] * v  # of a slope of one, (rows, points)
    score *= np.where(y > 0.5, 1.0, -1.0)[:, None]

    def log_prior(j: int, value: float) -> float:
        return model.log_prior(value * np.eye(3)[j])

    points, log_weights = [], []
    for s in np.linspace(np.log(0.5), np.log(1e8), 121):
        slope = np.exp(s)
        ends = [np.array([log_prior(j, slope * e) for e in edges]) for j in (0, 2)]
        value = -np.logaddexp(0.0, -slope * score).sum(0) + np.add.outer(*ends).ravel() + log_prior(1, slope)
        points.append(slope * np.column_stack([u, np.ones(u.size), v]))
        log_weights.append(value + np.log(area) + 3.0 * s)
    flat = np.concatenate(log_weights)
    keep = flat > flat.max() - 40.0
    return weighted(np.arcsinh(np.concatenate(points)[keep]), np.exp(flat[keep] - flat.max()), "quadrature, of asinh")


def by_nuts(model: tb.models.Model, mode: Any, plan: Plan) -> Truth:
    draws = int(np.clip(AFFORDABLE / (model.data.n * 30 * 4), 500, 20_000))
    sampler = tb.samplers.FullData(tb.moves.nuts(acceptance=plan.acceptance))
    fit = tb.sample(model, sampler, draws=draws, warmup=2 * plan.warmup, chains=4, seed=99, mode=mode, progress=False)
    theta = fit.theta.reshape(-1, model.dim)
    return weighted(theta, np.ones(len(theta)), f"NUTS, {fit.cost()['ess_min']:,.0f} effective draws")


QUADRATURE: dict[str, Callable[[tb.models.Model], Truth]] = {"bimodal": on_a_line, "separation": on_a_cone}


def errors(truth: Truth, found: Truth) -> dict[str, float]:
    return {
        "error of means": float(np.abs((found.mean - truth.mean) / truth.sd).max()),
        "error of sds": float(np.abs(found.sd / truth.sd - 1.0).max()),
        "error of 1 % and 99 %": float(np.abs((found.quantiles - truth.quantiles) / truth.sd).max()),
    }


def numpyro(model: tb.models.Model, mode: Any, draws: int, warmup: int) -> tuple[np.ndarray, dict[str, float]]:
    """Draws of one chain of NumPyro's NUTS, evaluations and seconds, compiled beforehand."""
    import jax
    from numpyro.infer import MCMC, NUTS

    log_density = jax_log_density(model, mode)
    sampler = MCMC(
        NUTS(potential_fn=lambda white: -log_density(white), dense_mass=False),
        num_warmup=warmup,
        num_samples=draws,
        num_chains=1,
        progress_bar=False,
    )
    sampler.warmup(jax.random.PRNGKey(0), init_params=np.zeros(model.dim), extra_fields=("num_steps",))
    sampler.run(jax.random.PRNGKey(1), extra_fields=("num_steps",))
    begun = time.perf_counter()
    sampler.post_warmup_state = sampler.last_state
    sampler.run(jax.random.PRNGKey(2), extra_fields=("num_steps",))
    white = np.asarray(sampler.get_samples())
    seconds = time.perf_counter() - begun
    evals = float(np.asarray(sampler.get_extra_fields()["num_steps"]).sum()) * model.data.n
    return mode.reference + white @ mode.factor.T, {"evals": evals, "seconds": seconds}


def rows_of(name: str, draws: int, peer: bool, quick: bool = False) -> Iterator[dict[str, Any]]:
    """The Laplace fit, NUTS of NumPyro and of this package, and `auto` on one problem."""
    model, plan = PROBLEMS[name](), Plan(50, 50) if quick else PLANS.get(name, Plan())
    mode = tb.find_mode(model, progress=False, tolerance=1e-3)
    if name in QUADRATURE:
        truth = QUADRATURE[name](model)
    else:
        truth = importance(model, mode, plan.importance) or by_nuts(model, mode, plan)
    scale = np.arcsinh if name == "separation" else np.asarray
    head = {"problem": name, "n": model.data.n, "d": model.dim, "truth": truth.how}
    laplace = mode.laplace()
    if name == "separation":
        normal = weighted(scale(laplace.draw(np.random.default_rng(0), 100_000)), np.ones(100_000), "")
    else:
        normal = Truth(laplace.mean, laplace.sd, laplace.mean + np.array([[-2.3263], [2.3263]]) * laplace.sd, "")
    yield {**head, "sampler": "Laplace fit", **errors(truth, normal)}
    on_all = plan.draws or int(np.clip(BUDGET / (model.data.n * 60), 200, draws))
    if model.linear and plan.peer and peer and installed("numpyro"):
        theta, spent = numpyro(model, mode, on_all, plan.warmup)
        sizes = effective_sizes(theta[None])
        yield {
            **head,
            "sampler": "NumPyro NUTS",
            **errors(truth, weighted(scale(theta), np.ones(len(theta)), "")),
            "R-hat": float(r_hats(theta[None]).max()),
            "min ESS": float(sizes.min()),
            "evaluations per effective draw": spent["evals"] / float(sizes.min()),
            "ESS/s": float(sizes.min()) / spent["seconds"],
        }
    for label in ("nuts", "auto"):
        tb.sample(model, label, draws=5, warmup=0, chains=1, seed=1, mode=mode, progress=False)  # compile
        length, warmup = (on_all, plan.warmup) if label == "nuts" else (draws, 500)
        options: dict[str, Any] = {"draws": length, "warmup": warmup, "chains": 4, "seed": 1, "max_seconds": LIMIT}
        fit = tb.sample(model, label, mode=mode, progress=False, **options)
        cut = "" if fit.status == "complete" else f", cut off after {LIMIT:g} s"
        theta, cost = fit.theta.reshape(-1, model.dim), fit.cost()
        yield {
            **head,
            "sampler": (label if label == "nuts" else f"auto: {fit.meta['sampler_name']}") + cut,
            **errors(truth, weighted(scale(theta), np.ones(len(theta)), "")),
            "R-hat": float(fit.r_hat.max()),
            "min ESS": cost["ess_min"],
            "evaluations per effective draw": cost["evals_per_ess"],
            "ESS/s": cost["ess_min"] / fit.seconds["draws"],
            "warnings": len(fit.meta["warnings"]),
        }


def main() -> None:
    """Run problems by name, or all; lines of the others stay on the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROBLEMS)}; all if none")
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--no-peer", action="store_true", help="leave NumPyro out")
    parser.add_argument("--write", action="store_true")
    options = parsed(parser, names=["skewed", "bimodal"], draws=100)
    if unknown := set(options.names) - set(PROBLEMS):
        parser.error(f"unknown problem {sorted(unknown)[0]!r}; there are {', '.join(PROBLEMS)}")
    warnings.simplefilter("ignore", tb.TallbayesWarning)  # counted in the table
    fresh: list[dict[str, Any]] = []
    for name in options.names or PROBLEMS:
        for row in rows_of(name, options.draws, not options.no_peer, options.quick):
            print(row, flush=True)
            fresh.append(row)
        rows = sorted(
            fresh + ([] if options.quick else kept("hard", PROBLEMS, {r["problem"] for r in fresh})),
            key=lambda r: list(PROBLEMS).index(r["problem"]),
        )
        note = (
            "Errors in posterior standard deviations, the largest over coefficients; they include the Monte Carlo error of the effective "
            f"sizes shown. `auto`: four chains of {options.draws:,} draws. ESS/s: after warm-up, per second of one core."
        )
        if missing := [other for other in PROBLEMS if all(row["problem"] != other for row in rows)]:
            note += f" Not run: {', '.join(missing)}."
        show("Hard posteriors", rows, note, "hard" if options.write else None)


if __name__ == "__main__":
    main()
