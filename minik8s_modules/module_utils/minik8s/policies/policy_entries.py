"""Entries of the section ``policies``: what they may hold, and the forms of their keys."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from ..core.faults import KeyFault
from ..core.schema import check_address, check_fields, require_object, schema_of
from ..entries.policies import FilterEntry, PolicyEntry, PolicyPodEntry

FILTER = "filter"
POLICY, POD = "policy/", "pod/"
"""What the other keys begin with; ``<namespace>/<name>`` follows."""
PROTOCOLS = ("TCP", "UDP", "SCTP")
DIRECTIONS = ("ingress", "egress")
LAST_PORT = 65535
_CONFIG, _POLICY, _POD = schema_of(FilterEntry), schema_of(PolicyEntry), schema_of(PolicyPodEntry)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,60}")
_GROUP = re.compile(r"group/[0-9a-f]{8,40}")
_PORT_NAME = re.compile(r"[a-z0-9-]{1,63}")
_OBJECT = re.compile(r"[a-z0-9.-]{1,63}/[a-z0-9.-]{1,253}")
_TWO, _THREE = 2, 3


def is_key(key: str, kind: str) -> bool:
    """Return whether a key is of that kind and of an object."""
    return key.startswith(kind) and bool(_OBJECT.fullmatch(key[len(kind) :]))


def check_entry(key: str, entry: Mapping[str, Any]) -> None:
    """Raise KeyFault (InvalidEntry) for an entry that cannot be used.

    What becomes words of nft's language is compared with a pattern, character by character.
    """
    require_object(key, entry)
    if key == FILTER:
        _check_filter(entry)
    elif is_key(key, POLICY):
        _check_policy(key, entry)
    elif is_key(key, POD):
        _check_pod(key, entry)
    else:
        raise KeyFault(
            "InvalidEntry", f"{key!r:.80} is not a key of the section policies: write {POLICY} or {POD}NS/NAME"
        )


def _check_filter(entry: Mapping[str, Any]) -> None:
    check_fields(FILTER, entry, _CONFIG)
    for name in ("table", "bridge"):
        if not _NAME.fullmatch(entry[name]):
            raise KeyFault(
                "InvalidEntry", f"{FILTER}.{name} {entry[name]!r:.80} may have letters, digits, - and _ only"
            )


def _check_policy(key: str, entry: Mapping[str, Any]) -> None:
    check_fields(key, entry, _POLICY)
    for direction in DIRECTIONS:
        for at, rule in enumerate(entry[direction] or []):
            where = f"{key}.{direction}[{at}]"
            if not isinstance(rule, Mapping) or set(rule) != {"peers", "ports"}:
                raise KeyFault("InvalidEntry", f"{where} must be an object with peers and ports")
            _check_peers(where, rule["peers"])
            for row in rule["ports"] or []:
                _check_port(where, row)


def _check_peers(where: str, peers: Any) -> None:
    if peers is None:
        return
    if not isinstance(peers, Mapping) or set(peers) != {"groups", "blocks"}:
        raise KeyFault("InvalidEntry", f"{where}.peers must be null or an object with groups and blocks")
    _check_groups(f"{where}.peers", peers["groups"])
    for block in peers["blocks"]:
        if not isinstance(block, (list, tuple)) or len(block) != _TWO:
            raise KeyFault("InvalidEntry", f"{where}.peers.blocks must hold rows of range and exceptions")
        for cidr in (block[0], *block[1]):
            try:
                type(ipaddress.ip_network(block[0]))(cidr)
            except (ValueError, TypeError) as error:
                raise KeyFault("InvalidEntry", f"{where}.peers.blocks: {error}") from None


def _check_groups(where: str, groups: Any) -> None:
    for name in groups:
        if not isinstance(name, str) or not _GROUP.fullmatch(name):
            raise KeyFault("InvalidEntry", f"{where}: {name!r:.80} is not the name of a group")


def _check_port(where: str, row: Any) -> None:
    good = isinstance(row, (list, tuple)) and len(row) in {_TWO, _THREE} and row[0] in PROTOCOLS
    if good and len(row) == _TWO:
        good = isinstance(row[1], str) and bool(_PORT_NAME.fullmatch(row[1]))
    elif good:
        good = list(row[1:]) == [0, 0] or (_is_port(row[1]) and _is_port(row[2]) and row[1] <= row[2])
    if not good:
        raise KeyFault("InvalidEntry", f"{where}.ports: {row!r:.80} is not a row of protocol and ports, or of a name")


def _is_port(value: Any) -> bool:
    return type(value) is int and 0 < value <= LAST_PORT


def _check_pod(key: str, entry: Mapping[str, Any]) -> None:
    check_fields(key, entry, _POD)
    if entry["address"] or not entry.get("address_ipv6"):
        check_address(f"{key}.address", entry["address"])
    if entry.get("address_ipv6"):
        try:
            ipaddress.IPv6Address(entry["address_ipv6"])
        except ValueError as error:
            raise KeyFault("InvalidEntry", f"{key}.address_ipv6: {error}") from None
    _check_groups(f"{key}.groups", entry["groups"])
    for row in entry["ports"]:
        if not isinstance(row, (list, tuple)) or len(row) != _THREE or not _is_port(row[2]):
            raise KeyFault("InvalidEntry", f"{key}.ports: {row!r:.80} is not a row of protocol, name and number")
        _check_port(key, row[:2])
    for direction in DIRECTIONS:
        for policy in entry[direction] or []:
            if not isinstance(policy, str) or not is_key(policy, POLICY):
                raise KeyFault("InvalidEntry", f"{key}.{direction}: {policy!r:.80} is not the key of a policy")
