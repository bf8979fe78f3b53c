"""The sandbox of a pod: which attempt the node should have, and the entry that says so.

A live sandbox stays. A dead one is replaced by the next attempt once no container of the pod lives (they
hold the old network namespace and its address), at once after its first death, then with the back-off of
containers.
"""

from __future__ import annotations

import ipaddress
import json
from datetime import datetime, timedelta
from typing import NamedTuple, cast

from minik8s_modules.api import objects
from minik8s_modules.api.network.cluster_names import HOSTS, SERVICES
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.backoff import CONTAINER_RESTART
from minik8s_modules.module_utils.minik8s.entries.identity import PodIdentity
from minik8s_modules.module_utils.minik8s.entries.sandboxes import (
    SandboxDns,
    SandboxEntry,
    SandboxNetwork,
    SandboxOptions,
)
from minik8s_modules.reconcile.network.networks import missing
from minik8s_modules.reconcile.pods.observed import ObservedContainer, ObservedPod
from minik8s_modules.reconcile.pods.security import sysctls
from minik8s_modules.reconcile.pods.sidecars import rule_events
from minik8s_modules.reconcile.values import resources
from minik8s_modules.reconcile.values.images import decide_image
from minik8s_modules.reconcile.values.values import PodEvent, PodInputs, Settings

RESET_AFTER_S = 600.0
"""Running this long clears a back-off (kubelet: twice MaxContainerBackOff)."""
_HOSTNAME_LIMIT = 63
_KERNEL_NAME_LIMIT = 64
RUNTIME_HANDLER = "minik8s.io/runtime-handler"
"""Annotation with the handler of the pod's RuntimeClass; admission writes it and takes it from nobody else."""
_DEFAULT_NDOTS = "ndots:5"


class Sandbox(NamedTuple):
    """``usable``: containers may be declared in it; those created before ``since`` belong to an earlier one."""

    entry: SandboxEntry | None
    attempt: int = 0
    usable: bool = False
    since: datetime | None = None
    wake_at: datetime | None = None
    address_wanted: bool = False
    message: str = ""
    events: tuple[PodEvent, ...] = ()
    pull: str = ""


def decide_sandbox(pod: JsonObject, seen: ObservedPod, inputs: PodInputs, now: datetime) -> Sandbox:
    """Return the sandbox a pod that is to run wants now."""
    current = seen.sandbox
    if refused := _impossible(pod, inputs.settings):
        return Sandbox(None, message=refused, events=_failed(refused))
    if problem := _problem(pod, seen, inputs):
        wanted = not inputs.address_error and not _rangeless(inputs)
        return Sandbox(None, address_wanted=wanted, message=problem, events=_failed(inputs.address_error and problem))
    events = _errors(pod, inputs)
    message = events[0].message if events else ""
    if current is not None and not _dead(current):
        entry = sandbox_entry(pod, current.attempt, seen, inputs)
        usable = not _awaits_address(pod, inputs)
        return Sandbox(entry, current.attempt, usable, since=current.created_at, message=message, events=events)
    if any(one.alive for one in seen.attempts()):
        if current is None:
            return Sandbox(None)
        return Sandbox(sandbox_entry(pod, current.attempt, seen, inputs), current.attempt)
    return _unenforced(pod, inputs) or _imageless(inputs, now) or _new(pod, seen, inputs, now)


def _unenforced(pod: JsonObject, inputs: PodInputs) -> Sandbox | None:
    """Return what to do with a pod that is to be isolated on a node that isolates nobody, None for any other."""
    if not inputs.unenforced or objects.spec(pod).get("hostNetwork"):
        return None
    who = f"NetworkPolicy {inputs.unenforced} selects it, and node {objects.name(inputs.node)}, which reconciles itself"
    message = f"PolicyNotEnforced: {who}, enforces none; delete it, or have it run on another node"
    return Sandbox(None, message=message, events=_failed(message))


def _imageless(inputs: PodInputs, now: datetime) -> Sandbox | None:
    """Return what to do while the pause image is not there, None when it is."""
    image = inputs.settings.pause_image
    decided = decide_image(image, "IfNotPresent", inputs.images, inputs.pulls.get(image), now, now)
    if decided.ready:
        return None
    message = f"image {image}: {decided.waiting.message}" if decided.waiting else ""
    pull = image if decided.pull else ""
    return Sandbox(None, wake_at=decided.wake_at, message=message, events=_failed(message), pull=pull)


def _dead(sandbox: ObservedContainer) -> bool:
    return sandbox.over or sandbox.state == "removing"


def _new(pod: JsonObject, seen: ObservedPod, inputs: PodInputs, now: datetime) -> Sandbox:
    """Return the first sandbox, or the one after a dead one once its back-off is over."""
    dead = seen.sandbox
    if dead is None:
        events = _errors(pod, inputs)
        message = events[0].message if events else ""
        usable = not _awaits_address(pod, inputs)
        return Sandbox(sandbox_entry(pod, 0, seen, inputs), usable=usable, message=message, events=events)
    failures = 0 if dead.ran_s >= RESET_AFTER_S else dead.attempt
    ended = dead.finished_at or dead.created_at or now
    due = ended + timedelta(seconds=CONTAINER_RESTART.delay_s(failures))
    if now < due:
        return Sandbox(sandbox_entry(pod, dead.attempt, seen, inputs), dead.attempt, wake_at=due)
    attempt = dead.attempt + 1
    text = "Pod sandbox changed, it will be killed and re-created."
    changed = PodEvent("Normal", "SandboxChanged", text, f"sandbox/{attempt}")
    events = (changed, *_errors(pod, inputs))
    usable = not _awaits_address(pod, inputs)
    return Sandbox(sandbox_entry(pod, attempt, seen, inputs), attempt, usable, events=events)


def _awaits_address(pod: JsonObject, inputs: PodInputs) -> bool:
    """Return whether containers are told an address that a plugin has not given yet."""
    if not inputs.settings.plugin.driver or inputs.address or objects.spec(pod).get("hostNetwork"):
        return False
    return "status.podIP" in json.dumps(objects.spec(pod))


def _impossible(pod: JsonObject, settings: Settings) -> str:
    """Return why no sandbox can ever be made of the pod: a name that the kernel does not take."""
    name = _fqdn(pod, settings)
    if not objects.spec(pod).get("setHostnameAsFQDN") or len(name) <= _KERNEL_NAME_LIMIT:
        return ""
    return (
        f"Failed to construct FQDN from Pod hostname and cluster domain, FQDN {name} is too long "
        f"({_KERNEL_NAME_LIMIT} characters is the max, {len(name)} characters requested)"
    )


def _rangeless(inputs: PodInputs) -> str:
    """Return why pods of the node can have no addresses, "" where they can."""
    cidr, name = str(objects.spec(inputs.node).get("podCIDR") or ""), objects.name(inputs.node)
    if not cidr:
        return f"node {name} has no podCIDR yet"
    if inputs.settings.plugin.driver or inputs.settings.dual_stack.takes(cidr):
        return ""
    return f"node {name} has the podCIDR {cidr}, of which Pods can have no addresses: delete the Node, it gets another"


def _problem(pod: JsonObject, seen: ObservedPod, inputs: PodInputs) -> str:
    """Return why the sandbox cannot be declared yet; a problem with the address is one that a claim may end."""
    if objects.spec(pod).get("hostNetwork"):
        return ""
    if why := _rangeless(inputs):
        return why
    if seen.sandbox is None and (why := missing(inputs.node, inputs.settings)):
        return why
    if inputs.settings.plugin.driver or address(seen, inputs):
        return ""
    return inputs.address_error or "waiting for an address"


def _errors(pod: JsonObject, inputs: PodInputs) -> tuple[PodEvent, ...]:
    error = inputs.errors.get(f"sandboxes/{objects.uid(pod)}")
    return _failed(str(error.get("message") or "")) if error else rule_events(pod, inputs)


def _failed(message: str) -> tuple[PodEvent, ...]:
    if not message:
        return ()
    text = f"Failed to create pod sandbox: {message}"
    return (PodEvent("Warning", "FailedCreatePodSandBox", text, f"sandbox-failed/{message}"),)


def address(seen: ObservedPod, inputs: PodInputs) -> str:
    """Return the pod's IP: the claimed one, else the one its live sandbox has, else ""."""
    current = seen.sandbox
    return inputs.address or (current.ip if current is not None and current.alive else "")


def sandbox_entry(pod: JsonObject, attempt: int, seen: ObservedPod, inputs: PodInputs) -> SandboxEntry:
    """Return the entry of the ``sandboxes`` section."""
    spec = objects.spec(pod)
    host_network = bool(spec.get("hostNetwork"))
    return {
        "pod": pod_identity(pod),
        "attempt": attempt,
        "image": inputs.settings.pause_image,
        "hostname": _own_name(pod, inputs, host_network=host_network),
        "host_network": host_network,
        "dns": _dns(pod, inputs.settings),
        **_network(seen, inputs, host_network=host_network),
        **_parts(pod, inputs, host_network=host_network),
        "cgroup": resources.pod_cgroup(pod, inputs.settings.pod_pids_limit),
    }


def _parts(pod: JsonObject, inputs: PodInputs, *, host_network: bool) -> SandboxOptions:
    """Return the fields a sandbox may have beside its network; left out where they say nothing."""
    spec = objects.spec(pod)
    fields: SandboxOptions = {
        "fqdn": "" if host_network else _fqdn(pod, inputs.settings),
        "host_aliases": [[str(one["ip"]), *(one.get("hostnames") or [])] for one in spec.get("hostAliases") or []],
        "host_pid": bool(spec.get("hostPID")),
        "host_ipc": bool(spec.get("hostIPC")),
        "share_pid": bool(spec.get("shareProcessNamespace")),
        "sysctls": sysctls(pod),
        "host_ports": [] if host_network else resources.host_ports(pod),
        "runtime": objects.annotations(pod).get(RUNTIME_HANDLER, ""),
    }
    return cast("SandboxOptions", {name: value for name, value in fields.items() if value})


def pod_identity(pod: JsonObject) -> PodIdentity:
    """Return the ``pod`` part of entries."""
    return {"uid": objects.uid(pod), "name": objects.name(pod), "namespace": objects.namespace(pod)}


def _hostname(pod: JsonObject) -> str:
    name = str(objects.spec(pod).get("hostname") or objects.name(pod))
    return name[:_HOSTNAME_LIMIT].rstrip("-.")


def _own_name(pod: JsonObject, inputs: PodInputs, *, host_network: bool) -> str:
    """Return what the kernel tells the pod's programs as the host's name."""
    if host_network:
        return objects.name(inputs.node)
    whole = _fqdn(pod, inputs.settings) if objects.spec(pod).get("setHostnameAsFQDN") else ""
    return whole or _hostname(pod)


def _fqdn(pod: JsonObject, settings: Settings) -> str:
    """Return the name a pod with a subdomain has in the cluster, "" for others."""
    subdomain = objects.spec(pod).get("subdomain")
    domain = f"{objects.namespace(pod)}.svc.{settings.cluster_domain}"
    return f"{_hostname(pod)}.{subdomain}.{domain}" if subdomain else ""


def _network(seen: ObservedPod, inputs: PodInputs, *, host_network: bool) -> SandboxNetwork:
    settings = inputs.settings
    cidr = objects.spec(inputs.node).get("podCIDR")
    if not host_network and settings.plugin.driver:
        plugin = settings.plugin.entry()
        return {"ip": "", "prefix_length": 0, "gateway": "", "bridge": "", "mtu": 0, "plugin": plugin}
    if host_network or not cidr or not settings.dual_stack.takes(cidr):
        return {"ip": "", "prefix_length": 0, "gateway": "", "bridge": settings.bridge, "mtu": settings.mtu}
    own, dual = address(seen, inputs), settings.dual_stack
    found: SandboxNetwork = {
        "ip": "",
        "prefix_length": 0,
        "gateway": "",
        "bridge": settings.bridge,
        "mtu": settings.mtu,
    }
    if not dual.alone:
        network = ipaddress.IPv4Network(cidr)
        gateway = str(network.network_address + 1)
        found |= {"ip": own, "prefix_length": network.prefixlen, "gateway": gateway}
    if second := dual.address_of(own) if dual.range_of(cidr) else "":
        found["ipv6"] = {"ip": second, "gateway": dual.gateway_of(cidr)}
    return found


def _dns(pod: JsonObject, settings: Settings) -> SandboxDns:
    spec = objects.spec(pod)
    given = spec.get("dnsConfig") or {}
    policy = spec.get("dnsPolicy") or "ClusterFirst"
    if spec.get("hostNetwork") and policy == "ClusterFirst":
        policy = "Default"
    # without cluster DNS, ClusterFirst is what the node asks
    cluster = bool(settings.cluster_dns) and policy.startswith("ClusterFirst")
    domain = settings.cluster_domain
    own = f"{objects.namespace(pod)}.{SERVICES}.{domain}"
    # the hosts of the pod's own namespace come after all that Kubernetes has pods search
    hosts = f"{objects.namespace(pod)}.{HOSTS}.{domain}"
    searches = [own, f"{SERVICES}.{domain}", domain, hosts] if cluster else []
    named = {str(option.get("name")) for option in given.get("options") or []}
    options = [_DEFAULT_NDOTS] if cluster and "ndots" not in named else []
    dns: SandboxDns = {
        "nameservers": list(
            dict.fromkeys([*(settings.cluster_dns if cluster else ()), *(given.get("nameservers") or [])])
        ),
        "searches": list(dict.fromkeys([*searches, *(given.get("searches") or [])])),
        "options": options + [_option(option) for option in given.get("options") or []],
    }
    return dns if cluster or policy == "None" else dns | {"node": True}


def _option(option: JsonObject) -> str:
    value = option.get("value")
    return f"{option.get('name')}:{value}" if value not in (None, "") else str(option.get("name"))
