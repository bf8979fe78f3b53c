"""What extension API servers keep, by what they say themselves: their objects go with a namespace or an owner, too.

The API server's discovery tells it, from memory and checked, so no extension is waited for. One that is not available
may keep something, so the namespace waits for it, and its condition says so, as in Kubernetes
(pkg/controller/namespace/deletion).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import NamedTuple

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import API_SERVICE, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.api import ApiClient

_AGGREGATED = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
# what reading a document of another form than expected raises
ODD = (AttributeError, KeyError, TypeError, ValueError)


class Extended(NamedTuple):
    """The kinds of extensions whose objects may be deleted; and of whom nobody knows, by group and version, why.

    Where there are no extensions, nothing ``may_change`` while no APIService does.
    """

    kinds: tuple[Kind, ...]
    unknown: Mapping[str, str]
    may_change: bool = True


def extended(client: ApiClient) -> Extended:
    """Return what extensions keep."""
    declared = [each for each in client.list(API_SERVICE).items if objects.spec(each).get("service")]
    offered = _offered(client) if declared else {}
    kinds: list[Kind] = []
    unknown: dict[str, str] = {}
    for each in declared:
        group, version = str(objects.spec(each).get("group") or ""), str(objects.spec(each)["version"])
        available = (objects.condition(each, "Available") or {}).get("status") == "True"
        found = offered.get((group, version), {}) if available else {}
        try:
            if found.get("freshness") != "Current":
                raise ValueError(f"stale GroupVersion discovery: {group}/{version}")
            kinds += kinds_in(found, group, version)
        except ODD as error:
            unknown[f"{group}/{version}"] = str(error)
    return Extended(tuple(kinds), unknown, may_change=bool(declared))


def _offered(client: ApiClient) -> dict[tuple[str, str], JsonObject]:
    """Return the APIVersionDiscovery of each group and version, none when it cannot be read."""
    answer = client.raw("GET", "/apis", headers=_AGGREGATED)
    if answer.status != HTTPStatus.OK:
        return {}
    items = orjson.loads(answer.data)["items"]
    return {(each["metadata"].get("name", ""), found["version"]): found for each in items for found in each["versions"]}


def kinds_in(discovered: JsonObject, group: str, version: str) -> Iterator[Kind]:
    """Yield the kinds of an APIVersionDiscovery whose objects may be deleted."""
    for each in discovered["resources"]:
        verbs = tuple(map(str, each["verbs"]))
        if {"list", "delete"} <= {*verbs}:
            kind, plural = str(each["responseKind"]["kind"]), str(each["resource"])
            yield Kind(group, version, kind, plural, "", namespaced=each["scope"] == "Namespaced", verbs=verbs)


def checked(items: list[JsonObject]) -> list[JsonObject]:
    """Return the objects that an extension listed. Raises ValueError when they are not objects."""
    for each in items:
        meta = each.get("metadata")
        texts = [meta.get("name"), *(meta.get("finalizers") or [])] if isinstance(meta, dict) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("what it lists are not objects with metadata")
    return items


def is_sound(obj: JsonObject) -> bool:
    """Return whether what an extension says of an object can be read by who collects garbage."""
    meta = obj.get("metadata")
    if not isinstance(meta, dict) or not all(isinstance(meta.get(field), str) for field in ("name", "uid")):
        return False
    texts = (meta.get(field) or "" for field in ("namespace", "resourceVersion", "deletionTimestamp"))
    owners, finalizers = meta.get("ownerReferences") or [], meta.get("finalizers") or []
    return (
        all(isinstance(each, str) for each in texts)
        and bool(meta["uid"])
        and isinstance(finalizers, list)
        and all(isinstance(each, str) for each in finalizers)
        and isinstance(owners, list)
        and all(isinstance(each, dict) and isinstance(each.get("uid"), str) for each in owners)
    )
