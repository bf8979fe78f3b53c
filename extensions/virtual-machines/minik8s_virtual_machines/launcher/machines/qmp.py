"""QMP: QEMU's monitor, one JSON object a line over a Unix socket (https://qemu.org/docs/master/interop/qmp-spec.html)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minik8s_virtual_machines.launcher.errors import Refused

_PATIENCE_S = 60.0


class Monitor:
    """``on_event(name, data)`` is called for each event."""

    def __init__(self, on_event: Callable[[str, dict[str, Any]], None]) -> None:
        self._on_event = on_event
        self._turn = asyncio.Lock()
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def connect(self, path: Path) -> None:
        """Connect and agree on capabilities; raises OSError as long as nobody listens."""
        reader, self._writer = await asyncio.open_unix_connection(path, limit=4 << 20)
        await reader.readline()  # the greeting
        self._reading = asyncio.create_task(self._read(reader))
        await self.ask("qmp_capabilities")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                message = json.loads(line)
                if "event" in message:
                    self._on_event(message["event"], message.get("data") or {})
                else:
                    self._answers.put_nowait(message)
        self._answers.put_nowait({"error": {"desc": "it has ended"}})

    async def ask(self, command: str, **arguments: Any) -> Any:
        """Return QEMU's answer.

        Raises:
            Refused: it says no, has ended, or does not answer.
        """
        async with self._turn:
            if self._writer is None:
                raise Refused("QEMU does not run yet")
            asked = {"execute": command} | ({"arguments": arguments} if arguments else {})
            self._writer.write(json.dumps(asked).encode() + b"\n")
            try:
                answer = await asyncio.wait_for(self._answers.get(), _PATIENCE_S)
            except TimeoutError as error:
                self._writer.close()  # an answer that came later would be taken for another question's
                self._writer = None
                raise Refused(f"QEMU did not answer to {command} in {_PATIENCE_S:.0f} s") from error
        if "error" in answer:
            raise Refused(f"QEMU says: {answer['error'].get('desc')}")
        return answer.get("return")
