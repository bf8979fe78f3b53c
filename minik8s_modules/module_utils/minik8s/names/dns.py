"""Section ``dns``: the files of the node's DNS server, its address, and the node's own resolver where asked for.

The server (CoreDNS, or dnsmasq on the same hosts file) is a program of the installation that looks at its files every
0.1 s; here they are only written, whole and renamed into place, so a kill leaves old or new files and the next pass
writes the rest. All keys share the files: the steps of keys tell what changes, the closing steps write.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core.digests import Entries
from ..core.faults import KeyFault
from ..core.files import read_bytes, remove_file, remove_leftovers, write_atomically
from ..core.section import Context, Facets, Plan, Scope, Step
from ..pods import dns_host
from ..pods.pod_files import Resolver, parse_resolver
from . import dns_entries, dns_files, dns_guard
from .dns_entries import SERVER
from .dns_files import COREFILE, HOSTS, REVERSE, REVERSE_IPV6, UPSTREAMS, ZONE, Lines, Parts

FILES = (ZONE, REVERSE, REVERSE_IPV6, HOSTS, UPSTREAMS, COREFILE)


class ObservedNames(NamedTuple):
    """The files as they are, the lines of each key in them, and the node around them."""

    files: dict[str, str | None]
    parts: Parts
    own: Resolver
    """What the node itself asks and searches."""
    upstreams: list[str]
    has_address: bool
    left: str
    """An address of ours that is not declared any more, "" for none."""
    resolver: str
    kept: bool
    serving: bool
    guarded: dns_guard.Place | None
    """What has rules of ours (dns_guard.py), None where nobody has looked."""


def folder_of(state_dir: str) -> str:
    """Return the directory of the server's files."""
    return os.path.join(state_dir, "dns")


class Dns:
    """The section's observe, plan and apply."""

    name = "dns"

    def __init__(self, resolver: str = dns_host.RESOLVER) -> None:
        self._resolver = resolver

    def check_entry(self, key: str, entry: Mapping[str, Any]) -> None:
        """Raise KeyFault for an entry that cannot be used."""
        dns_entries.check_entry(key, entry)

    def observe(self, context: Context, entries: Entries, scope: Scope) -> ObservedNames:
        """Return the files and the node around them."""
        folder = folder_of(context.state_dir)
        if not context.check:
            self._clear(context, folder)
        files = {name: _read(os.path.join(folder, name)) for name in FILES}
        parts = Parts(
            dns_files.read_lines(files[ZONE], ";"),
            dns_files.read_lines(files[REVERSE], ";"),
            dns_files.read_lines(files[HOSTS], "#"),
            dns_files.read_lines(files[REVERSE_IPV6], ";"),
        )
        config = entries.get(SERVER)
        kept = dns_host.kept_resolver(context.state_dir)
        own = dns_host.node_resolver(kept, self._resolver)
        return ObservedNames(
            files,
            parts,
            parse_resolver(own),
            _upstreams(config, own),
            config is None or dns_host.has_address(config["listen"]),
            _left(config, files[COREFILE]),
            _read(self._resolver) or "",
            kept is not None,
            config is None or dns_host.is_served(config["listen"], config["port"]),
            dns_guard.observe(context.node) if scope.covers(SERVER) else None,
        )

    def _clear(self, context: Context, folder: str) -> None:
        """Remove what killed runs left half written."""
        for each in (folder, os.path.dirname(os.path.join(folder, HOSTS))):
            remove_leftovers(each)
        dns_host.clear(context.state_dir, self._resolver)

    def plan(self, context: Context, entries: Entries, observed: ObservedNames, scope: Scope) -> Plan:
        """Return the steps; files are written after all, the node's resolver is changed last."""
        plan = Plan()
        config = entries.get(SERVER)
        if config is None and SERVER in scope.untouched:
            return plan
        if config is None:
            for key in entries:
                plan.errors[key] = KeyFault("InvalidEntry", f"{key}: the section has no entry {SERVER!r}")
            _plan_removal(plan, observed)
            return plan
        wanted = dns_files.parts_of(entries, config["domain"])
        for key in scope.untouched:
            _keep(wanted, observed.parts, key)
        _tell_keys(plan, observed.parts, wanted)
        if not observed.has_address:
            plan.opening.append(Step("add-address", SERVER, config["listen"]))
        _plan_files(plan, observed, _files(context, config, observed, wanted))
        _plan_resolver(plan, config, observed)
        _plan_address(plan, observed)
        _plan_guard(plan, observed, dns_guard.Place(config["listen"], config["port"]))
        if not observed.serving and observed.files[COREFILE] is not None:
            plan.errors[SERVER] = KeyFault("ServerNotRunning", _silence(config))
        return plan

    def apply(self, context: Context, step: Step) -> None:
        """Carry out one step."""
        folder = folder_of(context.state_dir)
        if step.action in ("set", "remove"):
            return  # told; the files of all keys are written once
        context.checkpoint(f"{step.action} {step.detail}")
        if step.action == "add-address":
            dns_host.add_address(step.detail)
        elif step.action == "remove-address":
            dns_host.remove_address(step.detail)
        elif step.action == "guard-address":
            dns_guard.guard(context.node, step.data)
        elif step.action == "write":
            name, text = step.data
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            write_atomically(path, text.encode(), 0o644)
        elif step.action == "delete":
            remove_file(os.path.join(folder, step.data))
        elif step.action == "resolve":
            dns_host.take_resolver(context.state_dir, self._resolver, step.data)
        elif step.action == "restore":
            dns_host.restore_resolver(context.state_dir, self._resolver)

    def status(
        self,
        context: Context,
        entries: Entries,
        observed: ObservedNames,
        touched: frozenset[str],
    ) -> dict[str, Any]:
        """Return what is known of ``entries``."""
        return {key: {"state": "present"} for key in entries}


def _read(path: str) -> str | None:
    data = read_bytes(path)
    return None if data is None else data.decode("utf-8", "replace")


def _left(config: Mapping[str, Any] | None, corefile: str | None) -> str:
    former = dns_files.listen_of(corefile)
    return former if former != (config or {}).get("listen") and former and dns_host.is_ours(former) else ""


def _upstreams(config: Mapping[str, Any] | None, own: str) -> list[str]:
    if config is None:
        return []
    return list(config["forward"]) or dns_files.resolver_servers(own, config["listen"])


def _silence(config: Mapping[str, Any]) -> str:
    place = f"[{config['listen']}]" if ":" in config["listen"] else config["listen"]
    return (
        f"no DNS server answers at {place}:{config['port']}; is the program minik8s-dns running? "
        "Its log has the reason; until it does, pods on this node cannot resolve names"
    )


def _keep(wanted: Parts, found: Parts, key: str) -> None:
    """Keep the lines of a key whose entry cannot be used."""
    for lines, known in zip(wanted, found):
        if key in known:
            lines[key] = known[key]


def _facets(parts: Parts, key: str) -> Facets | None:
    lines = [line for each in parts for line in each.get(key, ())]
    return {"names": "; ".join(lines)} if lines else None


def _tell_keys(plan: Plan, found: Parts, wanted: Parts) -> None:
    keys = {key for parts in (found, wanted) for lines in parts for key in lines}
    for key in sorted(keys):
        before, after = _facets(found, key), _facets(wanted, key)
        if before != after:
            plan.steps.append(Step("set" if after else "remove", key, (after or before or {"names": ""})["names"]))
            plan.differs(key, before, after)


def _files(context: Context, config: Mapping[str, Any], observed: ObservedNames, wanted: Parts) -> dict[str, str]:
    origins: dict[str, tuple[str, Lines]] = {
        ZONE: (config["domain"], wanted.zone),
        REVERSE: ("in-addr.arpa", wanted.reverse),
        REVERSE_IPV6: ("ip6.arpa", wanted.reverse_ipv6),
    }
    servers = observed.upstreams
    return {
        **{
            name: dns_files.zone_text(origin, _next_serial(context, observed.files[name]), lines)
            for name, (origin, lines) in origins.items()
        },
        HOSTS: dns_files.hosts_text(wanted.hosts),
        UPSTREAMS: "".join(f"nameserver {server}\n" for server in servers),
        COREFILE: dns_files.corefile(config, servers, folder_of(context.state_dir)),
    }


def _next_serial(context: Context, text: str | None) -> int:
    return max(dns_files.serial_of(text) + 1, int(context.clock.time()) % 2**31)


def _plan_files(plan: Plan, observed: ObservedNames, wanted: Mapping[str, str]) -> None:
    before: Facets = {}
    after: Facets = {}
    for name, text in wanted.items():
        found = observed.files[name]
        same = dns_files.without_serial(found) == dns_files.without_serial(text)
        if same:
            continue
        plan.closing.append(Step("write", SERVER, name, (name, text)))
        if name in (COREFILE, UPSTREAMS) or found is None:
            before[name], after[name] = found or "", text if name == COREFILE else "written"
    if before or after:
        plan.differs(SERVER, before or None, after)


def _plan_resolver(plan: Plan, config: Mapping[str, Any], observed: ObservedNames) -> None:
    wanted = dns_files.resolver_text(config, observed.own)
    if config.get("host_resolver"):
        if observed.resolver != wanted:
            plan.closing.append(Step("resolve", SERVER, "resolv.conf", wanted))
    elif observed.kept:
        plan.closing.append(Step("restore", SERVER, "resolv.conf"))


def _plan_address(plan: Plan, observed: ObservedNames) -> None:
    if observed.left:
        plan.opening.append(Step("remove-address", SERVER, observed.left))


def _plan_guard(plan: Plan, observed: ObservedNames, server: dns_guard.Place) -> None:
    reached = server != dns_guard.NOWHERE and not dns_host.is_loopback(server.address)  # which no pod reaches
    wanted = server if reached else dns_guard.NOWHERE
    if observed.guarded in (None, wanted):
        return
    plan.closing.append(Step("guard-address", SERVER, str(wanted), wanted))
    before, after = (known.get(SERVER) or {} for known in (plan.before, plan.after))
    plan.differs(SERVER, {**before, "guarded": str(observed.guarded)}, {**after, "guarded": str(wanted)})


def _plan_removal(plan: Plan, observed: ObservedNames) -> None:
    if observed.kept:
        plan.opening.append(Step("restore", SERVER, "resolv.conf"))
    _plan_address(plan, observed)
    there = [name for name in FILES if observed.files[name] is not None]
    plan.closing += [Step("delete", SERVER, name, name) for name in there]
    _tell_keys(plan, observed.parts, Parts({}, {}, {}, {}))
    if there:
        plan.differs(SERVER, {"files": ", ".join(there)}, None)
    _plan_guard(plan, observed, dns_guard.NOWHERE)
