"""A server of one worker: a shell holds its socket, starts it again, and ends with it where it must."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from minik8s_modules.apiserver.serving import alone
from tests.integration.apiserver.test_new_configuration import NAMESPACE, asking, configure, workers
from tests.support.apiserver import ApiServerProcess, own_server
from tests.support.etcd import free_port
from tests.support.waiting import until

HANGING = """
import sys
from minik8s_modules.apiserver import main
from minik8s_modules.apiserver.serving import server
server.HUNG_S, server.NOTIFY_S = 30, 600
sys.exit(main.main())
"""
FAILING = """
import os, signal, sys
from minik8s_modules.apiserver import main
from minik8s_modules.apiserver.intake import intake
turn = intake.Intake.turn
def fail(self):
    turn(self)
    if os.path.exists(sys.argv[2] + ".fail"):
        os.unlink(sys.argv[2] + ".fail")
        raise RuntimeError("a turn failed")
intake.Intake.turn = fail
sys.exit(main.main())
"""
BOTH_AT_ONCE = """
import os, signal, sys
from minik8s_modules.apiserver import main
from minik8s_modules.apiserver.serving import server
look = server.ApiServer.has_new_settings
def end_during(self):
    os.kill(os.getpid(), signal.SIGTERM)
    return look(self)
server.ApiServer.has_new_settings = end_during
sys.exit(main.main())
"""
ORPHANED = """
import os, signal, sys, time
from minik8s_modules.apiserver import main
from minik8s_modules.apiserver.serving import server
if "MINIK8S_LISTENERS" in os.environ:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(0.5)
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
STOPS, OF_A_START_S = 20, 2.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServerProcess]:
    with own_server(tmp_path) as found:
        yield found


def worker_of(server: ApiServerProcess) -> int:
    (found,) = workers(server)
    return found


def write(server: ApiServerProcess, **changes: Any) -> None:
    """Change keys of the server's configuration, and tell nobody."""
    path = server.directory / "apiserver.yml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}), encoding="utf-8")


def with_program(server: ApiServerProcess, text: str) -> None:
    server.stop()
    server.program = ("-c", text)
    server.begin()


def is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


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


def test_a_worker_whose_shell_dies_before_it_serves_ends(server: ApiServerProcess):
    with_program(server, ORPHANED)
    assert ended_with(server) == -signal.SIGKILL
    until(lambda: is_free(server.port))


def test_a_server_that_is_told_to_end_at_any_moment_of_its_start_ends_well(server: ApiServerProcess):
    server.stop()
    for number in range(STOPS):
        server.begin()
        time.sleep(OF_A_START_S * number / STOPS)
        assert server.stop() in (0, -signal.SIGTERM)
    server.start()


def test_sigterm_is_not_lost_where_a_process_has_just_been_forked():
    for number in range(STOPS * 5):
        shell = subprocess.Popen([alone.SHELL, "-c", alone._PROGRAM, "name", "sleep", "30"])
        time.sleep(0.02 * number / (STOPS * 5))
        shell.terminate()
        assert shell.wait(10) in (0, -signal.SIGTERM)


def test_another_worker_takes_the_place_of_one_that_failed(server: ApiServerProcess):
    with_program(server, FAILING)
    server.wait_for("/readyz")
    before = worker_of(server)
    with asking(server) as asked:
        server.directory.joinpath("apiserver.yml.fail").touch()
        until(lambda: workers(server) - {before})
        seen = asked.good
        until(lambda: asked.good > seen + 10)
    assert not [each for each in asked.bad if "refused" in each.lower()]
    assert "RuntimeError: a turn failed" in server.log.read_text()


def test_sigterm_during_the_look_at_a_configuration_that_cannot_be_used_ends_the_server(server: ApiServerProcess):
    with_program(server, BOTH_AT_ONCE)
    server.wait_for("/readyz")
    before = worker_of(server)
    configure(server, port="no number")
    until(lambda: before not in workers(server))


def test_sighup_is_heard_below_nohup(server: ApiServerProcess):
    server.stop()
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        server.start()
    finally:
        signal.signal(signal.SIGHUP, former)
    before = worker_of(server)
    os.kill(server.pid, signal.SIGHUP)
    until(lambda: workers(server) and before not in workers(server))


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


@pytest.mark.parametrize("count", [1, 2])
def test_another_address_that_nobody_told_of_is_no_reason_to_serve_at_the_former(server: ApiServerProcess, count: int):
    write(server, port=free_port(), workers=count)
    os.kill(worker_of(server), signal.SIGKILL)
    assert ended_with(server) == 3


def test_a_worker_that_begins_where_several_are_wanted_makes_room_for_them(server: ApiServerProcess):
    write(server, workers=2)
    os.kill(worker_of(server), signal.SIGKILL)
    until(lambda: len(workers(server)) == 2)
    server.wait_for("/readyz")
    assert [child.children() for child in psutil.Process(server.pid).children()] == [[], []]
