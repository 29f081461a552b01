"""Draws by name, probabilities of statements, ratios, and what notebooks show."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from support import known_fit

import tallbayes as tb


@pytest.fixture(scope="module")
def fit():
    rng = np.random.default_rng(0)
    rows = {
        "y": rng.integers(0, 2, 60),
        "x": rng.standard_normal(60),
        "unit price": rng.random(60),
        "g": rng.choice(["a", "b", "<i>"], 60),
    }
    data = tb.read(pa.table(rows), "y ~ x*g + `unit price`", progress=False)
    out = known_fit(data, draws=400, spread=0.5)
    out.seconds.update(draws=1.0, total=1.0)
    out.setup.update(evals=60, seconds=1.0, passes=1)
    out.warmup.update(evals=60, seconds=1.0, iterations=1)
    return out


def of(fit, name):
    return fit.theta[:, :, fit.names.index(name)]


def test_draws_by_name(fit):
    assert (fit.draws("x:g[T.b]") == of(fit, "x:g[T.b]")).all() and fit.draws("x").shape == (2, 200)
    with pytest.raises(tb.OptionError, match="did you mean 'x'"):
        fit.draws("xx")
    gaussian = known_fit(tb.Dataset.from_arrays(np.ones((9, 1)), np.arange(9.0)), "normal")
    assert np.allclose(gaussian.draws("sigma"), np.exp(gaussian.draws("log_sigma")))


@pytest.mark.parametrize(
    "text, holds",
    [
        ("x > 0", lambda f: of(f, "x") > 0),
        ("x <= 0.1", lambda f: of(f, "x") <= 0.1),
        ("-0.2 < x < 0.4", lambda f: (of(f, "x") > -0.2) & (of(f, "x") < 0.4)),
        ("2 * x - 1 > g[T.b] / 3", lambda f: 2 * of(f, "x") - 1 > of(f, "g[T.b]") / 3),
        ("x:g[T.b] > x", lambda f: of(f, "x:g[T.b]") > of(f, "x")),
        ("`unit price` > -x", lambda f: of(f, "unit price") > -of(f, "x")),
        ("unit price > 0", lambda f: of(f, "unit price") > 0),
        ("exp(x) > 1.2", lambda f: np.exp(of(f, "x")) > 1.2),
        ("abs(x) < abs(Intercept)", lambda f: np.abs(of(f, "x")) < np.abs(of(f, "Intercept"))),
    ],
)
def test_probabilities_are_shares_of_draws(fit, text, holds):
    found = fit.hypothesis(text)
    share = holds(fit).mean()
    assert found.probability == pytest.approx(share) and found.evidence_ratio == pytest.approx(share / (1 - share))
    assert 0.5 * np.sqrt(share * (1 - share) / 400) < found.mcse < 3 * np.sqrt(share * (1 - share) / 400)
    assert text in repr(found) and "<table" in found._repr_html_()


def test_the_interval_is_that_of_the_difference(fit):
    found = fit.hypothesis("x > 0.1", prob=0.5)
    gap = of(fit, "x") - 0.1
    assert (found.mean, found.lower, found.upper) == pytest.approx((gap.mean(), *np.quantile(gap, (0.25, 0.75))))
    sure = fit.hypothesis("x > -100")
    assert sure.probability == 1.0 and sure.evidence_ratio == np.inf and "all draws agree" in repr(sure)


def test_weights_count(fit):
    w = np.zeros((2, 200))
    w[0] = 1.0
    fit.stats["weight"] = w
    try:
        assert fit.hypothesis("x > 0").probability == pytest.approx((of(fit, "x")[0] > 0).mean())
        assert fit.odds_ratios()["P(>1)"]["x"] == pytest.approx((of(fit, "x")[0] > 0).mean())
    finally:
        del fit.stats["weight"]


@pytest.mark.parametrize(
    "text, why",
    [
        ("x = 0", "probability zero"),
        ("x == 0", "probability zero"),
        ("x", "compares nothing"),
        ("x.real > 0", "not understood"),
        ("__import__('os') > 0", "not understood"),
        ("(lambda: 1)() > 0", "not understood"),
        ("x > 'a'", "not understood"),
        ("q > 0", "not a parameter"),
        ("[x][0] > 0", "not understood"),
        ("x > 0 if x else 1", "compares nothing"),
        ("x ** 2 > 0", "not understood"),
        ("x > 0 and x < 1", "compares nothing"),
        ("(" * 300 + "x", "cannot be read"),
        ("x > " + "1" * 3000, "at most"),
    ],
)
def test_refused_statements(fit, text, why):
    with pytest.raises(tb.OptionError, match=why):
        fit.hypothesis(text)


def test_ratios(fit):
    table = fit.odds_ratios(prob=0.5)
    assert "Intercept" not in table.index and table.columns[0] == "odds_ratio"
    assert table.loc["x", "odds_ratio"] == pytest.approx(np.exp(np.median(of(fit, "x"))))
    assert table.loc["x", "upper"] == pytest.approx(np.exp(np.quantile(of(fit, "x"), 0.75)))
    data = tb.Dataset.from_arrays(np.column_stack([np.ones(9), np.arange(9.0)]), np.arange(9.0))
    assert known_fit(data, "poisson").odds_ratios().columns[0] == "rate_ratio"
    with pytest.raises(tb.ModelError, match="is not a ratio"):
        known_fit(data, "gaussian").odds_ratios()


def test_notebooks_show_tables_without_markup_of_names(fit):
    shown = [fit._repr_html_(), fit.summary()._repr_html_(), fit.data._repr_html_()]
    mode = tb.find_mode(tb.models.gaussian(tb.Dataset.from_arrays(np.ones((9, 1)), np.arange(9.0), columns=["<b>"]), sigma=1.0))
    shown.append(mode._repr_html_())
    for page in shown:
        assert page.count("<table") >= 1 and page.count("<table") == page.count("</table>")
        assert "<i>" not in page and "<b>" not in page
    assert "60 rows" in shown[2] and "unit price" in shown[0] and "4" in shown[3]


def test_a_pickled_fit_leaves_the_rows(fit):
    copy = pickle.loads(pickle.dumps(fit))
    assert copy.data is None and fit.data is not None and (copy.theta == fit.theta).all()
