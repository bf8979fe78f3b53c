"""Tells whether a machine can carry minik8s, by trying, before anything on it is changed.

:func:`observe_machine` looks and tries: links are made in a network namespace of their own, which ends with the child
process that made them. :func:`problems` compares what was seen with what is needed and says what to do about each gap.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import shutil
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

CLONE_NEWNET = 0x40000000
OURS = "/etc/minik8s/"  # every daemon of ours names its configuration file on its command line
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key.pub"
# certificates hold from 5 minutes before they are made; slow logins take their part of what is left
CLOCKS_APART_S = 120
_LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp


class Machine(NamedTuple):
    """What was seen; ``listeners`` holds the command line of the process that listens on a port.

    ``free_mb`` is what the disk of /var/lib has left, ``time_s`` the clock in seconds since 1970.
    """

    user_id: int
    distribution: str
    version: str
    python: tuple[int, int]
    memory_mb: int
    listeners: dict[int, str]
    missing: tuple[str, ...]
    free_mb: int = 0
    time_s: float = 0.0
    host_key: bool = True


class System(NamedTuple):
    """A distribution with a file of names (``roles/minik8s/families``): its id, and the oldest version."""

    id: str
    version: int
    tried: bool = True


class Needed(NamedTuple):
    """What must be there. Ports may be taken by minik8s itself; a ``time_s`` of 0 is not compared.

    ``untried``: whether systems that nobody has tried will do.
    """

    ports: tuple[int, ...]
    memory_mb: int
    python: tuple[int, int]
    systems: tuple[System, ...]
    untried: bool = False
    disk_mb: int = 0
    time_s: float = 0.0
    host_key: bool = False


def problems(machine: Machine, needed: Needed) -> list[str]:
    """Return one sentence a gap: what, where, and what to do; empty when the machine will do."""
    found: list[str] = []
    if machine.user_id != 0:
        found.append("the installation must run as root: run as root, or set ansible_become")
    found.extend(_system_problems(machine, needed))
    if machine.python < needed.python:
        found.append(f"/usr/bin/python3 is {_dotted(machine.python)}: {_dotted(needed.python)} or newer is needed")
    if machine.memory_mb < needed.memory_mb:
        found.append(f"the machine has {machine.memory_mb} MB of memory: {needed.memory_mb} MB are needed")
    if machine.free_mb < needed.disk_mb:
        found.append(f"/var/lib has {machine.free_mb} MB left: {needed.disk_mb} MB are needed")
    found.extend(_shared_problems(machine, needed))
    found.extend(
        f"port {port} is in use by {machine.listeners[port] or 'another process'}: stop that program, or move it"
        for port in needed.ports
        if port in machine.listeners and OURS not in machine.listeners[port]
    )
    found.extend(f"the kernel has no {feature}: boot a kernel that has it" for feature in machine.missing)
    return found


def _system_problems(machine: Machine, needed: Needed) -> Iterator[str]:
    """Yield why the machine's distribution will not do."""
    seen = f"{machine.distribution} {machine.version}".strip() or "an unknown system"
    major = _major(machine.version)
    tried = [one.tried for one in needed.systems if one.id == machine.distribution and one.version <= major]
    if not tried:
        known: dict[str, int] = {}
        for one in needed.systems:
            if one.tried:
                known[one.id] = min(one.version, known.get(one.id, one.version))
        wanted = " or ".join(f"{name.capitalize()} {version} or newer" for name, version in known.items())
        yield f"the machine runs {seen}: install on {wanted}"
    elif not any(tried) and not needed.untried:
        yield f"the machine runs {seen}, which has not been tried: set minik8s_untried to true to try it"


def _shared_problems(machine: Machine, needed: Needed) -> Iterator[str]:
    """Yield what the machine's neighbours would stumble over: its clock, and its ssh host key."""
    apart_s = machine.time_s - needed.time_s
    if needed.time_s and abs(apart_s) > CLOCKS_APART_S:
        what = "ahead of" if apart_s > 0 else "behind"
        text = f"its clock is {abs(apart_s):.0f} s {what} the one of the machine that installs"
        yield f"{text}: certificates need synchronized clocks; run chrony or systemd-timesyncd"
    if needed.host_key and not machine.host_key:
        yield f"there is no {HOST_KEY}, which the control plane pins: make it with `ssh-keygen -A`"


def _major(version: str) -> int:
    head = version.split(".", 1)[0]
    return int(head) if head.isdigit() else 0


def _dotted(version: Sequence[int]) -> str:
    return ".".join(str(part) for part in version)


def observe_machine(ports: Sequence[int]) -> Machine:
    """Return what this machine is and has."""
    release = _release(Path("/etc/os-release"))
    memory = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
    major, minor = platform.python_version_tuple()[:2]
    return Machine(
        user_id=os.geteuid(),
        distribution=release.get("ID", ""),
        version=release.get("VERSION_ID", ""),
        python=(int(major), int(minor)),
        memory_mb=int(memory.group(1)) // 1024 if memory else 0,
        listeners=dict(_listeners(frozenset(ports))),
        missing=tuple(_missing_features()),
        free_mb=shutil.disk_usage("/var/lib").free // 2**20,
        time_s=time.time(),
        host_key=Path(HOST_KEY).is_file(),
    )


def _release(path: Path) -> dict[str, str]:
    """Return the assignments of os-release(5)."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name.strip(): value.strip().strip("\"'") for name, _sign, value in pairs}


def _listeners(ports: frozenset[int]) -> Iterator[tuple[int, str]]:
    """Yield each of ``ports`` that is listened on, with the command line of who does (empty: unknown)."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                port = int(fields[1].rpartition(":")[2], 16)
                if fields[3] == _LISTEN and port in ports:
                    yield port, _command_of(fields[9])


def _command_of(inode: str) -> str:
    """Return the command line of the process that holds the socket ``inode``."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(os.readlink(entry) == f"socket:[{inode}]" for entry in (process / "fd").iterdir()):
                return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def _missing_features() -> Iterator[str]:
    tried = _tried_in_namespace()
    for name, works in (("bridge devices", "b"), ("veth devices", "v"), ("nftables", "n")):
        if works not in tried:
            yield name
    modules = Path("/lib/modules") / platform.release()
    if "overlay" not in Path("/proc/filesystems").read_text(encoding="ascii") and not any(
        modules.glob("**/overlay.ko*")
    ):
        yield "overlayfs"


def _tried_in_namespace() -> str:
    """Return the letters of what works: b(ridge), v(eth), n(ftables); tried by a child in its own namespace."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # no exception may leave this branch: the child would go on as a second module
        try:
            if ctypes.CDLL(None).unshare(CLONE_NEWNET) == 0:
                tries = (("b", _link("bridge")), ("v", _link("veth")), ("n", _nft_generation()))
                os.write(writer, "".join(letter for letter, works in tries if works).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        letters = answers.read()
    os.waitpid(child, 0)
    return letters


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", len(data) + 4, kind) + data + b"\0" * (-len(data) % 4)


def _link(kind: str) -> bool:
    """Return whether a link of ``kind`` can be made (rtnetlink(7), RTM_NEWLINK)."""
    information = _attribute(18, _attribute(1, kind.encode()))  # IFLA_LINKINFO, IFLA_INFO_KIND
    name = _attribute(3, f"mk8s-{kind}\0".encode())  # IFLA_IFNAME
    body = struct.pack("=BxHiII", 0, 0, 0, 0, 0) + name + information
    return _accepted(socket.NETLINK_ROUTE, 16, 0x600, body)  # RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL


def _nft_generation() -> bool:
    """Return whether the kernel answers the smallest nftables request (NFT_MSG_GETGEN)."""
    return _accepted(12, (10 << 8) | 16, 0, struct.pack("=BBH", 0, 0, 0))  # NETLINK_NETFILTER


def _accepted(family: int, kind: int, flags: int, body: bytes) -> bool:
    """Return whether the kernel acknowledges the message (NLM_F_REQUEST | NLM_F_ACK) without an error."""
    header = struct.pack("=IHHII", 16 + len(body), kind, flags | 0x5, 1, 0)
    with contextlib.suppress(OSError), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family) as channel:
        channel.settimeout(5)
        channel.sendto(header + body, (0, 0))
        while True:
            answer = channel.recv(65536)
            if struct.unpack_from("=H", answer, 4)[0] == 2:  # noqa: PLR2004 - NLMSG_ERROR: error 0 acknowledges
                return bool(struct.unpack_from("=i", answer, 16)[0] == 0)
    return False
