"""A cluster in memory for the tests of autoscalers' shells: metrics and scales are answered, time passes by ticks."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import pytest
from urllib3.response import HTTPResponse

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.kinds import EVENT, HORIZONTAL_POD_AUTOSCALER, POD, Kind
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import FakeClock, rfc3339
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.client.transport import READ_TIMEOUT_S
from minik8s_modules.controllers.autoscaling.controller import TICK_S
from minik8s_modules.controllers.autoscaling.targets import scale_in
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.waiting import until

SPACE = "shop"


class Server:
    """Answers raw requests: PodMetrics, custom and external metrics, scales of one kind's objects in a ``FakeApi``."""

    def __init__(self, api: FakeApi, clock: FakeClock, kind: Kind) -> None:
        self.api, self.clock, self.kind = api, clock, kind
        self.cpu: dict[str, str] = {}
        self.memory = "1Mi"
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.refused = 0
        self.hanging: tuple[str, ...] = ()
        self.waited: list[str] = []

    def raw(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
    ) -> HTTPResponse:
        """Answer, but for what hangs: that takes until nobody waits any more."""
        self.waits(path, wait_s)
        assert headers is None or headers["Content-Type"] == "application/json"
        self.asked.append(f"{method} {path}")
        where = urlsplit(path)
        if where.path == "/apis/metrics.k8s.io/v1beta1/pods":
            return answer(200, {"items": [self._metrics(name, cpu) for name, cpu in self.cpu.items()]})
        if where.path.endswith("/scale"):
            return self._scale(where.path.split("/")[-2], body)
        key = f"{where.path}?{'&'.join(f'{name}={text[0]}' for name, text in sorted(parse_qs(where.query).items()))}"
        if key.rstrip("?") in self.answers:
            return answer(200, self.answers[key.rstrip("?")])
        return answer(404, status(404, "the server could not find the requested resource"))

    def waits(self, path: str, wait_s: float) -> None:
        """Let the time pass that a hanging path is waited for.

        Raises:
            ApiUnreachable: the path hangs.
        """
        if any(path.startswith(each) for each in self.hanging):
            self.waited.append(path)
            self.clock.advance(wait_s or READ_TIMEOUT_S)
            raise ApiUnreachable(f"GET {path}: Read timed out.")

    def _metrics(self, name: str, cpu: str) -> JsonObject:
        meta = {"name": name, "namespace": SPACE}
        containers = [{"name": "app", "usage": {"cpu": cpu, "memory": self.memory}}]
        return {"metadata": meta, "timestamp": rfc3339(self.clock.now()), "window": "10s", "containers": containers}

    def _scale(self, name: str, body: bytes | None) -> HTTPResponse:
        if self.refused and body is not None:
            return answer(self.refused, status(self.refused, "no"))
        try:
            found = self.api.get(self.kind, name, SPACE)
        except NotFound as error:
            return answer(404, status(404, str(error)))
        if body is not None:
            replicas = json.loads(body)["spec"]["replicas"]
            found = self.api.patch(self.kind, name, SPACE, {"spec": {"replicas": replicas}})
        scale = scale_in(found)
        shown = {"replicas": scale.status_replicas, "selector": scale.selector}
        return answer(200, {"metadata": {"name": name}, "spec": {"replicas": scale.replicas}, "status": shown})


def answer(code: int, body: JsonObject) -> HTTPResponse:
    return HTTPResponse(json.dumps(body).encode(), status=code, preload_content=True)


def status(code: int, message: str) -> JsonObject:
    return {"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": ""}


class Controller(Protocol):
    """What a tick drives."""

    def due(self) -> list[Key]:
        """Return what is to be decided on."""

    def sync(self, key: Key) -> None:
        """Decide on one."""


class Shop:
    """A cluster with a workload, which an autoscaler scales.

    Args:
        kind: of the workload.
        autoscalers: their kind.
        make: makes their controller.
    """

    def __init__(self, kind: Kind, autoscalers: Kind, make: Callable[[Context, Server], Controller]) -> None:
        self.clock = FakeClock()
        self.api = FakeApi(self.clock)
        self.server = Server(self.api, self.clock, kind)
        self.kind, self.autoscalers, self._make = kind, autoscalers, make
        self.context: Context | None = None

    def begin(self) -> None:
        """Begin the controller, anew if there is one: it does what ``tick`` has it do, and nothing by itself."""
        self.end()
        recorder = EventRecorder(self.api, "c", clock=self.clock)
        context = self.context = Context(self.api, recorder, Informers(self.api), self.clock)
        self.controller = self._make(context, self.server)
        recorder.start()
        context.informers.start()

    def end(self) -> None:
        """End the controller."""
        if self.context is not None:
            self.context.informers.stop()
            self.context.recorder.stop()
            self.context.pool.shutdown()
            self.context = None

    def settle(self, *kinds: Kind) -> None:
        """Wait until the copies show what has been written, of some kinds or all."""
        assert self.context is not None
        informers = self.context.informers
        for kind in kinds or (self.autoscalers, self.kind, POD):
            revision = max((int(objects.resource_version(each)) for each in self.api.list(kind).items), default=0)
            until(functools.partial(informers.of(kind).has_reached, revision))

    def tick(self) -> None:
        """Let one tick pass: the copies show what has been written, and who is due is decided on."""
        self.clock.advance(TICK_S)
        self.settle()
        for key in self.controller.due():
            with contextlib.suppress(StatusError, TemporaryError):
                self.controller.sync(key)

    def workload(self, replicas: int, *cpu: str, name: str = "web") -> None:
        """Make a workload with pods that use so much."""
        selector = {"matchLabels": {"app": name}}
        meta = {"name": name, "namespace": SPACE}
        made = {"metadata": meta, "spec": {"replicas": replicas, "selector": selector}}
        self.api.create(self.kind, {**made, "status": {"replicas": replicas}})
        for number, used in enumerate(cpu):
            self.pod(f"{name}-{number}", name)
            self.server.cpu[f"{name}-{number}"] = used

    def pod(self, name: str, app: str) -> None:
        """Make a ready pod."""
        meta = {"name": name, "namespace": SPACE, "labels": {"app": app}}
        containers = [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}]
        since = "2020-01-01T00:00:00Z"
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
        fields = {"phase": "Running", "startTime": since, "conditions": [ready]}
        self.api.create(POD, {"metadata": meta, "spec": {"containers": containers}, "status": fields})

    def autoscaler(self, *metrics: JsonObject, name: str = "hpa", target: str = "web", **spec: Any) -> None:
        """Make an autoscaler for a deployment; without metrics the CPU is held at half of what is requested."""
        half = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
        declared = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "minReplicas": 1,
            "maxReplicas": 10,
            "metrics": [*metrics] or [{"type": "Resource", "resource": half}],
            **spec,
        }
        self.api.create(HORIZONTAL_POD_AUTOSCALER, {"metadata": {"name": name, "namespace": SPACE}, "spec": declared})

    def replicas(self, name: str = "web") -> int:
        """Return how many pods the workload is to have."""
        return int(self.api.get(self.kind, name, SPACE)["spec"]["replicas"])

    def status(self, name: str = "hpa") -> JsonObject:
        """Return the status of an autoscaler."""
        return objects.status(self.api.get(HORIZONTAL_POD_AUTOSCALER, name, SPACE))

    def reason(self, kind: str, name: str = "hpa") -> str:
        """Return the reason of a condition."""
        return str((objects.condition({"status": self.status(name)}, kind) or {}).get("reason"))

    def reasons(self) -> set[str]:
        """Return the reasons of all Events."""
        return {str(each["reason"]) for each in self.api.list(EVENT).items}

    def until(self, holds: Callable[[], bool]) -> None:
        """Let ticks pass until something holds, for ten minutes."""
        for _ in range(150):
            if holds():
                return
            self.tick()
        pytest.fail("it did not come true in ten minutes")
