"""The places of workers: each has its own, and one that finds none ends without the server; who looks after them."""

from __future__ import annotations

import queue
import signal

import pytest
from gunicorn.arbiter import Arbiter

from minik8s_modules.apiserver.http.settings import MOST_WORKERS
from minik8s_modules.apiserver.serving import server
from minik8s_modules.apiserver.serving.server import LOOK_S, ApiServer, ApiWorker, CalmArbiter, free_number


def test_a_worker_gets_the_lowest_place_that_is_free():
    assert [free_number(set()), free_number({0, 1, 3})] == [0, 2]
    assert free_number(range(3 * MOST_WORKERS)) is not None  # two SIGHUPs while the first workers still answer


def test_without_a_place_there_is_no_error_that_would_end_the_server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "_PLACES", 2)
    assert free_number({0, 1, None}) is None
    worker = ApiWorker.__new__(ApiWorker)
    worker.number = None
    with pytest.raises(SystemExit) as ended:
        worker.init_process()
    assert ended.value.code == 0  # any other one the arbiter may take for a program that cannot start


def test_the_arbiter_looks_at_its_workers_every_five_seconds_and_hears_signals_at_once(
    monkeypatch: pytest.MonkeyPatch,
):
    waited_s: list[float] = []

    class Queue(queue.SimpleQueue[int]):
        def get(self, block: bool = True, timeout: float | None = None) -> int:  # noqa: FBT001, FBT002
            waited_s.append(timeout or 0.0)
            return super().get(block, 0.0)

    def looks(arbiter: CalmArbiter) -> None:
        arbiter.SIG_QUEUE = Queue()
        arbiter.SIG_QUEUE.put(signal.SIGCHLD)
        assert arbiter.wait_for_signals(timeout=1.0) == [signal.SIGCHLD]
        assert arbiter.wait_for_signals(timeout=1.0) == []

    monkeypatch.setattr(Arbiter, "__init__", lambda *_: None)
    monkeypatch.setattr(Arbiter, "run", looks)
    ApiServer.run(ApiServer.__new__(ApiServer))
    assert waited_s == [LOOK_S, LOOK_S]
