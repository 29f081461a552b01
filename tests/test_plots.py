"""Plots about the world show what they say: positions of marks against the draws."""

import numpy as np
import pyarrow as pa
import pytest
from scipy import special
from support import known_fit

import tallbayes as tb


@pytest.fixture(scope="module")
def fit():
    rng = np.random.default_rng(0)
    x, g, t = rng.standard_normal(900), rng.choice(list("abc"), 900), rng.integers(0, 2, 900)
    theta = np.array([-0.5, 1.0, 0.3, -0.4, 0.6])
    y = rng.random(900) < special.expit(-0.5 + x + 0.3 * (g == "b") - 0.4 * (g == "c") + 0.6 * t)
    data = tb.read(pa.table({"y": y.astype(int), "x": x, "g": g, "t": t}), "y ~ x + g + t", progress=False)
    out = known_fit(
        data, "logistic", theta[[0, 3, 4, 2, 1]] * 0 + _ordered(data, theta) + 0.05 * rng.standard_normal((2, 300, 5))
    )
    out.laplace_mean, out.laplace_factor = _ordered(data, theta), 0.05 * np.eye(5)
    return out


def _ordered(data, theta):
    named = dict(zip(("Intercept", "x", "g[T.b]", "g[T.c]", "t"), theta, strict=True))
    return np.array([named[c] for c in data.columns])


def test_a_forest_has_intervals_of_the_draws_and_a_line_at_zero(fit):
    axis = fit.plot("forest", prob=0.5).axes[0]
    assert [t.get_text() for t in axis.get_yticklabels()] == ["x", "g[T.b]", "g[T.c]", "t"]
    lines = [line.get_xdata() for line in axis.lines]
    assert list(lines[0]) == [0.0, 0.0]
    assert np.allclose(lines[1], np.quantile(fit.draws("x"), (0.25, 0.75)))
    assert np.allclose(lines[3], np.median(fit.draws("x")))


def test_names_select_parameters_exactly_or_by_pattern(fit):
    def shown(names):
        return [t.get_text() for t in fit.plot("forest", names=names).axes[0].get_yticklabels()]

    assert shown("g[T.c]") == ["g[T.c]"]
    assert shown(["g*", "x", "g[T.b]"]) == ["g[T.b]", "g[T.c]", "x"]
    assert len([a for a in fit.plot("marginals", names=["x", "t", "g*"]).axes if a.axison]) == 4
    assert len(fit.plot("trace", names="x").axes) == 2
    assert "4 of 5" in fit.plot("marginals", most=4).get_suptitle()
    with pytest.raises(tb.OptionError, match="unknown parameter 'q'"):
        fit.plot("forest", names="q")
    with pytest.raises(tb.OptionError, match="names= selects"):
        fit.plot("ppc", names="x")


def test_coefficients_of_splines_are_drawn_as_a_curve_instead(tmp_path):
    x = np.linspace(0.0, 1.0, 60)
    data = tb.read(pa.table({"y": np.arange(60) % 2, "x": x, "z": x**2}), "y ~ bs(x, df=4) + z", progress=False)
    curved = known_fit(data, "logistic")
    assert [t.get_text() for t in curved.plot("forest").axes[0].get_yticklabels()] == ["z"]
    assert len(curved.plot("forest", names="bs*").axes[0].get_yticklabels()) == 4
    curved.seconds = {"draws": 1.0, "total": 1.0}
    curved.setup = curved.warmup = {"evals": 0, "seconds": 0.0, "passes": 0}
    text = curved.report(tmp_path / "curved.html").read_text(encoding="utf-8")
    assert text.count('class="effect"') == 1


def test_an_effect_is_the_average_prediction(fit):
    curve, levels, binary = (a for a in fit.plot("effect").axes if a.axison)
    line = curve.lines[0]
    table = fit.predictions({"x": [line.get_xdata()[5]]}, draws=400)
    assert np.isclose(line.get_ydata()[5], table["mean"][0], rtol=1e-6)
    assert np.allclose(levels.lines[0].get_ydata(), fit.predictions({"g": ["a", "b", "c"]}, draws=400)["mean"])
    assert np.allclose(binary.lines[0].get_ydata(), fit.predictions({"t": [0, 1]}, draws=400)["mean"])
    assert [t.get_text() for t in levels.get_xticklabels()] == ["a", "b", "c"]


def test_a_predictive_check_shows_shares_of_responses(fit):
    axis = fit.plot("ppc").axes[0]
    heights = [bar.get_height() for bar in axis.patches]
    assert np.allclose(heights, [(fit.data.y == 0).mean(), (fit.data.y == 1).mean()])


def test_calibration_of_a_true_model_is_near_the_diagonal_and_of_a_wrong_one_is_not(fit):
    def gap(each):
        points = each.plot("calibration").axes[0].lines[1]
        return np.abs(points.get_xdata() - points.get_ydata()).mean()

    wrong = known_fit(fit.data, "logistic", np.tile(-_ordered(fit.data, np.array([-0.5, 1.0, 0.3, -0.4, 0.6])), (2, 20, 1)))
    assert gap(fit) < 0.1 < gap(wrong)
    with pytest.raises(tb.OptionError, match="plot 'ppc' instead"):
        known_fit(fit.data, "poisson").plot("calibration")


def test_notebooks_show_figures_without_pyplot(fit):
    assert fit.plot("forest")._repr_png_().startswith(b"\x89PNG")


def test_a_forest_of_classes_leaves_out_the_intercept_of_every_class():
    rng = np.random.default_rng(1)
    x = rng.standard_normal(90)
    data = tb.read(pa.table({"s": rng.integers(0, 3, 90), "x": x}), "s ~ x", progress=False)
    classes = known_fit(data, "softmax")
    assert "Intercept[1]" in classes.names
    labels = [t.get_text() for t in classes.plot("forest").axes[0].get_yticklabels()]
    assert labels == [name for name in classes.names if name.startswith("x[")]
