"""Admission of claims and volumes: the default class, what may grow, and finalizers that keep what is in use."""

from __future__ import annotations

from minik8s_modules.api import objects, quantities
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.storage import claims
from minik8s_modules.apiserver.http.write import Write
from minik8s_modules.store import readable

_NO_GROWTH = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
)


def protect(write: Write) -> None:
    """Give a new claim or volume the finalizer by which it outlives its deletion for as long as it is in use."""
    of_claim = write.target.kind.id == PERSISTENT_VOLUME_CLAIM.id
    finalizer = claims.CLAIM_PROTECTION if of_claim else claims.VOLUME_PROTECTION
    held = objects.finalizers(write.new)
    if finalizer not in held:
        objects.metadata(write.new)["finalizers"] = [*held, finalizer]


def default_class(write: Write) -> None:
    """Give a new claim that names no class the default one, where there is one."""
    if claims.names_class(write.new):
        return
    found = claims.default_class(
        readable.objects_of(STORAGE_CLASS, write.backend.cache.list(STORAGE_CLASS.prefix).items)
    )
    if found is not None:
        write.new["spec"]["storageClassName"] = objects.name(found)


def check_growth(write: Write) -> None:
    """Refuse that a claim asks for more than it did, unless its class says that its volumes grow."""
    if write.old is None or _asked(write.new) == _asked(write.old):
        return
    called = claims.class_of(write.old)
    found = write.backend.cache.get(STORAGE_CLASS.key("", called)) if called else None
    if found is None or found.object.get("allowVolumeExpansion") is not True:
        raise Forbidden(write.target.kind, objects.name(write.new), _NO_GROWTH)


def _asked(claim: JsonObject) -> object:
    amount = objects.dig(claim, "spec", "resources", "requests", "storage")
    return quantities.parse(amount) if amount is not None else None
