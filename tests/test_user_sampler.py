"""Samplers written by users: resumed and audited with the object; a check that fails after a run does not lose its draws."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.samplers import FullData


@dataclass(frozen=True)
class Mine(FullData):
    """A random walk with an option of its own."""

    label: Any = "a"


BUILT_IN = FullData


class Disguised:
    """A namespace for a class with the name of one of the package."""

    @dataclass(frozen=True)
    class FullData(BUILT_IN):
        pass


@dataclass(frozen=True)
class Failing(FullData):
    """Its checks after the run fail."""

    reason: ClassVar[str] = "the table has no such column"

    def diagnose(self, *arguments):
        raise KeyError(self.reason)


def mine(**options):
    return Mine(tb.moves.random_walk(), **options)


def sample(model, sampler, **options):
    return tb.sample(model, sampler, **{"draws": 30, "warmup": 20, "chains": 2, "seed": 5, "progress": False, **options})


@pytest.fixture(scope="module")
def run(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("user") / "run"
    return folder, sample(small.model, mine(), checkpoint=folder)


def test_a_run_is_resumed_with_the_object(small, run):
    folder, first = run
    longer = tb.resume(folder, small.model, 40, mine(), progress=False)
    np.testing.assert_array_equal(longer.theta, sample(small.model, mine(), draws=40).theta)
    np.testing.assert_array_equal(longer.theta[:, :30], first.theta)


def test_an_object_that_is_needed_is_asked_for(small, run):
    with pytest.raises(
        tb.OptionError, match=r"used Mine, a sampler that is not part of tallbayes; give the object as sampler="
    ):
        tb.resume(run[0], small.model, progress=False)
    with pytest.raises(tb.OptionError, match=r"the fit used Mine, .* give the object as sampler="):
        run[1].audit(small.model)


@pytest.mark.parametrize(
    "sampler, message",
    [
        (mine(label="b"), r"label was 'a', and is 'b'"),
        (Mine(tb.moves.random_walk(acceptance=0.3)), r"move was "),
        (Mine(tb.moves.hmc()), r"move was "),
        ("mh", r"used the sampler Mine, not FullData"),
        (tb.samplers.Firefly(), r"used the sampler Mine, not Firefly"),
    ],
    ids=["option", "step", "move", "name", "class"],
)
def test_another_sampler_is_refused(small, run, sampler, message):
    with pytest.raises(tb.StoreError, match=message):
        tb.resume(run[0], small.model, sampler=sampler, progress=False)
    with pytest.raises(tb.StoreError, match=message):
        run[1].audit(small.model, sampler=sampler)


def test_a_fit_is_audited_with_the_object(small, run, tmp_path):
    again = tb.load(run[1].save(tmp_path / "fit.nc"))
    for fit in (run[1], again):
        report = fit.audit(small.model, pairs=3, sampler=mine())
        assert report.passed and report.facts["draws recomputed on all rows"] == 3


def test_a_fit_without_densities_has_none_to_audit(small, run):
    from dataclasses import replace

    fit = replace(run[1], stats={k: v for k, v in run[1].stats.items() if k != "lp"})
    assert "no 'lp'" in fit.audit(small.model, sampler=mine()).facts["log densities"]


def test_samplers_of_the_package_may_be_given_too(small, tmp_path):
    fit = sample(small.model, "mh", checkpoint=tmp_path)
    np.testing.assert_array_equal(tb.resume(tmp_path, small.model, sampler="mh", progress=False).theta, fit.theta)
    assert fit.audit(small.model, pairs=2, sampler="mh").passed and fit.audit(small.model, pairs=2).passed
    with pytest.raises(tb.StoreError, match="move was"):
        tb.resume(tmp_path, small.model, sampler="hmc", progress=False)


def test_a_class_with_a_name_of_the_package_is_not_taken_for_it(small, tmp_path):
    sampler = Disguised.FullData(tb.moves.random_walk())
    fit = sample(small.model, sampler, checkpoint=tmp_path)
    with pytest.raises(tb.OptionError, match="give the object as sampler="):
        tb.resume(tmp_path, small.model, progress=False)
    with pytest.raises(tb.StoreError, match="give sampler= the object that it used"):
        fit.audit(small.model, sampler="mh")
    np.testing.assert_array_equal(tb.resume(tmp_path, small.model, sampler=sampler, progress=False).theta, fit.theta)


def test_options_that_cannot_be_stored_are_refused_before_the_run(small, tmp_path):
    with pytest.raises(tb.OptionError, match=r"options of Mine cannot be stored .*as_dict"):
        sample(small.model, mine(label=np.ones(2)), checkpoint=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_failure_of_diagnose_keeps_the_draws(small, tmp_path):
    sampler = Failing(tb.moves.random_walk())
    with pytest.warns(tb.TallbayesWarning, match="checks of mh after the run failed"):
        fit = sample(small.model, sampler, checkpoint=tmp_path)
    np.testing.assert_array_equal(fit.theta, sample(small.model, "mh").theta)
    (sentence,) = fit.meta["warnings"]
    assert "KeyError" in sentence and Failing.reason in sentence
    with pytest.warns(tb.TallbayesWarning, match="failed"):
        assert (tb.resume(tmp_path, small.model, sampler=sampler, progress=False).theta == fit.theta).all()
