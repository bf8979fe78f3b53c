"""From a Node to the entry that says how it realizes Services: the ranges, the bridge and the addresses it goes by."""

from __future__ import annotations

from typing import TypedDict

from minik8s_modules.api import objects
from minik8s_modules.api.network.surroundings import family_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.entries.services import DataplaneEntry
from minik8s_modules.reconcile.values.resources import host_ip, host_ips
from minik8s_modules.reconcile.values.values import Settings

DATAPLANE = "dataplane"
PROXY_MODES = ("auto", "nftables", "ipvs")
DEFAULT_BRIDGE, DEFAULT_TABLE = "mk8s-br0", "minik8s"


class _Ranges(TypedDict):
    service_cidr: str
    cluster_cidr: str
    pod_cidr: str
    gateway: str


def dataplane_entry(node: JsonObject, settings: Settings) -> DataplaneEntry | None:
    """Return the entry that says how a node realizes services, None before it has a podCIDR that pods can have."""
    cidr = objects.spec(node).get("podCIDR")
    given = bool(settings.plugin.driver)  # the plugin knows which pods are this node's, and how it reaches them
    if not cidr or not (given or settings.dual_stack.takes(str(cidr))):
        return None
    internal = host_ip(node)
    if given and not internal:
        return None
    ranges = _ranges(str(cidr), internal, settings)
    entry: DataplaneEntry = {
        "mode": "ipvs" if settings.proxy_mode == "ipvs" else "nftables",
        "table": DEFAULT_TABLE if settings.bridge == DEFAULT_BRIDGE else f"{DEFAULT_TABLE}_{settings.bridge}",
        "service_cidr": ranges["service_cidr"],
        "cluster_cidr": ranges["cluster_cidr"],
        "pod_cidr": ranges["pod_cidr"],
        "bridge": settings.bridge,
        "gateway": ranges["gateway"],
        "node_ip": internal,
    }
    if settings.overlay.device and entry["mode"] == "nftables":
        entry["overlay"] = settings.overlay.device
    if settings.service_cidr_ipv6 and (second := settings.dual_stack.range_of(str(cidr))):
        entry["ipv6"] = {
            "service_cidr": settings.service_cidr_ipv6,
            "cluster_cidr": settings.dual_stack.cluster_cidr,
            "pod_cidr": second,
            "gateway": settings.dual_stack.gateway_of(str(cidr)),
        }
        if own := next((each for each in host_ips(node) if family_of(each) == "IPv6"), ""):
            entry["ipv6"]["node_ip"] = own
    return entry


def _ranges(cidr: str, internal: str, settings: Settings) -> _Ranges:
    """Return what a dataplane is told of IPv4: nothing where the cluster has IPv6 alone."""
    if settings.dual_stack.alone:
        return {"service_cidr": "", "cluster_cidr": "", "pod_cidr": "", "gateway": ""}
    given = bool(settings.plugin.driver)
    network, _, length = cidr.partition("/")
    head, _, last = network.rpartition(".")
    return {
        "service_cidr": settings.service_cidr,
        "cluster_cidr": settings.cluster_cidr,
        "pod_cidr": settings.cluster_cidr if given else f"{network}/{length}",
        "gateway": internal if given else f"{head}.{int(last) + 1}",
    }
