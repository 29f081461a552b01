"""Tasks on threads of this process or on workers of a Dask cluster; results come back one by one as they are done."""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from tallbayes.errors import OptionError, TallbayesError
from tallbayes.progress import Progress

RETRIES = 2  # of a task that failed for another reason than its input; the death of a worker is retried by Dask itself


class TaskFailure:
    """An error that will not go away by trying again, as a result: it is raised where the results are gathered."""

    def __init__(self, error: TallbayesError) -> None:
        self.error = error


class WorkerLost(TallbayesError, RuntimeError):
    """A task ended several workers, or its result could not be computed on the cluster."""


def connect(client: Any) -> Any:
    """A `dask.distributed.Client`: itself, or one for the address of a scheduler; None stays None.

    >>> connect(3)
    Traceback (most recent call last):
    ...
    tallbayes.errors.OptionError: client must be a dask.distributed.Client, the address of a scheduler, or None; got 3.
    """
    if client is None:
        return None
    try:
        from distributed import Client
    except ImportError:
        raise OptionError(
            "client= needs dask.distributed, which is not installed; pip install 'tallbayes[dask]', or leave client out to use "
            "the threads of this process."
        ) from None
    if isinstance(client, Client):
        return client
    if isinstance(client, str):
        try:
            return Client(client, timeout="10s")
        except (OSError, ValueError) as error:
            raise OptionError(f"no Dask scheduler answers at {client!r} ({error}); start one with `dask scheduler`.") from error
    raise OptionError(f"client must be a dask.distributed.Client, the address of a scheduler, or None; got {client!r}.")


def run(
    task: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    client: Any = None,
    *,
    label: str = "shards",
    progress: bool = False,
    workers: int | None = None,
) -> Iterator[tuple[int, Any]]:
    """Number and result of `task(*arguments[k])` for every k, as they are done.

    Without a client `workers` threads run them. With one, arguments travel with their task, so that the death of a worker
    loses none of them. A `TallbayesError` in a task ends the whole run and names the task.
    """
    with Progress(label, len(arguments), progress) as bar:
        for number, result in _local(task, arguments, workers) if client is None else _remote(task, arguments, client, label):
            if isinstance(result, TaskFailure):
                noun = "partition" if label == "partitions" else "shard"
                raise type(result.error)(f"{noun} {number}: {result.error}" if len(arguments) > 1 else str(result.error))
            bar.advance(1, f"{bar.done + 1} of {len(arguments)} {label}")
            yield number, result


def gather(task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], client: Any = None, **options: Any) -> list[Any]:
    """All results of `run`, in order."""
    out: list[Any] = [None] * len(arguments)
    for number, result in run(task, arguments, client, **options):
        out[number] = result
    return out


def return_failure(task: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a task; errors about its input are returned, not raised, so that no cluster tries them again.

    They travel without their traceback, whose frames would keep the rows of the task in memory.
    """
    try:
        return task(*arguments)
    except TallbayesError as error:
        error.__cause__ = error.__context__ = None
        return TaskFailure(error.with_traceback(None))


def _local(task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], workers: int | None) -> Iterator[tuple[int, Any]]:
    with ThreadPoolExecutor(max(1, min(len(arguments), workers or os.cpu_count() or 1))) as pool:
        futures = {pool.submit(return_failure, task, *a): k for k, a in enumerate(arguments)}
        try:
            for future in as_completed(futures):
                yield futures.pop(future), future.result()
        finally:
            for future in futures:
                future.cancel()


def _remote(
    task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], client: Any, label: str
) -> Iterator[tuple[int, Any]]:
    from distributed import KilledWorker
    from distributed import as_completed as completed

    stem = f"tallbayes-{label.replace(' ', '-')}-{uuid.uuid4().hex[:8]}"
    futures: dict[Any, int] = {}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # scattered rows would die with their worker
            for k, given in enumerate(arguments):
                futures[client.submit(return_failure, task, *given, key=f"{stem}-{k}", pure=False, retries=RETRIES)] = k
        for future in completed(list(futures)):
            number = futures.pop(future)
            error = future.exception()  # a result whose worker has died since is made again: its status would be "pending"
            if error is not None:
                if isinstance(error, KilledWorker):
                    raise WorkerLost(
                        f"shard {number} terminated several workers, most likely for lack of memory; use more shards, "
                        "dtype='float32', or workers with fewer threads each."
                    ) from error
                raise WorkerLost(f"shard {number} failed on the cluster {RETRIES + 1} times: {error!r}") from error
            result = future.result()
            future.release()
            yield number, result
    finally:
        client.cancel(list(futures))
