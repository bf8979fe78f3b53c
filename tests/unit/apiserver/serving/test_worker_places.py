"""The places of workers: each has its own, and one that finds none ends without the server."""

from __future__ import annotations

import pytest

from minik8s_modules.apiserver.http.settings import MOST_WORKERS
from minik8s_modules.apiserver.serving import server
from minik8s_modules.apiserver.serving.server import ApiWorker, free_number


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
