"""Linear mixed models with unknown error: the collapsed density against a dense one, and whole runs against a grid."""

import numpy as np
import pandas as pd
import pytest

import tallbayes as tb
from tallbayes.testing import THRESHOLD, effective_sizes

LEVELS = 7


def arrays(n=60, shift=0.0):
    """Rows in six of seven levels, with weights and offsets; the mean of the response may be far from zero."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, LEVELS - 1, n)
    X = np.column_stack([np.ones(n), rng.standard_normal(n)])
    weights, offset = rng.choice([0.5, 1.0, 2.0], n), rng.standard_normal(n)
    y = shift + X @ [0.3, 0.5] + (0.8 * rng.standard_normal(LEVELS))[codes] + offset + rng.standard_normal(n)
    return X, y, offset, weights, codes


def model_of(prior, shift=0.0):
    X, y, offset, weights, codes = arrays(shift=shift)
    grouping = pd.Categorical.from_codes(codes, categories=range(LEVELS))
    return tb.models.gaussian(tb.Dataset.from_arrays(X, y, offset, weights, groups={"g": grouping}), prior)


def exact_moments(model, shift):
    """Means and mean squares of beta, log sigma, tau and b by a grid over (log sigma, log tau), y taken relative to `shift`."""
    X, y, offset, weights, codes = arrays(shift=shift)
    y = y - offset - shift
    D = np.column_stack([X, np.eye(LEVELS)[codes]])
    gram, right, square = D.T @ (weights[:, None] * D), D.T @ (weights * y), float(weights @ y**2)
    scale, prior = model.scale_priors[0][0], np.zeros(2 + LEVELS)
    prior[1] = 0.25 if model.prior.name == "normal" else 0.0
    points, logs, means, squares = [], [], [], []
    for log_sigma in np.linspace(-0.6, 0.9, 40):
        for log_tau in np.linspace(-4.0, 2.5, 50):
            points.append((log_sigma, log_tau))
            diagonal = np.concatenate([prior[:2], np.full(LEVELS, np.exp(-2 * log_tau))])
            precision = gram * np.exp(-2 * log_sigma) + np.diag(diagonal)
            covariance = np.linalg.inv(precision)
            mean = covariance @ right * np.exp(-2 * log_sigma)
            value = -weights.sum() * log_sigma - LEVELS * log_tau - 0.5 * square * np.exp(-2 * log_sigma)
            value += 0.5 * mean @ precision @ mean - 0.5 * np.linalg.slogdet(precision)[1] + log_tau
            logs.append(value - 2.0 * np.log1p((np.exp(log_tau) / scale.scale) ** 2 / 3.0))
            means.append(np.concatenate([mean[:2], [log_sigma, np.exp(log_tau)], mean[2:]]))
            squares.append(means[-1] ** 2 + np.concatenate([np.diag(covariance)[:2], [0, 0], np.diag(covariance)[2:]]))
    weight = np.exp(np.array(logs) - max(logs))
    return (weight / weight.sum()) @ np.array(means), (weight / weight.sum()) @ np.array(squares)


@pytest.mark.filterwarnings("ignore:the rows carry no information")
def test_draws_agree_with_a_grid_and_read_no_rows():
    prior = tb.priors.normal([1e6, 2.0])
    model = model_of(prior, shift=1000.0)
    fit = tb.sample(model, "minibatch-gibbs", draws=5000, warmup=500, chains=4, seed=1, progress=False)
    assert fit.names == ("x0", "x1", "log_sigma", "1|g_sigma") and not fit.evals.any()
    draws = np.concatenate([fit.theta, fit.draws("1|g")], axis=2)
    draws[:, :, 0] -= 1000.0
    for values, expected in zip((draws, draws**2), exact_moments(model, 1000.0), strict=True):
        error = values.std((0, 1)) / np.sqrt(effective_sizes(values))
        assert np.abs((values.mean((0, 1)) - expected) / error).max() < THRESHOLD


def test_nuts_needs_sigma_and_inflation_needs_rows():
    X, y, _, _, codes = arrays()
    model = tb.models.gaussian(tb.Dataset.from_arrays(X, y, groups={"g": codes}))
    with pytest.raises(tb.ModelError, match="nuts does not support a hierarchical gaussian model with unknown sigma"):
        tb.samplers.resolve("nuts").setup(model, tb.find_mode(model, progress=False), 0, False)
    with pytest.raises(tb.OptionError, match="inflation= belongs to models whose rows are read"):
        tb.samplers.MinibatchGibbs(inflation=2.0).setup(model, tb.find_mode(model, progress=False), 0, False)


# Several factors and slopes: blocked Gibbs


def several(kind):
    """Two crossed or nested factors, or a factor with slopes, few levels of each; weights and offsets."""
    rng = np.random.default_rng(8)
    n = 50
    a = rng.integers(0, 3, n)
    X = np.column_stack([np.ones(n), rng.standard_normal(n)])
    weights, offset = rng.choice([0.5, 1.0, 2.0], n), rng.standard_normal(n)
    b = 2 * a + rng.integers(0, 2, n) if kind == "nested" else rng.integers(0, 4, n)
    y = 5.0 + X @ [0.3, 0.5] + np.array([0.8, -0.6, 0.1])[a] + (0.5 * rng.standard_normal(8))[b] + offset
    y += 0.7 * rng.standard_normal(n)
    groups = {"a": (a, ["1", "x1"])} if kind == "slopes" else {"a": a, "b": b}
    prior = {"default": tb.priors.normal(3.0), **({"a_corr": tb.priors.lkj(2.0)} if kind == "slopes" else {})}
    return tb.models.gaussian(tb.Dataset.from_arrays(X, y, offset, weights, groups=groups), prior)


def dense(model):
    """Design of coefficients and all effects, in the order of theta; response less offset, and weights."""
    data, d = model.data, model.data.d
    parts = [data.records[:, :d]]
    for factor in model.factors:
        for t in range(len(factor.terms)):
            z = np.ones(data.n) if factor.first < 0 else data.records[:, factor.first + t]
            parts.append(z[:, None] * np.eye(factor.levels)[factor.codes])
    return np.column_stack(parts), data.records[:, d] - data.records[:, d + 1], data.records[:, d + 2]


def grid_moments(model):
    """Means and mean squares of everything by a grid over log sigma, log standard deviations and, for slopes, y of the correlation."""
    D, y, w = dense(model)
    d, slopes = model.data.d, len(model.factors) == 1
    gram, right, square = D.T @ (w[:, None] * D), D.T @ (w * y), float(w @ y**2)
    axes = [np.linspace(-0.9, 0.3, 14), np.linspace(-4.5, 2.6, 24), np.linspace(-4.5, 2.6, 24)]
    axes += [np.linspace(-1.8, 1.8, 13)] if slopes else []
    sizes = [f.levels for f in model.factors for _ in f.terms]
    scales = [p for own in model.scale_priors for p in own]
    logs, means, squares = [], [], []
    for point in np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes)):
        log_sigma, sds = point[0], np.exp(point[1:3])
        prior = np.zeros(gram.shape)
        prior[range(d), range(d)] = 1.0 / 9.0
        rho = np.tanh(point[3]) if slopes else 0.0
        inverse = np.linalg.inv(np.outer(sds, sds) * np.array([[1.0, rho], [rho, 1.0]]))
        for s in range(2):
            at, to = d + s * sizes[0], d + (1 - s) * sizes[0]
            prior[range(at, at + sizes[s]), range(at, at + sizes[s])] = inverse[s, s]
            if slopes:
                prior[range(at, at + sizes[s]), range(to, to + sizes[s])] = inverse[0, 1]
        precision = gram * np.exp(-2 * log_sigma) + prior
        covariance = np.linalg.inv(precision)
        mean = covariance @ right * np.exp(-2 * log_sigma)
        total = -w.sum() * log_sigma - 0.5 * square * np.exp(-2 * log_sigma) + 0.5 * mean @ precision @ mean
        total += -0.5 * np.linalg.slogdet(precision)[1] - sum(g * np.log(s) for g, s in zip(sizes, sds, strict=True))
        total += np.log(sds).sum() - sum(2.0 * np.log1p((s / p.scale) ** 2 / 3.0) for s, p in zip(sds, scales, strict=True))
        if slopes:
            total += (2.0 - 0.5 * sizes[0]) * np.log(1.0 - rho**2)  # LKJ(2) in y, and the effects
        logs.append(total)
        extra = [log_sigma, *sds] + ([rho] if slopes else [])
        means.append(np.concatenate([mean[:d], extra, mean[d:]]))
        spread = np.diag(covariance)
        squares.append(means[-1] ** 2 + np.concatenate([spread[:d], np.zeros(len(extra)), spread[d:]]))
    weight = np.exp(np.array(logs) - max(logs))
    return (weight / weight.sum()) @ np.array(means), (weight / weight.sum()) @ np.array(squares)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["crossed", "nested", "slopes"])
def test_blocked_draws_agree_with_a_grid_and_read_no_rows(kind):
    model = several(kind)
    fit = tb.sample(model, "minibatch-gibbs", draws=5000, warmup=500, chains=4, seed=1, progress=False)
    assert not fit.evals.any()
    draws = np.concatenate([fit.theta, *(levels.values for levels in fit.levels.values())], axis=2)
    for values, expected in zip((draws, draws**2), grid_moments(model), strict=True):
        error = values.std((0, 1)) / np.sqrt(effective_sizes(values))
        assert (np.abs(values.mean((0, 1)) - expected) < THRESHOLD * error + 2e-3 * (1.0 + np.abs(expected))).all()
