"""A column that determines the response, and a class without rows: named before sampling, and kept with the fit."""

import numpy as np
import pytest

import tallbayes as tb


def _rows(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 2))
    return x, (rng.random(n) < 1 / (1 + np.exp(-x[:, 0]))).astype(float)


def _model(columns, y, names, prior=None):
    data = tb.Dataset.from_arrays(np.column_stack([np.ones(y.size), *columns]), y, columns=["Intercept", *names])
    return tb.models.logistic(data, prior)


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")  # nuts mixes badly where the likelihood has no maximum
def test_a_leaked_predictor_is_named_everywhere(tmp_path):
    """Truth: 'copy' is the response itself, so its coefficient is what the prior makes of it."""
    x, y = _rows()
    with pytest.warns(tb.TallbayesWarning, match="column 'copy' separates the response"):
        fit = tb.sample(_model([x, y], y, ["a", "b", "copy"]), "nuts", draws=200, warmup=200, chains=2, seed=1, progress=False)
    sentence = [s for s in fit.meta["warnings"] if "'copy' separates" in s]
    assert len(sentence) == 1
    loaded = tb.load(fit.save(tmp_path / "fit.nc"))
    assert sentence[0] in loaded.meta["warnings"]
    for which in (fit, loaded):
        assert "'copy' separates" in str(which.summary())
        assert "separates the response" in which.report(tmp_path / "report.html", plots=False).read_text()


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")  # nuts mixes badly where the likelihood has no maximum
def test_it_is_kept_when_a_run_is_resumed(tmp_path):
    x, y = _rows(300)
    model = _model([x, y], y, ["a", "b", "copy"])
    with pytest.warns(tb.TallbayesWarning, match="separates"):
        tb.sample(model, "nuts", draws=200, warmup=200, chains=2, seed=1, progress=False, checkpoint=tmp_path / "run")
    fit = tb.resume(tmp_path / "run", model, draws=210, progress=False)
    assert any("'copy' separates" in s for s in fit.meta["warnings"])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_threshold_of_a_column_separates(sign):
    x, _ = _rows(30_000)
    with pytest.warns(tb.TallbayesWarning, match="column 'b' separates the response"):
        tb.find_mode(_model([x], (sign * x[:, 1] > 1.0).astype(float), ["a", "b"], tb.priors.normal(2.0)), progress=False)


def test_overlap_in_one_row_of_many_is_no_separation():
    x, _ = _rows(30_000)
    y = (x[:, 1] > 1.0).astype(float)
    y[np.argsort(x[:, 1])[-2]] = 0.0
    assert tb.find_mode(_model([x], y, ["a", "b"]), progress=False).warnings == ()


def test_rare_levels_and_a_constant_response_are_no_separation():
    x, y = _rows(3000)
    level = np.zeros(3000)
    level[np.flatnonzero(y == 1.0)[:2]] = 1.0
    assert tb.find_mode(_model([x, level], y, ["a", "b", "level"]), progress=False).warnings == ()
    assert tb.find_mode(_model([x], np.ones(3000), ["a", "b"]), progress=False).warnings == ()


def test_a_class_without_rows_is_named():
    x, _ = _rows(2000)
    y = np.random.default_rng(1).integers(0, 2, 2000) * 2
    model = tb.models.softmax(tb.Dataset.from_arrays(np.c_[np.ones(2000), x], y), classes=3)
    with pytest.warns(tb.TallbayesWarning, match="no row has the response 1"):
        tb.find_mode(model, progress=False)
