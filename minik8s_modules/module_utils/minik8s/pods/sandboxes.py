"""Section ``sandboxes``: a pod's pause container, its network attach, and the files Docker makes for its names.

The pause container holds the network and IPC namespaces that the pod's containers join. Docker starts it without a
network; a veth pair is made in one netlink message, its host end ``mk8s-<8 hex of the uid>`` in the node's bridge, the
other one ``eth0`` inside. resolv.conf, hosts and hostname come from Docker's HostConfig, which survives its restart.
An attempt's image, names and DNS are those of its creation; link, address and route are compared with the kernel and
healed. A pause container that has exited stays: the reconciler answers with the next attempt (unattended: it is
started again).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from typing import Any

from ..core import labels
from ..core.digests import Entries
from ..core.docker import NOT_FOUND, Docker, DockerError
from ..core.faults import KeyFault
from ..core.observations import observation_from_inspect
from ..core.schema import check_fields, check_texts, schema_of, with_defaults
from ..core.section import Context, Plan, Scope, Step
from ..entries.identity import PodIdentity
from ..entries.sandboxes import SandboxDns, SandboxEntry, SandboxIpv6
from ..network import pod_plugins, sources
from ..network.attachment import (
    ALIAS,
    Attachment,
    attach,
    delete_link,
    forget,
    give_up_ipv6,
    has_ipv6,
    link_name,
    links_of,
    observe_address,
    observe_attachment,
    own_address,
    pair_of,
    pair_seen,
    strays,
)
from ..network.isolation import check_isolated
from ..network.netlink import Link, Netlink
from . import host_ports
from . import sandbox_parts as parts
from .sandbox_plan import LIVE, ObservedSandboxes, attempt_of, plan_removal, plan_sandbox

POD = schema_of(PodIdentity)
ENTRY = schema_of(SandboxEntry)
DNS = schema_of(SandboxDns)
IPV6 = schema_of(SandboxIpv6)
LOG_CONFIG = {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "5"}}  # kubelet's containerLogMax*
PAUSE_CPU_SHARES = 2  # kubelet's minimum: the pause container only sleeps


def _check_addresses(key: str, entry: Mapping[str, Any]) -> None:
    try:
        if entry["ip"] or not entry.get("ipv6"):
            ipaddress.IPv4Interface(f"{entry['ip']}/{entry['prefix_length']}")
            ipaddress.IPv4Address(entry["gateway"])
        if entry.get("ipv6"):
            check_fields(f"{key}.ipv6", entry["ipv6"], IPV6)
            for each in entry["ipv6"].values():
                ipaddress.IPv6Address(each)
    except ValueError as error:
        raise KeyFault("InvalidEntry", f"sandbox {key}: {error}") from None


def body_of(node: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return Docker's create request for a sandbox."""
    entry = with_defaults(entry, ENTRY)
    pod, dns, host_network = entry["pod"], entry["dns"], entry["host_network"]
    marks = labels.pod_labels(node, pod, labels.SANDBOX, "POD", entry["attempt"])
    host_config: dict[str, Any] = {
        "NetworkMode": "host" if host_network else "none",
        "IpcMode": "host" if entry["host_ipc"] else "shareable",
        "CpuShares": PAUSE_CPU_SHARES,
        "RestartPolicy": {"Name": "no"},
        "LogConfig": LOG_CONFIG,
        "Dns": dns["nameservers"],
        "DnsSearch": dns["searches"],
        "DnsOptions": dns["options"],
    }
    host_config |= parts.host_config(node, entry)
    if entry["host_ports"]:
        marks[labels.HOST_PORTS] = str(len(entry["host_ports"]))
    # its stdin takes the table of probes, from whoever is the gateway at the time
    body: dict[str, Any] = {"Image": entry["image"], "Labels": marks, "HostConfig": host_config, "OpenStdin": True}
    if not host_network:
        body["Hostname"] = entry["hostname"]
        if entry["plugin"] is not None:
            marks[labels.NETWORK] = entry["plugin"]["driver"]
        else:
            marks[labels.IP] = own_address(entry)
            own = [each for each in (entry["ip"], (entry["ipv6"] or {}).get("ip")) if each]
            host_config["ExtraHosts"] = [f"{entry['hostname']}:{ip}" for ip in own]
    return body


class Sandboxes:
    """The section's observe, plan and apply."""

    name = "sandboxes"

    def check_entry(self, key: str, entry: Mapping[str, Any]) -> None:
        """Raise KeyFault for an entry that cannot be used."""
        check_fields(key, entry, ENTRY)
        check_fields(f"{key}.pod", entry["pod"], POD)
        check_fields(f"{key}.dns", entry["dns"], DNS)
        for name in ("nameservers", "searches", "options"):
            check_texts(f"{key}.dns.{name}", entry["dns"][name])
        if entry["pod"]["uid"] != key:
            raise KeyFault(
                "InvalidEntry", f"sandbox {key} holds the pod uid {entry['pod']['uid']!r}; both must be equal"
            )
        if entry.get("plugin") is not None:
            pod_plugins.check(f"{key}.plugin", entry["plugin"])
        elif not entry["host_network"]:
            _check_addresses(key, entry)
        parts.check(key, with_defaults(entry, ENTRY))

    def observe(self, context: Context, entries: Entries, scope: Scope) -> ObservedSandboxes:
        """Return the node's pause containers, their networks, and (full scope) links nobody declared."""
        found = list_sandboxes(context, scope)
        inspected = [each for each in context.map(context.docker.inspect, [one["Id"] for one in found]) if each]
        containers: dict[str, list[dict[str, Any]]] = {}
        for each in sorted(inspected, key=attempt_of):
            containers.setdefault(each["Config"]["Labels"].get(labels.POD_UID, ""), []).append(each)
        with Netlink() as netlink:
            links = netlink.links() if scope.keys is None else links_of(netlink, scope.keys)
            known = _neighbours(netlink, entries, links)
        running = [each for each in inspected if each["State"]["Status"] in LIVE]
        attachments = {each["Id"]: _attachment(context.docker, each, links, known) for each in running}
        left = strays(context.node, links, containers, scope)
        rest = parts.observe(context, entries, containers, attachments, scope)
        unguarded = _unguarded(context, entries) if scope.keys is None else frozenset[str]()
        return ObservedSandboxes(containers, attachments, left, rest, unguarded)

    def plan(self, context: Context, entries: Entries, observed: ObservedSandboxes, scope: Scope) -> Plan:
        """Return the steps: undeclared ones go first, then each declared one."""
        plan = Plan()
        rest = observed.parts
        seen = {*observed.containers, *observed.strays, *rest.ports.rows, *rest.cgroups_left, *rest.records}
        for key in sorted(seen - set(entries)):
            if scope.covers(key):
                plan_removal(plan, key, observed)
        for key, entry in entries.items():
            if scope.covers(key):
                plan_sandbox(plan, context, key, with_defaults(entry, ENTRY), observed)
        return plan

    def apply(self, context: Context, step: Step) -> None:
        """Carry out one step."""
        getattr(self, "_" + step.action)(context, step)

    def _remove(self, context: Context, step: Step) -> None:
        context.checkpoint("remove sandbox")
        context.docker.remove(step.data)

    def _remove_pod(self, context: Context, step: Step) -> None:
        inspect, attachment = step.data
        self._remove(context, step._replace(data=inspect["Id"]))
        context.checkpoint("delete link")  # the kernel would, but only some milliseconds later
        with Netlink() as netlink:
            if attachment.bridge:
                own = pair_seen(netlink, attachment, inspect["Config"]["Labels"].get(labels.IP, ""))
                sources.dismiss(attachment.bridge, own)
                forget(netlink, attachment.bridge, own)
            link = netlink.link(link_name(step.key))
            if link is not None and link.alias == ALIAS.format(node=context.node, uid=step.key):
                delete_link(netlink, link)
        parts.removed(context, step.key)

    def _unlink(self, context: Context, step: Step) -> None:
        context.checkpoint("delete link")
        with Netlink() as netlink:
            delete_link(netlink, step.data)

    def _create(self, context: Context, step: Step) -> None:
        entry = step.data
        check_isolated(context.state_dir, step.key, entry)
        context.checkpoint("create sandbox")
        try:
            name = labels.sandbox_name(entry["pod"], entry["attempt"])
            created = parts.create(context, name, body_of(context.node, entry), step.key)
        except DockerError as error:
            raise create_fault(error, entry["image"], "CreatePodSandboxError") from error
        self._bring_up(context, created, step.key, entry)

    def _start(self, context: Context, step: Step) -> None:
        check_isolated(context.state_dir, step.key, step.data[1])
        self._bring_up(context, step.data[0], step.key, step.data[1])

    def _bring_up(self, context: Context, container: str, key: str, entry: Mapping[str, Any]) -> None:
        context.checkpoint("start sandbox")
        try:
            context.docker.start(container)
        except DockerError as error:
            raise KeyFault("CreatePodSandboxError", f"starting the pause container of {key}: {error}") from error
        inspect = context.docker.inspect(container)
        if inspect is None or not inspect["State"]["Pid"]:
            raise KeyFault("SandboxGone", f"the pause container of {key} ended immediately")
        parts.limits(context, inspect, key, entry)
        if entry["plugin"] is not None:
            self._plug(context, Step("plug", key, "", (inspect, entry)))
            return
        parts.names(context, inspect, entry)
        if not entry["host_network"]:
            attach(context, inspect, key, entry)
        if entry["host_ports"]:
            parts.ports(context, key, host_ports.declared(entry), entry)

    def _unpause(self, context: Context, step: Step) -> None:
        context.checkpoint("unpause sandbox")
        context.docker.unpause(step.data)

    def _attach(self, context: Context, step: Step) -> None:
        inspect, entry, attached = step.data
        gains, loses = not has_ipv6(attached, entry), not entry.get("ipv6") and ":" in attached.address
        if gains:
            try:
                check_isolated(context.state_dir, step.key, entry)
            except KeyFault:
                if entry["ip"]:
                    attach(context, inspect, step.key, {**entry, "ipv6": None})  # it runs, and keeps its first address
                raise
        if gains or loses:
            parts.names(context, inspect, entry)  # its own /etc/hosts has both addresses
        if loses:
            give_up_ipv6(context, inspect, step.key, entry)
        attach(context, inspect, step.key, entry)

    def _plug(self, context: Context, step: Step) -> None:
        inspect, entry = step.data
        record = pod_plugins.attach(context, inspect, step.key, entry)
        known = pod_plugins.resolved(entry, record)
        parts.names(context, inspect, known)
        if known["host_ports"]:
            parts.ports(context, step.key, host_ports.declared(known), known)

    def _unplug(self, context: Context, step: Step) -> None:
        record, inspect = step.data
        pod_plugins.detach(context, step.key, record, inspect)

    def _guard(self, context: Context, step: Step) -> None:
        context.checkpoint("admit source")
        inspect, entry = step.data
        bridge, pair = entry["bridge"], pair_of(step.key, entry)
        loses = not entry.get("ipv6") and sources.ipv6_of(bridge, pair.device)
        if sources.admit(context.run_dir, context.node, bridge, pair):
            sources.dismiss_others(bridge, pair)
        if loses:
            give_up_ipv6(context, inspect, step.key, entry)
        guard = sources.guard_of(context.run_dir, context.node, bridge)
        if guard is not None and not guard.holds(pair):
            raise KeyFault("NetworkNotReady", f"table bridge {sources.table_of(bridge)} cannot be put right; delete it")

    def _names(self, context: Context, step: Step) -> None:
        parts.names(context, *step.data)

    def _limits(self, context: Context, step: Step) -> None:
        parts.limits(context, step.data[0], step.key, step.data[1])

    def _ports(self, context: Context, step: Step) -> None:
        parts.ports(context, step.key, host_ports.declared(step.data[1]), step.data[1])

    def _unports(self, context: Context, step: Step) -> None:
        parts.ports(context, step.key, frozenset(), None)

    def _uncgroup(self, context: Context, step: Step) -> None:
        parts.removed(context, step.key)

    def status(
        self, context: Context, entries: Entries, observed: ObservedSandboxes, touched: frozenset[str]
    ) -> dict[str, Any]:
        """Return each declared sandbox's observation (None: there is none of its attempt)."""
        stale = sorted(touched & frozenset(entries))
        fresh = dict(zip(stale, context.map(lambda key: _look_again(context, entries[key]), stale)))
        return {
            key: fresh[key] if key in fresh else _observed_before(entry, observed, observed.containers.get(key, []))
            for key, entry in entries.items()
        }


def _unguarded(context: Context, entries: Entries) -> frozenset[str]:
    """Return the keys of pods in our bridge that the table of sources does not hold back from forging."""
    own = {
        key: entry
        for key, entry in entries.items()
        if not entry["host_network"] and entry.get("plugin") is None and (entry["ip"] or entry.get("ipv6"))
    }
    bridges = {str(entry["bridge"]) for entry in own.values()}
    guards = {bridge: sources.guard_of(context.run_dir, context.node, bridge) for bridge in bridges}
    return frozenset(
        key
        for key, entry in own.items()
        if (guard := guards[entry["bridge"]]) is not None and not guard.holds(pair_of(key, entry))
    )


def _neighbours(netlink: Netlink, entries: Entries, links: Mapping[str, Link]) -> dict[int, set[tuple[str, str]]]:
    """Return the node's IPv6 neighbours on the bridges of pods that have such addresses."""
    bridges = {str(entry["bridge"]) for entry in entries.values() if entry.get("ipv6")}
    numbers = [links[name].ifindex for name in sorted(bridges & links.keys())]
    return {number: netlink.neighbours(number, socket.AF_INET6) for number in numbers}


def _look_again(context: Context, entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a status tells of one attempt: much less than a plan must know, and every new pod waits for it."""
    inspect = context.docker.inspect(labels.sandbox_name(entry["pod"], entry["attempt"]))
    if inspect is None or inspect["Config"]["Labels"].get(labels.NODE) != context.node:
        return None
    live = inspect["State"]["Status"] in LIVE
    address = observe_address(context.docker, inspect, pod_plugins.interface_of(inspect)) if live else ""
    return _observation(inspect, entry, address)


def _observed_before(
    entry: Mapping[str, Any], observed: ObservedSandboxes, found: list[dict[str, Any]]
) -> dict[str, Any] | None:
    exact = [each for each in found if attempt_of(each) == entry["attempt"]]
    if not exact:
        return None
    attachment = observed.attachments.get(exact[-1]["Id"], Attachment())
    return _observation(exact[-1], entry, attachment.address)


def _observation(inspect: Mapping[str, Any], entry: Mapping[str, Any], address: str) -> dict[str, Any]:
    seen = observation_from_inspect(inspect)
    if not entry["host_network"]:
        seen["ip"] = address.partition("/")[0]
    return seen


def list_sandboxes(context: Context, scope: Scope) -> list[dict[str, Any]]:
    """Return Docker's listing of the pause containers in scope."""
    wanted = {labels.NODE: context.node, labels.TYPE: labels.SANDBOX}
    if scope.keys is not None and len(scope.keys) == 1:
        wanted[labels.POD_UID] = next(iter(scope.keys))
    return [each for each in context.docker.containers(wanted) if scope.covers(each["Labels"].get(labels.POD_UID, ""))]


def create_fault(error: DockerError, image: str, reason: str) -> KeyFault:
    """Return the fault a failed create means: an absent image is ImageMissing (the gateway pulls it)."""
    if error.status == NOT_FOUND and "image" in str(error).lower():
        return KeyFault("ImageMissing", f"image {image!r} is not present on the node")
    return KeyFault(reason, str(error))


def _attachment(
    docker: Docker,
    inspect: Mapping[str, Any],
    links: Mapping[str, Link],
    known: Mapping[int, set[tuple[str, str]]],
) -> Attachment:
    if driver := pod_plugins.driver_of(inspect):
        return Attachment(driver, address=observe_address(docker, inspect, pod_plugins.interface_of(inspect)))
    return observe_attachment(docker, inspect, links, known)
