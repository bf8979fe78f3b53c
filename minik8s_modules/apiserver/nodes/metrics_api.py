"""``metrics.k8s.io/v1beta1``: what nodes and pods use, asked of the gateways when somebody asks here.

Gateways hold the samples (gateway/metrics.py); nothing is stored. One GET a gateway, over the way that streams take,
and the answer is joined with Nodes and Pods of the watch cache: names, labels and who may see them are the API's. A
node or pod without two samples yet is left out of lists and not found by name, as metrics-server has it.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, ServiceUnavailable
from minik8s_modules.api.kinds import LEASE, NODE, NODE_METRICS, POD, POD_METRICS, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mirror_pods import node_uid
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.nodes import gateways
from minik8s_modules.apiserver.nodes.gateways import Gateways
from minik8s_modules.apiserver.nodes.kubelet_usage import of_kubelets
from minik8s_modules.apiserver.nodes.kubelets import Kubelets
from minik8s_modules.apiserver.reads.selection import Selection, select
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.store.cached import CachedObject

log = logging.getLogger(__name__)
GROUP = NODE_METRICS.group
TIMEOUT_S = 5.0
_LARGEST = 64 * 1024 * 1024
_READ = 256 * 1024
_REQUEST = b"GET /metrics HTTP/1.1\r\nHost: gateway\r\n\r\n"


def listed(
    backend: Backend, reach: Gateways | None, selection: Selection, kubelets: Kubelets | None = None
) -> list[CachedObject]:
    """Return the metrics objects of a selection, ordered by key.

    Raises:
        ServiceUnavailable: no gateway tells any.
    """
    usage = collected(backend, reach, kubelets)
    found = _nodes(backend, usage) if selection.kind is NODE_METRICS else _pods(backend, usage)
    return [each for each in found if each.key.startswith(selection.prefix) and selection.matches(each)]


def one(backend: Backend, reach: Gateways | None, target: Target, kubelets: Kubelets | None = None) -> CachedObject:
    """Return the metrics of one node or pod.

    Raises:
        NotFound: there are none of that name.
        ServiceUnavailable: no gateway tells any.
    """
    key = target.kind.key(target.namespace, target.name)
    found = next((each for each in listed(backend, reach, select(target, {}), kubelets) if each.key == key), None)
    if found is None:
        raise NotFound(target.kind, target.name)
    return found


def collected(backend: Backend, reach: Gateways | None, kubelets: Kubelets | None = None) -> dict[str, JsonObject]:
    """Return what all gateways and ``kubelets`` tell, by node; who does not answer is left out while another does.

    Raises:
        ServiceUnavailable: none answers.
    """
    leases = backend.cache.list(f"{LEASE.prefix}kube-node-lease/").items
    nodes_of: dict[str, set[str]] = {}
    for each in leases:
        if url := objects.annotations(each.object).get(gateways.ENDPOINT, ""):
            nodes_of.setdefault(url, set()).add(objects.name(each.object))
    urls = sorted(nodes_of)
    usage = of_kubelets(backend.cache, kubelets)
    if reach is None or not urls:
        if usage:
            return usage
        raise ServiceUnavailable("no gateway reports usage: none has renewed a node's Lease")
    failures: list[Exception] = []

    def ask(url: str) -> None:
        try:
            # of its own nodes only: one may be the gateway of a single node, which cannot speak for others
            usage.update({node: reported for node, reported in _asked(reach, url).items() if node in nodes_of[url]})
        except (OSError, ValueError) as error:
            log.warning("gateway %s reports no metrics: %s", url, error)
            failures.append(error)

    _together(ask, urls)
    if failures and not usage:
        raise ServiceUnavailable(f"no gateway reports usage: {failures[0]}")
    return usage


def of_node(backend: Backend, reach: Gateways | None, node: str) -> JsonObject:
    """Return what a node's gateway tells of it.

    Raises:
        ServiceUnavailable: it tells nothing.
    """
    url = gateways.endpoint_of(backend.cache, node)
    if reach is None:
        raise ServiceUnavailable("this API server has no client certificate for gateways (reconciler_client)")
    try:
        return dict(_asked(reach, url).get(node) or {})
    except (OSError, ValueError) as error:
        raise ServiceUnavailable(f"gateway {url} reports no usage: {error}") from error


def _together(do: Callable[[str], None], urls: list[str]) -> None:
    """Ask all at once: one that hangs costs its time-out, not the sum."""
    if len(urls) == 1:
        do(urls[0])
        return
    threads = [threading.Thread(target=do, args=(url,), daemon=True) for url in urls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * TIMEOUT_S)


def _asked(reach: Gateways, url: str) -> dict[str, JsonObject]:
    connection = reach.connect(url, _REQUEST)
    try:
        data = b"".join(_pieces(connection, time.monotonic() + TIMEOUT_S))
    finally:
        connection.close()
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise ValueError(head.split(b"\r\n", 1)[0].decode("latin-1") or "no answer")
    found = orjson.loads(body)
    if not isinstance(found, dict):
        raise ValueError("the answer is not an object")  # noqa: TRY004 - what a gateway sent, not what a caller passed
    return found


def _pieces(connection: socket.socket, until_s: float) -> Iterator[bytes]:
    """Yield the answer; one that comes a byte at a time would otherwise keep a thread for as long as it likes."""
    size = 0
    while True:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"the answer was not complete after {TIMEOUT_S:g} s")
        connection.settimeout(left_s)
        data = connection.recv(_READ)
        if not data:
            return
        size += len(data)
        if size > _LARGEST:
            raise ValueError(f"the answer is longer than {_LARGEST} bytes")
        yield data


def _nodes(backend: Backend, usage: Mapping[str, JsonObject]) -> list[CachedObject]:
    found = []
    for item in backend.cache.list(NODE.prefix).items:
        machine = (usage.get(objects.name(item.object)) or {}).get("machine")
        if machine:
            found.append(_object(NODE_METRICS, item, item.object, [machine], {"usage": _resources(machine)}))
    return found


def _pods(backend: Backend, usage: Mapping[str, JsonObject]) -> list[CachedObject]:
    used = by_pod(usage)
    keys = {POD.key(space, name) for _, space, name, _ in used}
    found = []
    for item in backend.cache.list(POD.prefix).items:
        if item.key not in keys:
            continue
        pod = item.peek()
        own = used.get(marks(pod), {})
        names = [one["name"] for one in objects.containers(pod) if one["name"] in own]
        if names and len(names) == len(objects.containers(pod)):
            rows = [{"name": name, "usage": _resources(own[name])} for name in names]
            found.append(_object(POD_METRICS, item, pod, [own[name] for name in names], {"containers": rows}))
    return found


def by_pod(usage: Mapping[str, JsonObject]) -> dict[tuple[str, ...], dict[str, JsonObject]]:
    """Return what containers use by their names, by the ``marks`` of their pods."""
    found: dict[tuple[str, ...], dict[str, JsonObject]] = {}
    for node, reported in usage.items():
        for each in reported.get("containers") or []:
            if each.get("container") and each.get("usage"):
                whose = (node, *(str(each.get(mark) or "") for mark in ("namespace", "pod", "pod_uid")))
                found.setdefault(whose, {})[str(each["container"])] = each["usage"]
    return found


def marks(pod: JsonObject) -> tuple[str, ...]:
    """Return the node that runs the pod, and what the pod's containers bear there."""
    return (str(objects.spec(pod).get("nodeName") or ""), *objects.key(pod), node_uid(pod))


def _object(
    kind: Kind, item: CachedObject, measured: JsonObject, usages: list[JsonObject], rest: JsonObject
) -> CachedObject:
    oldest = min(usages, key=lambda each: float(each["timestamp_s"]))
    moment = rfc3339(datetime.fromtimestamp(float(oldest["timestamp_s"]), UTC))
    meta = objects.metadata(measured)
    shown: JsonObject = {"name": meta["name"], "creationTimestamp": moment}
    shown |= {key: meta[key] for key in ("namespace", "labels") if meta.get(key)}
    obj = {
        "kind": kind.kind,
        "apiVersion": kind.api_version,
        "metadata": shown,
        "timestamp": moment,
        "window": f"{float(oldest['window_s']):.3f}s",
        **rest,
    }
    return CachedObject(kind.key(meta.get("namespace") or "", meta["name"]), orjson.dumps(obj), 0, item.labels)


def _resources(usage: JsonObject) -> JsonObject:
    return {"cpu": f"{int(usage['cpu_nanocores'])}n", "memory": f"{int(usage['memory_bytes']) // 1024}Ki"}
