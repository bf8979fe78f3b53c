"""nodes/proxy: the paths of a kubelet that programs read, answered here of what gateways measure and the cache knows.

No request goes to a machine: nothing listens there. A node that serves a kubelet's API (kubelets.py) is asked. Rights
are those of ``nodes/proxy``, or a kubelet's own where it is asked for by its address (kubelet_hosts.py). CPU is
counted, memory is the working set, as a kubelet's ``/metrics/resource`` and ``/stats/summary`` have them. Sources:
kubernetes ``pkg/kubelet/server/server.go``, ``pkg/kubelet/metrics/collectors/resource_metrics.go``,
``k8s.io/kubelet/pkg/apis/stats/v1alpha1``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import orjson
from flask import Request, Response
from werkzeug.datastructures import MultiDict

from minik8s_modules.api import objects
from minik8s_modules.api.errors import MethodNotAllowed, NotFound, ServiceUnavailable
from minik8s_modules.api.kinds import CONFIG_MAP, NODE, POD
from minik8s_modules.api.network.cluster_names import CLUSTER_DOMAIN
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http import responses
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.intake.limits import Holder
from minik8s_modules.apiserver.nodes import kubelets, metrics_api, proxying
from minik8s_modules.apiserver.nodes import streams as answers
from minik8s_modules.apiserver.nodes.gateways import Gateways
from minik8s_modules.apiserver.nodes.node_metrics import (
    Measured,
    Node,
    cadvisor_lines,
    kubelet_lines,
    reconciler_text,
    resource_lines,
)
from minik8s_modules.apiserver.nodes.reconcilers import Reconcilers, metrics_of
from minik8s_modules.apiserver.nodes.streams import Streams
from minik8s_modules.base.clock import rfc3339

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_SETTINGS, _SETTINGS_KEY = "minik8s-nodes", "reconciler.json"  # reconcile/standalone/shared_settings.py
_PORTS = frozenset({"", "10250"})
_LOG = re.compile(r"/containerLogs/(?P<namespace>[a-z0-9-]+)/(?P<pod>[a-z0-9.-]+)/(?P<container>[a-z0-9-]+)")


class Reach(NamedTuple):
    """Whom a node is asked about: what its gateway measures, and what its reconciler counts."""

    gateways: Gateways | None
    reconcilers: Reconcilers | None


def answer(
    streams: Streams,
    reconcilers: Reconcilers | None,
    backend: Backend,
    target: Target,
    request: Request,
    holder: Holder,
) -> Response:
    """Return the answer to a request for a path of a node.

    Raises:
        NotFound: there is no such node, path, pod or container.
        ServiceUnavailable: the node's gateway does not answer.
    """
    path = proxying.path_of(request.environ["RAW_URI"], request.path).below.rstrip("/")
    name = proxying.name_of(target.name, "node")
    node = backend.get(target._replace(name=name.name, subresource="")).object
    log = _LOG.fullmatch(path)
    if (path not in PATHS and log is None) or name.port not in _PORTS:
        known = ", ".join(sorted([*PATHS, "/containerLogs/NAMESPACE/POD/CONTAINER"]))
        raise NotFound.path(f"nodes/proxy: of a kubelet's paths (port 10250) these are answered: {known}")
    if request.method not in {"GET"} | ({"HEAD"} if log is None else set()):
        raise MethodNotAllowed(NODE, request.method.lower())
    if log is not None and request.method == "GET":
        pod = _pod_of(backend, name.name, log["namespace"], log["pod"])
        arguments = log_arguments(log["container"], request.args)
        return answers.log(streams, backend, pod, arguments, request, holder)
    kubelet = streams.kubelets.of(backend.cache, name.name) if streams.kubelets is not None else None
    if kubelet is not None and path in kubelets.FIGURES:
        reply = kubelets.get(streams.kubelets, kubelet, path)
        return responses.raw(reply.body, media=reply.media)
    return PATHS[path](backend, Reach(streams.gateways, reconcilers), node)


def log_arguments(container: str, given: MultiDict[str, str]) -> MultiDict[str, str]:
    """Return what a log is asked for with: the path names the container, whatever the query does."""
    return MultiDict([("container", container), *(each for each in given.items(multi=True) if each[0] != "container")])


def _healthz(_backend: Backend, _reach: Reach, node: JsonObject) -> Response:
    ready = objects.condition(node, "Ready") or {}
    if ready.get("status") != "True":
        raise ServiceUnavailable(
            f"node {objects.name(node)} is not ready: {ready.get('message') or 'no node agent reports its status'}"
        )
    return responses.raw(b"ok", media="text/plain; charset=utf-8")


def _configuration(backend: Backend, _reach: Reach, node: JsonObject) -> Response:
    settings = backend.cache.get(CONFIG_MAP.key("kube-system", _SETTINGS))
    said = (objects.dig(settings.object, "data", _SETTINGS_KEY) if settings else None) or "{}"
    return responses.json({"kubeletconfig": configuration(node, orjson.loads(said))})


def _own_metrics(backend: Backend, reach: Reach, node: JsonObject) -> Response:
    name = objects.name(node)
    lines = kubelet_lines(name, _pods_of(backend, name), backend.clock.now().timestamp())
    counted = reconciler_text(metrics_of(backend.cache, reach.reconcilers, name))
    return responses.raw("".join([*lines, counted]).encode(), media=_TEXT)


def _pods(backend: Backend, _reach: Reach, node: JsonObject) -> Response:
    found = [{**each, "apiVersion": "v1", "kind": "Pod"} for each in _pods_of(backend, objects.name(node))]
    return responses.json({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": found})


def _resource_metrics(backend: Backend, reach: Reach, node: JsonObject) -> Response:
    return responses.raw("".join(resource_lines(_measured(backend, reach, node))).encode(), media=_TEXT)


def _cadvisor_metrics(backend: Backend, reach: Reach, node: JsonObject) -> Response:
    return responses.raw("".join(cadvisor_lines(_measured(backend, reach, node))).encode(), media=_TEXT)


def _summary(backend: Backend, reach: Reach, node: JsonObject) -> Response:
    return responses.json(summary(_measured(backend, reach, node)))


PATHS: Mapping[str, Callable[[Backend, Reach, JsonObject], Response]] = {
    "/healthz": _healthz,
    "/configz": _configuration,
    "/metrics": _own_metrics,
    "/pods": _pods,
    "/stats/summary": _summary,
    "/metrics/resource": _resource_metrics,
    "/metrics/cadvisor": _cadvisor_metrics,
}


def _pods_of(backend: Backend, node: str) -> list[JsonObject]:
    pods = (item.peek() for item in backend.cache.list(POD.prefix).items)
    return [each for each in pods if objects.spec(each).get("nodeName") == node]


def _pod_of(backend: Backend, node: str, space: str, name: str) -> JsonObject:
    """Return a pod of a node. Raises NotFound when it has none of that name."""
    pod = backend.get(Target(POD, space, name)).object
    if objects.spec(pod).get("nodeName") != node:
        raise NotFound(POD, name)
    return pod


def _measured(backend: Backend, reach: Reach, node: JsonObject) -> Node:
    name = objects.name(node)
    reported = metrics_api.of_node(backend, reach.gateways, name)
    used = metrics_api.by_pod({name: reported})
    pods = _pods_of(backend, name)
    told = reported.get("pressure") or {}
    measured = (
        Measured(each, used.get(marks, {}), told.get(marks[-1]) or {})
        for each in pods
        for marks in [metrics_api.marks(each)]
    )
    return Node(name, node, reported.get("machine") or {}, tuple(each for each in measured if each.usage))


# --- configz ---------------------------------------------------------------------------------------


def configuration(node: JsonObject, shared: JsonObject) -> JsonObject:
    """Return a node's KubeletConfiguration: what of it holds here; ``shared`` is what reconcilers have in common."""
    dns = shared.get("cluster_dns") or [(shared.get("dns") or {}).get("listen")]
    port = objects.dig(node, "status", "daemonEndpoints", "kubeletEndpoint", "Port")
    return {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        **({"port": port} if port else {}),
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
        "authorization": {"mode": "Webhook"},
        "clusterDomain": CLUSTER_DOMAIN,
        "clusterDNS": [each for each in dns if each],
        "maxPods": int(objects.dig(node, "status", "capacity", "pods") or 0),
        "podPidsLimit": shared.get("pod_pids_limit", 0) or -1,
    }


# --- stats/summary --------------------------------------------------------------------------------


def summary(node: Node) -> JsonObject:
    """Return ``/stats/summary`` with what is measured here: CPU and memory of node, pods and containers."""
    return {
        "node": {"nodeName": node.name, **(_node_stats(node.machine) if node.machine else {})},
        "pods": [_pod_stats(each) for each in node.measured],
    }


def _node_stats(machine: JsonObject) -> JsonObject:
    return _with_pressure(_stats([machine]), machine.get("pressure") or {})


def _with_pressure(found: JsonObject, told: JsonObject) -> JsonObject:
    for resource in ("cpu", "memory", "io"):
        if resource in told:
            rows = {which: _psi(row) for which, row in told[resource].items()}
            found.setdefault(resource, {"time": found["cpu"]["time"]})["psi"] = rows
    return found


def _psi(told: JsonObject) -> JsonObject:
    """Return one row of a ``PSIStats``, whose total is in nanoseconds."""
    return {"total": told["total_us"] * 1000, **{name: told[name] for name in ("avg10", "avg60", "avg300")}}


def _pod_stats(each: Measured) -> JsonObject:
    reference = {"name": objects.name(each.pod), "namespace": objects.namespace(each.pod), "uid": objects.uid(each.pod)}
    started = objects.status(each.pod).get("startTime")
    containers = [{"name": name, **_stats([usage])} for name, usage in each.usage.items()]
    figures = _with_pressure(_stats([*each.usage.values()]), each.pressure)
    found: JsonObject = {"podRef": reference, "containers": containers, **figures}
    return found | ({"startTime": started} if started else {})


def _stats(usages: list[JsonObject]) -> JsonObject:
    oldest = min(float(each["timestamp_s"]) for each in usages)
    time = rfc3339(datetime.fromtimestamp(oldest, UTC))
    cores = sum(int(each["cpu_nanocores"]) for each in usages)
    total = sum(int(each.get("cpu_nanoseconds") or 0) for each in usages)
    return {
        "cpu": {"time": time, "usageNanoCores": cores, "usageCoreNanoSeconds": total},
        "memory": {"time": time, "workingSetBytes": sum(int(each["memory_bytes"]) for each in usages)},
    }
