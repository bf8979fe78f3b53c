"""What a plan says of claims and volumes: a message for each that would be somebody else's, or in another state.

Also how the rest of a plan reads them: as they would be (``storage_overlay``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD, STORAGE_CLASS
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.storage import claims
from minik8s_modules.controllers.simulation.simulated_cluster import World
from minik8s_modules.reconcile.feeds.plan_subjects import About, Note, of
from minik8s_modules.reconcile.storage.folders import folders, is_to_go
from minik8s_modules.reconcile.values.values import Entries
from minik8s_modules.runtime.informers import by_claim

_REPORTED = frozenset({PERSISTENT_VOLUME_CLAIM.kind, PERSISTENT_VOLUME.kind})
_HOSTNAME = "kubernetes.io/hostname"
_NAMED = 5
Placed = tuple[str, str]
"""A kind and ``<namespace>/<name>``, of a volume ``/<name>``."""


def storage_overlay(before: Iterable[JsonObject], after: Iterable[JsonObject]) -> dict[Placed, JsonObject | None]:
    """Return the claims and volumes that would differ (None: gone)."""
    old, new = _by_place(before), _by_place(after)
    changed = {place: obj for place, obj in new.items() if old.get(place) != obj}
    return {**changed, **dict.fromkeys(old.keys() - new.keys())}


def planned_folders(
    known: Mapping[str, Entries], overlay: Mapping[Placed, JsonObject | None], nodes: Iterable[JsonObject]
) -> dict[str, Entries]:
    """Return the section ``folders`` of each node, by name, with the volumes of an overlay as they would be."""
    changed = {key.lstrip("/"): obj for (kind, key), obj in overlay.items() if kind == PERSISTENT_VOLUME.kind}
    made = folders((obj for obj in changed.values() if obj is not None), nodes)
    kept = {
        node: {name: one for name, one in by_name.items() if name not in changed} for node, by_name in known.items()
    }
    return {node: {**kept.get(node, {}), **made.get(node, {})} for node in {*kept, *made}}


def storage_notes(
    before: Iterable[JsonObject],
    after: Iterable[JsonObject],
    pods: Iterable[JsonObject],
    last_messages: Mapping[tuple[str, Key], str],
) -> list[Note]:
    """Return what would become of claims and volumes.

    Args:
        before: claims, volumes and classes as they stand.
        after: the same as they would stand.
        pods: as they would stand.
        last_messages: the last Event by kind and key.
    """
    old, new, pods = _by_place(before), _by_place(after), [*pods]
    classes = {objects.name(one): one for one in after if one.get("kind") == STORAGE_CLASS.kind}
    found = []
    for place, obj in new.items():
        known = old.get(place)
        if known is not None and _state(known) == _state(obj):
            continue
        if objects.is_deleting(obj):
            found.append(_staying(obj, pods))
        elif obj.get("kind") == PERSISTENT_VOLUME_CLAIM.kind:
            made = new.get((PERSISTENT_VOLUME.kind, f"/{objects.spec(obj).get('volumeName') or ''}"))
            is_new = made is not None and (PERSISTENT_VOLUME.kind, f"/{objects.name(made)}") not in old
            found.append(_of_claim(obj, known, made, classes if is_new else {}, last_messages))
        else:
            found.append(_of_made(obj) if _is_made(obj, known) else _of_volume(obj))
    return found


def last_messages_of(world: World) -> dict[tuple[str, Key], str]:
    """Return the last Event of each claim and volume of a world."""
    return {(str(each.obj.get("kind")), objects.key(each.obj)): each.message for each in world.events}


def _by_place(found: Iterable[JsonObject]) -> dict[Placed, JsonObject]:
    listed = (one for one in found if one.get("kind") in _REPORTED)
    return {(str(one["kind"]), f"{objects.namespace(one)}/{objects.name(one)}"): one for one in listed}


def _state(obj: JsonObject) -> tuple[object, ...]:
    """Return what messages tell of a claim or volume."""
    size = objects.dig(obj, "status" if obj.get("kind") == PERSISTENT_VOLUME_CLAIM.kind else "spec", "capacity")
    phase = objects.status(obj).get("phase") or "Pending"
    return phase, objects.spec(obj).get("volumeName"), claims.holder(obj), objects.is_deleting(obj), size


def _is_made(volume: JsonObject, known: JsonObject | None) -> bool:
    return known is None and claims.PROVISIONED_BY in objects.annotations(volume) and claims.holder(volume) is not None


def _staying(obj: JsonObject, pods: Sequence[JsonObject]) -> Note:
    """Return for whom something that is deleted stays."""
    key, about = objects.key(obj), of(PERSISTENT_VOLUME, name=objects.name(obj))
    if obj.get("kind") == PERSISTENT_VOLUME_CLAIM.kind:
        users = sorted(objects.name(pod) for pod in pods if str(key) in by_claim(pod) and _has_node(pod))
        named = ", ".join(users[:_NAMED]) + (f" and {len(users) - _NAMED} more" if users[_NAMED:] else "")
        whom = f"until pods that use it are gone: {named}" if users else _until_done(obj)
        who = [of(POD, key.namespace)] if users[_NAMED:] else [of(POD, key.namespace, name) for name in users]
        text = f"PersistentVolumeClaim {key} would stay, with its data, {whom}"
        return Note(text, (of(PERSISTENT_VOLUME_CLAIM, *key), *who))
    if is_to_go(obj):
        return Note(
            f"PersistentVolume {objects.name(obj)} would go, with its data: {_place(obj)}", (about, *_holder(obj))
        )
    held = claims.holder(obj)
    bound = held is not None and objects.status(obj).get("phase") == "Bound"
    whom = f"until PersistentVolumeClaim {held.key} is gone" if held is not None and bound else _until_done(obj)
    return Note(f"PersistentVolume {objects.name(obj)} would stay {whom}", (about, *_holder(obj)))


def _until_done(obj: JsonObject) -> str:
    return f"until its finalizers are done: {', '.join(objects.finalizers(obj))}"


def _has_node(pod: JsonObject) -> bool:
    return bool(objects.spec(pod).get("nodeName"))


def _holder(volume: JsonObject) -> tuple[About, ...]:
    held = claims.holder(volume)
    return (of(PERSISTENT_VOLUME_CLAIM, *held.key),) if held is not None else ()


def _of_volume(volume: JsonObject) -> Note:
    held, phase = claims.holder(volume), objects.status(volume).get("phase") or "Pending"
    whose = f", of PersistentVolumeClaim {held.key}" if held is not None else ""
    text = f"PersistentVolume {objects.name(volume)} would be {phase}{whose}"
    return Note(text, (of(PERSISTENT_VOLUME, name=objects.name(volume)), *_holder(volume)))


def _of_claim(
    claim: JsonObject,
    known: JsonObject | None,
    volume: JsonObject | None,
    classes: Mapping[str, JsonObject],
    last_messages: Mapping[tuple[str, Key], str],
) -> Note:
    key, about = objects.key(claim), (of(PERSISTENT_VOLUME_CLAIM, *objects.key(claim)),)
    phase = str(objects.status(claim).get("phase") or "Pending")
    if phase != "Bound" or volume is None:
        why = last_messages.get((PERSISTENT_VOLUME_CLAIM.kind, key), "")
        return Note(f"PersistentVolumeClaim {key} would be {phase}{': ' if why else ''}{why}", about)
    if known is not None and claims.is_bound(known):
        size = objects.dig(claim, "status", "capacity", "storage")
        return Note(f"PersistentVolumeClaim {key} would have {size}", about)
    storage_class = classes.get(claims.class_of(claim))
    if storage_class is None:
        name = objects.name(volume)
        return Note(f"PersistentVolumeClaim {key} would be bound to PersistentVolume {name}", about)
    size, maker = objects.dig(volume, "spec", "capacity", "storage"), storage_class.get("provisioner")
    made = f"a PersistentVolume of {size} that StorageClass {objects.name(storage_class)} ({maker}) makes for it"
    return Note(f"PersistentVolumeClaim {key} would be bound to {made}", about)


def _of_made(volume: JsonObject) -> Note:
    """Return where a volume that is made stands: not what everybody knows who may read its claim."""
    held = claims.holder(volume)
    uid, key = (held.uid, held.key) if held is not None else ("", "")
    text = f"PersistentVolume {objects.name(volume)} of PersistentVolumeClaim {key} would be {_place(volume)}"
    # its name and its folder's have the claim's uid, which is not known yet
    shown = text.replace(uid, "<uid>") if uid else text
    return Note(shown, (of(PERSISTENT_VOLUME, name=objects.name(volume)), *_holder(volume)))


def _place(volume: JsonObject) -> str:
    """Return what a volume stands on."""
    kind = claims.source_of(volume)
    source = objects.spec(volume).get(kind) or {}
    server = f"{source['server']}:" if source.get("server") else ""
    terms = objects.dig(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms") or []
    expressions = [one for term in terms for one in term.get("matchExpressions") or [] if one.get("key") == _HOSTNAME]
    hosts = ", ".join(sorted({host for one in expressions for host in one.get("values") or []}))
    return f"{kind} {server}{source.get('path') or ''}{f' on node {hosts}' if hosts else ''}"
