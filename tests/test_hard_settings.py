"""Exact samplers against quadrature where other tools go wrong: weights, offsets, scales, rare events, duplicates, every prior."""

import numpy as np
import pytest
from arviz_stats.base import array_stats
from support import logistic_arrays

import tallbayes as tb
from tallbayes.testing import THRESHOLD

X, Y = logistic_arrays(500)
RNG = np.random.default_rng(3)
NORMAL = tb.priors.normal(2.0)


def model(rows=slice(None), x=None, y=None, prior=NORMAL, **columns):
    return tb.models.logistic(
        tb.Dataset.from_arrays((X if x is None else x)[rows], (Y if y is None else y)[rows], **columns), prior
    )


def correlated():
    first = RNG.standard_normal(500)
    both = np.column_stack([first, 0.9999 * first + 0.0141 * RNG.standard_normal(500)])
    return model(x=both, prior=tb.priors.normal(20.0))


def rare():
    y = np.zeros(5000)
    y[:8] = 1.0
    return model(x=np.column_stack([np.ones(5000), RNG.standard_normal(5000)]), y=y)


SETTINGS = {
    "weights, some of them zero": lambda: model(
        weights=RNG.choice([0.0, 0.3, 1.0, 2.7, 20.0], 500, p=[0.2, 0.3, 0.3, 0.15, 0.05])
    ),
    "offsets": lambda: model(offset=3.0 * RNG.standard_normal(500)),
    "a column around a million": lambda: model(x=X * [1.0, 1e3] + [0.0, 1e6], prior=tb.priors.weakly_informative()),
    "columns of a million": lambda: model(x=X * [1.0, 1e6], prior=tb.priors.normal([2.0, 1e-4])),
    "rare events": rare,
    "five rows two hundred times": lambda: model(x=np.repeat(X[:5], 200, 0), y=np.tile([0.0, 1.0, 1.0, 0.0, 1.0], 200)),
    "one column": lambda: model(x=X[:, 1:]),
    "correlation 0.9999": correlated,
    "flat prior": lambda: model(prior=tb.priors.flat()),
    "Cauchy prior": lambda: model(slice(200), prior=tb.priors.cauchy(0.3)),
    "Laplace prior": lambda: model(prior=tb.priors.laplace(0.1, [-0.4, 1.0])),
    "Student prior": lambda: model(prior=tb.priors.student_t(3.0, 0.5, 1.0)),
    "joint normal prior": lambda: model(slice(40), prior=tb.priors.multivariate_normal([1.0, -1.0], [[1.0, 0.8], [0.8, 1.0]])),
}


def moments(posed):
    """Mean and covariance by quadrature, in the coordinates of a first fit, so that narrow ridges are resolved."""
    mode = tb.find_mode(posed, progress=False)
    centre, factor = mode.reference, mode.factor
    for _ in range(2):
        axis = np.linspace(-9.0, 9.0, 121 if posed.dim == 2 else 2001)
        grid = np.stack(np.meshgrid(*[axis] * posed.dim, indexing="ij"), axis=-1).reshape(-1, posed.dim)
        theta = centre + grid @ factor.T
        height = np.array([posed.log_posterior(t) for t in theta])
        weight = np.exp(height - height.max())
        weight /= weight.sum()
        centre = weight @ theta
        factor = np.linalg.cholesky((theta - centre).T @ ((theta - centre) * weight[:, None]))
    return centre, factor


def scores(fit, centre, factor):
    """z-scores of first and second moments, with the effective size of each function."""
    white = np.linalg.solve(factor, (fit.theta - centre).reshape(-1, centre.size).T).T.reshape(fit.theta.shape)
    functions = [white[:, :, j] for j in range(centre.size)]
    functions += [white[:, :, j] * white[:, :, k] - (j == k) for j in range(centre.size) for k in range(j + 1)]
    sizes = [float(array_stats.ess(f, chain_axis=0, draw_axis=1, method="mean")) for f in functions]
    return np.array([f.mean() / f.std() * np.sqrt(n) for f, n in zip(functions, sizes, strict=True)])


def largest_score(posed, sampler, **options):
    fit = tb.sample(posed, sampler, **{"draws": 4000, "warmup": 500, "seed": 1, "progress": False, **options})
    return np.abs(scores(fit, *moments(posed))).max()


CORNER = pytest.mark.filterwarnings("ignore::tallbayes.errors.TallbayesWarning")  # tails of the Laplace fit at a corner


@pytest.mark.parametrize("setting", [pytest.param(s, marks=CORNER if s == "Laplace prior" else ()) for s in SETTINGS])
def test_exact_minibatch_is_exact(setting):
    assert largest_score(SETTINGS[setting](), "exact-minibatch") < THRESHOLD


def test_the_scores_see_a_likelihood_to_the_power_1_1():
    """The mutant: the draws of a model whose rows weigh 1.1, judged by the moments of the model."""
    fit = tb.sample(model(weights=np.full(500, 1.1)), "exact-minibatch", draws=20_000, warmup=500, seed=1, progress=False)
    assert np.abs(scores(fit, *moments(model()))).max() > THRESHOLD


@pytest.mark.parametrize("options", [{"thin": 3, "draws": 1500}, {"chains": 1}, {"seed": 2, "warmup": 0}], ids=str)
def test_thinning_one_chain_and_no_warm_up(options):
    assert largest_score(model(), "exact-minibatch", **options) < THRESHOLD


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["nuts", "hmc", "slice", "mh", "mala", "zigzag", "delayed-acceptance"])
@pytest.mark.parametrize("setting", [s for s in SETTINGS if s != "rare events"])
def test_other_exact_samplers_are_exact(setting, sampler):
    if sampler == "zigzag" and setting == "Laplace prior":
        pytest.skip("refused: its prior has a corner")
    assert largest_score(SETTINGS[setting](), sampler) < THRESHOLD
