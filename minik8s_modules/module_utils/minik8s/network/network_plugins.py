"""Drivers ``cni`` and ``weave``: somebody else's program makes the pods' network, pod by pod (pod_plugins.py).

What is left for the node as a whole: our bridge, here without address and pods, for services' route leads to it; IPv4
forwarding; leave for the pods' range to pass Docker's FORWARD policy. ``cni`` looks whether there is a valid network
whose programs exist, ``weave`` has the machine take part and connects it to the others. Machines that Weave was told
of by hand are left alone: forgotten is what the last document named and this one does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ..core.documents import load_document
from ..core.faults import KeyFault
from ..core.schema import Schema, check_fields, check_texts, schema_of
from ..core.section import Context, Facets
from ..entries.network import CniPart, WeavePart
from . import cni, netfilter, network_ipv6
from .network_bridge import KEY, BridgeDriver, ObservedNetwork
from .weave import Weave, check_peer

OF_BRIDGES = ("cidr", "gateway", "ipv6", "overlay")
CNI = schema_of(CniPart)
WEAVE = schema_of(WeavePart)


class PluginDriver(BridgeDriver):
    """What both have; ``name`` is the driver's and that of its part of the entry."""

    name: str
    fields: Schema

    def check(self, where: str, entry: Mapping[str, Any]) -> None:
        """Refuse what the plugin decides, and a part that cannot be used."""
        for field in sorted(set(entry) & {*OF_BRIDGES, "cni", "weave"} - {self.name}):
            raise KeyFault("InvalidEntry", f"{where}.{field} is not for the driver {self.name}")
        check_fields(f"{where}.{self.name}", entry.get(self.name), self.fields)

    def declared(self, node: str, entry: Mapping[str, Any], observed: ObservedNetwork) -> Facets:
        """Return what should be."""
        return {
            "bridge": f"{entry['bridge']} up mtu {entry['mtu']}",
            "address": "",
            "ip_forward": "1",
            "masquerade": "",
            "forward": "; ".join(_forwards(node, entry)),
            **network_ipv6.declared(node, entry, observed.ipv6),
        }

    def found(self, node: str, entry: Mapping[str, Any], observed: ObservedNetwork) -> Facets:
        """Return what is."""
        found = self.found_of_bridge(node, entry, observed)
        return found | ({} if observed.forwards is not None else {"forward": "; ".join(_forwards(node, entry))})

    def mend(self, context: Context, entry: Mapping[str, Any], aspect: str) -> None:
        """Make one aspect right."""
        if aspect == "masquerade":
            context.checkpoint("nft transaction")
            netfilter.delete_chain(entry["bridge"], last=set(netfilter.chains()) <= {entry["bridge"]})
        elif aspect == "forward":
            present = (netfilter.forwards(context.node) or {}).get(entry["bridge"], [])
            context.checkpoint("iptables transaction")
            netfilter.set_forwards(present, _forwards(context.node, entry))
        else:
            super().mend(context, entry, aspect)


def _forwards(node: str, entry: Mapping[str, Any]) -> list[str]:
    return netfilter.range_rules(node, entry["bridge"], entry["cluster_cidr"])


class CniNetwork(PluginDriver):
    """A valid configuration and its programs."""

    name = "cni"
    fields = CNI

    def check(self, where: str, entry: Mapping[str, Any]) -> None:
        """Refuse folders that are no absolute paths."""
        super().check(where, entry)
        given = entry["cni"]
        check_texts(f"{where}.cni.bin_dirs", given["bin_dirs"])
        for folder in (given["conf_dir"], *given["bin_dirs"]):
            if not os.path.isabs(folder) or ":" in folder:
                raise KeyFault("InvalidEntry", f"{where}.cni: {folder!r} is not an absolute path without a colon")

    def look(self, context: Context, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what is wrong, {} for nothing."""
        try:
            cni.programs(cni.find_network(entry["cni"]["conf_dir"]), entry["cni"]["bin_dirs"])
        except KeyFault as fault:
            return {"fault": str(fault)}
        return {}

    def declared(self, node: str, entry: Mapping[str, Any], observed: ObservedNetwork) -> Facets:
        """Return that, and a network."""
        return super().declared(node, entry, observed) | {"network": f"a valid one in {entry['cni']['conf_dir']}"}

    def found(self, node: str, entry: Mapping[str, Any], observed: ObservedNetwork) -> Facets:
        """Return that, and the network or what is wrong with it."""
        right = self.declared(node, entry, observed)["network"]
        return super().found(node, entry, observed) | {"network": observed.plugin.get("fault") or right}

    def mend(self, context: Context, entry: Mapping[str, Any], aspect: str) -> None:
        """Tell what is wrong with the network, which is somebody else's; mend the rest."""
        if aspect == "network":
            raise KeyFault("NetworkNotReady", self.look(context, entry).get("fault") or "the network changed meanwhile")
        super().mend(context, entry, aspect)


class WeaveNetwork(PluginDriver):
    """The machine's own end, and the other machines."""

    name = "weave"
    fields = WEAVE

    def check(self, where: str, entry: Mapping[str, Any]) -> None:
        """Refuse peers that are no machines."""
        super().check(where, entry)
        for peer in entry["weave"]["peers"]:
            check_peer(f"{where}.weave.peers", peer)

    def look(self, context: Context, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return Weave's targets, and those that the last document had it connect to."""
        try:
            targets = sorted(_weave(context, entry).targets())
        except KeyFault as fault:
            return {"fault": str(fault)}
        return {"targets": targets, "before": peers_before(context)}

    def declared(self, node: str, entry: Mapping[str, Any], observed: ObservedNetwork) -> Facets:
        """Return that, this machine's end and the peers."""
        wanted = {"exposed": "an address on device weave", "peers": _lines(entry["weave"]["peers"])}
        return super().declared(node, entry, observed) | wanted

    def found(self, node: str, entry: Mapping[str, Any], observed: ObservedNetwork) -> Facets:
        """Return that; of Weave's targets those that are ours."""
        seen, peers = observed.plugin, set(entry["weave"]["peers"])
        device = observed.links.get("weave")
        near = any(device and each.ifindex == device.ifindex for each in observed.addresses)
        ours = set(seen.get("targets", ())) & (peers | set(seen.get("before", ())))
        found = {
            "exposed": self.declared(node, entry, observed)["exposed"] if near else "",
            "peers": seen.get("fault") or _lines(ours),
        }
        return super().found(node, entry, observed) | found

    def mend(self, context: Context, entry: Mapping[str, Any], aspect: str) -> None:
        """Expose the machine, connect it, forget who is gone."""
        weave = _weave(context, entry)
        if aspect == "exposed":
            context.checkpoint("weave expose")
            weave.expose()
        elif aspect == "peers":
            targets, wanted = weave.targets(), set(entry["weave"]["peers"])
            if gone := targets & set(peers_before(context)) - wanted:
                context.checkpoint("weave forget")
                weave.forget(sorted(gone))
            if new := wanted - targets:
                context.checkpoint("weave connect")
                weave.connect(sorted(new))
        else:
            super().mend(context, entry, aspect)


def peers_before(context: Context) -> list[str]:
    """Return the machines that the last document had Weave connect to."""
    last = load_document(context.state_dir, "network").entries.get(KEY, {})
    return list((last.get("weave") or {}).get("peers") or ())


def forget_all(context: Context, command: str) -> None:
    """Have Weave forget the machines of the last document; it stays as it is beside that."""
    weave = Weave(command, context.docker.path)
    if gone := weave.targets() & set(peers_before(context)):
        context.checkpoint("weave forget")
        weave.forget(sorted(gone))


def _weave(context: Context, entry: Mapping[str, Any]) -> Weave:
    return Weave(entry["weave"]["command"], context.docker.path)


def _lines(words: Iterable[str]) -> str:
    return " ".join(sorted(set(words)))
