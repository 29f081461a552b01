"""Columns that hardly vary about a large mean: the same fit as after centring by hand, in the units of the column."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.testing import mode_at

CASES = {"times within an hour": (1.7e9, 1000.0), "mean 1e4, sd 1e-2": (1e4, 1e-2)}


def _pair(family, mean, sd, prior=None, n=5000):
    """The model with the column as it is, and with the column less its mean."""
    rng = np.random.default_rng(3)
    x, other = mean + sd * rng.standard_normal(n), rng.standard_normal(n)
    eta = 0.3 + 0.8 * (x - mean) / sd - 0.5 * other
    y = eta + rng.standard_normal(n) if family == "gaussian" else (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    build = getattr(tb.models, family)
    return [build(tb.Dataset.from_arrays(np.column_stack([np.ones(n), column, other]), y), prior) for column in (x, x - mean)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", ["logistic", "gaussian"])
@pytest.mark.parametrize("prior", [None, tb.priors.flat()])
def test_mode_and_laplace_fit_are_those_after_centring(family, prior, case):
    mean, sd = CASES[case]
    raw, centred = (tb.find_mode(m, progress=False) for m in _pair(family, mean, sd, prior))
    assert raw.warnings == centred.warnings == ()
    scale = centred.laplace().sd
    assert np.abs(raw.reference[1:] - centred.reference[1:]).max() < 1e-4 * scale[1:].min() or np.allclose(
        raw.reference[1:], centred.reference[1:], rtol=1e-8
    )
    assert abs(raw.reference[0] + mean * raw.reference[1] - centred.reference[0]) < 1e-3 * scale[0]
    np.testing.assert_allclose(raw.laplace().sd[1:], scale[1:], rtol=1e-6)
    # what samplers expand around: the spectrum of the whitened curvature does not depend on coordinates
    spectra = [np.linalg.eigvalsh(m.whitened_hessian) for m in (raw, centred)]
    np.testing.assert_allclose(*spectra, rtol=1e-6)
    again = mode_at(raw.model, raw.reference)
    np.testing.assert_allclose(again.factor, raw.factor, rtol=1e-5)


@pytest.mark.parametrize("sampler", ["exact-minibatch", "nuts"])
def test_draws_are_those_after_centring(sampler):
    mean, sd = CASES["times within an hour"]
    raw, centred = (
        tb.sample(m, sampler, draws=1000, warmup=300, chains=2, seed=1, progress=False) for m in _pair("logistic", mean, sd)
    )
    for k in (1, 2):
        a, b = raw.theta[:, :, k].ravel(), centred.theta[:, :, k].ravel()
        error = b.std() / np.sqrt(min(raw.ess.min(), centred.ess.min()))
        assert abs(a.mean() - b.mean()) < 6.0 * error
        assert 0.85 < a.std() / b.std() < 1.18
    assert raw.ess.min() > 0.3 * centred.ess.min()


def test_a_resumed_run_has_the_same_factor(tmp_path):
    model = _pair("logistic", *CASES["times within an hour"], n=500)[0]
    options = {"warmup": 100, "chains": 2, "seed": 1, "progress": False}
    tb.sample(model, "nuts", draws=150, checkpoint=tmp_path / "run", **options)
    longer = tb.resume(tmp_path / "run", model, draws=200, progress=False)
    np.testing.assert_array_equal(longer.theta, tb.sample(model, "nuts", draws=200, **options).theta)
    np.testing.assert_allclose(longer.laplace_factor, tb.find_mode(model, progress=False).factor, rtol=1e-3)


def test_truly_collinear_columns_are_still_refused():
    rng = np.random.default_rng(0)
    x = 1e4 + 1e-2 * rng.standard_normal(2000)
    data = tb.Dataset.from_arrays(np.column_stack([np.ones(2000), x, 2.0 * x]), x - 1e4 + rng.standard_normal(2000))
    with pytest.raises(tb.ModelError, match="'x1', 'x2' are collinear"):
        tb.find_mode(tb.models.gaussian(data, tb.priors.flat(), sigma=1.0), progress=False)


def test_columns_of_common_size_are_left_as_they_are(small):
    assert small.mode.frame is None
