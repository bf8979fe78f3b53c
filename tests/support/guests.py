"""A virtual node whose Pods are launchers of virtual machines, played: a process of ``minik8s-virtual`` of its own.

The node, its Lease, the kubelet's API with exec and port-forward are the real ones; a guest is a state and a line
discipline. ``vmctl`` answers as the launcher's does. On the console ``poweroff`` ends the guest in order, ``crash``
not, anything else comes back. A container of an image ``slow:…`` is never ready; one of ``missing:…`` is not pulled.

    python -m tests.support.guests --config FILE
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.virtual import registry
from minik8s_modules.virtual.main import main
from minik8s_modules.virtual.provider import AttachIO, InitConfig
from minik8s_modules.virtual.providers.mock import Mock

PNG = b"\x89PNG\r\n\x1a\n and so on"
BANNER = b"login: "
RFB = b"RFB 003.008\n"
OS = {"guestAgentVersion": "10.0", "hostname": "guest", "os": {"name": "Debian GNU/Linux", "id": "debian"}}


class Guests(Mock):
    """See the top of this file."""

    def __init__(self, config: InitConfig) -> None:
        super().__init__(config)
        self._paused: set[Key] = set()

    def create_pod(self, pod: JsonObject) -> None:
        """Have the launcher run, or wait for its image."""
        super().create_pod(pod)
        image = next(each["image"] for each in objects.containers(pod) if each["name"] == "compute")
        if image.startswith("slow:"):
            self._ready(pod, {"state": {"running": {}}, "ready": False})
        if image.startswith("missing:"):
            waiting = {"reason": "ErrImagePull", "message": f"{image} is not there"}
            self._ready(pod, {"state": {"waiting": waiting}, "ready": False}, phase="Pending")

    def _ready(self, pod: JsonObject, state: JsonObject, phase: str = "Running") -> None:
        with self._lock:
            known = self._find(objects.namespace(pod), objects.name(pod))
            known["status"]["phase"] = phase
            for each in known["status"]["containerStatuses"]:
                each.update(state)
            for each in known["status"]["conditions"]:
                if each["type"] in {"Ready", "ContainersReady"}:
                    each["status"] = "False"
            result = copy.deepcopy(known)
        self._tell(result)

    def run_in_container(self, namespace: str, pod: str, container: str, command: list[str], streams: AttachIO) -> int:
        """Answer as ``vmctl`` does."""
        with self._lock:
            self._find_container(namespace, pod, container)
            self._log(Key(namespace, pod), container, f"exec {' '.join(command)}")
        assert command[0] == "/usr/bin/vmctl", command
        key, out = Key(namespace, pod), streams.stdout
        assert out is not None
        if command[1] in {"console", "vnc"}:
            out.write(BANNER if command[1] == "console" else RFB)
            return self._talk(key, streams)
        if command[1] in {"pause", "unpause"}:
            (self._paused.add if command[1] == "pause" else self._paused.discard)(key)
            return 0
        answer = self._answers(key).get(command[1])
        if answer is None:
            assert streams.stderr is not None
            streams.stderr.write(b"not in this machine\n")
            return 1
        out.write(answer())
        return 0

    def _answers(self, key: Key) -> Mapping[str, Callable[[], bytes]]:
        status = {"phase": "Running", "paused": key in self._paused, "agentConnected": True, "machine": "uml"}
        return {
            "status": lambda: json.dumps(status).encode() + b"\n",
            "softreboot": lambda: b"",
            "guestosinfo": lambda: json.dumps(OS).encode(),
            "userlist": lambda: json.dumps([{"userName": "root"}]).encode(),
            "screenshot": lambda: PNG,
        }

    def _talk(self, key: Key, streams: AttachIO) -> int:
        assert streams.stdin is not None
        assert streams.stdout is not None
        while data := streams.stdin.read(4096):
            if data.strip() in {b"poweroff", b"crash"}:
                self._end(key, 0 if data.strip() == b"poweroff" else 1)
                return 0
            streams.stdout.write(data)
        return 0

    def _end(self, key: Key, code: int) -> None:
        with self._lock:
            known = self._find(*key)
            known["status"]["phase"] = "Failed" if code else "Succeeded"
            ended = {"exitCode": code, "reason": "Error" if code else "Completed", "message": "kernel panic" * code}
            for each in known["status"]["containerStatuses"]:
                each.update({"state": {"terminated": ended}, "ready": False})
            for each in known["status"]["conditions"]:
                if each["type"] in {"Ready", "ContainersReady"}:
                    each["status"] = "False"
            result = copy.deepcopy(known)
        self._tell(result)


def make(config: InitConfig) -> Guests:
    """Return the provider."""
    return Guests(config)


if __name__ == "__main__":
    registry.IN_TREE["guests"] = ("tests.support.guests", "make")
    raise SystemExit(main())
