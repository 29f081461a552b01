"""Every evaluation is counted: rows that are truly read against what a fit reports, for every sampler."""

import functools
import sys
from contextlib import contextmanager

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes import compile as compiling
from tallbayes import target as targets
from tallbayes.engine import gradients, ledger, passes, residuals, rows, survey, windows
from tallbayes.engine import lower_gaps as engine_gaps
from tallbayes.proxies import lower_bounds
from tallbayes.samplers import SAMPLERS, SGHMC, SGLD, Confidence, ExactMinibatch, MHSubLhd
from tallbayes.schemes import lights

ROWS = 60


def _model(n=ROWS, seed=7):
    model = tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(n, seed=seed)), tb.priors.normal(2.0))
    assert model.data.fingerprint  # compiled: it overflows on purpose
    return model


@pytest.fixture
def model_of(monkeypatch):
    """The model, from when on entry points run their Python bodies: a few iterations cost less than compiling."""

    def build(n=ROWS):
        model = _model(n)
        monkeypatch.setattr(compiling, "_plain", True)
        return model

    return build


def _range(rows, start, stop, *rest):
    return stop - start


def _index(rows, index, *rest):
    return index.size


def _gaps_read(target, index, theta, other, cache, out):
    return index.size if cache.ours else 2 * index.size


def _total_read(target, theta, other, white, other_white, cache):
    return ROWS if cache.ours else 2 * ROWS


READERS = [
    (rows.range_value, _range),
    (rows.range_gradient, _range),
    (rows.range_hessian, _range),
    (rows.row_values, _index),
    (rows.weighted_gradient, _index),
    (rows.residual_differences, lambda rows, index, *rest: 2 * index.size),
    (residuals.residual_values, _index),
    (residuals.residual_slopes, _index),
    (gradients.control_gradient, _index),
    (lower_bounds.gaps, lambda rows, bound, index, *rest: index.size),
    (lower_bounds.log_odds_gradient, lambda rows, bound, index, *rest: index.size),
    (engine_gaps.reference_predictors, lambda rows, reference, start, out: out.shape[0]),
    (survey.range_norms, _range),  # every pass of preparation that is not of a likelihood begins with norms
    (windows.range_scores, _range),
]
AGAIN = [  # what is documented not to count twice: a pair of row and theta that was read before, and is computed once more
    (lights.known_gaps, lambda *rest: 0),
    (lights.lower_gaps, lambda target, index, *rest: index.size),
    (lights.changed_gradient, lambda *rest: 0),
    (targets.subsample_gaps, _gaps_read),
    (targets.total_residual_gap, _total_read),
]


@contextmanager
def _truth(monkeypatch):
    """Everything interpreted, and every function that reads rows counting them; a reader inside another counts once."""
    read, inside = [0], [False]

    def counting(original, size):
        @functools.wraps(original)
        def count(*arguments):
            if inside[0]:
                return original(*arguments)
            read[0] += size(*arguments)
            inside[0] = True
            try:
                return original(*arguments)
            finally:
                inside[0] = False

        return count

    with monkeypatch.context() as patch:
        patch.setattr(compiling, "_plain", True)
        for original, size in READERS + AGAIN:
            wrapper = counting(original, size)
            for name, module in list(sys.modules.items()):
                if name.startswith("tallbayes"):
                    for attribute, value in list(vars(module).items()):
                        if value is original:
                            patch.setattr(module, attribute, wrapper)
        yield read


def _reported(fit):
    return fit.setup["evals"] + fit.warmup["evals"] + fit.evals.sum()


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")
@pytest.mark.parametrize(
    "sampler",
    [
        *(
            name for name in SAMPLERS if name not in ("minibatch-gibbs", "surrogate-transition")
        ),  # which need groups, or a prior
        "auto",
        SGLD(rows="weighted"),
        ExactMinibatch(bound="T6"),
        Confidence(references=((0.0, 0.0), (-0.5, 1.0))),
        Confidence(refresh=3, order=1),
        tb.samplers.HMCECS(recentre=1),
        tb.samplers.HMCECS(order=1, rows="weighted"),
        tb.samplers.BlockPseudoMarginal(rows="learned", subsample=20),
        tb.samplers.Firefly(bound="taylor"),
    ],
    ids=lambda s: s if isinstance(s, str) else f"{s.name}, options",
)
def test_a_fit_reports_the_rows_that_were_read(sampler, monkeypatch):
    model = _model(400 if sampler == "auto" else ROWS)
    with _truth(monkeypatch) as read:
        fit = tb.sample(model, sampler, draws=6, warmup=8, chains=2, seed=3, cores=1, thin=2, progress=False)
    learned = ROWS if getattr(sampler, "rows", None) == "learned" else 0  # grouping reads columns by NumPy
    assert _reported(fit) == read[0] + learned > 0
    np.testing.assert_array_equal(fit.cost()["setup"]["evals"], fit.setup["evals"])


def test_the_rejected_candidates_of_auto_are_counted(model_of):
    model = model_of(400)
    mode = tb.find_mode(model, progress=False)
    fit = tb.sample(model, "auto", draws=5, warmup=5, chains=1, seed=1, mode=mode, progress=False)
    alone = tb.sample(model, fit.meta["sampler_name"], draws=5, warmup=5, chains=1, seed=1, mode=mode, progress=False)
    assert fit.setup["evals"] > alone.setup["evals"] >= mode.evaluations


def test_the_subsample_of_the_search_is_counted(monkeypatch):
    calls, whole = [], passes.total_hessian
    monkeypatch.setattr(passes, "total_hessian", lambda rows, *rest: calls.append(rows.records.shape[0]) or whole(rows, *rest))
    mode = tb.find_mode(_model(30_000), progress=False)
    assert mode.evaluations == sum(calls) > mode.passes * 30_000
    assert set(calls) == {20_000, 30_000}


def test_norms_are_charged_to_everyone_who_asks_and_to_nobody_else():
    mode = tb.find_mode(_model(), progress=False)
    before = mode.passes, mode.evaluations
    for _ in range(2):
        with ledger.counting() as account:
            first, second = mode.norms, mode.norms
        assert account.rows == ROWS and first is second
    assert (mode.passes, mode.evaluations) == before


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")
def test_costs_of_a_comparison_do_not_depend_on_the_order_of_samplers(model_of):
    model = model_of()
    named = [SGLD(rows="weighted"), SGHMC(rows="weighted", order=1), "mh"]
    reference = tb.sample(model, "mh", draws=20, warmup=20, chains=2, seed=1, progress=False)
    settings = {"draws": 20, "warmup": 20, "chains": 2, "reference": reference, "progress": False}
    costs = [tb.compare(model, order, **settings).table["evaluations"].to_dict() for order in (named, named[::-1])]
    assert costs[0] == costs[1]


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")
@pytest.mark.parametrize("sampler", [Confidence(bound="oracle"), MHSubLhd(range="oracle")])
def test_an_oracle_is_charged_apart(sampler, model_of):
    model = model_of()
    mode = tb.find_mode(model, progress=False)
    fit = tb.sample(model, sampler, draws=10, warmup=10, chains=2, seed=1, thin=3, mode=mode, progress=False)
    assert fit.setup["evals"] == mode.evaluations
    assert fit.cost()["oracle"] == {"evals": 2 * ROWS * 2 * 10 * 3}
    assert "oracle" not in tb.sample(model, "mh", draws=5, warmup=5, chains=1, progress=False).cost()


def test_an_account_that_is_not_open_gets_nothing():
    model, theta = _model(), np.zeros(2)
    with ledger.counting() as outer:
        passes.total_value(model.rows, theta)
        with ledger.counting() as inner:
            passes.values_at(model.rows, np.arange(7), theta)
    passes.total_value(model.rows, theta)
    assert (outer.rows, inner.rows) == (ROWS, 7)


def test_passes_on_several_threads_are_counted_once():
    model = tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(70_000)))
    with ledger.counting() as account:
        passes.total_value(model.rows, np.zeros(2), cores=2)
    assert account.rows == 70_000
