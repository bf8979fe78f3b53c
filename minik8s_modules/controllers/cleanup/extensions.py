"""What extension API servers keep in namespaces, by what they say themselves: their objects go with a namespace, too.

One that is not available may keep something, so the namespace waits for it, and its condition says so, as in Kubernetes
(pkg/controller/namespace/deletion).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import API_SERVICE, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.api import ApiClient


class Extended(NamedTuple):
    """The kinds of extensions whose objects live in namespaces; and of whom nobody knows, by group and version, why."""

    kinds: tuple[Kind, ...]
    unknown: Mapping[str, str]


def extended(client: ApiClient) -> Extended:
    """Return what extensions keep in namespaces."""
    kinds: list[Kind] = []
    unknown: dict[str, str] = {}
    for each in client.list(API_SERVICE).items:
        declared = objects.spec(each)
        if not declared.get("service"):
            continue
        group, version = str(declared.get("group") or ""), str(declared["version"])
        named = f"{group}/{version}"
        try:
            kinds += kinds_in(_listed(client, each, group, version), group, version)
        except ValueError as error:
            unknown[named] = str(error)
    return Extended(tuple(kinds), unknown)


def _listed(client: ApiClient, api_service: JsonObject, group: str, version: str) -> object:
    stale = f"stale GroupVersion discovery: {group}/{version}"
    if (objects.condition(api_service, "Available") or {}).get("status") != "True":
        raise ValueError(stale)
    answer = client.raw("GET", f"/apis/{quote(group, safe='')}/{quote(version, safe='')}")
    if answer.status != HTTPStatus.OK:
        raise ValueError(stale)
    return orjson.loads(answer.data)


def kinds_in(listed: object, group: str, version: str) -> Iterator[Kind]:
    """Yield the kinds of an APIResourceList whose objects live in namespaces and may be deleted. Raises ValueError."""
    if not isinstance(listed, dict) or not isinstance(listed.get("resources"), list):
        raise ValueError("it lists no resources")  # noqa: TRY004 - what an extension sent, not what a caller passed
    for each in listed["resources"]:
        verbs = tuple(map(str, each.get("verbs") or ()))
        plural = str(each.get("name"))
        if each.get("namespaced") and "/" not in plural and {"list", "delete"} <= {*verbs}:
            yield Kind(group, version, str(each.get("kind")), plural, "", verbs=verbs)
