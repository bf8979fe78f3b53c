"""Why names or paths are not as declared on a node: an Event of the object, or of the Node where none is to blame."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.module_utils.minik8s.names import dns_entries, ingress_entries
from minik8s_modules.reconcile.events.pod_events import Recorder
from minik8s_modules.reconcile.values.items import Outcome

log = logging.getLogger(__name__)
SERVERS = {"dns": dns_entries.SERVER, "ingress": ingress_entries.SERVER}
REASONS = {"dns": ("FailedToUpdateNames", "NamesUpdated"), "ingress": ("FailedToUpdatePaths", "PathsUpdated")}


class IngressEvents:
    """Tells each error once, until it is over; the runner's one thread calls it.

    Args:
        recorder: of Events.
        service: the Service of a key, None when it is gone.
        host: the objects that a host is of.
        node: the Node of a name.
    """

    def __init__(
        self,
        recorder: Recorder,
        service: Callable[[Key], JsonObject | None],
        host: Callable[[str], list[JsonObject]],
        node: Callable[[str], JsonObject | None],
    ) -> None:
        self._recorder = recorder
        self._service, self._host, self._node = service, host, node
        self._told: dict[tuple[str, str, str], str] = {}

    def on_outcome(self, outcome: Outcome) -> None:
        """Take over what a node answered about both sections."""
        for section, server in SERVERS.items():
            result = outcome.sections.get(section)
            if result is not None and isinstance(result.get("errors"), dict):
                self._take(outcome.node, section, server, result)

    def _take(self, node: str, section: str, server: str, result: JsonObject) -> None:
        failed, recovered = REASONS[section]
        errors = {key: str(error.get("message")) for key, error in result["errors"].items()}
        for key, message in errors.items():
            if self._told.get((node, section, key)) != message:
                self._told[node, section, key] = message
                log.warning("node %s: %s: %s: %s", node, section, key, message)
                self._tell(node, section, key, "Warning", failed, f"node {node}: {message}")
        looked_at = {*(result.get("status") or ()), server}
        for where in [told for told in self._told if told[:2] == (node, section) and told[2] not in errors]:
            if where[2] in looked_at:
                del self._told[where]
                self._tell(node, section, where[2], "Normal", recovered, f"node {node}: it is as declared")

    def _tell(self, node: str, section: str, key: str, kind: Any, reason: str, message: str) -> None:
        for obj in self._concerned(section, key) or [self._node(node)]:
            if obj is not None:
                self._recorder.event(obj, kind, reason, message)

    def _concerned(self, section: str, key: str) -> list[JsonObject | None]:
        if section == "ingress":
            return [*self._host(key)] if key != ingress_entries.SERVER else []
        kind, _, name = key.partition("/")
        namespace, _, service = name.partition("/")
        if kind == "service":
            return [self._service(Key(namespace, service))]
        return [*self._host(name)] if kind == "host" else []
