"""What a path and a method ask for: kind, namespace, name, subresource, verb.

One pure parser serves all resource paths, so that a kind needs no route of its own. Paths: k8s.io/apiserver
``endpoints/request/requestinfo.go``. A trailing slash does not matter (kr8s sends them). Names are single
path segments, so nothing in a path can leave its kind's place in the store.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kind import CONNECTING, PROXY, SUBRESOURCE_VERBS, Registry
from minik8s_modules.api.kinds import KINDS, Kind
from minik8s_modules.apiserver.authorization.attributes import Attributes


class Target(NamedTuple):
    """A place in the API: a collection (no name), an object, or something below an object."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def attributes(self, verb: str) -> Attributes:
        """Return what authorization asks about."""
        resource = f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural
        return Attributes(verb, self.kind.group, resource, self.namespace, self.name)


_PROXIED = re.compile(r"(/api/v1/(?:nodes|namespaces/[^/]+/(?:pods|services))/[^/]+/proxy)(/.*)?", re.DOTALL)


def parse(path: str, kinds: Registry = KINDS) -> Target | None:
    """Return the target of ``path`` among ``kinds``, or None when nothing is served there.

    >>> parse("/api/v1/namespaces/default/pods/web/status").subresource
    'status'
    >>> parse("/api/v1/namespaces/default/pods/web:80/proxy/a//b").subresource
    'proxy'
    """
    return _parsed(proxy_prefix(path) or path, kinds)


def forget() -> None:
    """Drop what ``parse`` remembers; of registries that are no longer served it would remember all."""
    _parsed.cache_clear()


def proxy_prefix(path: str) -> str:
    """Return what of ``path`` names a proxy, "" where it names none; the rest is whatever the pod makes of it."""
    found = _PROXIED.fullmatch(path)
    return found[1] if found else ""


@lru_cache(maxsize=2048)
def _parsed(path: str, kinds: Registry) -> Target | None:
    parts = path.strip("/").split("/")
    if not all(parts):
        return None
    if parts[0] == "api":
        group, rest = "", parts[1:]
    elif parts[0] == "apis" and len(parts) > 1:
        group, rest = parts[1], parts[2:]
    else:
        return None
    return _resource(kinds, group, rest[0], rest[1:]) if len(rest) > 1 else None


def _resource(kinds: Registry, group: str, version: str, parts: list[str]) -> Target | None:
    namespace = ""
    # /namespaces/NAME and /namespaces/NAME/status are about the namespace itself
    itself = group == "" and parts[2:] and parts[2] in {"status", "finalize"} and len(parts) == 3  # noqa: PLR2004
    if parts[0] == "namespaces" and len(parts) > 2 and not itself:  # noqa: PLR2004 - namespaces, its name, and more
        namespace, parts = parts[1], parts[2:]
    kind = kinds.by_resource(group, version, parts[0])
    if kind is None or len(parts) > 3 or (namespace and not kind.namespaced):  # noqa: PLR2004 - plural, name, sub
        return None
    name, subresource = (*parts[1:], "", "")[:2]
    if (name and kind.namespaced and not namespace) or (subresource and subresource not in kind.subresources):
        return None
    return Target(kind, namespace, name, subresource)


_ON_THE_NODE = "`docker ps --filter label=minik8s.io/pod-name=POD` names the containers"
_UNSERVED = {
    "log": f"logs are not served; run `docker logs` on the pod's node ({_ON_THE_NODE})",
    "exec": f"exec is not served; run `docker exec` on the pod's node ({_ON_THE_NODE})",
    "attach": f"attach is not served; run `docker attach` on the pod's node ({_ON_THE_NODE})",
    "portforward": "port-forward is not served; nodes reach a pod at its address (`kubectl get pod -o wide`)",
    "eviction": "eviction is not served; delete the pod",
}
"""What Kubernetes serves below a pod and this version does not, with what to do instead."""


def unserved(path: str) -> NotFound:
    """Return the failure for a path that ``parse`` does not know."""
    match path.strip("/").split("/"):
        case ["api", "v1", "namespaces", _, "pods", _, subresource] if subresource in _UNSERVED:
            return NotFound.path(f"pods/{subresource}: {_UNSERVED[subresource]}")
    return NotFound.path()


def verb_of(method: str, target: Target, *, watch: bool) -> str | None:
    """Return the API verb of an HTTP method at a target; None where the kind has no such verb."""
    if target.subresource == PROXY:  # whatever its query says; OPTIONS is a verb that only "*" grants
        return _PROXY_VERBS.get(method, method.lower())
    if method in {"GET", "HEAD"}:
        verb = "watch" if watch else ("get" if target.name else "list")
    else:
        verb = _VERBS.get((method, bool(target.name)), "")
        if target.subresource and method == "POST":
            verb = "create"
    sub = target.subresource
    if not target.name and target.kind.namespaced and not target.namespace and verb in {"create", "deletecollection"}:
        return None  # across all namespaces there is only reading
    known = SUBRESOURCE_VERBS.get(sub, ()) if sub else target.kind.verbs
    return verb if verb in known else None


def rights(target: Target, verb: str, *, upgrade: bool = False) -> tuple[str, ...]:
    """Return the verbs that ``verb`` at a target needs, all of them; ``upgrade``: to a stream in both directions."""
    connects = target.subresource in CONNECTING or (upgrade and target.subresource == PROXY)
    return (verb, "create") if connects and verb != "create" else (verb,)


_PROXY_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_VERBS = {
    ("POST", False): "create",
    ("PUT", True): "update",
    ("PATCH", True): "patch",
    ("DELETE", True): "delete",
    ("DELETE", False): "deletecollection",
}
