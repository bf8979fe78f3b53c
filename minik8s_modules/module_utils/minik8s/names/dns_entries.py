"""Entries of the section ``dns``: what they may hold. ``server`` says how names are served, the others have records.

Names and addresses are checked here, before they become lines of files: nothing with a space, a newline, a quote or a
brace in it ever gets further.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from ..core.faults import KeyFault
from ..core.schema import check_address, check_fields, require_object, schema_of
from ..entries.dns import DnsEntry, DnsServerEntry

SERVER = "server"
CONFIG = schema_of(DnsServerEntry)
ENTRY = schema_of(DnsEntry)
TYPES = ("A", "AAAA", "CNAME", "SRV")
LAST_PORT, LONGEST = 65535, 253
_NAME = re.compile(
    r"(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*"
)
_KEY = re.compile(r"[A-Za-z0-9._/-]+")


def check_entry(key: str, entry: Mapping[str, Any]) -> None:
    """Raise KeyFault (InvalidEntry) for an entry that cannot be used."""
    require_object(key, entry)
    if not _KEY.fullmatch(key):
        raise KeyFault("InvalidEntry", f"key {key!r} may have letters, digits, '.', '-', '_' and '/' only")
    if key == SERVER:
        _check_config(entry)
        return
    check_fields(key, entry, ENTRY)
    for row in entry.get("records") or []:
        _check_record(f"{key}.records", row)
    for field in ("pointers", "names"):
        for row in entry.get(field) or []:
            _check_texts(f"{key}.{field}", row, 2)
            (_check_ipv6 if ":" in row[0] else check_address)(f"{key}.{field}", row[0])
            _check_name(f"{key}.{field}", row[1])


def _check_config(entry: Mapping[str, Any]) -> None:
    check_fields(SERVER, entry, CONFIG)
    (_check_ipv6 if ":" in entry["listen"] else check_address)(f"{SERVER}.listen", entry["listen"])
    if not 0 < entry["port"] <= LAST_PORT:
        raise KeyFault("InvalidEntry", f"{SERVER}.port {entry['port']!r} is not a port (1 to {LAST_PORT})")
    _check_name(f"{SERVER}.domain", entry["domain"])
    for server in entry["forward"]:
        (_check_ipv6 if ":" in str(server) else check_address)(f"{SERVER}.forward", server)


def _check_record(where: str, row: Any) -> None:
    if not isinstance(row, (list, tuple)) or len(row) < 3 or row[1] not in TYPES:  # noqa: PLR2004 - name, type, value
        raise KeyFault("InvalidEntry", f"{where} must hold [name, A|AAAA|CNAME|SRV, value…]; found {row!r:.80}")
    _check_name(where, row[0])
    if row[1] == "SRV":
        if len(row) != 4 or type(row[2]) is not int or not 0 < row[2] <= LAST_PORT:  # noqa: PLR2004 - port, target
            raise KeyFault("InvalidEntry", f"{where}: SRV must be [name, SRV, port, target]; found {row!r:.80}")
        _check_name(where, row[3])
        return
    _check_texts(where, row, 3)
    if row[1] == "A":
        check_address(where, row[2])
    elif row[1] == "AAAA":
        _check_ipv6(where, row[2])
    else:
        _check_name(where, row[2])


def _check_texts(where: str, row: Any, width: int) -> None:
    if not isinstance(row, (list, tuple)) or len(row) != width or not all(isinstance(one, str) for one in row):
        raise KeyFault("InvalidEntry", f"{where} must hold {width} texts an item; found {row!r:.80}")


def _check_ipv6(where: str, value: str) -> None:
    try:
        ipaddress.IPv6Address(value)
    except ValueError as error:
        raise KeyFault("InvalidEntry", f"{where}: {error}") from None
    if "%" in value:
        raise KeyFault("InvalidEntry", f"{where}: {value!r:.80} names a device")


def _check_name(where: str, value: Any) -> None:
    if not isinstance(value, str) or len(value) > LONGEST or not _NAME.fullmatch(value):
        raise KeyFault("InvalidEntry", f"{where}: {value!r:.80} is not a DNS name")


def reverse_name(address: str) -> str:
    """Return the name that stands for an address, below ``in-addr.arpa`` or ``ip6.arpa``."""
    return ipaddress.ip_address(address).reverse_pointer
