"""The conversation with the program of a pod's pause container: a table in, states out, over Docker's attach.

The program goes on probing when this end is gone; whoever attaches next sends the table and is told the state. A pause
image without the label below (the user's own) has no such program: ``find`` says so, and the gateway probes itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from minik8s_modules.gateway.probing import wire
from minik8s_modules.gateway.probing.checks import Check, Result
from minik8s_modules.gateway.streams.dockerd import Dockerd, DockerRefused
from minik8s_modules.module_utils.minik8s.install.images import PROBER
from minik8s_modules.streams.connections import Connection
from minik8s_modules.streams.frames import STDOUT, Demultiplexer

log = logging.getLogger(__name__)

_NOT_FOUND = 404
_LINE_LIMIT = 1 << 17
OnResults = Callable[[dict[str, Result]], None]


async def has_prober(docker: Dockerd, sandbox: str) -> bool | None:
    """Return whether the pause container ``sandbox`` runs our program and hears it; None when it is gone."""
    try:
        found = await docker.call("GET", f"/containers/{sandbox}/json")
    except DockerRefused as error:
        if error.status == _NOT_FOUND:
            return None
        raise
    config = found["Config"]
    return bool(config.get("OpenStdin")) and PROBER in (config.get("Labels") or {})


class Prober:
    """One attachment to a pause container."""

    def __init__(self, docker: Dockerd, sandbox: str, now: Callable[[], datetime]) -> None:
        self._docker, self._sandbox, self._now = docker, sandbox, now
        self._connection: Connection | None = None
        self._checks: dict[str, Check] = {}
        self._generation = 0

    async def declare(self, checks: dict[str, Check]) -> None:
        """Give the program its table, now or when it is attached."""
        self._checks = dict(checks)
        if self._connection is not None:
            self._generation += 1
            table = [(check, check.delay_s(self._now())) for check in checks.values()]
            await self._connection.write(wire.table_of(table, str(self._generation)))

    async def follow(self, on_results: OnResults) -> None:
        """Attach, send the table, and hand on what comes until the connection ends; raises as Dockerd and OSError."""
        query = {"stream": "1", "stdin": "1", "stdout": "1"}
        self._connection = await self._docker.hijack(f"/containers/{self._sandbox}/attach", query)
        streams, rest = Demultiplexer(), b""
        try:
            await self.declare(self._checks)
            while data := await self._connection.read():
                for stream, written in streams.feed(data):
                    if stream == STDOUT:
                        rest = self._take(rest + written, on_results)
        finally:
            self._connection.close()
            self._connection = None

    def _take(self, data: bytes, on_results: OnResults) -> bytes:
        *lines, rest = data.split(b"\n")
        for line in lines:
            try:
                _, results = wire.read_states(line.decode(), self._checks)
            except (ValueError, KeyError) as error:
                log.warning("pause container %.12s: %s", self._sandbox, error)
                continue
            on_results(results)
        return rest[:_LINE_LIMIT]


async def closed_quietly(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end, whatever it says."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
