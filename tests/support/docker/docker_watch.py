"""Docker's own account of a node's containers: proves that nothing was started twice.

A container set is a pod UID's sandbox and containers. At no moment may two containers of the same (pod UID,
container) be alive; Docker's events have an order, so this is exact, however short the overlap.
"""

from __future__ import annotations

import json
import subprocess
import threading
from typing import Any, NamedTuple

from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.core.docker import Docker


class Seen(NamedTuple):
    """One event of a container."""

    action: str
    id: str
    uid: str
    container: str
    attempt: str
    at_s: float


class DockerWatch:
    """Follows ``docker events`` of one node from now on, as a context manager."""

    def __init__(self, node: str, socket: str = "/var/run/docker.sock") -> None:
        self._node, self._socket = node, socket
        self.events: list[Seen] = []
        self.doubles: list[str] = []
        self._alive: dict[tuple[str, str], set[str]] = {}
        argv = ["docker", "-H", f"unix://{socket}", "events", "--format", "{{json .}}", "--filter", "type=container"]
        self._argv = [*argv, "--filter", f"label={labels.NODE}={node}"]

    def __enter__(self) -> DockerWatch:
        """Begin; what is alive now counts."""
        self._process = subprocess.Popen(self._argv, stdout=subprocess.PIPE, text=True)
        docker = Docker(self._socket)
        for one in docker.containers({labels.NODE: self._node}):
            if one["State"] == "running":
                marks = one["Labels"]
                key = (marks[labels.POD_UID], marks.get(labels.CONTAINER, ""))
                self._alive.setdefault(key, set()).add(one["Id"])
        docker.close()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End; everything that happened until now has been read."""
        self._process.terminate()
        self._process.wait(60)
        self._thread.join(60)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def of(self, uid: str) -> list[str]:
        """Return what happened to a pod's containers."""
        return [f"{one.action} {one.container or 'sandbox'} {one.attempt}" for one in self.events if one.uid == uid]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._note(json.loads(line))

    def _note(self, raw: dict[str, Any]) -> None:
        attributes = raw["Actor"]["Attributes"]
        name = attributes.get(labels.CONTAINER, "")
        uid, attempt = attributes[labels.POD_UID], attributes.get(labels.ATTEMPT, "")
        seen = Seen(raw["Action"], raw["Actor"]["ID"], uid, name, attempt, raw["timeNano"] / 1e9)
        self.events.append(seen)
        alive = self._alive.setdefault((seen.uid, seen.container), set())
        if seen.action == "start":
            alive.add(seen.id)
        if seen.action in {"die", "destroy"}:
            alive.discard(seen.id)
        if len(alive) > 1:
            self.doubles.append(f"{seen} beside {sorted(alive - {seen.id})}")
