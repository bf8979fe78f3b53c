"""The files of a pod that tell names: /etc/hosts as kubelet writes it, and /etc/resolv.conf.

Docker makes both beside the pause container and mounts the same two files into every container that joins its network;
they are filled in place (a mount is of the file, not of its name) when the pause container has started. Kubelet's first
line in hosts tells that this has been done, so a pass cut off in between is made up for.
Source: pkg/kubelet/kubelet_pods.go (managedHostsFileContent), pkg/kubelet/network/dns/dns.go.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..core.faults import KeyFault
from ..core.files import read_bytes

MARK = b"# Kubernetes-managed hosts file"
LOCAL_NAMES = """\
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::\tip6-localnet
fe00::\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
"""
NODE_HOSTS = "/etc/hosts"
NODE_RESOLVER = "/etc/resolv.conf"
SYSTEMD_RESOLVER = "/run/systemd/resolve/resolv.conf"  # the servers behind systemd's stub on 127.0.0.53
NAMESERVERS, SEARCHES = 3, 32  # kubelet's limits, resolv.conf(5)


class Resolver(NamedTuple):
    """What a resolv.conf says."""

    nameservers: list[str]
    searches: list[str]
    options: list[str]


def hosts_text(entry: Mapping[str, Any], node_hosts: str) -> str:
    """Return a pod's /etc/hosts; ``node_hosts`` is the node's own file, which a pod on its network has."""
    if entry["host_network"]:
        text = MARK.decode() + " (host network).\n" + node_hosts.rstrip("\n") + "\n"
    else:
        names = [entry["fqdn"], entry["fqdn"].partition(".")[0]] if entry["fqdn"] else [entry["hostname"]]
        own = [*([entry["ip"]] if entry["ip"] else []), *([entry["ipv6"]["ip"]] if entry.get("ipv6") else [])]
        lines = ("\t".join([address, *dict.fromkeys(names)]) + "\n" for address in own)
        text = MARK.decode() + ".\n" + LOCAL_NAMES + "".join(lines)
    if not entry["host_aliases"]:
        return text
    return (
        text + "\n# Entries added by HostAliases.\n" + "".join("\t".join(row) + "\n" for row in entry["host_aliases"])
    )


def parse_resolver(text: str) -> Resolver:
    """Return what a resolv.conf says; the last search or domain line counts."""
    found = Resolver([], [], [])
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith(("#", ";")):
            continue
        if words[0] == "nameserver":
            found.nameservers.extend(words[1:2])
        elif words[0] in {"search", "domain"}:
            found = found._replace(searches=words[1:])
        elif words[0] == "options":
            found.options.extend(words[1:])
    return found


def resolver_text(dns: Mapping[str, Any], node: Resolver) -> str:
    """Return a pod's resolv.conf: the node's where ``dns`` says so, then the declared; a later option wins."""
    base = node if dns.get("node") else Resolver([], [], [])
    servers = _once([*base.nameservers, *dns["nameservers"]])[:NAMESERVERS]
    searches = _once([*base.searches, *dns["searches"]])[:SEARCHES]
    options = {option.partition(":")[0]: option for option in [*base.options, *dns["options"]]}
    lines = [f"search {' '.join(searches)}"] if searches else []
    lines += [f"nameserver {server}" for server in servers]
    lines += [f"options {' '.join(options.values())}"] if options else []
    return "".join(line + "\n" for line in lines)


def _once(words: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(words))


def node_resolver(kept: str | None) -> Resolver:
    """Return the node's own resolver, the one behind systemd's stub where only that is named.

    Args:
        kept: the resolv.conf that the section ``dns`` stands in for: pods take over what the node asks by itself, and
            not the short names of Services that only nodes search.
    """
    found = parse_resolver(_text(NODE_RESOLVER) if kept is None else kept)
    if found.nameservers and all(map(_is_loopback, found.nameservers)):
        behind = _text(SYSTEMD_RESOLVER)
        return parse_resolver(behind) if behind else found
    return found


def _is_loopback(server: str) -> bool:
    try:
        return ipaddress.ip_address(server).is_loopback
    except ValueError:
        return False


def _text(path: str) -> str:
    return (read_bytes(path) or b"").decode("utf-8", "replace")


def written(inspect: Mapping[str, Any]) -> bool:
    """Return whether the files of a pause container have been filled."""
    return (read_bytes(str(inspect.get("HostsPath") or "")) or b"").startswith(MARK)


def write(inspect: Mapping[str, Any], entry: Mapping[str, Any], kept: str | None) -> None:
    """Fill the files of a pause container; hosts last, for it carries the mark. ``kept``: see ``node_resolver``.

    Raises:
        KeyFault: CreatePodSandboxError, a file cannot be written.
    """
    files = [
        (inspect["ResolvConfPath"], resolver_text(entry["dns"], node_resolver(kept))),
        (inspect["HostsPath"], hosts_text(entry, _text(NODE_HOSTS))),
    ]
    for path, text in files:
        try:
            with open(path, "r+", encoding="utf-8") as target:
                target.write(text)
                target.truncate()
        except OSError as error:
            raise KeyFault("CreatePodSandboxError", f"cannot write {path}: {error}") from error
