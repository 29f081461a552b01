"""Compiling in a second process: it compiles what the run needs, and nothing that it does can harm the run."""

import json
import os
import pickle
import subprocess
import sys
import time

import numba
import numpy as np
import psutil
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes import compile_ahead, models, samplers
from tallbayes.compile import AWAITED, interpreted
from tallbayes.compile_ahead import Helper, _rehearsed, _request, compiling_ahead, finish
from tallbayes.engine import passes
from tallbayes.run.chain import Chain
from tallbayes.samplers import advance

PRIOR = tb.priors.normal(2.0)
SIGNATURE = (numba.float64, numba.int64)
ELSEWHERE = sorted(name for name, kind in samplers.SAMPLERS.items() if not (kind().needs_groups or kind().needs_unknown_scales))


def types_of(chain):
    return numba.typeof((chain.target, chain.options, chain.state))


def prepared(model, sampler):
    """A chain as a run makes it."""
    with interpreted(), np.errstate(all="ignore"):
        mode = tb.find_mode(model, progress=False)
        setup = sampler.setup(model, mode, 1, False)
        return Chain(0, sampler, setup, np.random.SeedSequence(1), mode.reference, 10, 1)


def rehearsed(model, sampler):
    """A chain as the second process makes it."""
    return _rehearsed(pickle.loads(_request(model, sampler)))


@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.filterwarnings("ignore")
def test_a_rehearsal_has_the_types_of_the_run(name):
    X, y = logistic_arrays(60)
    model, sampler = models.logistic(tb.Dataset.from_arrays(X, y), PRIOR), samplers.resolve(name)
    assert types_of(rehearsed(model, sampler)) == types_of(prepared(model, sampler))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "family, options, name",
    [
        ("poisson", {}, "exact-minibatch"),
        ("gaussian", {}, "exact-minibatch"),
        ("gaussian", {"sigma": 1.0}, "nuts"),
        ("negbin", {}, "hmc"),
        ("softmax", {"classes": 3}, "exact-minibatch"),
        ("probit", {}, "exact-minibatch"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_rehearsal_has_the_types_of_the_run_for_other_families(family, options, name, dtype):
    X, y = logistic_arrays(400)
    y = y + {"gaussian": 0.1 * X[:, 1], "probit": 0.0}.get(family, np.arange(400) % 7 == 0)
    model = models.build(family, tb.Dataset.from_arrays(X, y, dtype=dtype), PRIOR, **options)
    sampler = samplers.resolve(name)
    assert types_of(rehearsed(model, sampler)) == types_of(prepared(model, sampler))


def test_the_sample_of_rows_has_the_weight_of_all():
    X, y = logistic_arrays(5000)
    request = pickle.loads(_request(models.logistic(tb.Dataset.from_arrays(X, y), PRIOR), None))
    assert request["data"].n == compile_ahead.ROWS
    assert request["data"].total_weight == pytest.approx(5000.0)


COLD = """
import json, os, sys
import numpy as np
import psutil
import tallbayes as tb
from tallbayes import compile_ahead
from tallbayes.compile_ahead import Helper, _request
from tallbayes.contract import advance

compile_ahead.IDLE = -1.0
rng = np.random.default_rng(0)
X = np.column_stack([np.ones(5000), rng.standard_normal(5000)])
y = (rng.random(5000) < 1 / (1 + np.exp(-X[:, 1]))).astype(float)
model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(2.0))
how = sys.argv[1]
if how == "before":
    helper = Helper(model, None)
    helper.start(_request(model, None))
    assert helper.done.wait(120)
    helper.close()
if how == "broken":
    compile_ahead.COMMAND = "raise SystemExit(1)"
fit = tb.sample(model, draws=200, warmup=50, chains=2, seed=1, progress=False)
hits, misses = (sum(c.values()) for c in (advance.stats.cache_hits, advance.stats.cache_misses))
print(json.dumps([hits, misses, len(psutil.Process().children()), fit.theta.tolist()]))
"""


def cold(how, folder, ahead):
    """Cache hits and misses of `advance`, processes left and draws of a run with a cache of its own."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "TALLBAYES_COMPILE_AHEAD": ahead}
    done = subprocess.run([sys.executable, "-c", COLD, how], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_second_process_leaves_what_the_run_needs(tmp_path):
    hits, misses, left, theta = cold("before", tmp_path, "0")
    assert (hits, misses, left) == (1, 0, 0)
    assert cold("alone", tmp_path, "1") == [1, 0, 0, theta]  # nothing is missing: no second process


@pytest.mark.slow
def test_draws_do_not_depend_on_the_second_process(tmp_path):
    alone = cold("alone", tmp_path / "alone", "0")
    assert alone[:3] == [0, 1, 0]
    assert cold("broken", tmp_path / "broken", "1") == alone
    hits, misses, left, theta = cold("helped", tmp_path / "helped", "1")
    assert (hits + misses, left, theta) == (1, 0, alone[3])


ANNOUNCED = f"import sys, time; sys.stdin.buffer.read(1); print({pickle.dumps(SIGNATURE).hex()!r}, flush=True); "
BROKEN = {
    "fails at once": ("raise SystemExit(1)", False),
    "says nothing": ("import time; time.sleep(1000)", False),
    "says what is no number": ("print('hello', flush=True)", False),
    "says what cannot be read": ("print('00ff', flush=True)", False),
    "compiles something else": (f"print({pickle.dumps(SIGNATURE[:1]).hex()!r}, flush=True)", False),
    "dies while it compiles": (ANNOUNCED + "raise SystemExit(1)", True),
    "never ends": (ANNOUNCED + "time.sleep(1000)", True),
}


@pytest.mark.parametrize("how", BROKEN)
def test_whatever_goes_wrong_the_run_compiles_itself(how, small, monkeypatch):
    """True means that the cache is asked once more; what is not there is compiled here."""
    command, announced = BROKEN[how]
    monkeypatch.setattr(compile_ahead, "COMMAND", command.replace("{", "{{").replace("}", "}}"))
    monkeypatch.setattr(compile_ahead, "PATIENCE", 0.2)
    monkeypatch.setattr(compile_ahead, "IDLE", -1.0)
    helper = Helper(small.model, None)
    assert not helper.await_code(passes._hessian.py_func, SIGNATURE)  # starts it
    process = helper.process
    assert process is not None
    if how != "says nothing":
        end = time.monotonic() + 30.0
        while not (helper.announced or helper.done.is_set()) and time.monotonic() < end:
            time.sleep(0.01)
    assert helper.await_code(advance.py_func, SIGNATURE) == announced
    helper.close()
    assert process.poll() is not None
    assert not helper.await_code(passes._hessian.py_func, SIGNATURE)  # it is not started again
    assert helper.process is None


def test_no_process_where_none_can_be_started(small, monkeypatch):
    def refuse(*arguments, **options):
        raise OSError("no memory")

    monkeypatch.setattr(compile_ahead, "IDLE", -1.0)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    helper = Helper(small.model, None)
    assert not helper.await_code(passes._hessian.py_func, SIGNATURE)
    assert not helper.await_code(advance.py_func, SIGNATURE)


@pytest.mark.parametrize(
    "variable, cores, available, waits",
    [("1", None, 2, 1), ("1", 4, 4, 1), ("0", None, 2, 0), ("1", 1, 2, 0), ("1", None, 1, 0)],
)
def test_when_a_second_process_is_thought_of(variable, cores, available, waits, small, monkeypatch):
    monkeypatch.setenv(compile_ahead.VARIABLE, variable)
    monkeypatch.setattr(compile_ahead, "available_cores", lambda: available)
    with compiling_ahead(small.model, None, cores):
        assert len(AWAITED) == waits
        with compiling_ahead(small.model, None, cores):  # another thread's: one is enough
            assert len(AWAITED) == waits
        assert len(AWAITED) == waits
        finish()
        assert AWAITED == []
    assert AWAITED == []


def test_none_is_started_on_a_busy_machine(small, monkeypatch):
    monkeypatch.setattr(compile_ahead, "idle_cores", lambda: 1.0)
    helper = Helper(small.model, None)
    helper.await_code(passes._hessian.py_func, SIGNATURE)
    assert helper.process is None


ORPHAN = """
import os, signal, sys, time
import numpy as np
import tallbayes as tb
from tallbayes import compile_ahead

compile_ahead.COMMAND = (
    "import sys; sys.path[:] = {path!r}; import time; import tallbayes.compile_ahead as it; "
    "it._rehearsed = lambda request: (print('00', file=sys.__stdout__, flush=True), time.sleep(1000)); it.main()"
)
model = tb.models.logistic(tb.Dataset.from_arrays(np.ones((4, 1)), [0, 1, 1, 0]), tb.priors.normal(2.0))
helper = compile_ahead.Helper(model, None)
helper.start(compile_ahead._request(model, None))
while not helper.announced:
    time.sleep(0.01)
print(helper.process.pid, flush=True)
os._exit(1)
"""


def test_it_ends_when_the_process_that_started_it_is_gone():
    done = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, timeout=120)
    number, end = int(done.stdout), time.monotonic() + 30.0
    while psutil.pid_exists(number) and psutil.Process(number).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end
        time.sleep(0.05)
