"""What a program that carries several virtual nodes may do: with those it has registered, and with nothing else's.

Its role gives it the verb ``carry`` on nodes. A Node that such a program registers says whose it is in the annotation
``minik8s.io/carried-by``, which the server writes (``note_carrier``) and keeps. From then on the program may tell the
status of that Node and renew its Lease, tell the status of the Pods bound there and remove them, and read the
ConfigMaps and Secrets that these name: what a node's own certificate gives (node_access.py). A Node that was there
before, such as a machine's, is not its own, whatever it calls its nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import LEASE, NODE, POD
from minik8s_modules.api.nodes.virtual_nodes import CARRIED_BY, is_virtual
from minik8s_modules.api.pods.pod_references import Reference
from minik8s_modules.apiserver.access.node_access import LEASES
from minik8s_modules.apiserver.access.node_index import NodeIndex
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.authorization.identity import MASTERS, User
from minik8s_modules.apiserver.authorization.policy import Rbac
from minik8s_modules.apiserver.http.write import Write
from minik8s_modules.store.cache import WatchCache

CARRY = Attributes("carry", "", "nodes")
_OF_NODES = {"nodes": frozenset({"patch"}), "nodes/status": frozenset({"patch"})}
_OF_PODS = {"pods": frozenset({"delete"}), "pods/status": frozenset({"update"})}
_NAMED = frozenset({"configmaps", "secrets"})
_OF_LEASES = frozenset({"get", "update"})


class CarrierAuthorizer:
    """See the top of this file; asked after the roles, so that nobody else's request costs more."""

    def __init__(self, cache: WatchCache, rbac: Rbac) -> None:
        self._cache, self._rbac = cache, rbac
        self._index = NodeIndex(cache)
        self._made: tuple[int, Mapping[str, frozenset[str]]] = (-1, {})

    def why(self, user: User, asked: Attributes) -> str:
        """Return why it may; "" when it may not, or the user carries no nodes."""
        if asked.path or not self._rbac.why(user, CARRY):
            return ""
        nodes = self._nodes().get(user.name, frozenset())
        node = self._node(nodes, asked) if nodes else ""
        return f"{user.name} carries node {node}" if node else ""

    def _node(self, nodes: frozenset[str], asked: Attributes) -> str:
        """Return which of ``nodes`` a request is about, "" for none."""
        if (asked.group, asked.resource, asked.namespace) == (LEASE.group, LEASE.plural, LEASES):
            # the name of one to be made is not known yet; one that is there is not made again
            return min(nodes) if asked.verb == "create" else self._called(nodes, asked, _OF_LEASES)
        if asked.group or not asked.name:
            return ""
        if asked.resource in _OF_NODES:
            return self._called(nodes, asked, _OF_NODES[asked.resource])
        if asked.resource in _OF_PODS and asked.verb in _OF_PODS[asked.resource]:
            found = self._cache.get(POD.key(asked.namespace, asked.name))
            node = str(objects.spec(found.object).get("nodeName") or "") if found is not None else ""
            return node if node in nodes else ""
        if asked.resource in _NAMED and asked.verb == "get":
            wanted = Reference(asked.resource, asked.name)
            return next((each for each in sorted(nodes) if self._index.names(each, asked.namespace, wanted)), "")
        return ""

    @staticmethod
    def _called(nodes: frozenset[str], asked: Attributes, verbs: frozenset[str]) -> str:
        return asked.name if asked.verb in verbs and asked.name in nodes else ""

    def _nodes(self) -> Mapping[str, frozenset[str]]:
        """Return the names of the nodes that users carry, by user."""
        changes, made = self._cache.changes(NODE.prefix), self._made
        if changes != made[0]:
            found = defaultdict[str, set[str]](set)
            for item in self._cache.list(NODE.prefix).items:
                found[objects.annotations(item.object).get(CARRIED_BY, "")].add(objects.name(item.object))
            carried = {user: frozenset(nodes) for user, nodes in found.items() if user}
            made = self._made = (changes, carried)
        return made[1]


def note_carrier(write: Write) -> None:
    """Note who registers a virtual node, or asks to be noted; afterwards nobody changes that."""
    known = objects.annotations(write.new)
    if write.old is not None:
        wanted = objects.annotations(write.old).get(CARRIED_BY)
    else:
        wanted = write.requester.user.name if CARRIED_BY in known or _registers(write) else None
    if known.get(CARRIED_BY) != wanted:
        rest = {key: value for key, value in known.items() if key != CARRIED_BY}
        objects.metadata(write.new)["annotations"] = rest | ({CARRIED_BY: wanted} if wanted is not None else {})


def _registers(write: Write) -> bool:
    """Return whether a program that carries nodes registers one: upstream's virtual-kubelet does not ask."""
    user = write.requester.user
    return is_virtual(write.new) and MASTERS not in user.groups and bool(write.requester.access.rbac.why(user, CARRY))
