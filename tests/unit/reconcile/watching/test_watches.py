"""The programs on a node are started, read and started again; here a shell stands for the node."""

from __future__ import annotations

import queue
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.base.clock import SystemClock
from minik8s_modules.reconcile.watching.reading import NO_INOTIFYWAIT, Places
from minik8s_modules.reconcile.watching.watches import Watches, script

WAIT_S = 60.0
DIRS = {"state_dir": "/var/lib/minik8s", "run_dir": "/run/minik8s"}
SAID_OF = {"ip": "[LINK]"}
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
        self.lines: queue.Queue[tuple[str, frozenset[str], str]] = queue.Queue()
        self.watches = Watches(
            "mk8s0", "mk8s-vx0", lambda *change: self.lines.put(change), lambda _: self.alive, SystemClock()
        )

    def way(self, node: str = "n1") -> bool:
        """Tell the way to the node."""
        return self.watches.on_gateway({"op": "way", "node": node, "argv": self.argv, **DIRS}, ["n1"])


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.watches.stop()


def test_programs_that_end_are_started_again_and_what_they_say_is_told(node: Node):
    assert node.way()
    for _ in range(2):
        assert node.lines.get(timeout=WAIT_S) == ("n1", frozenset({"network", "sandboxes"}), "mk8s-1a2b3c4d")
    assert node.script.read_text() == script(Places(b"mk8s0", b"/var/lib/minik8s", b"/run/minik8s", b"mk8s-vx0"))
    assert len(node.runs.read_text().splitlines()) >= 2


def test_a_burst_is_told_once_and_every_link_that_is_gone(node: Node):
    other = LINE.replace("1a2b3c4d", "1a2b3c4e")
    lines = ["delete table ip minik8s_policies", *[LINE] * 100, other, "# new generation 1", *[LINE] * 100, ""]
    burst = node.script.with_name("burst")  # one write of cat's, since it is less than a pipe holds
    burst.write_text("\n".join(lines))
    Path(node.argv[0]).write_text(f"#!/bin/sh\ncat > {node.script}\ncat {burst}\nexec sleep 600\n")
    assert node.way()
    links = frozenset({"network", "sandboxes"})
    for told in ((frozenset({"policies"}), ""), (links, "mk8s-1a2b3c4d"), (links, "mk8s-1a2b3c4e")):
        assert node.lines.get(timeout=WAIT_S) == ("n1", *told)
    assert node.lines.empty()


def test_a_line_that_comes_in_pieces_is_one_line(node: Node):
    pieces = f"printf '{LINE[:20]}'\nsleep 0.2\necho '{LINE[20:]}'"
    Path(node.argv[0]).write_text(f"#!/bin/sh\ncat > {node.script}\n{pieces}\nexec sleep 600\n")
    assert node.way()
    assert node.lines.get(timeout=WAIT_S) == ("n1", frozenset({"network", "sandboxes"}), "mk8s-1a2b3c4d")
    assert node.lines.empty()


def test_a_transaction_that_comes_in_pieces_is_one_transaction(node: Node):
    added = 'add element bridge minik8s_sources own { "mk8s-1a2b3c4d" . 192.0.2.99 }'
    pieces = [added, "[LINK]13: veth51f7@if12: <UP> mtu 1500", "# new generation 8592 by process 4851 (nft)"]
    spoken = "\nsleep 0.2\n".join(f"echo '{piece}'" for piece in pieces)
    Path(node.argv[0]).write_text(f"#!/bin/sh\ncat > {node.script}\n{spoken}\nexec sleep 600\n")
    assert node.way()
    assert node.lines.get(timeout=WAIT_S) == ("n1", frozenset({"sandboxes"}), "")
    assert node.lines.empty()


def test_a_way_told_again_starts_nothing_and_other_messages_are_not_taken(node: Node):
    node.way()
    node.lines.get(timeout=WAIT_S)
    before = node.watches._watches["n1"]
    assert node.way()
    assert node.watches._watches["n1"] is before
    assert node.way("elsewhere")
    assert [*node.watches._watches] == ["n1"]
    assert not node.watches.on_gateway({"op": "alive", "node": "n1", "alive": True}, ["n1"])


def test_a_node_that_has_left_is_watched_no_more(node: Node):
    node.way()
    node.lines.get(timeout=WAIT_S)
    thread = node.watches._watches["n1"]._thread
    node.watches.use([])
    thread.join(WAIT_S)
    assert not thread.is_alive()


def said(folder: Path, *programs: str) -> list[str]:
    """Return what the programs say of a node whose folders are in ``folder``; each stand-in says its arguments.

    What ip says is about links, as its lines on others have to pass a filter.
    """
    stubs = folder / "bin"
    stubs.mkdir()
    for name in programs:
        (stubs / name).write_text(f'#!/bin/sh\nfor each; do echo "{SAID_OF.get(name, name)} $each"; done\n')
        (stubs / name).chmod(0o755)
    for name in ("timeout", "grep", "sed", "cat"):
        (stubs / name).symlink_to(shutil.which(name) or name)
    places = Places(b"mk8s0", str(folder / "state").encode(), str(folder / "run").encode(), b"mk8s-vx0")
    argv = [sys.executable, "-I", "-"]
    shown = subprocess.run(
        argv, input=script(places), env={"PATH": str(stubs)}, capture_output=True, text=True, check=True, timeout=WAIT_S
    )
    return shown.stdout.splitlines()


def test_folders_of_files_are_watched_and_none_that_pods_write_into(tmp_path: Path):
    volume = tmp_path / "state/pods/u/volumes/conf"
    for made in ("state/nginx/hosts", "state/pods/u/volumes/cache/x", "run/secrets/shop/key", "run/secrets/.meta/shop"):
        (tmp_path / made).mkdir(parents=True)
    (volume / "..1").mkdir(parents=True)
    (volume / "..data").symlink_to("..1")
    found = said(tmp_path, "ip", "nft", "findmnt", "inotifywait")
    assert {"[LINK] monitor", "[LINK] route", "nft monitor", "findmnt --poll"} <= {*found}
    watched = [line.partition(" ")[2] for line in found if line.startswith(f"inotifywait {tmp_path}")]
    folders = ("state/nginx/", "state/nginx/hosts/", "run/secrets/shop/key/")
    assert watched == [*(f"{tmp_path}/{one}" for one in folders), f"{volume}/..data/", f"{volume}/"]


def test_a_node_without_the_program_says_so(tmp_path: Path):
    (tmp_path / "state/dns").mkdir(parents=True)
    assert NO_INOTIFYWAIT.decode() in said(tmp_path, "ip", "nft", "findmnt")


def test_what_is_said_of_ordinary_neighbours_ends_on_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ours = [
        "[NEIGH]Deleted 192.0.2.7 dev mk8s-vx0 lladdr 02:00:00:00:00:01 NOARP PERMANENT ",
        "[NEIGH]10.244.1.0 dev mk8s-vx0 lladdr 02:00:00:00:00:09 REACHABLE ",
        "[NEIGH]fd00:10::7 dev mk8s0 FAILED ",
        "[NEIGH]Deleted fd00:10::7 dev mk8s0 FAILED ",
        "[NEIGH]fd00:10:244:1:: dev mk8s-vx0 FAILED ",
        "[NEIGH]Deleted fd00:10:244:1:: dev mk8s-vx0 FAILED ",
        "[NEIGH]10.244.1.0 dev mk8s-vx0 FAILED ",
        "[NEIGH]Deleted 10.244.1.0 dev mk8s-vx0 FAILED ",
    ]
    others = [
        "[NEIGH]10.244.0.7 dev mk8s0 lladdr 02:00:00:00:00:01 REACHABLE",
        "[NEIGH]192.0.2.1 dev eth0 FAILED",
        "[NEIGH]dev mk8s-1a2b3c4d lladdr 02:00:00:00:00:01 REACHABLE",
        "[NEIGH]Deleted fd00:20::7 dev mk8s0x lladdr 02:00:00:00:00:01 PERMANENT",
        "[NEIGH]Deleted ff02::1:ff00:5 dev mk8s-vx0 lladdr 33:33:ff:00:00:05 NOARP ",
        # a pod tries addresses that nobody has
        "[NEIGH]fd00:10:244:77::6 dev mk8s-vx0 FAILED ",
        "[NEIGH]fd00:10:244:77::5 dev mk8s-vx0 FAILED ",
        "[NEIGH]fd00:10::9 dev mk8s0 FAILED ",
        "[NEIGH]Deleted fd00:10:244:77::6 dev mk8s-vx0 FAILED ",
        "[NEIGH]Deleted fd00:10:244:77::5 dev mk8s-vx0 FAILED ",
        "[NEIGH]Deleted fd00:10::9 dev mk8s0 FAILED ",
    ]
    (tmp_path / "lines").write_text("\n".join([*others, *ours, *others]))
    said_of_them = f'$(case "$*" in *neigh*) cat {tmp_path}/lines;; esac)'
    monkeypatch.setitem(SAID_OF, "ip", f"\n{said_of_them}\n[LINK]")
    found = [line for line in said(tmp_path, "ip") if line.startswith("[NEIGH]")]
    assert found == ours * (len(found) // len(ours))
    assert found
