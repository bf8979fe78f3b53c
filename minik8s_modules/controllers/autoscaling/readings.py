"""What the metrics APIs say: ``metrics.k8s.io`` of all pods at once, the others metric by metric.

All autoscalers share one list of PodMetrics, read again at each tick. ``custom.metrics.k8s.io`` and
``external.metrics.k8s.io`` are asked by their paths, whoever serves them (an APIService, as a rule). Source of paths
and errors: kubernetes ``k8s.io/metrics/pkg/client``, ``pkg/controller/podautoscaler/metrics/client.go``.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from minik8s_modules.api import objects, quantities
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import POD_METRICS
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.selectors import from_label_selector, selector_text
from minik8s_modules.base.clock import Clock, parse_rfc3339
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.api import error_of, resource_path, with_query
from minik8s_modules.client.interface import Raw
from minik8s_modules.client.silences import Silences
from minik8s_modules.controllers.autoscaling.proposals import Measured, Unread
from minik8s_modules.controllers.autoscaling.replica_counts import Sample

CUSTOM, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"
# metricServerDefaultMetricWindow
_WINDOW_S = 60.0
_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION = re.compile(r"([0-9.]+)(ms|us|µs|ns|h|m|s)")
_CUSTOM_VERSIONS = ("v1beta2", "v1beta1")
ASK_S = 5.0
"""How long an API of others is waited for: few threads decide on all autoscalers."""
_ALL_PODS_S = 10.0


class Use(NamedTuple):
    """What a pod uses: quantities by container and resource, measured over ``window_s`` before ``at``."""

    at: datetime
    window_s: float
    containers: Mapping[str, Mapping[str, str]]


class Readings:
    """The last list of PodMetrics, and other metrics when they are asked for."""

    def __init__(self, client: Raw, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._silences = Silences(clock)
        self._uses: dict[Key, Use] = {}
        self._failure = ""
        self._read_s: float | None = None

    def refresh(self, oldest_s: float) -> None:
        """Read what all pods use, if that was longer than ``oldest_s`` ago; never raises.

        Why it failed is what the metrics then say. While it fails nobody waits for somebody else who asks again.
        """
        if not self._lock.acquire(blocking=not self._failure):
            return
        try:
            now_s = self._clock.monotonic()
            if self._read_s is not None and now_s - self._read_s < oldest_s:
                return
            self._read_s = now_s
            items = self._get(resource_path(POD_METRICS), _ALL_PODS_S).get("items") or []
            self._uses, self._failure = {objects.key(each): _use(each) for each in items}, ""
        except (StatusError, TemporaryError, ValueError, KeyError) as error:
            self._failure = f"unable to fetch metrics from resource metrics API: {error}"
            self._read_s = self._clock.monotonic()  # it may have taken long to fail
        finally:
            self._lock.release()

    def use_of(self, key: Key) -> Use | None:
        """Return what a pod uses; None where that is not known."""
        return None if self._failure else self._uses.get(key)

    def times(self, pods: Sequence[JsonObject]) -> dict[str, datetime]:
        """Return when the pods were measured, by name."""
        found = {objects.name(pod): self.use_of(objects.key(pod)) for pod in pods}
        return {name: use.at for name, use in found.items() if use is not None}

    def of_resource(self, pods: Sequence[JsonObject], resource: str, container: str = "") -> Measured:
        """Return what each of the pods uses of a resource, or one container of it."""
        if self._failure:
            return Unread(self._failure)
        found = {objects.name(pod): self.use_of(objects.key(pod)) for pod in pods}
        uses = {name: use for name, use in found.items() if use is not None}
        return use_in(objects.namespace(pods[0]), uses, resource, container) if uses else _NO_METRICS

    def of_pods(self, namespace: str, selector: str, metric: JsonObject) -> Measured:
        """Return the custom metric of the pods that ``selector`` (a text) matches."""
        query = {"labelSelector": selector, "metricLabelSelector": _labels(metric)}
        items = self._custom(f"{_space(namespace)}/pods/*/{quote(metric['name'], safe='')}", query)
        if isinstance(items, Unread):
            return items
        if not items:
            return Unread("no metrics returned from custom metrics API")
        return {
            each["describedObject"]["name"]: Sample(
                quantities.to_milli(each["value"]),
                parse_rfc3339(each["timestamp"]),
                float(_WINDOW_S if each.get("windowSeconds") is None else each["windowSeconds"]),
            )
            for each in items
        }

    def of_object(self, namespace: str, resource: str, name: str, metric: JsonObject) -> Measured:
        """Return the custom metric of one object; ``resource`` is ``deployments.apps``, of a Namespace ``""``."""
        whose = f"{quote(resource, safe='.')}/{quote(name, safe='')}" if resource else "metrics"
        path = f"{_space(namespace)}/{whose}/{quote(metric['name'], safe='')}"
        items = self._custom(path, {"metricLabelSelector": _labels(metric)})
        if isinstance(items, Unread):
            return items
        if len(items) != 1:
            text = f"the custom metrics API server returned {len(items)} results when we asked for exactly one"
            return Unread(f"unable to fetch metrics from custom metrics API: {text}")
        return quantities.to_milli(items[0]["value"])

    def of_external(self, namespace: str, metric: JsonObject) -> Measured:
        """Return the sum of an external metric's values."""
        path = f"/apis/{EXTERNAL}/v1beta1{_space(namespace)}/{quote(metric['name'], safe='')}"
        asked = with_query(path, {"labelSelector": _labels(metric)})
        try:
            with self._silences.asking(EXTERNAL, asked):
                items = self._get(asked).get("items") or []
            return sum(quantities.to_milli(each["value"]) for each in items) if items else _NO_EXTERNAL
        except (StatusError, TemporaryError, ValueError, KeyError, TypeError) as error:
            return Unread(f"unable to fetch metrics from external metrics API: {error}")

    def _custom(self, path: str, query: Mapping[str, str]) -> list[Any] | Unread:
        """Return the items of an answer in the newest version that is served."""
        about = with_query(path, {"metricLabelSelector": query["metricLabelSelector"]})  # whichever pods it is of
        try:
            with self._silences.asking(CUSTOM, about):
                return self._items(f"/apis/{CUSTOM}/{self._version()}{path}", query)
        except (StatusError, TemporaryError, ValueError, KeyError, TypeError) as error:
            return Unread(f"unable to fetch metrics from custom metrics API: {error}")

    def _version(self) -> str:
        for version in _CUSTOM_VERSIONS[:-1]:
            if self._client.raw("GET", f"/apis/{CUSTOM}/{version}", wait_s=ASK_S).status == HTTPStatus.OK:
                return version
        return _CUSTOM_VERSIONS[-1]

    def _items(self, path: str, query: Mapping[str, str]) -> list[Any]:
        items = self._get(with_query(path, query)).get("items") or []
        for each in items:
            # what is no metric is refused here, where it can be told
            quantities.to_milli(each["value"]), parse_rfc3339(each["timestamp"]), each["describedObject"]["name"]
        return [*items]

    def _get(self, path: str, wait_s: float = ASK_S) -> JsonObject:
        answer = self._client.raw("GET", path, wait_s=wait_s)
        if answer.status != HTTPStatus.OK:
            raise error_of(answer)
        found = orjson.loads(answer.data)
        if not isinstance(found, dict):
            raise ValueError("the answer is not an object")  # noqa: TRY004 - what was sent, not what a caller passed
        return found


def use_in(namespace: str, uses: Mapping[str, Use], resource: str, container: str = "") -> Measured:
    """Return what pods use of a resource, or one container of them; who does not tell all of it is left out."""
    if not uses:
        return _NO_METRICS
    found = {}
    for name, use in uses.items():
        if container and container not in use.containers:
            text = f"container {container} not present in metrics for pod {namespace}/{name}"
            return Unread(f"failed to get container metrics: {text}")
        amounts = [own.get(resource) for whose, own in use.containers.items() if container in {"", whose}]
        if amounts and None not in amounts:
            value = sum(quantities.to_milli(amount) for amount in amounts if amount is not None)
            found[name] = Sample(value, use.at, use.window_s)
    return found


_NO_METRICS = Unread("no metrics returned from resource metrics API")
_NO_EXTERNAL = Unread("no metrics returned from external metrics API")


def _space(namespace: str) -> str:
    return f"/namespaces/{quote(namespace, safe='')}"


def _labels(metric: JsonObject) -> str:
    selector = metric.get("selector")
    return selector_text(selector) if selector and not from_label_selector(selector).empty else ""


def _use(item: JsonObject) -> Use:
    containers = {each["name"]: each.get("usage") or {} for each in item.get("containers") or []}
    return Use(parse_rfc3339(item["timestamp"]), _seconds(str(item.get("window") or "0s")), containers)


def _seconds(duration: str) -> float:
    """Return a Go duration (``1m0.5s``) in seconds."""
    return sum(float(number) * _UNITS_S[unit] for number, unit in _DURATION.findall(duration))
