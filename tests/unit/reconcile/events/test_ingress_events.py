"""What a node could not do for a name or path is told once at the object it is of, and again when it is over."""

from __future__ import annotations

from typing import Any

from minik8s_modules.api.objects import Key
from minik8s_modules.reconcile.events.ingress_events import IngressEvents
from minik8s_modules.reconcile.values.items import Outcome

NODE = {"kind": "Node", "metadata": {"name": "n1"}}
SERVICE = {"kind": "Service", "metadata": {"name": "web", "namespace": "default"}}
INGRESS = {"kind": "Ingress", "metadata": {"name": "shop", "namespace": "default"}}


class Notes:
    """A recorder that notes."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def event(self, obj: dict[str, Any], kind: str, reason: str, message: str, **_: object) -> None:
        """Note one event."""
        self.events.append((obj["kind"], reason, message))
        assert kind in ("Normal", "Warning")


def outcome(section: str, errors: dict[str, str], *keys: str) -> Outcome:
    """Return an outcome whose ``section`` has ``errors`` and looked at ``keys``."""
    fields = {key: {"reason": "X", "message": message} for key, message in errors.items()}
    return Outcome("i", "n1", "ok", {section: {"errors": fields, "status": dict.fromkeys(keys)}}, "")


def test_each_error_goes_to_whom_it_concerns_once_and_its_end_too() -> None:
    notes = Notes()
    hosts = {"shop.test": [INGRESS]}
    event_writer = IngressEvents(
        notes, {Key("default", "web"): SERVICE}.get, lambda host: hosts.get(host, []), lambda _: NODE
    )
    for _ in range(2):
        event_writer.on_outcome(outcome("ingress", {"shop.test": "refused", "_server": "does not run"}))
        event_writer.on_outcome(outcome("dns", {"service/default/web": "no name", "host/shop.test": "no name"}))
    assert notes.events == [
        ("Ingress", "FailedToUpdatePaths", "node n1: refused"),
        ("Node", "FailedToUpdatePaths", "node n1: does not run"),
        ("Service", "FailedToUpdateNames", "node n1: no name"),
        ("Ingress", "FailedToUpdateNames", "node n1: no name"),
    ]
    event_writer.on_outcome(outcome("ingress", {}, "other.test"))
    assert notes.events[4:] == [("Node", "PathsUpdated", "node n1: it is as declared")]
    event_writer.on_outcome(outcome("ingress", {}, "shop.test"))
    assert notes.events[-1] == ("Ingress", "PathsUpdated", "node n1: it is as declared")
    event_writer.on_outcome(outcome("ingress", {"_health/default/web": "port 30090 is in use on this node"}))
    wanted = ("Service", "FailedToUpdatePaths", "node n1: port 30090 is in use on this node")
    assert notes.events[-1] == wanted
