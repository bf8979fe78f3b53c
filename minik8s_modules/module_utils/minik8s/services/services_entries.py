"""Entries of the section ``services``: what they may hold. One is one port of one Service, ``dataplane`` says how."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from ..core.faults import KeyFault
from ..core.schema import check_address, check_fields, require_object, schema_of
from ..entries.services import DataplaneEntry, DataplaneIpv6, ServiceEntry
from .families import IPV4, IPV6, Family, family_of

DATAPLANE = "dataplane"
CONFIG = schema_of(DataplaneEntry)
ENTRY = schema_of(ServiceEntry)
IPV6_CONFIG = schema_of(DataplaneIpv6)
LAST_PORT, DAY_S = 65535, 86400
MODES = ("nftables", "ipvs")
RANGES = ("service_cidr", "cluster_cidr", "pod_cidr")


def check_entry(key: str, entry: Mapping[str, Any]) -> None:
    """Raise KeyFault (InvalidEntry) for an entry that cannot be used."""
    require_object(key, entry)
    if key == DATAPLANE:
        _check_config(entry)
        return
    check_fields(key, entry, ENTRY)
    family = family_of(str(entry["address"]))
    _check_ip(f"{key}.address", entry["address"], family)
    _check_port(f"{key}.port", entry["port"])
    if entry.get("node_port"):
        _check_port(f"{key}.node_port", entry["node_port"])
    if not 0 <= entry.get("affinity_s", 0) <= DAY_S:
        raise KeyFault("InvalidEntry", f"{key}.affinity_s is {entry['affinity_s']}; 0 (none) to {DAY_S} are possible")
    for name in ("endpoints", "node_endpoints"):
        _check_endpoints(f"{key}.{name}", entry.get(name) or [], family)
    _check_outside(key, entry, family)


def check_ranges(key: str, entry: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Raise KeyFault (InvalidEntry) for an entry of a family that the dataplane has no ranges of."""
    if family_of(entry["address"]) is IPV4 and not config["service_cidr"]:
        raise KeyFault("InvalidEntry", f"{key}.address is of IPv4, of which {DATAPLANE} has no ranges")
    if family_of(entry["address"]) is IPV6 and not config.get("ipv6"):
        raise KeyFault("InvalidEntry", f"{key}.address is of IPv6, of which {DATAPLANE} has no ranges")


def _check_outside(key: str, entry: Mapping[str, Any], family: Family) -> None:
    outside = entry.get("outside") or []
    for each in outside:
        _check_ip(f"{key}.outside", each, family)
    for each in entry.get("announced") or {}:
        if each not in outside:
            raise KeyFault("InvalidEntry", f"{key}.announced has {each!r:.80}, which is not among its outside")
    for each in entry.get("sources") or []:
        try:
            (ipaddress.IPv6Network if family is IPV6 else ipaddress.IPv4Network)(each)
        except ValueError as error:
            raise KeyFault("InvalidEntry", f"{key}.sources: {error}") from None


def _check_config(entry: Mapping[str, Any]) -> None:
    check_fields(DATAPLANE, entry, CONFIG)
    if entry["mode"] not in MODES:
        raise KeyFault("InvalidEntry", f"{DATAPLANE}.mode is {entry['mode']!r}; known are {list(MODES)}")
    if any(entry[name] for name in (*RANGES, "gateway")) or "ipv6" not in entry:
        _check_ipv4(entry)
    if "ipv6" in entry:
        _check_ipv6(f"{DATAPLANE}.ipv6", entry)
    for name in ("table", "bridge", *(["overlay"] if "overlay" in entry else [])):
        if not entry[name].replace("-", "").replace("_", "").isalnum() or not entry[name].isascii():
            raise KeyFault("InvalidEntry", f"{DATAPLANE}.{name} {entry[name]!r} may have letters, digits, - and _ only")


def _check_ipv4(entry: Mapping[str, Any]) -> None:
    for name in RANGES:
        try:
            ipaddress.IPv4Network(entry[name])
        except ValueError as error:
            raise KeyFault("InvalidEntry", f"{DATAPLANE}.{name}: {error}") from None
    check_address(f"{DATAPLANE}.gateway", entry["gateway"])


def _check_ipv6(where: str, entry: Mapping[str, Any]) -> None:
    given = entry["ipv6"]
    require_object(where, given)
    check_fields(where, given, IPV6_CONFIG)
    for name in RANGES:
        try:
            ipaddress.IPv6Network(given[name])
        except ValueError as error:
            raise KeyFault("InvalidEntry", f"{where}.{name}: {error}") from None
    for name in ("gateway", *(["node_ip"] if "node_ip" in given else [])):
        _check_ip(f"{where}.{name}", given[name], IPV6)


def _check_ip(where: str, value: Any, family: Family) -> None:
    if family is IPV4:
        check_address(where, value)
        return
    try:
        ipaddress.IPv6Address(value)
    except ValueError as error:
        raise KeyFault("InvalidEntry", f"{where}: {error}") from None
    if "%" in value:
        raise KeyFault("InvalidEntry", f"{where} {value!r:.80} names a device")


def _check_port(where: str, value: Any) -> None:
    if type(value) is not int or not 0 < value <= LAST_PORT:
        raise KeyFault("InvalidEntry", f"{where} {value!r} is not a port (1 to {LAST_PORT})")


def _check_endpoints(where: str, endpoints: Any, family: Family) -> None:
    for each in endpoints:
        if not isinstance(each, (list, tuple)) or len(each) != 2:  # noqa: PLR2004 - address, port
            raise KeyFault("InvalidEntry", f"{where} must hold [address, port] pairs; found {each!r:.80}")
        _check_ip(where, each[0], family)
        _check_port(where, each[1])
