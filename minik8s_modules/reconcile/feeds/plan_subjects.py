"""Which objects each part of a plan's answer shows something of. Pure.

A plan may be asked by somebody who may not read all that it would show: other tenants' pods, what ConfigMaps hold,
machines. The API server knows who asks and what he may read (``apiserver/nodes/plan_view.py``); here is said, as
fields, what each message, step and difference is about. Whatever cannot be placed is about everything, so that only
those see it who may read everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    CONFIG_MAP,
    DNS,
    ENDPOINTS,
    INGRESS,
    NETWORK_POLICY,
    NODE,
    PERSISTENT_VOLUME,
    POD,
    SECRET,
    SERVICE,
    Kind,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.pod_claims import claim_of
from minik8s_modules.module_utils.minik8s.names import dns_entries, ingress_entries
from minik8s_modules.reconcile.feeds.references import Reference, of_container, of_volume, references
from minik8s_modules.reconcile.network.dataplane import DATAPLANE
from minik8s_modules.reconcile.values.values import Entry


class About(NamedTuple):
    """An object; without a name all of its kind in the namespace, without that the kind's in all namespaces.

    The kind ``*`` is all that a group has there.
    """

    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""

    def row(self) -> JsonObject:
        """Return it as JSON."""
        return {"apiVersion": self.api_version, "kind": self.kind, "namespace": self.namespace, "name": self.name}


class Note(NamedTuple):
    """A message, and what it is about: () is nothing that anybody may not know.

    ``node`` is the one it speaks for: whoever misses that node's part of a plan has been told of it.
    """

    text: str
    about: tuple[About, ...] = ()
    node: str = ""

    def row(self) -> JsonObject:
        """Return it as JSON."""
        return {"text": self.text, "about": rows(self.about), **({"node": self.node} if self.node else {})}


MESH_KINDS = frozenset({"VirtualService", "Subset", "AuthorizationPolicy"})
"""Kinds that no node sees, and sidecars do."""
NO_ENTRIES: Mapping[str, Entry] = {}
Hosts = Callable[[str], Iterable[tuple[Kind, JsonObject]]]
"""Returns the DNS and Ingress objects that have a host."""
EVERYTHING = (About("*", "*"),)


def rows(about: Iterable[About]) -> list[JsonObject]:
    """Return the objects as JSON."""
    return [one.row() for one in about]


def of(kind: Kind, namespace: str = "", name: str = "") -> About:
    """Return the object of that kind, namespace and name."""
    return About(kind.api_version, kind.kind, namespace, name)


def of_pod(pod: JsonObject) -> tuple[About, ...]:
    """Return the pod."""
    return (of(POD, objects.namespace(pod), objects.name(pod)),)


def of_key(kind: Kind, key: str) -> tuple[About, ...]:
    """Return the object of a ``<namespace>/<name>``."""
    namespace, slash, name = key.partition("/")
    return (of(kind, namespace, name) if slash else of(kind),)


def of_node(name: str) -> tuple[About, ...]:
    """Return the node."""
    return (of(NODE, "", name),)


class Subjects:
    """What the keys of one node's sections are about.

    Args:
        node: its name.
        pods: those that are or would be there, by UID.
        hosts: see ``Hosts``.
        containers: the section ``containers``, of which entries have paths of volumes.
    """

    def __init__(
        self, node: str, pods: Mapping[str, JsonObject], hosts: Hosts, containers: Mapping[str, Entry] = NO_ENTRIES
    ) -> None:
        self._node = of_node(node)
        self._pods = pods
        self._hosts = hosts
        self._containers = containers
        self._sections: Mapping[str, Callable[[str], tuple[About, ...]]] = {
            "network": lambda _: self._node,
            "policies": self._policy,
            "secrets": self._secret,
            "folders": lambda key: (of(PERSISTENT_VOLUME, name=key),),
            "volumes": self._volume,
            "sandboxes": self._pod,
            "sidecars": self._pod,
            "containers": self._container,
            "services": self._service,
            "dns": self._name,
            "ingress": self._host,
        }

    def of(self, section: str, key: str) -> tuple[About, ...]:
        """Return what the key is about."""
        found = self._sections.get(section)
        return found(key) if found is not None else EVERYTHING

    def _pod(self, uid: str) -> tuple[About, ...]:
        pod = self._pods.get(uid)
        return of_pod(pod) if pod is not None else (of(POD),)

    def _with(self, uid: str, named: Callable[[JsonObject], Iterable[Reference]]) -> tuple[About, ...]:
        """Return a pod and what it takes from elsewhere; of one that is known no more, whatever it may have taken."""
        pod = self._pods.get(uid)
        if pod is None:
            return (of(POD), of(CONFIG_MAP), of(SECRET), of(PERSISTENT_VOLUME))
        return (*of_pod(pod), *(About("v1", *one) for one in sorted(named(pod))))

    def _volume(self, key: str) -> tuple[About, ...]:
        """Return what a volume is about; where one of a claim stands is told to who may read PersistentVolumes."""
        uid, _, name = key.partition("/")
        found = self._with(uid, lambda pod: of_volume(pod, name))
        return (*found, of(PERSISTENT_VOLUME)) if name in self._claimed(uid) else found

    def _container(self, key: str) -> tuple[About, ...]:
        """Return what a container is about: of the volumes it has, only one on a node's disk is told by its place."""
        uid, _, name = key.partition("/")
        found = self._with(uid, lambda pod: of_container(pod, name))
        entry = self._containers.get(key)
        if entry is None:  # of one that would go, whatever it has mounted
            shown = bool(self._claimed(uid))
        else:
            shown = any(one["volume"] in self._claimed(uid) for one in entry["mounts"] if one["host_path"])
        return (*found, of(PERSISTENT_VOLUME)) if shown else found

    def _claimed(self, uid: str) -> frozenset[str]:
        pod = self._pods.get(uid) or {}
        volumes = objects.spec(pod).get("volumes") or []
        return frozenset(one["name"] for one in volumes if claim_of(pod, one))

    def _secret(self, key: str) -> tuple[About, ...]:
        _, _, name = key.partition("/")
        uid, underscore, _ = name.partition("_")  # which no Secret's name has: values put together for a pod
        return self._with(uid, references) if underscore else of_key(SECRET, key)

    def _service(self, key: str) -> tuple[About, ...]:
        if key == DATAPLANE:
            return self._node
        place = key.rpartition(":")[0]
        return (*of_key(SERVICE, place), *of_key(ENDPOINTS, place))

    def _policy(self, key: str) -> tuple[About, ...]:
        kind, _, name = key.partition("/")
        if not name:
            return self._node
        return of_key(NETWORK_POLICY if kind == "policy" else POD, name)

    def _name(self, key: str) -> tuple[About, ...]:
        if key == dns_entries.SERVER:
            return self._node
        kind, _, name = key.partition("/")
        if kind == "service":
            return (*of_key(SERVICE, name), *of_key(ENDPOINTS, name))
        return self._host(name) if kind == "host" else EVERYTHING

    def _host(self, host: str) -> tuple[About, ...]:
        if host == ingress_entries.SERVER:
            return self._node
        if host.startswith(ingress_entries.HEALTH):
            service = host[len(ingress_entries.HEALTH) :]
            return (*of_key(SERVICE, service), *of_key(ENDPOINTS, service))
        found = [(kind, objects.namespace(obj), objects.name(obj)) for kind, obj in self._hosts(host)]
        owners = [of(*one) for one in found]
        # paths lead to endpoints of Services next to them
        return (*owners, *(of(ENDPOINTS, one[1]) for one in found)) if found else (of(DNS), of(INGRESS), of(ENDPOINTS))
