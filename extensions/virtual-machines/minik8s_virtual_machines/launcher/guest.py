"""A VirtualMachineInstance as the launcher needs it, and what of it the launcher does not do. Pure.

Fields are those of ``kubevirt.io/v1``. ``pods/`` parses the same way, so a machine that cannot be made is refused
before there is a pod.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from minik8s_virtual_machines.launcher.errors import Unusable

JsonObject = Mapping[str, Any]
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15} | {
    unit + "i": 1024 ** (power + 1) for power, unit in enumerate("KMGTP")
}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]*)")
DEFAULT_MEMORY = "128Mi"
UML, Q35 = "uml", "q35"
BUSES = {UML: ("virtio",), Q35: ("virtio", "sata", "scsi")}
# a disk of these is a copy or made for the pod, and ends with it
WRITABLE = frozenset({"containerDisk", "emptyDisk", "persistentVolumeClaim", "hostDisk"})
KINDS = (*sorted(WRITABLE), "cloudInitNoCloud", "configMap", "secret")
# Parameters of a User-Mode Linux that its own process acts on, and not the guest: files, devices, programs of the pod.
_OF_THE_HOST = re.compile(
    r"(ubd|vec|eth|con|ssl|hostfs|uml_dir|umid|mem|iomem|xterm|mconsole|initrd|seccomp|fake_|jail|aio|tty_|debug|dev/|"
    r"virtio_uml|random|skas|nosysemu|noptrace|noproc|mode=|stderr|version|showconfig|help)"
)


class Disk(NamedTuple):
    """A disk of the guest and the volume it is made of."""

    name: str
    kind: str
    source: JsonObject
    cdrom: bool = False
    bus: str = "virtio"
    serial: str = ""
    boot_order: int = 0
    readonly: bool = False
    cache: str = ""

    @property
    def is_written(self) -> bool:
        """Whether the guest may write to the image, which nobody else may then have."""
        return self.kind in WRITABLE and not (self.readonly or self.cdrom)


class Interface(NamedTuple):
    """A network card; the pod's network is the only one."""

    name: str
    model: str
    mac: str
    ports: tuple[tuple[str, int], ...]
    """Protocol and number; none means all."""


class Guest(NamedTuple):
    """What is to run."""

    name: str
    namespace: str
    uid: str
    machine: str
    memory_bytes: int
    cpus: int
    threads: tuple[int, int, int]
    cpu_model: str
    kernel_arguments: tuple[str, ...]
    kernel: JsonObject
    disks: tuple[Disk, ...]
    interface: Interface | None
    hostname: str
    grace_s: int
    starts_paused: bool
    serial: bool
    logs_serial: bool
    graphics: bool
    rng: bool
    uuid: str


def quantity(text: object) -> int:
    """Return a Kubernetes quantity of bytes as a number.

    Raises:
        Unusable: it is none.
    """
    found = _QUANTITY.fullmatch(str(text))
    if found is None or found[2] not in _UNITS:
        raise Unusable(f"{text!r} is not an amount of bytes, such as 128Mi")
    return int(float(found[1]) * _UNITS[found[2]])


def parse(vmi: JsonObject) -> Guest:
    """Return the guest.

    Raises:
        Unusable: it cannot be made; the message names the first field that says so.
    """
    for problem in problems(vmi):
        raise Unusable(problem)
    spec, domain = vmi["spec"], _dig(vmi, "spec", "domain")
    devices, cpu = domain.get("devices") or {}, domain.get("cpu") or {}
    boot = _dig(domain, "firmware", "kernelBoot")
    topology = tuple(int(cpu.get(part) or 1) for part in ("sockets", "cores", "threads"))
    meta = vmi["metadata"]
    return Guest(
        name=meta["name"],
        namespace=meta.get("namespace") or "default",
        uid=meta.get("uid") or meta["name"],
        machine=machine_of(vmi),
        memory_bytes=memory_of(vmi),
        cpus=topology[0] * topology[1] * topology[2],
        threads=(topology[0], topology[1], topology[2]),
        cpu_model=str(cpu.get("model") or ""),
        kernel_arguments=tuple(str(boot.get("kernelArgs") or "").split()),
        kernel=boot.get("container") or {},
        disks=tuple(_disks(vmi)),
        interface=_interface(vmi),
        hostname=spec.get("hostname") or meta["name"],
        grace_s=int(spec["terminationGracePeriodSeconds"]) if "terminationGracePeriodSeconds" in spec else 30,
        starts_paused=spec.get("startStrategy") == "Paused",
        serial=devices.get("autoattachSerialConsole") is not False,
        logs_serial=devices.get("logSerialConsole") is not False,
        graphics=devices.get("autoattachGraphicsDevice") is not False,
        rng=devices.get("rng") is not None,
        uuid=str(_dig(domain, "firmware").get("uuid") or ""),
    )


def machine_of(vmi: JsonObject) -> str:
    """Return which machine runs it: ``uml`` or ``q35``."""
    asked = str(_dig(vmi, "spec", "domain", "machine").get("type") or Q35)
    return UML if asked == UML else Q35


def memory_of(vmi: JsonObject) -> int:
    """Return the guest's memory in bytes: memory.guest, else what is requested, else the limit."""
    domain = _dig(vmi, "spec", "domain")
    amounts = (
        _dig(domain, "memory").get("guest"),
        _dig(domain, "resources", "requests").get("memory"),
        _dig(domain, "resources", "limits").get("memory"),
    )
    return quantity(next((amount for amount in amounts if amount), DEFAULT_MEMORY))


def problems(vmi: JsonObject) -> Iterator[str]:
    """Yield why the launcher cannot run the machine; each begins with the field."""
    machine = str(_dig(vmi, "spec", "domain", "machine").get("type") or Q35)
    if machine not in {UML, Q35} and not machine.startswith("pc-q35"):
        yield f"spec.domain.machine.type: {machine} is not there; machines are q35 and uml"
    yield from _cpu_problems(vmi)
    yield from _disk_problems(vmi)
    yield from _network_problems(vmi)
    if machine == UML:
        yield from _uml_problems(vmi)


def _cpu_problems(vmi: JsonObject) -> Iterator[str]:
    cpu = _dig(vmi, "spec", "domain", "cpu")
    count = 1
    for part in ("sockets", "cores", "threads"):
        count *= int(cpu.get(part) or 1)
    if count > 64 or count < 1:  # noqa: PLR2004 - what a q35 can number without an IOMMU is 255; nobody's node has 64
        yield f"spec.domain.cpu: {count} CPUs; 1 to 64 are possible"
    if not re.fullmatch(r"[A-Za-z0-9_.-]*", str(cpu.get("model") or "")):
        yield "spec.domain.cpu.model: holds a character that no model's name has"


def _disk_problems(vmi: JsonObject) -> Iterator[str]:
    volumes = {each.get("name"): each for each in _dig(vmi, "spec").get("volumes") or []}
    disks = _dig(vmi, "spec", "domain", "devices").get("disks") or []
    buses = BUSES[machine_of(vmi)]
    for index, disk in enumerate(disks):
        at = f"spec.domain.devices.disks[{index}]"
        if disk.get("name") not in volumes:
            yield f"{at}.name: there is no volume {disk.get('name')}"
        if "lun" in disk:
            yield f"{at}.lun: is not possible; use disk or cdrom"
        target = disk.get("cdrom") or disk.get("disk") or {}
        bus = str(target.get("bus") or _usual_bus("cdrom" in disk, machine_of(vmi)))
        if bus not in buses and not ("cdrom" in disk and machine_of(vmi) == UML):
            yield f"{at}: bus {bus} is not possible with machine {machine_of(vmi)}; it has {', '.join(buses)}"
        if "cdrom" in disk and bus == "virtio" and machine_of(vmi) == Q35:
            yield f"{at}.cdrom.bus: virtio has no CD-ROM drive; use sata or scsi"
        if not re.fullmatch(r"[A-Za-z0-9_.-]{0,36}", str(disk.get("serial") or "")):
            yield f"{at}.serial: at most 36 letters, digits, dots, underscores and hyphens"
    for index, volume in enumerate(volumes.values()):
        kinds = [key for key in volume if key != "name"]
        if len(kinds) != 1 or kinds[0] not in KINDS:
            yield f"spec.volumes[{index}]: is {', '.join(kinds) or 'nothing'}; possible are {', '.join(KINDS)}"
        elif "," in str(_dig(volume, "hostDisk").get("path")) or ":" in str(_dig(volume, "hostDisk").get("path")):
            yield f"spec.volumes[{index}].hostDisk.path: may hold neither comma nor colon"


def _network_problems(vmi: JsonObject) -> Iterator[str]:
    interfaces = _dig(vmi, "spec", "domain", "devices").get("interfaces") or []
    for index, network in enumerate(_dig(vmi, "spec").get("networks") or []):
        if "pod" not in network:
            yield f"spec.networks[{index}]: only the pod's network (pod: {{}}) is there"
    if len(interfaces) > 1:
        yield "spec.domain.devices.interfaces: a guest has one interface, on the pod's network"
    for index, interface in enumerate(interfaces):
        at = f"spec.domain.devices.interfaces[{index}]"
        if "masquerade" not in interface:
            yield f"{at}: only the binding masquerade is possible (no bridge: the node's own view of the pod's address)"
        if str(interface.get("model") or "virtio") not in {"virtio", "e1000", "e1000e", "rtl8139"}:
            yield f"{at}.model: is virtio, e1000, e1000e or rtl8139"
        if not re.fullmatch(r"([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}|", str(interface.get("macAddress") or "")):
            yield f"{at}.macAddress: is not six pairs of hexadecimal digits with colons"


def _uml_problems(vmi: JsonObject) -> Iterator[str]:
    domain = _dig(vmi, "spec", "domain")
    boot, devices = _dig(domain, "firmware", "kernelBoot"), _dig(domain, "devices")
    if boot.get("container"):
        yield "spec.domain.firmware.kernelBoot.container: machine uml brings its own kernel; kernelArgs are possible"
    for argument in str(boot.get("kernelArgs") or "").split():
        if _OF_THE_HOST.match(argument):
            yield f"spec.domain.firmware.kernelBoot.kernelArgs: {argument} is not the guest's with machine uml"
    cpu = _dig(domain, "cpu")
    if any(int(cpu.get(part) or 1) > 1 for part in ("sockets", "cores", "threads")):
        yield "spec.domain.cpu: machine uml has one CPU"
    if devices.get("autoattachGraphicsDevice"):
        yield "spec.domain.devices.autoattachGraphicsDevice: machine uml has no display"
    for index, interface in enumerate(devices.get("interfaces") or []):
        if str(interface.get("model") or "virtio") != "virtio":
            yield f"spec.domain.devices.interfaces[{index}].model: machine uml has no {interface['model']}"


def _disks(vmi: JsonObject) -> Iterator[Disk]:
    volumes = {each["name"]: each for each in _dig(vmi, "spec").get("volumes") or []}
    for disk in _dig(vmi, "spec", "domain", "devices").get("disks") or []:
        volume = volumes[disk["name"]]
        (kind,) = (key for key in volume if key != "name")
        target = disk.get("cdrom") or disk.get("disk") or {}
        source = volume[kind] or {}
        yield Disk(
            name=disk["name"],
            kind=kind,
            source=source,
            cdrom="cdrom" in disk,
            bus=str(target.get("bus") or _usual_bus("cdrom" in disk, machine_of(vmi))),
            serial=str(disk.get("serial") or ""),
            boot_order=int(disk.get("bootOrder") or 0),
            readonly=bool(target.get("readonly") or target.get("readOnly") or source.get("readOnly")),
            cache=str(disk.get("cache") or ""),
        )


def _usual_bus(cdrom: bool, machine: str) -> str:  # noqa: FBT001 - private, of two words
    return "sata" if cdrom and machine == Q35 else "virtio"


def _interface(vmi: JsonObject) -> Interface | None:
    found = _dig(vmi, "spec", "domain", "devices").get("interfaces") or []
    if not found:
        return None
    ports = tuple(
        (str(port.get("protocol") or "TCP").lower(), int(port["port"])) for port in found[0].get("ports") or ()
    )
    mac = str(found[0].get("macAddress") or "").lower() or _mac(vmi)
    return Interface(str(found[0]["name"]), str(found[0].get("model") or "virtio"), mac, ports)


def _mac(vmi: JsonObject) -> str:
    """Return an address of KubeVirt's range 02:…, the same at each start."""
    meta = vmi["metadata"]
    digest = hashlib.sha256(f"{meta.get('namespace')}/{meta['name']}".encode()).digest()
    return "02:" + ":".join(f"{byte:02x}" for byte in digest[:5])


def bootable_first(disks: tuple[Disk, ...]) -> list[Disk]:
    """Return the disks as the guest numbers them: by bootOrder, then as declared."""
    return sorted(disks, key=lambda disk: disk.boot_order or 1_000_000)


def _dig(found: JsonObject, *path: str) -> JsonObject:
    for part in path:
        value = found.get(part)
        found = value if isinstance(value, Mapping) else {}
    return found
