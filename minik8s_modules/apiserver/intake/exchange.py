"""A WSGI application's answer (PEP 3333) as bytes: status line, headers and body.

The whole body is there before anything is sent, so every answer has its length, and a connection can be kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from typing import Any

from minik8s_modules.apiserver.intake.heads import asks_to_close

# RFC 9110: these have no body, and the first two no length either
_NO_LENGTH = ("1", "204", "304")


class Exchange:
    """One request's answer.

    Args:
        environ: the request's WSGI environment.
        close: whether the connection ends after the answer whatever the client wants; afterwards, whether it does.
    """

    def __init__(self, environ: dict[str, Any], *, close: bool) -> None:
        self._environ = environ
        self.close = close or asks_to_close(environ)
        self._status = ""
        self._headers: list[tuple[str, str]] = []
        self._written: list[bytes] = []

    def run(self, application: Callable[..., Any]) -> list[bytes]:
        """Return the answer of ``application``: its head, then the parts of its body."""
        body = application(self._environ, self._start)
        try:
            parts = [*self._written, *body]
        finally:
            if hasattr(body, "close"):
                body.close()
        return [self._head(sum(map(len, parts))), *([] if self._environ["REQUEST_METHOD"] == "HEAD" else parts)]

    def _start(self, status: str, headers: list[tuple[str, str]], exc_info: object = None) -> Callable[[bytes], None]:
        """Take status and headers; an application that failed (``exc_info``) may do so again, for nothing was sent."""
        if self._status and not exc_info:
            raise AssertionError("start_response was called twice")
        self._status, self._headers = status, headers
        return self._written.append

    def _head(self, length: int) -> bytes:
        lines = [f"HTTP/1.1 {self._status}", f"Date: {_date(int(time.time()))}"]
        lines += [f"{name}: {value}" for name, value in self._headers]
        has_length = any(name.lower() == "content-length" for name, _ in self._headers)
        if not has_length and not self._status.startswith(_NO_LENGTH):
            lines.append(f"Content-Length: {length}")
        if self.close:
            lines.append("Connection: close")
        elif self._environ["SERVER_PROTOCOL"] == "HTTP/1.0":
            lines.append("Connection: keep-alive")
        head = "\r\n".join(lines)
        if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
            raise AssertionError("a header of the answer has a line break in its value")
        return f"{head}\r\n\r\n".encode("latin-1")


@lru_cache(maxsize=2)
def _date(now_s: int) -> str:
    return formatdate(now_s, usegmt=True)
