"""What a sandbox has beside its container and its network: names, sysctls and namespaces, cgroup, ports of the node.

Each part is observed with the sandboxes, compared in ``missing``, and made right by a function of its name. Files of
names: pod_files.py; the pod's cgroup: pod_cgroup.py; host ports: host_ports.py; what plugins attached: pod_plugins.py.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..core import labels
from ..core.digests import Entries
from ..core.docker import DockerError
from ..core.faults import KeyFault
from ..core.schema import check_fields, check_texts, schema_of
from ..core.section import Context, Facets, Scope
from ..entries.sandboxes import HostPort, PodCgroup
from ..network import pod_plugins
from ..network.switches import set_switch
from . import dns_host, host_ports, pod_cgroup, pod_files
from .host_ports import Ports

HOST_PORT = schema_of(HostPort)
CGROUP = schema_of(PodCgroup)
PORTS_LOCK = threading.Lock()  # a change of the table is made from a look at it
ANY_PORT = range(1, 65536)
Inspect = Mapping[str, Any]


class Parts(NamedTuple):
    """What there is: containers without names, limits by container id, the node's ports, cgroups without a pod.

    Of plugins: the record of a pod, and why a container (by id) is not as its record says.
    """

    unnamed: frozenset[str] = frozenset()
    limits: Mapping[str, dict[str, Any] | None] = {}
    ports: Ports = Ports({}, whole=True)
    cgroups_left: tuple[str, ...] = ()
    records: Mapping[str, pod_plugins.Record] = {}
    faults: Mapping[str, str] = {}


def check(key: str, entry: Mapping[str, Any]) -> None:
    """Raise KeyFault (InvalidEntry) for parts that cannot be used; ``entry`` has its defaults."""
    check_texts(f"{key}.sysctls", entry["sysctls"], 2)
    for row in entry["host_aliases"]:
        check_texts(f"{key}.host_aliases", row)
    if any(word.split() != [word] for row in entry["host_aliases"] for word in row):
        raise KeyFault("InvalidEntry", f"{key}.host_aliases must hold words without white space")
    if entry["cgroup"] is not None:
        check_fields(f"{key}.cgroup", entry["cgroup"], CGROUP)
    for one in entry["host_ports"]:
        check_fields(f"{key}.host_ports", one, HOST_PORT)
        _check_port(key, one)
        if ":" in one["ip"] and not entry["ipv6"]:
            where = f"port {one['host_port']} of the node's address {one['ip']}"
            raise KeyFault("InvalidEntry", f"{key}.host_ports: {where} leads nowhere: the pod has no IPv6 address")


def _check_port(key: str, one: Mapping[str, Any]) -> None:
    protocol = one["protocol"].lower() in host_ports.PROTOCOLS
    if not protocol or one["port"] not in ANY_PORT or one["host_port"] not in ANY_PORT:
        raise KeyFault("InvalidEntry", f"{key}.host_ports: {dict(one)} is no TCP, UDP or SCTP port from 1 to 65535")
    try:
        if one["ip"] and str(ipaddress.ip_address(one["ip"])) != one["ip"]:
            raise KeyFault("InvalidEntry", f"{key}.host_ports: {one['ip']!r} must be written in its shortest form")
    except ValueError as error:
        raise KeyFault("InvalidEntry", f"{key}.host_ports: {error}") from None


def host_config(node: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of Docker's HostConfig of a pause container."""
    config: dict[str, Any] = {}
    if entry["host_pid"]:
        config["PidMode"] = "host"
    elif entry["share_pid"]:
        config["Init"] = True  # process 1 of all the pod's containers has to reap their orphans
    if entry["sysctls"]:
        config["Sysctls"] = dict(entry["sysctls"])
    if entry["cgroup"] is not None:
        config["CgroupParent"] = pod_cgroup.parent_of(node, entry["pod"]["uid"])
    if entry["runtime"]:
        config["Runtime"] = entry["runtime"]
    return config


def create(context: Context, name: str, body: dict[str, Any], uid: str) -> str:
    """Create the pause container, with the cgroup's name that Docker's cgroup driver takes; return its id.

    Raises:
        DockerError: Docker refuses.
    """
    try:
        return context.docker.create(name, body)
    except DockerError as error:
        if pod_cgroup.SYSTEMD_WORDS not in str(error):
            raise
    parent = {"CgroupParent": pod_cgroup.slice_of(context.node, uid)}
    return context.docker.create(name, {**body, "HostConfig": {**body["HostConfig"], **parent}})


def observe(
    context: Context,
    entries: Entries,
    containers: Mapping[str, list[dict[str, Any]]],
    live: Iterable[str],
    scope: Scope,
) -> Parts:
    """Return what there is of the parts; ``live`` are the ids of the running pause containers."""
    running = {
        each["Id"]: (uid, each) for uid, group in containers.items() for each in group if each["Id"] in set(live)
    }
    limits = {
        found: pod_cgroup.found(context.node, uid, each["State"]["Pid"], entries[uid]["cgroup"])
        for found, (uid, each) in running.items()
        if entries.get(uid, {}).get("cgroup") and each["HostConfig"].get("CgroupParent")
    }
    marked = any(labels.HOST_PORTS in each["Config"]["Labels"] for group in containers.values() for each in group)
    wanted = any(entry.get("host_ports") for uid, entry in entries.items() if scope.covers(uid))
    ports = host_ports.observe(context.node) if scope.keys is None or marked or wanted else Ports({}, whole=True)
    gone = pod_cgroup.left_over(context.node, ()) if scope.keys is None else scope.keys
    left = sorted(uid for uid in {*gone} - {*containers, *entries} if pod_cgroup.is_idle(context.node, uid))
    unnamed = frozenset(found for found, (_, each) in running.items() if not pod_files.written(each))
    records = _records(context, scope)
    faults = {
        found: fault
        for found, (uid, each) in running.items()
        if pod_plugins.driver_of(each)
        and (fault := pod_plugins.fault_of(context.docker, each, records.get(uid), ask=scope.keys is None))
    }
    return Parts(unnamed, limits, ports, tuple(left), records, faults)


def _records(context: Context, scope: Scope) -> dict[str, pod_plugins.Record]:
    uids = pod_plugins.recorded(context.state_dir) if scope.keys is None else scope.keys
    found = ((uid, pod_plugins.load(context.state_dir, uid)) for uid in uids if scope.covers(uid))
    return {uid: record for uid, record in found if record is not None}


def missing(key: str, entry: Mapping[str, Any], inspect: Inspect, parts: Parts) -> list[str]:
    """Return the actions that make the parts of a running pause container right; ``entry`` has its defaults."""
    actions = ["names"] if inspect["Id"] in parts.unnamed else []
    if parts.limits.get(inspect["Id"], entry["cgroup"]) != entry["cgroup"]:
        actions.append("limits")
    wanted = host_ports.declared(entry)
    if parts.ports.rows.get(key, frozenset()) != wanted or (wanted and not parts.ports.whole):
        actions.append("ports")
    return actions


def facets(inspect: Inspect, key: str, parts: Parts) -> Facets:
    """Return what a person wants to see of the parts that are not right in the difference."""
    found = {"names": "unwritten"} if inspect["Id"] in parts.unnamed else {}
    rows = parts.ports.rows.get(key)
    if rows:
        found["host ports"] = ", ".join(sorted(map(str, rows))) + ("" if parts.ports.whole else " (rules incomplete)")
    limits = parts.limits.get(inspect["Id"])
    return found | ({"cgroup": _shown(limits)} if limits else {})


def declared_facets(entry: Mapping[str, Any]) -> Facets:
    """Return the same of what must be."""
    rows = host_ports.declared(entry)
    found = {"host ports": ", ".join(sorted(map(str, rows)))} if rows else {}
    return found | ({"cgroup": _shown(entry["cgroup"])} if entry["cgroup"] else {})


def _shown(limits: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(limits.items()))


def names(context: Context, inspect: Inspect, entry: Mapping[str, Any]) -> None:
    """Fill the files that tell names."""
    context.checkpoint("write names")
    pod_files.write(inspect, entry, dns_host.kept_resolver(context.state_dir))


def limits(context: Context, inspect: Inspect, key: str, entry: Mapping[str, Any]) -> None:
    """Give the pod's cgroup its limits.

    Raises:
        KeyFault: CreatePodSandboxError, the kernel refuses.
    """
    if entry["cgroup"] is None or not inspect["HostConfig"].get("CgroupParent"):
        return
    context.checkpoint("limit pod")
    try:
        pod_cgroup.write(context.node, key, inspect["State"]["Pid"], entry["cgroup"])
    except OSError as error:
        raise KeyFault("CreatePodSandboxError", f"limits of the pod {key}: {error}") from error


def ports(context: Context, key: str, wanted: frozenset[host_ports.Row], entry: Mapping[str, Any] | None) -> None:
    """Lead exactly ``wanted`` ports to the pod; ``entry`` None: it goes."""
    with PORTS_LOCK:
        seen = host_ports.observe(context.node)
        context.checkpoint("nft transaction")
        network = host_ports.network_of(entry) if entry and wanted else ""
        host_ports.change(context.node, seen, key, wanted, network)
        if entry and network and entry["bridge"]:
            set_switch(f"ipv4/conf/{entry['bridge']}/route_localnet", "1")


def removed(context: Context, key: str) -> None:
    """Remove the pod's cgroup, unless a container runs in it that is to go later.

    Raises:
        OSError: it stays all the same, as where systemd does not answer in time; who looks again finds it.
    """
    context.checkpoint("remove cgroup")
    pod_cgroup.remove(context.node, key)
    if pod_cgroup.is_idle(context.node, key):
        raise OSError(f"the cgroup of pod {key} is still there, though nothing runs in it")
