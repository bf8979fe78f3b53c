"""A plan as Markdown for a review: the counts, a table of objects, then pods and nodes to unfold. Pure.

What users wrote stands in code spans and fenced blocks alone, whose fences are longer than any that stands in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.plans import planning

_TICKS = re.compile(r"`+")


def markdown(status: JsonObject) -> str:
    """Return the plan; GitHub's and GitLab's dialect."""
    parts = [f"### Plan: {planning.total(status)}", *_objects(status), *_messages(status), *_order(status)]
    for node, plan in sorted((status.get("nodes") or {}).items()):
        parts += _node(node, plan)
    return planning.with_unknown_names("\n\n".join(parts), status)


def _code(text: str) -> str:
    """Return a code span, also in a table's cell: a bar would end the cell, a line's end the row."""
    flat = "".join(mark if mark.isprintable() else " " for mark in text).replace("|", "\\|")
    ticks = "`" * (_longest(flat) + 1)
    room = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{ticks}{room}{flat}{room}{ticks}" if flat else ""


def _longest(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0)


def _fenced(lines: Iterable[str], language: str) -> str:
    text = "\n".join(lines).replace("\0", "�")
    fence = "`" * max(3, _longest(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _unfold(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def _objects(status: JsonObject) -> Iterator[str]:
    rows = status.get("objects") or []
    if rows:
        head = ["| | object | |", "|---|---|---|"]
        yield "\n".join([*head, *(_object(row) for row in rows)])
        lines = [line for row in rows for line in planning.differences(row)]
        if lines:
            yield _unfold("fields", _fenced(lines, "diff"))
    hidden = (status.get("hidden") or {}).get("objects")
    if hidden:
        yield f"Objects that you may not read: {hidden}"


def _object(row: JsonObject) -> str:
    sign = planning.SIGNS.get(row["action"], "~")
    return f"| `{sign}` | {_code(planning.called(row))} | {_code(planning.about_object(row))} |"


def _messages(status: JsonObject) -> Iterator[str]:
    messages = [f"- {_code(message)}" for message in status.get("messages") or []]
    if messages:
        yield "\n".join(messages)


def _order(status: JsonObject) -> Iterator[str]:
    order = status.get("order") or []
    if order:
        # a diff's colours need the sign in front
        lines = [f"{sign} {line.replace(f' {sign} ', ' ', 1)}" for sign, line in planning.order_lines(order)]
        yield _unfold(f"pods, {len(order)} steps ({planning.order_title(order)})", _fenced(lines, "diff"))


def _node(node: str, plan: JsonObject) -> Iterator[str]:
    steps, hidden = plan.get("steps") or [], plan.get("hidden", 0)
    if not steps and not hidden:
        return
    lines = [planning.step_line(step) for step in steps]
    for section, diff in (plan.get("diff") or {}).items():
        lines += planning.section_diff(node, section, diff)
    more = f", and {hidden} that you may not read" if hidden else ""
    yield _unfold(f"node {node}: {len(steps)} steps{more}", _fenced(lines, "diff"))
