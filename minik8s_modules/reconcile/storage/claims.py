"""What a pod's volume stands on: the source it names itself, or that of the PersistentVolume bound to its claim. Pure.

A claim that is not bound holds the pod's containers; words are the kubelet's (``desired_state_of_world_populator.go``).
A node mounts an NFS volume once for each pod, as Kubernetes does, and the kernel shares what they mount. A volume on a
node's own disk is the folder itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.pod_claims import claim_of, not_its_own
from minik8s_modules.reconcile.values.environment import ConfigurationMissing
from minik8s_modules.reconcile.values.values import PodInputs

SOURCES = ("nfs", "hostPath", "local", "csi")
"""What a PersistentVolume may stand on here."""


class Source(NamedTuple):
    """A volume in the form of a pod's own: ``{kind: fields}``, and what its PersistentVolume says of mounting it."""

    volume: JsonObject
    options: tuple[str, ...] = ()
    read_only: bool = False
    persistent: JsonObject | None = None
    """The PersistentVolume, where it is one."""


def takes_claims(pod: JsonObject, container: JsonObject) -> bool:
    """Return whether the container mounts a volume of a claim: what it has stays, whatever becomes of the claim."""
    claimed = {volume["name"] for volume in objects.spec(pod).get("volumes") or [] if claim_of(pod, volume)}
    return any(mount["name"] in claimed for mount in container.get("volumeMounts") or [])


def source_of(pod: JsonObject, volume: JsonObject, inputs: PodInputs) -> Source:
    """Return what the volume stands on.

    Raises:
        ConfigurationMissing: its claim has no volume yet, or one that no node can mount.
    """
    name = claim_of(pod, volume)
    if not name:
        return Source(volume, (), any(objects.dig(volume, kind, "readOnly") for kind in ("nfs", "csi")))
    key = f"{objects.namespace(pod)}/{name}"
    try:
        _check_owner(pod, volume, inputs.claims.get(key))
        found = _bound(key, name, inputs.claims, inputs.volumes)
    except ConfigurationMissing as error:
        raise ConfigurationMissing(f"error processing PVC {key}: {error}") from error
    asked = bool(objects.dig(volume, "persistentVolumeClaim", "readOnly"))
    return found._replace(read_only=found.read_only or asked)


def _check_owner(pod: JsonObject, volume: JsonObject, claim: JsonObject | None) -> None:
    """Raise where a claim has the name of one that is made for the pod, and is not the pod's."""
    if volume.get("ephemeral") is not None and claim is not None and (why := not_its_own(pod, claim)):
        raise ConfigurationMissing(why)


def _bound(key: str, name: str, claims: Mapping[str, JsonObject], volumes: Mapping[str, JsonObject]) -> Source:
    claim = claims.get(key)
    if claim is None:
        raise ConfigurationMissing(f'failed to fetch PVC from API server: persistentvolumeclaims "{name}" not found')
    if objects.is_deleting(claim):
        raise ConfigurationMissing("PVC is being deleted")
    named = str(objects.spec(claim).get("volumeName") or "")
    if objects.status(claim).get("phase") != "Bound":
        raise ConfigurationMissing("PVC is not bound")
    if not named:
        raise ConfigurationMissing("PVC has empty pvc.Spec.VolumeName")
    volume = volumes.get(named)
    if volume is None:
        raise ConfigurationMissing(
            f'failed to fetch PV "{named}" from API server: persistentvolumes "{named}" not found'
        )
    _check_holder(named, volume, claim)
    return _mounted(named, volume)


def _check_holder(named: str, volume: JsonObject, claim: JsonObject) -> None:
    """Raise unless the volume names the claim too: one that somebody else holds is never mounted."""
    held = objects.spec(volume).get("claimRef")
    if not held:
        raise ConfigurationMissing(
            f'found PV object "{named}" with nil pv.Spec.ClaimRef indicating it is not yet bound to the claim'
        )
    if held.get("uid") != objects.uid(claim):
        raise ConfigurationMissing(
            f'found PV object "{named}" with a pv.Spec.ClaimRef.UID "{held.get("uid") or ""}"'
            " that does not point to the claim's UID"
        )


def _mounted(named: str, volume: JsonObject) -> Source:
    declared = objects.spec(volume)
    if declared.get("volumeMode") == "Block":
        raise ConfigurationMissing(f'PV "{named}" is a block device (volumeMode Block), which nodes do not attach')
    kind = next((each for each in SOURCES if declared.get(each) is not None), "")
    if not kind:
        raise ConfigurationMissing(f'PV "{named}" stands on something else than {", ".join(SOURCES)}')
    options = tuple(str(each) for each in declared.get("mountOptions") or ())
    return Source({kind: declared[kind]}, options, bool(objects.dig(declared, kind, "readOnly")), volume)
