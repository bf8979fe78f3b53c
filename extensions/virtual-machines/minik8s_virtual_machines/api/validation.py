"""What the validating webhook refuses: fields that are not implemented, by name, and what cannot work. Pure.

Kubernetes' own types below a spec (affinity, probes) are checked by the API server, in the launcher's Pod.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from minik8s_modules.api import cause, objects, quantities, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import as_label_selector, from_label_selector
from minik8s_virtual_machines.api.definitions import unknown
from minik8s_virtual_machines.api.kinds import KINDS, MIGRATION, VM, VMI

NOT_IMPLEMENTED = "is not implemented by this extension, and would be ignored"
MIGRATION_REFUSED = "live migration is not implemented: stop the VirtualMachine and start it, or drain its node"
SOURCES = (
    "containerDisk", "emptyDisk", "persistentVolumeClaim", "hostDisk", "cloudInitNoCloud", "configMap", "secret",
)  # fmt: skip
_MACHINE = re.compile(r"^(uml|q35|pc-q35-[0-9]+\.[0-9]+)$")
_MAC = re.compile(r"^([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}$")
_USER_DATA = ("userData", "userDataBase64", "secretRef")
_NETWORK_DATA = ("networkData", "networkDataBase64", "networkDataSecretRef")
_KILOBYTE = 2048
# names of objects of the machine's own namespace: none can lead to another's
_OBJECT_NAMES = (("claimName",), ("secretName",), ("secretRef", "name"), ("networkDataSecretRef", "name"))
_SMALLEST_GUEST = 16 << 20


class Policy(NamedTuple):
    """What the cluster's administrator allows beyond what every user may.

    Attributes:
        host_disks: folders of nodes below which ``hostDisk`` may lie; none by default, as it reads and writes files
            of the node.
    """

    host_disks: tuple[str, ...] = ()


NOTHING_MORE = Policy()


def problems(obj: JsonObject, old: JsonObject | None = None, policy: Policy = NOTHING_MORE) -> list[Cause]:
    """Return why an object of one of our kinds may not be stored."""
    kind = next((each for each in KINDS if each.kind == obj.get("kind")), None)
    if kind is None:
        return []
    spec = objects.spec(obj)
    found = [cause.forbidden(path, NOT_IMPLEMENTED) for path in unknown(kind, spec)]
    if kind == MIGRATION:
        return found or [cause.forbidden("spec.vmiName", MIGRATION_REFUSED)]
    if kind == VMI:
        return [*found, *_instance(spec, "spec", policy), *_unchanged(obj, old)]
    template = spec.get("template") or {}
    found += _instance(template.get("spec") or {}, "spec.template.spec", policy)
    return [*found, *(_machine(spec) if kind == VM else _replica_set(spec, template))]


def _machine(spec: JsonObject) -> Iterator[Cause]:
    if "running" in spec and "runStrategy" in spec:
        yield cause.forbidden("spec.running", "may not be used together with spec.runStrategy: leave one out")


def _replica_set(spec: JsonObject, template: JsonObject) -> Iterator[Cause]:
    selector = from_label_selector(as_label_selector(spec.get("selector")))
    labels = objects.labels(template)
    if selector.empty:
        yield cause.required("spec.selector", "an empty one would select every instance")
    elif not selector.matches(labels):
        yield cause.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def _unchanged(obj: JsonObject, old: JsonObject | None) -> Iterator[Cause]:
    """Yield that an instance's spec was changed: it is what runs; only its grace may become another."""
    if old is None or objects.is_deleting(obj):
        return
    before, after = ({**objects.spec(each), "terminationGracePeriodSeconds": 0} for each in (old, obj))
    if before != after:
        text = "an instance cannot be changed while it runs: change its VirtualMachine, and restart that"
        yield cause.forbidden("spec", text)


def _instance(spec: JsonObject, at: str, policy: Policy) -> Iterator[Cause]:
    domain = spec.get("domain") or {}
    yield from _domain(domain, f"{at}.domain")
    yield from _volumes(spec, at, policy)
    yield from _networks(spec, at)
    yield from _uml(spec, at)
    if spec.get("hostname"):
        for text in syntax.dns1123_label(spec["hostname"]):
            yield cause.invalid(f"{at}.hostname", spec["hostname"], text)
    for name in ("readinessProbe", "livenessProbe"):
        handlers = [each for each in ("tcpSocket", "httpGet", "guestAgentPing") if each in (spec.get(name) or {})]
        if name in spec and len(handlers) != 1:
            yield cause.invalid(f"{at}.{name}", handlers, "must have one of tcpSocket, httpGet and guestAgentPing")


def _domain(domain: JsonObject, at: str) -> Iterator[Cause]:
    kind = objects.dig(domain, "machine", "type")
    if kind and not _MACHINE.match(str(kind)):
        yield cause.not_supported(f"{at}.machine.type", kind, ["q35", "uml"])
    guest = objects.dig(domain, "memory", "guest")
    yield from _quantity(guest, f"{at}.memory.guest", least=_SMALLEST_GUEST)
    limit = objects.dig(domain, "resources", "limits", "memory")
    if _bytes(limit) is not None and (_bytes(guest) or 0) > (_bytes(limit) or 0):
        yield cause.invalid(f"{at}.memory.guest", guest, f"must not be larger than resources.limits.memory ({limit})")
    yield from _firmware(domain.get("firmware") or {}, f"{at}.firmware", own_kernel=kind == "uml")


def _firmware(firmware: JsonObject, at: str, *, own_kernel: bool) -> Iterator[Cause]:
    text = firmware.get("uuid")
    if text:
        try:
            uuid.UUID(str(text))
        except ValueError:
            yield cause.invalid(f"{at}.uuid", text, "must be a UUID")
    boot = firmware.get("kernelBoot") or {}
    container = boot.get("container")
    if boot.get("kernelArgs") and not container and not own_kernel:
        yield cause.invalid(f"{at}.kernelBoot.kernelArgs", boot["kernelArgs"], "needs kernelBoot.container")
    if container is not None and not container.get("kernelPath"):
        yield cause.required(f"{at}.kernelBoot.container.kernelPath", "the kernel's path in the image")


def _volumes(spec: JsonObject, at: str, policy: Policy) -> Iterator[Cause]:
    volumes = spec.get("volumes") or []
    disks = objects.dig(spec, "domain", "devices", "disks") or []
    known = {each.get("name") for each in volumes}
    yield from _names(volumes, f"{at}.volumes")
    yield from _names(disks, f"{at}.domain.devices.disks")
    for index, volume in enumerate(volumes):
        yield from _volume(volume, f"{at}.volumes[{index}]", policy)
    orders: set[int] = set()
    for index, disk in enumerate(disks):
        here = f"{at}.domain.devices.disks[{index}]"
        if disk.get("name") not in known:
            yield cause.invalid(f"{here}.name", disk.get("name"), "there is no volume of this name")
        if "disk" in disk and "cdrom" in disk:
            yield cause.invalid(here, disk.get("name"), "must have one of disk and cdrom")
        order = disk.get("bootOrder")
        if order in orders:
            yield cause.duplicate(f"{here}.bootOrder", order)
        orders |= {order} if order else set()


def _volume(volume: JsonObject, at: str, policy: Policy) -> Iterator[Cause]:
    sources = [each for each in SOURCES if each in volume]
    if len(sources) != 1:
        yield cause.invalid(at, volume.get("name"), f"must have one source of {', '.join(SOURCES)}")
        return
    source = volume[sources[0]]
    for field in _OBJECT_NAMES:
        name = objects.dig(source, *field)
        for text in syntax.dns1123_subdomain(name) if name else []:
            yield cause.invalid(f"{at}.{sources[0]}.{'.'.join(field)}", name, text)
    match sources[0]:
        case "emptyDisk":
            yield from _quantity(source.get("capacity"), f"{at}.emptyDisk.capacity", least=1)
        case "cloudInitNoCloud":
            yield from _cloud_init(source, f"{at}.cloudInitNoCloud")
        case "hostDisk":
            yield from _host_disk(source, f"{at}.hostDisk", policy)


def _host_disk(source: JsonObject, at: str, policy: Policy) -> Iterator[Cause]:
    path = str(source.get("path", ""))
    parts = path.split("/")
    inside = any(path.startswith(f"{folder.rstrip('/')}/") for folder in policy.host_disks)
    if not path.startswith("/") or any(part in {".", ".."} for part in parts) or "\0" in path:
        yield cause.invalid(f"{at}.path", path, "must be an absolute path without . and ..")
    elif not inside:
        allowed = ", ".join(policy.host_disks) or "no folder"
        text = f"files of nodes are not for every user; the extension's host_disks allows {allowed}"
        yield cause.forbidden(f"{at}.path", text)
    if source.get("type") == "DiskOrCreate":
        yield from _quantity(source.get("capacity"), f"{at}.capacity", least=1)
        if source.get("capacity") is None:
            yield cause.required(f"{at}.capacity", "how large the file is made")


def _cloud_init(source: JsonObject, at: str) -> Iterator[Cause]:
    for names, needed in ((_USER_DATA, True), (_NETWORK_DATA, False)):
        given = [name for name in names if name in source]
        if len(given) > 1 or (needed and not given and not any(name in source for name in _NETWORK_DATA)):
            yield cause.invalid(at, given, f"must have one of {', '.join(names)}")
    for name in ("userData", "networkData"):
        if len(str(source.get(name) or "").encode()) > _KILOBYTE:
            yield cause.too_long(f"{at}.{name}", _KILOBYTE)


def _networks(spec: JsonObject, at: str) -> Iterator[Cause]:
    networks = spec.get("networks") or []
    interfaces = objects.dig(spec, "domain", "devices", "interfaces") or []
    yield from _names(networks, f"{at}.networks")
    yield from _names(interfaces, f"{at}.domain.devices.interfaces")
    if len(networks) > 1:
        yield cause.too_many(f"{at}.networks", len(networks), 1)
    for index, network in enumerate(networks):
        if "pod" not in network:
            yield cause.required(f"{at}.networks[{index}].pod", "the pod network is the only one there is")
    for index, interface in enumerate(interfaces):
        yield from _interface(interface, {each.get("name") for each in networks}, index, at)
    for network in networks:
        if network.get("name") not in {each.get("name") for each in interfaces}:
            yield cause.invalid(f"{at}.networks", network.get("name"), "no interface is connected to this network")


def _interface(interface: JsonObject, networks: set[Any], index: int, at: str) -> Iterator[Cause]:
    here = f"{at}.domain.devices.interfaces[{index}]"
    if interface.get("name") not in networks:
        yield cause.invalid(f"{here}.name", interface.get("name"), "there is no network of this name")
    if ("masquerade" in interface) == ("bridge" in interface):
        yield cause.invalid(here, interface.get("name"), "must have one of masquerade and bridge")
    if interface.get("macAddress") and not _MAC.match(interface["macAddress"]):
        yield cause.invalid(
            f"{here}.macAddress", interface["macAddress"], "must be six bytes such as 02:00:00:00:00:01"
        )
    if interface.get("model", "virtio") not in {"virtio", "e1000", "e1000e", "rtl8139"}:
        yield cause.not_supported(f"{here}.model", interface["model"], ["virtio", "e1000", "e1000e", "rtl8139"])


def _uml(spec: JsonObject, at: str) -> Iterator[Cause]:
    """Yield what a User-Mode Linux lacks; its devices are its own, whatever a PC's are called."""
    if objects.dig(spec, "domain", "machine", "type") != "uml":
        return
    devices = objects.dig(spec, "domain", "devices") or {}
    if devices.get("autoattachGraphicsDevice"):
        text = "a machine of type uml has no screen: use q35"
        yield cause.forbidden(f"{at}.domain.devices.autoattachGraphicsDevice", text)


def _names(items: Iterable[JsonObject], at: str) -> list[Cause]:
    seen: set[Any] = set()
    found = []
    for index, each in enumerate(items):
        name = each.get("name")
        if name in seen:
            found.append(cause.duplicate(f"{at}[{index}].name", name))
        elif name and (wrong := syntax.dns1123_label(name)):
            found += [cause.invalid(f"{at}[{index}].name", name, text) for text in wrong]
        seen.add(name)
    return found


def _bytes(value: Any) -> int | None:
    try:
        return None if value is None else quantities.to_bytes(value)
    except ValueError:
        return None


def _quantity(value: Any, at: str, *, least: int) -> Iterator[Cause]:
    if value is None:
        return
    size = _bytes(value)
    if size is None:
        yield cause.invalid(at, value, "must be a quantity such as 128Mi")
    elif size < least:
        yield cause.invalid(at, value, f"must be at least {quantities.format_bytes(least)}")
