"""One node's Docker, by its socket: ping, containers, images, events, pulls.

The Docker SDK would do as well, with 5 MB of modules in a process that mostly waits; what calls need the nodes' own
client has (``core/docker.py``), and streams had sockets of their own already, to be broken off by.

Only containers labelled with the node's name are seen. Events arrive on one stream for containers and
images, without Docker's label filter (images carry no such label); other containers' events are skipped
here.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import mktime_tz, parsedate_tz
from http import HTTPStatus
from typing import Any, NamedTuple

import orjson

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.gateway.errors import DockerUnavailable, PullCancelled, PullFailed
from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.core.docker import Docker, DockerError, UnixConnection
from minik8s_modules.module_utils.minik8s.core.observations import observation_from_inspect
from minik8s_modules.streams.frames import demultiplexer

API_VERSION = "1.40"  # the version the node's modules speak: Docker 19.03 to 29
TIMEOUT_S = 10
PING_TIMEOUT_S = 5.0
CONTAINER_ACTIONS = ("create", "start", "die", "oom", "destroy", "update", "pause")
_IMAGE_ACTIONS = ("pull", "tag", "untag", "delete", "import", "load")
_EVENT_FILTERS = {"type": ["container", "image"], "event": [*CONTAINER_ACTIONS, *_IMAGE_ACTIONS]}


class DockerEvent(NamedTuple):
    """``id`` is the container's, empty for an image event; ``time_ns`` is the daemon's clock."""

    action: str
    id: str
    time_ns: int


class EventStream:
    """Iterator of a node's ``DockerEvent``; ends when Docker ends it or ``close`` was called from any thread."""

    def __init__(self, connection: UnixConnection, response: http.client.HTTPResponse, node: str) -> None:
        self._connection, self._response = connection, response
        self._node = node
        self._closed = False

    def __iter__(self) -> Iterator[DockerEvent]:
        """Yield the events as they come."""
        try:
            for message in _json_lines(self._response):
                event = self._event(message)
                if event is not None:
                    yield event
        except (http.client.HTTPException, OSError, ValueError, AttributeError) as error:
            # AttributeError, ValueError: a read that was overtaken by release, and lines that are no JSON
            if not self._closed:
                raise DockerUnavailable(f"the event stream broke off: {error}") from error

    def close(self) -> None:
        """End the stream; its reader stops."""
        self._closed = True
        _shut_down(self._connection)

    def release(self) -> None:
        """Close the connection; for the reading thread, when it is done."""
        self._closed = True
        self._response.close()
        self._connection.close()

    def _event(self, message: Mapping[str, Any]) -> DockerEvent | None:
        actor = message.get("Actor") or {}
        time_ns = int(message.get("timeNano") or 0)
        if message.get("Type") == "image":
            return DockerEvent(message["Action"], "", time_ns)
        if (actor.get("Attributes") or {}).get(labels.NODE) != self._node:
            return None
        return DockerEvent(message["Action"], str(actor.get("ID") or ""), time_ns)


class Pull:
    """One pull under way; ``run`` in one thread, ``cancel`` from any.

    Docker sends an answer's headers only with the first progress, so a pull that waits for its registry can be
    cancelled by its socket alone.
    """

    def __init__(self, engine: Engine, socket_path: str, image: str, auth: Mapping[str, str] | None) -> None:
        self._engine = engine
        self._connection = UnixConnection(socket_path)
        self._image = image
        self._auth = auth
        self._lock = threading.Lock()
        self._cancelled = False

    def run(self) -> str:
        """Pull the image; return its id.

        Raises:
            PullFailed: Docker said why.
            PullCancelled: ``cancel`` was called.
            DockerUnavailable: the connection to Docker broke.
        """
        try:
            self._open()
            self._follow()
            return self._engine.image_id(self._image)
        except (http.client.HTTPException, OSError, ValueError) as error:
            if self._cancelled:
                raise PullCancelled(f"the pull of {self._image} was cancelled") from error
            raise DockerUnavailable(f"the pull of {self._image} was cut: {error}") from error
        finally:
            with self._lock:
                self._connection.close()
            self._engine.close()

    def cancel(self) -> None:
        """Break the pull off; Docker stops it when its caller is gone."""
        with self._lock:
            self._cancelled = True
            _shut_down(self._connection)

    def _open(self) -> None:
        with self._lock:
            if self._cancelled:
                raise PullCancelled(f"the pull of {self._image} was cancelled")
            self._connection.connect()
        repository, tag = _reference(self._image)
        query = urllib.parse.urlencode({"fromImage": repository, "tag": tag})
        headers = {"X-Registry-Auth": _encoded(self._auth)} if self._auth else {}
        self._connection.request("POST", f"/v{API_VERSION}/images/create?{query}", headers=headers)

    def _follow(self) -> None:
        response = self._connection.getresponse()
        if response.status != HTTPStatus.OK:
            raise PullFailed(_message(response.read()))
        for line in response:
            error = orjson.loads(line).get("error") if line.strip() else None
            if error:
                raise PullFailed(str(error))
        if self._cancelled:
            raise PullCancelled(f"the pull of {self._image} was cancelled")


class Engine:
    """Calls on the dockerd behind the unix socket ``socket_path`` for node ``node``; thread-safe."""

    def __init__(self, socket_path: str, node: str) -> None:
        self._node = node
        self._socket_path = socket_path
        self._docker = Docker(socket_path, TIMEOUT_S)

    def ping(self) -> float | None:
        """Return the node's time when Docker answers: whole seconds since 1970, None where the answer has none.

        Raises:
            DockerUnavailable: it does not, within 5 s.
        """
        connection = UnixConnection(self._socket_path, PING_TIMEOUT_S)
        try:
            connection.request("GET", "/_ping")
            answer = connection.getresponse()
            status, date = answer.status, answer.getheader("Date", "")
        except (http.client.HTTPException, OSError) as error:
            raise DockerUnavailable(f"docker ping: {error}") from error
        finally:
            connection.close()
        if status != HTTPStatus.OK:
            raise DockerUnavailable(f"docker ping: status {status}")
        parsed = parsedate_tz(date)
        return float(mktime_tz(parsed)) if parsed else None

    def containers(self) -> list[JsonObject]:
        """Return the observations of all the node's containers, running or not."""
        with _translated("list"):
            found = self._docker.containers({labels.NODE: self._node})
        observations = [self.container(entry["Id"]) for entry in found]
        return [each for each in observations if each is not None]

    def container(self, container_id: str) -> JsonObject | None:
        """Return the container's observation; None when it is gone."""
        with _translated("inspect"):
            found = self._docker.inspect(container_id)
            return None if found is None else observation_from_inspect(found)

    def log_end(self, container_id: str, lines: int) -> bytes:
        """Return the last lines of a container's log, both streams; nothing when it is gone."""
        with _translated("logs"):
            found = self._docker.inspect(container_id)
            if found is None:
                return b""
            connection, response = self._get(f"/containers/{container_id}/logs", stdout=1, stderr=1, tail=lines)
            with contextlib.closing(connection):
                if response.status == HTTPStatus.NOT_FOUND:
                    return b""
                frames = demultiplexer(tty=bool(found["Config"]["Tty"]))
                return b"".join(data for _, data in frames.feed(_whole(response)))

    def images(self) -> list[str]:
        """Return every name (``repo:tag``, ``repo@sha256:…``) and id of the images present, sorted."""
        with _translated("images"):
            found = self._docker.call("GET", "/images/json") or []
        names = {image["Id"] for image in found}
        for image in found:
            names.update(image.get("RepoTags") or ())
            names.update(image.get("RepoDigests") or ())
        return sorted(name for name in names if "<none>" not in name)

    def image_id(self, image: str) -> str:
        """Return the id of ``image``.

        Raises:
            PullFailed: there is no such image.
        """
        with _translated("inspect"):
            found = self._docker.image(image)
        if found is None:
            raise PullFailed(f"image {image} was removed after it was pulled")
        return str(found["Id"])

    def events(self, since_ns: int) -> EventStream:
        """Return the events after ``since_ns`` of the daemon's clock; 0 for from now on."""
        since = {"since": f"{since_ns // 10**9}.{since_ns % 10**9:09d}"} if since_ns else {}
        with _translated("events"):
            connection, response = self._get("/events", filters=orjson.dumps(_EVENT_FILTERS).decode(), **since)
            if response.status != HTTPStatus.OK:
                with contextlib.closing(connection):
                    _whole(response)
            connection.sock.settimeout(None)  # only Docker knows when something happens
        return EventStream(connection, response, self._node)

    def close(self) -> None:
        """Close the idle connections."""
        self._docker.close()

    def _get(self, path: str, **query: object) -> tuple[UnixConnection, http.client.HTTPResponse]:
        """Return a connection of its own with an answer whose body comes yet."""
        connection = UnixConnection(self._socket_path, TIMEOUT_S)
        try:
            connection.request("GET", f"/v{API_VERSION}{path}?{urllib.parse.urlencode(query)}")
            return connection, connection.getresponse()
        except BaseException:
            connection.close()
            raise


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turn whatever goes wrong into ``DockerUnavailable``."""
    try:
        yield
    except (DockerError, http.client.HTTPException, OSError, ValueError) as error:
        raise DockerUnavailable(f"docker {what}: {error}") from error


def _whole(response: http.client.HTTPResponse) -> bytes:
    """Return an answer's body. Raises DockerError."""
    data = response.read()
    if response.status != HTTPStatus.OK:
        raise DockerError(response.status, _message(data))
    return data


def _json_lines(response: http.client.HTTPResponse) -> Iterator[JsonObject]:
    """Yield the JSON objects, one a line, of a streamed answer as soon as each is complete."""
    rest = b""
    while data := response.read1():
        *lines, rest = (rest + data).split(b"\n")
        yield from (orjson.loads(line) for line in lines if line.strip())
    if rest.strip():
        yield orjson.loads(rest)


def _shut_down(connection: UnixConnection) -> None:
    """Have whoever reads find the end."""
    if connection.sock is not None:
        with contextlib.suppress(OSError):  # it has ended by itself
            connection.sock.shutdown(socket.SHUT_RDWR)


def _encoded(auth: Mapping[str, str]) -> str:
    """Return a registry's credentials as Docker's header has them."""
    return base64.urlsafe_b64encode(json.dumps(dict(auth)).encode()).decode("ascii")


def _reference(image: str) -> tuple[str, str]:
    """Return (repository, tag or digest) as Docker's API takes them; ``latest`` where neither is given."""
    name, at, digest = image.partition("@")
    if at:
        return name, digest
    head, colon, tag = image.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (image, "latest")


def _message(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body[:500].decode("utf-8", "replace")
