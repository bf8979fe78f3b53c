"""What a program that carries several virtual nodes may do: with those it has registered, and with nothing else's.

Its role gives it the verb ``carry`` on nodes. A Node that such a program registers says whose it is in the annotation
``minik8s.io/carried-by``, which the server writes (``note_carrier``) and keeps. From then on the program may tell the
status of that Node and renew its Lease, tell the status of the Pods bound there and remove them, and read the
ConfigMaps and Secrets that these name: what a node's own certificate gives (node_access.py). A Node that was there
before, such as a machine's, is not its own, whatever it calls its nodes.

Neither has a right to write ConfigMaps but one: the data of those that a Pod of theirs names for its results, and that
say that they take results (``takes_results``, ``check_results``).
"""

from __future__ import annotations

from collections.abc import Iterable

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import CONFIG_MAP, LEASE, NODE, POD
from minik8s_modules.api.nodes.virtual_nodes import CARRIED_BY, is_virtual
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.pod_references import Reference
from minik8s_modules.apiserver.access.following import Following
from minik8s_modules.apiserver.access.node_access import LEASES, may_fill, node_of
from minik8s_modules.apiserver.access.node_index import RESULTS, NodeIndex
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
        self._index, self._carried = NodeIndex(cache), CarriedNodes(cache)

    def why(self, user: User, asked: Attributes) -> str:
        """Return why it may; "" when it may not, or the user carries no nodes."""
        if asked.path or not self._rbac.why(user, CARRY):
            return ""
        node = self._node(user.name, asked)
        return f"{user.name} carries node {node}" if node else ""

    def _node(self, user: str, asked: Attributes) -> str:
        """Return which of the user's nodes a request is about, "" for none."""
        if (asked.group, asked.resource, asked.namespace) == (LEASE.group, LEASE.plural, LEASES):
            # the name of one to be made is not known yet; one that is there is not made again
            return self._carried.any_of(user) if asked.verb == "create" else self._called(user, asked, _OF_LEASES)
        if asked.group or not asked.name:
            return ""
        if asked.resource in _OF_NODES:
            return self._called(user, asked, _OF_NODES[asked.resource])
        if asked.resource in _OF_PODS and asked.verb in _OF_PODS[asked.resource]:
            found = self._cache.get(POD.key(asked.namespace, asked.name))
            return self._carried.among(
                user, [str(objects.dig(found.object, "spec", "nodeName") or "")] if found else []
            )
        fills = may_fill(self._cache, asked)
        if fills or (asked.resource in _NAMED and asked.verb == "get"):
            wanted = Reference(RESULTS if fills else asked.resource, asked.name)
            return self._carried.among(user, self._index.naming(asked.namespace, wanted))
        return ""

    def _called(self, user: str, asked: Attributes, verbs: frozenset[str]) -> str:
        return self._carried.among(user, [asked.name]) if asked.verb in verbs and asked.name else ""


class CarriedNodes(Following):
    """Whose each virtual node is; thread-safe.

    Thousands of nodes tell their status: each time only that one is looked at.
    """

    def __init__(self, cache: WatchCache) -> None:
        super().__init__(cache, NODE)
        self._of: dict[str, tuple[str, str]] = {}
        """User and name of the node at a key."""
        self._names: dict[str, dict[str, None]] = {}
        """The names of a user's nodes, in the order in which they came."""

    def among(self, user: str, nodes: Iterable[str]) -> str:
        """Return the first by name of ``nodes`` that are the user's, "" where none is."""
        with self.lock:
            self.catch_up()
            names = self._names.get(user, {})
            return min((node for node in nodes if node in names), default="")

    def any_of(self, user: str) -> str:
        """Return one of the user's nodes, "" where there is none."""
        with self.lock:
            self.catch_up()
            return next(iter(self._names.get(user, ())), "")

    def clear(self) -> None:
        """Know nothing any more."""
        self._of.clear()
        self._names.clear()

    def put(self, key: str, obj: JsonObject | None) -> None:
        """Take whose a node is now."""
        user = objects.annotations(obj).get(CARRIED_BY, "") if obj is not None else ""
        before, after = self._of.pop(key, None), (user, objects.name(obj or {})) if user else None
        if after is not None:
            self._of[key] = after
        if before == after:
            return
        if before is not None:
            self._names[before[0]].pop(before[1], None)
        if after is not None:
            self._names.setdefault(after[0], {})[after[1]] = None


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


_OF_DATA = frozenset({"data", "binaryData"})
_WRITES = ("update", "patch")
_OF_THE_SERVER = frozenset({"managedFields", "resourceVersion"})


def check_results(write: Write) -> None:
    """Raise Forbidden where somebody changes more than the data of a ConfigMap that is his by its taking results.

    Whoever a role lets update or patch it may change all of it, also who could carry nodes, as ``*`` on nodes says.
    """
    user, rbac, target = write.requester.user, write.requester.access.rbac, write.target
    if MASTERS in user.groups or not (node_of(user) or rbac.why(user, CARRY)):
        return
    if any(rbac.why(user, Attributes(verb, "", CONFIG_MAP.plural, target.namespace, target.name)) for verb in _WRITES):
        return
    if _but_data(write.new) != _but_data(write.old or {}):
        raise Forbidden(target.kind, target.name, f"{user.name} may change only data and binaryData, as results")


def _but_data(config_map: JsonObject) -> JsonObject:
    kept = {field: value for field, value in config_map.items() if field not in _OF_DATA}
    meta = objects.metadata(config_map)
    return {**kept, "metadata": {field: value for field, value in meta.items() if field not in _OF_THE_SERVER}}
