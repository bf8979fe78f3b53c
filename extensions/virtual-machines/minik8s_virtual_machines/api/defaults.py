"""What the mutating webhook fills in, as KubeVirt's does; a pure function from an object to one with its defaults."""

from __future__ import annotations

import copy
import uuid
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_virtual_machines.api.kinds import VMI_FINALIZER

MACHINE, MEMORY, GRACE_S = "q35", "512Mi", 30
_FIRMWARE = uuid.UUID("6a1a24a1-4061-4607-8bf4-a3963d0c5895")  # KubeVirt's name space of firmware UUIDs


def with_defaults(obj: JsonObject) -> JsonObject:
    """Return ``obj`` of one of our kinds with its defaults; what it says already stays."""
    filled = copy.deepcopy(obj)
    spec = filled.get("spec")
    if not isinstance(spec, dict):
        return filled
    match obj.get("kind"):
        case "VirtualMachine":
            _fill_template(spec)
            if "running" not in spec and "runStrategy" not in spec:
                spec["runStrategy"] = "Halted"
        case "VirtualMachineInstanceReplicaSet":
            _fill_template(spec)
            spec.setdefault("replicas", 1)
        case "VirtualMachineInstance":
            fill_instance(spec)
            if not objects.is_deleting(filled):
                _add_finalizer(objects.metadata(filled))
    return filled


def _add_finalizer(meta: JsonObject) -> None:
    if VMI_FINALIZER not in (meta.get("finalizers") or []):
        meta["finalizers"] = [*(meta.get("finalizers") or []), VMI_FINALIZER]


def _fill_template(spec: JsonObject) -> None:
    template = spec.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        fill_instance(template["spec"])


def fill_instance(spec: JsonObject) -> None:
    """Fill in the defaults of an instance's spec, in place."""
    domain = _map(spec, "domain")
    _map(domain, "machine").setdefault("type", MACHINE)
    memory = _map(domain, "memory")
    if "guest" not in memory:
        asked = objects.dig(domain, "resources", "requests", "memory") or objects.dig(
            domain, "resources", "limits", "memory"
        )
        memory["guest"] = asked or MEMORY
    cpu = _map(domain, "cpu")
    for name in ("cores", "sockets", "threads"):
        cpu.setdefault(name, 1)
    spec.setdefault("terminationGracePeriodSeconds", GRACE_S)
    spec.setdefault("architecture", "amd64")
    spec.setdefault("evictionStrategy", "None")
    devices = _map(domain, "devices")
    _fill_network(spec, devices)
    _fill_disks(spec, devices)


def _fill_network(spec: JsonObject, devices: JsonObject) -> None:
    if devices.get("autoattachPodInterface") is False or devices.get("interfaces") or spec.get("networks"):
        return
    devices["interfaces"] = [{"name": "default", "masquerade": {}}]
    spec["networks"] = [{"name": "default", "pod": {}}]


def _fill_disks(spec: JsonObject, devices: JsonObject) -> None:
    disks = devices.get("disks") or []
    volumes = spec.get("volumes") or []
    if not isinstance(disks, list) or not isinstance(volumes, list):
        return
    named = {each.get("name") for each in disks if isinstance(each, dict)}
    for disk in disks:
        if isinstance(disk, dict):
            _fill_disk(disk)
    more = [
        {"name": each["name"], "disk": {"bus": "virtio"}}
        for each in volumes
        if isinstance(each, dict) and each.get("name") and each["name"] not in named
    ]
    if disks or more:
        devices["disks"] = [*disks, *more]


def _fill_disk(disk: JsonObject) -> None:
    if "cdrom" in disk:
        bus, target = "sata", disk["cdrom"]
    else:
        bus, target = "virtio", disk.setdefault("disk", {})
    if isinstance(target, dict):
        target.setdefault("bus", bus)


def _map(parent: JsonObject, name: str) -> JsonObject:
    """Return the map of that name, made where there is none; what is no map stays, for the schema to refuse."""
    found = parent.setdefault(name, {})
    return found if isinstance(found, dict) else {}


def firmware_uuid(owner_uid: str) -> str:
    """Return the firmware's UUID of all instances of a machine: guests know their hardware again by it."""
    return str(uuid.uuid5(_FIRMWARE, owner_uid))


def patch(old: Any, new: Any, path: str = "") -> list[JsonObject]:
    """Return the JSON patch that adds to ``old`` what ``new`` has more, or else: defaults take nothing away."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            step
            for key, value in new.items()
            for step in (
                patch(old[key], value, f"{path}/{_escaped(key)}")
                if key in old
                else [{"op": "add", "path": f"{path}/{_escaped(key)}", "value": value}]
            )
        ]
    return [] if old == new else [{"op": "replace", "path": path, "value": new}]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
