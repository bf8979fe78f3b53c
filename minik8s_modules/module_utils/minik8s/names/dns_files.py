"""The files a DNS server reads: zones (RFC 1035), hosts, a Corefile, made of checked entries. Pure.

A line ``; <key>`` (``# <key>`` in hosts) opens the lines of one key, so that what stands on the disk can be read back
key by key. A zone's serial is not part of what is compared; it only rises when a zone is written.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..pods.pod_files import Resolver
from .dns_entries import SERVER, reverse_name

ZONE, REVERSE, HOSTS, COREFILE, UPSTREAMS = "cluster.zone", "reverse.zone", "hosts/names", "Corefile", "upstreams"
REVERSE_IPV6 = "reverse-ipv6.zone"
TTL_S = 5
"""Kubernetes' CoreDNS lets its answers be kept for 5 s, too (30 s by its plugin, 5 by its clients' defaults)."""
RELOAD = "100ms"
"""How soon a written file is served; looking costs CoreDNS one stat, or one open and the first line, per file."""
_POD_ANSWER = f"{{{{ .Name }}}} {TTL_S} IN A " + ".".join(f"{{{{ .Group.{letter} }}}}" for letter in "abcd")
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_POD = r"(?:[^.]+\.)*?" + "-".join(f"(?P<{letter}>{_OCTET})" for letter in "abcd") + r"\."
Lines = dict[str, list[str]]


class Parts(NamedTuple):
    """The lines of each key in the files of names."""

    zone: Lines
    reverse: Lines
    hosts: Lines
    reverse_ipv6: Lines


def parts_of(entries: Mapping[str, Mapping[str, Any]], domain: str) -> Parts:
    """Return the lines of every entry but ``server``."""
    zone: Lines = {}
    reverse: Lines = {}
    reverse_ipv6: Lines = {}
    hosts: Lines = {}
    for key in sorted(entries):
        if key == SERVER:
            continue
        entry = entries[key]
        records = entry.get("records") or []
        zone[key] = [_record(row, domain) for row in records]
        pointers = entry.get("pointers") or []
        for lines, second in ((reverse, False), (reverse_ipv6, True)):
            lines[key] = [_pointer(row, domain) for row in pointers if (":" in row[0]) == second]
        addresses = [(row[2], f"{row[0]}.{domain}") for row in records if row[1] in {"A", "AAAA"}]
        hosts[key] = [f"{address} {name}" for address, name in (*addresses, *(entry.get("names") or []))]
    every = (zone, reverse, hosts, reverse_ipv6)
    return Parts(*({key: lines for key, lines in each.items() if lines} for each in every))


def _pointer(row: list[str], domain: str) -> str:
    return f"{reverse_name(row[0])}. {TTL_S} IN PTR {row[1]}.{domain}."


def _record(row: list[Any], domain: str) -> str:
    name, kind = f"{row[0]}.{domain}.", row[1]
    if kind == "SRV":
        return f"{name} {TTL_S} IN SRV 0 100 {row[2]} {row[3]}.{domain}."
    return f"{name} {TTL_S} IN {kind} {row[2]}{'.' if kind == 'CNAME' else ''}"


def zone_text(origin: str, serial: int, lines: Lines) -> str:
    """Return a zone file; a missing name may be remembered for a second, as a new service is to resolve within one."""
    head = [_authority(origin, serial), f"{origin}. {TTL_S} IN NS ns.dns.{origin}."]
    return _text(head, lines, ";")


def _authority(origin: str, serial: int) -> str:
    return f"{origin}. {TTL_S} IN SOA ns.dns.{origin}. hostmaster.{origin}. {serial} 7200 1800 86400 1"


def hosts_text(lines: Lines) -> str:
    """Return the file of hosts."""
    return _text(["# Written by minik8s_dns."], lines, "#")


def _text(head: Iterable[str], lines: Lines, comment: str) -> str:
    body = [line for key in sorted(lines) for line in (f"{comment} {key}", *lines[key])]
    return "\n".join([*head, *body]) + "\n"


def read_lines(text: str | None, comment: str) -> Lines:
    """Return the lines of a written file by key; what stands before the first key is the head."""
    found: Lines = {}
    key = ""
    for line in (text or "").splitlines():
        if line.startswith(comment + " ") and not line.startswith("# Written"):
            key = line[2:]
            found[key] = []
        elif key:
            found[key].append(line)
    return found


def serial_of(text: str | None) -> int:
    """Return the serial of a zone file, 0 where there is none."""
    words = (text or "").split(maxsplit=8)
    return int(words[6]) if len(words) > 6 and words[3] == "SOA" and words[6].isdecimal() else 0  # noqa: PLR2004


def without_serial(text: str | None) -> str | None:
    """Return a zone file with serial 0, so that two can be compared."""
    serial = serial_of(text)
    return text.replace(f" {serial} ", " 0 ", 1) if text and serial else text


def corefile(config: Mapping[str, Any], upstreams: Iterable[str], folder: str) -> str:
    """Return CoreDNS' configuration; what no file knows is asked of ``upstreams``."""
    servers = " ".join(upstreams)
    forward = [f"    forward . {servers}"] if servers else []
    domain, port = config["domain"], config["port"]
    every = [f"    bind {config['listen']}", "    errors"]
    pods = f"pod.{domain}"
    blocks = [
        ["# Written by minik8s_dns; put back when changed."],
        [
            f"{domain}:{port} {{",
            *every,
            *_template("A", pods, rf"^{_POD}[^.]+\.{re.escape(pods)}\.$", f'answer "{_POD_ANSWER}"'),
            # a name that is there has no other records; NXDOMAIN would deny its address, too (RFC 8020)
            *_template(
                "ANY", pods, rf"^(?:(?:{_POD})?[^.]+\.)?{re.escape(pods)}\.$", f'authority "{_authority(domain, 1)}"'
            ),
            *_file(f"{folder}/{ZONE}"),
            "}",
        ],
        *(
            [f"{origin}:{port} {{", *every, *_file(f"{folder}/{name}", "        fallthrough"), *forward, "}"]
            for origin, name in (("in-addr.arpa", REVERSE), ("ip6.arpa", REVERSE_IPV6))
        ),
        [
            f".:{port} {{",
            *every,
            "    reload 2s 1s",
            f"    hosts {folder}/{HOSTS} {{",
            f"        ttl {TTL_S}",
            "        no_reverse",
            f"        reload {RELOAD}",
            *(["        fallthrough"] if forward else []),
            "    }",
            *forward,
            "}",
        ],
    ]
    return "\n".join(line for block in blocks for line in block) + "\n"


def _template(kind: str, zone: str, names: str, answer: str) -> list[str]:
    return [
        f"    template IN {kind} {zone} {{",
        f"        match {names}",
        f"        {answer}",
        "        fallthrough",
        "    }",
    ]


def listen_of(text: str | None) -> str:
    """Return the address a Corefile of ours binds to, "" for none."""
    found = re.search(r"^    bind (\S+)$", text or "", re.MULTILINE)
    return found[1] if found else ""


def _file(path: str, *more: str) -> list[str]:
    return [f"    file {path} {{", f"        reload {RELOAD}", *more, "    }"]


def resolver_servers(text: str, own: str) -> list[str]:
    """Return the name servers of a resolv.conf, without ``own``; at most 3, as resolvers take no more.

    Those of IPv6 count where there is none of IPv4, but for those of a link (``fe80::1%eth0``).
    """
    rows = [line.split() for line in text.splitlines()]
    told = [row[1] for row in rows if len(row) > 1 and row[0] == "nameserver" and row[1] != own]
    found = [each for each in told if each.count(".") == 3 and ":" not in each]  # noqa: PLR2004
    return (found or [each for each in told if _is_ipv6(each)])[:3]


def _is_ipv6(text: str) -> bool:
    try:
        found = ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return not found.is_link_local and "%" not in text


def resolver_text(config: Mapping[str, Any], own: Resolver) -> str:
    """Return the resolv.conf of a node that asks its own server.

    What the node searched before (``own``) comes first: no Service takes over a name of its surroundings. A short name
    of a Service is looked for in ``nodes`` alone, where those of the namespaces stand that have a HostGrant for them.
    """
    domain = config["domain"]
    searches = dict.fromkeys([*own.searches, f"nodes.{domain}", f"svc.{domain}", domain])
    options = f"options {' '.join(own.options)}\n" if own.options else ""
    return (
        "# Written by minik8s_dns; make reset brings the former one back.\n"
        f"nameserver {config['listen']}\n"
        f"search {' '.join(searches)}\n{options}"
    )
