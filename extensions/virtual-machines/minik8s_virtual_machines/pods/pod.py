"""The launcher's pod of a VirtualMachineInstance (KV-03, KV-04). Pure.

Rights are in one short init container alone: ``guest-setup`` is root with four capabilities, makes the tap device, the
rules and the images on volumes, and ends. The machine runs as user 107 without any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_virtual_machines.launcher import paths
from minik8s_virtual_machines.launcher.errors import Unusable
from minik8s_virtual_machines.launcher.guest import Guest, parse, problems
from minik8s_virtual_machines.pods import volumes
from minik8s_virtual_machines.pods.resources import devices, resources
from minik8s_virtual_machines.pods.settings import TUN, Settings

_AS_DECLARED = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "priorityClassName",
                "schedulerName", "hostname", "subdomain", "dnsPolicy", "dnsConfig")  # fmt: skip
_KILL_AFTER_S = 15
"""Seconds that a pod has beyond its guest's grace period, in which the launcher ends the machine (KubeVirt's)."""
_PREPARE = ["/usr/bin/virt-launcher", "prepare"]
_GIVE_BUSYBOX = f"/bin/busybox cp /bin/busybox {volumes.PROGRAM}"
_PREPARE_FOR_COPIES = ["/bin/busybox", "sh", "-c", f"{_GIVE_BUSYBOX} && exec {' '.join(_PREPARE)}"]
_SETUP_RIGHTS = ["NET_ADMIN", "CHOWN", "DAC_OVERRIDE", "FOWNER"]
_READY = {"exec": {"command": ["/usr/bin/vmctl", "ready"]}, "periodSeconds": 10, "timeoutSeconds": 20}
_WITHOUT_RIGHTS = {
    "runAsUser": paths.USER,
    "runAsGroup": paths.USER,
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
_INLINE = ("userData", "userDataBase64", "networkData", "networkDataBase64")


def refused(vmi: JsonObject) -> list[str]:
    """Return why the launcher cannot run a machine, each with the field; for admission."""
    try:
        return list(problems(vmi))
    except Unusable as error:
        return [str(error)]


def launcher_pod(vmi: JsonObject, settings: Settings, claims: Mapping[str, str] | None = None) -> JsonObject:
    """Return the pod, without its owner; ``claims`` are the sizes of claims by name, for images that are not there yet.

    Where the machine cannot be made as it is declared (admission refuses that, but it may be an old one), the pod ends
    at once, and its launcher says why.
    """
    try:
        guest = parse(vmi)
    except Unusable:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(vmi), "spec": _saying_why(vmi, settings)}
    mounted = [*volumes.own(guest), *volumes.tun(guest, settings), *volumes.of_disks(vmi, guest)]
    copies = [{**one, "securityContext": _WITHOUT_RIGHTS} for one in volumes.copies(guest)]
    spec = {name: vmi["spec"][name] for name in _AS_DECLARED if name in vmi["spec"]}
    environment = [{"name": paths.ENVIRONMENT, "value": json.dumps(_told(vmi, claims or {}), separators=(",", ":"))}]
    shared = {
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "env": environment,
        "volumeMounts": [one.mount for one in mounted],
    }
    binaries = [{"name": volumes.BINARIES, "emptyDir": {}}] if copies else []
    spec |= {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": guest.grace_s + _KILL_AFTER_S,
        "hostname": guest.hostname,
        "securityContext": _pod_security(guest),
        "initContainers": [_setup(guest, settings, shared, has_copies=bool(copies)), *copies],
        "containers": [_compute(vmi, guest, settings, shared)],
        "volumes": [*binaries, *(one.volume for one in mounted)],
    }
    if secrets := sorted({one.source["imagePullSecret"] for one in guest.disks if one.source.get("imagePullSecret")}):
        spec["imagePullSecrets"] = [{"name": name} for name in secrets]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(vmi), "spec": spec}


def _saying_why(vmi: JsonObject, settings: Settings) -> JsonObject:
    told = [{"name": paths.ENVIRONMENT, "value": json.dumps(_told(vmi, {}), separators=(",", ":"))}]
    compute = {"name": "compute", "image": settings.image, "command": ["/usr/bin/virt-launcher"], "env": told}
    return {"restartPolicy": "Never", "containers": [{**compute, "securityContext": _WITHOUT_RIGHTS}]}


def _metadata(vmi: JsonObject) -> JsonObject:
    name = objects.name(vmi)
    own = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": objects.uid(vmi), "vm.kubevirt.io/name": name}
    return {
        "generateName": f"virt-launcher-{name}-",
        "namespace": objects.namespace(vmi),
        "labels": {**objects.labels(vmi), **own},
        "annotations": {"kubevirt.io/domain": name, "kubectl.kubernetes.io/default-container": "compute"},
    }


def _told(vmi: JsonObject, claims: Mapping[str, str]) -> JsonObject:
    """Return what the launcher is told of the machine: no status, no user data, no probes; and sizes of claims."""
    spec = {**vmi["spec"], "volumes": [_volume(each, claims) for each in vmi["spec"].get("volumes") or []]}
    metadata = {name: vmi["metadata"][name] for name in ("name", "namespace", "uid") if name in vmi["metadata"]}
    return {"metadata": metadata, "spec": spec}


def _volume(volume: JsonObject, claims: Mapping[str, str]) -> JsonObject:
    if "cloudInitNoCloud" in volume:
        source = volume["cloudInitNoCloud"]
        return {**volume, "cloudInitNoCloud": {name: each for name, each in source.items() if name not in _INLINE}}
    claim = volume.get("persistentVolumeClaim")
    if claim and claim["claimName"] in claims:
        return {**volume, "persistentVolumeClaim": {**claim, "capacity": claims[claim["claimName"]]}}
    return volume


def _pod_security(guest: Guest) -> JsonObject:
    # the launcher answers the guest's DHCP, whose port is a low one
    sysctls = [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}] if guest.interface else []
    found: dict[str, Any] = {"fsGroup": paths.USER, "seccompProfile": {"type": "RuntimeDefault"}}
    return found | ({"sysctls": sysctls} if sysctls else {})


def _setup(guest: Guest, settings: Settings, shared: JsonObject, *, has_copies: bool) -> JsonObject:
    """Return the one container with rights; it needs the device for taps, but not the processor's.

    It is the first, so that what copies images finds its busybox without one more container for it.
    """
    mounts = [*shared["volumeMounts"], *([volumes.AT_BINARIES] if has_copies else [])]
    found = {
        **shared,
        "name": "guest-setup",
        "command": _PREPARE_FOR_COPIES if has_copies else _PREPARE,
        "volumeMounts": mounts,
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": _SETUP_RIGHTS},
        },
    }
    counted = {name: "1" for name in devices(guest, settings) if name == TUN}
    return found | ({"resources": {"requests": counted, "limits": counted}} if counted else {})


def _compute(vmi: JsonObject, guest: Guest, settings: Settings, shared: JsonObject) -> JsonObject:
    ports = [
        {"containerPort": number, "protocol": protocol.upper()}
        for protocol, number in (guest.interface.ports if guest.interface else ())
    ]
    liveness = {"livenessProbe": _probe(vmi["spec"]["livenessProbe"])} if vmi["spec"].get("livenessProbe") else {}
    return {
        **shared,
        "name": "compute",
        "command": ["/usr/bin/virt-launcher"],
        "securityContext": {**_WITHOUT_RIGHTS, "readOnlyRootFilesystem": True},
        "resources": resources(vmi, guest, settings),
        "readinessProbe": _probe(vmi["spec"]["readinessProbe"]) if vmi["spec"].get("readinessProbe") else _READY,
        **liveness,
        **({"ports": ports} if ports else {}),
    }


def _probe(declared: JsonObject) -> JsonObject:
    """Return a guest's probe as the container's: the guest is at the pod's address, its agent behind ``vmctl``."""
    found = {name: value for name, value in declared.items() if name != "guestAgentPing"}
    return found | ({"exec": {"command": ["/usr/bin/vmctl", "agent-ready"]}} if "guestAgentPing" in declared else {})
