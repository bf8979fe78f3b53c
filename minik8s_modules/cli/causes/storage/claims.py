"""Why a PersistentVolumeClaim is of no use to the pods that wait for it: what speaks against each volume there is.

And why a volume does not go, or has no folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD, STORAGE_CLASS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.pod_claims import claims_of
from minik8s_modules.api.pods.pod_references import Reference, references
from minik8s_modules.api.storage import claims, matching
from minik8s_modules.cli.causes.faults import Fault, deletion, kubectl, unrecovered
from minik8s_modules.cli.causes.storage.attaching import claim_holds, on_no_node
from minik8s_modules.cli.causes.surroundings import Around

_NAMED = 5
_ONE_POD = "ReadWriteOncePod"


def claim_faults(claim: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield that a claim is not bound, and which pods wait for it; one that waits for its first pod does no harm."""
    reason = unbound(claim, around)
    waiting = _waiting(claim, around) if reason else []
    if not reason:
        yield from _bound_faults(claim, around)
    if not reason or not (waiting or _is_stuck(claim, around)):
        return
    more = f" and {len(waiting) - _NAMED} more" if waiting[_NAMED:] else ""
    for_whom = f", and pods wait for it: {', '.join(waiting[:_NAMED])}{more}" if waiting else ""
    lead = kubectl(objects.namespace(claim), "describe", PERSISTENT_VOLUME_CLAIM.singular_name, objects.name(claim))
    if not claims.names_class(claim) and not objects.spec(claim).get("volumeName"):
        lead = kubectl("", "get", STORAGE_CLASS.plural)
    yield Fault(f"{reason}{for_whom}", lead)


def held_alone(pod: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield which pod has a claim that one pod at a time may have, for a pod that has no node yet."""
    if objects.spec(pod).get("nodeName") or objects.status(pod).get("phase") not in {None, "Pending"}:
        return
    space = objects.namespace(pod)
    for name in claims_of(pod):
        claim = around.get(PERSISTENT_VOLUME_CLAIM, name, space) or {}
        if _ONE_POD not in (objects.spec(claim).get("accessModes") or ()):
            continue
        for holder in around.of_namespace(POD, space):
            ended = objects.status(holder).get("phase") in {"Succeeded", "Failed"}
            if name in claims_of(holder) and objects.spec(holder).get("nodeName") and not ended:
                who = objects.name(holder)
                text = f"PersistentVolumeClaim {name} is for one pod at a time ({_ONE_POD}), and pod {who} has it"
                yield Fault(text, kubectl(space, "get", POD.singular_name, who))


def _bound_faults(claim: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why pods wait for the volume of a claim that has one."""
    users = [(pod, str(objects.spec(pod).get("nodeName") or "")) for pod in _users(claim, around)]
    for pod, node in users:
        for fault in claim_holds(claim, node, around) if node else ():
            yield fault._replace(cause=f"pod {objects.name(pod)} waits for it: {fault.cause}")


def volume_faults(volume: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield what keeps a volume that is to go, and what its machine could not do for it."""
    held = objects.finalizers(volume)
    lead = kubectl("", "describe", PERSISTENT_VOLUME.singular_name, objects.name(volume))
    if objects.is_deleting(volume) and claims.VOLUME_FOLDER in held and claims.VOLUME_PROTECTION not in held:
        failed = [each for each in around.events(volume) if each.get("reason") == "VolumeFailedDelete"]
        why = str(failed[-1].get("message")) if failed else "its machine has not reported yet that it is deleted"
        since = f"it was deleted at {objects.deletion_timestamp(volume)}"
        yield Fault(f"{since} and waits for its folder to be deleted: {' '.join(why.split())}", lead)
        return
    yield from deletion(volume)
    if objects.status(volume).get("phase") == "Failed":
        yield Fault(f"it is Failed: {objects.status(volume).get('message') or 'its status does not say why'}", lead)
    yield from unrecovered(around.events(volume), around.now)


def unbound(claim: JsonObject, around: Around) -> str:
    """Return in words that a claim has no volume, and why; "" where it has one."""
    phase = objects.status(claim).get("phase") or "Pending"
    if phase == "Bound":
        return ""
    conditions = [str(one["message"]) for one in objects.status(claim).get("conditions") or [] if one.get("message")]
    return f"it is {phase}, not bound: {'; '.join(conditions) or _reason(claim, around)}"


def _is_stuck(claim: JsonObject, around: Around) -> bool:
    return not claims.waits_for_consumer(around.get(STORAGE_CLASS, claims.class_of(claim)))


def _reason(claim: JsonObject, around: Around) -> str:
    if claims.is_complete(claim):
        return f"its PersistentVolume {objects.spec(claim).get('volumeName') or ''} is lost, with the data on it"
    if name := str(objects.spec(claim).get("volumeName") or ""):
        return _of_its_choice(claim, name, around)
    called = claims.class_of(claim)
    storage_class = around.get(STORAGE_CLASS, called) if called else None
    if claims.waits_for_consumer(storage_class) and claims.SELECTED_NODE not in objects.annotations(claim):
        return f"its StorageClass {called} waits until {_unscheduled(claim, around) or 'a pod that uses it has a node'}"
    if not claims.names_class(claim):
        return f"{_no_volume(claim, around)}, and no StorageClass is the default, which would make one"
    return f"{_no_volume(claim, around)}{_no_maker(called, storage_class, around)}"


def _unscheduled(claim: JsonObject, around: Around) -> str:
    """Return which pods have a node that no scheduler has chosen: nobody then says for which node the volume is."""
    named = [objects.name(pod) for pod in _users(claim, around) if objects.spec(pod).get("nodeName")]
    if not named:
        return ""
    chosen, whose = "a scheduler has chosen a node for a pod that uses it", ", ".join(named[:_NAMED])
    return f"{chosen}, but nodeName is set in {whose}: set nodeSelector instead"


def _of_its_choice(claim: JsonObject, name: str, around: Around) -> str:
    volume = around.get(PERSISTENT_VOLUME, name)
    if volume is None:
        return f"it names PersistentVolume {name}, which is not there"
    return f"it cannot have PersistentVolume {name}, which it names: {_objection(volume, claim) or 'not yet'}"


def _no_volume(claim: JsonObject, around: Around) -> str:
    """Return what speaks against the volumes there are, the most frequent first."""
    called = claims.class_of(claim)
    whose = f"of class {called}" if called else "without a class"
    volumes = [each for each in around.all(PERSISTENT_VOLUME) if claims.class_of(each) == called]
    if PERSISTENT_VOLUME.plural in around.unread:
        return f"no PersistentVolume {whose} was found for it"
    if not volumes:
        return f"there is no PersistentVolume {whose}"
    against = Counter(_objection(each, claim) or "about to be bound" for each in volumes)
    text = ", ".join(f"{count} {why}" for why, count in against.most_common())
    return f"none of {len(volumes)} PersistentVolumes {whose} fits ({text})"


def _objection(volume: JsonObject, claim: JsonObject) -> str:
    """Return why a claim cannot have a volume; "" where nothing speaks against it."""
    held = claims.holder(volume)
    if held is not None and not claims.is_held_by(volume, claim):
        phase = objects.status(volume).get("phase")
        return "released, with another claim's data" if phase in {"Released", "Failed"} else "held by another claim"
    if objects.is_deleting(volume):
        return "being deleted"
    if not claims.source_of(volume):
        return "without a place"
    return (
        _WORDS.get(matching.mismatch(volume, claim)) or matching.mismatch(volume, claim) or _unselected(volume, claim)
    )


_WORDS = {
    "requested PV is too small": "too small",
    "incompatible accessMode": "without its access modes",
    "incompatible volumeMode": "of another volumeMode",
    "storageClassName does not match": "of another class",
    "it is of another namespace": "of another namespace",
}


def _unselected(volume: JsonObject, claim: JsonObject) -> str:
    return "" if matching.selects(claim, volume) else "not selected by its labels"


def _no_maker(called: str, storage_class: JsonObject | None, around: Around) -> str:
    if not called:
        return ", and no StorageClass makes one"
    if storage_class is None:
        return "" if STORAGE_CLASS.plural in around.unread else f", and there is no StorageClass {called} to make one"
    maker = str(storage_class.get("provisioner") or "")
    absent = ": no node has a CSI driver of this name" if on_no_node(maker, around.aside()) else ""
    return f", and the provisioner {maker} has made none yet{absent}"


def _waiting(claim: JsonObject, around: Around) -> list[str]:
    return [objects.name(pod) for pod in _users(claim, around)]


def _users(claim: JsonObject, around: Around) -> list[JsonObject]:
    """Return the pods that have not come to run and use the claim."""
    wanted = Reference(PERSISTENT_VOLUME_CLAIM.plural, objects.name(claim))
    pods = around.of_namespace(POD, objects.namespace(claim))
    return [
        pod for pod in pods if objects.status(pod).get("phase") in (None, "Pending") and wanted in set(references(pod))
    ]
