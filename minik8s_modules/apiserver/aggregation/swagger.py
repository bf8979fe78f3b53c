"""OpenAPI v2 of extensions, joined with the server's own; pure.

There is one such document for all groups. Of an extension's counts what lies below its own group and version, with the
definitions that it needs. None of these takes the place of another's: one that differs gets a name of its own, and none
says that it describes a kind of another group. Source: kube-openapi ``pkg/aggregator``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

import orjson

from minik8s_modules.api.access.api_services import Remote
from minik8s_modules.api.objects import JsonObject

_REFERENCE = "#/definitions/"
_GVK = "x-kubernetes-group-version-kind"


class Part(NamedTuple):
    """What a document says of one extension: paths, and definitions by their names."""

    paths: Mapping[str, JsonObject] = {}
    definitions: Mapping[str, JsonObject] = {}


def part_of(code: int, body: bytes, remote: Remote) -> Part:
    """Return what counts of an extension's answer. Raises ValueError when it is no such document."""
    if code != HTTPStatus.OK:
        raise ValueError(f"bad status {code}")
    document = orjson.loads(body)
    if not isinstance(document, dict) or document.get("swagger") != "2.0":
        raise ValueError("the answer is not an OpenAPI document of version 2")
    paths, definitions = document.get("paths"), document.get("definitions")
    if not isinstance(paths, dict) or not isinstance(definitions, dict):
        raise ValueError("the document has no paths or definitions")  # noqa: TRY004 - what came, not what was passed
    own = {path: each for path, each in paths.items() if _is_below(path, remote.path) and isinstance(each, dict)}
    found = {name: _own_kinds(each, remote) for name, each in _needed(own, definitions).items()}
    try:
        orjson.dumps([own, found])
    except orjson.JSONEncodeError as error:  # what is nested too deeply for an answer
        raise ValueError(f"the document cannot be passed on: {error}") from error
    return Part(own, found)


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}/")


def _needed(paths: JsonObject, definitions: JsonObject) -> dict[str, JsonObject]:
    """Return the definitions that paths refer to, and those that these refer to."""
    found: dict[str, JsonObject] = {}
    waiting = [*_references(paths)]
    while waiting:
        name = waiting.pop()
        if name not in found and isinstance(definitions.get(name), dict):
            found[name] = definitions[name]
            waiting += _references(found[name])
    return found


def _references(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        reference = document.get("$ref")
        if isinstance(reference, str) and reference.startswith(_REFERENCE):
            yield reference.removeprefix(_REFERENCE)
        document = document.values()
    elif not isinstance(document, list):
        return
    for each in document:
        yield from _references(each)


def _own_kinds(definition: JsonObject, remote: Remote) -> JsonObject:
    """Return a definition that says of no other group's kind that it describes it: programs look kinds up by that."""
    if _GVK not in definition:
        return definition
    said = definition[_GVK] if isinstance(definition[_GVK], list) else []
    own = [each for each in said if isinstance(each, dict) and _is_of(each, remote)]
    return {**{key: value for key, value in definition.items() if key != _GVK}, **({_GVK: own} if own else {})}


def _is_of(kind: JsonObject, remote: Remote) -> bool:
    return (kind.get("group"), kind.get("version")) == (remote.group, remote.version)


def merged(own: bytes, parts: Iterable[Part]) -> bytes:
    """Return the server's own document with the parts of extensions; the first who has a name keeps it."""
    document = orjson.loads(own)
    paths, definitions = document["paths"], document["definitions"]
    for part in parts:
        names = dict(_renamed(part.definitions, definitions))
        # what is there stays word for word: the same text would refer to what is the extension's own from now on
        new = {name: each for name, each in part.definitions.items() if name in names or name not in definitions}
        definitions.update({names.get(name, name): _named(each, names) for name, each in new.items()})
        paths.update({path: _named(each, names) for path, each in part.paths.items()})
    return orjson.dumps(document)


def _renamed(new: Mapping[str, JsonObject], known: Mapping[str, JsonObject]) -> Iterator[tuple[str, str]]:
    """Yield the names that somebody has for something else, each with the one that takes its place."""
    taken = {*new, *known}
    for name, definition in new.items():
        if known.get(name, definition) != definition:
            number = 2
            while f"{name}_v{number}" in taken:
                number += 1
            taken.add(f"{name}_v{number}")
            yield name, f"{name}_v{number}"


def _named(document: Any, names: Mapping[str, str]) -> Any:
    """Return what was told with references to renamed definitions."""
    if isinstance(document, list):
        return [_named(each, names) for each in document]
    if not isinstance(document, dict):
        return document
    found = {key: _named(value, names) for key, value in document.items()}
    reference = found.get("$ref")
    if isinstance(reference, str) and (name := names.get(reference.removeprefix(_REFERENCE))):
        found["$ref"] = f"{_REFERENCE}{name}"
    return found
