"""A sandbox's network by somebody else's program: drivers ``cni`` (cni.py) and ``weave`` (weave.py).

The program gives the address; what it was asked and what it answered is kept in ``<state_dir>/attachments/<uid>.json``,
written before the first effect and removed after the last. So an attachment is taken away with the very configuration
it was made with, also after a crash, a boot, or a change of the configuration: whoever finds a record without its pause
container detaches it. A pause container belongs to the driver that its label names, for its life.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ..core import labels
from ..core.digests import canonical
from ..core.docker import Docker
from ..core.faults import KeyFault
from ..core.files import read_json, remove_file, write_atomically
from ..core.paths import attachment_path, attachments_dir
from ..core.schema import Schema, check_fields, check_texts, require_object, schema_of
from ..core.section import Context
from ..entries.sandboxes import CniPlugin, WeavePlugin
from . import cni
from .attachment import send_back
from .netlink import Address, Netlink
from .sandbox_network import network_of
from .weave import DEVICE, INTERFACE, Weave

Inspect = Mapping[str, Any]
ETH0 = "eth0"
CNI = schema_of(CniPlugin)
WEAVE = schema_of(WeavePlugin)


class Record(NamedTuple):
    """One attachment: the entry's ``plugin`` and pod, and of what the driver did its own notes.

    ``address`` (with prefix length) is "" until the program has answered.
    """

    plugin: dict[str, Any]
    pod: dict[str, str]
    container: str
    address: str = ""
    notes: Mapping[str, Any] = {}

    @property
    def maps_ports(self) -> bool:
        """Whether the plugin itself leads ports of the node to the pod."""
        return bool(self.notes.get("maps_ports"))


class PodDriver(Protocol):
    """How one kind of program attaches a pod."""

    interface: str
    fields: Schema

    def begin(self, plugin: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
        """Return the notes an attachment starts with; raise KeyFault when it cannot be made."""

    def attach(self, context: Context, record: Record, network: str, wanted: str) -> Record:
        """Attach a pause container with that network; return the record with its address; ``wanted`` is one it had."""

    def detach(self, context: Context, record: Record, network: str) -> None:
        """Take an attachment away; ``network`` "": the container runs no more. What is gone already is fine."""

    def verify(self, record: Record, network: str) -> None:
        """Ask the program whether the attachment is right; raise KeyFault when it is not."""


class CniDriver:
    """Plugins as the Container Network Interface calls them."""

    interface = ETH0
    fields = CNI

    def begin(self, plugin: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
        """Return network and ports: what a later DEL must say again."""
        network = cni.find_network(plugin["conf_dir"])
        cni.programs(network, plugin["bin_dirs"])
        ports = [
            {"hostPort": one["host_port"], "containerPort": one["port"], "protocol": one["protocol"].lower()}
            | ({"hostIP": one["ip"]} if one["ip"] else {})
            for one in entry["host_ports"]
        ]
        runtime = {"portMappings": ports} if ports and network.maps_ports else {}
        return {"network": cni.as_json(network), "runtime": runtime, "result": None, "maps_ports": network.maps_ports}

    def attach(self, context: Context, record: Record, network: str, wanted: str) -> Record:
        """ADD; with an address it had, where the plugin takes one (host-local does)."""
        declared = cni.from_json(record.notes["network"])
        call = _call(record, network)
        asked = call._replace(arguments={**call.arguments, "IP": wanted}) if wanted else call
        try:
            result = cni.add(declared, record.plugin["bin_dirs"], asked)
        except KeyFault:
            if not wanted:
                raise
            cni.delete(declared, record.plugin["bin_dirs"], call, None)
            result = cni.add(declared, record.plugin["bin_dirs"], call)
        checked = cni.checkable(declared, record.plugin["bin_dirs"], call, result)
        notes = {**record.notes, "result": result, "checked": checked}
        return record._replace(address=cni.address_of(declared, result), notes=notes)

    def detach(self, context: Context, record: Record, network: str) -> None:
        """DEL, without a namespace where the container has ended."""
        declared, call = cni.from_json(record.notes["network"]), _call(record, network)
        cni.delete(declared, record.plugin["bin_dirs"], call, cni.of_network(record.notes["result"], network))

    def verify(self, record: Record, network: str) -> None:
        """CHECK, of the plugins whose CHECK can be believed."""
        declared, call = cni.from_json(record.notes["network"]), _call(record, network)
        result = cni.of_network(record.notes["result"], network) or {}
        cni.check(declared, record.plugin["bin_dirs"], call, result, record.notes.get("checked") or ())


class WeaveDriver:
    """Weave Net's command; the pod leaves by the machine's own end."""

    interface = INTERFACE
    fields = WEAVE

    def begin(self, plugin: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
        """Return nothing: the container's id is all that Weave asks for."""
        return {}

    def attach(self, context: Context, record: Record, network: str, wanted: str) -> Record:
        """``weave attach``, and the default route by the machine's own end."""
        ip = _weave(context, record).attach(record.container)
        with Netlink() as outside, Netlink(network) as inside:
            device, pod_end = outside.link(DEVICE), inside.link(INTERFACE)
            indexes = device.ifindex if device else 0, pod_end.ifindex if pod_end else 0
            near = [each.ip for each in outside.addresses() if each.ifindex == indexes[0]]
            own = [each for each in inside.addresses() if each.ifindex == indexes[1] and each.ip == ip]
            if not near or not own:
                text = f"device {DEVICE} of this node has no address" if own else f"the pod has no {INTERFACE} with it"
                raise KeyFault("NetworkNotReady", f"weave attach gave {ip}, but {text}")
            inside.set_default_route(near[0], indexes[1])
            outer = outside.link_at(pod_end.peer) if pod_end and pod_end.peer else None
            if outer and device and outer.master == device.ifindex:  # with Open vSwitch it is not a port of a bridge
                context.checkpoint("hairpin")
                send_back(outer.name)
        return record._replace(address=f"{ip}/{own[0].prefix_length}")

    def detach(self, context: Context, record: Record, network: str) -> None:
        """``weave detach`` while Docker knows the container; else Weave frees its address by itself."""
        if context.docker.inspect(record.container) is not None:
            _weave(context, record).detach(record.container, record.address.partition("/")[0])

    def verify(self, record: Record, network: str) -> None:
        """Do nothing: what the kernel shows is all there is."""


def _weave(context: Context, record: Record) -> Weave:
    return Weave(record.plugin["command"], context.docker.path)


DRIVERS: dict[str, PodDriver] = {"cni": CniDriver(), "weave": WeaveDriver()}


def _call(record: Record, network: str) -> cni.Call:
    pod = record.pod
    arguments = {
        "IgnoreUnknown": "1",
        "K8S_POD_NAMESPACE": pod["namespace"],
        "K8S_POD_NAME": pod["name"],
        "K8S_POD_INFRA_CONTAINER_ID": record.container,
        "K8S_POD_UID": pod["uid"],
    }
    return cni.Call(record.container, network, ETH0, arguments, record.notes["runtime"])


def check(where: str, plugin: Any) -> None:
    """Raise KeyFault (InvalidEntry) for a plugin that cannot be used."""
    require_object(where, plugin)
    driver = DRIVERS.get(plugin.get("driver", ""))
    if driver is None:
        raise KeyFault("InvalidEntry", f"{where}.driver is {plugin.get('driver')!r}; known are {sorted(DRIVERS)}")
    check_fields(where, plugin, driver.fields)
    if "bin_dirs" in plugin:
        check_texts(f"{where}.bin_dirs", plugin["bin_dirs"])
        for folder in (plugin["conf_dir"], *plugin["bin_dirs"]):
            if not os.path.isabs(folder) or ":" in folder:
                raise KeyFault("InvalidEntry", f"{where}: {folder!r} is not an absolute path without a colon")


def driver_of(inspect: Inspect) -> str:
    """Return the driver a pause container was made for, "" for our own bridge."""
    return str(inspect["Config"]["Labels"].get(labels.NETWORK, ""))


def is_for(inspect: Inspect, entry: Mapping[str, Any]) -> bool:
    """Return whether the pause container was made for the driver of its entry, our own bridge or a plugin."""
    return driver_of(inspect) == str((entry.get("plugin") or {}).get("driver", ""))


def interface_of(inspect: Inspect) -> str:
    """Return the name of a pause container's device."""
    driver = DRIVERS.get(driver_of(inspect))
    return driver.interface if driver else ETH0


def load(state_dir: str, uid: str) -> Record | None:
    """Return the record of a pod's attachment, None when there is none (that can be read)."""
    found = read_json(attachment_path(state_dir, uid))
    try:
        return Record(**found) if found["plugin"]["driver"] in DRIVERS else None
    except (TypeError, KeyError):
        return None


def recorded(state_dir: str) -> list[str]:
    """Return the uids of the pods that have a record."""
    with contextlib.suppress(FileNotFoundError):
        names = os.listdir(attachments_dir(state_dir))
        return sorted(name[: -len(".json")] for name in names if name.endswith(".json") and name[0] != ".")
    return []


def _save(context: Context, uid: str, record: Record) -> None:
    context.checkpoint("record attachment")
    write_atomically(attachment_path(context.state_dir, uid), canonical(record._asdict()), sync=True)


def resolved(entry: Mapping[str, Any], record: Record | None) -> dict[str, Any]:
    """Return a sandbox entry with the address its plugin gave; host ports are left to a plugin that does them."""
    if entry.get("plugin") is None:
        return dict(entry)
    ip, _, length = (record.address if record else "").partition("/")
    ports = [] if record is None or not ip or record.maps_ports else entry["host_ports"]
    return {**entry, "ip": ip, "prefix_length": int(length or 0), "host_ports": ports}


def fault_of(docker: Docker, inspect: Inspect, record: Record | None, *, ask: bool) -> str:
    """Return why a running pause container is not attached as recorded, "" when it is; ``ask`` the program as well."""
    if record is None or record.container != inspect["Id"] or not record.address:
        return "not attached"
    driver = DRIVERS[record.plugin["driver"]]
    try:
        with network_of(docker, inspect) as network:
            if not _is_up(network, driver.interface, record.address):
                return f"{driver.interface} is not up with {record.address}"
            if ask:
                driver.verify(record, network)
    except KeyFault as fault:
        return "" if fault.reason == "SandboxGone" else str(fault)  # it ended meanwhile
    return ""


def _is_up(network: str, interface: str, address: str) -> bool:
    with Netlink(network) as inside:
        links = inside.links()
        link = links.get(interface)
        ip, _, length = address.partition("/")
        right = link and link.up and Address(link.ifindex, ip, int(length)) in inside.addresses()
        return bool(right and links["lo"].up)


def attach(context: Context, inspect: Inspect, key: str, entry: Mapping[str, Any]) -> Record:
    """Attach a running pause container again; return the record.

    Raises:
        KeyFault: SandboxGone when it ended meanwhile, NetworkNotReady when the program is missing or fails,
            InvalidEntry when the network is its node's.
    """
    with network_of(context.docker, inspect) as network:
        before = load(context.state_dir, key)
        driver = DRIVERS[entry["plugin"]["driver"]]
        notes = driver.begin(entry["plugin"], entry)
        record = Record(dict(entry["plugin"]), dict(entry["pod"]), inspect["Id"], notes=notes)
        if before:
            detach(context, key, before, inspect)
        with Netlink(network) as inside:
            loopback = inside.link("lo")
            if loopback is not None and not loopback.up:
                inside.set_link(loopback.ifindex, up=True)
        _save(context, key, record)
        same = before and before.notes.get("network") == record.notes.get("network")
        context.checkpoint("attach")
        try:
            record = driver.attach(
                context, record, network, before.address.partition("/")[0] if before and same else ""
            )
        except KeyFault:
            with contextlib.suppress(KeyFault):  # the record stays then, and with it what is left to do
                detach(context, key, record, inspect)
            raise
        _save(context, key, record)
        return record


def detach(context: Context, key: str, record: Record, inspect: Inspect | None) -> None:
    """Take an attachment away, then its record; ``inspect`` is the container it may be of.

    Raises:
        KeyFault: NetworkNotReady, the program is missing or fails; the record stays.
    """
    context.checkpoint("detach")
    with contextlib.ExitStack() as held:
        network = ""
        if inspect is not None and inspect["Id"] == record.container:
            with contextlib.suppress(KeyFault):  # it ended
                network = held.enter_context(network_of(context.docker, inspect))
        # a program that refused to attach may refuse to detach for the same reason
        with contextlib.suppress(KeyFault) if not record.address else contextlib.nullcontext():
            DRIVERS[record.plugin["driver"]].detach(context, record, network)
    context.checkpoint("forget attachment")
    remove_file(attachment_path(context.state_dir, key))
