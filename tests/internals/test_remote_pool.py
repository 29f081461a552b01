"""Tasks on a cluster: what becomes of their results."""

import pytest

from tallbayes.remote import pool


class Lost:
    """A future that finished, and whose worker died before its result was taken: it is being made again."""

    status = "pending"

    def __init__(self, value, error=None):
        self.value, self.error = value, error

    def exception(self):
        self.status = "error" if self.error else "finished"
        return self.error

    def result(self):
        return self.value

    def release(self):
        self.status = "released"


class Cluster:
    def __init__(self, error=None):
        self.error, self.cancelled = error, []

    def submit(self, function, task, *given, **_):
        return Lost(function(task, *given), self.error)

    def cancel(self, futures):
        self.cancelled.extend(futures)


def test_a_result_that_is_made_again_is_waited_for(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(distributed, "as_completed", iter)
    found = dict(pool._remote(abs, [(-3,), (4,)], Cluster(), "numbers"))
    assert found == {0: 3, 1: 4}


def test_a_task_that_failed_on_every_worker_is_an_error(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(distributed, "as_completed", iter)
    with pytest.raises(pool.WorkerLost, match=r"failed on the cluster .* times: OSError"):
        list(pool._remote(abs, [(-3,)], Cluster(OSError("gone")), "numbers"))
