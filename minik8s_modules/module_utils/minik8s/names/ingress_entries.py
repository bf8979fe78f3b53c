"""Entries of the section ``ingress``: what they may hold. ``_server`` has the ports, every other key is one host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..core.faults import KeyFault
from ..core.paths import split_key
from ..core.schema import check_fields, require_object, schema_of
from ..entries.ingress import IngressEntry, IngressServerEntry

SERVER, ANY = "_server", "_"
"""``_`` is the host of requests that name no other one; a host name has no underscore."""
CONFIG = schema_of(IngressServerEntry)
ENTRY = schema_of(IngressEntry)
LAST_PORT, LONGEST = 65535, 253
_HOST = re.compile(r"(?:\*\.)?[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


def check_entry(key: str, entry: Mapping[str, Any]) -> None:
    """Raise KeyFault (InvalidEntry) for an entry that cannot be used."""
    require_object(key, entry)
    if key == SERVER:
        check_fields(key, entry, CONFIG)
        for name in CONFIG:
            if not 0 < entry[name] <= LAST_PORT:
                raise KeyFault("InvalidEntry", f"{key}.{name} {entry[name]!r} is not a port (1 to {LAST_PORT})")
        return
    if key != ANY and (len(key) > LONGEST or not _HOST.fullmatch(key)):
        raise KeyFault("InvalidEntry", f"{key!r:.80} is not a host name")
    check_fields(key, entry, ENTRY)
    if "\0" in entry["config"]:
        raise KeyFault("InvalidEntry", f"{key}.config holds a NUL")
    for secret, digest in entry["secrets"].items():
        split_key(secret)
        if not re.fullmatch(r"[0-9a-f]+", str(digest)):
            raise KeyFault("InvalidEntry", f"{key}.secrets: {digest!r:.80} is not an HMAC")


def file_of(key: str) -> str:
    """Return the name of a host's file below the server's directory."""
    return f"hosts/{key.replace('*', '_any')}.conf"


def text_of(key: str, entry: Mapping[str, Any]) -> str:
    """Return the content of a host's file; a secret's HMAC in it makes a new certificate a changed file."""
    secrets = "".join(f"# {name} {digest}\n" for name, digest in sorted(entry["secrets"].items()))
    return f"# Written by minik8s_ingress: {key}\n{secrets}{entry['config']}"
