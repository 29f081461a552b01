"""A few draws of every sampler, and of the flagship on every family, as they were when last written on purpose.

Moving code must not move draws. Where a repair does, write them anew and say so in the changelog:

    python tests/test_golden.py --write [name ...]
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.samplers import SAMPLERS

FILE = Path(__file__).parent / "golden.json"


def _arrays(seed=4):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(300), rng.standard_normal((300, 2))])
    return rng, X, X @ [0.3, 0.5, -0.4]


def _model(family):
    rng, X, eta = _arrays()
    if family == "arma":
        noise, y = rng.standard_normal(300), np.zeros(300)
        for t in range(1, 300):
            y[t] = 0.5 * y[t - 1] + noise[t]
        return tb.models.arma(y, 1, 0)
    if family == "normal":
        return tb.models.normal(rng.standard_normal(300))
    uniform, noise = rng.random(300), rng.standard_normal(300)
    y = {
        "logistic": uniform < 1 / (1 + np.exp(-eta)),
        "probit": noise < eta,
        "poisson": rng.poisson(np.exp(eta)),
        "negbin": rng.poisson(np.exp(eta) * rng.gamma(3.0, 1 / 3.0, 300)),
        "gamma": rng.gamma(2.0, np.exp(eta) / 2.0),
        "gaussian": eta + noise,
        "student_t": eta + rng.standard_t(4.0, 300),
        "softmax": (uniform * 3).astype(int),
        "class_gaussian": (uniform < 0.5),
    }[family].astype(float)
    options = {
        "negbin": {"size": 3.0},
        "gamma": {"shape": 2.0},
        "student_t": {"nu": 4.0, "scale": 1.0},
        "softmax": {"classes": 3},
        "class_gaussian": {"sigma": 1.0},
    }.get(family, {})
    return getattr(tb.models, family)(tb.Dataset.from_arrays(X, y), **options)


CASES = {
    **{
        f"logistic/{name}": ("logistic", name)
        for name in SAMPLERS
        if not SAMPLERS[name]().needs_groups and not SAMPLERS[name]().needs_hyperpriors
    },
    **{
        f"{family}/exact-minibatch": (family, "exact-minibatch")
        for family in ("probit", "poisson", "negbin", "gamma", "gaussian", "student_t", "softmax", "normal")
    },
    "arma/informed": ("arma", "informed"),
    "class_gaussian/mh": ("class_gaussian", "mh"),
    "logistic/auto": ("logistic", "auto"),
}


def draws(case):
    """The last of twenty draws of two chains after a warm-up, and what they cost."""
    family, sampler = CASES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.TallbayesWarning)
        fit = tb.sample(_model(family), sampler, draws=20, warmup=60, chains=2, seed=11, progress=False)
    return {"theta": fit.theta[:, -1].tolist(), "evals": float(fit.evals.sum())}


@pytest.mark.parametrize("case", CASES)
def test_draws_are_those_of_before(case):
    golden, now = json.loads(FILE.read_text())[case], draws(case)
    np.testing.assert_allclose(now["theta"], golden["theta"], rtol=1e-9, atol=1e-12)
    assert now["evals"] == golden["evals"]


if __name__ == "__main__" and "--write" in sys.argv:
    chosen = [name for name in sys.argv[1:] if name != "--write"] or list(CASES)
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    FILE.write_text(json.dumps({**kept, **{case: draws(case) for case in chosen}}, indent=1) + "\n")
