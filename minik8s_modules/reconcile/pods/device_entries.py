"""The devices of a container's entry: what its limits ask for of what is declared of its node. Pure.

A pod names resources and numbers; paths come from the node's setting alone (``minik8s_devices``). Which of several
devices it gets the node chooses, which knows what its containers have (module_utils, pods/devices.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from minik8s_modules.api import objects, quantities
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.entries.containers import DeviceEntry
from minik8s_modules.module_utils.minik8s.pods.devices import Device


def device_entries(container: JsonObject, devices: Iterable[Device]) -> list[DeviceEntry]:
    """Return what the container asks for of ``devices``; requests of such resources equal their limits."""
    limits = objects.dig(container, "resources", "limits") or {}
    wanted = ((one, int(quantities.parse(limits.get(one.resource) or 0))) for one in devices)
    return [_entry(one, count) for one, count in wanted if count > 0]


def _entry(device: Device, count: int) -> DeviceEntry:
    return {
        "resource": device.resource,
        "count": count,
        "paths": list(device.paths),
        "shared": device.shared,
        "beside": list(device.beside),
        "permissions": device.permissions,
    }
