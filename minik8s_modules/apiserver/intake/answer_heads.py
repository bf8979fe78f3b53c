"""The head of what a node answers on a tunnel: it says that the connection ends with the answer. Pure.

From there on the connection leads to the node, whoever uses it. A node that said nothing of the kind would be sent the
next request of a client that keeps connections, with the client's token, and could answer it in the API server's name.
A head that programs read in different ways is refused.
"""

from __future__ import annotations

import re

LARGEST = 64 * 1024
_END = b"\r\n\r\n"
_STATUS = re.compile(rb"HTTP/1\.[01] ([2-5]\d\d|101)( [^\r\n]*)?")
_LONE = re.compile(rb"\r(?!\n)|(?<!\r)\n")
_OURS = frozenset({b"connection", b"keep-alive", b"proxy-connection"})
_SWITCHED = b"101"


class AnswerHead:
    """The beginning of an answer, as it comes; ``switches`` says whether the request asked for another protocol."""

    def __init__(self, *, switches: bool) -> None:
        self._switches = switches
        self._held = b""
        self._passed = False

    def take(self, data: bytes) -> bytes:
        """Return what goes to the client of what came, nothing before the head is complete.

        Raises:
            ValueError: it is no head.
        """
        if self._passed:
            return data
        self._held += data
        head, end, rest = self._held.partition(_END)
        if len(head) > LARGEST:
            raise ValueError(f"the answer's head is longer than {LARGEST} bytes")
        if not end:
            return b""
        self._held, self._passed = b"", True
        return closing(head, switches=self._switches) + rest


def closing(head: bytes, *, switches: bool) -> bytes:
    """Return a head that ends the connection, or goes over to another protocol. Raises ValueError."""
    first, *lines = head.split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if status is None or _LONE.search(head) or any(line[:1] in {b" ", b"\t"} for line in lines):
        raise ValueError("the answer has no usable head")
    if status[1] == _SWITCHED:
        if not switches:
            raise ValueError("the answer switches to a protocol that was not requested")
        return head + _END
    kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in _OURS]
    return b"\r\n".join([first, *kept, b"Connection: close"]) + _END
