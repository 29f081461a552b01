"""Progress: bars only where they can be drawn, lines elsewhere, and a word on calls that cannot report."""

import time

import numpy as np
import pytest

import tallbayes as tb
from tallbayes import progress
from tallbayes.progress import Progress, Waiting


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)


def test_lines_where_no_bar_can_be_drawn(impatient, capsys):
    with Progress("reading", 8) as bar:
        bar.advance(2, "two")
        bar.advance(4)
    lines = capsys.readouterr().err.splitlines()
    assert [line.rsplit(" after")[0] for line in lines] == ["reading 25%", "reading 75%"]
    assert lines[0].endswith(" s, two") and lines[1].endswith(" s")


def test_no_line_before_its_time(monkeypatch, capsys):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with Progress("reading", 8) as bar:
        bar.advance(2)
    assert capsys.readouterr().err == ""


def test_a_total_that_grows_is_drawn(impatient, monkeypatch):
    monkeypatch.setattr(progress, "_drawable", lambda: True)
    with Progress("sampling", 10) as bar:
        bar.advance(10)
        bar.total = 40
        bar.advance(10)
        assert bar._bar.tasks[0].percentage == 50.0


@pytest.mark.parametrize("enabled", [True, False])
def test_waiting_says_what_it_waits_for(impatient, capsys, enabled):
    with Waiting("compiling", enabled):
        time.sleep(0.2)
    assert capsys.readouterr().err == "compiling\n" * enabled


def test_waiting_is_silent_when_it_is_short(capsys):
    with Waiting("compiling"):
        pass
    assert capsys.readouterr().err == ""


def test_waiting_draws_a_spinner_on_a_terminal(impatient, monkeypatch):
    monkeypatch.setattr(progress, "_drawable", lambda: True)
    with Waiting("compiling") as waiting:
        time.sleep(0.2)
        assert waiting._status is not None


DRAWS, WARMUP = 300, 60


def sample(model, sampler="mh", **options):
    return tb.sample(model, sampler, **{"draws": DRAWS, "warmup": WARMUP, "chains": 2, "seed": 5, "progress": False, **options})


def assert_same(fit, expected):
    """Draws and everything reported of them, bit for bit."""
    np.testing.assert_array_equal(fit.theta, expected.theta)
    assert fit.stats.keys() == expected.stats.keys()
    for name, values in expected.stats.items():
        np.testing.assert_array_equal(fit.stats[name], values)
    assert fit.warmup["evals"] == expected.warmup["evals"]
    assert fit.warmup["iterations"] == expected.warmup["iterations"]


@pytest.fixture(scope="module")
def reference(medium):
    return sample(medium)


def test_progress_does_not_change_draws(medium, reference, monkeypatch, capfd):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert_same(sample(medium, progress=True), reference)
    shown = capfd.readouterr()
    assert "sampling" in shown.err and "draws" in shown.err and not shown.out
    sample(medium)
    assert capfd.readouterr() == ("", "")
