"""Asks at a steady rate, however long answers take: ``python -m ... ADDRESS PORT RATE SECONDS``. It prints JSON.

An answer's time begins when the request is due: one that waits for a free connection has waited for its answer. Plain
sockets and one loop, so that a thousand requests a second take a fifth of a processor here.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections import deque

CONNECTIONS = 16
_END = b"\r\n\r\n"


class Lane:
    """A connection with at most one request under way."""

    def __init__(self, address: str, port: int) -> None:
        self.socket = socket.create_connection((address, port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(0)
        self.due_s, self._received = 0.0, b""

    def is_answered(self) -> bool:
        """Read; return whether the answer is complete."""
        received = self.socket.recv(65536)
        assert received, "the connection has ended"
        self._received += received
        head, found, body = self._received.partition(_END)
        if not found:
            return False
        assert head.startswith(b"HTTP/1.1 200"), head
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        if len(body) < length:
            return False
        self._received = b""
        return True


def ask(address: str, port: int, rate: float, seconds: float) -> list[float]:
    """Return how long each answer took, in milliseconds."""
    request = f"GET / HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
    lanes = [Lane(address, port) for _ in range(CONNECTIONS)]
    selector = selectors.DefaultSelector()
    for each in lanes:
        selector.register(each.socket, selectors.EVENT_READ, each)
    free, waiting, found = deque(lanes), deque[float](), list[float]()
    begun, number, whole = time.monotonic(), 0, int(rate * seconds)
    while len(found) < whole:
        now = time.monotonic()
        while number < whole and begun + number / rate <= now:
            waiting.append(now)  # not when it was due: a selector wakes up to a millisecond late
            number += 1
        while waiting and free:
            lane = free.popleft()
            lane.due_s = waiting.popleft()
            lane.socket.send(request)
        for key, _events in selector.select(max(0.0, begun + number / rate - now) if number < whole else 30.0):
            if key.data.is_answered():
                found.append(1000 * (time.monotonic() - key.data.due_s))
                free.append(key.data)
    for each in lanes:
        each.socket.close()
    return found


if __name__ == "__main__":
    print(json.dumps(ask(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))))
