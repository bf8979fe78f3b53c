"""What others offer: lists of their resources, joined with the server's own in every form of discovery; pure.

Groups of others come behind the server's own, by their priorities, so a short name that both have stays the server's.
Sources: kube-aggregator ``pkg/apiserver/handler_discovery.go``, ``handler_apis.go``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from itertools import islice
from typing import NamedTuple

import orjson

from minik8s_modules.api.access.api_services import Remote
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.aggregation.swagger import Part

_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
# what one extension may put into the discovery that everybody reads; texts in characters
_MOST_RESOURCES, _MOST_LISTED, _LONGEST = 2000, 50, 253


class Offer(NamedTuple):
    """What somebody else's group and version has: an APIResourceList's resources; ``fresh``: asked of late.

    ``schema`` distinguishes its OpenAPI document of version 3, ``swagger`` is what it says in version 2.
    """

    remote: Remote
    resources: tuple[JsonObject, ...] = ()
    fresh: bool = False
    schema: str = ""
    swagger: Part = Part()


def ordered(offers: Iterable[Offer]) -> list[Offer]:
    """Return offers as groups are listed: by the highest priority of a group, then by that of the version."""
    offers = list(offers)
    highest: dict[str, int] = {}
    for each in offers:
        highest[each.remote.group] = max(highest.get(each.remote.group, 0), each.remote.priorities[0])

    def place(offer: Offer) -> tuple[int, str, int, tuple[int, ...], str]:
        other = offer.remote
        newest = tuple(-number for number in _age(other.version))
        return (-highest[other.group], other.group, -other.priorities[1], newest, other.version)

    return sorted(offers, key=place)


def _age(version: str) -> tuple[int, int, int]:
    """Return what Kubernetes compares of versions: general ones before beta and alpha, then numbers."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return (0, 0, 0)
    return ({None: 3, "beta": 2, "alpha": 1}[found[2]], int(found[1]), int(found[3] or 0))


def resources_in(code: int, body: bytes, group: str, version: str) -> tuple[JsonObject, ...]:
    """Return the resources that an answer lists. Raises ValueError when it lists none of that group and version."""
    if code != HTTPStatus.OK:
        raise ValueError(f"bad status {code}")
    document = orjson.loads(body)
    if not isinstance(document, dict) or not isinstance(document.get("resources"), list):
        raise ValueError("the answer is not an APIResourceList")  # noqa: TRY004 - what came, not what a caller passed
    if document.get("groupVersion") != f"{group}/{version}":
        raise ValueError(f"the answer is about {str(document.get('groupVersion'))[:200]!r}, not {group}/{version}")
    found = (_checked(each) for each in document["resources"] if isinstance(each, dict))
    return tuple(islice((each for each in found if each is not None), _MOST_RESOURCES))


def _checked(found: JsonObject) -> JsonObject | None:
    """Return what counts of a resource, None when it is none: all of it goes into everybody's discovery."""
    namespaced = found.get("namespaced", False)
    if not (_is_text(found.get("name")) and _is_text(found.get("kind")) and _are_texts(found.get("verbs"))):
        return None
    if not isinstance(namespaced, bool):
        return None
    texts = [field for field in ("singularName", "group", "version") if _is_text(found.get(field))]
    lists = [field for field in ("shortNames", "categories") if _are_texts(found.get(field))]
    kept = {field: found[field] for field in ("name", "kind", "verbs", *texts, *lists)}
    return {**kept, "namespaced": namespaced}


def _is_text(found: object) -> bool:
    return isinstance(found, str) and 0 < len(found) <= _LONGEST and found.isprintable()


def _are_texts(found: object) -> bool:
    return isinstance(found, list) and len(found) <= _MOST_LISTED and all(map(_is_text, found))


def version_discovery(offer: Offer) -> JsonObject:
    """Return an APIVersionDiscovery, as aggregated discovery has it."""
    own = {each["name"]: _discovered(each, offer.remote) for each in offer.resources if "/" not in each["name"]}
    for each in offer.resources:
        parent, slash, name = each["name"].partition("/")
        if slash and parent in own:
            sub = {"subresource": name, "responseKind": _response(each, offer.remote), "verbs": each["verbs"]}
            own[parent].setdefault("subresources", []).append(sub)
    freshness = "Current" if offer.fresh else "Stale"
    return {"version": offer.remote.version, "resources": [*own.values()], "freshness": freshness}


def _discovered(resource: JsonObject, other: Remote) -> JsonObject:
    found: JsonObject = {
        "resource": resource["name"],
        "responseKind": _response(resource, other),
        "scope": "Namespaced" if resource.get("namespaced") else "Cluster",
        "singularResource": str(resource.get("singularName") or resource["kind"].lower()),
        "verbs": resource["verbs"],
    }
    return found | {field: resource[field] for field in ("shortNames", "categories") if resource.get(field)}


def _response(resource: JsonObject, other: Remote) -> JsonObject:
    group, version = resource.get("group") or other.group, resource.get("version") or other.version
    return {"group": group, "version": version, "kind": resource["kind"]}


# --- together with the server's own ---------------------------------------------------------------


def with_discovery(own: JsonObject, offers: Sequence[Offer]) -> JsonObject:
    """Return an APIGroupDiscoveryList with what others offer; what they replace of ``own`` is left out."""
    versions = {each["metadata"].get("name", ""): [*each["versions"]] for each in own["items"]}
    metadata = {each["metadata"].get("name", ""): each["metadata"] for each in own["items"]}
    for offer in ordered(offers):
        _put(versions.setdefault(offer.remote.group, []), version_discovery(offer))
        metadata.setdefault(offer.remote.group, {"name": offer.remote.group, "creationTimestamp": None})
    items = [{"metadata": metadata[group], "versions": found} for group, found in versions.items()]
    return {**own, "items": items}


def with_groups(own: JsonObject, offers: Sequence[Offer]) -> JsonObject:
    """Return an APIGroupList with the groups of others."""
    groups = {each["name"]: each for each in own["groups"]}
    for offer in ordered(offers):
        groups[offer.remote.group] = with_version(groups.get(offer.remote.group), offer.remote)
    return {**own, "groups": [*groups.values()]}


def group_in(groups: JsonObject, name: str) -> JsonObject:
    """Return the APIGroup of a name in an APIGroupList. Raises NotFound."""
    for each in groups["groups"]:
        if each["name"] == name:
            return {"kind": "APIGroup", "apiVersion": "v1", **each}
    raise NotFound.path()


def with_version(group: JsonObject | None, other: Remote) -> JsonObject:
    """Return an APIGroup with one version more."""
    versions = [*group["versions"]] if group else []
    _put(versions, {"groupVersion": f"{other.group}/{other.version}", "version": other.version})
    return {**(group or {"name": other.group}), "versions": versions, "preferredVersion": versions[0]}


def with_schemas(own: JsonObject, offers: Sequence[Offer]) -> JsonObject:
    """Return the index of OpenAPI documents with those of others."""
    paths = dict(own["paths"])
    for offer in offers:
        path = offer.remote.path.lstrip("/")
        paths.pop(path, None)
        if offer.schema:
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={offer.schema}"}
    return {**own, "paths": paths}


def _put(versions: list[JsonObject], new: JsonObject) -> None:
    """Put a version into the place of the one that it replaces, or behind all."""
    for index, each in enumerate(versions):
        if each["version"] == new["version"]:
            versions[index] = new
            return
    versions.append(new)
