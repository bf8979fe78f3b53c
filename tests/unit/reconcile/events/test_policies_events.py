"""Where a node does not enforce policies, the Node, its policies and Pods are told once, and again when it is over."""

from __future__ import annotations

from typing import Any

from minik8s_modules.api.objects import Key
from minik8s_modules.reconcile.events.policies_events import PolicyEvents
from minik8s_modules.reconcile.values.items import Outcome

POLICY = {"kind": "NetworkPolicy", "metadata": {"name": "wall", "namespace": "shop"}}
POD = {"kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}}
NODE = {"kind": "Node", "metadata": {"name": "n1"}}


class Notes:
    """A recorder that notes."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def event(self, obj: dict[str, Any], kind: str, reason: str, message: str, **_: object) -> None:
        """Note one event."""
        self.events.append((obj["kind"], f"{kind} {reason}", message))


def outcome(errors: dict[str, str], *keys: str) -> Outcome:
    """Return an outcome whose section policies has ``errors`` and looked at ``keys``."""
    fields = {key: {"reason": "PolicyNotEnforced", "message": message} for key, message in errors.items()}
    return Outcome("i", "n1", "ok", {"policies": {"errors": fields, "status": dict.fromkeys(keys)}}, "")


def test_what_a_node_does_not_enforce_is_told_once_and_its_end_too() -> None:
    notes = Notes()
    policies, pods = {Key("shop", "wall"): POLICY}, {Key("shop", "web"): POD}
    events = PolicyEvents(notes, policies.get, pods.get, lambda _: [POLICY], lambda _: NODE)
    failed = outcome({"filter": "the network driver is weave"})
    for _ in range(2):
        events.on_outcome(failed)
    result = ("Warning PolicyNotEnforced", "node n1: the network driver is weave")
    assert notes.events == [("Node", *result), ("NetworkPolicy", *result)]
    events.on_outcome(outcome({}))
    over = ("Normal PolicyEnforced", "node n1: policies are enforced")
    assert notes.events[2:] == [("Node", *over), ("NetworkPolicy", *over)]
    events.on_outcome(outcome({"policy/shop/wall": "x", "pod/shop/web": "y", "policy/shop/gone": "z"}))
    assert [event[0] for event in notes.events[4:]] == ["NetworkPolicy", "Pod"]
