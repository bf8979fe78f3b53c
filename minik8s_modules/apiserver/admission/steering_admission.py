"""Admission of labels, annotations and finalizers that steer the cluster, by ``api/access/steering.py``."""

from __future__ import annotations

from collections.abc import Mapping

from minik8s_modules.api.access.steering import Party, refusals
from minik8s_modules.api.defaulting.conversion import stored_kind
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.objects import name
from minik8s_modules.apiserver.access.node_access import node_of
from minik8s_modules.apiserver.authorization.identity import User
from minik8s_modules.apiserver.http.write import Write

_DAEMONS: Mapping[str, Party] = {
    "system:minik8s:reconciler": "reconciler",
    "system:minik8s:gateway": "gateway",
    "system:kube-controller-manager": "controllers",
}


def party_of(user: User) -> Party:
    """Return as whom ``user`` writes; that a node writes only what is its own is NodeRestriction's to see."""
    return "nodes" if node_of(user) else _DAEMONS.get(user.name, "others")


def check_setters(write: Write) -> None:
    """Raise Forbidden when somebody sets a key that steers what is not his."""
    found = refusals(stored_kind(write.target.kind).id, write.new, write.old, party_of(write.requester.user))
    if found:
        raise Forbidden(write.target.kind, write.target.name or name(write.new), "; ".join(found))
