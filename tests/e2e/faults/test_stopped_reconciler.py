"""Only the live run changes a node: without it nothing does, with it every change has an event of the run."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from minik8s_modules.api.kinds import POD
from tests.support.clusters.installed import STATE, Installed
from tests.support.docker.docker_watch import DockerWatch, Seen

QUIET_S = 3.0
LINE = re.compile(r"(\S+) INFO \S+: item (\S+): (minik8s_\w+) changed (\S+)")
LATE_S = 30.0  # from an effect to the event that tells it: a pass of 2 s on a calm machine
EFFECTS = {"create", "start", "destroy"}  # what Docker does by itself (die) is no change of ours


class Told(NamedTuple):
    """An event of the run, as the reconciler's log has it."""

    at_s: float
    item: str
    module: str
    node: str


def changes_since(since_s: float) -> list[Told]:
    """Return the changes that the run's events have told since."""
    log = Path("/var/log/minik8s/minik8s-reconciler.log")
    argv = ["journalctl", "--no-pager", "--output=cat", "--unit=minik8s-reconciler", f"--since=@{int(since_s)}"]
    text = log.read_text() if log.exists() else subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    found = [Told(datetime.fromisoformat(at).timestamp(), *rest) for at, *rest in LINE.findall(text)]
    return [one for one in found if one.at_s >= int(since_s)]


def names(event: Seen) -> str:
    """Return the module that has to tell of a Docker event."""
    return "minik8s_containers" if event.container else "minik8s_sandboxes"


def of_pod(docker: DockerWatch, uid: str) -> list[Seen]:
    """Return what was done to a Pod's containers."""
    return [one for one in docker.events if one.uid == uid and one.action in EFFECTS]


def is_told(event: Seen, lines: Sequence[Told], node: str) -> bool:
    """Return whether a Docker event has a line in the log, from about then, that names item and node."""
    telling = [one for one in lines if one.module == names(event) and -1 <= one.at_s - event.at_s <= LATE_S]
    return bool(telling) and all(one.item and one.node == node for one in telling)


def documents() -> dict[str, int]:
    """Return when each of the node's documents was written."""
    return {path.name: path.stat().st_mtime_ns for path in (STATE / "documents").iterdir()}


def test_without_the_live_run_nothing_changes_and_with_it_every_change_is_told(
    cluster: Installed, namespace: str
) -> None:
    with DockerWatch(cluster.node) as docker:
        cluster.service("stop", "reconciler")
        try:
            written = documents()
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": namespace}}
            spec = {"containers": [{"name": "app", "image": "minik8s/busybox:1", "command": ["sleep", "36000"]}]}
            cluster.kubectl("apply", "-f", "-", stdin=json.dumps({**pod, "spec": spec}))
            uid = cluster.pods(namespace)["web"]["metadata"]["uid"]
            cluster.until(lambda: cluster.pods(namespace)["web"]["spec"].get("nodeName") == cluster.node)
            time.sleep(QUIET_S)
            assert docker.of(uid) == []
            assert cluster.containers(uid) == {}
            assert documents() == written
            assert "play" not in cluster.parts()
        finally:
            cluster.service("start", "reconciler")
        began = time.time()
        cluster.until(lambda: cluster.ready("web", namespace), 120)
        cluster.admin.delete(POD, "web", namespace, grace_s=0)
        cluster.until(lambda: not cluster.containers(uid))
        cluster.until(lambda: {one.action for one in of_pod(docker, uid)} == EFFECTS)
    events = of_pod(docker, uid)
    # Docker tells at once; the log has a module's events when its call has ended
    cluster.until(lambda: all(is_told(each, changes_since(began), cluster.node) for each in events), told=str(events))
