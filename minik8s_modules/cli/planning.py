"""``plan`` and ``drift``: what would change on which node, as steps and a diff a node; nothing is stored or touched."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.output import BOLD, GREEN, RED, YELLOW, Paint, coloured_diff

SIGNS = {"create": "+", "start": "+", "remove": "-", "delete": "-", "stop": "-"}


def render(status: JsonObject, paint: Paint) -> str:
    """Return the readable form of a Plan's status."""
    parts = [paint(f"! {message}", YELLOW) for message in status.get("messages", [])]
    hidden = status.get("hidden") or {}
    if hidden.get("messages"):
        parts.append(paint(f"! messages about objects you may not read: {hidden['messages']}", YELLOW))
    parts += _order(status.get("order") or [], paint)
    if hidden.get("order"):
        parts.append(f"  and {_hidden(hidden['order'])}")
    nodes = status.get("nodes", {})
    for node in sorted(nodes):
        parts += _node(node, nodes[node], paint)
    if not nodes:
        return "\n".join([*parts, "no node was planned, so nothing is known"])
    found = [len(plan.get("steps", [])) + plan.get("hidden", 0) for plan in nodes.values()]
    changes, touched = sum(found), sum(map(bool, found))
    steps = "1 step" if changes == 1 else f"{changes} steps"
    parts.append(f"{steps} on {touched} of {len(nodes)} nodes" if changes else "no changes")
    return "\n".join(parts)


def has_changes(status: JsonObject) -> bool:
    """Return whether any node would change."""
    return any(plan.get("steps") or plan.get("hidden") for plan in status.get("nodes", {}).values())


def _hidden(count: int) -> str:
    return f"{count} change{'' if count == 1 else 's'} to objects you may not read"


def _order(order: Sequence[JsonObject], paint: Paint) -> Iterator[str]:
    """Yield in which order pods come and go; the names of new ones are placeholders."""
    if not order:
        return
    yield paint("pods come and go in this order (names of new ones are placeholders)", BOLD)
    for number, step in enumerate(order, 1):
        comes = step.get("action") == "create"
        where = f"{'on' if comes else 'from'} {step['node']}" if step.get("node") else "on no node"
        line = f"  {number:>3} {'+' if comes else '-'} {step.get('pod', '')}  {where}  ({step.get('owner', '')})"
        yield paint(line, GREEN if comes else RED)


def _node(node: str, plan: JsonObject, paint: Paint) -> Iterator[str]:
    steps, hidden = plan.get("steps", []), plan.get("hidden", 0)
    if not steps and not hidden:
        return
    yield paint(f"node {node}", BOLD)
    for step in steps:
        action = str(step.get("action", ""))
        sign = SIGNS.get(action, "~")
        detail = f"  {step['detail']}" if step.get("detail") else ""
        yield f"  {sign} {step.get('section', '')}: {action} {step.get('key', '')}{detail}"
    if hidden:
        yield f"  {_hidden(hidden)}"
    for section, diff in plan.get("diff", {}).items():
        before, after = str(diff.get("before", "")), str(diff.get("after", ""))
        lines = difflib.unified_diff(
            before.splitlines(),
            after.splitlines(),
            f"{node}/{section} (now)",
            f"{node}/{section} (planned)",
            lineterm="",
        )
        yield coloured_diff(lines, paint)
