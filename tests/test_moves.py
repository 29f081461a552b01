"""The contract of a move, run for every move of the package: invariance, two speeds, chunks; and mutants that must fail."""

import importlib
import inspect
import pkgutil

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.errors import OptionError
from tallbayes.moves import MOVES, PROPOSALS, Move
from tallbayes.samplers import FullData
from tallbayes.testing import THRESHOLD, invariance_scores, run_chunks

MODULES = {m.name: importlib.import_module(f"tallbayes.moves.{m.name}") for m in pkgutil.iter_modules(tb.moves.__path__)}
CASES = {
    **{name: make() for name, make in MOVES.items()},
    "random_walk-blocks": tb.moves.random_walk(blocks=[[1], [0]]),
    "random_walk-isotropic": tb.moves.random_walk(isotropic=True),
    "mala-isotropic": tb.moves.mala(isotropic=True),
    "hmc-diagonal": tb.moves.hmc(mass="diagonal"),
    "independence": tb.moves.independence(),
    "independence-t": tb.moves.independence(df=4),
    "pcn": tb.moves.pcn(),
}

every_move = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def test_every_move_of_the_package_has_a_name():
    kinds = {kind for module in MODULES.values() for kind in vars(module).values() if inspect.isclass(kind)}
    concrete = {kind for kind in kinds if issubclass(kind, Move) and not inspect.isabstract(kind)}
    assert {"random_walk", "hmc", "nuts"} <= set(MOVES)
    assert {kind.name for kind in concrete} == {*MOVES, *PROPOSALS, "surrogate"}
    assert all(MOVES[kind.name]() == kind() for kind in concrete if kind.name in MOVES)


@every_move
def test_exact_draws_stay_exact(case, small):
    scores = invariance_scores(FullData(case), small.model, small.posterior, mode=small.mode)
    assert np.abs(scores).max() < THRESHOLD


@every_move
def test_a_tempered_target_is_rejected(case, small):
    scores = invariance_scores(FullData(case), small.tempered, small.posterior, mode=small.mode, starts=12_000)
    assert np.abs(scores).max() > THRESHOLD


@pytest.fixture(scope="module")
def thirty():
    model = tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(30)), tb.priors.normal(2.0))
    return model, tb.find_mode(model, progress=False)


@every_move
def test_compiled_and_interpreted_draw_the_same(case, thirty):
    theta, info, state = run_chunks(FullData(case), *thirty, [20])
    interpreted, interpreted_info, interpreted_state = run_chunks(FullData(case), *thirty, [20], compiled=False)
    assert np.unique(theta, axis=0).shape[0] > 5
    np.testing.assert_allclose(theta, interpreted, rtol=0, atol=1e-10)
    np.testing.assert_allclose(info, interpreted_info, rtol=0, atol=1e-8)
    for name, value in state.items():
        np.testing.assert_allclose(value, interpreted_state[name], rtol=0, atol=1e-8)


@every_move
def test_chunks_never_change_draws(case, small):
    whole, whole_info, whole_state = run_chunks(FullData(case), small.model, small.mode, [20])
    parts, parts_info, parts_state = run_chunks(FullData(case), small.model, small.mode, [7, 13])
    np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(whole_info, parts_info)
    for name, value in whole_state.items():
        np.testing.assert_array_equal(value, parts_state[name])


@every_move
def test_what_is_reported_belongs_to_the_draw(case, small):
    theta, info, _ = run_chunks(FullData(case), small.model, small.mode, [50])
    report = dict(zip(FullData(case).columns, info.T, strict=True))
    np.testing.assert_allclose(report["lp"], [small.model.log_posterior(t) for t in theta], rtol=1e-12)
    assert (report["acceptance_rate"] > 0.0).any() and (report["acceptance_rate"] <= 1.0).all()
    assert (report["n_steps"] >= 1).all() and not report["diverging"].any()
    assert (report["n_steps"] < 2.0 ** (report["tree_depth"] + 1)).all() or case.name != "nuts"


@pytest.mark.parametrize("make", [tb.moves.random_walk, tb.moves.mala])
def test_isotropic_steps_have_one_scale_that_the_narrow_directions_set(make):
    covariance = np.array([[9.0, 1.0, 0.0], [1.0, 0.01 + 1.0 / 9.0, 0.0], [0.0, 0.0, 1.0]])
    factor, shaped = make(isotropic=True).kernel(covariance, 0.5).factor, make().kernel(covariance, 0.5).factor
    scale = (3.0 / (1.0 / np.linalg.eigvalsh(covariance)).sum()) ** 0.5
    unit = 0.5 * 2.38 / 3.0**0.5 if make is tb.moves.random_walk else 1.0
    np.testing.assert_allclose(factor, np.full((1, 3), unit * scale), atol=1e-12)  # a diagonal
    np.testing.assert_allclose(shaped @ shaped.T, unit**2 * covariance, atol=1e-12)


def test_isotropic_blocks_have_a_scale_each():
    covariance = np.array([[4.0, 1.0, 0.5], [1.0, 2.0, 0.3], [0.5, 0.3, 1.0]])
    kernel, precision = (
        tb.moves.random_walk(blocks=[[0, 2], [1]], isotropic=True).kernel(covariance, 1.0),
        np.linalg.inv(covariance),
    )
    pair, single = (2.0 / (precision[0, 0] + precision[2, 2])) ** 0.5 * 2.38 / 2**0.5, precision[1, 1] ** -0.5 * 2.38
    np.testing.assert_allclose(kernel.factor, np.diag([pair, single, pair]), atol=1e-12)


def test_isotropic_is_a_switch_that_whitened_proposals_refuse():
    for make in (tb.moves.random_walk, tb.moves.mala):
        with pytest.raises(OptionError, match="isotropic must be True"):
            make(isotropic="yes")
    with pytest.raises(OptionError, match="whitened by the Laplace fit"):
        tb.samplers.Austerity(move=tb.moves.random_walk(isotropic=True)).check()


@pytest.mark.parametrize("df", [0.0, -1.0, np.inf, np.nan])
def test_degrees_of_freedom_that_make_no_sense_are_refused(df):
    with pytest.raises(OptionError, match="degrees of freedom"):
        tb.moves.independence(df=df)
    with pytest.raises(OptionError, match="rho must be 0"):
        tb.moves.PROPOSALS["independence-t"](rho=0.5)
