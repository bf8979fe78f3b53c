"""Why policies are not enforced on a node: an Event of the NetworkPolicy or Pod, or of the Node and all it concerns."""

from __future__ import annotations

from collections.abc import Callable

from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.module_utils.minik8s.policies.policy_entries import FILTER, POLICY
from minik8s_modules.reconcile.events.pod_events import Recorder
from minik8s_modules.reconcile.events.section_errors import SectionErrors
from minik8s_modules.reconcile.values.items import Outcome

REASON = "PolicyNotEnforced"
_RECOVERED = "PolicyEnforced"
_POLICIES = 20
"""So many policies of a node are told that it enforces none; the Node itself is told always."""


class PolicyEvents:
    """Records each error of the section policies, and its end; the runner's one thread calls it.

    Args:
        recorder: of Events.
        policy: the NetworkPolicy of a key, None when it is gone.
        pod: the Pod of a key.
        policies_on: those that select a Pod of a node.
        node: the Node of a name.
    """

    def __init__(
        self,
        recorder: Recorder,
        policy: Callable[[Key], JsonObject | None],
        pod: Callable[[Key], JsonObject | None],
        policies_on: Callable[[str], list[JsonObject]],
        node: Callable[[str], JsonObject | None],
    ) -> None:
        self._policy, self._pod, self._policies_on, self._node = policy, pod, policies_on, node
        healthy = "policies are enforced"
        self._errors = SectionErrors(recorder, "policies", (REASON, _RECOVERED), healthy, FILTER, self._concerned)

    def on_outcome(self, outcome: Outcome) -> None:
        """Take over what a node answered about its section ``policies``."""
        self._errors.take(outcome.node, outcome.sections.get("policies"))

    def _concerned(self, node: str, key: str) -> list[JsonObject | None]:
        if key == FILTER:
            return [self._node(node), *self._policies_on(node)[:_POLICIES]]
        return [concerned(key, self._policy, self._pod)]


def concerned(
    key: str, policy: Callable[[Key], JsonObject | None], pod: Callable[[Key], JsonObject | None]
) -> JsonObject | None:
    """Return the object that a key of the section is about, None for the filter itself."""
    _kind, _, name = key.partition("/")
    if not name:
        return None
    return (policy if key.startswith(POLICY) else pod)(Key(*name.split("/", 1)))
