"""Answers: JSON bytes, Status objects, Warning headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

import orjson
from flask import Response
from werkzeug.datastructures import Headers

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http.bodies import JSON

# apiserver/pkg/endpoints/filters/warning.go: one warning is cut at 256 characters, all together at 4 KiB
_MAX_WARNING = 256
_MAX_WARNINGS = 16
# with a body, and without a place to go to
_PLAIN = frozenset({HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT})
# "404 Not Found", as Kubernetes says it: people read it in errors of Python clients; Werkzeug would shout it
_STATUS_LINES = {each.value: f"{each.value} {each.phrase}" for each in HTTPStatus}


def raw(body: bytes, code: int = 200, warnings: Iterable[str] = (), media: str = JSON) -> Response:
    """Return ``body`` as it is."""
    headers = Headers()  # none of these is there yet: setting one would look for it
    headers.add("Content-Type", media)
    headers.add("Content-Length", len(body))
    headers.add("Cache-Control", "no-cache, private")
    response = Response([body], _STATUS_LINES.get(code, code), headers)
    for text in list(warnings)[:_MAX_WARNINGS]:
        warn(response, text)
    return response


def warn(response: Response, text: str) -> None:
    """Tell the client ``text`` with an answer."""
    response.headers.add("Warning", f'299 - "{_quoted(text)}"')


def _quoted(text: str) -> str:
    plain = "".join(char if char.isascii() and char.isprintable() else "?" for char in text[:_MAX_WARNING])
    return plain.replace("\\", "\\\\").replace('"', '\\"')


def begun(response: Response, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Begin an answer as WSGI has it, and return its body.

    Nothing that ``raw`` has made needs what Werkzeug does for each answer, a twentieth of what a GET costs.
    """
    body = response.response
    if type(response) is Response and type(body) is list and response.status_code in _PLAIN:
        start_response(response.status, list(response.headers))
        return body
    return response(environ, start_response)


def json(value: Any, code: int = 200, warnings: Iterable[str] = ()) -> Response:
    """Return ``value`` as JSON."""
    return raw(orjson.dumps(value), code, warnings)


def failure(error: StatusError) -> Response:
    """Return the Status of an error, with Retry-After where it names a time."""
    response = json(error.status(), error.code)
    if error.retry_after_s:
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def success(kind: Kind, name: str, uid: str, code: int = 200, warnings: Iterable[str] = ()) -> Response:
    """Return the Status of what succeeded and has no object to show."""
    status: JsonObject = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": name, "group": kind.group, "kind": kind.plural, "uid": uid},
    }
    if code != 200:  # noqa: PLR2004 - OK is left out, as Kubernetes does
        status["code"] = code
    return json(status, code, warnings)
