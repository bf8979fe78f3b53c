"""A configuration that changed is taken over after SIGHUP, by a new worker on the same socket: nobody is refused."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml

from tests.support.apiserver import ApiServerProcess, own_server
from tests.support.waiting import until

NAMESPACE = "/api/v1/namespaces/default"


class Asked:
    """What requests, each over a connection of its own, have come to."""

    def __init__(self) -> None:
        self.good = 0
        self.bad: list[str] = []


@contextmanager
def asking(server: ApiServerProcess) -> Iterator[Asked]:
    """Ask the server for a Namespace all the time."""
    asked, stop = Asked(), threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                answer = server.request("GET", NAMESPACE)
            except OSError as error:
                asked.bad.append(repr(error))
                continue
            if answer.code == 200:
                asked.good += 1
            else:
                asked.bad.append(f"{answer.code} {answer.body[:200]!r}")

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield asked
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def configure(server: ApiServerProcess, **changes: Any) -> None:
    """Change keys of the server's configuration, and tell it."""
    path = server.directory / "apiserver.yml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}), encoding="utf-8")
    os.kill(server.pid, signal.SIGHUP)


def workers(server: ApiServerProcess) -> set[int]:
    return {child.pid for child in psutil.Process(server.pid).children()}


def test_nobody_is_refused_while_a_new_configuration_is_taken_over(tmp_path: Path):
    with own_server(tmp_path) as server:
        before, audit = workers(server), tmp_path / "other-audit.log"
        with asking(server) as asked:
            until(lambda: asked.good > 10)
            configure(server, audit={"path": str(audit)})
            until(lambda: len(workers(server)) == 1 and not workers(server) & before)
            until(lambda: audit.exists() and NAMESPACE in audit.read_text())
        assert asked.bad == []
        server.wait_for("/readyz")


def test_a_configuration_that_cannot_be_used_is_told_and_the_former_one_stays(tmp_path: Path):
    with own_server(tmp_path) as server:
        configure(server, port="no number")
        until(lambda: "the new configuration is not used; the former one stays" in server.log.read_text())
        assert "port must be an integer" in server.log.read_text()
        assert server.request("GET", NAMESPACE).code == 200
