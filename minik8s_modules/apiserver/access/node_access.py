"""What a node may do: ``system:node:NAME`` in the group ``system:nodes`` reads what its pods need, and nothing else.

Two halves, as in Kubernetes. The authorizer (``NodeAuthorizer``) lets a node read its own Node and pods, the objects
those pods name, services and endpoints; lists and watches of nodes and pods must select its own. Where a request's
name does not tell (creates) or the object's content decides, admission (``restrict``) looks at it. Differences to
Kubernetes: a node may run a reconciler of its own (reconcile/standalone/startup.py), so it reads namespaces, the other
Nodes (its overlay leads to them), names and paths with the certificates of Ingresses, holds its own shard's Lease,
claims PodAddresses, sets its own taints of pressure, and takes its Node away when it leaves. It fills ConfigMaps that
take results of its pods (carriers.py). Of pods it makes mirrors of its static ones only, and no mirror opens it
anything: what it names counts for nothing (node_index.py). Source:
kubernetes ``plugin/pkg/auth/authorizer/node``, ``plugin/pkg/admission/noderestriction``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial

from minik8s_modules.api.access.rbac import Rule, compiled
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import (
    CONFIG_MAP,
    CSI_NODE,
    INGRESS,
    LEASE,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    POD_ADDRESS,
    POD_CIDR,
    SERVICE_ACCOUNT,
    VOLUME_ATTACHMENT,
)
from minik8s_modules.api.objects import JsonObject, dig, labels, metadata, name, spec, uid
from minik8s_modules.api.pods.mirror_pods import MIRROR, is_mirror, static_uid
from minik8s_modules.api.pods.pod_references import Reference, references
from minik8s_modules.api.pods.slurm import takes_results
from minik8s_modules.api.storage.attachments import attachment_name, driver_of, node_secrets
from minik8s_modules.apiserver.access import node_addresses
from minik8s_modules.apiserver.access.node_index import RESULTS, NodeIndex
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.authorization.identity import User
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.write import Write
from minik8s_modules.store import readable
from minik8s_modules.store.cache import WatchCache

NODES = "system:nodes"
PREFIX = "system:node:"
LEASES = "kube-node-lease"
# namespace, and name of the Lease of a node's own reconciler (runtime/shards.py)
SHARDS = ("kube-system", "minik8s-reconciler-node.")
# the cluster's epoch, and what its reconcilers have in common
_SHARED = frozenset({("kube-system", "minik8s-cluster"), ("kube-system", "minik8s-nodes")})
_READ, _ONE = ["get", "list", "watch"], frozenset({"get"})
_MANY = frozenset({"list", "watch"})
_WHY = "node {0}: a node may do this"


def _static() -> tuple[Rule, ...]:
    def rule(verbs: str, group: str, resources: str) -> Mapping[str, list[str]]:
        return {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}

    read = " ".join(_READ)
    return compiled(
        [
            rule(read, "", "services endpoints namespaces"),
            rule(read, "discovery.k8s.io", "endpointslices"),
            rule("create update patch", "", "events"),
            rule("create update patch", "events.k8s.io", "events"),
            rule(f"{read} create", "", "nodes"),
            rule("create", "", "pods"),  # mirrors, see _pod_written
            rule(read, "", "dns"),
            rule(read, "networking.k8s.io", "ingresses ingressclasses networkpolicies"),
            rule(read, "minik8s.io", "hostgrants"),
            rule("get list create", "minik8s.io", "podcidrs"),
            rule(read, "storage.k8s.io", "csidrivers"),
            rule("create", "storage.k8s.io", "csinodes"),
            rule("create", "authentication.k8s.io", "tokenreviews"),
            rule("create", "authorization.k8s.io", "subjectaccessreviews localsubjectaccessreviews"),
            rule(f"{read} create", "certificates.k8s.io", "certificatesigningrequests"),
            rule(f"{read} create update patch delete", "minik8s.io", "podaddresses"),
        ]
    )


_STATIC = _static()
# resource: verbs that are allowed on what is the node's own, and the field that selects it in lists
_OWN: Mapping[tuple[str, str], tuple[frozenset[str], str]] = {
    ("", "nodes"): (frozenset({"update", "patch", "delete"}), ""),
    ("", "nodes/status"): (frozenset({"get", "update", "patch"}), ""),
    ("storage.k8s.io", "csinodes"): (frozenset({"get", "update", "patch"}), ""),
    ("", "pods"): (frozenset({"get", "delete"}), "spec.nodeName"),
    ("", "pods/status"): (frozenset({"get", "update", "patch"}), ""),
}
# what a node writes of objects that its pods name
_BELOW = {"serviceaccounts/token": frozenset({"create"}), "persistentvolumeclaims/status": frozenset({"patch"})}
_NAMED = frozenset({"configmaps", "secrets", "serviceaccounts", "persistentvolumeclaims"})


def node_of(user: User) -> str:
    """Return the node that ``user`` is, "" when it is none."""
    return user.name.removeprefix(PREFIX) if user.name.startswith(PREFIX) and NODES in user.groups else ""


class NodeAuthorizer:
    """See the top of this file."""

    def __init__(self, cache: WatchCache) -> None:
        self._cache = cache
        self._index = NodeIndex(cache)

    def why(self, user: User, asked: Attributes) -> str:
        """Return why the node may do it; "" when it may not, or the user is no node."""
        node = node_of(user)
        if not node or asked.path:
            return ""
        reason = _WHY.format(node)
        if any(rule.allows(asked.verb, asked.group, asked.resource, asked.name) for rule in _STATIC):
            return reason
        allowed = self._lease(node, asked) or self._own(node, asked) or self._named(node, asked)
        allowed = allowed or self._range(node, asked) or self._attachment(node, asked) or self._fills(node, asked)
        return reason if allowed else ""

    @staticmethod
    def _lease(node: str, asked: Attributes) -> bool:
        if (asked.group, asked.resource) != (LEASE.group, LEASE.plural):
            return False
        own = {LEASES: node, SHARDS[0]: f"{SHARDS[1]}{node}"}.get(asked.namespace)
        if own is None:
            return False
        return asked.verb == "create" or (asked.verb in {"get", "update", "patch", "delete"} and asked.name == own)

    def _attachment(self, node: str, asked: Attributes) -> bool:
        """Return whether a VolumeAttachment is to the node; of one that is still to come its name says so.

        A watch shows what comes later: a node knows handles, and so the names of attachments to other nodes.
        """
        if (asked.group, asked.resource) != (VOLUME_ATTACHMENT.group, VOLUME_ATTACHMENT.plural):
            return False
        if asked.verb not in _ONE | _MANY or not asked.name:
            return False
        found = self._cache.get(VOLUME_ATTACHMENT.key("", asked.name))
        if found is not None:
            return bool(dig(found.object, "spec", "nodeName") == node)
        volumes = readable.objects_of(PERSISTENT_VOLUME, self._cache.list(PERSISTENT_VOLUME.prefix).items)
        return any(driver_of(each) and attachment_name(each, node) == asked.name for each in volumes)

    def _range(self, node: str, asked: Attributes) -> bool:
        """Return whether the node gives its range of addresses back, as it does when it leaves."""
        if (asked.group, asked.resource, asked.verb) != (POD_CIDR.group, POD_CIDR.plural, "delete"):
            return False
        found = self._cache.get(POD_CIDR.key("", asked.name))
        return found is not None and dig(found.object, "spec", "nodeName") == node

    def _own(self, node: str, asked: Attributes) -> bool:
        verbs, selector = _OWN.get((asked.group, asked.resource), (frozenset(), ""))
        if asked.verb in _MANY:
            return bool(selector) and asked.fields.requires(selector, node)
        if asked.verb not in verbs:
            return False
        if asked.resource.startswith(NODE.plural) or asked.resource == CSI_NODE.plural:
            return asked.name == node
        found = self._cache.get(POD.key(asked.namespace, asked.name))
        return found is not None and dig(found.object, "spec", "nodeName") == node

    def _fills(self, node: str, asked: Attributes) -> bool:
        wanted = Reference(RESULTS, asked.name)
        return may_fill(self._cache, asked) and self._index.names(node, asked.namespace, wanted)

    def _named(self, node: str, asked: Attributes) -> bool:
        plural, _, subresource = asked.resource.partition("/")
        if (asked.group, asked.resource) == (PERSISTENT_VOLUME.group, PERSISTENT_VOLUME.plural):
            return asked.verb in _ONE | _MANY and self._is_held(node, asked.name)
        if asked.group or plural not in _NAMED:
            return False
        if subresource:
            fits = asked.verb in _BELOW.get(asked.resource, ())
        else:
            fits = asked.verb in _ONE or (asked.verb in _MANY and plural != "serviceaccounts")
        wanted = asked.name
        if not fits or not wanted:
            return False
        if plural == CONFIG_MAP.plural and (asked.namespace, wanted) in _SHARED:
            return True
        if self._index.names(node, asked.namespace, Reference(plural, wanted)):
            return True
        checks = self._is_for_hosts, partial(self._is_for_drivers, node)
        return plural == "secrets" and any(each(asked.namespace, wanted) for each in checks)

    def _is_held(self, node: str, volume: str) -> bool:
        """Return whether a claim that the node's pods name holds the volume."""
        found = self._cache.get(PERSISTENT_VOLUME.key("", volume)) if volume else None
        claim = (dig(found.object, "spec", "claimRef") if found is not None else None) or {}
        wanted = Reference("persistentvolumeclaims", str(claim.get("name") or ""))
        return self._index.names(node, str(claim.get("namespace") or ""), wanted)

    def _is_for_drivers(self, node: str, space: str, secret: str) -> bool:
        """Return whether a driver is told the Secret on nodes, for a volume of a claim that the node's pods name."""
        key = f"{space}/{secret}"
        volumes = readable.objects_of(PERSISTENT_VOLUME, self._cache.list(PERSISTENT_VOLUME.prefix).items)
        return any(key in node_secrets(one).values() and self._is_held(node, name(one)) for one in volumes)

    def _is_for_hosts(self, namespace: str, secret: str) -> bool:
        """Return whether an Ingress has the Secret as its certificate: every node answers for every host."""
        ingresses = readable.objects_of(INGRESS, self._cache.list(f"{INGRESS.prefix}{namespace}/").items)
        return any(tls.get("secretName") == secret for one in ingresses for tls in spec(one).get("tls") or [])


def may_fill(cache: WatchCache, asked: Attributes) -> bool:
    """Return whether a request is to update a ConfigMap that takes results."""
    if (asked.group, asked.resource, asked.verb) != (CONFIG_MAP.group, CONFIG_MAP.plural, "update") or not asked.name:
        return False
    found = cache.get(CONFIG_MAP.key(asked.namespace, asked.name))
    return found is not None and takes_results(found.object)


# --- admission ------------------------------------------------------------------------------------

_OWN_LABELS = "node-restriction.kubernetes.io"
# labels of kubernetes.io and k8s.io that a node may set on itself (kubelet/pkg/apis/well_known_labels.go)
_LABELS = frozenset(
    {
        "kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone", "topology.kubernetes.io/region",
    }
)  # fmt: skip
_PRESSURE = frozenset(f"node.kubernetes.io/{what}-pressure" for what in ("memory", "disk", "pid"))
# what defaulting writes into every pod
_HARMLESS = frozenset({Reference("serviceaccounts", "default")})
_UID = re.compile(r"[0-9a-f-]{32,36}")
_LABEL_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")


def restrict(write: Write) -> None:
    """Raise Forbidden when a node writes what is not its own."""
    node = node_of(write.requester.user)
    if node:
        for why in _CHECKS[write.target.kind.id](write, node):
            raise Forbidden(write.target.kind, write.target.name or name(write.obj or {}), why)


def _node_written(write: Write, node: str) -> Iterator[str]:
    called = write.target.name or name(write.obj or {})
    if called != node:
        yield f'node "{node}" is not allowed to modify node "{called}"'
    if write.operation == "delete":
        return
    yield from node_addresses.addresses_told(write, node)
    if write.target.subresource:
        return
    before, after = labels(write.old or {}), labels(write.new)
    changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key) and _is_guarded(key))
    if changed:
        yield f'node "{node}" is not allowed to set the labels: {", ".join(changed)}'
    if write.operation == "update" and _others_taints(write.old or {}) != _others_taints(write.new):
        yield f'node "{node}" is not allowed to modify taints'
    yield from node_addresses.ranges_told(write, node)


def _range_claimed(write: Write, node: str) -> Iterator[str]:
    yield from _address_written(write, node)
    yield from node_addresses.range_claimed(write, node)


def _drivers_written(write: Write, node: str) -> Iterator[str]:
    called = write.target.name or name(write.obj or {})
    if called != node:
        yield f'can only access CSINode with the same name as the requesting node "{node}"'


def _others_taints(node: Mapping[str, object]) -> list[object]:
    """Return the taints that are not the node's own to set; those of pressure are."""
    return [one for one in dig(node, "spec", "taints") or [] if one.get("key") not in _PRESSURE]


def _is_guarded(key: str) -> bool:
    domain = key.partition("/")[0] if "/" in key else ""
    if domain == _OWN_LABELS or domain.endswith(f".{_OWN_LABELS}"):
        return True
    if not any(domain == each or domain.endswith(f".{each}") for each in ("kubernetes.io", "k8s.io")):
        return False
    return key not in _LABELS and not any(domain == each or domain.endswith(f".{each}") for each in _LABEL_DOMAINS)


def _pod_written(write: Write, node: str) -> Iterator[str]:
    if write.operation == "create":
        yield from _mirror_made(write.new, node)
    elif spec(write.old or {}).get("nodeName") != node:
        yield f'node "{node}" can only change pods with spec.nodeName set to itself'


def _mirror_made(pod: JsonObject, node: str) -> Iterator[str]:
    """Tell what forbids a pod that a node makes: it mirrors what runs there already, and is nobody else's."""
    if not is_mirror(pod):
        yield f'pod does not have "{MIRROR}" annotation, node "{node}" can only create mirror pods'
    if spec(pod).get("nodeName") != node:
        yield f'node "{node}" can only create pods with spec.nodeName set to itself'
    if metadata(pod).get("ownerReferences"):
        yield f'node "{node}" can not create pods with an owner'
    named = sorted(f"{one.plural}/{one.name}" for one in references(pod) if one not in _HARMLESS)
    if named:
        yield f'node "{node}" can not create pods that reference {", ".join(named)}'


def _lease_written(write: Write, node: str) -> Iterator[str]:
    called = write.target.name or name(write.obj or {})
    if (write.target.namespace, called) not in {(LEASES, node), (SHARDS[0], f"{SHARDS[1]}{node}")}:
        yield f'node "{node}" can only access the lease "{node}" in the namespace "{LEASES}"'


def _address_written(write: Write, node: str) -> Iterator[str]:
    if any(spec(each).get("nodeName") != node for each in (write.obj, write.old) if each is not None):
        yield f'node "{node}" can only claim addresses for itself and its own pods'


def _address_claimed(write: Write, node: str) -> Iterator[str]:
    """Tell what forbids a claim: whose address a Pod's is decides which NetworkPolicies hold for it."""
    yield from _address_written(write, node)
    if write.operation != "create":
        return
    wanted = str(spec(write.new).get("podUID") or "")
    # static pods may have no mirror yet, and whoever makes one writes the static pod's UID into it himself
    places = {spec(pod).get("nodeName") for pod in _with(write.backend, wanted)}
    if places and node not in places:
        yield f'node "{node}" can only claim addresses for pods with spec.nodeName set to itself'


def _with(backend: Backend, wanted: str) -> Iterator[JsonObject]:
    """Yield the pods that have a UID, of the API or of a static pod; of all others not even the text is read."""
    if not _UID.fullmatch(wanted):
        return
    text = f'"{wanted}"'.encode()
    for pod in (item.peek() for item in backend.cache.list(POD.prefix).items if text in item.data):
        if wanted in (uid(pod), static_uid(pod)):
            yield pod


def _token_asked(write: Write, node: str) -> Iterator[str]:
    if write.target.subresource != "token":
        return
    ref = spec(write.new).get("boundObjectRef") or {}
    if (ref.get("kind"), bool(ref.get("name")), bool(ref.get("uid"))) != (POD.kind, True, True):
        yield "node requested token not bound to a pod, by name and uid"
        return
    found = write.backend.cache.get(POD.key(write.target.namespace, ref["name"]))
    if found is None or dig(found.object, "spec", "nodeName") != node:
        yield "node requested token bound to a pod scheduled on a different node"
    elif is_mirror(found.object):
        yield "node requested token bound to a mirror pod"


_OF_SIZE = ("capacity", "conditions", "allocatedResources", "allocatedResourceStatuses")


def _claim_written(write: Write, node: str) -> Iterator[str]:
    """Tell what forbids a change of a claim: a node says how large its volume is, and nothing else (admitPVCStatus)."""
    before, after = ({**dig(one, "status")} if dig(one, "status") else {} for one in (write.old or {}, write.new))
    for field in _OF_SIZE:
        before.pop(field, None)
        after.pop(field, None)
    if write.target.subresource != "status" or before != after:
        yield f'node "{node}" is not allowed to update fields other than status.{", status.".join(_OF_SIZE)}'


_CHECKS = {
    NODE.id: _node_written,
    CSI_NODE.id: _drivers_written,
    POD.id: _pod_written,
    LEASE.id: _lease_written,
    PERSISTENT_VOLUME_CLAIM.id: _claim_written,
    POD_ADDRESS.id: _address_claimed,
    POD_CIDR.id: _range_claimed,
    SERVICE_ACCOUNT.id: _token_asked,
}
KINDS = (NODE, CSI_NODE, POD, LEASE, PERSISTENT_VOLUME_CLAIM, POD_ADDRESS, POD_CIDR, SERVICE_ACCOUNT)
