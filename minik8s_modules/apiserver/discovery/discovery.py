"""What is served, told three ways from a registry of kinds: aggregated (v2, v2beta1), and the older lists.

kubectl 1.32 reads /api and /apis once, in the aggregated form; kr8s, kopf and ``kubectl auth can-i`` also
the older one. The aggregated form is made once for each registry.
"""

from __future__ import annotations

from functools import lru_cache

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kind import PROXY, SUBRESOURCE_VERBS, Registry
from minik8s_modules.api.kinds import KINDS, Kind
from minik8s_modules.api.objects import JsonObject

# subresources whose bodies are of another kind than the object
_SUBRESOURCE_KINDS = {
    "binding": ("", "v1", "Binding"),
    "scale": ("autoscaling", "v1", "Scale"),
    "eviction": ("policy", "v1", "Eviction"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
    "exec": ("", "v1", "PodExecOptions"),
    "attach": ("", "v1", "PodAttachOptions"),
    "portforward": ("", "v1", "PodPortForwardOptions"),
}


@lru_cache(maxsize=4)
def aggregated(version: str, kinds: Registry = KINDS, *, core: bool) -> JsonObject:
    """Return the APIGroupDiscoveryList of /api (``core``) or /apis."""
    groups = [group for group in kinds.groups() if (group == "") == core]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [_group_discovery(group, kinds) for group in groups],
    }


def _group_discovery(group: str, kinds: Registry) -> JsonObject:
    versions = kinds.groups()[group]
    return {
        "metadata": {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None},
        "versions": [
            {
                "version": version,
                "resources": [_resource_discovery(kind) for kind in kinds.in_group(group, version)],
                "freshness": "Current",
            }
            for version in versions
        ],
    }


def _resource_discovery(kind: Kind) -> JsonObject:
    found: JsonObject = {
        "resource": kind.plural,
        "responseKind": _response_kind(kind, ""),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular_name,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        found["shortNames"] = list(kind.short_names)
    if kind.categories:
        found["categories"] = list(kind.categories)
    if kind.subresources:
        found["subresources"] = [
            {"subresource": sub, "responseKind": _response_kind(kind, sub), "verbs": list(SUBRESOURCE_VERBS[sub])}
            for sub in kind.subresources
        ]
    return found


def _response_kind(kind: Kind, subresource: str) -> JsonObject:
    own = f"{kind.kind}ProxyOptions" if subresource == PROXY else kind.kind
    group, version, name = _SUBRESOURCE_KINDS.get(subresource, (kind.group, kind.version, own))
    return {"group": group, "version": version, "kind": name}


def versions(host: str, kinds: Registry = KINDS) -> JsonObject:
    """Return the APIVersions of /api in the older form."""
    return {
        "kind": "APIVersions",
        "versions": list(kinds.groups()[""]),
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}],
    }


def group_list(kinds: Registry = KINDS) -> JsonObject:
    """Return the APIGroupList of /apis in the older form."""
    groups = [_group(group, kinds) for group in kinds.groups() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(name: str, kinds: Registry = KINDS) -> JsonObject:
    """Return the APIGroup of /apis/NAME. Raises NotFound."""
    if not name or name not in kinds.groups():
        raise NotFound.path()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, kinds)}


def _group(name: str, kinds: Registry) -> JsonObject:
    served = [{"groupVersion": f"{name}/{version}", "version": version} for version in kinds.groups()[name]]
    return {"name": name, "versions": served, "preferredVersion": served[0]}


def resource_list(group_name: str, version: str, served: Registry = KINDS) -> JsonObject:
    """Return the APIResourceList of a group and version. Raises NotFound."""
    kinds = served.in_group(group_name, version)
    if not kinds:
        raise NotFound.path()
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": kinds[0].api_version,
        "resources": [entry for kind in kinds for entry in _resources(kind)],
    }


def _resources(kind: Kind) -> list[JsonObject]:
    own: JsonObject = {
        "name": kind.plural,
        "singularName": kind.singular_name,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        own["shortNames"] = list(kind.short_names)
    if kind.categories:
        own["categories"] = list(kind.categories)
    return [own, *(_subresource(kind, sub) for sub in kind.subresources)]


def _subresource(kind: Kind, name: str) -> JsonObject:
    shown: JsonObject = {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": _response_kind(kind, name)["kind"],
        "verbs": list(SUBRESOURCE_VERBS[name]),
    }
    group, version, _ = _SUBRESOURCE_KINDS.get(name, (kind.group, kind.version, ""))
    if (group, version) != (kind.group, kind.version):
        shown |= {"group": group, "version": version}  # kubectl drain looks for them
    return shown
