"""Pods and nodes with what plugins ask of them, worked out once.

Pods made from one template differ in name and little else. What a decision can depend on is their *shape*; it is
worked out once for all pods of a shape, and decisions are shared by it (``deciding/templates.py``). A NodeInfo is
never changed: with a pod more or less it is another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from minik8s_modules.api import objects, syntax
from minik8s_modules.api.kinds import NODE
from minik8s_modules.api.objects import MISREAD, JsonObject
from minik8s_modules.api.pods.resizes import as_counted
from minik8s_modules.api.pods.resources import PodResources, node_allocatable, pod_amounts, pod_requests
from minik8s_modules.api.schema.structural import is_readable, type_errors
from minik8s_modules.scheduler.framework.terms import Terms, terms_of

DEFAULT_SCHEDULER = "default-scheduler"
_OVER = frozenset({"Succeeded", "Failed"})
_SPEC = (
    "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "overhead", "priority", "preemptionPolicy",
    "schedulerName", "resources",
)  # fmt: skip
_CONTAINER = ("resources", "ports", "restartPolicy", "image")
# pkg/scheduler/util/pod_resources.go: what a container without requests counts for when nodes are compared
_DEFAULT_CPU, _DEFAULT_MEMORY = 100, 200 * 1024 * 1024
_SHAPES = 20_000
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - Kubernetes' word for all addresses, compared only
_EVERY_IPV6 = "::"


class HostPort(NamedTuple):
    """A port of the node's own that a container takes."""

    ip: str
    protocol: str
    port: int

    def conflicts(self, other: HostPort) -> bool:
        """Return whether both cannot be on one node; 0.0.0.0 is every address, :: every one of IPv6."""
        if (self.protocol, self.port) != (other.protocol, other.port):
            return False
        both = {self.ip, other.ip}
        return len(both) == 1 or _EVERYWHERE in both or (_EVERY_IPV6 in both and all(":" in ip for ip in both))


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What a decision can depend on in a pod; ``key`` is the same for pods that are alike.

    Attributes:
        wanted: what is asked of a node, by resource (``amounts``), without what is asked none of.
        usual: cpu in thousandths and memory in bytes, with Kubernetes' defaults where containers ask for nothing.
        claims: the names of the claims that its volumes name.
        ephemeral: the names of the volumes whose claim is made for the pod.
        disks: the volumes that are disks which not every two pods may have at once.
    """

    key: bytes
    requests: PodResources
    wanted: Mapping[str, int]
    usual: tuple[int, int]
    ports: tuple[HostPort, ...]
    terms: Terms
    claims: tuple[str, ...] = ()
    ephemeral: tuple[str, ...] = ()
    disks: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class PodInfo:
    """A pod with its shape; equal to itself alone."""

    pod: JsonObject
    shape: Shape

    @classmethod
    def of(cls, pod: JsonObject) -> PodInfo:
        """Return the info of ``pod``."""
        return cls(pod, _shape(_key(pod)))

    @property
    def requests(self) -> PodResources:
        """What the pod asks of a node."""
        return self.shape.requests

    @property
    def ports(self) -> tuple[HostPort, ...]:
        """The host ports it takes."""
        return self.shape.ports

    @property
    def key(self) -> objects.Key:
        """Its namespace and name."""
        return objects.key(self.pod)

    @property
    def claims(self) -> list[str]:
        """The names of all its claims, also of those that are made for it."""
        return [*self.shape.claims, *(f"{objects.name(self.pod)}-{volume}" for volume in self.shape.ephemeral)]

    @property
    def priority(self) -> int:
        """Its priority; 0 without one."""
        return int(objects.spec(self.pod).get("priority") or 0)


def _key(pod: JsonObject) -> bytes:
    """Return what is the same for pods that are alike to every plugin in tree."""
    spec = objects.spec(as_counted(pod))
    fields: dict[str, Any] = {name: spec[name] for name in _SPEC if spec.get(name)}
    for listed in ("containers", "initContainers"):
        fields[listed] = [{name: one[name] for name in _CONTAINER if name in one} for one in spec.get(listed) or ()]
    volumes = [one for one in spec.get("volumes") or () if not _HARMLESS.intersection(one)]
    owner = objects.controller_of(pod)
    by = owner and [owner.get("kind"), owner.get("name")]
    whole = [objects.namespace(pod), objects.labels(pod), fields, volumes, by, objects.is_deleting(pod)]
    return orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)


# volumes that hold a pod to no node
_HARMLESS = frozenset({"configMap", "downwardAPI", "emptyDir", "hostPath", "image", "projected", "secret"})
# of a pod that has a node
_UNREAD = frozenset({"managedFields", "generateName", "selfLink", "generation"})
_ALIKE = frozenset({"annotations", "finalizers", "labels", "ownerReferences"})
_STATUS = frozenset({"nominatedNodeName", "phase", "startTime"})
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_DISKS = frozenset({"awsElasticBlockStore", "gcePersistentDisk", "iscsi", "rbd"})


def slim(pod: JsonObject) -> JsonObject:
    """Return a pod that has a node as it is kept: without what only its node reads, and sharing what others have, too.

    What a decision can depend on stays, so that its shape does; of its conditions only that it is to be disrupted.
    """
    spec = objects.spec(as_counted(pod))  # the statuses of containers, which say that, are left out
    fields = {name: spec[name] for name in ("nodeName", *_SPEC) if name in spec}
    for listed in ("containers", "initContainers"):
        if spec.get(listed):
            fields[listed] = [
                {name: one[name] for name in ("name", *_CONTAINER) if name in one} for one in spec[listed]
            ]
    fields["volumes"] = [one for one in spec.get("volumes") or () if not _HARMLESS.intersection(one)]
    meta = {name: value for name, value in objects.metadata(pod).items() if name not in _UNREAD}
    meta["annotations"] = {key: text for key, text in objects.annotations(pod).items() if key != _APPLIED}
    status = {name: value for name, value in objects.status(pod).items() if name in _STATUS}
    disrupted = objects.condition(pod, "DisruptionTarget")
    status["conditions"] = [disrupted] if disrupted else []
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {name: _shared(value) if name in _ALIKE else value for name, value in meta.items()},
        "spec": {name: _shared(value) if isinstance(value, (dict, list)) else value for name, value in fields.items()},
        "status": status,
    }  # fmt: skip


def _shared(value: Any) -> Any:
    """Return an equal value that is the same for all that ask for such."""
    return _parsed(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


@lru_cache(maxsize=_SHAPES)
def _parsed(text: bytes) -> Any:
    return orjson.loads(text)


@lru_cache(maxsize=_SHAPES)
def _shape(key: bytes) -> Shape:
    namespace, labels, spec, volumes, _, _ = orjson.loads(key)
    pod = {"metadata": {"namespace": namespace, "labels": labels}, "spec": spec}
    requests = pod_requests(pod)
    usual = pod_amounts(pod, _usual)
    return Shape(
        key, requests, {name: amount for name, amount in amounts(requests).items() if amount},
        (usual.get("cpu", 0), usual.get("memory", 0)), tuple(host_ports(pod)), terms_of(pod),
        tuple(name for one in volumes if (name := objects.dig(one, "persistentVolumeClaim", "claimName"))),
        tuple(str(one["name"]) for one in volumes if "ephemeral" in one),
        tuple(one for one in volumes if _DISKS.intersection(one)),
    )  # fmt: skip


def _usual(container: JsonObject) -> dict[str, int]:
    asked = pod_requests({"spec": {"containers": [container]}})
    declared = container.get("resources") or {}
    named = {*(declared.get("requests") or {}), *(declared.get("limits") or {})}
    return {
        "cpu": asked.milli_cpu if "cpu" in named else _DEFAULT_CPU,
        "memory": asked.memory_bytes if "memory" in named else _DEFAULT_MEMORY,
    }


@dataclass(frozen=True, slots=True, eq=False)
class NodeInfo:
    """A node, what it has for pods, and what its pods have taken.

    Attributes:
        has: what it has for pods, by resource (``amounts``).
        requested: what its pods have asked for.
        usual: cpu and memory of its pods, each as ``Shape.usual``.
        social: those of ``pods`` that want to be near others, or far from them.
        images: bytes by name of the images that are there.
    """

    node: JsonObject
    name: str
    labels: Mapping[str, str]
    allocatable: PodResources
    has: Mapping[str, int]
    requested: Mapping[str, int]
    usual: tuple[int, int] = (0, 0)
    ports: tuple[HostPort, ...] = ()
    pods: tuple[PodInfo, ...] = ()
    social: tuple[PodInfo, ...] = ()
    images: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, node: JsonObject, bound: Iterable[PodInfo] = ()) -> NodeInfo:
        """Return the info of ``node`` with the pods ``bound`` to it."""
        allocatable = node_allocatable(node)
        bare = cls(
            node, objects.name(node), objects.labels(node), allocatable, amounts(allocatable), {}, images=_images(node)
        )
        return bare.with_pods(tuple(bound))

    def with_pods(self, pods: tuple[PodInfo, ...]) -> NodeInfo:
        """Return the node with these pods on it, and no others."""
        info = replace(self, requested={}, usual=(0, 0), ports=(), pods=(), social=())
        for pod in pods:
            info = info.with_pod(pod)
        return info

    def with_pod(self, pod: PodInfo) -> NodeInfo:
        """Return the node with one more pod."""
        shape, requested = pod.shape, dict(self.requested)
        for name, amount in shape.wanted.items():
            requested[name] = requested.get(name, 0) + amount
        return NodeInfo(
            self.node, self.name, self.labels, self.allocatable, self.has, requested,
            (self.usual[0] + shape.usual[0], self.usual[1] + shape.usual[1]),
            (*self.ports, *shape.ports) if shape.ports else self.ports,
            self.pods + (pod,),  # noqa: RUF005 - one copy instead of two, of what may be thousands
            (*self.social, pod) if shape.terms.social else self.social, self.images,
        )  # fmt: skip

    def with_newer(self, old: PodInfo, new: PodInfo) -> NodeInfo:
        """Return the node with a pod of the same shape in another's place."""
        social = _instead(self.social, old, (new,)) if old.shape.terms.social else self.social
        return replace(self, pods=_instead(self.pods, old, (new,)), social=social)

    def without_pod(self, gone: PodInfo) -> NodeInfo:
        """Return the node without one of its pods."""
        requested = {name: amount - gone.shape.wanted.get(name, 0) for name, amount in self.requested.items()}
        rest = _instead(self.pods, gone, ())
        return NodeInfo(
            self.node, self.name, self.labels, self.allocatable, self.has, requested,
            (self.usual[0] - gone.shape.usual[0], self.usual[1] - gone.shape.usual[1]),
            tuple(port for pod in rest for port in pod.ports) if gone.ports else self.ports,
            rest, _instead(self.social, gone, ()) if gone.shape.terms.social else self.social, self.images,
        )  # fmt: skip


def _instead(pods: tuple[PodInfo, ...], old: PodInfo, new: tuple[PodInfo, ...]) -> tuple[PodInfo, ...]:
    """Return ``pods`` with ``new`` in the place of ``old``."""
    place = pods.index(old)
    return pods[:place] + new + pods[place + 1 :]


def read_node(node: JsonObject) -> NodeInfo | None:
    """Return the info of a node without pods; None where plugins would misread the node, whoever wrote it."""
    spec, status = objects.spec(node), objects.status(node)
    try:
        # a null is of no wrong type, and no member of a list
        listed = (spec.get("taints"), status.get("conditions"), status.get("images"))
        typed = is_readable(NODE, node) or not type_errors(NODE, node)
        readable = typed and all(None not in (each or ()) for each in listed)
        return NodeInfo.of(node) if readable else None
    except MISREAD:
        return None


def _images(node: JsonObject) -> dict[str, int]:
    found = objects.status(node).get("images") or ()
    return {name: int(one.get("sizeBytes") or 0) for one in found for name in one.get("names") or ()}


def takes_room(pod: JsonObject) -> bool:
    """Return whether ``pod`` is bound and not over, so that its requests count on its node."""
    return bool(objects.spec(pod).get("nodeName")) and objects.status(pod).get("phase") not in _OVER


def scheduler_of(pod: JsonObject) -> str:
    """Return the name of the scheduler that is to give the pod a node."""
    return str(objects.spec(pod).get("schedulerName") or DEFAULT_SCHEDULER)


def is_pending(pod: JsonObject, scheduler: str = DEFAULT_SCHEDULER) -> bool:
    """Return whether ``pod`` waits for ``scheduler`` to give it a node."""
    over = objects.status(pod).get("phase") in _OVER
    waits = not objects.spec(pod).get("nodeName") and not objects.is_deleting(pod) and not over
    return waits and scheduler_of(pod) == scheduler


def host_ports(pod: JsonObject) -> list[HostPort]:
    """Return the host ports of the pod's containers."""
    return [
        HostPort(
            syntax.shortest_ip(port.get("hostIP") or _EVERYWHERE), port.get("protocol") or "TCP", int(port["hostPort"])
        )
        for container in objects.lasting_containers(pod)
        for port in container.get("ports") or []
        if port.get("hostPort")
    ]


def amounts(resources: PodResources) -> dict[str, int]:
    """Return resources as one mapping: cpu in thousandths, memory in bytes, pods, and the others."""
    return {"cpu": resources.milli_cpu, "memory": resources.memory_bytes, "pods": resources.pods, **resources.other}
