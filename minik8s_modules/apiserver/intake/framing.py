"""Where a request ends, read so strictly that nobody can read it otherwise; pure.

The intake (intake.py) collects a request here until it is whole: its head, then as many bytes of body as the head or
the chunks say. Only these bytes go to heads.py, which says what they mean; what follows is the next request.
A length that another reader (a proxy before us) might take for another one is refused, and the connection closed:
otherwise the tail of one client's request could become the beginning of the next one's. Allowed is less than RFC 9112
allows: one Content-Length in digits or one ``Transfer-Encoding: chunked``, lines that end in CRLF, no folded headers,
no chunk extensions and no trailers. Clients of Kubernetes send nothing else.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from minik8s_modules.api.errors import BadRequest, RequestEntityTooLarge, StatusError
from minik8s_modules.apiserver.http.bodies import MAX_BODY_BYTES

MAX_HEAD_BYTES = 64 * 1024
# what a body of the largest size has when its pieces are 300 bytes; each costs the event loop some 2 µs
MAX_CHUNKS = 10_000
# of fields that are kept with an idle connection: what clients of Kubernetes send, with a token
MAX_KEPT_BYTES = 2048
MAX_KEPT_LINES = 24
_END = b"\r\n\r\n"
_REQUEST_LINE = re.compile(rb"[!-~]+ [!-~\x80-\xff]+ HTTP/1\.([01])\r\n")
# names that others might read as one that tells a length, with what stands between name and colon; in lower case
_TELLING = re.compile(
    rb"\r\n(content[-_]length|transfer[-_]encoding|expect|host)(?![\w!#$%&'*+.^`|~-])([^:\r]*):[ \t]*([^\r]*)"
)
_FOLDED = re.compile(rb"\r\n[ \t]")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}")
_CHUNK_SIZE_BEGUN = re.compile(rb"[0-9A-Fa-f]{0,8}\r?")
# the longest line that may be a chunk's size, with its end
_CHUNK_LINE = 10


class Frame(NamedTuple):
    """What a head says about its body: ``length`` in bytes, None for chunks; ``asks`` whether to send it at all."""

    length: int | None
    asks: bool


class Whole(NamedTuple):
    """A request: the bytes of its head, with the empty line, and those of its body, without chunks' sizes.

    ``read`` is for who reads the head's fields: what is put there is there again when the connection's next request has
    the same fields. None where nothing is kept.
    """

    head: bytes
    body: bytes
    read: dict[str, str] | None = None


def read_frame(head: bytes) -> Frame:
    """Return what ``head`` says about its body.

    Raises:
        BadRequest: it can be read in more than one way.
        RequestEntityTooLarge: the body is longer than any request may have.
    """
    return _frame_of(*_split(head))


def _split(head: bytes) -> tuple[bytes, bytes]:
    """Return the version of HTTP, and what follows the request's line, from that line's end on."""
    line = _REQUEST_LINE.match(head)
    if line is None:
        raise BadRequest("the request does not start with a line like GET /path HTTP/1.1")
    return line[1], head[line.end() - 2 :]


def _frame_of(version: bytes, fields: bytes) -> Frame:
    if _half_a_break(fields) or b"\0" in fields:
        raise BadRequest("the request's head has a CR or LF outside of a line's end, or a NUL")
    if _FOLDED.search(fields):
        raise BadRequest("the request has a header that continues on a second line")
    found: dict[bytes, bytes] = {}
    for name, gap, value in _TELLING.findall(fields.lower()):
        key = name.replace(b"_", b"-")
        if gap or b"_" in name or key in found:
            raise BadRequest(f"the request has the header {key.decode()} twice, or not in the form Name: value")
        found[key] = value.rstrip(b" \t")
    return Frame(_length(found, version), _asks(found, version))


def _half_a_break(data: bytes) -> bool:
    """Return whether a line break is half of one: readers differ in whether a line ends there."""
    breaks = data.count(b"\r\n")
    return data.count(b"\n") != breaks or data.count(b"\r") - data.endswith(b"\r") != breaks


def _length(found: dict[bytes, bytes], version: bytes) -> int | None:
    length, coding = found.get(b"content-length"), found.get(b"transfer-encoding")
    if b"host" not in found and version == b"1":
        raise BadRequest("the request has no Host header")
    if coding is not None:
        if coding != b"chunked" or length is not None or version == b"0":
            raise BadRequest("Transfer-Encoding must be chunked, with HTTP/1.1 and without Content-Length")
        return None
    if length is None:
        return 0
    if not _LENGTH.fullmatch(length):
        raise BadRequest("Content-Length must be one decimal number")
    if int(length) > MAX_BODY_BYTES:
        raise RequestEntityTooLarge(MAX_BODY_BYTES)
    return int(length)


def _asks(found: dict[bytes, bytes], version: bytes) -> bool:
    expected = found.get(b"expect")
    if expected not in {None, b"100-continue"}:
        raise StatusError(417, "ExpectationFailed", "the only supported expectation is 100-continue")
    return expected is not None and version == b"1"


class Reader:
    """Collects one connection's requests; what comes too early waits for its turn.

    A client sends the same fields with request after request: what was read from them is kept for the next one.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._body: _Sized | _Chunks | None = None
        self.head = b""
        self.frame: Frame | None = None
        self._last: tuple[tuple[bytes, bytes], Frame] | None = None
        self._read: dict[str, str] | None = None

    @property
    def held(self) -> int:
        """Return how many bytes are kept."""
        return len(self.head) + len(self._buffer) + (self._body.held if self._body else 0)

    @property
    def to_come(self) -> int:
        """Return how many bytes of the body are known to be missing."""
        return max(0, (self.frame.length or 0) - len(self._buffer)) if self.frame else 0

    def feed(self, data: bytes) -> None:
        """Take what was read from the connection."""
        self._buffer += data

    def take(self) -> Whole | None:
        """Return the next request once it is whole, else None; a None that has ``frame`` waits for its body.

        Raises:
            StatusError: it is refused; nothing that follows it can be trusted to be a request.
        """
        if self._body is None:
            self._body = self._take_head()
        body = self._body.take(self._buffer) if self._body else None
        if body is None:
            return None
        whole = Whole(self.head, body, self._read)
        self.head, self.frame, self._body = b"", None, None
        return whole

    def leftover(self) -> bytes:
        """Return and forget what came after the last request."""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def _take_head(self) -> _Sized | _Chunks | None:
        end = self._buffer.find(_END, max(0, self._searched - len(_END)))
        if (end if end >= 0 else len(self._buffer)) > MAX_HEAD_BYTES:
            raise StatusError(431, "RequestHeaderFieldsTooLarge", f"the request's head has over {MAX_HEAD_BYTES} bytes")
        if end < 0:
            seen = self._searched - (self._buffer[self._searched - 1 : self._searched] == b"\r")
            if _half_a_break(bytes(self._buffer[seen:])):
                raise BadRequest("the request's head has a CR or LF outside of a line's end")
            self._searched = len(self._buffer)
            return None
        self.head = bytes(self._buffer[: end + len(_END)])
        del self._buffer[: end + len(_END)]
        self._searched = 0
        self.frame = self._read_frame()
        return _Chunks() if self.frame.length is None else _Sized(self.frame.length)

    def _read_frame(self) -> Frame:
        split = _split(self.head)
        if self._last is not None and self._last[0] == split:
            return self._last[1]
        frame = _frame_of(*split)
        few = len(split[1]) <= MAX_KEPT_BYTES and split[1].count(b"\n") <= MAX_KEPT_LINES
        self._last, self._read = ((split, frame), {}) if few else (None, None)
        return frame


class _Sized:
    """A body of a known length; it stays in the buffer until it is whole."""

    held = 0

    def __init__(self, length: int) -> None:
        self._length = length

    def take(self, buffer: bytearray) -> bytes | None:
        """Remove the body from ``buffer`` and return it, once it is whole."""
        if len(buffer) < self._length:
            return None
        body = bytes(buffer[: self._length])
        del buffer[: self._length]
        return body


class _Chunks:
    """A body in chunks; those that are whole are moved from the buffer and joined."""

    def __init__(self) -> None:
        self._joined = bytearray()
        self._count = 0
        self._size: int | None = None

    @property
    def held(self) -> int:
        """Return how many bytes are kept beside the buffer."""
        return len(self._joined)

    def take(self, buffer: bytearray) -> bytes | None:
        """Move what has come from ``buffer`` and return the body once it is whole."""
        while True:
            size = self._take_size(buffer) if self._size is None else self._size
            if size is None:
                return None
            self._size = size
            ending = bytes(buffer[size : size + 2])
            if not b"\r\n".startswith(ending):
                raise BadRequest("a chunk of the request's body does not have its declared length, or trailers follow")
            if len(ending) < len(b"\r\n"):
                return None
            self._joined += buffer[:size]
            del buffer[: size + 2]
            self._size = None
            if not size:
                return bytes(self._joined)

    def _take_size(self, buffer: bytearray) -> int | None:
        line, ended, _ = bytes(buffer[:_CHUNK_LINE]).partition(b"\r\n")
        if not (_CHUNK_SIZE if ended else _CHUNK_SIZE_BEGUN).fullmatch(line):
            raise BadRequest("a chunk's size must be up to 8 hexadecimal digits and nothing else")
        if not ended:
            return None
        size = int(line, 16)
        self._count += 1
        del buffer[: len(line) + 2]
        if len(self._joined) + size > MAX_BODY_BYTES:
            raise RequestEntityTooLarge(MAX_BODY_BYTES)
        if self._count > MAX_CHUNKS:
            raise BadRequest(f"the request's body has over {MAX_CHUNKS} chunks; send larger ones")
        return size
