"""Why names or paths are not as declared on a node: an Event of the object, or of the Node where none is to blame."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.module_utils.minik8s.names import dns_entries, ingress_entries
from minik8s_modules.reconcile.events.pod_events import Recorder
from minik8s_modules.reconcile.events.section_errors import SectionErrors
from minik8s_modules.reconcile.values.items import Outcome

SECTIONS = {
    "dns": (("FailedToUpdateNames", "NamesUpdated"), dns_entries.SERVER),
    "ingress": (("FailedToUpdatePaths", "PathsUpdated"), ingress_entries.SERVER),
}
"""Reasons of Events, and the key of the server itself."""


class IngressEvents:
    """Records each error of the sections dns and ingress, and its end; the runner's one thread calls it.

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
        self._service, self._host, self._node = service, host, node
        self._errors = {
            section: SectionErrors(
                recorder, section, reasons, "it is as declared", server, partial(self._concerned, section)
            )
            for section, (reasons, server) in SECTIONS.items()
        }

    def on_outcome(self, outcome: Outcome) -> None:
        """Take over what a node answered about both sections."""
        for section, errors in self._errors.items():
            errors.take(outcome.node, outcome.sections.get(section))

    def _concerned(self, section: str, node: str, key: str) -> list[JsonObject | None]:
        return self._declaring(section, key) or [self._node(node)]

    def _declaring(self, section: str, key: str) -> list[JsonObject | None]:
        if section == "ingress":
            if key.startswith(ingress_entries.HEALTH):
                return [self._service(Key(*key[len(ingress_entries.HEALTH) :].split("/", 1)))]
            return [*self._host(key)] if key != ingress_entries.SERVER else []
        kind, _, name = key.partition("/")
        namespace, _, service = name.partition("/")
        if kind == "service":
            return [self._service(Key(namespace, service))]
        return [*self._host(name)] if kind == "host" else []
