"""What a plan comes to on a node with a reconciler of its own, as the control plane's reconciler tells it. Pure.

Such a node may not see other nodes' pods, nor who owns what, so it cannot decide what a plan leads to. The control
plane's reconciler decides (``simulation``, ``simulated_services``) and tells the node its part: which of its pods
come, change and go, with the addresses they would claim; what of the cluster all nodes may read would differ; and the
ConfigMaps and Secrets that those pods name. What its modules would then do, the node finds out as any other does. The
API server carries the text from one to the other (``apiserver/nodes/plans.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import (
    CONFIG_MAP,
    CSI_DRIVER,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    SECRET,
    Kind,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.account_volumes import ROOT_CA
from minik8s_modules.api.storage.attachments import attachment_name, driver_of, node_secrets
from minik8s_modules.client.interface import Getter
from minik8s_modules.reconcile.feeds.references import references
from minik8s_modules.reconcile.planning.simulated_services import PlannedServices
from minik8s_modules.reconcile.planning.simulation import PlannedState

_KINDS = {kind.kind: kind for kind in (CONFIG_MAP, SECRET, PERSISTENT_VOLUME_CLAIM, PERSISTENT_VOLUME, CSI_DRIVER)}
ObjectOf = Callable[[str, str], JsonObject | None]
"""Returns the object of a kind and ``<namespace>/<name>`` (a volume: ``/<name>``), as it would be."""
_SYSTEM = "kube-system"
Placed = tuple[str, str]
"""A kind and ``<namespace>/<name>``."""


class SuppliedPlan(NamedTuple):
    """One node's part of a plan; ``sources`` are what its pods name and the plan leaves as it is."""

    found: PlannedState
    given: Mapping[str, str]
    seen: PlannedServices
    sources: Mapping[Placed, JsonObject]


class SuppliedObjects:
    """Reads what was told before it asks the API, which refuses a node what none of its pods names yet."""

    def __init__(self, sources: Mapping[Placed, JsonObject], reader: Getter) -> None:
        self._sources = sources
        self._reader = reader

    def get(self, kind: Kind, name: str, namespace: str = "") -> JsonObject:
        """Return the object. Raises as the API does."""
        found = self._sources.get((kind.kind, f"{namespace}/{name}"))
        return found if found is not None else self._reader.get(kind, name, namespace)


def reading(reader: Getter, overlay: Mapping[Placed, JsonObject | None]) -> ObjectOf:
    """Return a function that reads what pods name as a plan would leave it.

    A controller publishes the cluster's authorities in every namespace, as soon as there is one; so they are those of
    kube-system where a namespace has none yet.
    """

    def read(kind: str, key: str) -> JsonObject | None:
        if (kind, key) in overlay:
            return overlay[kind, key]
        namespace, _, name = key.partition("/")
        try:
            return reader.get(_KINDS[kind], name, namespace)
        except NotFound:
            published = (kind, name) == (CONFIG_MAP.kind, ROOT_CA) and namespace != _SYSTEM
            return read(kind, f"{_SYSTEM}/{ROOT_CA}") if published else None

    return read


def volumes_of(claims: Iterable[JsonObject], read: ObjectOf) -> dict[str, JsonObject]:
    """Return the volumes that claims are bound to, by name."""
    names = {str(objects.spec(claim).get("volumeName") or "") for claim in claims} - {""}
    return {name: volume for name in names if (volume := read(PERSISTENT_VOLUME.kind, f"/{name}")) is not None}


class Mounted(NamedTuple):
    """What a pod's claims stand on, as ``PodInputs`` has it."""

    volumes: Mapping[str, JsonObject]
    drivers: Mapping[str, JsonObject]
    attachments: Mapping[str, JsonObject]


def mounted_of(pod: JsonObject, claims: Iterable[JsonObject], read: ObjectOf) -> Mounted:
    """Return the volumes of a pod's claims, with their CSIDrivers and the attachments that they will have."""
    found = volumes_of(claims, read)
    return Mounted(found, _drivers(pod, found.values(), read), _attachments(pod, found.values()))


def driver_secrets(volumes: Iterable[JsonObject], read: ObjectOf) -> dict[str, JsonObject]:
    """Return the Secrets that drivers are told on nodes, by ``<namespace>/<name>``."""
    keys = {key for volume in volumes for key in node_secrets(volume).values()}
    return {key: found for key in sorted(keys) if (found := read(SECRET.kind, key)) is not None}


def _drivers(pod: JsonObject, volumes: Iterable[JsonObject], read: ObjectOf) -> dict[str, JsonObject]:
    """Return the CSIDrivers of a pod's volumes, by name."""
    inline = (str(objects.dig(one, "csi", "driver") or "") for one in objects.spec(pod).get("volumes") or [])
    names = {*inline, *map(driver_of, volumes)} - {""}
    return {name: driver for name in names if (driver := read(CSI_DRIVER.kind, f"/{name}")) is not None}


def _attachments(pod: JsonObject, volumes: Iterable[JsonObject]) -> dict[str, JsonObject]:
    """Return VolumeAttachments as they will be once the pod's volumes are attached to its node."""
    node = str(objects.spec(pod).get("nodeName") or "")
    names = (attachment_name(volume, node) for volume in volumes if driver_of(volume))
    return {name: {"metadata": {"name": name}, "status": {"attached": True}} for name in names}


def plan_for_node(
    node: str,
    found: PlannedState,
    seen: PlannedServices,
    given: Mapping[str, str],
    pods: Iterable[JsonObject],
    certificates: Iterable[str],
    object_of: ObjectOf,
) -> JsonObject:
    """Return ``node``'s part of a plan as JSON.

    Args:
        node: its name.
        found: what would stand in the cluster.
        seen: what Services would be.
        given: addresses by the UID of their pod.
        pods: all pods there are.
        certificates: the Secrets that Ingresses have as certificates, by ``<namespace>/<name>``.
        object_of: reads what pods name.
    """
    here = {objects.uid(pod): pod for pod in pods if _is_on(node, pod)}
    mine = {uid: pod for uid, pod in found.pods.items() if (_is_on(node, pod) if pod is not None else uid in here)}
    for uid in here.keys() & found.pods.keys() - mine.keys():
        mine[uid] = None  # it would be on another node
    named = {one for pod in (*here.values(), *mine.values()) if pod is not None for one in _named(pod)}
    new = {one for pod in mine.values() if pod is not None for one in _named(pod)}
    written = {(SECRET.kind, key) for key in _certificates(found.network)}
    differing = new | (named & found.overlay.keys())
    claims = (object_of(*place) for place in sorted(differing) if place[0] == PERSISTENT_VOLUME_CLAIM.kind)
    held = {
        (PERSISTENT_VOLUME.kind, f"/{name}"): one for name, one in volumes_of(filter(None, claims), object_of).items()
    }
    held |= {(SECRET.kind, key): one for key, one in driver_secrets([*held.values()], object_of).items()}
    needed = {*named, *held, *written, *((SECRET.kind, key) for key in certificates), (NODE.kind, node)}
    read = {place: object_of(*place) for place in sorted(new | written) if place not in found.overlay}
    read |= {place: obj for place, obj in held.items() if place not in found.overlay}
    return {
        "pods": mine,
        "overlay": _rows({place: obj for place, obj in found.overlay.items() if place in needed}),
        "network": _rows(found.network),
        "services": dict(seen.services),
        "slices": dict(seen.slices),
        "awaited": sorted(seen.awaited),
        "addresses": {uid: given[uid] for uid in mine if uid in given},
        "sources": _rows({place: obj for place, obj in read.items() if obj is not None}),
    }


def read_supplied_plan(document: Any) -> SuppliedPlan:
    """Return what ``plan_for_node`` has made.

    Raises:
        ValueError: it is nothing of the kind; the message says what is wrong.
    """
    if not isinstance(document, Mapping):
        raise ValueError("foretold must be a mapping")  # noqa: TRY004 - content
    pods = _objects(document, "pods")
    found = PlannedState(pods, dict(_placed(document, "overlay")), (), network=dict(_placed(document, "network")))
    slices = document.get("slices")
    if not isinstance(slices, Mapping) or not all(isinstance(each, list) for each in slices.values()):
        raise ValueError("foretold.slices must be lists by Service")
    awaited = frozenset(map(str, document.get("awaited") or ()))
    sources = {place: obj for place, obj in _placed(document, "sources") if obj is not None}
    given = {str(uid): str(ip) for uid, ip in (document.get("addresses") or {}).items()}
    return SuppliedPlan(found, given, PlannedServices(_objects(document, "services"), dict(slices), awaited), sources)


def _is_on(node: str, pod: JsonObject) -> bool:
    return bool(objects.spec(pod).get("nodeName") == node)


def _named(pod: JsonObject) -> Iterator[Placed]:
    return ((one.kind, f"{one.namespace}/{one.name}") for one in references(pod))


def _certificates(network: Mapping[Placed, JsonObject | None]) -> Iterator[str]:
    written = (obj for (kind, _), obj in network.items() if kind == "Ingress" and obj is not None)
    return (key for obj in written for key in certificates_of(obj))


def certificates_of(ingress: JsonObject) -> Iterator[str]:
    """Yield the Secrets that an Ingress has as certificates, as ``<namespace>/<name>``."""
    for tls in objects.spec(ingress).get("tls") or []:
        if tls.get("secretName"):
            yield f"{objects.namespace(ingress)}/{tls['secretName']}"


def _rows(placed: Mapping[Placed, JsonObject | None]) -> list[list[Any]]:
    return [[kind, key, obj] for (kind, key), obj in sorted(placed.items(), key=lambda row: row[0])]


def _placed(document: Mapping[str, Any], field: str) -> Iterator[tuple[Placed, JsonObject | None]]:
    for row in document.get(field) or []:
        if not isinstance(row, list) or len(row) != 3 or not isinstance(row[2], dict | None):  # noqa: PLR2004 - a row
            raise ValueError(f"foretold.{field} must be rows of kind, name and object")
        yield (str(row[0]), str(row[1])), row[2]


def _objects(document: Mapping[str, Any], field: str) -> dict[str, JsonObject | None]:
    found = document.get(field)
    if not isinstance(found, Mapping) or not all(isinstance(obj, dict | None) for obj in found.values()):
        raise ValueError(f"foretold.{field} must be a mapping of objects")
    return {str(key): obj for key, obj in found.items()}
