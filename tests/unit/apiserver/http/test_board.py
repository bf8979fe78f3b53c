"""What workers of one server tell each other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from minik8s_modules.api.errors import Timeout
from minik8s_modules.api.kinds import CONFIG_MAP
from minik8s_modules.apiserver.http import backend as backends
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.board import Board, Place


@pytest.fixture
def board() -> Iterator[Board]:
    """A board for three workers."""
    made = Board(3)
    yield made
    made.close()


def test_the_latest_of_all_is_told_also_of_one_that_has_ended(board: Board):
    one, other = Place(board, 0), Place(board, 1)
    for place, revision in ((one, 7), (other, 9), (one, 8), (other, 3)):
        place.tell(revision)
    assert (one.told(), other.told()) == (9, 9)
    assert Place(board, 1).told() == 9


def test_processes_share_the_board(board: Board):
    child = os.fork()
    if not child:
        Place(board, 1).tell(42)
        os._exit(0)
    os.waitpid(child, 0)
    assert Place(board, 0).told() == 42
    assert not list(Place(board, 0).others())  # it lives no longer


def test_a_worker_waits_for_what_another_has_told(board: Board, backend: Backend, monkeypatch: pytest.MonkeyPatch):
    here, other = replace(backend, place=Place(board, 0)), Place(board, 1)
    revision = backend.store.create(CONFIG_MAP.key("default", "a"), b'{"metadata": {"name": "a"}}')
    other.tell(revision)
    here.catch_up()
    assert backend.cache.revision >= revision
    monkeypatch.setattr(backends, "FRESH_S", 0.01)
    monkeypatch.setattr(type(backend.store), "revision", lambda _: revision + 1)
    other.tell(revision + 1)  # which the watch does not bring
    with pytest.raises(Timeout, match="try again"):
        here.catch_up()


def test_nobody_waits_for_a_store_that_was_replaced(board: Board, backend: Backend, monkeypatch: pytest.MonkeyPatch):
    here = replace(backend, place=Place(board, 0))
    Place(board, 1).tell(10**9)
    monkeypatch.setattr(backends, "FRESH_S", 0.01)
    here.catch_up()
    assert Place(board, 0).told() == 0


def test_who_has_ended_is_not_asked_whosever_his_process_number_is(board: Board, monkeypatch: pytest.MonkeyPatch):
    place = Place(board, 0)
    board.processes[1] = os.getppid()
    assert [number for number, _ in place.others()] == [1]
    board.leave(1, os.getpid())  # a successor has the place already
    assert [number for number, _ in place.others()] == [1]
    board.leave(1, os.getppid())
    assert not list(place.others())
    board.processes[1] = os.getppid()

    def refused(_process: int, _signal: int) -> None:
        raise PermissionError  # what kill() says of another user's

    monkeypatch.setattr(os, "kill", refused)
    assert not list(place.others())


def test_a_worker_that_takes_connections_is_told_from_one_that_does_not_yet_or_no_more(board: Board):
    here, other = Place(board, 0), Place(board, 1)
    assert (here.begun(), here.serves(1)) == (0, False)
    here.begin()
    other.begin()
    assert (here.begun(), here.serves(1)) == (2, True)
    other.end()
    assert (here.begun(), here.serves(1)) == (2, False)
    Place(board, 1).begin()
    board.leave(1, os.getpid())
    assert (here.begun(), here.serves(1)) == (2, False)
    board.processes[1] = os.getppid()  # the successor loads
    assert not here.serves(1)
