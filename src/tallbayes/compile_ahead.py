"""Compile the loop of a sampler in a second process, while this one looks for the mode.

Compiling is most of what a first call waits for, half of it for one function, `contract.advance`, which is needed last. Numba compiles
under a lock, so that threads do not help. The second process is given a small sample of the rows, weighted up to all of them. It
prepares the sampler on them, interpreted, only to learn the types; names the signature that it is going to compile; and leaves the code
in the cache on disk. This process takes it from there, or waits for it if it is under way. Whatever goes wrong there, this process
compiles as if it were alone. Draws are the same: the code is.

It is started when the cache first lacks something, if two cores are idle, and it ends with the preparation of the run. The environment
variable TALLBAYES_COMPILE_AHEAD=0 switches it off.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes import models, samplers
from tallbayes.compile import AWAITED, interpreted
from tallbayes.contract import Sampler, advance
from tallbayes.data.split import take, to_power
from tallbayes.errors import ModelError
from tallbayes.machine import available_cores, idle_cores
from tallbayes.mode.search import mode_at, start
from tallbayes.model import Model
from tallbayes.moves import nuts
from tallbayes.pointers import rehearse
from tallbayes.run.chain import Chain
from tallbayes.samplers import ExactMinibatch, FullData, SurrogateTransition
from tallbayes.streams import Stream, sequence

VARIABLE = "TALLBAYES_COMPILE_AHEAD"
ROWS = 200  # of the sample; more where parameters are many
PATIENCE = 60.0  # seconds to wait for code that is under way, many times what it takes
IDLE = 1.5  # cores that nobody uses, at least: a busy machine has no time for a second process
FEW = 2000  # rows below which "auto" takes NUTS

COMMAND = "import gc, sys; gc.disable(); sys.path[:] = {path!r}; from tallbayes.compile_ahead import main; main()"


class Helper:
    """The second process for a run, and what it said. It is started when the cache first lacks something."""

    def __init__(self, model: Model, sampler: Sampler | None) -> None:
        self.model, self.sampler = model, sampler
        self.tried = False
        self.process: subprocess.Popen[bytes] | None = None
        self.announced = b""
        self.done = threading.Event()

    def await_code(self, function: Any, signature: Any) -> bool:
        """The cache lacks code: wait for it if it is under way there; True if it may be in the cache now."""
        if not self.tried:
            self.tried = True
            if function is not advance.py_func and idle_cores() >= IDLE:
                with suppress(Exception):  # a model that cannot be sent, no memory for a process
                    self.start(_request(self.model, self.sampler))
        if function is not advance.py_func or self.process is None:
            return False
        if not self.announced:
            self.close()  # not far enough: this process is as quick
            return False
        if not self._coming(signature):
            return False
        with suppress(Exception):  # needed after the wait, and there is nothing else to do
            _ = self.model.data.fingerprint
            import arviz_stats  # noqa: F401
        self.done.wait(PATIENCE)
        return True

    def _coming(self, signature: Any) -> bool:
        try:
            return bool(pickle.loads(self.announced) == signature)
        except Exception:  # nothing that it says may end this process
            return False

    def start(self, request: bytes) -> None:
        """Start the process."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND.format(path=[str(Path(p).absolute()) for p in sys.path])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, VARIABLE: "0"},
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        threading.Thread(target=self._talk, args=(self.process, request), daemon=True).start()

    def _talk(self, process: Any, request: bytes) -> None:
        """Send the request, and note what comes back until the process ends; its input stays open for as long as this one lives."""
        with suppress(OSError, ValueError):
            process.stdin.write(request)
            process.stdin.flush()
            self.announced = bytes.fromhex(process.stdout.readline().decode())
            process.stdout.read()
        self.done.set()

    def close(self) -> None:
        """End the process, if there is one."""
        process, self.process, self.tried = self.process, None, True
        if process is None:
            return
        with suppress(OSError):
            process.kill()
        process.wait()
        self.done.wait(5.0)  # for the thread to see it
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError, ValueError):
                pipe.close()  # type: ignore[union-attr]


_helpers: list[Helper] = []  # at most one
_guard = threading.Lock()


@contextmanager
def compiling_ahead(model: Model, sampler: Sampler | None, cores: int | None) -> Iterator[None]:
    """Compile the loop of a sampler for a model in a second process, if that helps; None is "auto". It ends with the block."""
    helper = Helper(model, sampler)
    with _guard:
        if not _helpers and _possible(cores) and not model.grouped and model.partitions is None:
            _helpers.append(helper)
            AWAITED.append(helper.await_code)
    try:
        yield
    finally:
        _end(helper)


def finish() -> None:
    """End the second process, if there is one."""
    for helper in [*_helpers]:
        _end(helper)


def _end(helper: Helper) -> None:
    with _guard:
        if helper in _helpers:
            _helpers.remove(helper)
            AWAITED.remove(helper.await_code)
    helper.close()


def _possible(cores: int | None) -> bool:
    """Whether there is a second core, in a process that may start others."""
    return (
        os.environ.get(VARIABLE, "1") != "0"
        and min(available_cores(), cores or 2) > 1
        and bool(advance.place())
        and multiprocessing.parent_process() is None  # workers of a pool have the other cores
        and Path(sys.executable or "").stem.lower().startswith("python")  # not an application with Python inside
        and not getattr(sys, "frozen", False)
    )


def _request(model: Model, sampler: Sampler | None) -> bytes:
    """What the second process is told: a sample of the rows and how to build the model over them."""
    n = model.data.n
    count = min(n, max(ROWS, 2 * model.dim))
    index = np.linspace(0, n - 1, count).astype(np.int64) if model.exchangeable else np.arange(count)
    return pickle.dumps(
        {
            "place": advance.place(),
            "data": to_power(take(model.data, index), n / count),
            "n": n,
            "model": model.describe(),
            "default_prior": model.default_prior,
            "sampler": None if sampler is None else sampler.as_dict(),
        }
    )


def main() -> None:
    """The second process: read a request, name the signature, compile."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asked decides when to end
    request = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        rehearse()
        if request["place"] == advance.place():  # otherwise the other process would not find it
            chain = _rehearsed(request)

            def announce(function: Any, signature: Any) -> bool:
                if function is advance.py_func:
                    print(pickle.dumps(signature).hex(), file=out, flush=True)
                return False

            AWAITED.append(announce)
            chain.compile()
    finally:
        out.flush()
        os._exit(0)  # without waiting for the thread


def _end_with_parent() -> None:
    """End this process when the one that started it is gone."""
    with suppress(OSError):
        while os.read(0, 1):
            pass
    os._exit(1)


def _rehearsed(request: dict[str, Any]) -> Chain:
    """A chain of the sampler that is likely, prepared on the sample of the rows without compiling anything."""
    described = request["model"]
    with interpreted(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        prior = models.recorded_prior(described, request["default_prior"])
        model = models.build(described["family"], request["data"], prior, **described["options"])
        mode = mode_at(model, start(model))
        if request["sampler"] is not None:
            likely = [samplers.from_dict(request["sampler"])]
        elif model.unknown_scales:
            likely = [SurrogateTransition()]
        else:
            likely = [ExactMinibatch(), FullData(nuts())][request["n"] < FEW :]
        for sampler in likely:
            with suppress(ModelError):
                setup = sampler.setup(model, mode, 0, False)
                return Chain(0, sampler, setup, sequence(0, Stream.AUTO), mode.reference, 1, 1)
    raise ModelError("no sampler serves this model")
