"""Pods made and deleted in waves leave nothing behind: no container, address, process, open file or memory.

``MINIK8S_WAVES`` and ``MINIK8S_WAVE_PODS`` say how many (2 of 20; ``make test-long``: 20 of 50, which is 1,000 pods).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.reconcile.conftest import Cluster, running

WAVES = int(os.environ.get("MINIK8S_WAVES", "2"))
PODS = int(os.environ.get("MINIK8S_WAVE_PODS", "20"))
PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster of its own, whose memory and files nobody else has grown."""
    with running() as made:
        yield made


class Footprint(NamedTuple):
    """What the daemons of a cluster hold: processes of theirs, open files, resident memory."""

    processes: int
    files: int
    memory_kb: int


def _children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "--parent", str(pid)], capture_output=True, text=True, check=False)
    own = [int(line) for line in found.stdout.split()]
    return [each for one in own for each in (one, *_children(one))]


def _footprint(cluster: Cluster) -> Footprint:
    roots = [daemon.process.pid for daemon in cluster.daemons.values() if daemon.process is not None]
    roots.append(cluster.server.pid)
    everything = [one for root in roots for one in (root, *_children(root))]
    files = memory = 0
    for one in everything:
        try:
            files += len(list(Path(f"/proc/{one}/fd").iterdir()))
            memory += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * 4
        except FileNotFoundError:
            continue  # it has just ended
    return Footprint(len(everything), files, memory)


def _of_node(cluster: Cluster) -> list[str]:
    argv = ["docker", "ps", "-aq", "--filter", f"label=minik8s.io/node={cluster.node.name}"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()


def _wave(cluster: Cluster, number: int) -> None:
    names = [f"wave-{number}-{each}" for each in range(PODS)]
    for name in names:
        cluster.create(name, terminationGracePeriodSeconds=0)
    cluster.until(lambda: all(cluster.ready(name) for name in names), PATIENCE_S)
    for name in names:
        cluster.delete(name, 0)
    cluster.until(lambda: all(cluster.gone(name) for name in names), PATIENCE_S)


def _nothing_left(cluster: Cluster) -> bool:
    state = Path(cluster.node.state_dir) / "pods"
    folders = list(state.iterdir()) if state.exists() else []
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    return not (_of_node(cluster) or cluster.addresses() or folders or f"master {cluster.node.bridge}" in links)


def _settled(cluster: Cluster, before: Footprint) -> bool:
    after = _footprint(cluster)
    return after.processes <= before.processes + 2 and after.files <= before.files + 40


def test_waves_of_pods_leave_nothing_behind(cluster):
    _wave(cluster, 0)  # buffers and rings grow to the size of a wave once
    cluster.until(lambda: _nothing_left(cluster), PATIENCE_S)
    before = _footprint(cluster)
    for number in range(1, WAVES):
        _wave(cluster, number)
        print(f"wave {number}: {_footprint(cluster)}")
    cluster.until(lambda: _nothing_left(cluster), PATIENCE_S)
    cluster.until(lambda: _settled(cluster, before), 120)
    after = _footprint(cluster)
    print(f"{WAVES} waves of {PODS}: {before} -> {after}")
    # however many pods: past changes in the API server (16 MB a resource), an hour's Events, tables of the daemons
    assert after.memory_kb - before.memory_kb < 75_000, (before, after)
