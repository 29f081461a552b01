"""Internals of `tallbayes.bounds.bound` and of the schemes of `engine.random_rows`: any certificate and any scheme as one compiled type."""

import gc
import multiprocessing
import pickle
import sys
import weakref

import numpy as np
import pyarrow as pa
import pytest
from conftest import PRIOR
from numba import typeof
from support import logistic_arrays

import tallbayes as tb
from tallbayes import pointers
from tallbayes.bounds.bound import DRAW, RANGE, SLOPE, TOTAL, Bound, bound_of, certificate_of
from tallbayes.bounds.catalogue import certify
from tallbayes.bounds.fourth_order import fourth_order
from tallbayes.bounds.interval import Ranged
from tallbayes.bounds.slopes import slope_rate
from tallbayes.bounds.streamed import Reservoir, StreamedClasses, StreamedNumbers, StreamedScheme, StreamedSeparable
from tallbayes.bounds.tables import Angular, Cubic, NoBound, Separable, Zero, draw_candidates, draw_row, rate_count, total_rate
from tallbayes.bounds.uniform_ranges import (
    Extremes,
    PublishedGamma,
    collapse,
    gap_range,
    lipschitz,
    moved,
    reference_passes,
    reference_scale,
)
from tallbayes.bounds.user_given import Given
from tallbayes.compile import jit
from tallbayes.engine.random_rows import (
    ProportionalRows,
    UniformRows,
    WeightedRows,
    build,
    draw_rows,
    original_scheme,
    row_scale,
    scheme_of,
)
from tallbayes.remote.supply import open_streams
from tallbayes.samplers import HMCECS, SGLD, Confidence, ExactMinibatch, ModeJumping, ZigZag
from tallbayes.shards import Partitions

D, N = 2, 60


def weights(seed=0):
    return np.random.default_rng(seed).gamma(0.5, 1.0, N)


def table(seed=0):
    return build(weights(seed))


def reservoir():
    size = np.full(2, 8)
    return Reservoir(weights()[:16], np.array([0, 8]), np.zeros(2, np.int64), size, np.zeros(2, np.int64))


def ranged():
    return Ranged(table(), table(1), table(2), np.array([1.0, 3.0]), False, True)


def given():
    return Given(np.array([1.0, 4.0, 9.0]), (table(), table(1), table(2)), np.array([[1.0, 0.0], [0.3, 0.5]]))


FAMILIES = {
    "T1": lambda mode: certify(mode, "T1")[0],
    "T4": lambda mode: certify(mode, "T4")[0],
    "T6": lambda mode: certify(mode, "T6")[0],
    "T7": lambda mode: certify(mode, "T7")[0],
    "T9": lambda mode: certify(mode, "T9")[0],
    "T10": lambda mode: ranged(),
    "cubic": lambda mode: Separable(table(), Cubic()),
    "fourth order": lambda mode: fourth_order(mode, certify(mode, "T9")[0], 2.0),
    "given": lambda mode: given(),
    "Lipschitz": lambda mode: lipschitz(mode, 1),
    "zero": lambda mode: Zero(),
    "none": lambda mode: NoBound(),
    "stream": lambda mode: StreamedSeparable(2.5, Angular(), reservoir()),
    "streams": lambda mode: StreamedClasses(np.array([0.4]), np.array([2.0]), np.array([3.0]), True, reservoir()),
}


@jit
def facts(rng, bound, white, other, rates, index, limits):
    total = total_rate(bound, white, other, rates)
    return total, draw_candidates(rng, bound, rates, total, index, limits)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_bound_is_its_certificate(name, small):
    certificate, pairs = FAMILIES[name](small.mode), np.random.default_rng(3).standard_normal((6, 2, D))
    for compiled in (False, True):
        run = facts if compiled else facts.py_func
        for scale, (white, other) in zip((0.0, 0.1, 1.0, 1.0, 3.0, 30.0), pairs, strict=True):
            results = []
            certificate = FAMILIES[name](small.mode)
            for bound, how in ((certificate, facts.py_func), (bound_of(FAMILIES[name](small.mode)), run)):
                rng, rates = np.random.default_rng(5), np.zeros(rate_count(bound))
                index, limits = np.full(5, -2), np.zeros(5)
                total, drawn = how(rng, bound, scale * white, scale * other, rates, index, limits)
                results.append((total, drawn, index[:drawn], limits[:drawn], rates, rng.random()))
            for first, second in zip(*results, strict=True):
                np.testing.assert_allclose(second, first, rtol=1e-14)
    assert len(facts.signatures) <= 1


def test_streams_that_run_dry_say_how_many_rows_there_were():
    bound, index, limits = bound_of(FAMILIES["stream"](None)), np.zeros(12, np.int64), np.zeros(12)
    assert draw_candidates(np.random.default_rng(0), bound, np.ones(2), 1.0, index, limits) == 8
    assert index[8] == -1 and (limits[:8] > 0.0).all()
    assert draw_row(np.random.default_rng(0), bound, np.ones(2), 1.0)[0] == -1
    assert certificate_of(bound).reservoir.position.tolist() == [8, 0]


@pytest.mark.parametrize("name", ["T6", "T9", "T10", "zero", "stream", "streams"])
def test_rates_along_a_path_are_those_of_the_certificate(name, small):
    certificate = FAMILIES[name](small.mode)
    bound = bound_of(certificate, (SLOPE, DRAW))
    for reach in (0.0, 0.5, 2.0, 10.0):
        rates, expected = np.zeros((2, rate_count(certificate)))
        assert slope_rate(bound, reach, rates) == slope_rate(certificate, reach, expected)
        np.testing.assert_array_equal(rates, expected)


@pytest.mark.parametrize("name", ["T6", "T7", "T9", "Lipschitz", "published", "extremes"])
def test_ranges_are_those_of_the_certificate(name, small):
    certificates = {
        "published": PublishedGamma(2.0, 1.5, -0.3, np.array([[0.5, 0.0], [0.1, 0.4]])),
        "extremes": Extremes(-2.0, 3.0),
    }
    certificate = certificates.get(name) or collapse(FAMILIES[name](small.mode))
    bound, rng = bound_of(certificate, (RANGE,)), np.random.default_rng(0)
    for points in 0.3 * rng.standard_normal((5, 5, D)):
        arguments = (points[0], 2, *points[1:])
        assert gap_range(bound, *arguments) == gap_range(certificate, *arguments)


def test_only_published_bounds_follow_the_reference(small):
    published = PublishedGamma(2.0, 1.5, -0.3, np.array([[0.5, 0.0], [0.1, 0.4]]))
    bound, arguments = bound_of(published, (RANGE,)), (np.zeros(D), 2, *np.random.default_rng(1).standard_normal((4, D)))
    other = moved(bound, -1.1)
    assert gap_range(other, *arguments) == gap_range(moved(published, -1.1), *arguments) != gap_range(bound, *arguments)
    assert reference_passes(bound) == 1
    assert reference_scale(bound, small.model.rows, np.ones(D)) == reference_scale(published, small.model.rows, np.ones(D))
    still = bound_of(FAMILIES["T6"](small.mode))
    assert moved(still, -1.1).numbers is still.numbers and reference_passes(still) == 0
    assert reference_scale(still, None, np.ones(D)) == 0.0


def test_what_was_not_asked_for_is_not_known(small):
    bound = bound_of(FAMILIES["T6"](small.mode), ())._replace(rates=2)
    assert total_rate(bound, np.zeros(D), np.ones(D), np.zeros(2)) == np.inf
    assert slope_rate(bound, 1.0, np.zeros(2)) == np.inf
    assert gap_range(bound, np.zeros(D), 2, *np.ones((4, D))) == (-np.inf, np.inf)
    assert draw_row(np.random.default_rng(0), bound, np.zeros(2), 1.0)[0] == -1


# Arrays that are held by address


def test_arrays_live_as_long_as_the_bound():
    weight = weights()
    bound, watched, white = bound_of(Separable(build(weight), Angular())), weakref.ref(weight), np.ones(D)
    expected = total_rate(bound, np.zeros(D), white, np.zeros(2))
    del weight
    gc.collect()
    assert watched() is not None and total_rate(bound, np.zeros(D), white, np.zeros(2)) == expected
    copy = moved(bound, 0.0)
    del bound
    gc.collect()
    assert watched() is not None
    del copy
    gc.collect()
    assert watched() is None


def test_a_bound_that_holds_nothing_is_caught(monkeypatch):
    """The mutant of the test above."""
    monkeypatch.setattr(pointers, "_HOLDING", {})
    weight = weights()
    bound, watched = bound_of(Separable(build(weight), Angular())), weakref.ref(weight)
    pointers._HOLDING.clear()
    del weight
    gc.collect()
    assert watched() is None and bound.numbers.size > 0


def total_of(bound):
    return total_rate(bound, np.zeros(D), np.ones(D), np.zeros(2)), draw_row(np.random.default_rng(1), bound, np.ones(2), 1.0)


@jit
def compiled_total(bound):
    return total_rate(bound, np.zeros(2), np.ones(2), np.zeros(2))


def both(bound):
    """What a worker finds: interpreted, and by the machine code at the addresses."""
    return total_of(bound), compiled_total(bound)


@pytest.mark.parametrize("certificate", [Zero(), NoBound(), Separable(table(), Angular())], ids=["zero", "none", "T6"])
def test_bounds_are_made_again_from_a_pickle(certificate):
    bound = bound_of(certificate)
    again = pickle.loads(pickle.dumps(bound))
    assert total_of(again) == total_of(bound) and again[:-1] == bound[:-1]
    if isinstance(certificate, Separable):
        assert again.numbers[0] != bound.numbers[0]  # arrays of its own
    assert again.asked == (TOTAL, DRAW) and type(certificate_of(again)) is type(certificate)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_other_processes_have_their_own_addresses(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("not on this system")
    if method == "fork" and "jax" in sys.modules:
        pytest.skip("JAX is loaded, and its threads do not survive a fork")
    bound = bound_of(Separable(table(), Angular()))
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(both, (bound,)) == both(bound)


def test_an_address_of_another_process_would_be_seen():
    """The mutant: a pickle that keeps addresses."""
    bound = bound_of(Separable(table(), Angular()))
    stale = Bound(*pickle.loads(pickle.dumps(tuple(bound._replace(total=bound.total + 1)))))
    with pytest.raises(KeyError):
        total_of(stale)


def test_schemes_are_made_again_from_a_pickle():
    scheme = scheme_of(WeightedRows(N, table(), 0.1))
    again = pickle.loads(pickle.dumps(scheme))
    np.testing.assert_array_equal(original_scheme(again).table.weight, weights())
    assert again.numbers[1] != scheme.numbers[1] and again.draw == scheme.draw


@jit
def drawn(rng, scheme, index, factors):
    draw_rows(rng, scheme, 5, index, factors)
    return row_scale(scheme, 3)


SCHEMES = {
    "uniform": lambda: UniformRows(N),
    "weighted": lambda: WeightedRows(N, table(), 0.1),
    "proportional": lambda: ProportionalRows(table()),
    "stream": lambda: StreamedScheme(N, reservoir()),
    "kept": lambda: StreamedNumbers(N, reservoir()),
}


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_draws_what_it_was_made_of_draws(name):
    for run in (drawn.py_func, drawn):
        index, factors = np.zeros((2, 12), np.int64), np.zeros((2, 12))
        first, second = SCHEMES[name](), scheme_of(SCHEMES[name]())
        rngs = [np.random.default_rng(2) for _ in range(2)]
        draw_rows(rngs[0], first, 5, index[0], factors[0])
        scale = run(rngs[1], second, index[1], factors[1])
        np.testing.assert_array_equal(*index)
        np.testing.assert_allclose(*factors, rtol=1e-14)
        assert rngs[0].random() == rngs[1].random()
        if name in ("uniform", "weighted"):
            assert scale == pytest.approx(row_scale(first, 3), rel=1e-14)
        if name in ("stream", "kept"):
            assert original_scheme(second).reservoir.position.tolist() == first.reservoir.position.tolist()
    assert len(drawn.signatures) <= 1


# What a sampler is compiled for


def responses(family, eta, rng):
    return {
        "logistic": lambda: (rng.random(eta.size) < 1.0 / (1.0 + np.exp(-eta))).astype(float),
        "poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
        "gamma": lambda: rng.gamma(2.0, np.exp(eta) / 2.0),
        "student_t": lambda: eta + rng.standard_t(4, eta.size),
        "softmax": lambda: rng.integers(0, 3, eta.size).astype(float),
        "gaussian": lambda: eta + rng.standard_normal(eta.size),
    }[family]()


MEMBERS = {
    "logistic": {},
    "poisson": {},
    "gamma": {"shape": 2.0},
    "student_t": {"nu": 4.0, "scale": 1.0},
    "softmax": {"classes": 3},
    "gaussian": {"sigma": 1.0},
}


def model_of(family):
    rng = np.random.default_rng(4)
    X = np.column_stack([np.ones(200), 0.5 * rng.standard_normal(200)])
    return tb.models.build(family, tb.Dataset.from_arrays(X, responses(family, X @ [0.2, 0.4], rng)), PRIOR, **MEMBERS[family])


SAMPLERS = {
    "exact-minibatch": (ExactMinibatch(), tuple(MEMBERS)),
    "order 3": (ExactMinibatch(order=3), ("logistic", "poisson", "gamma")),
    "zigzag": (ZigZag(), ("logistic", "poisson", "gamma", "softmax")),
    "confidence": (Confidence(), tuple(MEMBERS)),
    "confidence, uniform": (Confidence(rows="uniform"), ("logistic", "poisson", "gamma")),
    "mode-jumping": (ModeJumping(), tuple(MEMBERS)),
    "hmc-ecs": (HMCECS(subsample=20), tuple(MEMBERS)),
    "hmc-ecs, weighted": (HMCECS(subsample=20, rows="weighted"), ("logistic", "poisson")),
    "sgld": (SGLD(subsample=20, step=0.1), tuple(MEMBERS)),
    "sgld, weighted": (SGLD(subsample=20, step=0.1, rows="weighted"), ("logistic", "gamma")),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_targets_of_all_families_have_one_type(name):
    sampler, families = SAMPLERS[name]
    kinds = set()
    for family in families:
        model = model_of(family)
        proxy = sampler.setup(model, tb.find_mode(model, progress=False), 1, False).target().proxy
        kinds.add(typeof(proxy))
    assert len(kinds) == 1


def test_weighted_and_uniform_rows_are_one_type():
    assert typeof(scheme_of(UniformRows(3))) == typeof(scheme_of(WeightedRows(N, table(), 0.1)))
    assert typeof(bound_of(Zero())) == typeof(bound_of(given()))


@pytest.mark.parametrize("sampler", [ExactMinibatch(), ZigZag(), HMCECS(subsample=12, blocks=3), SGLD(subsample=6, step=0.1)])
def test_partitions_have_the_type_of_rows_in_memory(sampler, small):
    X, y = logistic_arrays(60)
    whole = pa.table({"y": y, "x1": X[:, 1]})
    parts = Partitions.open([whole.slice(0, 40), whole.slice(40, 20)], "y ~ x1", prior=PRIOR)
    here = sampler.setup(small.model, small.mode, 1, False).target()
    setup = sampler.setup(parts.model, parts.find_mode(progress=False), 1, False)
    there = open_streams(setup, {"warmup": 5, "draws": 5, "thin": 1, "seed": 1, "chains": 1}).target(0)
    assert typeof(here) == typeof(there)
