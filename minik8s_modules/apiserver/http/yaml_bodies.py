"""YAML bodies: one document of JSON's types, read in one pass over libyaml's events, in time linear in its length.

Plain scalars mean what they mean to kube-apiserver (sigs.k8s.io/yaml ``goyaml.v2/resolve.go``): ``yes``, ``on`` and
``y`` are true, ``0o17`` and ``017`` are fifteen, ``1e3`` is a number; times and numbers to the base 60 (``1:30``) are
texts. Refused, each with its line: aliases (a few hundred bytes of them unfold into gigabytes; kubectl unfolds them
before it sends), keys given twice, keys that are no text, tags of other types, numbers that JSON cannot hold.

Clients that know Kubernetes send JSON, also as ``application/apply-patch+yaml``, so the limit on YAML is low: libyaml
and its events cost some 0.5 µs a byte where orjson takes 0.02.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from minik8s_modules.api.errors import BadRequest, StatusError
from minik8s_modules.api.size_limits import MAX_DEPTH, MAX_VALUES, too_deep, too_many_values

MAX_YAML_BYTES = 256 * 1024

_TAG = "tag:yaml.org,2002:"
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_INTEGER = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_BASES = (16, 2, 8, 10)  # of the groups of _INTEGER
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NUMERIC = frozenset("+-.0123456789")
_LONGEST_INTEGER = 66  # a sign, "0b" and 64 digits would be one more; longer ones cannot fit into 64 bits
_TYPES = {"str": str, "int": int, "float": float, "bool": bool, "null": type(None)}


def load(body: bytes) -> Any:
    """Return the value of ``body``, a single YAML document of JSON's types.

    Raises:
        BadRequest: it is none; the message says why, and in which line.
        StatusError: 413: it is longer than MAX_YAML_BYTES, or has more than MAX_VALUES values.
    """
    if len(body) > MAX_YAML_BYTES:
        message = f"Request entity too large: limit is {MAX_YAML_BYTES} for YAML; send longer bodies as JSON"
        raise StatusError(413, "RequestEntityTooLarge", message)
    try:
        text = body.decode()
        if text.startswith("%TAG") or "\n%TAG" in text:  # libyaml compares each with all before it
            raise _Refused("%TAG directives are not accepted; write the tags in full")
        return _read(text)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise BadRequest(f"the request's body is not valid YAML: {' '.join(str(error).split())}") from error


class _Refused(ValueError):
    """The document says something that is not accepted."""

    def __init__(self, why: str, event: yaml.Event | None = None) -> None:
        mark = event.start_mark if event is not None else None
        super().__init__(f"line {mark.line + 1}: {why}" if mark is not None else why)


def _read(text: str) -> Any:
    builder = _Builder()
    for event in yaml.parse(text, yaml.CSafeLoader):
        if isinstance(event, yaml.DocumentStartEvent) and builder.documents:
            raise _Refused("a second document starts here; send one document per request", event)
        if isinstance(event, yaml.AliasEvent):
            raise _Refused("aliases are not accepted; repeat the value where it is used", event)
        if isinstance(event, yaml.ScalarEvent):
            builder.put(_scalar(event), event)
        elif isinstance(event, yaml.CollectionStartEvent):
            builder.open(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            builder.close()
    return builder.documents[0] if builder.documents else None


class _Builder:
    """Puts the values of events where they belong; keeps its own stack, so that depth costs none of Python's."""

    def __init__(self) -> None:
        self.documents: list[Any] = []
        self._open: list[dict[str, Any] | list[Any]] = [self.documents]
        self._keys: list[str | None] = [None]  # of each open mapping, the key whose value comes next
        self._values = 0

    def put(self, value: Any, event: yaml.NodeEvent) -> None:
        """Put a key or value into the innermost collection."""
        holder = self._open[-1]
        if isinstance(holder, list):
            holder.append(value)
        elif self._keys[-1] is None:
            self._keys[-1] = _key(holder, value, event)
            return
        else:
            holder[self._keys[-1]] = value
            self._keys[-1] = None
        self._values += 1
        if self._values > MAX_VALUES:
            raise too_many_values()

    def open(self, event: yaml.CollectionStartEvent) -> None:
        """Begin a mapping or sequence."""
        mapping = isinstance(event, yaml.MappingStartEvent)
        made: dict[str, Any] | list[Any] = {} if mapping else []
        wanted = "map" if mapping else "seq"
        if event.tag not in (None, "!", _TAG + wanted):
            raise _Refused(f"the tag {event.tag} is not accepted", event)
        self.put(made, event)
        self._open.append(made)
        self._keys.append(None)
        if len(self._open) > MAX_DEPTH + 1:
            raise too_deep(f"more than {MAX_DEPTH}")

    def close(self) -> None:
        """End the innermost collection."""
        self._open.pop()
        self._keys.pop()


def _key(holder: dict[str, Any], value: Any, event: yaml.NodeEvent) -> str:
    if not isinstance(value, str):
        raise _Refused(f"the key {getattr(event, 'value', 'of several values')} is not a string; quote it", event)
    if value in holder:
        raise _Refused(f"the key {value!r} is given twice", event)
    return value


def _scalar(event: yaml.ScalarEvent) -> Any:
    if event.tag is None:
        found = _resolved(event.value) if event.implicit[0] else event.value
    elif event.tag in {"!", f"{_TAG}str"}:
        return event.value
    else:
        kind = _TYPES.get(event.tag.removeprefix(_TAG))
        found = _resolved(event.value)
        found = float(found) if kind is float and type(found) is int else found
        if kind is None or type(found) is not kind:
            raise _Refused(f"the tag {event.tag} is not accepted for {event.value[:80]!r}", event)
    if isinstance(found, float) and not math.isfinite(found):
        raise _Refused(
            f"{event.value[:80]} is a number that JSON cannot represent; quote it if it is meant as text", event
        )
    return found


def _resolved(text: str) -> Any:
    """Return what a plain scalar means; infinity for a number that is too large."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC:
        return text
    plain = text.replace("_", "")
    number = _INTEGER.fullmatch(plain)
    if number is not None:
        return _integer(number)
    return float(plain) if _FLOAT.fullmatch(plain) else text


def _integer(number: re.Match[str]) -> float:
    """Return a number of 64 bits; a longer one as a float, as JSON's are read."""
    digits, base = next((part, base) for part, base in zip(number.groups()[1:], _BASES, strict=True) if part)
    if len(digits) <= _LONGEST_INTEGER:
        value = int(number[1] + digits, base)
        if -(2**63) <= value < 2**64:
            return value
    return float(number[1] + digits) if base == 10 else math.inf  # noqa: PLR2004 - decimal
