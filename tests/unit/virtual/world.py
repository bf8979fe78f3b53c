"""A cluster in memory with nodes that a carrier or a controller carries, and providers that remember what they did."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import EVENT, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.base.metrics import Registry
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.queue_metrics import QueueMetrics
from minik8s_modules.virtual.contract import NODE, NoResources, new_pod
from minik8s_modules.virtual.figures import Figures
from minik8s_modules.virtual.pods.controller import PodController
from minik8s_modules.virtual.pods.environment import Problem
from minik8s_modules.virtual.provider import InitConfig, Provider
from minik8s_modules.virtual.providers.mock import Mock
from tests.support.waiting import until


class Recording(Mock):
    """A mock that counts calls, and raises what it is told to."""

    def __init__(self, config: InitConfig | None = None) -> None:
        super().__init__(config or InitConfig(NODE, NoResources()))
        self.calls: list[tuple[str, str]] = []
        self.raises: dict[str, Exception] = {}
        self.counting = threading.Lock()

    def seen(self, function: str) -> list[str]:
        """Return the names of the Pods that ``function`` was called with."""
        with self.counting:
            return [name for called, name in self.calls if called == function]

    def create_pod(self, pod: JsonObject) -> None:
        """Count, then create."""
        self._count("create_pod", pod)
        super().create_pod(pod)

    def update_pod(self, pod: JsonObject) -> None:
        """Count, then update."""
        self._count("update_pod", pod)
        super().update_pod(pod)

    def delete_pod(self, pod: JsonObject) -> None:
        """Count, then delete."""
        self._count("delete_pod", pod)
        super().delete_pod(pod)

    def _count(self, function: str, pod: JsonObject) -> None:
        with self.counting:
            self.calls.append((function, objects.name(pod)))
        if function in self.raises:
            raise self.raises[function]


class Silent(Provider):
    """The same, as a provider that tells nothing of its own accord."""

    def __init__(self, inner: Recording) -> None:
        self.inner = inner

    def create_pod(self, pod: JsonObject) -> None:
        """See Mock."""
        self.inner.create_pod(pod)

    def update_pod(self, pod: JsonObject) -> None:
        """See Mock."""
        self.inner.update_pod(pod)

    def delete_pod(self, pod: JsonObject) -> None:
        """See Mock."""
        self.inner.delete_pod(pod)

    def get_pod(self, namespace: str, name: str) -> JsonObject:
        """See Mock."""
        return self.inner.get_pod(namespace, name)

    def get_pod_status(self, namespace: str, name: str) -> JsonObject:
        """See Mock."""
        return self.inner.get_pod_status(namespace, name)

    def get_pods(self) -> list[JsonObject]:
        """See Mock."""
        return self.inner.get_pods()


def unresolved(pod: JsonObject, _tell: Callable[[Problem], None]) -> JsonObject:
    """Resolve nothing."""
    return copy.deepcopy(pod)


class World:
    """A node ``contract`` of a cluster in memory; ``told``: whether its provider tells of changes itself.

    The same process may carry nodes ``beside`` it.
    """

    def __init__(self, *, told: bool = True, beside: tuple[str, ...] = ()) -> None:
        self._beside = {name: Recording() for name in beside}
        self.api = FakeApi(SystemClock())
        self.backend = Recording()
        self.provider: Provider = self.backend if told else Silent(self.backend)
        self.controller = self.fresh()

    def fresh(self) -> PodController:
        """Return another controller of the same node, as after a restart."""
        clock, registry = SystemClock(), Registry()
        self.recorder = EventRecorder(self.api, "virtual-kubelet", clock=clock)
        return PodController(
            self.api,
            self.recorder,
            {NODE: self.provider, **self._beside},
            unresolved,
            clock,
            Figures(registry),
            QueueMetrics(registry),
            workers=2,
            polled_s=0.05,
        )

    def start(self) -> None:
        """Begin."""
        self.recorder.start()
        self.controller.start()
        until(self.controller.is_ready)

    def stop(self) -> None:
        """End."""
        self.api.cut_watches()
        self.controller.stop()
        self.recorder.stop()

    def create(self, name: str = "one", **spec: Any) -> JsonObject:
        """Create a Pod on the node."""
        pod = new_pod(name, **spec)
        return self.api.create(POD, pod)

    def pod(self, name: str = "one") -> JsonObject | None:
        """Return the API's Pod, None where there is none."""
        try:
            return self.api.get(POD, name, "default")
        except StatusError:
            return None

    def phase(self, name: str = "one") -> str:
        """Return its phase, "gone" where it is not there."""
        pod = self.pod(name)
        return "gone" if pod is None else str(objects.status(pod).get("phase"))

    def delete(self, name: str = "one", grace_s: int = 30) -> None:
        """Ask for its deletion, as kubectl does."""
        self.api.delete(POD, name, "default", grace_s=grace_s)

    def events(self) -> set[tuple[str, str]]:
        """Return type and reason of all Events."""
        return {(each["type"], each["reason"]) for each in self.api.list(EVENT).items}
