"""``plan`` and ``drift`` in words: objects first, then pods in their order, then nodes. Pure.

``brief`` has a line an object, pod or node's subject and the counts; ``render`` has every field, step and difference.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import yaml

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.output import BOLD, GREEN, RED, YELLOW, Paint, coloured_diff

SIGNS = {"create": "+", "start": "+", "remove": "-", "delete": "-", "stop": "-", "refuse": "!"}
COLOURS = {"+": GREEN, "-": RED, "~": YELLOW, "!": RED}
ORDER = "pods come and go in this order; those with the same number in any order"
ORDERS = "pods of each workload come and go in this order; those with the same number in any order"
UNKNOWN = "<1>, <2>, … stand for names not known yet"
_FIELDS = 3
_VALUE = 60
_SUFFIX = 5


class Field(NamedTuple):
    """One field that differs; None where it is absent."""

    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        """Return ``path: before → after``, values cut short."""
        if self.before is None:
            return f"{self.path}: {_value(self.after)} added"
        if self.after is None:
            return f"{self.path}: {_value(self.before)} removed"
        return f"{self.path}: {_value(self.before)} → {_value(self.after)}"


def _value(value: Any) -> str:
    text = value if isinstance(value, str) and value.isprintable() and value else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE else f"{text[: _VALUE - 1]}…"


def fields(before: Any, after: Any, path: str = "") -> Iterator[Field]:
    """Yield what differs; entries of lists are told apart by name where all have one, else by their place."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in [*before, *(name for name in after if name not in before)]:
            yield from fields(before.get(name), after.get(name), f"{path}.{name}" if path else str(name))
    elif _named(before) and _named(after):
        old, new = ({entry["name"]: entry for entry in each} for each in (before, after))
        for name in [*old, *(name for name in new if name not in old)]:
            yield from fields(old.get(name), new.get(name), f"{path}[{name}]")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from fields(one, other, f"{path}[{number}]")
    else:
        yield Field(path, before, after)


def _named(entries: Any) -> bool:
    if not isinstance(entries, list) or not all(isinstance(each, dict) and "name" in each for each in entries):
        return False
    return len({str(each["name"]) for each in entries}) == len(entries) > 0


def has_changes(status: JsonObject) -> bool:
    """Return whether an object or a node would change."""
    if any(row["action"] != "refuse" for row in status.get("objects") or []) or status.get("order"):
        return True
    hidden = status.get("hidden") or {}
    nodes = status.get("nodes", {}).values()
    return any(plan.get("steps") or plan.get("hidden") for plan in nodes) or bool(hidden.get("objects"))


def refused(status: JsonObject) -> list[JsonObject]:
    """Return the rows of the objects that would be refused."""
    return [row for row in status.get("objects") or [] if row["action"] == "refuse"]


def summary(status: JsonObject) -> JsonObject:
    """Return the counts: ``objects`` and ``pods`` by action, ``steps``, and the ``nodes`` that change of how many."""
    nodes = status.get("nodes") or {}
    found = [len(plan.get("steps", [])) + plan.get("hidden", 0) for plan in nodes.values()]
    return {
        "objects": dict(Counter(row["action"] for row in status.get("objects") or [])),
        "pods": dict(Counter(row["action"] for row in status.get("order") or [])),
        "steps": sum(found),
        "nodes": sum(map(bool, found)),
        "nodesAsked": len(nodes),
    }


def total(status: JsonObject) -> str:
    """Return the counts in words."""
    if not status.get("nodes"):
        return "no node was planned, so nothing is known of what nodes would do"
    if not has_changes(status) and not refused(status):
        return "no changes"
    counts = summary(status)
    words = {"create": "to create", "update": "to change", "delete": "to delete", "refuse": "refused"}
    parts = []
    for what in ("objects", "pods"):
        phrases = [f"{counts[what][action]} {word}" for action, word in words.items() if action in counts[what]]
        parts += [f"{what}: {', '.join(phrases)}"] if phrases else []
    return "; ".join(
        [*parts, f"{counted(counts['steps'], 'step')} on {counts['nodes']} of {counts['nodesAsked']} nodes"]
    )


def counted(count: int, what: str) -> str:
    """Return ``1 step``, ``2 steps``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def render(status: JsonObject, paint: Paint) -> str:
    """Return everything: each object with its fields, each node with its steps and differences."""
    parts = [*_objects(status, paint, full=True), *_messages(status, paint), *_order(status, paint)]
    nodes = status.get("nodes", {})
    for node in sorted(nodes):
        parts += _node(node, nodes[node], paint)
    return with_unknown_names("\n".join([*parts, total(status)]), status)


def brief(status: JsonObject, paint: Paint) -> str:
    """Return a line an object, a pod, and what a node's steps are about."""
    parts = [*_objects(status, paint, full=False), *_messages(status, paint), *_order(status, paint)]
    nodes = status.get("nodes", {})
    for node in sorted(nodes):
        parts += _node_in_brief(node, nodes[node], paint)
    parts.append(total(status))
    if has_changes(status):
        parts.append("every field, step and difference: --full")
    return with_unknown_names("\n".join(parts), status)


def with_unknown_names(text: str, status: JsonObject) -> str:
    """Return the text with numbers in place of the ends of names that are made when their pods are."""
    unknown = [row["name"] for row in status.get("objects") or [] if row.get("nameUnknown")]
    unknown += [row["pod"].rpartition("/")[2] for row in status.get("order") or [] if row.get("nameUnknown")]
    for number, name in enumerate(dict.fromkeys(unknown), 1):
        text = text.replace(name, f"{name[:-_SUFFIX]}<{number}>")
    return text


def called(row: JsonObject) -> str:
    """Return an object as people call it: ``Pod default/web``; ``Secrets`` where it is about all of a kind."""
    if not (row.get("namespace") or row.get("name")):
        return f"{row['kind']}s"
    return f"{row['kind']} {'/'.join(filter(None, (row.get('namespace'), row.get('name'))))}"


def about_object(row: JsonObject) -> str:
    """Return what is told of an object in one line besides its name."""
    if row["action"] == "refuse":
        message = "".join(mark if mark.isprintable() else " " for mark in str(row.get("message")))
        return f"refused: {' '.join(message.split())}"
    if row.get("because"):
        return f"with {str(row['because']).replace('/', ' ', 1)}"
    if row.get("message"):
        return str(row["message"])
    if row["action"] != "update":
        return ""
    found = [*fields(row.get("before"), row.get("after"))]
    more = len(found) - _FIELDS
    return "; ".join([*map(str, found[:_FIELDS]), *([f"{more} more"] if more > 0 else [])])


def differences(row: JsonObject) -> list[str]:
    """Return the lines of an object's unified diff, as YAML."""
    where = called(row)
    before, after = (
        yaml.safe_dump(row[side], sort_keys=True, allow_unicode=True).splitlines() if row.get(side) else []
        for side in ("before", "after")
    )
    return [*difflib.unified_diff(before, after, f"{where} (now)", f"{where} (planned)", lineterm="")]


def _objects(status: JsonObject, paint: Paint, *, full: bool) -> Iterator[str]:
    rows, hidden = status.get("objects") or [], (status.get("hidden") or {}).get("objects", 0)
    if rows or hidden:
        yield paint("objects", BOLD)
    for row in rows:
        sign = SIGNS.get(row["action"], "~")
        yield paint(f"  {sign} {called(row)}", COLOURS[sign]) + _after(about_object(row))
        if full and (lines := differences(row)):
            yield coloured_diff(lines, paint)
    if hidden:
        yield f"  and {_hidden(hidden)}"


def _after(text: str) -> str:
    return f"  {text}" if text else ""


def _messages(status: JsonObject, paint: Paint) -> Iterator[str]:
    yield from (paint(f"! {message}", YELLOW) for message in status.get("messages", []))
    if hidden := (status.get("hidden") or {}).get("messages"):
        yield paint(f"! messages about objects you may not read: {hidden}", YELLOW)


def _hidden(count: int) -> str:
    return f"{count} change{'' if count == 1 else 's'} to objects you may not read"


def by_workload(order: Sequence[JsonObject]) -> list[list[JsonObject]]:
    """Return the places by workload, as the order between these is not told; pods of their own are together."""
    found: dict[tuple[str, str], list[JsonObject]] = {}
    for place in order:
        workload = str(place.get("workload") or "")
        found.setdefault((str(place["pod"]).partition("/")[0] if workload else "", workload), []).append(place)
    return [*found.values()]


def order_title(order: Sequence[JsonObject]) -> str:
    """Return what is promised of the order."""
    return ORDERS if len(by_workload(order)) > 1 else ORDER


def order_lines(order: Sequence[JsonObject]) -> Iterator[tuple[str, str]]:
    """Yield sign and line of each pod that comes or goes, a workload's together."""
    for step in chain.from_iterable(by_workload(order)):
        comes = step.get("action") == "create"
        where = f"{'on' if comes else 'from'} {step['node']}" if step.get("node") else "on no node"
        owner = f"  ({step['owner']})" if step.get("owner") else ""
        yield "+" if comes else "-", f"{step.get('turn', ''):>3} {'+' if comes else '-'} {step['pod']}  {where}{owner}"


def _order(status: JsonObject, paint: Paint) -> Iterator[str]:
    order, hidden = status.get("order") or [], (status.get("hidden") or {}).get("order", 0)
    if order:
        unknown = any(row.get("nameUnknown") for row in order)
        title = order_title(order)
        yield paint(f"{title}; {UNKNOWN}" if unknown else title, BOLD)
        yield from (paint(f"  {line}", COLOURS[sign]) for sign, line in order_lines(order))
    if hidden:
        yield f"  and {_hidden(hidden)}"


def subjects(steps: Iterable[JsonObject]) -> Iterator[tuple[str, str]]:
    """Yield sign and line of each object that a node's steps are about, with the number of steps by section."""
    found: dict[str, list[JsonObject]] = {}
    for step in steps:
        first = next(iter(step.get("about") or []), None)
        found.setdefault(called(first) if first else "something that is not shown to anybody", []).append(step)
    for subject, own in found.items():
        signs = {SIGNS.get(str(step.get("action")), "~") for step in own}
        counts = Counter(str(step.get("section")) for step in own)
        sign = signs.pop() if len(signs) == 1 else "~"
        left = f"  {left_so(len(own), held)}" if (held := sum("policy" in step for step in own)) else ""
        yield sign, f"{sign} {subject}  {', '.join(f'{section} {count}' for section, count in counts.items())}{left}"


def left_so(steps: int, held: int) -> str:
    """Say that a policy for drift has ``held`` of the steps not done by themselves."""
    return f"({'reported only' if held == steps else f'{held} reported only'})"


def _node_in_brief(node: str, plan: JsonObject, paint: Paint) -> Iterator[str]:
    steps, hidden = plan.get("steps", []), plan.get("hidden", 0)
    if not steps and not hidden:
        return
    yield paint(f"node {node}", BOLD)
    yield from (paint(f"  {line}", COLOURS[sign]) for sign, line in subjects(steps))
    if hidden:
        yield f"  {_hidden(hidden)}"


def step_line(step: JsonObject) -> str:
    """Return one step of a node."""
    action = str(step.get("action", ""))
    sign, detail = SIGNS.get(action, "~"), _after(str(step.get("detail") or ""))
    left = f"  {left_so(1, 1)}" if step.get("policy") else ""
    return f"{sign} {step.get('section', '')}: {action} {step.get('key', '')}{detail}{left}"


def section_diff(node: str, section: str, diff: JsonObject) -> list[str]:
    """Return the lines of the unified diff of a node's section."""
    before, after = (str(diff.get(side, "")).splitlines() for side in ("before", "after"))
    return [*difflib.unified_diff(before, after, f"{node}/{section} (now)", f"{node}/{section} (planned)", lineterm="")]


def _node(node: str, plan: JsonObject, paint: Paint) -> Iterator[str]:
    steps, hidden = plan.get("steps", []), plan.get("hidden", 0)
    if not steps and not hidden:
        return
    yield paint(f"node {node}", BOLD)
    yield from (f"  {step_line(step)}" for step in steps)
    if hidden:
        yield f"  {_hidden(hidden)}"
    for section, diff in plan.get("diff", {}).items():
        yield coloured_diff(section_diff(node, section, diff), paint)
