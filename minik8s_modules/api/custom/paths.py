"""JSONPath as CustomResourceDefinitions use it: columns of tables, and the fields of a scale.

``.spec.replicas``, ``.metadata.annotations['a.b/c']``, ``.spec.list[0].name``, ``.status.conditions[?(@.type=="Ready")]
.status``, ``[*]`` and ``..name``, at any depth. Of several values a column shows the first. Source: client-go
``util/jsonpath``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_STEP = re.compile(
    r"""(?P<deep>\.\.(?=\[)|\.(?=\.[^.\[])) | \.(?P<name>(?:[^.\[\]\\]|\\.)+) | \[\s*'(?P<quoted>(?:[^'\\]|\\.)*)'\s*\]
    | \[\s*"(?P<double>[^"]*)"\s*\] | \[\s*(?P<index>-?[0-9]+)\s*\] | (?P<all>\[\s*\*\s*\]|\.\*)
    | \[\?\(\s*@(?P<left>(?:\.[^.\s=!<>()\[\]]+)+)\s*
      (?:(?P<operator>==|!=)\s*(?P<right>'[^']*'|"[^"]*"|[^\s)]+))?\s*\)\]""",
    re.VERBOSE,
)
Step = Callable[[Any], Iterator[Any]]


def compile_path(text: str) -> Callable[[Any], Iterator[Any]]:
    """Return the function that yields what ``text`` finds in an object.

    Raises:
        ValueError: the text is no JSONPath of the kinds above.
    """
    if not text.startswith((".", "[", "@")):
        raise ValueError(f"invalid JSONPath {text!r}: it must begin with a dot")
    steps, at = [], 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise ValueError(f"invalid JSONPath {text!r} at {text[at:]!r}")
        steps.append(_step(found))
        at = found.end()

    def find(obj: Any) -> Iterator[Any]:
        values: Iterable[Any] = (obj,)
        for step in steps:
            values = [inner for value in values for inner in step(value)]
        return iter(values)

    return find


def _step(found: re.Match[str]) -> Step:
    if found["deep"]:
        return _deep
    if found["all"]:
        return _all
    if found["index"]:
        return _at(int(found["index"]))
    if found["left"]:
        return _where(found["left"].split(".")[1:], found["operator"], found["right"])
    name = found["name"] if found["name"] is not None else found["quoted"] if found["quoted"] is not None else ""
    name = found["double"] if found["double"] is not None else re.sub(r"\\(.)", r"\1", name)
    return _all if name == "*" else _field(name)


def _field(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _at(index: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _all(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()


def _deep(value: Any) -> Iterator[Any]:
    """Yield a value that holds others, and those below it that do."""
    if isinstance(value, dict | list) and value:
        yield value
        for inner in _all(value):
            yield from _deep(inner)


def _where(names: list[str], operator: str | None, right: str | None) -> Step:
    wanted = (right or "").strip("'\"")

    def holds(item: Any) -> bool:
        for name in names:
            item = item.get(name) if isinstance(item, dict) else None
        if operator is None:
            return item is not None
        text = str(item).lower() if isinstance(item, bool) else str(item)
        return item is not None and (text == wanted) == (operator == "==")

    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from (item for item in value if holds(item))

    return step


_FIELDS = re.compile(r"(\.[^.\[\]'\"\s]+|\['[^']+'\])+")
_FIELD = re.compile(r"\.([^.\[\]'\"\s]+)|\['([^']+)'\]")


def fields_of(text: str) -> tuple[str, ...]:
    """Return the fields a plain path names: ``.spec.replicas`` is ("spec", "replicas").

    Raises:
        ValueError: the path has more than fields.
    """
    if not _FIELDS.fullmatch(text):
        raise ValueError(f"invalid path {text!r}: it must name fields only, as in `.spec.replicas`")
    return tuple(found[1] or found[2] for found in _FIELD.finditer(text))
