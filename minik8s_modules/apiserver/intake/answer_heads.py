"""The head of what a node answers on a tunnel: it says that the connection ends with the answer. Pure.

From there on the connection leads to the node, whoever uses it. A node that said nothing of the kind would be sent the
next request of a client that keeps connections, with the client's token, and could answer it in the API server's name.
A head that programs read in different ways is refused.

What a Pod answers a proxy is the Pod's. What a node answers for itself (logs, exec) is text, JSON or a stream: of its
head only the lines of those go on, nothing that sets a cookie or makes a page of it, and no answer that sends the
client elsewhere (kubectl follows redirects, with its credentials where the host is the same).
"""

from __future__ import annotations

import re

LARGEST = 64 * 1024
_END = b"\r\n\r\n"
_STATUS = re.compile(rb"HTTP/1\.[01] ([2-5]\d\d|101)( [^\r\n]*)?")
_LONE = re.compile(rb"\r(?!\n)|(?<!\r)\n")
_OURS = frozenset({b"connection", b"keep-alive", b"proxy-connection"})
_SWITCHED = b"101"
_ELSEWHERE = b"3"
_NODES = frozenset({b"cache-control", b"content-length", b"content-type", b"date", b"transfer-encoding"})
_OF_STREAMS = frozenset({b"connection", b"upgrade", b"x-stream-protocol-version"})
_WEBSOCKET = b"sec-websocket-"
_MEDIA = re.compile(rb"(text/plain|application/json)( *;[^\r\n]*)?", re.IGNORECASE)
_TOLD_ELSEWHERE = (
    b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"InternalError","code":502,'
    b'"message":"the node answered with a redirect to somewhere else, which is not followed"}'
)
_BAD_GATEWAY = (
    b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
    % (len(_TOLD_ELSEWHERE), _TOLD_ELSEWHERE)
)


class AnswerHead:
    """The beginning of an answer, as it comes.

    ``switches`` says whether the request asked for another protocol, ``of_node`` whether the node answers for itself.
    """

    def __init__(self, *, switches: bool, of_node: bool = True) -> None:
        self._switches, self._of_node = switches, of_node
        self._held = b""
        self._passed = self._refused = False

    def take(self, data: bytes) -> bytes:
        """Return what goes to the client of what came, nothing before the head is complete.

        Raises:
            ValueError: it is no head.
        """
        if self._passed:
            return b"" if self._refused else data
        self._held += data
        head, end, rest = self._held.partition(_END)
        if len(head) > LARGEST:
            raise ValueError(f"the answer's head is longer than {LARGEST} bytes")
        if not end:
            return b""
        self._held, self._passed = b"", True
        told = closing(head, switches=self._switches, of_node=self._of_node)
        self._refused = told is None
        return _BAD_GATEWAY if told is None else told + rest


def closing(head: bytes, *, switches: bool, of_node: bool) -> bytes | None:
    """Return a head that ends the connection, or goes over to another protocol; None for a node's redirect.

    Raises ValueError.
    """
    first, *lines = head.split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if status is None or _LONE.search(head) or any(line[:1] in {b" ", b"\t"} for line in lines):
        raise ValueError("the answer has no usable head")
    if status[1] == _SWITCHED:
        if not switches:
            raise ValueError("the answer switches to a protocol that was not requested")
        return b"\r\n".join([first, *(line for line in lines if not of_node or _is_of_stream(line))]) + _END
    if not of_node:
        kept = [line for line in lines if _name(line) not in _OURS]
        return b"\r\n".join([first, *kept, b"Connection: close"]) + _END
    if status[1].startswith(_ELSEWHERE):
        return None
    kept = [_harmless(line) for line in lines if _name(line) in _NODES]
    return b"\r\n".join([first, *kept, b"X-Content-Type-Options: nosniff", b"Connection: close"]) + _END


def _name(line: bytes) -> bytes:
    return line.partition(b":")[0].strip().lower()


def _is_of_stream(line: bytes) -> bool:
    return _name(line) in _OF_STREAMS or _name(line).startswith(_WEBSOCKET)


def _harmless(line: bytes) -> bytes:
    """Return the line; what says that a browser is to run or show the answer says plain text."""
    is_media = _name(line) == b"content-type"
    return b"Content-Type: text/plain" if is_media and not _MEDIA.fullmatch(line.partition(b":")[2].strip()) else line
