"""Why a Service is not as declared on a node: an Event of the Service, or of the Node where all of it is concerned."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.reconcile.events.pod_events import Recorder
from minik8s_modules.reconcile.network.services import DATAPLANE
from minik8s_modules.reconcile.values.items import Outcome

log = logging.getLogger(__name__)
REASON = "FailedToUpdateServiceRules"
_RECOVERED = "ServiceRulesUpdated"


class ServiceEvents:
    """Tells each error once, until it is over; the runner's one thread calls it.

    Args:
        recorder: of Events.
        service: the Service of a key, None when it is gone.
        node: the Node of a name.
    """

    def __init__(
        self,
        recorder: Recorder,
        service: Callable[[Key], JsonObject | None],
        node: Callable[[str], JsonObject | None],
    ) -> None:
        self._recorder = recorder
        self._service, self._node = service, node
        self._told: dict[tuple[str, str], str] = {}

    def on_outcome(self, outcome: Outcome) -> None:
        """Take over what a node answered about its section ``services``."""
        result = outcome.sections.get("services")
        if result is None or not isinstance(result.get("errors"), dict):
            return
        errors = {key: str(error.get("message")) for key, error in result["errors"].items()}
        for key, message in errors.items():
            if self._told.get((outcome.node, key)) != message:
                self._told[outcome.node, key] = message
                log.warning("node %s: services: %s: %s", outcome.node, key, message)
                self._tell(outcome.node, key, "Warning", REASON, f"node {outcome.node}: {message}")
        looked_at = set(result.get("status") or ())
        for node, key in [told for told in self._told if told[0] == outcome.node and told[1] not in errors]:
            if key in looked_at or key == DATAPLANE:
                del self._told[node, key]
                self._tell(node, key, "Normal", _RECOVERED, f"node {node}: rules are as declared")

    def _tell(self, node: str, key: str, kind: Any, reason: str, message: str) -> None:
        obj = self._node(node)
        if key != DATAPLANE:
            namespace, _, name = key.rpartition(":")[0].partition("/")
            obj = self._service(Key(namespace, name))
        if obj is not None:
            self._recorder.event(obj, kind, reason, message)
