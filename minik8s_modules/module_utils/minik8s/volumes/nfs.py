"""NFS volumes: mounted by ``mount.nfs``, read from the kernel's table, and looked at by nobody who must not wait.

Whoever touches a mount whose server is away waits for it: for ever with ``hard``, Kubernetes' and the kernel's default,
by which no write is lost. So what a pass knows of a mount comes from /proc/self/mountinfo; what must ask the server is
a program of its own with a time limit, and is asked only where something depends on it. What is taken away is taken out
of the tree at once and ends with its last user (lazily): an unmount that waits for a dead server would hold up the
node, and ``MNT_FORCE`` would fail the writes of other pods on the same server.

Pods that mount the same export share one connection, one cache and one superblock of the kernel's.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.faults import KeyFault
from ..core.section import Facets
from . import mounts

KIND = "nfs"
MOUNT = ("mount", "-t", "nfs")
PORT = 2049
REACH_S = 1.0  # a server on the cluster's network accepts within milliseconds; one that is off costs a pass this long
MOUNT_S = 10.0  # measured: 1.2 s at load 35
ANSWER_S = 2.0
STALE, SILENT = "stale", "silent"
_SERVER = re.compile(r"[0-9A-Za-z:][0-9A-Za-z.:_-]*\Z")  # a host name or an address; never an option of mount
_NO_KERNEL = re.compile(r"unknown filesystem type|No such device|not supported by kernel")


def check(key: str, entry: Mapping[str, Any]) -> None:
    """Raise KeyFault for a server, path or option that cannot be mounted as what it is."""
    server, path = entry["server"], entry["path"]
    if not _SERVER.match(server):
        raise KeyFault("InvalidEntry", f"{key}.server {server!r:.80} is neither a host name nor an address")
    if not path.startswith("/") or ".." in path.split("/") or any(each in path for each in "\0\n"):
        raise KeyFault("InvalidEntry", f"{key}.path {path!r:.80} must be absolute, without '..', NUL and newline")
    for option in entry.get("options") or ():
        if not isinstance(option, str) or not option or any(each in option for each in "\0\n,"):
            raise KeyFault("InvalidEntry", f"{key}.options has {option!r:.80}; each must be one mount option")


def source(entry: Mapping[str, Any]) -> str:
    """Return what is mounted, as the kernel's table names it."""
    server = f"[{entry['server']}]" if ":" in entry["server"] else entry["server"]
    return f"{server}:{entry['path'].rstrip('/') or '/'}"


def real(path: str) -> str:
    """Return where the mount point stands, without asking what is mounted there."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def is_mounted(path: str, among: Sequence[mounts.Mount] | None = None) -> bool:
    """Return whether anything is mounted there."""
    return bool(mounts.at(real(path), mounts.mounts() if among is None else list(among)))


def facets(path: str, among: list[mounts.Mount]) -> Facets:
    """Return what the kernel shows at a mount point that is there."""
    found = mounts.at(real(path), among)
    return {"nfs": found[-1].source} if found else {"nfs": "not mounted"}


def answer(path: str) -> str:
    """Return "" where the server answers for the mount at ``path``, STALE where it knows it no more, else SILENT."""
    asking = subprocess.Popen(  # a child may wait in the kernel; this process may not
        ("stat", "-f", "-c", "", "--", path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={"LC_ALL": "C"}
    )
    try:
        _, error = asking.communicate(timeout=ANSWER_S)
    except subprocess.TimeoutExpired:
        asking.kill()  # and not waited for: it ends when the kernel lets it
        return SILENT
    if asking.returncode == 0:
        return ""
    return STALE if b"Stale" in error else SILENT


def silent_fault(server: str) -> KeyFault:
    """Return the complaint about a server that does not answer for what is mounted."""
    return KeyFault(
        "FailedMount",
        f"NFS server {server} does not answer; containers that use the volume wait for it and go on when it is back",
    )


def mount(path: str, entry: Mapping[str, Any]) -> None:
    """Mount, within the time limits.

    Raises:
        KeyFault: FailedMount, in the words of mount.nfs.
    """
    options = list(entry.get("options") or ())
    server = entry["server"]
    _reach(server, options)
    if not any(option.startswith("retry=") for option in options):
        options.append("retry=0")  # mount.nfs tries for two minutes otherwise; the next pass is the retry
    command = (*MOUNT, "-o", ",".join(options), "--", source(entry), path)
    try:
        done = subprocess.run(command, capture_output=True, timeout=MOUNT_S, check=False, env=_environment())
    except subprocess.TimeoutExpired:
        raise KeyFault("FailedMount", f"NFS server {server} did not finish the mount in {MOUNT_S:g} s") from None
    except FileNotFoundError as error:
        raise KeyFault("FailedMount", f"{error.filename} is not on this machine") from error
    if done.returncode:
        raise KeyFault("FailedMount", _explained(done.stderr.decode("utf-8", "replace").strip(), entry))


def _environment() -> dict[str, str]:
    return {"LC_ALL": "C", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


def _reach(server: str, options: Sequence[str]) -> None:
    """Raise KeyFault unless the server takes a connection."""
    ports = [option[5:] for option in options if option.startswith("port=") and option[5:].isdigit()]
    try:
        socket.create_connection((server, int(ports[-1]) if ports else PORT), REACH_S).close()
    except OSError as error:
        raise KeyFault("FailedMount", f"NFS server {server} cannot be reached: {error.strerror or error}") from error


def _explained(said: str, entry: Mapping[str, Any]) -> str:
    """Return mount's own words (it has others start services), with what to do where it does not say so."""
    lines = said.splitlines()
    said = "; ".join([line for line in lines if line.startswith("mount")] or lines) or "mount failed without a message"
    if "need a /sbin/mount" in said or "helper program" in said:
        return f"mounting {source(entry)}: mount.nfs is not on this machine; install the package nfs-common"
    if _NO_KERNEL.search(said):
        return f"mounting {source(entry)}: the kernel of this machine has no NFS client ({said})"
    return said
