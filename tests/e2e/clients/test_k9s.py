"""k9s in a terminal (tmux): pods, describe, YAML, logs and the other kinds come to the screen."""

from __future__ import annotations

import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.clients.conftest import Running
from tests.support.clusters.installed import KUBECONFIG
from tests.support.gotools import tool_path

pytestmark = pytest.mark.skipif(
    not tool_path("k9s").exists() or shutil.which("tmux") is None,
    reason="k9s takes five minutes to build: tests/e2e/clients/look_at_k9s.sh --test builds it and runs this",
)


class Screen:
    """A program on a screen of 150 by 40 characters."""

    def __init__(self, command: list[str], home: Path) -> None:
        self._socket = f"k9s-{uuid.uuid4().hex[:8]}"
        environment = [f"HOME={home}", f"XDG_CONFIG_HOME={home}", "TERM=xterm-256color", f"KUBECONFIG={KUBECONFIG}"]
        self._tmux("new-session", "-d", "-x", "150", "-y", "40", "env", *environment, *command)

    def press(self, *keys: str) -> None:
        """Press keys by tmux's names."""
        self._tmux("send-keys", *keys)

    def open(self, view: str) -> None:
        """Go to a view as a person does: a colon, its name, Enter."""
        self.press(":")
        self._until(">")
        self._tmux("send-keys", "-l", view)
        self.press("Enter")

    def shows(self, *wanted: str) -> None:
        """Wait until all words are on the screen."""
        self._until(*wanted)

    def close(self) -> None:
        """End the program with its terminal."""
        self._tmux("kill-server")

    def _until(self, *wanted: str) -> None:
        deadline = time.monotonic() + 60
        while any(word not in (text := self._tmux("capture-pane", "-p")) for word in wanted):
            assert time.monotonic() < deadline, f"{wanted} not in\n{text}"
            time.sleep(0.2)

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._socket, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def screen(running: Running, tmp_path: Path) -> Iterator[Screen]:
    log = ["--logFile", str(tmp_path / "k9s.log")]
    found = Screen([str(tool_path("k9s")), "-n", running.namespace, "-c", "pods", "--readonly", *log], tmp_path)
    yield found
    found.close()


def test_what_people_look_at(running: Running, screen: Screen):
    screen.shows("K8s Rev", running.pod, "Running", "1/1")
    screen.press("d")
    screen.shows("Container ID:")
    screen.press("Escape")
    screen.shows("RESTARTS")
    screen.press("y")
    screen.shows("apiVersion: v1", "kind: Pod")
    screen.press("Escape")
    screen.shows("RESTARTS")
    screen.press("l")
    screen.shows("Autoscroll", "tick")
    screen.press("Escape")
    for view, wanted in (("nodes", "node1"), ("ns", running.namespace), ("deploy", "UP-TO-DATE"), ("events", "REASON")):
        screen.open(view)
        screen.shows(wanted)
