"""What nodes that serve a kubelet's API use: ``/stats/summary`` in the words of gateways (streams/requests.py).

Those that are ready are asked, side by side, so that one that hangs costs its time-out and not the sum: autoscalers
wait for the answer. One that answers nothing that can be read is left out. What a node says of itself is believed of
itself alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.errors import ServiceUnavailable
from minik8s_modules.api.kinds import NODE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.nodes import kubelets as asking
from minik8s_modules.apiserver.nodes.kubelets import Kubelet, Kubelets
from minik8s_modules.base.clock import parse_rfc3339
from minik8s_modules.store.cache import WatchCache

log = logging.getLogger(__name__)
_AT_ONCE = 16
_WINDOW_S = 10.0
"""Of a rate that kubelets report without saying over how long it was measured (cAdvisor's housekeeping interval)."""


def of_kubelets(cache: WatchCache, kubelets: Kubelets | None) -> dict[str, JsonObject]:
    """Return what all such nodes tell, by node."""
    found = [each for each in _all(cache, kubelets) if each is not None]
    if not found:
        return {}
    with ThreadPoolExecutor(min(len(found), _AT_ONCE), thread_name_prefix="kubelet-usage") as pool:
        usages = pool.map(lambda each: _asked(kubelets, each), found)
        return {each.node: usage for each, usage in zip(found, usages, strict=True) if usage}


def _all(cache: WatchCache, kubelets: Kubelets | None) -> Iterator[Kubelet | None]:
    if kubelets is None:
        return
    for item in cache.list(NODE.prefix).items:
        if (objects.condition(item.object, "Ready") or {}).get("status") != "True":
            continue
        try:
            yield kubelets.of(cache, objects.name(item.object))
        except ServiceUnavailable as error:
            log.debug("%s", error)


def _asked(kubelets: Kubelets | None, kubelet: Kubelet) -> JsonObject:
    try:
        return usage_of(orjson.loads(asking.get(kubelets, kubelet, "/stats/summary").body))
    except (ServiceUnavailable, orjson.JSONDecodeError) as error:
        log.warning("node %s reports no metrics: %s", kubelet.node, error)
        return {}


def usage_of(summary: Any) -> JsonObject:
    """Return what a Summary says: of the machine, and of each container; what cannot be read is left out."""
    pods = objects.dig(summary, "pods")
    rows = [row for pod in pods if isinstance(pod, dict) for row in _containers(pod)] if isinstance(pods, list) else []
    return {"machine": _usage(objects.dig(summary, "node")), "containers": rows}


def _containers(pod: Mapping[str, Any]) -> Iterator[JsonObject]:
    reference, containers = pod.get("podRef"), pod.get("containers")
    if not isinstance(reference, dict) or not isinstance(containers, list):
        return
    whose = {
        "namespace": reference.get("namespace"),
        "pod": reference.get("name"),
        "pod_uid": reference.get("uid"),
    }
    for each in containers:
        usage = _usage(each)
        if usage is not None:
            yield {**whose, "container": objects.dig(each, "name"), "usage": usage}


def _usage(measured: Any) -> JsonObject | None:
    try:
        return {
            "timestamp_s": parse_rfc3339(str(measured["cpu"]["time"])).timestamp(),
            "window_s": _WINDOW_S,
            "cpu_nanocores": int(measured["cpu"]["usageNanoCores"]),
            "cpu_nanoseconds": int(measured["cpu"].get("usageCoreNanoSeconds") or 0),
            "memory_bytes": int(measured["memory"]["workingSetBytes"]),
        }
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
