"""Asks an address over and over, at a steady rate, and tells at its end what was answered: JSON on standard output.

Run as a program, in the network namespace of a client: ``python -m tests.support.requesting ADDRESS PORT PATH RATE``;
it ends when its standard input does. Connections are kept, and some are new, as those of browsers and libraries are.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any

LANES = 32
"""Requests under way at once, at most."""
PER_CONNECTION = 50
PATIENCE_S = 30.0


class Asking:
    """What was answered so far."""

    def __init__(self, address: str, port: int, path: str) -> None:
        self._address, self._port = address, port
        self._request = f"GET {path} HTTP/1.1\r\nHost: web\r\n\r\n".encode()
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []
        self.latencies_ms: list[float] = []

    async def lane(self, tickets: asyncio.Queue[float | None]) -> None:
        """Ask once for each ticket, until there is none."""
        connection: Any = None
        asked = 0
        while (due := await tickets.get()) is not None:
            try:
                if connection is None or asked % PER_CONNECTION == 0:
                    await _close(connection)
                    connection = await asyncio.wait_for(asyncio.open_connection(self._address, self._port), PATIENCE_S)
                code, body = await asyncio.wait_for(self._ask(*connection), PATIENCE_S)
            except (OSError, ValueError, asyncio.IncompleteReadError, TimeoutError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
                connection = None
                continue
            asked += 1
            self.latencies_ms.append((time.monotonic() - due) * 1000)
            if code == 200:
                self.answers[body] += 1
            else:
                self.failures.append(f"{code} {body}")
        await _close(connection)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[int, str]:
        writer.write(self._request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = next(int(line[15:]) for line in head.lower().splitlines() if line.startswith("content-length:"))
        return int(head.split()[1]), (await reader.readexactly(length)).decode()


async def _close(connection: Any) -> None:
    if connection is not None:
        connection[1].close()


async def ask(asking: Asking, rate: int) -> None:
    """Ask so many times a second until standard input ends."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), over.set)
    tickets: asyncio.Queue[float | None] = asyncio.Queue()
    lanes = [asyncio.create_task(asking.lane(tickets)) for _ in range(LANES)]
    begun, number = time.monotonic(), 0
    while not over.is_set():
        await asyncio.sleep(0.005)
        while number < (time.monotonic() - begun) * rate:
            number += 1
            tickets.put_nowait(time.monotonic())
    for _ in lanes:
        tickets.put_nowait(None)
    await asyncio.gather(*lanes)


if __name__ == "__main__":
    found = Asking(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    started = time.monotonic()
    asyncio.run(ask(found, int(sys.argv[4])))
    told = {"answers": found.answers, "failures": found.failures, "latencies_ms": sorted(found.latencies_ms)}
    print(json.dumps({**told, "seconds": time.monotonic() - started}))
