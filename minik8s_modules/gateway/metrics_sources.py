"""Where figures come from: cAdvisor on the node where there is one, else Docker's own stats; the machine's from /proc.

cAdvisor answers for all containers in one call (16 KB for six, 35 MB resident on the node). Docker reads the cgroups of
one container a call (2 ms of its CPU time), so it is the fallback, and every answer says which of them it came from.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import re
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import urlencode

import orjson

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import parse_rfc3339
from minik8s_modules.gateway.errors import DockerUnavailable, FileRefused, NodeUnreachable
from minik8s_modules.gateway.metrics import PRESSURES, Disk, Machine, Marks, PodPressure, Reading, Usage, machine_of
from minik8s_modules.gateway.pod_pressure import PodPressures
from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.core.docker import UnixConnection

log = logging.getLogger(__name__)

STATS_VERSION = "1.41"  # the first with one-shot: without it every call takes two seconds
TIMEOUT_S = 10.0
PRESSURE_PAUSE = 60  # readings, before a kernel that tells no pressure is asked again
LARGEST_ANSWER = 64 * 1024 * 1024
_ID = re.compile(r"[0-9a-f]{64}")
_PROC = ("stat", "meminfo", "loadavg", "sys/kernel/pid_max")
_CADVISOR = "/api/v2.0/stats/?type=docker&recursive=true&count=1"


class Files(Protocol):
    """The part of a ``Link`` that is read through."""

    def read(self, path: str) -> bytes:
        """Return the first bytes of a file of the node; raises NodeUnreachable."""

    def disk(self, path: str) -> Disk:
        """Return the file system that holds ``path``; raises NodeUnreachable."""


class Http:
    """GETs of JSON over a unix socket, or from a port of this machine; opened again when it broke; for one thread."""

    def __init__(self, address: str) -> None:
        self._connection = (
            http.client.HTTPConnection("127.0.0.1", int(address), timeout=TIMEOUT_S)
            if address.isdecimal()
            else UnixConnection(address, TIMEOUT_S)
        )

    def get(self, path: str) -> Any:
        """Return the JSON of the answer, None for "not found".

        Raises:
            DockerUnavailable: no answer, or none of use.
        """
        try:
            self._connection.request("GET", path)
            response = self._connection.getresponse()
            data = response.read(LARGEST_ANSWER)
        except (http.client.HTTPException, OSError) as error:
            self._connection.close()
            raise DockerUnavailable(f"GET {path}: {error}") from error
        if response.status == HTTPStatus.NOT_FOUND:
            return None
        if response.status != HTTPStatus.OK:
            raise DockerUnavailable(f"GET {path}: status {response.status}")
        try:
            return orjson.loads(data)
        except ValueError as error:
            raise DockerUnavailable(f"GET {path}: no JSON") from error

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def cadvisor_usage(answer: Mapping[str, Any]) -> dict[str, Usage]:
    """Return the usage in cAdvisor's answer, by container id; what is not ours to understand is left out."""
    found = {}
    for name, samples in answer.items():
        match = _ID.search(name)
        if match is None or not isinstance(samples, list) or not samples:
            continue
        last = samples[-1]
        with contextlib.suppress(KeyError, TypeError, ValueError):
            at_s = parse_rfc3339(last["timestamp"]).timestamp()
            found[match[0]] = Usage(at_s, int(last["cpu"]["usage"]["total"]), int(last["memory"]["working_set"]))
    return found


def docker_usage(answer: Mapping[str, Any]) -> Usage | None:
    """Return the usage in Docker's stats of one container, None when it does not run."""
    try:
        memory, at_s = answer["memory_stats"], parse_rfc3339(answer["read"]).timestamp()
        if not memory:
            return None
        detail = memory.get("stats") or {}
        inactive = detail.get("total_inactive_file", detail.get("inactive_file", 0))
        working_set = max(0, int(memory["usage"]) - int(inactive))
        return Usage(at_s, int(answer["cpu_stats"]["cpu_usage"]["total_usage"]), working_set)
    except (KeyError, TypeError, ValueError):
        return None


class Source:
    """Reads one node; used by one thread. ``cadvisor`` is a port here, the path of a socket, or "" for none."""

    def __init__(self, node: str, docker: str, cadvisor: str, files: Files) -> None:
        self._node = node
        self._docker = Http(docker)
        self._cadvisor = Http(cadvisor) if cadvisor else None
        self._files = files
        self._pod_pressures = PodPressures(node, files.read)
        self._root = ""
        self._without_pressure = 0
        self._has_warned = False

    def read(self) -> Reading:
        """Return everything at once.

        Raises:
            DockerUnavailable: Docker does not answer.
        """
        marks = self._marks()
        usage = self._from_cadvisor(marks)
        source = "cadvisor" if usage is not None else "docker"
        found = self._from_docker(marks) if usage is None else usage
        return Reading(self._machine(), found, marks, source, self._of_pods({one.pod_uid for one in marks.values()}))

    def images(self) -> list[JsonObject]:
        """Return the node's images: ``{"id", "names", "size_bytes"}``."""
        return [
            {
                "id": str(each["Id"]),
                "names": sorted(
                    name
                    for name in [*(each.get("RepoTags") or ()), *(each.get("RepoDigests") or ())]
                    if "<none>" not in name
                ),
                "size_bytes": int(each.get("Size") or 0),
            }
            for each in self._docker.get(f"/v{STATS_VERSION}/images/json") or []
        ]

    def close(self) -> None:
        """Close the connections."""
        self._docker.close()
        if self._cadvisor is not None:
            self._cadvisor.close()

    def _marks(self) -> dict[str, Marks]:
        filters = orjson.dumps({"label": [f"{labels.NODE}={self._node}"]}).decode()
        found = self._docker.get(f"/v{STATS_VERSION}/containers/json?{urlencode({'filters': filters})}") or []
        return {each["Id"]: _marks_of(each.get("Labels") or {}) for each in found}

    def _from_cadvisor(self, marks: Mapping[str, Marks]) -> dict[str, Usage] | None:
        if self._cadvisor is None:
            return None
        try:
            answer = self._cadvisor.get(_CADVISOR)
        except DockerUnavailable as error:
            self._warn(f"cAdvisor does not answer, so Docker's stats are read: {error}")
            return None
        self._has_warned = False
        usage = cadvisor_usage(answer if isinstance(answer, dict) else {})
        return {one: sample for one, sample in usage.items() if one in marks}

    def _warn(self, text: str) -> None:
        log.log(logging.DEBUG if self._has_warned else logging.WARNING, "%s: %s", self._node, text)
        self._has_warned = True

    def _from_docker(self, marks: Mapping[str, Marks]) -> dict[str, Usage]:
        found = {}
        for one in marks:
            answer = self._docker.get(f"/v{STATS_VERSION}/containers/{one}/stats?stream=false&one-shot=true")
            usage = docker_usage(answer) if answer else None
            if usage is not None:
                found[one] = usage
        return found

    def _machine(self) -> Machine | None:
        if not self._root:
            self._root = str((self._docker.get(f"/v{STATS_VERSION}/info") or {}).get("DockerRootDir") or "")
        try:
            proc = {each: self._files.read(f"/proc/{each}") for each in _PROC} | self._pressure()
            return machine_of(proc, self._files.disk(self._root or "/"), time.time())
        except (ValueError, NodeUnreachable) as error:
            self._warn(f"its own figures cannot be read: {error}")
            return None

    def _of_pods(self, uids: set[str]) -> Mapping[str, PodPressure]:
        try:
            return self._pod_pressures.of(uids, time.time())
        except NodeUnreachable as error:
            self._warn(f"the pressure of its pods cannot be read: {error}")
            return {}

    def _pressure(self) -> dict[str, bytes]:
        """Return the files of /proc/pressure; a kernel without them is left alone for some time.

        Raises:
            NodeUnreachable: it could not be asked.
        """
        self._without_pressure = max(0, self._without_pressure - 1)
        if not self._without_pressure:
            try:
                return {f"pressure/{name}": self._files.read(f"/proc/pressure/{name}") for name in PRESSURES}
            except FileRefused as error:
                log.info("%s: tells no pressure of its resources: %s", self._node, error)
                self._without_pressure = PRESSURE_PAUSE
        return {}


def _marks_of(found: Mapping[str, str]) -> Marks:
    container = "" if found.get(labels.TYPE) == labels.SANDBOX else found.get(labels.CONTAINER, "")
    pod, namespace = found.get(labels.POD_NAME, ""), found.get(labels.POD_NAMESPACE, "")
    return Marks(found.get(labels.POD_UID, ""), pod, namespace, container)
