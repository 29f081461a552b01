"""Trap: a posterior with several modes, of which one search finds an inferior one. Truth: the modes and their masses are known."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.errors import TallbayesWarning


def contaminated(left=0.58, seed=0, n=20_000):
    """Responses at -5 and 5, and a few at 100 that draw the first guess to the wrong side."""
    rng = np.random.default_rng(seed)
    far = n * 3 // 100
    below = int(left * (n - far))
    y = np.r_[rng.normal(-5, 1, below), rng.normal(5, 1, n - far - below), rng.normal(100, 1, far)]
    x = rng.standard_normal(n)
    return tb.models.student_t(tb.Dataset.from_arrays(np.c_[np.ones(n), x], y + 0.5 * x), nu=4.0, scale=1.0)


def test_the_better_mode_is_found_and_the_other_reported():
    model = contaminated()
    mode = tb.find_mode(model, progress=False)
    assert mode.reference[0] < -4.0 and mode.reference[1] == pytest.approx(0.5, abs=0.1)
    assert [m.reference[0] > 3.5 for m in mode.others] == [True]
    grid = np.linspace(-8.0, 8.0, 65)
    heights = [model.log_posterior(np.array([a, 0.5])) for a in grid]  # truth: the highest point of a scan over the intercept
    assert abs(grid[int(np.argmax(heights))] - mode.reference[0]) < 0.5
    assert mode.log_posterior >= max(heights)


def test_the_default_call_is_right_and_names_its_assumption():
    fit = tb.sample(contaminated(n=4_000), "mh", draws=200, warmup=300, chains=2, seed=1, progress=False)
    assert fit.theta[:, :, 0].max() < -4.0
    assert any("searches from different starts" in text for text in fit.guarantee.assumed)


def two_modes(shift=0.0):
    """y ~ N(theta^2, 1): the same likelihood at theta and -theta; a prior around `shift` tells them apart."""
    rng = np.random.default_rng(2)
    y = rng.normal(9.0, 1.0, 200)
    data = tb.Dataset.from_arrays(np.ones((200, 1)), y)

    def log_lik(theta, row):
        return -0.5 * (row["y"] - theta[0] ** 2) ** 2

    return tb.models.from_jax(log_lik, data, prior=tb.priors.normal(10.0, location=shift), dim=1)


@pytest.mark.filterwarnings("ignore:the chains disagree")
def test_two_modes_that_matter_are_warned_of_everywhere(tmp_path):
    model = two_modes()
    with pytest.warns(TallbayesWarning, match="2 separate modes"):
        fit = tb.sample(model, "nuts", draws=100, warmup=100, chains=4, seed=3, progress=False)
    assert sorted(np.sign(fit.theta[:, :, 0].mean(1))) == [-1.0, -1.0, 1.0, 1.0]
    sentences = fit.meta["warnings"]
    assert any("2 separate modes" in s and "50 % of the mass" in s for s in sentences)
    assert "2 separate modes" in str(fit.summary())
    fit.save(tmp_path / "fit.nc")
    assert "2 separate modes" in str(tb.load(tmp_path / "fit.nc").summary())
    fit.report(tmp_path / "report.html")
    assert "2 separate modes" in (tmp_path / "report.html").read_text()


def test_a_prior_that_disagrees_with_few_rows_is_searched():
    """A Cauchy prior far from what four rows say: two modes, at the rows and at the prior."""
    data = tb.Dataset.from_arrays(np.ones((4, 1)), np.zeros(4))
    model = tb.models.gaussian(data, tb.priors.cauchy(0.01, location=6.0), sigma=2.0)
    mode = tb.find_mode(model, progress=False)
    assert mode.searches > 0 and len(mode.others) == 1
    assert {round(m.reference[0]) for m in (mode, *mode.others)} == {0, 6}
