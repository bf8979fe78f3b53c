"""What of a plan's answer is shown: the rows about objects that its requester may ``get``, and the number of the rest.

Reconcilers say of every row what it shows something of, as fields (``about``, reconcile/feeds/plan_subjects.py). A row
is shown when its requester may read all of that; one that does not say is for those who may read everything. Pure, but
for asking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from minik8s_modules.api.kind import Registry
from minik8s_modules.api.kinds import KINDS, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.authorization.authorization import Requester

_EVERYTHING = Attributes("get", "*", "*")
Sight = Callable[[JsonObject], bool]
"""Returns whether a row may be shown."""


def about(kind: Kind, namespace: str, name: str) -> list[JsonObject]:
    """Return what a row of this server's own is about: one object."""
    return [{"apiVersion": kind.api_version, "kind": kind.kind, "namespace": namespace, "name": name}]


def sight_of(requester: Requester | None, kinds: Registry = KINDS) -> Sight:
    """Return what ``requester`` may see; without one it is the server itself, which may see everything."""
    if requester is None:
        return lambda _: True
    known: dict[Attributes, bool] = {}

    def may(asked: Attributes) -> bool:
        if asked not in known:
            known[asked] = requester.access.allowed(requester.user, asked)
        return known[asked]

    def shown(row: JsonObject) -> bool:
        found = row.get("about")
        return all(may(_asked(one, kinds)) for one in found) if isinstance(found, list) else may(_EVERYTHING)

    return shown


def _asked(one: Any, kinds: Registry) -> Attributes:
    if not isinstance(one, Mapping):
        return _EVERYTHING
    group, slash, _ = str(one.get("apiVersion")).rpartition("/")
    if slash and one.get("kind") == "*":  # whatever a group has in the namespace, such as metrics
        return Attributes("get", group, "*", str(one.get("namespace") or ""))
    kind = kinds.by_api_version(str(one.get("apiVersion")), str(one.get("kind")))
    if kind is None:
        return _EVERYTHING
    return Attributes("get", kind.group, kind.plural, str(one.get("namespace") or ""), str(one.get("name") or ""))


def shown(answer: JsonObject, sight: Sight) -> JsonObject:
    """Return a Plan's status from the reconcilers' ``answer``.

    ``hidden`` counts what is left out: in a node's part its steps (or, without steps, differences), in the status
    messages, the places in the order, and API objects.
    """
    messages, order = _seen(answer["messages"], sight), _seen(answer.get("order") or [], sight)
    asked = answer.get("objects") or []
    planned = _seen(asked, sight)
    hidden = {"messages": len(answer["messages"]) - len(messages), "order": len(answer.get("order") or []) - len(order)}
    hidden |= {"objects": len(asked) - len(planned)} if len(planned) < len(asked) else {}
    return {
        **({"objects": [_without_mark(row) for row in planned]} if planned else {}),
        "nodes": {name: _node(part, sight) for name, part in answer["nodes"].items()},
        "messages": [str(each["text"]) for each in messages],
        **({"order": order} if order else {}),
        **({"hidden": hidden} if any(hidden.values()) else {}),
    }


def _without_mark(row: JsonObject) -> JsonObject:
    return {field: value for field, value in row.items() if field != "about"}


def _seen(rows: Sequence[Any], sight: Sight) -> list[JsonObject]:
    return [row for row in rows if isinstance(row, dict) and sight(row)]


def _node(part: JsonObject, sight: Sight) -> JsonObject:
    steps, subjects = _seen(part["steps"], sight), part.get("about") or {}
    diff, differing, kept = {}, 0, 0
    for section, each in part["diff"].items():
        keys = {*each["before"], *each["after"]}
        seen = {key for key in keys if sight({"about": (subjects.get(section) or {}).get(key)})}
        differing, kept = differing + len(keys), kept + len(seen)
        if seen:
            diff[section] = {when: _text(each[when], seen) for when in ("before", "after")}
    hidden = len(part["steps"]) - len(steps) or (differing - kept)
    faults = _seen(part.get("faults") or [], sight)
    return {
        "diff": diff,
        "steps": steps,
        **({"faults": faults} if faults else {}),
        **({"hidden": hidden} if hidden else {}),
    }


def _text(facets: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Return the facets of ``keys`` as the lines of a diff, in the form of the modules' own (section.py)."""
    found = ((key, facets.get(key)) for key in sorted(keys))
    blocks = [(key, each) for key, each in found if isinstance(each, Mapping)]
    return "".join(f"{key}:\n" + "".join(f"  {name}: {text}\n" for name, text in each.items()) for key, each in blocks)
