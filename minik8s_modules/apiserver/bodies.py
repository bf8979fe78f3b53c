"""Request bodies: bytes in, JSON values out, and a clear 400, 413 or 415 for what cannot be read.

YAML is read as Kubernetes reads it: times stay strings, one document, keys are strings. Anchors and aliases
are refused, because a few hundred bytes of them unfold into gigabytes; kubectl unfolds them before it sends.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import orjson
import yaml
from flask import Request

from minik8s_modules.api.errors import BadRequest, RequestEntityTooLarge, UnsupportedMediaType
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.protobuf import decode as protobuf

# kube-apiserver's limit on request bodies (apiserver/pkg/server/config.go, MaxRequestBodyBytes)
MAX_BODY_BYTES = 3 * 1024 * 1024
# deeper than any kind's schema; orjson itself stops at 1,024
MAX_DEPTH = 200
JSON = "application/json"
YAML = "application/yaml"
BODY = "minik8s.body"  # where a request's body stands in its environment once it is read, for the audit log
READABLE = (JSON, YAML, protobuf.MEDIA)


class _Loader(yaml.CSafeLoader):
    """YAML's safe types without timestamps."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the class attribute PyYAML looks at
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


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


def parse(body: bytes, media: str) -> Any:
    """Return the value ``body`` holds.

    Raises:
        BadRequest: it is no valid JSON, YAML or protobuf.
        UnsupportedMediaType: ``media`` is none of them.
    """
    if media == JSON or media.endswith("+json"):
        return parse_json(body)
    if media == YAML or media.endswith("+yaml"):
        return parse_yaml(body)
    if media == protobuf.MEDIA:
        return protobuf.decode(body)
    raise UnsupportedMediaType(READABLE)


def parse_object(body: bytes, media: str) -> JsonObject:
    """Return the object ``body`` holds; anything but an object is a BadRequest."""
    value = parse(body, media)
    if not isinstance(value, dict):
        raise BadRequest(f"the request's body must be an object, not {_named(value)}")
    return value


def parse_json(body: bytes) -> Any:
    """Return the JSON value of ``body``."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the request's body is no valid JSON: {error}") from error


def parse_yaml(body: bytes) -> Any:
    """Return the value of ``body``, a single YAML document of JSON's types."""
    try:
        _check_events(body)
        value = yaml.load(body, _Loader)  # noqa: S506 - a safe loader, made stricter
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        told = " ".join(str(error).split())
        raise BadRequest(f"the request's body is no valid YAML: {told}") from error
    _check_plain(value, "")
    return value


class _Collection:
    """A YAML mapping or sequence while its events pass."""

    def __init__(self, *, mapping: bool) -> None:
        self.mapping = mapping
        self.at_key = mapping
        self.keys: set[str] = set()

    def pass_node(self, text: str | None) -> None:
        """Note a key or value that begins here; ``text`` is a scalar's."""
        if self.at_key and text is not None:
            if text in self.keys:
                raise yaml.YAMLError(f"the key {text!r} is given twice")
            self.keys.add(text)
        self.at_key = self.mapping and not self.at_key


def _check_events(body: bytes) -> None:
    """Refuse aliases, keys given twice, and deep nesting (libyaml's composer would recurse until the process dies)."""
    stack: list[_Collection] = []
    for event in yaml.parse(body, _Loader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not accepted; write the value out where it is used")
        if isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
            continue
        if stack and isinstance(event, yaml.NodeEvent):
            stack[-1].pass_node(event.value if isinstance(event, yaml.ScalarEvent) else None)
        if isinstance(event, yaml.CollectionStartEvent):
            stack.append(_Collection(mapping=isinstance(event, yaml.MappingStartEvent)))
        if len(stack) > MAX_DEPTH:
            raise yaml.YAMLError(f"it is nested more than {MAX_DEPTH} levels deep")


def duplicate_fields(body: bytes, media: str) -> list[str]:
    """Return ``duplicate field "name"`` for each name a JSON object of ``body`` has twice; YAML refuses them itself."""
    if media != JSON:
        return []
    found: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        if len(pairs) != len({name for name, _ in pairs}):
            counts = Counter(name for name, _ in pairs)
            found.extend(f'duplicate field "{name}"' for name, count in counts.items() if count > 1)

    json.loads(body, object_pairs_hook=note)
    return found


def _check_plain(value: Any, path: str) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise BadRequest(f"the YAML body has the key {key!r} in {path or 'its top level'}; quote it")
            _check_plain(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _check_plain(inner, f"{path}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise BadRequest(f"the YAML body has the number {value} at {path.lstrip('.')}; JSON has none such")
    elif not isinstance(value, str | int | float | bool | None):
        raise BadRequest(f"the YAML body has a value of type {type(value).__name__} at {path.lstrip('.')}")


def _named(value: Any) -> str:
    if isinstance(value, list):
        return "a list"
    return "null" if value is None else type(value).__name__
