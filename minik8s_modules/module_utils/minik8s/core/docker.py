"""Docker's HTTP API over its unix socket, with the standard library: ``import docker`` alone costs 146 ms of CPU.

Thread-safe: a call takes a keep-alive connection that no other call uses and that Docker has not closed: it closes each
one after five idle minutes (its ReadHeaderTimeout). One that is closed during a call is opened again once, if the call
may be repeated (GET, DELETE). Paths carry no version: Docker then answers in its newest
one, while Docker 29 refuses every version that 20.10 knows. A Pod's life has some 23 calls; http.client, which reads
the head of an answer as that of a mail, takes 0.35 ms of CPU for one instead of 0.2.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import select
import socket
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from .faults import NodeFault

BAD_REQUEST, NOT_FOUND, CONFLICT = 400, 404, 409
WITHOUT_BODY = (204, 304)
LINE_BYTES = 64 << 10
UNFIT = re.compile(r"[^!-~]")  # in a target: it would be a head's next line, or none
TIMEOUT_S = 60.0  # a slow disk makes `start` slow; the pass limit in section.py decides what is begun


class DockerError(NodeFault):
    """Docker answered ``status`` (HTTP), or 0 when it could not be reached."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Payload(NamedTuple):
    data: bytes
    kind: str = "application/json"


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket, whose socket is at hand before the answer's headers are."""

    def __init__(self, path: str, timeout_s: float | None = None) -> None:
        super().__init__("docker", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect; HTTPConnection calls it."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _Connection:
    """A connection that calls use one after the other."""

    def __init__(self, path: str, timeout_s: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout_s)
        self._source = self._socket.makefile("rb")
        try:
            self._socket.connect(path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close it."""
        self._source.close()
        self._socket.close()

    def is_open(self) -> bool:
        """Return whether Docker still waits for a call; nothing can be read of such a connection, not even its end."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def ask(self, method: str, target: str, payload: _Payload | None) -> tuple[int, bytes, bool]:
        """Return status and body of the answer, and whether the connection takes another call.

        Raises:
            OSError, http.client.HTTPException: there is no whole answer.
        """
        head = f"{method} {target} HTTP/1.1\r\nHost: docker\r\n"
        if payload is not None:
            head += f"Content-Type: {payload.kind}\r\n"
        if payload is not None or method == "POST":
            head += f"Content-Length: {len(payload.data) if payload else 0}\r\n"
        self._socket.sendall(f"{head}\r\n".encode() + (payload.data if payload else b""))
        try:
            return _answer(self._source)
        except ValueError as error:
            raise http.client.HTTPException(f"an answer that is none: {error}") from error


def _answer(source: BinaryIO) -> tuple[int, bytes, bool]:
    version, status = _line(source).split(None, 2)[:2]
    fields: dict[bytes, bytes] = {}
    while line := _line(source).strip():
        name, _, value = line.partition(b":")
        fields[name.lower()] = value.strip().lower()
    stays = version == b"HTTP/1.1" and fields.get(b"connection") != b"close"
    if int(status) in WITHOUT_BODY:
        return int(status), b"", stays
    if fields.get(b"transfer-encoding") == b"chunked":
        return int(status), b"".join(_chunks(source)), stays
    if b"content-length" in fields:
        return int(status), _exactly(source, int(fields[b"content-length"])), stays
    return int(status), source.read(), False


def _line(source: BinaryIO) -> bytes:
    line = source.readline(LINE_BYTES)
    if not line:
        raise http.client.RemoteDisconnected("the connection was closed without an answer")
    return line


def _chunks(source: BinaryIO) -> Iterator[bytes]:
    while size := int(_line(source).partition(b";")[0], 16):
        yield _exactly(source, size)
        _line(source)
    while _line(source).strip():
        pass  # fields behind the body, if any, and the empty line


def _exactly(source: BinaryIO, size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise http.client.IncompleteRead(data, size - len(data))
    return data


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return data[:500].decode("utf-8", "replace")


class Docker:
    """Calls on one dockerd."""

    def __init__(self, path: str = "/var/run/docker.sock", timeout_s: float = TIMEOUT_S) -> None:
        self.path, self._timeout_s = path, timeout_s
        self._idle: list[_Connection] = []

    def close(self) -> None:
        """Close the connections that are open; a later call opens new ones."""
        while self._idle:
            self._idle.pop().close()

    def call(self, method: str, path: str, body: Any = None, query: Mapping[str, str] | None = None) -> Any:
        """Return Docker's JSON answer, None for an empty one.

        Raises:
            DockerError: an HTTP status of 400 or more, or no answer (status 0).
        """
        target = path + ("?" + urllib.parse.urlencode(query) if query else "")
        data = self._send(method, target, None if body is None else _Payload(json.dumps(body).encode()))
        return json.loads(data) if data else None

    def import_tar(self, data: bytes, query: Sequence[tuple[str, str]]) -> None:
        """Make an image of a file system.

        Raises:
            DockerError: as of ``call``; or the import failed, which Docker answers with 200 and an error line.
        """
        target = f"/images/create?{urllib.parse.urlencode(query)}"
        answer = self._send("POST", target, _Payload(data, "application/x-tar"))
        if b'"error"' in answer:
            raise DockerError(0, answer[-500:].decode("utf-8", "replace").strip())

    def _send(self, method: str, target: str, payload: _Payload | None) -> bytes:
        if UNFIT.search(target):
            raise DockerError(0, f"{target!r} cannot be asked of docker")
        status, data = self._exchange(method, target, payload)
        if status >= BAD_REQUEST:
            raise DockerError(status, _message(data))
        return data

    def _exchange(self, method: str, target: str, payload: _Payload | None) -> tuple[int, bytes]:
        try:
            return self._once(self._take(), method, target, payload)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
            if method == "POST":
                raise DockerError(0, f"docker closed {self.path} during {method} {target}: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            raise DockerError(0, f"docker does not answer on {self.path}: {error}") from error
        self.close()  # the daemon was restarted: the other connections are dead as well
        try:
            return self._once(self._take(), method, target, payload)
        except (OSError, http.client.HTTPException) as error:
            raise DockerError(0, f"docker does not answer on {self.path}: {error}") from error

    def _take(self) -> _Connection:
        with contextlib.suppress(IndexError):  # none is left
            while True:
                connection = self._idle.pop()
                if connection.is_open():
                    return connection
                connection.close()
        return _Connection(self.path, self._timeout_s)

    def _once(self, connection: _Connection, method: str, target: str, payload: _Payload | None) -> tuple[int, bytes]:
        stays = False
        try:
            status, found, stays = connection.ask(method, target, payload)
        finally:
            if not stays:
                connection.close()
        self._idle.extend([connection] if stays else [])
        return status, found

    def containers(self, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return Docker's listing of all containers, dead ones too, that carry ``labels``."""
        wanted = json.dumps({"label": [f"{name}={value}" for name, value in labels.items()]})
        found = self.call("GET", "/containers/json", query={"all": "1", "filters": wanted})
        return list(found or [])

    def inspect(self, container: str) -> dict[str, Any] | None:
        """Return the inspection of a container by id or name, None when there is none."""
        return self._maybe(f"/containers/{urllib.parse.quote(container, safe='')}/json")

    def image(self, name: str) -> dict[str, Any] | None:
        """Return the inspection of an image by name or id, None when it is absent."""
        return self._maybe(f"/images/{urllib.parse.quote(name, safe='')}/json")

    def _maybe(self, path: str) -> dict[str, Any] | None:
        try:
            found = self.call("GET", path)
        except DockerError as error:
            if error.status == NOT_FOUND:
                return None
            raise
        return dict(found)

    def create(self, name: str, body: Mapping[str, Any]) -> str:
        """Create a container and return its id."""
        return str(self.call("POST", "/containers/create", body, {"name": name})["Id"])

    def start(self, container: str) -> None:
        """Start a container; one that runs already is fine."""
        self.call("POST", f"/containers/{container}/start")

    def unpause(self, container: str) -> None:
        """Let a paused container go on."""
        self.call("POST", f"/containers/{container}/unpause")

    def kill(self, container: str, signal: str) -> None:
        """Send ``signal`` (name) to a container's process; one that does not run any more is fine."""
        self._unless_gone("POST", f"/containers/{container}/kill", {"signal": signal}, {NOT_FOUND, CONFLICT})

    def update(self, container: str, limits: Mapping[str, Any]) -> None:
        """Change the cgroup limits of a container in place."""
        self.call("POST", f"/containers/{container}/update", dict(limits))

    def remove(self, container: str) -> None:
        """Kill and remove a container with its anonymous volumes; one that is missing or being removed is fine."""
        self._unless_gone("DELETE", f"/containers/{container}", {"force": "1", "v": "1"}, {NOT_FOUND, CONFLICT})

    def _unless_gone(self, method: str, path: str, query: Mapping[str, str], fine: set[int]) -> None:
        try:
            self.call(method, path, query=query)
        except DockerError as error:
            if error.status not in fine:
                raise
