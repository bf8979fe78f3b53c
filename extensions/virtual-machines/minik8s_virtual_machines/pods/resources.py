"""What a launcher's container asks for: the guest's memory with what the machine needs beside it (KV-04).

The formula is KubeVirt's (v1.4 ``pkg/virt-controller/services/renderresources.go``, ``GetMemoryOverhead``), with this
launcher's own figures in place of those of libvirt's daemons.
"""

from __future__ import annotations

from minik8s_modules.api.objects import JsonObject
from minik8s_virtual_machines.launcher.guest import UML, Guest, quantity
from minik8s_virtual_machines.pods.settings import KVM, TUN, Settings

_MI = 1 << 20
_LAUNCHER = 30 * _MI
"""Process 1 and the programs that ``kubectl exec`` starts; KubeVirt's monitor, launcher, logger and libvirt: 190 Mi."""
_QEMU = 30 * _MI
_TRANSLATED = 64 * _MI
"""Code that TCG has translated (``tb-size``)."""
_PER_CPU, _IO_THREAD, _VIDEO = 8 * _MI, 8 * _MI, 16 * _MI
_PAGE_TABLES = 512
"""A page table entry of 8 bytes for each page of 4 KiB."""
_UML = 8 * _MI
"""Measured: 6.6 MiB beside the guest's memory file."""
_CPU_RATIO = 10
"""CPUs of guests that share one (KubeVirt's cpuAllocationRatio)."""


def overhead(guest: Guest, settings: Settings) -> int:
    """Return the bytes beside the guest's memory."""
    more = _LAUNCHER + guest.memory_bytes // _PAGE_TABLES + quantity(settings.overhead)
    if guest.machine == UML:
        return more + _UML
    more += _QEMU + _IO_THREAD + _PER_CPU * guest.cpus + (_VIDEO if guest.graphics else 0)
    return more + (0 if KVM in settings.devices else _TRANSLATED)


def resources(vmi: JsonObject, guest: Guest, settings: Settings) -> JsonObject:
    """Return ``resources`` of container ``compute``."""
    declared = vmi["spec"]["domain"].get("resources") or {}
    asked, limits = dict(declared.get("requests") or {}), dict(declared.get("limits") or {})
    more = overhead(guest, settings)
    memory = quantity(asked["memory"]) if asked.get("memory") else guest.memory_bytes
    asked |= {"memory": str(memory + more), "cpu": asked.get("cpu") or f"{guest.cpus * 1000 // _CPU_RATIO}m"}
    if limits.get("memory"):
        limits["memory"] = str(quantity(limits["memory"]) + more)
    counted = dict.fromkeys(devices(guest, settings), "1")
    found = {"requests": {**asked, **counted}}
    return found | ({"limits": {**limits, **counted}} if limits or counted else {})


def devices(guest: Guest, settings: Settings) -> list[str]:
    """Return the counted devices that ``compute`` asks for."""
    wanted = {TUN: guest.interface is not None, KVM: guest.machine != UML}
    return [name for name in settings.devices if wanted[name]]
