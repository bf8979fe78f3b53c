"""What the guest says of itself: the client of qemu-guest-agent (https://qemu.org/docs/master/interop/qemu-ga-ref.html).

One question at a time. An agent that was not there, or whose answer came too late, may answer later: so each question
begins with ``guest-sync`` and a number of its own, and what comes before that number's echo is dropped.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from typing import Any

from minik8s_virtual_machines.launcher.errors import Refused

PATIENCE_S = 5.0
_LONGEST = 4 << 20


class Agent:
    """The connection to the guest's agent over a serial line, for one start of the guest."""

    def __init__(self) -> None:
        self.is_connected = False
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()
        self._numbers = itertools.count(1)

    async def attach(self, line: socket.socket | None) -> None:
        """Take the line of a guest that has just been started."""
        self.close()
        if line is not None:
            self._streams = await asyncio.open_connection(sock=line, limit=_LONGEST)

    def close(self) -> None:
        """Let the line go."""
        self.is_connected = False
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def ask(self, command: str, arguments: dict[str, Any] | None = None, patience_s: float = PATIENCE_S) -> Any:
        """Return the agent's answer.

        Raises:
            Refused: there is none, or it says no.
        """
        async with self._turn:
            try:
                answer = await asyncio.wait_for(self._exchange(command, arguments), patience_s)
            except (TimeoutError, OSError, ValueError) as error:
                self.is_connected = False
                raise Refused("the guest agent is not connected: does qemu-guest-agent run in the guest?") from error
        self.is_connected = True
        if "error" in answer:
            raise Refused(f"the guest agent says: {answer['error'].get('desc', answer['error'])}")
        return answer.get("return")

    async def _exchange(self, command: str, arguments: dict[str, Any] | None) -> dict[str, Any]:
        if self._streams is None:
            raise OSError("there is no line to an agent")
        reader, writer = self._streams
        number = next(self._numbers)
        # 0xff ends whatever the agent's parser is in the middle of
        writer.write(b"\xff" + _line("guest-sync", {"id": number}))
        while (await self._answer(reader)).get("return") != number:
            pass
        writer.write(_line(command, arguments))
        return await self._answer(reader)

    async def _answer(self, reader: asyncio.StreamReader) -> dict[str, Any]:
        """Return the next line that is an answer; a terminal may echo what was asked."""
        while True:
            line = await reader.readline()
            if not line:
                raise OSError("the agent's line is closed")
            try:
                found = json.loads(line.strip(b"\xff\r\n "))
            except ValueError:
                continue
            if isinstance(found, dict) and ("return" in found or "error" in found):
                return found

    async def watch(self) -> None:
        """Find out whether there is an agent, now and then: often until there is one."""
        while True:
            try:
                await self.ask("guest-ping", patience_s=3)
            except Refused:
                await asyncio.sleep(3)
            else:
                await asyncio.sleep(30)


def _line(command: str, arguments: dict[str, Any] | None) -> bytes:
    asked = {"execute": command} | ({"arguments": arguments} if arguments else {})
    return json.dumps(asked).encode() + b"\n"
