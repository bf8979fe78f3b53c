"""Why a Service is not as declared on a node: an Event of the Service, or of the Node where all of it is concerned."""

from __future__ import annotations

from collections.abc import Callable

from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.reconcile.events.pod_events import Recorder
from minik8s_modules.reconcile.events.section_errors import SectionErrors
from minik8s_modules.reconcile.network.dataplane import DATAPLANE
from minik8s_modules.reconcile.values.items import Outcome

REASON = "FailedToUpdateServiceRules"
_RECOVERED = "ServiceRulesUpdated"


class ServiceEvents:
    """Records each error of the section services, and its end; the runner's one thread calls it.

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
        self._service, self._node = service, node
        self._errors = SectionErrors(
            recorder, "services", (REASON, _RECOVERED), "rules are as declared", DATAPLANE, self._concerned
        )

    def on_outcome(self, outcome: Outcome) -> None:
        """Take over what a node answered about its section ``services``."""
        self._errors.take(outcome.node, outcome.sections.get("services"))

    def _concerned(self, node: str, key: str) -> list[JsonObject | None]:
        if key == DATAPLANE:
            return [self._node(node)]
        namespace, _, name = key.rpartition(":")[0].partition("/")
        return [self._service(Key(namespace, name))]
