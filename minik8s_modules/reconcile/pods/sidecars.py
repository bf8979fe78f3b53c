"""The rules of a pod with a sidecar: the entry of section ``sidecars``, and what a node says of it. Pure."""

from __future__ import annotations

import ipaddress
from typing import cast

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.interception import excluded
from minik8s_modules.api.pods.mutual_tls import can_speak
from minik8s_modules.api.pods.sidecar_images import sidecar_of
from minik8s_modules.module_utils.minik8s.entries.sidecars import SidecarEntry
from minik8s_modules.reconcile.pods.pod_context import SANDBOX_MISSING
from minik8s_modules.reconcile.values.values import PodEvent, PodInputs


def sidecar_entry(pod: JsonObject, attempt: int, inputs: PodInputs) -> SidecarEntry | None:
    """Return the entry for a sandbox of that attempt, None for a pod without a sidecar or with its node's network."""
    if objects.spec(pod).get("hostNetwork") or not sidecar_of(objects.spec(pod)):
        return None
    left_out = excluded(pod)
    fields: SidecarEntry = {
        "attempt": attempt,
        "node_addresses": _addresses(inputs) + (_ipv6_addresses(inputs) if can_speak(objects.spec(pod)) else []),
        "exclude_inbound_ports": list(left_out.inbound_ports),
        "exclude_outbound_ports": list(left_out.outbound_ports),
        "exclude_outbound_ranges": list(left_out.outbound_ranges),
        "mutual_tls": can_speak(objects.spec(pod)),
    }
    # what is not said takes no room in the document, and is as it was before it could be said
    return cast("SidecarEntry", {name: value for name, value in fields.items() if value != [] and value is not False})


def _addresses(inputs: PodInputs) -> list[str]:
    """Return what the node's own connections to the pod come from: the gateway of its range, and its own addresses."""
    own = _of_node(inputs, ipaddress.IPv4Address)
    if (cidr := _bridged(inputs)) and ":" not in cidr:
        own.add(str(ipaddress.IPv4Network(cidr).network_address + 1))
    return sorted(own)


def _ipv6_addresses(inputs: PodInputs) -> list[str]:
    """Return those of IPv6, by which only the rules of mutual TLS go."""
    own = _of_node(inputs, ipaddress.IPv6Address)
    return sorted({*own, *filter(None, [inputs.settings.dual_stack.gateway_of(_bridged(inputs))])})


def _bridged(inputs: PodInputs) -> str:
    """Return the node's range of pods, "" where another program makes their network."""
    return "" if inputs.settings.plugin.driver else str(objects.spec(inputs.node).get("podCIDR") or "")


def _of_node(inputs: PodInputs, of: type[ipaddress.IPv4Address | ipaddress.IPv6Address]) -> set[str]:
    found = objects.status(inputs.node).get("addresses") or []
    given = (str(one.get("address")) for one in found if one.get("type") in {"InternalIP", "ExternalIP"})
    return {str(of(address)) for address in given if _is_one(address, of)}


def _is_one(text: str, of: type[ipaddress.IPv4Address | ipaddress.IPv6Address]) -> bool:
    try:
        found = of(text)
    except ValueError:
        return False
    return not (isinstance(found, ipaddress.IPv6Address) and (found.ipv4_mapped or found.scope_id))


def rule_events(pod: JsonObject, inputs: PodInputs) -> tuple[PodEvent, ...]:
    """Return the event of rules that the node could not make; that the sandbox is not there is told of the sandbox."""
    error = inputs.errors.get(f"sidecars/{objects.uid(pod)}")
    if not error or error.get("reason") == SANDBOX_MISSING:
        return ()
    text = f"Failed to lead the Pod's connections to its sidecar: {error.get('message')}"
    return (PodEvent("Warning", "FailedSidecarRules", text, f"rules-failed/{text}"),)
