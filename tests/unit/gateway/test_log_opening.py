"""Which of Docker's logs is handed over for a request: of a container that has ended there is nothing to follow."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import pytest

from minik8s_modules.gateway.streams.dockerd import Dockerd, Opened
from minik8s_modules.gateway.streams.opening import of_log
from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.streams.requests import StreamRequest, parse_line

OPTIONS = "namespace=default&pod=web&container=app&id=c1&follow=true&tailLines=5"
LINE = f"GET /nodes/n1/pods/u1/log?{OPTIONS} HTTP/1.1"


class FakeDocker:
    """Docker with one container in a state."""

    def __init__(self, state: str, *, tty: bool = False) -> None:
        self._state, self._tty = state, tty
        self.asked: list[dict[str, str]] = []

    async def call(self, method: str, path: str, query: Any = None, body: Any = None) -> Any:
        """Return the container's inspection."""
        del query, body
        assert (method, path) == ("GET", "/containers/c1/json")
        marks = {
            labels.NODE: "n1", labels.POD_UID: "u1", labels.POD_NAMESPACE: "default", labels.POD_NAME: "web",
        }  # fmt: skip
        state = {"Status": self._state, "Running": self._state == "running"}
        return {"Id": "c1", "Config": {"Tty": self._tty, "Labels": marks}, "State": state}

    async def stream(self, method: str, path: str, query: Any = None, body: Any = None) -> Opened:
        """Note what is asked for."""
        del body
        assert (method, path) == ("GET", "/containers/c1/logs")
        self.asked.append(dict(query))
        return Opened(socket.socket(socket.AF_UNIX), b"")


def opened(docker: FakeDocker, request: StreamRequest) -> str:
    """Return how the log is framed that is handed over."""
    opening = asyncio.run(of_log(cast("Dockerd", docker), request))
    for file in opening.first.files:
        file.close()
    return str(opening.first.message["frames"])


@pytest.mark.parametrize("state", ["exited", "dead"])
def test_the_log_of_a_container_that_has_ended_is_read_once_and_without_timestamps(state: str) -> None:
    docker = FakeDocker(state)
    assert opened(docker, parse_line(LINE)) == "multiplexed"
    assert docker.asked == [{"stdout": "1", "stderr": "1", "tail": "5"}]


@pytest.mark.parametrize("state", ["running", "paused", "created", "restarting"])
def test_the_log_of_any_other_container_is_followed(state: str) -> None:
    docker = FakeDocker(state)
    assert opened(docker, parse_line(LINE)) == "stamped"
    assert docker.asked == [{"stdout": "1", "stderr": "1", "timestamps": "1", "tail": "1"}]


@pytest.mark.parametrize(("state", "follows"), [("running", True), ("exited", False)])
def test_so_is_that_of_a_terminal(state: str, follows: bool) -> None:  # noqa: FBT001 - a parameter of the test
    docker = FakeDocker(state, tty=True)
    assert opened(docker, parse_line(LINE)) == "plain"
    assert ("follow" in docker.asked[0]) is follows
