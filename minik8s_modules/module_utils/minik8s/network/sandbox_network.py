"""The network of a pod's sandbox, held open: who enters it is where he meant to be, or nowhere.

Docker tells the number of a process, which may be another's by the time it is used, one with the machine's own network
even. So the process is opened first (its folder in /proc names this one, never its successor), then looked at: its
cgroup has the container's id, or Docker, asked again, still says the same number. Only what was opened is entered.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..core.docker import Docker
from ..core.faults import KeyFault

CGROUP_BYTES = 64 * 1024
_GONE = (FileNotFoundError, ProcessLookupError)


@contextlib.contextmanager
def network_of(docker: Docker, inspect: Mapping[str, Any]) -> Iterator[str]:
    """Hold the network of a running sandbox open; yield a path of it that programs started meanwhile can use.

    Args:
        docker: asked again where the process's cgroup does not tell whose it is.
        inspect: the pause container as Docker told it.

    Raises:
        KeyFault: SandboxGone where it has ended; InvalidEntry where it has its node's network.
    """
    with contextlib.ExitStack() as opened:
        ours, network = False, -1
        try:
            process = os.open(f"/proc/{inspect['State']['Pid'] or ''}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, process)
            network = os.open("ns/net", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
            opened.callback(os.close, network)
            ours = bool(inspect["State"]["Pid"]) and (_is_in(process, inspect["Id"]) or _is_still(docker, inspect))
        except _GONE:
            pass
        if not ours:
            raise KeyFault(
                "SandboxGone", f"the pause container {inspect['Name']} ended while its network was looked at"
            )
        if os.path.samestat(os.fstat(network), os.stat("/proc/self/ns/net")):
            raise KeyFault(
                "InvalidEntry", f"{inspect['Name']} has its node's network, which is not the pod's to change"
            )
        yield f"/proc/{os.getpid()}/fd/{network}"


def _is_in(process: int, container: str) -> bool:
    """Return whether an open process is in the cgroup that Docker made for a container, with either of its drivers."""
    told = os.open("cgroup", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
    try:
        lines = os.read(told, CGROUP_BYTES).decode("utf-8", "replace").splitlines()
    finally:
        os.close(told)
    folders = {folder for line in lines for folder in line.partition(":")[2].partition(":")[2].split("/")}
    return not folders.isdisjoint({container, f"docker-{container}.scope"})


def _is_still(docker: Docker, inspect: Mapping[str, Any]) -> bool:
    now = docker.inspect(inspect["Id"])
    return now is not None and now["State"]["Pid"] == inspect["State"]["Pid"]
