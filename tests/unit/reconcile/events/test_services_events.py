"""What a node could not do for a Service is told once at the Service, and again when it is over."""

from __future__ import annotations

from typing import Any

from minik8s_modules.api.objects import Key
from minik8s_modules.reconcile.events.services_events import REASON, ServiceEvents
from minik8s_modules.reconcile.values.items import Outcome

SERVICE = {"kind": "Service", "metadata": {"name": "web", "namespace": "default"}}
NODE = {"kind": "Node", "metadata": {"name": "n1"}}


class Notes:
    """A recorder that notes."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []
        self.kinds: list[str] = []

    def event(self, obj: dict[str, Any], kind: str, reason: str, message: str, **_: object) -> None:
        """Note one event."""
        self.kinds.append(kind)
        self.events.append((obj["kind"], reason, message))


def outcome(errors: dict[str, str], *keys: str) -> Outcome:
    """Return an outcome whose section services has ``errors`` and looked at ``keys``."""
    fields = {key: {"reason": "InvalidEntry", "message": message} for key, message in errors.items()}
    return Outcome("i", "n1", "ok", {"services": {"errors": fields, "status": dict.fromkeys(keys)}}, "")


def test_an_error_is_told_once_and_its_end_too() -> None:
    notes = Notes()
    services = {Key("default", "web"): SERVICE}
    event_writer = ServiceEvents(notes, services.get, lambda _: NODE)
    key = "default/web:http"
    for _ in range(2):
        event_writer.on_outcome(outcome({key: "taken", "dataplane": "no nft"}, key))
    assert notes.events == [("Service", REASON, "node n1: taken"), ("Node", REASON, "node n1: no nft")]
    event_writer.on_outcome(outcome({}, "default/other:80"))
    assert [kind for kind, reason, _ in notes.events[2:]] == ["Node"]
    event_writer.on_outcome(outcome({}, key))
    assert notes.events[-1] == ("Service", "ServiceRulesUpdated", "node n1: rules are as declared")
    event_writer.on_outcome(Outcome("i", "n1", "failed", {}, "x"))
    event_writer.on_outcome(outcome({"default/gone:80": "x"}))
    assert notes.kinds == ["Warning", "Warning", "Normal", "Normal"]
