"""Section ``ingress``: one file per host for the node's own nginx (nginx.py), checked before any is replaced.

``observe`` stages what is declared and runs ``nginx -t`` on it; a host that nginx refuses keeps its last good file and
has an error, the others change. Files first, then one reload; where nginx runs without what stands on the disk (a kill
between both), the reload is made good.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core.digests import Entries
from ..core.faults import KeyFault
from ..core.files import remove_file, write_atomically
from ..core.section import Context, Facets, Plan, Scope, Step
from . import ingress_entries, nginx
from .ingress_entries import ANY, HEALTH, SERVER, file_of, key_of, listen_line, text_of
from .nginx import MAIN, Tree


class ObservedIngress(NamedTuple):
    """The files as they are and as they can be, the hosts nginx refuses, and the running server."""

    tree: Tree
    wanted: Tree
    refused: dict[str, str]
    pid: int
    loaded: str
    prepared: bool
    one_family: str
    """Why nginx listens over IPv4 alone where it is to listen over both families, "" where it does as it is to."""


class Ingress:
    """The section's observe, plan and apply."""

    name = "ingress"

    def __init__(self, program: str = nginx.PROGRAM) -> None:
        self._program = program

    def check_entry(self, key: str, entry: Mapping[str, Any]) -> None:
        """Raise KeyFault for an entry that cannot be used."""
        ingress_entries.check_entry(key, entry)

    def observe(self, context: Context, entries: Entries, scope: Scope) -> ObservedIngress:
        """Return files, their judgement by nginx, and the server."""
        folder = nginx.folder_of(context.state_dir)
        if not context.check:
            nginx.clear(folder, context.run_dir)
        tree = nginx.read_tree(folder)
        pid, prepared = nginx.master(folder), nginx.is_prepared(folder, context.run_dir)
        entries, why = _of_this_node(entries, pid, tree)
        wanted, refused = self._wanted(context, entries, scope, tree)
        return ObservedIngress(tree, wanted, refused, pid, nginx.loaded(folder), prepared, why)

    def _wanted(self, context: Context, entries: Entries, scope: Scope, tree: Tree) -> tuple[Tree, dict[str, str]]:
        """Return the files that can be put in force, and why the others cannot."""
        if SERVER not in entries:
            return (dict(tree) if SERVER in scope.untouched else {}), {}
        wanted = _declared(entries)
        for key in scope.untouched:
            if file_of(key) in tree:
                wanted[file_of(key)] = tree[file_of(key)]
        taken = _taken_ports(entries, nginx.master(nginx.folder_of(context.state_dir)), tree)
        for key in taken:
            _put(wanted, file_of(key), tree.get(file_of(key)))
        changed = sorted(name for name in wanted if tree.get(name) != wanted[name])
        if not changed:
            return wanted, taken
        if not os.path.exists(self._program):
            missing = f"{self._program} is not installed on this node; the role nginx brings it"
            return dict(tree), dict.fromkeys([SERVER, *(key for key in entries if key != SERVER)], missing)
        if context.check and _awaits_secrets(context, entries):
            return wanted, taken
        if not nginx.refusal(wanted, context.run_dir, self._program):
            return wanted, taken
        good, refused = self._sorted_out(
            context, {key: entries[key] for key in entries if key not in taken}, tree, wanted
        )
        return good, {**refused, **taken}

    def _sorted_out(self, context: Context, entries: Entries, tree: Tree, wanted: Tree) -> tuple[Tree, dict[str, str]]:
        """Find the hosts that nginx refuses: each is added to what is good and tried."""
        good = {name: text for name, text in wanted.items() if name == MAIN or tree.get(name) == text}
        why = nginx.refusal(good, context.run_dir, self._program)
        if why:  # nginx itself, or the main file: nothing changes, and all that would have is told why not
            return dict(tree), {SERVER: why}
        refused = {}
        for key in sorted(entries):
            name = file_of(key)
            if key == SERVER or name in good:
                continue
            why = nginx.refusal({**good, name: wanted[name]}, context.run_dir, self._program)
            if why:
                refused[key] = why
            if not why or name in tree:
                good[name] = tree[name] if why else wanted[name]
        if file_of(ANY) not in good:
            good[file_of(ANY)] = nginx.fallback_text(entries[SERVER])
        return good, refused

    def plan(self, context: Context, entries: Entries, observed: ObservedIngress, scope: Scope) -> Plan:
        """Return the steps: files, then one reload."""
        plan = Plan()
        if observed.one_family:
            plan.errors[SERVER] = KeyFault("PortInUse", observed.one_family)
        for key, why in observed.refused.items():
            plan.errors[key] = KeyFault("RefusedByNginx", f"{why}; the former configuration stays in force")
        if observed.tree and observed.wanted and not observed.prepared:  # the first file brings it all along
            plan.opening.append(Step("prepare", SERVER, "directories"))
            plan.differs(SERVER, {"directories": "incomplete"}, {"directories": "complete"})
        _plan_files(plan, entries, observed)
        if not observed.wanted:
            return plan
        for key in entries:
            if SERVER not in entries:
                plan.errors[key] = KeyFault("InvalidEntry", f"{key}: the section has no entry {SERVER!r}")
        if not observed.pid:
            if observed.tree and SERVER not in observed.refused:
                plan.errors[SERVER] = KeyFault("ServerNotRunning", _SILENCE)
        elif plan.steps or observed.loaded != nginx.mark_of(observed.pid, observed.tree):
            plan.closing.append(Step("reload", SERVER, "nginx", observed.pid))
        return plan

    def apply(self, context: Context, step: Step) -> None:
        """Carry out one step."""
        folder = nginx.folder_of(context.state_dir)
        context.checkpoint(f"{step.action} {step.detail}")
        if step.action == "reload":
            nginx.reload(folder, step.data)
            return
        if step.action == "prepare":
            nginx.prepare(folder, context.run_dir)
            return
        name, text = step.data
        if step.action == "remove":
            remove_file(os.path.join(folder, name))
            return
        nginx.prepare(folder, context.run_dir)
        write_atomically(os.path.join(folder, name), text.encode("utf-8", "surrogatepass"), 0o644)

    def status(
        self,
        context: Context,
        entries: Entries,
        observed: ObservedIngress,
        touched: frozenset[str],
    ) -> dict[str, Any]:
        """Return what is known of ``entries``."""
        return {key: None if key in observed.refused else {"state": "present"} for key in entries}


_HAS_IPV6 = "/proc/net/if_inet6"
_SILENCE = "nginx does not run on this node; is the program minik8s-nginx running? see its log (a port in use?)"


def _of_this_node(entries: Entries, pid: int, tree: Tree) -> tuple[Entries, str]:
    """Return the entries with nginx listening where it can on this node, and why it cannot where it should.

    A reload that cannot bind a port takes over nothing, and says so in nginx's log alone. While nobody knows which
    process nginx is, as when its master was killed, ports in use may be its own: it listens where it did.
    """
    config = entries.get(SERVER, {})
    if not config.get("ipv6"):
        return entries, ""
    ports = [config["http_port"], config["https_port"]]
    if not pid and MAIN in tree and not all(map(nginx.can_listen, ports)):
        return {**entries, SERVER: {**config, "ipv6": "listen [::]:" in tree[MAIN]}}, ""
    taken = [port for port in ports if _is_taken(port, pid, ipv6=True)]
    if not taken and os.path.exists(_HAS_IPV6):
        return entries, ""
    text = "port {} is in use at IPv6 addresses of this node: hosts and paths are served over IPv4 alone"
    return {**entries, SERVER: {**config, "ipv6": False}}, text.format(taken[0]) if taken else ""


def _declared(entries: Entries) -> Tree:
    config, kernel = entries[SERVER], os.path.exists(_HAS_IPV6)
    both = bool(config.get("ipv6"))
    hosts = {
        file_of(key): text_of(key, entry, ipv6=kernel if key.startswith(HEALTH) else both)
        for key, entry in entries.items()
        if key != SERVER
    }
    if file_of(ANY) not in hosts:
        hosts[file_of(ANY)] = nginx.fallback_text(config)
    return {MAIN: nginx.main_text(config), **hosts}


def _awaits_secrets(context: Context, entries: Entries) -> bool:
    """Return whether a check cannot ask nginx, because certificates would come only now."""
    folder = os.path.join(context.run_dir, nginx.SECRETS)
    wanted = {secret for key, entry in entries.items() if key != SERVER for secret in entry.get("secrets", ())}
    return any(not os.path.exists(os.path.join(folder, secret)) for secret in wanted)


def _plan_files(plan: Plan, entries: Entries, observed: ObservedIngress) -> None:
    keys = {file_of(key): key for key in entries} | {MAIN: SERVER}
    for name in sorted({*observed.tree, *observed.wanted}):
        before, after = observed.tree.get(name), observed.wanted.get(name)
        if before != after:
            key = keys.get(name) or key_of(name)
            action = "remove" if after is None else "write"
            plan.steps.append(Step(action, key, name, (name, after)))
            plan.differs(key, _facets(name, before), _facets(name, after))


def _put(tree: Tree, name: str, text: str | None) -> None:
    if text is None:
        tree.pop(name, None)
    else:
        tree[name] = text


def _taken_ports(entries: Entries, pid: int, tree: Tree) -> dict[str, str]:
    """Return why health checks cannot be answered: nginx would take over none of its files for one port in use.

    While nobody knows which process nginx is, a port in use may be its own where the check's file has it listen there.
    """
    checks = {key: entry for key, entry in entries.items() if key.startswith(HEALTH)}
    return {
        key: f"port {entry['port']} is in use on this node"
        for key, entry in checks.items()
        if any(
            _is_taken(entry["port"], pid, ipv6=ipv6)
            and (pid or listen_line(entry["port"], ipv6=ipv6) not in tree.get(file_of(key), ""))
            for ipv6 in ([False, True] if entry.get("ipv6") else [False])
        )
    }


def _is_taken(port: int, pid: int, *, ipv6: bool) -> bool:
    return not nginx.can_listen(port, ipv6=ipv6) and not nginx.listens(pid, port, ipv6=ipv6)


def _facets(name: str, text: str | None) -> Facets | None:
    return None if text is None else {name: "\n    " + text.replace("\n", "\n    ")}
