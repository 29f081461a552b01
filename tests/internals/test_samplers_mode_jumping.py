"""Internals of `tallbayes.samplers.mode_jumping`; what users see of it is tested in test_mode_jumping.py."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.mode import several
from tallbayes.results import audit as auditing
from tallbayes.samplers import ModeJumping
from tallbayes.samplers.mode_jumping import AT


def two_sided(n=20, nu=2.0, scale=0.5, centre=3.0, seed=0):
    rng = np.random.default_rng(seed)
    y = np.r_[rng.normal(-centre, 1.0, n // 2), rng.normal(centre, 1.0, n // 2)]
    return tb.models.student_t(tb.Dataset.from_arrays(np.ones((n, 1)), y), nu=nu, scale=scale)


def sampled(model, sampler=None, seed=3, draws=20_000):
    return tb.sample(model, sampler or ModeJumping(), draws=draws, warmup=500, chains=2, seed=seed, progress=False)


def test_most_rows_are_left_unread_when_there_are_many():
    model = two_sided(n=20_000, nu=4.0, scale=1.0, centre=5.0)
    mode = tb.find_mode(model, progress=False)
    if len(several.important(mode)) == 1:  # one side has all the mass for this seed
        model = tb.models.student_t(
            tb.Dataset.from_arrays(np.ones((20_000, 1)), np.r_[model.data.y[:10_000], -model.data.y[:10_000]]),
            nu=4.0,
            scale=1.0,
        )
    fit = sampled(model, draws=4_000)
    assert fit.meta["notes"]["changes_of_mode"] > 100
    assert abs((fit.theta > 0).mean() - 0.5) < 0.1
    assert fit.evals.mean() < 5.0


def test_few_changes_of_mode_are_warned_of():
    model = two_sided()
    with pytest.warns(tb.TallbayesWarning, match=r"changed between the 2 modes \d+ times"):
        fit = tb.sample(model, "mode-jumping", draws=20, warmup=20, chains=2, seed=1, progress=False)
    assert fit.stats["changed"].sum() < 20 and len(AT) == len(ModeJumping.Info._fields)


def test_an_audit_looks_at_residuals_of_every_mode(monkeypatch):
    model = two_sided()
    fit = sampled(model, draws=500)
    found = fit.audit(model, pairs=3)
    assert found.passed and found.facts["draws checked on all rows"] == 6
    honest = auditing.certify

    def shrunk(*arguments, **options):
        bound, name = honest(*arguments, **options)
        return bound._replace(table=bound.table._replace(weight=0.01 * bound.table.weight)), name

    monkeypatch.setattr(auditing, "certify", shrunk)
    assert any("exceeds its bound" in p for p in fit.audit(model, pairs=3).problems)
