"""What runs on a cluster of lab machines while things happen to it: servers behind services, clients that never pause.

The pods of a ``server`` answer on port 8080 with their name; a ``client`` asks a URL five times a second and writes
down what failed and when, in files that Docker on its node can read when there is no API.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from minik8s_modules.api.objects import JsonObject
from tests.support.clusters.labcluster import LabCluster, is_true

IMAGE = "minik8s/busybox:1"
NAMESPACE = "standing"
SERVER = 'trap "exit 0" TERM; mkdir -p /tmp/w; hostname >/tmp/w/index.html; httpd -f -p 8080 -h /tmp/w & wait'
CLIENT = (
    'trap "exit 0" TERM; mkdir -p /tmp/c; while :; do '
    'if timeout 5 wget -q -O /dev/null "$0" 2>/tmp/c/last; then echo >>/tmp/c/good; '
    'else echo "$(date) status $? $(cat /tmp/c/last)" >>/tmp/c/bad; fi; sleep 0.2; done'
)
COUNT = "mkdir -p /tmp/c; touch /tmp/c/good /tmp/c/bad; wc -l </tmp/c/good; wc -l </tmp/c/bad; tail -n 5 /tmp/c/bad"


def pod_spec(command: list[str], node: str = "", tolerates_s: int | None = None, **more: Any) -> JsonObject:
    """Return a pod's spec; ``tolerates_s`` is for how long it stays on a node that is not heard of."""
    spec: JsonObject = {
        "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "app", "image": IMAGE, "command": command}],
        **({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}),
        **more,
    }
    if tolerates_s is not None:
        keys = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
        spec["tolerations"] = [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": tolerates_s} for key in keys
        ]
    return spec


def server_spec(node: str = "", tolerates_s: int | None = None) -> JsonObject:
    """Return the spec of a pod that serves its name, on ``node`` or anywhere, but beside none of its kind."""
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    spread["labelSelector"] = {"matchLabels": {"part": "server"}}
    more = {} if node else {"topologySpreadConstraints": [spread]}
    return pod_spec(["sh", "-c", SERVER], node, tolerates_s, **more)


def template(name: str, spec: JsonObject) -> JsonObject:
    """Return a pod template with the label that its workload and its service select."""
    return {"metadata": {"labels": {"app": name, "part": "server"}}, "spec": spec}


def deployment(name: str, replicas: int, spec: JsonObject, kind: str = "Deployment") -> JsonObject:
    """Return a Deployment, or a StatefulSet that starts its pods together."""
    more = {"serviceName": name, "podManagementPolicy": "Parallel"} if kind == "StatefulSet" else {}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name, spec),
            **more,
        },
    }


def service(name: str, node_port: int = 0) -> JsonObject:
    """Return the service of a workload: port 80, and a node port where one is given."""
    port = {"port": 80, "targetPort": 8080, **({"nodePort": node_port} if node_port else {})}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "selector": {"app": name},
            "ports": [port],
            "type": "NodePort" if node_port else "ClusterIP",
        },
    }


def ingress(host: str, name: str) -> JsonObject:
    """Return the path routing of a host name to a service."""
    backend = {"service": {"name": name, "port": {"number": 80}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"rules": [{"host": host, "http": {"paths": [path]}}]},
    }


def pod(name: str, spec: JsonObject) -> JsonObject:
    """Return a bare pod."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def client(name: str, node: str, asks: str) -> JsonObject:
    """Return a pod on ``node`` that keeps asking for ``asks``, a URL."""
    return pod(name, pod_spec(["sh", "-c", CLIENT, asks], node))


def namespace() -> JsonObject:
    """Return the namespace of all this."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def pods(cluster: LabCluster, selector: str = "", **wanted: str) -> list[JsonObject]:
    """Return the pods, of a selector; ``node`` limits them to one."""
    found = cluster.get("pods", "-n", NAMESPACE, *(["-l", selector] if selector else []))["items"]
    return [one for one in found if "node" not in wanted or one["spec"].get("nodeName") == wanted["node"]]


def all_ready(cluster: LabCluster, count: int, selector: str = "") -> bool:
    """Return whether exactly so many pods are there, and all are Ready; those that have ended do not count."""
    found = [one for one in pods(cluster, selector) if one["status"].get("phase") not in {"Failed", "Succeeded"}]
    return len(found) == count and all(is_true(one, "Ready") for one in found)


class Tally(NamedTuple):
    """What a client has counted, and when and how its last requests failed."""

    good: int
    bad: int
    last: str


def tally(cluster: LabCluster, node: str, container: str) -> Tally:
    """Return what the client in a container of ``node`` has counted so far; Docker is asked, no API."""
    text = cluster.on(node, ["docker", "exec", container, "sh", "-c", COUNT])
    good, bad, *last = text.splitlines()
    return Tally(int(good), int(bad), " ".join(last))


def ready_on(cluster: LabCluster, selector: str, node: str) -> int:
    """Return how many pods of a selector are Ready on a node."""
    return sum(is_true(one, "Ready") for one in pods(cluster, selector, node=node))
