"""Who may do what: a static table of roles for the identities of ARCHITECTURE.md.

``ROLES`` is the whole policy. A subject is a user or a group; a request is allowed if any rule of any of the
asker's subjects fits. ``system:masters`` may do everything. There are no negative rules. Roles as API
objects come with the RBAC kinds and will stand beside this table, which then remains for the cluster's own
processes (Kubernetes ships the same as bootstrap policy).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from minik8s_modules.api.errors import Forbidden, StatusError
from minik8s_modules.api.kinds import Kind
from minik8s_modules.apiserver.identity import ALL_AUTHENTICATED, MASTERS, User


class Attributes(NamedTuple):
    """One request: ``resource`` is the plural, with ``/subresource`` if there is one; or ``path`` alone."""

    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Rule(NamedTuple):
    """What is allowed; ``*`` stands for all. Without namespaces it holds everywhere."""

    verbs: frozenset[str]
    group: str = ""
    resources: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()

    def allows(self, asked: Attributes) -> bool:
        """Return whether the rule fits the request; a path ending in ``*`` stands for all that begin so."""
        if asked.verb not in self.verbs and "*" not in self.verbs:
            return False
        if asked.path:
            return any(_path_fits(path, asked.path) for path in self.paths)
        return (
            self.group in {asked.group, "*"}
            and not self.resources.isdisjoint((asked.resource, "*"))
            and (not self.namespaces or asked.namespace in self.namespaces)
        )


def _path_fits(rule: str, path: str) -> bool:
    return path.startswith(rule[:-1]) if rule.endswith("*") else path == rule


def _rule(verbs: str, group: str, resources: str, namespaces: str = "") -> Rule:
    return Rule(frozenset(verbs.split()), group, frozenset(resources.split()), frozenset(namespaces.split()))


_READ = "get list watch"
_WRITE = "create update patch delete"
_EVENTS = (
    _rule("create update patch", "", "events"),
    _rule("create update patch", "events.k8s.io", "events"),
)
_LEADER = _rule(f"{_READ} {_WRITE}", "coordination.k8s.io", "leases", "kube-system")

# subject: (what it is, rules)
ROLES: dict[str, tuple[Rule, ...]] = {
    # everyone with a certificate: discovery, and questions about oneself
    ALL_AUTHENTICATED: (
        Rule(frozenset({"get"}), paths=("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*")),
        _rule("create", "authorization.k8s.io", "selfsubjectaccessreviews"),
        _rule("create", "authentication.k8s.io", "selfsubjectreviews"),
    ),
    # reads what decides a placement, writes the placement
    "system:kube-scheduler": (
        _rule(_READ, "", "pods nodes namespaces services"),
        _rule("create", "", "pods/binding"),
        _rule("update patch", "", "pods/status"),
        _LEADER,
        *_EVENTS,
    ),
    # empties namespaces (so it may list and delete every kind), keeps nodes and endpoints
    "system:kube-controller-manager": (
        _rule(f"{_READ} delete deletecollection", "*", "*"),
        _rule("update patch", "", "pods pods/status namespaces namespaces/status nodes nodes/status"),
        _rule("update", "", "namespaces/finalize"),
        _rule("create", "", "pods nodes"),
        _rule("create update patch", "", "endpoints serviceaccounts configmaps services services/status"),
        _rule("create update patch", "discovery.k8s.io", "endpointslices"),
        _LEADER,
        *_EVENTS,
    ),
    # turns objects into node documents, reports pods and nodes, claims addresses, asks for nothing else
    "system:minik8s:reconciler": (
        _rule(_READ, "", "pods nodes namespaces services endpoints configmaps secrets serviceaccounts"),
        _rule(_READ, "discovery.k8s.io", "endpointslices"),
        _rule("update patch", "", "pods/status nodes/status"),
        _rule("delete", "", "pods"),
        _rule("create update patch", "", "nodes"),
        _rule(f"{_READ} {_WRITE}", "minik8s.io", "podaddresses"),
        _LEADER,
        _rule(_READ, "coordination.k8s.io", "leases", "kube-node-lease"),
        *_EVENTS,
    ),
    # says which nodes are alive, and where streams to them begin
    "system:minik8s:gateway": (
        _rule(_READ, "", "nodes"),
        _rule("update patch", "", "nodes/status"),
        _rule(f"{_READ} {_WRITE}", "coordination.k8s.io", "leases", "kube-node-lease kube-system"),
        *_EVENTS,
    ),
}


@lru_cache(maxsize=8192)
def allowed(user: User, asked: Attributes) -> bool:
    """Return whether ``user`` may do ``asked``."""
    if MASTERS in user.groups:
        return True
    rules = [rule for subject in (user.name, *user.groups) for rule in ROLES.get(subject, ())]
    return any(rule.allows(asked) for rule in rules)


def refusal(user: User, asked: Attributes, kind: Kind | None) -> StatusError:
    """Return the 403 for a request that is not allowed, worded as Kubernetes words it."""
    who = f'User "{user.name}" cannot {asked.verb}'
    if kind is None:
        return Forbidden(None, "", f'{who} path "{asked.path}"')
    what = f'{who} resource "{asked.resource}" in API group "{asked.group}"'
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    return Forbidden(kind, asked.name, f"{what} {where}")
