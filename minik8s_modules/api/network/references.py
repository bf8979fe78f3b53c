"""References of Gateway API into other namespaces: whether the namespace that is referred to has granted them. Pure.

Pilots decide by it what Gateways serve, and API servers which Secrets pilots may read for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS, GROUP
from minik8s_modules.api.objects import JsonObject, Key


class Reference(NamedTuple):
    """From an object of Gateway API, of ``kind`` in ``space``, to one by group, kind, namespace and name."""

    kind: str
    space: str
    to_group: str
    to_kind: str
    to_space: str
    to_name: str


def permitted(reference: Reference, grants: Iterable[JsonObject]) -> bool:
    """Return whether a reference stays in its namespace, or a ReferenceGrant of the other one allows it.

    A grant that cannot be read allows nothing.
    """
    if reference.to_space == reference.space:
        return True
    there = [grant for grant in grants if objects.namespace(grant) == reference.to_space]
    allows = partial(_allows, reference)
    return any(map(allows, objects.readable(there, allows)))


def _allows(reference: Reference, grant: JsonObject) -> bool:
    spec = objects.spec(grant)
    return any(_is_from(reference, each) for each in spec.get("from") or []) and any(
        _is_to(reference, each) for each in spec.get("to") or []
    )


def _is_from(reference: Reference, source: JsonObject) -> bool:
    return (source.get("group"), source.get("kind"), source.get("namespace")) == (
        GROUP,
        reference.kind,
        reference.space,
    )


def _is_to(reference: Reference, target: JsonObject) -> bool:
    same = (target.get("group") or "", target.get("kind")) == (reference.to_group, reference.to_kind)
    return same and target.get("name") in {None, "", reference.to_name}


def secrets_of(gateways: Iterable[JsonObject], grants: Sequence[JsonObject]) -> set[Key]:
    """Return the Secrets that listeners name and that they may use."""
    return {
        key
        for gateway in gateways
        for each in objects.spec(gateway).get("listeners") or []
        for ref in (each.get("tls") or {}).get("certificateRefs") or []
        if (key := _secret(gateway, ref)) is not None and permitted(certificate_reference(gateway, key), grants)
    }


def _secret(gateway: JsonObject, ref: JsonObject) -> Key | None:
    if (ref.get("group") or "", ref.get("kind") or "Secret") != ("", "Secret"):
        return None
    return Key(ref.get("namespace") or objects.namespace(gateway), ref["name"])


def certificate_reference(gateway: JsonObject, secret: Key) -> Reference:
    """Return the reference of a Gateway to a Secret."""
    return Reference(GATEWAY_KINDS.gateways.kind, objects.namespace(gateway), "", "Secret", *secret)
