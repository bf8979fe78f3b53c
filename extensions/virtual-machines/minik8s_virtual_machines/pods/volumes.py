"""The volumes of a launcher's pod, and where its containers see them. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import PurePath, PurePosixPath
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_virtual_machines.launcher import paths
from minik8s_virtual_machines.launcher.guest import UML, Disk, Guest
from minik8s_virtual_machines.pods.settings import TUN, Settings

RUN, IMAGES, BINARIES = "run", "ephemeral-disks", "binaries"
_TUN_DEVICE = "host-tun"
_RUN_ROOM = 32 << 20
PROGRAM = "/init/busybox"
AT_BINARIES = {"name": BINARIES, "mountPath": "/init"}


class Mounted(NamedTuple):
    """A volume of the pod and its mount in ``compute``."""

    volume: JsonObject
    mount: JsonObject


def own(guest: Guest) -> list[Mounted]:
    """Return what each launcher has: its sockets in memory, where a User-Mode Linux has its memory too, and images."""
    room = _RUN_ROOM + (guest.memory_bytes if guest.machine == UML else 0)
    return [
        _mounted({"name": RUN, "emptyDir": {"medium": "Memory", "sizeLimit": str(room)}}, paths.RUN),
        _mounted({"name": IMAGES, "emptyDir": {}}, paths.IMAGES),
    ]


def tun(guest: Guest, settings: Settings) -> list[Mounted]:
    """Return the node's device for taps, where it is not a counted one."""
    if guest.interface is None or TUN in settings.devices:
        return []
    host = {"name": _TUN_DEVICE, "hostPath": {"path": "/dev/net/tun", "type": "CharDevice"}}
    return [_mounted(host, PurePosixPath("/dev/net/tun"))]


def of_disks(vmi: JsonObject, guest: Guest) -> list[Mounted]:
    """Return the claims, folders of the node, ConfigMaps and Secrets that disks are made of."""
    return [mounted for disk in guest.disks for mounted in _of_disk(vmi, disk)]


def _of_disk(vmi: JsonObject, disk: Disk) -> list[Mounted]:
    name, source = f"volume-{disk.name}", disk.source
    if disk.kind == "persistentVolumeClaim":
        claim = {"claimName": source["claimName"]} | ({"readOnly": True} if source.get("readOnly") else {})
        return [_mounted({"name": name, disk.kind: claim}, paths.VOLUMES / disk.name)]
    if disk.kind == "hostDisk":
        host = {"path": str(PurePosixPath(source["path"]).parent), "type": "DirectoryOrCreate"}
        return [_mounted({"name": name, "hostPath": host}, paths.VOLUMES / disk.name)]
    if disk.kind in {"configMap", "secret"}:
        taken = {"configMap": ("name", "optional"), "secret": ("secretName", "optional")}[disk.kind]
        given = {field: source[field] for field in taken if field in source}
        return [_mounted({"name": name, disk.kind: given}, paths.SOURCES / disk.name, readonly=True)]
    if disk.kind == "cloudInitNoCloud":
        folder = paths.SOURCES / disk.name
        return [
            _mounted({"name": f"{name}-{part}", "secret": {"secretName": secret}}, folder / part, readonly=True)
            for part, secret in _data(vmi, disk)
        ]
    return []


def _data(vmi: JsonObject, disk: Disk) -> list[tuple[str, str]]:
    """Return which Secret has the user data and which the network data."""
    found = []
    for part, inline, reference in (
        ("user", ("userData", "userDataBase64"), "secretRef"),
        ("network", ("networkData", "networkDataBase64"), "networkDataSecretRef"),
    ):
        if disk.source.get(reference):
            found.append((part, str(disk.source[reference]["name"])))
        elif any(disk.source.get(field) for field in inline):
            found.append((part, secret_name(vmi, disk.name)))
    return found


def secret_name(vmi: JsonObject, disk: str) -> str:
    """Return the name of the Secret that user data becomes which stands in the machine's own spec."""
    return f"{objects.name(vmi)}-{disk}-cloud-init"


def secrets(vmi: JsonObject) -> list[JsonObject]:
    """Return these Secrets."""
    found: list[JsonObject] = []
    for volume in objects.spec(vmi).get("volumes") or []:
        source = volume.get("cloudInitNoCloud") or {}
        data = {
            key: source.get(f"{field}Base64") or base64.b64encode(source[field].encode()).decode()
            for key, field in (("userdata", "userData"), ("networkdata", "networkData"))
            if source.get(field) or source.get(f"{field}Base64")
        }
        if data:
            metadata = {"name": secret_name(vmi, volume["name"]), "namespace": objects.namespace(vmi)}
            found.append({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    return found


def copies(guest: Guest) -> list[JsonObject]:
    """Return the init containers that copy images out of container images, which need hold no program.

    A static busybox comes by a volume, as KubeVirt's ``container-disk`` does; ``guest-setup`` puts it there.
    """
    wanted = [
        (f"volume{disk.name}-init", disk.source, '{0} cp -r /disk/. "$1"', [str(paths.IMAGES / disk.name)])
        for disk in guest.disks
        if disk.kind == "containerDisk"
    ]
    if guest.kernel:
        parts = [(part, str(guest.kernel.get(f"{part}Path") or "")) for part in ("kernel", "initrd")]
        words = [word for part, path in parts if path for word in (path, str(paths.KERNEL / part))]
        script = '(shift; while [ $# -gt 0 ]; do {0} cp "$1" "$2" && shift 2 || exit 1; done)'
        wanted.append(("kernel-boot-init", guest.kernel, script, [str(paths.KERNEL), *words]))
    return [_copy(*each) for each in wanted]


def _copy(name: str, source: Mapping[str, Any], script: str, arguments: list[str]) -> JsonObject:
    steps = ('{0} mkdir -p "$1"', script, '{0} chmod -R u+rwX "$1"')
    text = " && ".join(steps).format(PROGRAM)
    policy = {"imagePullPolicy": source["imagePullPolicy"]} if source.get("imagePullPolicy") else {}
    return {
        "name": name,
        "image": source["image"],
        **policy,
        "command": [PROGRAM, "sh", "-c", text, "copy", *arguments],
        "volumeMounts": [
            AT_BINARIES,
            {"name": IMAGES, "mountPath": str(paths.IMAGES)},
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _mounted(volume: JsonObject, at: PurePath, *, readonly: bool = False) -> Mounted:
    mount = {"name": volume["name"], "mountPath": str(at)}
    return Mounted(volume, mount | ({"readOnly": True} if readonly else {}))
