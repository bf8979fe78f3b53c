"""What a plan is asked: the operations, and the nodes. Light: a reconciler imports the rest for its first plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from minik8s_modules.api.network.authorization import AUTHORIZATION_POLICY, is_policy
from minik8s_modules.api.network.gateway_api import gateway_kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.simulation.extended import is_decided

OPERATIONS = frozenset({"create", "update", "delete"})


class Operation(NamedTuple):
    """One object as it would stand, or (delete) as it stood."""

    operation: str
    object: JsonObject


class Question(NamedTuple):
    """What to plan; no operations ask for drift, no nodes for all.

    Attributes:
        others: nodes with a reconciler of their own, to which the answer says what to tell them.
        admits: whether the API server wants to be told first which pods controllers would make, to admit them; with an
            ``admission``, those that it does not know.
        admission: what it made of them, see ``simulated_admission.py``; None where nobody has asked.
        spent_s: how much of a plan's time has gone by before this question.
        supplied: what such a node is sent (``standalone_plans.read_supplied_plan``), in place of operations.
    """

    operations: tuple[Operation, ...]
    nodes: frozenset[str]
    others: frozenset[str] = frozenset()
    supplied: Any = None
    admits: bool = False
    admission: Any = None
    spent_s: float = 0.0


def parse_question(body: Any) -> Question:
    """Return the question in a request's JSON.

    Raises:
        ValueError: it is none; the message says what is wrong.
    """
    if not isinstance(body, Mapping) or not isinstance(body.get("objects", []), list):
        raise ValueError('a plan is {"objects": [{"operation", "object"}], "nodes": [names]}')  # noqa: TRY004
    every = [_operation(index, one) for index, one in enumerate(body.get("objects") or [])]
    asked = tuple(each for each in every if is_decided(each.object))
    nodes = body.get("nodes") or ([body["node"]] if body.get("node") else [])
    others = _names("others", body.get("others") or [])
    admits = bool(body.get("admits") or body.get("further"))
    turn = (admits, _admission(body), float(body.get("spent_s") or 0))
    return Question(asked, _names("nodes", nodes), others, body.get("foretold"), *turn)


def _names(field: str, found: Any) -> frozenset[str]:
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"{field} must be a list of names")
    return frozenset(found)


def _admission(body: Mapping[str, Any]) -> Any:
    """Return what was made of pods: of none by an API server of a former release, which does not ask for them."""
    if body.get("admits"):
        return None
    found = body.get("admission", {"pods": {}, "quotas": []})
    if not (isinstance(found, Mapping) and isinstance(found.get("pods"), Mapping)):
        raise ValueError("admission.pods must be a mapping")  # noqa: TRY004 - content
    if not isinstance(found.get("quotas"), list):
        raise ValueError("admission.quotas must be a list")  # noqa: TRY004 - content
    return found


def _operation(index: int, raw: Any) -> Operation:
    if not isinstance(raw, Mapping) or raw.get("operation") not in OPERATIONS:
        raise ValueError(f"objects[{index}].operation must be create, update or delete")
    obj = raw.get("object")
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
        raise ValueError(f"objects[{index}].object must be an object with metadata")  # noqa: TRY004 - content
    kind = gateway_kind(obj)  # in whichever version it is written, its fields are the same
    kind = AUTHORIZATION_POLICY if is_policy(obj) else kind
    return Operation(str(raw["operation"]), {**obj, "apiVersion": kind.api_version} if kind else obj)
