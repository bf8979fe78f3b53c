"""Binds a pod to its node through the API."""

from __future__ import annotations

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import POD
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.points import CycleState
from minik8s_modules.scheduler.framework.statuses import Status, error
from minik8s_modules.scheduler.plugins.base import InTree


class DefaultBinder(InTree):
    """Creates the Binding; it names the pod's UID, so that another pod of that name is never bound."""

    name = "DefaultBinder"

    def bind(self, _state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Bind the pod; an answer other than success of the API is an error."""
        key = pod.key
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": objects.uid(pod.pod)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            self.handle.api.create(POD, binding, subresource="binding")
        except (TemporaryError, StatusError) as failure:
            return error(str(failure))
        return None
