"""Which claim a volume of a pod has: one that it names, or one that is made for the pod (``ephemeral``). Pure.

A claim that is made has the name ``<pod>-<volume>`` and the pod as its controller, so that it goes with the pod. One of
that name which is not the pod's is nobody's to take. Source: kubernetes ``component-helpers/storage/ephemeral``.
"""

from __future__ import annotations

from collections.abc import Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject


def claim_of(pod: JsonObject, volume: JsonObject) -> str:
    """Return the name of a volume's claim, "" for a volume without one."""
    if volume.get("ephemeral") is not None:
        return f"{objects.name(pod)}-{volume.get('name') or ''}"
    named = volume.get("persistentVolumeClaim")
    return str(named.get("claimName") or "") if isinstance(named, dict) else ""


def claims_of(pod: JsonObject) -> Iterator[str]:
    """Yield the names of the pod's claims."""
    names = (claim_of(pod, volume) for volume in objects.spec(pod).get("volumes") or [])
    return (name for name in names if name)


def not_its_own(pod: JsonObject, claim: JsonObject) -> str:
    """Return, in Kubernetes' words, that a claim with the name of one made for a pod is not the pod's; "" if it is."""
    if (objects.controller_of(claim) or {}).get("uid") == objects.uid(pod):
        return ""
    return f"PVC {objects.key(claim)} was not created for pod {objects.key(pod)} (pod is not owner)"
