"""A TCP connection to an address as the node sees it: directly from this machine, or through the node's ssh master.

What is made here is given away as file descriptors; the gateway reads nothing that comes from a container.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import NamedTuple, Protocol

CONNECT_S = 10.0
_WORDS_BYTES = 64 * 1024
# kill -9 of the gateway ends its ssh too, which else waits for the pod's end (util-linux, essential in Debian)
_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")


class NodeRoute(NamedTuple):
    """The way to a node: its Docker socket here, and the command whose stdin and stdout reach an address there.

    Without a command the node is this machine.
    """

    docker_socket: str
    reach: Callable[[str, int], list[str]] | None


Routes = Callable[[str], NodeRoute | None]
"""Returns the way to a node, None for a node that is not reached from here now."""


class Reached(Protocol):
    """A connection to a port of a pod; its maker keeps it open until ``close``."""

    @property
    def ends(self) -> list[socket.socket]:
        """Return what to give away: one socket, or one to read and one to write."""

    async def failure(self) -> str:
        """Return why it could not be made, "" when it could; meant to be asked after its end."""

    async def close(self) -> None:
        """End what this end holds of it."""


class Direct:
    """A socket of this machine's own."""

    def __init__(self, connected: socket.socket) -> None:
        self.ends = [connected]

    async def failure(self) -> str:
        """Return "": it was made."""
        return ""

    async def close(self) -> None:
        """Close our end; who was given it holds another."""
        self.ends[0].close()


class ThroughSsh:
    """The stdout and stdin of ``ssh -W``."""

    def __init__(self, process: asyncio.subprocess.Process, ends: list[socket.socket]) -> None:
        self._process = process
        self.ends = ends

    async def failure(self) -> str:
        """Return ssh's words when it failed."""
        if not await self._process.wait() or self._process.stderr is None:
            return ""
        error = (await self._process.stderr.read(_WORDS_BYTES)).decode("utf-8", "replace").strip()
        return error.splitlines()[0] if error else ""

    async def close(self) -> None:
        """End ssh."""
        for end in self.ends:
            end.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


async def reach(route: NodeRoute, host: str, port: int) -> Reached:
    """Return a connection to ``host``:``port`` from the node; OSError when there is none.

    Through ssh a refusal shows only at the end of what is read: ask ``failure`` then.
    """
    if route.reach is None:
        async with asyncio.timeout(CONNECT_S):
            return Direct(await _connected(host, port))
    (ours_in, its_in), (ours_out, its_out) = socket.socketpair(), socket.socketpair()
    try:
        process = await asyncio.create_subprocess_exec(
            *_WITH_PARENT,
            *route.reach(host, port),
            stdin=its_in.fileno(),
            stdout=its_out.fileno(),
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except BaseException:
        ours_in.close()
        ours_out.close()
        raise
    finally:
        its_in.close()
        its_out.close()
    return ThroughSsh(process, [ours_out, ours_in])


def words(error: OSError) -> str:
    """Return why a connection was not made."""
    if isinstance(error, TimeoutError) and not error.errno:
        return f"no connection within {CONNECT_S:.0f} s"
    return os.strerror(error.errno).lower() if error.errno else str(error)


async def _connected(host: str, port: int) -> socket.socket:
    """Return a connection to the first of the host's addresses that takes one; OSError of the last."""
    loop, last = asyncio.get_running_loop(), OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)  # noqa: FBT003 - the standard library's signature
        try:
            await loop.sock_connect(made, address)
        except OSError as error:
            made.close()
            last = error
        except BaseException:
            made.close()
            raise
        else:
            return made
    raise last
