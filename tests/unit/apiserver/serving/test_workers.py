"""Workers ask each other for their figures, and whether they are ready."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping

import pytest

from minik8s_modules.apiserver.http.board import Board, Place
from minik8s_modules.apiserver.serving import workers
from minik8s_modules.apiserver.serving.figures import of_all
from minik8s_modules.apiserver.serving.workers import FIGURES, READY, Workers, failure, readiness
from minik8s_modules.base.metrics import Registry
from tests.support.waiting import until


@pytest.fixture
def board() -> Iterator[Board]:
    """A board for three workers."""
    made = Board(3)
    yield made
    made.close()


def begun(board: Board, number: int, answers: Mapping[bytes, Callable[[], bytes]]) -> tuple[Place, Workers]:
    """Return a worker that takes connections and answers, and its place."""
    place = Place(board, number)
    found = Workers(place, answers)
    found.start()
    place.begin()
    return place, found


def ready(board: Board, number: int, why: str = "") -> tuple[Place, Workers]:
    """Return one that says that it is ready, or why not."""
    return begun(board, number, {READY: readiness({"ping": lambda: "", "watch-cache": lambda: why})})


def test_figures_come_from_all_workers_that_live(board: Board):
    found = []
    for number in range(3):
        metrics = Registry()
        metrics.counter("requests_total", "Requests.").inc(number + 1)
        found.append((*begun(board, number, {FIGURES: metrics.families}), metrics))
    lines = [f'requests_total{{worker="{number}"}} {number + 1}.0' for number in range(3)]
    until(lambda: set(lines) <= set(of_all(*found[1]).splitlines()))


def test_a_lone_worker_has_no_label():
    metrics = Registry()
    metrics.counter("requests_total", "Requests.").inc()
    assert "requests_total 1.0" in of_all(None, Workers(None, {}), metrics)


def test_answers_are_not_for_other_users_of_the_machine(board: Board, monkeypatch: pytest.MonkeyPatch):
    place, _ = begun(board, 0, {FIGURES: Registry().families})
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)  # as if the one who asks were another
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(60)
        asking.connect(place.socket.getsockname())
        assert asking.recv(1) == b""


def test_a_server_is_ready_once_all_expected_workers_are(board: Board):
    here, asking = ready(board, 0)
    assert failure(here, asking, 2) == "1 of 2 take connections yet"
    assert not failure(here, asking, 0)  # it has waited for long enough
    ready(board, 1)
    assert not failure(here, asking, 2)


def test_it_is_not_where_one_of_them_is_not_and_its_reason_is_told(board: Board):
    here, asking = ready(board, 0)
    other, _ = ready(board, 1, "not loaded from etcd yet")
    assert failure(here, asking, 2) == "worker 1 watch-cache: not loaded from etcd yet"
    other.end()  # it takes no connection any more
    assert not failure(here, asking, 2)


def test_one_that_hangs_is_told_and_one_that_has_ended_meanwhile_is_not(board: Board, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workers, "PATIENCE_S", 0.05)
    here, asking = ready(board, 0)
    Place(board, 1).begin()  # nobody answers at its socket
    assert failure(here, asking, 2) == "worker 1 does not answer"
    connect = socket.socket.connect

    def killed(connecting: socket.socket, name: str | bytes) -> None:
        connect(connecting, name)
        board.leave(1, os.getpid())

    monkeypatch.setattr(socket.socket, "connect", killed)
    assert not failure(here, asking, 2)


def test_one_whose_check_fails_by_an_error_answers_the_next_who_asks(board: Board):
    here, asking = ready(board, 0)
    failing = threading.Event()

    def check() -> str:
        if failing.is_set():
            raise ValueError
        return ""

    begun(board, 1, {READY: readiness({"watch-cache": check})})
    failing.set()
    assert failure(here, asking, 2) == "worker 1 does not answer"
    failing.clear()
    assert not failure(here, asking, 2)
