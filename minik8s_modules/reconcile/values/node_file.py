"""The node's file, ``-c node.yml``: a Node, as the original MiniK8s' ``kubelet -c`` takes it. Pure.

The original reads the labels alone. Here a file may also hold annotations, taints, ``unschedulable``, addresses
(``status.address``, the original's field, or ``status.addresses``), ``spec.devices`` (as ``minik8s_devices`` of an
inventory) and ``spec.staticPodPath``, a folder with manifests of static pods (the name is kubelet's,
``KubeletConfiguration``); the name on the command line is the node's. Anything
else is refused, since it would do nothing. What it declares goes to the registrar through the key ``nodes`` of
reconciler.yml (``declared_of``), the folder to housekeeping (``daemon_configs.py``).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.inventory import Hosts
from minik8s_modules.module_utils.minik8s.pods.devices import Device, parse

_FIELDS: Mapping[str, frozenset[str]] = {
    "": frozenset({"apiVersion", "kind", "metadata", "spec", "status"}),
    "metadata": frozenset({"name", "namespace", "labels", "annotations"}),
    "spec": frozenset({"taints", "unschedulable", "staticPodPath", "devices"}),
    "status": frozenset({"address", "addresses"}),
}
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class Declared(NamedTuple):
    """What somebody says of a node that its machine does not tell."""

    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    taints: tuple[JsonObject, ...] = ()
    unschedulable: bool = False
    addresses: tuple[JsonObject, ...] = ()
    devices: tuple[Device, ...] = ()
    """What containers may ask for (``minik8s_devices``)."""

    def as_json(self) -> JsonObject:
        """Return it as it stands in reconciler.yml."""
        found = {
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "taints": list(self.taints),
            "unschedulable": self.unschedulable,
            "addresses": list(self.addresses),
            "devices": [one.as_json() for one in self.devices],
        }
        return {key: value for key, value in found.items() if value}

    def internal_ip(self, *, ipv6: bool = False) -> str:
        """Return the address of a family other machines reach the node at, "" when none is declared."""
        told = (str(one["address"]) for one in self.addresses if one["type"] == "InternalIP")
        return next((address for address in told if (":" in address) == ipv6), "")


class NodeFile(NamedTuple):
    """A parsed file; ``name`` is "" where it gives none, ``manifests`` where it names no folder of static pods."""

    name: str
    declared: Declared
    manifests: str = ""


def parse_node_file(text: str, where: str) -> NodeFile:
    """Return what a node's file says.

    Raises:
        ConfigurationError: it is no Node, or holds what cannot be used; the message names the field.
    """
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{where} is not valid YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigurationError(f"{where} must hold a Node: apiVersion, kind, metadata")
    for found, wanted in (("apiVersion", "v1"), ("kind", "Node")):
        if data.get(found) != wanted:
            raise ConfigurationError(f"{where}: {found} must be {wanted}, not {data.get(found)!r}")
    parts = {part: _part(data, part, where) for part in _FIELDS}
    declared = Declared(
        labels=_texts(parts["metadata"], "labels", where),
        annotations=_texts(parts["metadata"], "annotations", where),
        taints=tuple(_taints(parts["spec"].get("taints") or [], where)),
        unschedulable=_flag(parts["spec"].get("unschedulable", False), where),
        addresses=tuple(_addresses(parts["status"], where)),
        devices=devices_of(parts["spec"].get("devices") or [], f"{where}: spec.devices"),
    )
    return NodeFile(str(parts["metadata"].get("name") or ""), declared, _folder(parts["spec"], where))


def _part(data: JsonObject, part: str, where: str) -> JsonObject:
    found = (data.get(part) or {}) if part else data
    if not isinstance(found, dict):
        raise ConfigurationError(f"{where}: {part} must be a mapping, not {type(found).__name__}")
    unknown = sorted(str(field) for field in found if field not in _FIELDS[part])
    if unknown:
        place, known = f"{part}.{unknown[0]}" if part else unknown[0], ", ".join(sorted(_FIELDS[part]))
        raise ConfigurationError(f"{where}: {place} would do nothing; a node's file holds {known} here")
    return found


def _texts(found: JsonObject, field: str, where: str) -> dict[str, str]:
    values = found.get(field) or {}
    if not isinstance(values, dict):
        raise ConfigurationError(f"{where}: metadata.{field} must be a mapping of texts")
    for key, value in values.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ConfigurationError(f"{where}: metadata.{field}.{key} must be a text, not {value!r}; quote it")
    return dict(values)


def _taints(found: Any, where: str) -> Iterator[JsonObject]:
    if not isinstance(found, list):
        raise ConfigurationError(f"{where}: spec.taints must be a list")
    for index, taint in enumerate(found):
        place = f"{where}: spec.taints[{index}]"
        if not isinstance(taint, dict) or not isinstance(taint.get("key"), str):
            raise ConfigurationError(f"{place} must have a key, an effect, and may have a value")
        if taint.get("effect") not in _EFFECTS:
            raise ConfigurationError(
                f"{place}.effect must be one of {', '.join(_EFFECTS)}, not {taint.get('effect')!r}"
            )
        if set(taint) - {"key", "effect", "value"}:
            raise ConfigurationError(f"{place} may hold key, value and effect")
        yield dict(taint)


def _flag(found: Any, where: str) -> bool:
    if not isinstance(found, bool):
        raise ConfigurationError(f"{where}: spec.unschedulable must be true or false, not {found!r}")
    return found


def _folder(spec: JsonObject, where: str) -> str:
    found = spec.get("staticPodPath", "")
    if not isinstance(found, str) or (found and not found.startswith("/")) or "\0" in found:
        raise ConfigurationError(f"{where}: spec.staticPodPath must be an absolute path, not {found!r}")
    return found


def _addresses(status: JsonObject, where: str) -> Iterator[JsonObject]:
    single, several = status.get("address"), status.get("addresses") or []
    if single and several:
        raise ConfigurationError(f"{where}: give status.address or status.addresses, not both")
    if not isinstance(several, list) or not all(isinstance(one, dict) for one in several):
        raise ConfigurationError(f"{where}: status.addresses must be a list of type and address")
    for one in [{"type": "InternalIP", "address": single}] if single else several:
        kind, address = one.get("type"), one.get("address")
        if kind not in {"InternalIP", "ExternalIP"} or set(one) != {"type", "address"}:
            raise ConfigurationError(f"{where}: an address has the type InternalIP or ExternalIP, not {kind!r}")
        try:
            yield {"type": kind, "address": _parsed(address, both=kind == "InternalIP")}
        except ValueError as error:
            raise ConfigurationError(
                f"{where}: status.address must be an IP address; in status.addresses, those of type InternalIP may be"
                f" of either family, an ExternalIP is of IPv4: {error}"
            ) from error


def _parsed(address: Any, *, both: bool) -> str:
    return str(ipaddress.ip_address(str(address)) if both else ipaddress.IPv4Address(address))


def declared_of(found: Any, where: str) -> dict[str, Declared]:
    """Return what the key ``nodes`` of reconciler.yml declares, by node.

    Raises:
        ConfigurationError: it holds what cannot be used.
    """
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise ConfigurationError(f"{where}: nodes must be a mapping of nodes")
    return {str(name): _declared(dict(one), f"{where}: nodes.{name}") for name, one in found.items()}


def _declared(one: JsonObject, where: str) -> Declared:
    unknown = sorted(set(one) - set(Declared._fields))
    if unknown:
        raise ConfigurationError(f"{where}.{unknown[0]} would do nothing; known are {', '.join(Declared._fields)}")
    return Declared(
        _texts(one, "labels", where),
        _texts(one, "annotations", where),
        tuple(_taints(one.get("taints") or [], where)),
        _flag(one.get("unschedulable", False), where),
        tuple(_addresses({"addresses": one.get("addresses") or []}, where)),
        devices_of(one.get("devices") or [], f"{where}.devices"),
    )


def devices_of(found: Any, where: str) -> tuple[Device, ...]:
    """Return the devices that a setting names.

    Raises:
        ConfigurationError: it cannot be used.
    """
    try:
        return parse(found, where)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def with_devices(declared: Mapping[str, Declared], hosts: Hosts) -> dict[str, Declared]:
    """Return what is declared of nodes with the devices of the inventory's hosts.

    Raises:
        ConfigurationError: those of a host cannot be used.
    """
    found = dict(declared)
    for name, variables in hosts.items():
        if given := variables.get("minik8s_devices"):
            devices = devices_of(given, f"minik8s_devices of {name}")
            found[name] = found.get(name, Declared())._replace(devices=devices)
    return found
