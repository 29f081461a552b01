"""Internals of `tallbayes.engine.verb_tables`: verbs are compiled when compiled code first asks for them, whatever happens meanwhile."""

import ctypes
import functools
import os
import sys
import threading
import time

import numba
import numpy as np
import pytest

import tallbayes as tb
from tallbayes import pointers
from tallbayes.engine import passes, verb_tables
from tallbayes.engine.outside import DOUBLE, RANGE_GRADIENT, RANGE_VALUE, ROW_VALUES, UNKNOWN
from tallbayes.engine.rows import outside_rows, range_value
from tallbayes.engine.verb_calls import FAILED, run_verb

THETA = np.array([0.3, -0.2])


@pytest.fixture
def compiled(monkeypatch):
    """Tables without addresses, as in a new process; the names of the verbs that are compiled from now on."""
    names = []

    def counted(function, signature, name, **options):
        names.append(name)
        time.sleep(0.05)
        return pointers.pointer(function, signature, name, **options)

    monkeypatch.setattr(verb_tables, "pointer", counted)
    monkeypatch.setattr(verb_tables, "verb_pointer", functools.cache(verb_tables.verb_pointer.__wrapped__))
    monkeypatch.setattr(verb_tables, "_TABLES", {})
    return names


def rows_of_model(dtype="float64"):
    X = np.column_stack([np.ones(40), np.linspace(-1.0, 1.0, 40)])
    return tb.models.logistic(tb.Dataset.from_arrays(X, np.arange(40) % 2, dtype=dtype)).rows


def addresses(kind="float64"):
    return verb_tables._TABLES[kind][:-1]


def expected_value():
    eta = THETA[0] + THETA[1] * np.linspace(-1.0, 1.0, 40)
    return np.sum((np.arange(40) % 2) * eta - np.logaddexp(0.0, eta))


def test_a_verb_is_compiled_when_it_is_first_called(compiled):
    rows = rows_of_model()
    assert not compiled and not addresses().any()
    for _ in range(2):
        assert passes.total_value(rows, THETA) == pytest.approx(expected_value(), rel=1e-13)
    assert compiled == ["range_value float64"]
    passes.total_gradient(rows_of_model(), THETA)
    assert compiled == ["range_value float64", "range_gradient float64"]
    assert [verb for verb in range(len(verb_tables.VERBS)) if addresses()[verb]] == [RANGE_VALUE, RANGE_GRADIENT]
    passes.total_value(rows_of_model("float32"), THETA)
    assert compiled[2:] == ["range_value float32"] and addresses("float32")[RANGE_VALUE] != addresses()[RANGE_VALUE]


def test_interpreted_verbs_compile_nothing(compiled):
    assert range_value(rows_of_model(), 0, 40, THETA) == pytest.approx(expected_value(), rel=1e-13)
    assert not compiled


def test_threads_that_ask_at_once_get_one_address(compiled):
    rows, start, results = rows_of_model(), threading.Barrier(3), []

    def run(kind):
        start.wait()
        results.append(passes._value(rows_of_model(kind), 0, 40, THETA))

    passes._value(rows, 0, 0, THETA)  # its own code is there
    passes._value(rows_of_model("float32"), 0, 0, THETA)
    compiled.clear()
    for table in verb_tables._TABLES.values():
        table[:-1] = 0
    verb_tables.verb_pointer.cache_clear()
    threads = [threading.Thread(target=run, args=(kind,)) for kind in ("float64", "float64", "float32")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(compiled) == ["range_value float32", "range_value float64"]
    assert results == pytest.approx([expected_value()] * 3, rel=1e-6)
    assert addresses()[RANGE_VALUE] == verb_tables.verb_pointer(RANGE_VALUE, "float64")


def wait_for_interrupt():
    for _ in range(1000):  # short: it is seen between two steps of Python
        time.sleep(0.01)
    raise AssertionError("the interrupt is lost")


def test_an_interrupt_while_a_verb_is_compiled_comes_when_it_is_done(compiled, monkeypatch):
    rows, original, failing = rows_of_model(), verb_tables.verb_pointer, [1, 2]

    def interrupted(*arguments):
        if failing:
            failing.pop()
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(verb_tables, "verb_pointer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        assert passes._value(rows, 0, 40, THETA) == pytest.approx(expected_value(), rel=1e-13)
        wait_for_interrupt()
    time.sleep(0.1)  # a second one would be an error here
    assert not failing and passes._value(rows, 0, 40, THETA) == pytest.approx(expected_value(), rel=1e-13)


@pytest.mark.skipif(os.name == "nt", reason="raises a signal in C")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_before_the_first_line_of_the_resolver_is_not_lost(compiled, monkeypatch):
    """A signal in compiled code is seen by the first step of Python that follows, which is that of the resolver."""
    rows, signal_now = rows_of_model(), getattr(ctypes.CDLL(None), "raise")
    signal_now.argtypes, signal_now.restype = [ctypes.c_int], ctypes.c_int
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: seen.append(lost.exc_type))

    @numba.njit(nogil=True)
    def value(rows, theta, number):
        if number > 0:
            signal_now(number)
        return range_value(rows, 0, 40, theta)

    value(rows, THETA, 0)
    addresses()[:] = 0
    with pytest.raises(KeyboardInterrupt):
        assert value(rows, THETA, 2) == pytest.approx(expected_value(), rel=1e-13)
        wait_for_interrupt()
    assert seen == [KeyboardInterrupt]
    assert addresses()[RANGE_VALUE] != 0


def test_a_verb_that_cannot_be_compiled_is_an_error_and_tried_again(compiled, monkeypatch):
    rows, original = rows_of_model(), verb_tables.verb_pointer

    def full(*arguments):
        raise OSError("no space left")

    for _ in range(2):
        monkeypatch.setattr(verb_tables, "verb_pointer", full)
        with pytest.raises(OSError, match="no space left"):
            passes.total_gradient(rows, THETA)
        monkeypatch.setattr(verb_tables, "verb_pointer", original)
        assert rows.answers[FAILED] == 0.0
    assert passes.total_gradient(rows, THETA)[0] == pytest.approx(expected_value(), rel=1e-13)


def values_alone(
    records, layout, p, verb, index, start, stop, theta, other, reference, order, factors, total, out, table
):  # a likelihood outside that knows one verb
    if verb != RANGE_VALUE:
        return UNKNOWN
    total[0] = float(stop - start)
    return 0


@pytest.fixture(scope="module")
def outside():
    address = pointers.pointer(values_alone, DOUBLE, None)
    return outside_rows(np.zeros((5, 8)), 1, np.zeros(0), address, 0)


def test_a_likelihood_outside_fills_its_table_itself(outside, compiled):
    assert passes.total_value(outside, THETA) == 5.0
    assert not compiled


@pytest.mark.parametrize("ask", [passes.total_gradient, lambda rows, theta: passes.values_at(rows, np.arange(3), theta)])
def test_a_verb_that_a_likelihood_outside_lacks_is_an_error(outside, ask):
    with pytest.raises(tb.ModelError, match="status 1"):
        ask(outside, THETA)
    assert passes.total_value(outside, THETA) == 5.0


def test_a_missing_verb_leaves_its_status_interpreted(outside):
    rows = outside._replace(answers=np.zeros(2))
    points = (THETA, THETA, THETA)
    run_verb(rows, ROW_VALUES, np.arange(3), 0, 0, points, 0, THETA, np.zeros(1), np.empty(3), np.empty((0, 0)))
    assert rows.answers[FAILED] == UNKNOWN
    assert np.isnan(range_value(rows, 0, 5, THETA))
