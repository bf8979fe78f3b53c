"""The shard's local copies of pods, nodes and pod addresses, with static pods as their nodes have them."""

from __future__ import annotations

from collections.abc import Callable

from minik8s_modules.api import objects
from minik8s_modules.api.field_selectors import exactly
from minik8s_modules.api.kinds import NODE, POD, POD_ADDRESS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mirror_pods import node_uid
from minik8s_modules.client.informer import Informer
from minik8s_modules.client.interface import Source
from minik8s_modules.reconcile.housekeeping.mirrors import seen_pod, seen_pods
from minik8s_modules.reconcile.housekeeping.static_pods import StaticPods

_INDEXES: dict[str, Callable[[JsonObject], str]] = {
    "uid": node_uid,
    "node": lambda pod: str(objects.spec(pod).get("nodeName") or ""),
}


def pod_selector(names: tuple[str, ...]) -> str:
    """Return the field selector of the shard's pods; selectors know no sets, so many nodes mean all bound pods."""
    return exactly(spec__nodeName=names[0]) if len(names) == 1 else "spec.nodeName!="


class Copies:
    """Informers of what a shard with the nodes ``names`` reads; each calls ``on_synced`` when it has listed once."""

    def __init__(self, api: Source, names: tuple[str, ...], static: StaticPods, on_synced: Callable[[], None]) -> None:
        self.pods = Informer(api, POD, field_selector=pod_selector(names), indexes=_INDEXES, on_synced=on_synced)
        self.nodes = Informer(api, NODE, on_synced=on_synced)
        self.addresses = Informer(api, POD_ADDRESS, on_synced=on_synced)
        self._static = static
        self._all = (self.nodes, self.addresses, self.pods)

    def start(self) -> None:
        """Begin to list and watch; returns at once."""
        for informer in self._all:
            informer.start()

    def stop(self) -> None:
        """End."""
        for informer in self._all:
            informer.stop()

    def synced(self) -> bool:
        """Return whether each has listed once."""
        return all(informer.wait_synced(0) for informer in self._all)

    def pod(self, uid: str) -> JsonObject | None:
        """Return the pod as its node sees it, by the UID it has there."""
        return seen_pod(uid, self.pods.by_index("uid", uid), self._static)

    def pods_of(self, node: str) -> list[JsonObject]:
        """Return the pods of a node as it sees them."""
        return seen_pods(node, self.bound_to(node), self._static)

    def stored(self, namespace: str, name: str) -> JsonObject | None:
        """Return the pod as the API has it."""
        return self.pods.get(namespace, name)

    def bound_to(self, node: str) -> list[JsonObject]:
        """Return the pods that the API has bound to a node."""
        return self.pods.by_index("node", node)

    def node(self, name: str) -> JsonObject | None:
        """Return the Node."""
        return self.nodes.get("", name)
