"""A server of one worker: a shell holds its socket, starts it again, and ends with it where it must."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.apiserver.test_new_configuration import NAMESPACE, asking, configure, workers
from tests.support.apiserver import ApiServerProcess, own_server
from tests.support.etcd import free_port
from tests.support.waiting import until

HANGING = """
import sys
from minik8s_modules.apiserver import main
from minik8s_modules.apiserver.serving import server
server.HUNG_S, server.NOTIFY_S = 10, 600
sys.exit(main.main())
"""
EARLY = """
import os, signal, sys
from pathlib import Path
from minik8s_modules.apiserver import main
from minik8s_modules.apiserver.serving import server
begin = server.CalmArbiter.run
def hear_early(arbiter):
    configuration = Path(sys.argv[-1])
    configuration.write_text(configuration.read_text().replace("workers: 2", "workers: 3"))
    os.kill(os.getpid(), signal.SIGHUP)
    begin(arbiter)
server.CalmArbiter.run = hear_early
sys.exit(main.main())
"""
OF_A_SHELL_MB = 2.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServerProcess]:
    with own_server(tmp_path) as found:
        yield found


def worker_of(server: ApiServerProcess) -> int:
    (found,) = workers(server)
    return found


def ended_with(server: ApiServerProcess) -> int:
    """Return the exit code of a server that ends by itself."""
    process = server._process
    assert process is not None
    return process.wait(60)


def test_beside_the_worker_there_is_no_second_interpreter(server: ApiServerProcess):
    whole = psutil.Process(server.pid)
    assert whole.memory_full_info().uss < OF_A_SHELL_MB * 2**20
    assert [child.children() for child in whole.children()] == [[]]


def test_nobody_is_refused_while_a_killed_worker_is_replaced(server: ApiServerProcess):
    before = worker_of(server)
    with asking(server) as asked:
        until(lambda: asked.good > 10)
        os.kill(before, signal.SIGKILL)
        until(lambda: workers(server) - {before})
        seen = asked.good
        until(lambda: asked.good > seen + 10)
    assert not [each for each in asked.bad if "refused" in each.lower()]


def test_a_worker_that_hangs_is_replaced(tmp_path: Path):
    with own_server(tmp_path) as server:
        server.stop()
        server.program = ("-c", HANGING)  # it never says that it goes on
        server.begin()
        server.wait_for("/livez")
        before = worker_of(server)
        until(lambda: before not in workers(server))
        server.wait_for("/livez")


def test_a_worker_ends_with_its_shell(server: ApiServerProcess):
    found = psutil.Process(worker_of(server))
    os.kill(server.pid, signal.SIGKILL)
    assert psutil.wait_procs([found], timeout=60)[1] == []


def test_a_server_that_is_told_to_end_before_it_serves_ends(server: ApiServerProcess):
    server.stop()
    server.begin()
    with contextlib.suppress(psutil.NoSuchProcess):
        until(lambda: psutil.Process(server.pid).name() == "sh")
    server.stop()
    server.start()


def test_a_second_worker_is_taken_over_as_any_other_setting(server: ApiServerProcess):
    with asking(server) as asked:
        until(lambda: asked.good > 10)
        configure(server, workers=2)
        until(lambda: len(workers(server)) == 2)
        seen = asked.good
        until(lambda: asked.good > seen + 10)
    assert asked.bad == []
    server.wait_for("/readyz")
    assert server.request("GET", NAMESPACE).code == 200


def test_a_reload_before_the_second_workers_arbiter_hears_it_ends_nothing_and_is_not_lost(tmp_path: Path):
    with own_server(tmp_path) as server:
        server.stop()
        server.program = ("-c", EARLY)
        server.begin()
        server.wait_for("/livez")
        configure(server, workers=2)
        until(lambda: len(workers(server)) == 3)
        assert server.request("GET", NAMESPACE).code == 200


def test_another_address_ends_the_server_for_whoever_starts_it(server: ApiServerProcess):
    configure(server, port=free_port())
    assert ended_with(server) == 3
