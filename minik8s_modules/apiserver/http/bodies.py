"""Request bodies: bytes in, JSON values out, and a clear 400, 413 or 415 for what cannot be read.

Whatever form a value came in, it is neither too deep nor too large (``api/size_limits.py``) when it leaves here. YAML
is ``yaml_bodies``' part.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import orjson
from flask import Request

from minik8s_modules.api import size_limits
from minik8s_modules.api.errors import MOST_TOLD, BadRequest, RequestEntityTooLarge, UnsupportedMediaType
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http import yaml_bodies
from minik8s_modules.apiserver.protobuf import decode as protobuf

# kube-apiserver's limit on request bodies (apiserver/pkg/server/config.go, MaxRequestBodyBytes)
MAX_BODY_BYTES = 3 * 1024 * 1024
JSON = "application/json"
YAML = "application/yaml"
BODY = "minik8s.body"  # where a request's body stands in its environment once it is read, for the audit log
READABLE = (JSON, YAML, protobuf.MEDIA)


def read(request: Request) -> bytes:
    """Return the request's body.

    Raises:
        RequestEntityTooLarge: it is longer than MAX_BODY_BYTES.
        BadRequest: the connection ended in the middle of it.
    """
    declared = request.content_length
    if declared is not None and declared > MAX_BODY_BYTES:
        raise RequestEntityTooLarge(MAX_BODY_BYTES)
    try:
        body: bytes = request.environ["wsgi.input"].read(MAX_BODY_BYTES + 1)
    except OSError as error:
        raise BadRequest(f"the request's body could not be read: {error}") from error
    if len(body) > MAX_BODY_BYTES:
        raise RequestEntityTooLarge(MAX_BODY_BYTES)
    if declared is not None and len(body) < declared:
        raise BadRequest(f"the request's body ends after {len(body)} of {declared} bytes")
    request.environ[BODY] = body
    return body


def media_type(request: Request) -> str:
    """Return the body's media type without parameters; JSON where the request does not say."""
    return (request.content_type or JSON).split(";", 1)[0].strip().lower()


def parse(body: bytes, media: str, values_allowed: int = size_limits.MAX_VALUES) -> Any:
    """Return the value ``body`` holds.

    Raises:
        BadRequest: it is not valid JSON, YAML or protobuf, or nested too deeply.
        StatusError: 413: it has too many values, or is too much YAML.
        UnsupportedMediaType: ``media`` is none of them.
    """
    if media == JSON or media.endswith("+json"):
        return parse_json(body, values_allowed)
    if media == YAML or media.endswith("+yaml"):
        return parse_yaml(body)
    if media == protobuf.MEDIA:
        value = protobuf.decode(body)
        size_limits.check(value)  # parts of it are JSON
        return value
    raise UnsupportedMediaType(READABLE)


def parse_object(body: bytes, media: str, values_allowed: int = size_limits.MAX_VALUES) -> JsonObject:
    """Return the object ``body`` holds; anything but an object is a BadRequest."""
    value = parse(body, media, values_allowed)
    if not isinstance(value, dict):
        raise BadRequest(f"the request's body must be an object, not {_named(value)}")
    return value


def parse_json(body: bytes, values_allowed: int = size_limits.MAX_VALUES) -> Any:
    """Return the JSON value of ``body``."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the request's body is not valid JSON: {error}") from error
    if not size_limits.fits(body, values_allowed):
        size_limits.check(value, values_allowed)
    return value


def parse_yaml(body: bytes) -> Any:
    """Return the value of ``body``, a single YAML document; one that is JSON is read as such, and may be as long."""
    if body.lstrip()[:1] == b"{":
        try:
            value = parse_json(body)
        except BadRequest:
            return yaml_bodies.load(body)  # {a: b} is YAML, too
        twice = duplicate_fields(body, JSON, value)
        if twice:
            raise BadRequest(f"the request's body is not valid YAML: {', '.join(twice)}")
        return value
    return yaml_bodies.load(body)


# where a name of an object ends; strings that begin with a colon are counted, too, but no quotes within strings, of
# which the annotation of kubectl apply has many
_NAME_END = re.compile(rb'"(?<!\\")[ \t\n\r]*:')
_BACKSLASH_ENDS = b'\\\\"'  # a quote behind a backslash that may end its string


def duplicate_fields(body: bytes, media: str, value: Any) -> list[str]:
    """Return ``duplicate field "name"`` for names that JSON objects of ``body`` have twice, MOST_TOLD at most.

    ``body`` has been parsed to ``value``: it is neither deep nor large. YAML refuses such names itself.
    """
    if media != JSON:
        return []
    # as many names came out as can have been in it: none stood for two
    if _BACKSLASH_ENDS not in body and len(_NAME_END.findall(body)) == size_limits.names(value):
        return []
    found: dict[str, None] = {}

    def note(pairs: list[tuple[str, Any]]) -> None:
        if len(found) < MOST_TOLD and len(pairs) != len({name for name, _ in pairs}):
            counts = Counter(name for name, _ in pairs)
            found.update({f'duplicate field "{name}"': None for name, count in counts.items() if count > 1})

    json.loads(body, object_pairs_hook=note)
    return list(found)[:MOST_TOLD]


def _named(value: Any) -> str:
    if isinstance(value, list):
        return "a list"
    return "null" if value is None else type(value).__name__
