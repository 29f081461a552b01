"""Comparison of samplers: distances with known answers, an honest noise floor, a biased sampler caught, Laplace as a row."""

import json
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import logistic_arrays
from test_cli import invoke, run_main

import tallbayes as tb

QUICK = {"draws": 150, "warmup": 150, "chains": 4, "reference_draws": 1500, "progress": False}


@pytest.fixture(scope="module")
def skewed():
    """Forty rows: the posterior is far from normal."""
    X, y = logistic_arrays(40)
    return tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(2.0))


@pytest.fixture(scope="module")
def done(skewed):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "at a draw", tb.TallbayesWarning)  # tails of forty rows
        return tb.compare(skewed, ("nuts", "exact-minibatch"), seed=1, **{**QUICK, "reference_draws": 20_000})


def test_exact_samplers_are_near_the_reference_and_laplace_is_not(done):
    table = done.table
    assert list(table.index) == ["nuts", "exact-minibatch", "laplace"]
    for name in ("nuts", "exact-minibatch"):
        assert "noise" in table.loc[name, "note"] and table.loc[name, "guarantee"] == "EXACT"
        assert table.loc[name, "W2"] < 2.5 * table.loc[name, "floor_W2"]
    assert "differs from the reference" in table.loc["laplace", "note"]
    assert table.loc["laplace", "W2"] > 5 * table.loc["laplace", "floor_W2"]
    assert table.loc["laplace", "evaluations"] % 40 == 0


def test_costs_are_those_of_the_fits(done):
    for name, fit in done.fits.items():
        cost = fit.cost()
        row = done.table.loc[name]
        assert row["IF"] == cost["IF"] and row["CT"] == cost["CT"] and row["evals_per_ess"] == cost["evals_per_ess"]
        assert row["RCT"] == pytest.approx(cost["CT"] / done.fits["nuts"].cost()["CT"])
        assert row["seconds_per_ess"] == pytest.approx(1.0 / cost["ess_per_second"])
    assert done.table.loc["nuts", "RCT"] == 1.0
    assert np.isnan(done.table.loc["laplace", "RCT"])


def test_the_printed_form_says_it_all(done):
    text = repr(done)
    for part in ("reference: ", "RCT", "floor_W2", "laplace: differs", "posterior standard deviations"):
        assert part in text
    assert json.dumps(done.as_dict(), allow_nan=False)
    assert done.as_dict()["samplers"]["laplace"]["IF"] is None


def test_a_wrong_sampler_is_caught(skewed, done):
    """The draws of another posterior, handed in as the reference, make every exact sampler differ."""
    X, y = logistic_arrays(40)
    heavier = tb.models.logistic(tb.Dataset.from_arrays(X, y, weights=np.full(40, 2.0)), tb.priors.normal(2.0))
    wrong = tb.sample(heavier, "nuts", draws=3000, warmup=200, seed=4, progress=False)
    wrong.meta["fingerprint"] = skewed.data.fingerprint
    found = tb.compare(skewed, "nuts", reference=wrong, **QUICK)
    assert "differs from the reference" in found.table.loc["nuts", "note"]


def test_laplace_within_the_noise_is_said():
    X, y = logistic_arrays(20_000)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    found = tb.compare(model, ("exact-minibatch",), seed=3, **{**QUICK, "reference_draws": 300})
    assert found.table.loc["laplace", "W2"] < 2.0 * found.table.loc["laplace", "floor_W2"]
    note = found.table.loc["laplace", "note"]
    assert "cannot tell the normal approximation" in note or "closer to it than every sampler" in note or "about" in note


class Refusing(tb.samplers.FullData):
    def setup(self, model, mode, seed, progress):
        raise tb.ModelError("there is no certified bound for this model")


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")  # so few draws may begin in a tail and stay there
def test_by_default_every_sampler_that_accepts_the_model(skewed, monkeypatch):
    names = {"exact-minibatch": tb.samplers.SAMPLERS["exact-minibatch"], "refusing": lambda: Refusing(tb.moves.nuts())}
    monkeypatch.setattr("tallbayes.samplers.SAMPLERS", names)
    found = tb.compare(skewed, draws=50, warmup=50, chains=2, reference_draws=100, progress=False)
    assert list(found.table.index) == ["exact-minibatch", "laplace"]
    assert "no certified bound" in found.skipped["refusing"] and "refusing: skipped" in repr(found)
    with pytest.raises(tb.ModelError, match="no certified bound"):
        tb.compare(skewed, ("refusing",), **QUICK)


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")
def test_samplers_of_the_same_name_are_told_apart(skewed):
    pair = (tb.samplers.ExactMinibatch(rate="tuna"), "exact-minibatch")
    found = tb.compare(skewed, pair, draws=50, warmup=50, chains=2, reference_draws=100, progress=False)
    assert list(found.table.index) == ["exact-minibatch", "exact-minibatch #2", "laplace"]


def test_errors_name_the_remedy(skewed):
    with pytest.raises(tb.OptionError, match="did you mean 'nuts'"):
        tb.compare(skewed, ("nutz",), progress=False)
    with pytest.raises(tb.OptionError, match="at least one sampler"):
        tb.compare(skewed, (), progress=False)
    with pytest.raises(tb.OptionError, match="compare needs a model"):
        tb.compare("rows.parquet")


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")
def test_the_command(tmp_path, monkeypatch, capsys):
    X, y = logistic_arrays(200)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": X[:, 1], "y": y}), path)
    short = ("--draws", 60, "--warmup", 60, "--chains", 2, "--reference-draws", 100, "--quiet")
    common = ("compare", path, "--formula", "y ~ x", "--samplers", "exact-minibatch, hmc", *short)
    printed = json.loads(invoke(*common, "--json").stdout)
    assert list(printed["samplers"]) == ["exact-minibatch", "hmc", "laplace"]
    assert "reference: " in invoke(*common).stdout
    code, shown = run_main(monkeypatch, capsys, "compare", path, "-f", "y ~ x", "--samplers", "nutz", "--quiet")
    assert code == 1 and not shown.out and shown.err.count("\n") == 1 and "did you mean 'nuts'?" in shown.err
