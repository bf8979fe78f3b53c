"""Kinds that this program does not know by itself: what the server says of them."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import quote

import orjson

from minik8s_modules.api.kinds import KINDS, Kind
from minik8s_modules.client.interface import Raw


def kind_at(client: Raw, api_version: str, name: str, wait_s: float = 0.0) -> Kind | None:
    """Return the kind called ``name`` of ``api_version``, built in or custom; None where the server has none.

    An extension answers for its own; ``wait_s`` 0 is the usual patience.

    Raises:
        ApiUnreachable: the server does not answer.
    """
    known = KINDS.by_api_version(api_version, name)
    if known is not None:
        return known
    group, _, version = api_version.rpartition("/")
    path = f"/apis/{quote(group, safe='')}/{quote(version, safe='')}" if group else f"/api/{quote(version, safe='')}"
    answer = client.raw("GET", path, None, None, wait_s)
    if answer.status != HTTPStatus.OK:
        return None
    for served in orjson.loads(answer.data).get("resources") or []:
        if served.get("kind") == name and "/" not in served["name"]:
            singular = served.get("singularName") or ""
            return Kind(group, version, name, served["name"], "", singular=singular, namespaced=served["namespaced"])
    return None
