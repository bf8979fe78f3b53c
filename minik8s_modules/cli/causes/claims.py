"""Why a PersistentVolumeClaim is of no use to the pods that wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import PERSISTENT_VOLUME_CLAIM, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.pod_references import Reference, references
from minik8s_modules.cli.causes.faults import Fault, kubectl
from minik8s_modules.cli.causes.surroundings import Around

_NAMED = 5


def claim_faults(claim: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield that pods wait for a claim that is not bound; one that nobody waits for does no harm yet."""
    waiting = _waiting(claim, around) if unbound(claim) else []
    if waiting:
        more = f" and {len(waiting) - _NAMED} more" if waiting[_NAMED:] else ""
        told = f"{unbound(claim)}, and pods wait for it: {', '.join(waiting[:_NAMED])}{more}"
        lead = kubectl(objects.namespace(claim), "describe", PERSISTENT_VOLUME_CLAIM.singular_name, objects.name(claim))
        yield Fault(told, lead)


def unbound(claim: JsonObject) -> str:
    """Return in words that a claim has no volume, "" where it has one."""
    phase = objects.status(claim).get("phase") or "Pending"
    if phase == "Bound":
        return ""
    conditions = [str(one["message"]) for one in objects.status(claim).get("conditions") or [] if one.get("message")]
    return f"it is {phase}, not bound: {'; '.join(conditions) or 'minik8s does not bind claims to volumes yet'}"


def _waiting(claim: JsonObject, around: Around) -> list[str]:
    wanted = Reference(PERSISTENT_VOLUME_CLAIM.plural, objects.name(claim))
    pods = around.of_namespace(POD, objects.namespace(claim))
    return [
        objects.name(pod)
        for pod in pods
        if objects.status(pod).get("phase") in (None, "Pending") and wanted in set(references(pod))
    ]
