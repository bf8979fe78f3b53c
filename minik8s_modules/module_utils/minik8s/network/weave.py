"""Weave Net by its own command, as the original MiniK8s calls it: ``weave attach|detach|connect``.

``weave attach CONTAINER`` prints the one address it gave; ``weave detach CONTAINER`` prints the one it took, nothing
when there was none. Its end in a pod is ``ethwe``; a pod whose only network this is leaves by the machine's own address
in it, which ``weave expose`` prints. Weave frees what a container had that Docker knows no more.
Source: the script ``weave`` and site/ of Weave Net 2.6.5; the original's behaviour, NET-01 to NET-03.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
from collections.abc import Iterable

from ..core.faults import KeyFault
from . import network_programs

INTERFACE = "ethwe"
DEVICE = "weave"
"""The machine's own end: a bridge."""
TIMEOUT_S = 30.0
_TARGET = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]*")


class Weave:
    """One machine's Weave; ``command`` is the program's name or path."""

    def __init__(self, command: str, docker_socket: str) -> None:
        self._command, self._docker_socket = command, docker_socket

    def attach(self, container: str) -> str:
        """Attach a running container and return its address.

        Raises:
            KeyFault: NetworkNotReady, Weave failed or answered something else than one address.
        """
        found = self._run("attach", container).split()
        try:
            (address,) = (str(ipaddress.IPv4Address(word)) for word in found)
        except ValueError:
            raise KeyFault("NetworkNotReady", f"weave attach: expected one IP, actual: {' '.join(found)!r}") from None
        return address

    def detach(self, container: str, address: str) -> None:
        """Detach a container; one that has no address (any more) is fine.

        Raises:
            KeyFault: NetworkNotReady, Weave failed or took another address than ``address``.
        """
        found = self._run("detach", container).split()
        if found and address and found != [address]:
            raise KeyFault("NetworkNotReady", f"weave detach failed, expect {address}, actual: {' '.join(found)!r}")

    def expose(self) -> str:
        """Give this machine an address among the pods', or return the one it has."""
        return self._run("expose").strip()

    def targets(self) -> set[str]:
        """Return the machines that Weave was told to connect to, by us or by hand."""
        return {line.strip() for line in self._run("status", "targets").splitlines() if line.strip()}

    def connect(self, peers: Iterable[str]) -> None:
        """Have Weave connect to further machines."""
        self._run("connect", *peers)

    def forget(self, peers: Iterable[str]) -> None:
        """Have Weave no longer connect to some machines."""
        self._run("forget", *peers)

    def _run(self, *words: str) -> str:
        program = shutil.which(self._command)
        text = f"{self._command} {' '.join(words)}"
        if program is None:
            raise KeyFault(
                "NetworkNotReady", f"the command {self._command!r} is not installed on this node (Weave Net)"
            )
        environment = {**os.environ, "DOCKER_HOST": f"unix://{self._docker_socket}"}
        return network_programs.call(text, [program, *words], environment, TIMEOUT_S)


def check_peer(where: str, peer: object) -> None:
    """Raise KeyFault (InvalidEntry) for a peer that is no address or name."""
    if not isinstance(peer, str) or not _TARGET.fullmatch(peer):
        raise KeyFault("InvalidEntry", f"{where}: {peer!r} is not an address or name of a machine")
