"""Entries of the section ``ingress``: what they may hold, and the files that nginx gets of them.

``_server`` has the ports; ``_health/<namespace>/<name>`` answers health checks of a Service; every other key is a host.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..core.faults import KeyFault
from ..core.paths import split_key
from ..core.schema import check_fields, require_object, schema_of
from ..entries.ingress import IngressEntry, IngressHealthEntry, IngressServerEntry

SERVER, ANY = "_server", "_"
"""``_`` is the host of requests that name no other one; a host name has no underscore."""
HEALTH = "_health/"
CONFIG = schema_of(IngressServerEntry)
ENTRY = schema_of(IngressEntry)
HEALTH_ENTRY = schema_of(IngressHealthEntry)
LAST_PORT, LONGEST = 65535, 253
_SERVICE = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_LISTENS_IPV6 = re.compile(r"^ *listen \[::\]:[^\n]*\n", re.MULTILINE)
_HOST = re.compile(r"(?:\*\.)?[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


def check_entry(key: str, entry: Mapping[str, Any]) -> None:
    """Raise KeyFault (InvalidEntry) for an entry that cannot be used."""
    require_object(key, entry)
    if key == SERVER:
        check_fields(key, entry, CONFIG)
        for name in ("http_port", "https_port"):
            _check_port(f"{key}.{name}", entry[name])
        return
    if key.startswith(HEALTH):
        _check_health(key, entry)
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


def _check_port(where: str, port: int) -> None:
    if not 0 < port <= LAST_PORT:
        raise KeyFault("InvalidEntry", f"{where} {port!r} is not a port (1 to {LAST_PORT})")


def _check_health(key: str, entry: Mapping[str, Any]) -> None:
    check_fields(key, entry, HEALTH_ENTRY)
    if len(key) > LONGEST or not _SERVICE.fullmatch(key[len(HEALTH) :]):
        raise KeyFault("InvalidEntry", f"{key!r:.80} is not {HEALTH}<namespace>/<name> of a Service")
    _check_port(f"{key}.port", entry["port"])
    if entry["endpoints"] < 0:
        raise KeyFault("InvalidEntry", f"{key}.endpoints {entry['endpoints']!r} is not a number of endpoints")


def file_of(key: str) -> str:
    """Return the name of a key's file below the server's directory."""
    return f"hosts/{key.replace('*', '_any').replace('/', '.')}.conf"


def key_of(file: str) -> str:
    """Return the key of a file."""
    name = re.sub(r"^_any", "*", file[len("hosts/") :].rpartition(".conf")[0])
    return name.replace(".", "/") if name.startswith("_health.") else name


def listen_line(port: int, *, ipv6: bool) -> str:
    """Return the line by which nginx listens for health checks at a port, at addresses of one family."""
    return f"    listen [::]:{port} ipv6only=on;\n" if ipv6 else f"    listen {port};\n"


def health_text(key: str, entry: Mapping[str, Any], *, ipv6: bool = True) -> str:
    """Return the file that answers health checks as kube-proxy does (``pkg/proxy/healthcheck/service_health.go``)."""
    _, namespace, name = key.split("/")
    listens = listen_line(entry["port"], ipv6=False)
    if ipv6 and entry.get("ipv6"):
        listens += listen_line(entry["port"], ipv6=True)
    count = entry["endpoints"]
    service = {"namespace": namespace, "name": name}
    body = json.dumps({"service": service, "localEndpoints": count, "serviceProxyHealthy": True}, separators=(",", ":"))
    return (
        f"# Written by minik8s_ingress: {key}\n"
        f"server {{\n{listens}    server_name _;\n    default_type application/json;\n"
        "    add_header X-Content-Type-Options nosniff always;\n"
        f"    add_header X-Load-Balancing-Endpoint-Weight {count} always;\n"
        f"    return {200 if count else 503} '{body}';\n}}\n"
    )


def text_of(key: str, entry: Mapping[str, Any], *, ipv6: bool = True) -> str:
    """Return the content of a key's file; a secret's HMAC in it makes a new certificate a changed file.

    Args:
        key: the key.
        entry: its entry.
        ipv6: whether nginx can listen at IPv6 addresses: it refuses a file that does where the kernel has none.
    """
    if key.startswith(HEALTH):
        return health_text(key, entry, ipv6=ipv6)
    secrets = "".join(f"# {name} {digest}\n" for name, digest in sorted(entry["secrets"].items()))
    # what users wrote begins no line: it stands within strings (reconcile/network/ingress.py)
    config = entry["config"] if ipv6 else _LISTENS_IPV6.sub("", entry["config"])
    return f"# Written by minik8s_ingress: {key}\n{secrets}{config}"
