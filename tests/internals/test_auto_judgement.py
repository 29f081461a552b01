"""Internals of `tallbayes.auto.judgement`; what users see of it is tested in test_auto.py."""

from dataclasses import replace

import numpy as np
import pytest

import tallbayes as tb
from tallbayes import auto
from tallbayes.errors import OptionError
from tallbayes.run.chain import Chain


def logistic(n, d, seed=0, effect=0.3):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.standard_normal((n, d - 1))])
    y = (rng.random(n) < 1 / (1 + np.exp(-x @ np.full(d, effect)))).astype(float)
    return tb.models.logistic(tb.Dataset.from_arrays(x, y))


@pytest.fixture
def mistaken(monkeypatch):
    """Pilots that predict a thousandth of what exact minibatch costs, where proposals of a random walk mix slowly."""
    own = auto.Weighing._pilot

    def pilot(self, candidate):
        candidate = own(self, candidate)
        if candidate.sampler.name != "exact-minibatch":
            return candidate
        return replace(candidate, **{k: 1e-3 * getattr(candidate, k) for k in ("evals_per_ess", "iterations_per_ess")})

    monkeypatch.setattr(auto.Weighing, "_pilot", pilot)
    return logistic(400, 40)


def test_a_run_stopped_before_the_verdict_reaches_it_when_it_is_resumed(mistaken, tmp_path, monkeypatch):
    mode, own = tb.find_mode(mistaken, progress=False), Chain.chunk
    options = {"draws": 30, "warmup": 300, "chains": 2, "seed": 1, "mode": mode, "progress": False}
    whole = tb.sample(mistaken, **options)

    def chunk(self, goal):
        if (
            self.watched and self.number == 0 and self.iteration >= 200
        ):  # one Ctrl-C: a second one would not wait for the chunks
            raise KeyboardInterrupt
        return own(self, goal)

    with monkeypatch.context() as patched:
        patched.setattr(Chain, "chunk", chunk)
        with pytest.raises(OptionError, match="has no draws yet"):
            tb.sample(mistaken, **options, cores=1, checkpoint=tmp_path / "run")  # chains in turn: neither is far ahead
    again = []
    monkeypatch.setattr(Chain, "chunk", lambda self, goal: again.append(self.iteration) or own(self, goal))
    resumed = tb.resume(tmp_path / "run", mistaken, progress=False)
    assert (resumed.theta == whole.theta).all() and resumed.why == whole.why
    assert again[0] > 0  # warm-up went on from where it was
