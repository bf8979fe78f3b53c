"""Mutual TLS between sidecars: which Namespaces and Pods ask for it, and what a Pod's peers are to speak. Pure.

The label of a Namespace turns it on, and that of a Pod there goes before it. A Pod that is made while it is on has a
sidecar that can: its node then leads what comes in to a port which only a pilot opens, so that nothing is let in
before a pilot has said how (module_utils/minik8s/network/interception.py). Which Pods can is their spec's to say,
which nobody changes; how strict they are follows the labels as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject, all_containers
from minik8s_modules.api.pods.sidecar_images import sidecar_of

MTLS = "minik8s.io/mtls"
"""Label of a Namespace, or of a Pod in one that has it."""
PERMISSIVE, STRICT, DISABLED = "permissive", "strict", "disabled"
MODES = (PERMISSIVE, STRICT)
MARK: JsonObject = {"name": "MINIK8S_MTLS", "value": "enabled"}
"""In the environment of a sidecar that can."""
TRUST_DOMAIN = "cluster.local"


class Peer(NamedTuple):
    """A Pod that can: how it takes connections, and whether others are to speak TLS with it.

    Who takes connections takes TLS always, so that callers may begin with it, and end, when they hear of it. ``uid`` is
    the Pod's: another of the same name may be another peer. ``has_ipv6`` is whether it has an address of IPv6, too;
    ``labels`` are what AuthorizationPolicies select it by, where somebody asks for them.
    """

    mode: str
    is_called_by_tls: bool
    uid: str = ""
    has_ipv6: bool = False
    labels: tuple[tuple[str, str], ...] = ()


def asked_mode(pod: Mapping[str, str], space: Mapping[str, str]) -> str:
    """Return the mode by the labels of a Pod and its Namespace; "" for none."""
    own, general = pod.get(MTLS), space.get(MTLS)
    wanted = (own or general) if general in MODES else None
    return wanted if wanted in MODES else ""


def peer(pod: JsonObject, space: Mapping[str, str]) -> Peer | None:
    """Return what a Pod is to its callers, None for one that cannot speak TLS."""
    if not can_speak(objects.spec(pod)):
        return None
    mode = asked_mode(objects.labels(pod), space)
    return Peer(mode or PERMISSIVE, bool(mode), objects.uid(pod), has_ipv6(pod))


def has_ipv6(pod: JsonObject) -> bool:
    """Return whether a Pod has an address of IPv6."""
    return any(":" in str(each.get("ip")) for each in objects.status(pod).get("podIPs") or [])


def can_speak(spec: JsonObject) -> bool:
    """Return whether a Pod of this spec has a sidecar that can; what other containers say of themselves is nothing.

    With its node's network it cannot: nothing leads what comes in there, and its address is everybody's at the node.
    """
    name = "" if spec.get("hostNetwork") else sidecar_of(spec)
    containers = (each for _field, _number, each in all_containers({"spec": spec}) if name)
    return any(each.get("name") == name and MARK in (each.get("env") or ()) for each in containers)


def unguarded(pod: JsonObject, space: Mapping[str, str]) -> str:
    """Return what is to be said of a Pod for which its labels or its Namespace's ask in vain; "" where none does."""
    own = objects.labels(pod).get(MTLS)
    if own in MODES and space.get(MTLS) not in MODES:
        return f"the label {MTLS} has no effect on a Pod whose Namespace does not have it"
    mode = asked_mode(objects.labels(pod), space)
    if not mode or can_speak(objects.spec(pod)):
        return ""
    return (
        f"{MTLS}={mode} has no effect on the Pod, which has no sidecar that was added with it: it takes connections of "
        "anybody"
    )


def identity(namespace: str, account: str) -> str:
    """Return the SPIFFE ID of a service account (as Istio has it)."""
    return f"{namespace_identity(namespace)}{account}"


def namespace_identity(namespace: str) -> str:
    """Return what the SPIFFE IDs of a namespace's service accounts begin with."""
    return f"spiffe://{TRUST_DOMAIN}/ns/{namespace}/sa/"
