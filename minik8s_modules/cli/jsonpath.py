"""JSONPath as kubectl takes it: templates of text and ``{expressions}``, for output, columns and sorting.

An expression is a row of steps (``.name``, ``['name']``, ``[0]``, ``[1:3]``, ``[*]``, ``..name``, ``[?(@.a=="b")]``)
from the object down; each turns a list of values into a longer or shorter one, and what is missing is simply not there.
``{range X}…{end}`` repeats. Source: kubernetes.io, "JSONPath Support".
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from minik8s_modules.cli.errors import UsageError

_STEP = re.compile(
    r"""
      \.\.(?P<deep>[\w-]+)
    | \.?\[\?\((?P<filter>.+?)\)\]
    | \.?\['(?P<quoted>[^']*)'\]
    | \.?\["(?P<quoted2>[^"]*)"\]
    | \.?\[(?P<slice>-?\d*:-?\d*)\]
    | \.?\[(?P<index>-?\d+)\]
    | (?P<all>\.?\[\*\]|\.\*)
    | \.(?P<name>(?:\\.|[^.\[\]{}\s\\])+)
    """,
    re.VERBOSE,
)
_FILTER = re.compile(r"\s*@(?P<path>\S*?)\s*(?:(?P<op>==|!=|<=|>=|<|>)\s*(?P<value>.+?)\s*)?$")
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_PART = re.compile(r"\{((?:[^{}\"']|\"(?:\\.|[^\"\\])*\"|'[^']*')*)\}|([^{}]+)")


def find(expression: str, value: Any) -> list[Any]:
    """Return the values ``expression`` leads to, with or without its braces and its first dot.

    Raises:
        UsageError: it is no expression.
    """
    text = expression.strip().removeprefix("{").removesuffix("}").strip()
    text = text[1:] if text[:1] in {"$", "@"} else text
    if text in {"", "."}:
        return [value]
    text = text if text.startswith((".", "[")) else f".{text}"
    found, at = [value], 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            raise UsageError(f'"{expression}" is no JSONPath: nothing can be made of "{text[at:]}"')
        found = [inner for each in found for inner in _after(step, each)]
        at = step.end()
    return found


def _after(step: re.Match[str], value: Any) -> Iterator[Any]:
    kind, text = step.lastgroup, step.group(step.lastgroup or 0)
    if kind in {"name", "quoted", "quoted2"}:
        name = re.sub(r"\\(.)", r"\1", text) if kind == "name" else text
        if isinstance(value, dict) and name in value:
            yield value[name]
    elif kind == "deep":
        yield from _deep(text, value)
    elif kind == "all":
        yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    elif isinstance(value, list):
        yield from _of_list(str(kind), text, value)


def _of_list(kind: str, text: str, values: list[Any]) -> Iterator[Any]:
    if kind == "index":
        yield from values[int(text) :][:1] if abs(int(text)) <= len(values) else ()
    elif kind == "slice":
        first, last = (int(part) if part else None for part in text.split(":"))
        yield from values[first:last]
    else:
        yield from (each for each in values if _holds(text, each))


def _deep(name: str, value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        if name in value:
            yield value[name]
        for inner in value.values():
            yield from _deep(name, inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _deep(name, inner)


def _holds(condition: str, value: Any) -> bool:
    parsed = _FILTER.match(condition)
    if parsed is None:
        raise UsageError(f'"{condition}" is no filter; write it as @.name=="value"')
    found = find(parsed["path"] or ".", value)
    if not parsed["op"]:
        return bool(found)
    wanted = _literal(parsed["value"])
    try:
        return any(_OPERATORS[parsed["op"]](each, wanted) for each in found)
    except TypeError:
        return False


def _literal(text: str) -> Any:
    if text[:1] == "'" and text[-1:] == "'":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        return text


def shown(value: Any) -> str:
    """Return a value as text: strings as they are, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def render(template: str, value: Any) -> str:
    """Return ``template`` with its expressions filled in; several values of one expression are a space apart.

    Raises:
        UsageError: a brace or a range is not closed, or an expression is none.
    """
    return _rendered(_parts(template), value)


def _parts(template: str) -> list[tuple[str, str]]:
    found, at = [], 0
    for match in _PART.finditer(template):
        if match.start() != at:
            break
        found.append(("text", match[2]) if match[1] is None else ("expression", match[1].strip()))
        at = match.end()
    if at != len(template):
        raise UsageError(f'the template\'s "{template[at:]}" has a brace without its other')
    return found


def _rendered(parts: Sequence[tuple[str, str]], value: Any) -> str:
    text = ""
    while parts:
        (kind, content), parts = parts[0], parts[1:]
        if kind == "text":
            text += content
        elif content == "end":
            raise UsageError("the template has {end} without {range}")
        elif content.startswith("range "):
            body, parts = _split_range(parts)
            text += "".join(_rendered(body, each) for each in find(content[6:], value))
        elif content[:1] in {'"', "'"}:
            text += str(_literal(content)).replace("\\n", "\n").replace("\\t", "\t")
        else:
            text += " ".join(shown(each) for each in find(content, value))
    return text


def _split_range(parts: Sequence[tuple[str, str]]) -> tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str]]]:
    depth = 1
    for index, (kind, content) in enumerate(parts):
        if kind == "expression" and content.startswith("range "):
            depth += 1
        elif (kind, content) == ("expression", "end"):
            depth -= 1
            if not depth:
                return parts[:index], parts[index + 1 :]
    raise UsageError("the template has {range} without {end}")
