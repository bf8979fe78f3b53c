"""Which volume a claim may have: the smallest that fits. Pure.

Source: kubernetes ``component-helpers/storage/volume`` (``FindMatchingVolume``, ``CheckNodeAffinity``) and
``checkVolumeSatisfyClaim`` of its persistent volume controller. Of volumes of one size, the one with the fewest
access modes goes first, so that what more nodes may mount is left for who needs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from minik8s_modules.api import objects
from minik8s_modules.api.nodes.node_affinity import term_fits
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import from_label_selector
from minik8s_modules.api.storage import claims


def mismatch(volume: JsonObject, claim: JsonObject) -> str:
    """Return why a claim cannot have the volume that it, or that itself, names; "" where it can."""
    if claims.requested(claim) > claims.capacity(volume):
        return "requested PV is too small"
    if claims.class_of(volume) != claims.class_of(claim):
        return "storageClassName does not match"
    if _mode(volume) != _mode(claim):
        return "incompatible volumeMode"
    if not has_modes(volume, claim):
        return "incompatible accessMode"
    return "" if in_reach(volume, claim) else "it is of another namespace"


def selects(claim: JsonObject, volume: JsonObject) -> bool:
    """Return whether a volume has the labels that a claim asks for."""
    declared = objects.spec(claim).get("selector")
    return declared is None or from_label_selector(declared).matches(objects.labels(volume))


def has_modes(volume: JsonObject, claim: JsonObject) -> bool:
    """Return whether a volume can be mounted in every way that a claim asks for."""
    return {*(objects.spec(claim).get("accessModes") or ())} <= {*(objects.spec(volume).get("accessModes") or ())}


def in_reach(volume: JsonObject, claim: JsonObject) -> bool:
    """Return whether claims of that namespace may have the volume: the original's volumes have a namespace."""
    space = objects.annotations(volume).get(claims.ORIGINAL_NAMESPACE)
    return space is None or space == objects.namespace(claim)


def reaches_node(volume: JsonObject, node: JsonObject) -> bool:
    """Return whether a node can have the volume (``spec.nodeAffinity``)."""
    required = objects.dig(volume, "spec", "nodeAffinity", "required")
    return required is None or any(term_fits(term, node) for term in required.get("nodeSelectorTerms") or [])


def best_volume(
    claim: JsonObject, volumes: Iterable[JsonObject], node: JsonObject | None = None, *, delayed: bool = False
) -> JsonObject | None:
    """Return the volume for a claim that is not bound, None where none fits.

    Args:
        claim: the claim.
        volumes: those there are; ones that other claims hold are passed over.
        node: where a volume that is not kept for the claim must be had; None asks for no place.
        delayed: take only a volume that is kept free for the claim: for others a pod has to have a node first.
    """
    found = suitable(claim, volumes, delayed=delayed and node is None)
    # what is kept for the claim is its volume wherever it is: a pod that wants another place has to look again
    return next(
        (one for one in found if node is None or claims.is_held_by(one, claim) or reaches_node(one, node)), None
    )


def suitable(claim: JsonObject, volumes: Iterable[JsonObject], *, delayed: bool = False) -> list[JsonObject]:
    """Return the volumes that a claim which is not bound may have, the best first, at whatever nodes.

    One that is kept free for the claim is the only one.
    """
    found = [each for each in volumes if _may_have(each, claim)]
    kept = [each for each in found if claims.is_held_by(each, claim)][:1]
    if kept or delayed:
        return kept
    wanted = claims.class_of(claim)
    free = (each for each in found if _is_free(each) and claims.class_of(each) == wanted)
    return sorted((each for each in free if selects(claim, each)), key=_order)


def _may_have(volume: JsonObject, claim: JsonObject) -> bool:
    """Return whether nothing but other wishes of the claim speaks against the volume."""
    if claims.holder(volume) is not None and not claims.is_held_by(volume, claim):
        return False
    if objects.is_deleting(volume) or claims.capacity(volume) < claims.requested(claim):
        return False
    return in_reach(volume, claim) and _mode(volume) == _mode(claim) and has_modes(volume, claim)


def _is_free(volume: JsonObject) -> bool:
    return claims.holder(volume) is None and objects.status(volume).get("phase") == "Available"


def _mode(obj: JsonObject) -> str:
    return str(objects.spec(obj).get("volumeMode") or "Filesystem")


def _order(volume: JsonObject) -> tuple[Decimal, int, str]:
    return claims.capacity(volume), len(objects.spec(volume).get("accessModes") or ()), objects.name(volume)
