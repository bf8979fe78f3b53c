"""The programs on a node are started, read and started again; here a shell stands for the node."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.base.clock import SystemClock
from minik8s_modules.reconcile.watching.watches import SCRIPT, Watches

WAIT_S = 60.0
LINE = "[LINK]Deleted 7: mk8s-1a2b3c4d@if6: <BROADCAST> mtu 1500"


class Node:
    """A way that keeps what it is given and says ``LINE`` each time; ``runs`` holds one line for each."""

    def __init__(self, folder: Path) -> None:
        self.runs, self.script = folder / "runs", folder / "script"
        way = folder / "way"
        way.write_text(f"#!/bin/sh\necho run >> {self.runs}\ncat > {self.script}\necho '{LINE}'\n")
        way.chmod(0o755)
        self.argv = [str(way)]
        self.alive = True
        self.told: queue.Queue[tuple[str, frozenset[str], str]] = queue.Queue()
        self.watches = Watches("mk8s0", lambda *change: self.told.put(change), lambda _: self.alive, SystemClock())

    def way(self, node: str = "n1") -> bool:
        """Tell the way to the node."""
        return self.watches.on_gateway({"op": "way", "node": node, "argv": self.argv}, ["n1"])


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.watches.stop()


def test_programs_that_end_are_started_again_and_what_they_say_is_told(node: Node):
    assert node.way()
    for _ in range(2):
        assert node.told.get(timeout=WAIT_S) == ("n1", frozenset({"network", "sandboxes"}), "mk8s-1a2b3c4d")
    assert node.script.read_text() == SCRIPT
    assert len(node.runs.read_text().splitlines()) >= 2


def test_a_way_told_again_starts_nothing_and_other_messages_are_not_taken(node: Node):
    node.way()
    node.told.get(timeout=WAIT_S)
    before = node.watches._watches["n1"]
    assert node.way()
    assert node.watches._watches["n1"] is before
    assert node.way("elsewhere")
    assert [*node.watches._watches] == ["n1"]
    assert not node.watches.on_gateway({"op": "alive", "node": "n1", "alive": True}, ["n1"])


def test_a_node_that_has_left_is_watched_no_more(node: Node):
    node.way()
    node.told.get(timeout=WAIT_S)
    thread = node.watches._watches["n1"]._thread
    node.watches.use([])
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_the_interpreter_becomes_the_programs():
    compile(SCRIPT, "script", "exec")
    assert "os.execv" in SCRIPT
    assert "ip -o monitor" in SCRIPT
    assert "nft monitor" in SCRIPT
