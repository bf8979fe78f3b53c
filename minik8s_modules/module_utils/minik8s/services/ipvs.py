"""Services by IPVS, as the original MiniK8s has them: a virtual server each, and every address on ``minik8s-dummy``.

The device is never up; its addresses make the kernel take packets to them as its own, which is where IPVS looks. Round
robin, masquerading (the reply comes back here), node ports on the node's address; affinity is IPVS' persistence. A
small nf_tables table does what IPVS does not: source NAT for what comes from outside the cluster or leads a pod to
itself, and rejecting what no virtual server took, or what has an address of the range that no Service has. Ours are the
servers with addresses of the service range, those of the node's address with node ports, and those that a set of the
table names: of addresses from outside. An endpoint that goes with connections open gets weight 0 and is deleted when it
is idle. Words: ipvs_wire.py.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from ..core.faults import KeyFault
from ..network import nftables_wire as wire_words
from ..network.nftables_wire import Change
from ..network.switches import read_switch, set_switch
from ..network.wire import (
    ACK,
    CREATE,
    ERROR,
    EXCLUSIVE,
    NETFILTER,
    Wire,
    attribute,
    attributes,
    error_of,
    message,
    nested,
    next_sequence,
    text,
)
from . import announcing
from .announcing import ANNOUNCED, UPLINK, Uplink
from .families import IPV4, family_of
from .guards import GUARD, guard_chain, guard_messages
from .ipvs_rules import (
    ADDRESSES,
    DEVICE,
    ELEMENTS,
    KEPT,
    KEPT_PLACES,
    MASKED_PLACES,
    keeping,
    place_of,
    read_key,
    rules_of,
    shown,
    udp_flow,
)
from .ipvs_wire import (
    AT_ONCE,
    DELETE_DEST,
    DELETE_SERVER,
    DESTINATIONS,
    NEW_SERVER,
    SERVERS,
    SET_DEST,
    SET_SERVER,
    IpvsWire,
    Place,
    Target,
    Value,
)
from .nftables import MASQUERADE_BIT, REJECTED, loops, loops_text, redirected, rejecting
from .nftables_elements import GUARDED, PROTOCOLS
from .nftables_table import FixedTable, chains_text, head_of, in_words
from .services_host import (
    ADDRESS,
    DELETE_ADDRESS,
    DELETE_LINK,
    GET_ADDRESS,
    GET_ROUTE,
    LINK,
    LINK_INFO,
    NAME,
    NEW_ADDRESS,
    NEW_LINK,
    ROUTE,
    ROUTE_TO,
    device,
)
from .services_host import INFO_KIND as KIND
from .services_plan import FixedPart, Rule, Rules

NODE_PORTS = range(30000, 32768)
SWITCHES = {
    "ipv4/ip_forward": "1",
    "ipv4/vs/conntrack": "1",
    # clients of an endpoint that is gone are sent to another one at once
    "ipv4/vs/expire_nodest_conn": "1",
    "ipv4/vs/expire_quiescent_template": "1",
    "bridge/bridge-nf-call-iptables": "1",
}
OF_BOTH = "ipv4/vs/"
"""What of them IPVS has for addresses of IPv6, too."""
HOST, LOCAL_ROUTE = 254, 2


def skeleton(config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the chains of the table beside IPVS."""
    services, node_ip = config["service_cidr"], config["node_ip"]
    family = family_of(services)
    ip = family.word
    ports = f"{NODE_PORTS.start}-{NODE_PORTS.stop - 1}"
    sets_mark = f"meta mark set meta mark | {MASQUERADE_BIT:#x}"
    takes_mark = f"meta mark set meta mark & {~MASQUERADE_BIT & 0xFFFFFFFF:#x}"
    place = f"{ip} daddr . meta l4proto . th dport"
    marking = [
        f"{place} vmap @{GUARDED}",
        f"{place} @{MASKED_PLACES} {sets_mark}",
        f"{ip} daddr {services} {ip} saddr != {config['cluster_cidr']} {sets_mark}",
    ]
    if node_ip:
        marking.append(f"ip daddr {node_ip} th dport {ports} meta l4proto . th dport != @{KEPT} {sets_mark}")
    looping = [f"{ip} saddr . {ip} daddr @loops masquerade fully-random"] if loops(config["pod_cidr"]) else []
    # of IPv6, what a pod answers a masqueraded client on this node, itself too, goes there within the bridge
    own = redirected(config["bridge"], "ct direction reply ct status snat") if family is not IPV4 else {}
    return {
        **own,
        **keeping(services, family),
        "marking": marking,
        "prerouting": ["type filter hook prerouting priority mangle", "jump marking"],
        "output": ["type filter hook output priority mangle", "jump marking"],
        # IPVS takes its packets in this hook at 98 and 99; what begins a connection here has no virtual server
        "receiving": [
            "type filter hook input priority 200",
            f"ct state new {ip} daddr {services} reject with {family.icmp} type port-unreachable",
            *announcing.rejecting_here(family),
        ],
        # an address that no Service has (yet) is on no device: its packets would leave by the default route
        "rejecting": rejecting(services),
        **REJECTED,
        # this machine is its own client from the Service's address, so answers to it go there too
        "sending": [REJECTED["sending"][0], "fib daddr type != local jump rejecting"],
        "postrouting": [
            "type nat hook postrouting priority srcnat",
            f"meta mark & {MASQUERADE_BIT:#x} == {MASQUERADE_BIT:#x} {takes_mark} masquerade fully-random",
            *looping,
        ],
    }


class Ipvs:
    """The backend; one pass, one thread."""

    name = "ipvs"
    shown = staticmethod(shown)
    place_of = staticmethod(place_of)
    udp_flow = staticmethod(udp_flow)

    def __init__(self, node: str, config: Mapping[str, Any], known: Mapping[str, str]) -> None:
        self._config = config
        self._cidr, self.family = ipaddress.ip_network(config["service_cidr"]), family_of(config["service_cidr"])
        # the device and the switches are of both families: the first one of a dataplane sees to them
        self._is_first = self.family is IPV4 or bool(config.get("alone"))
        self._nft, self._route, self._ipvs = Wire(NETFILTER), Wire(0), IpvsWire()
        name, chains = config["table"], skeleton(config)
        if self.family is not IPV4:
            name = f"{self.family.word} {name}"
        places, own = f"type {self.family.type} . inet_proto . inet_service", in_words(name)
        lines = [
            head_of(name, node),
            f"add set {own} {KEPT} {{ type inet_proto . inet_service; }}",
            *(f"add set {own} {each} {{ {places}; }}" for each in (MASKED_PLACES, KEPT_PLACES)),
            f"add map {own} {GUARDED} {{ {places} : verdict; }}",
            f"add set {own} {ANNOUNCED} {{ type {self.family.type}; }}",
        ]
        lines += [*loops_text(name, config["pod_cidr"]), *chains_text(name, chains)]
        self._table = FixedTable(self._nft, node, name, chains, "\n".join(lines) + "\n", known)
        self._busy: dict[Target, int] = {}
        self._node = node
        self._uplink = Uplink(self._route, config.get("uplink_ip") or config["node_ip"], self.family)
        self._second_ips: list[str] | None = [] if self.family is IPV4 else None
        self._sources: dict[str, list[str]] = {}

    def close(self) -> None:
        """Close the sockets."""
        self._ipvs.close()
        for each in (self._nft, self._route):
            each.__exit__()

    def known(self) -> dict[str, str]:
        """Return what the next pass needs to recognize the chains."""
        return dict(self._table.known)

    def rules_of(self, entry: Mapping[str, Any]) -> list[Rule]:
        """Return the rules of one service port."""
        if (sources := entry.get("sources")) is not None:
            self._sources[guard_chain(sources)] = sources
        if self._second_ips is None:
            self._second_ips = self._uplink.own()
        own = announcing.rules_here(entry, self._node, self._uplink)
        config = self._config
        return rules_of(entry, config["node_ip"], self._node, self._second_ips, config.get("own_ip", "")) + own

    # the fixed part

    def found(self) -> FixedPart:
        """Return table, device and switches as they are and should be.

        Raises:
            KeyFault: the table is somebody else's.
        """
        table = self._table.found()
        if not self._is_first:
            return table
        link = device(self._route, DEVICE)
        seen = {**table.seen, "device": f"{DEVICE} {link.kind}" if link else ""}
        wanted = {**table.wanted, "device": f"{DEVICE} dummy"}
        switches = SWITCHES if self.family is IPV4 else {name: SWITCHES[name] for name in SWITCHES if OF_BOTH in name}
        for name, value in switches.items():
            seen[name], wanted[name] = read_switch(name), value
        return FixedPart(seen, wanted)

    def mend(self, aspect: str) -> None:
        """Make one aspect right.

        Raises:
            KeyFault: the kernel has no IPVS, or the name of the device is taken.
        """
        if aspect == "table":
            self._table.mend()
        elif aspect == "device":
            self._make_device()
        else:
            if not read_switch(aspect):
                _load("br_netfilter" if aspect.startswith("bridge") else "ip_vs")
            set_switch(aspect, SWITCHES[aspect])

    def _make_device(self) -> None:
        link = device(self._route, DEVICE)
        if link is not None:
            raise KeyFault(
                "NetworkNotReady", f"device {DEVICE} exists and is not a dummy device but {link.kind or 'physical'}"
            )
        body = LINK.pack(0, 0, 0, 0, 0) + text(NAME, DEVICE) + nested(LINK_INFO, text(KIND, "dummy"))
        self._rtnetlink(f"create {DEVICE}", NEW_LINK, CREATE | EXCLUSIVE, body)

    def remove(self) -> None:
        """Remove our virtual servers, the device, the addresses that this node answers for, and the table."""
        self._uplink.leave(announcing.Changes(self._uplink.addresses(), []))
        if read_switch("ipv4/vs/conntrack"):
            gone = [Rule(SERVERS, place, None) for place in self._servers()]
            self._ipvs.each(DELETE_SERVER, gone, missing=errno.ESRCH)
        link = device(self._route, DEVICE)
        if link is not None and link.kind == "dummy" and not self._is_first:
            self._set_addresses([*self._addresses()], DELETE_ADDRESS, errno.EADDRNOTAVAIL)
        elif link is not None and link.kind == "dummy":
            self._rtnetlink(f"delete {DEVICE}", DELETE_LINK, 0, LINK.pack(0, 0, link.number, 0, 0))
        self._table.remove()

    # the rules

    def read(self, rules: Iterable[Rule] | None) -> Rules:
        """Return all rules of ours, or those with the places of ``rules``."""
        if rules is None:
            servers = self._servers()
            seen: Rules = {ADDRESSES: self._addresses(), SERVERS: servers, DESTINATIONS: {}}
            for place in servers:
                seen[DESTINATIONS].update(self._destinations(place))
            seen |= {name: dict(wire_words.listed(self._nft, self._table.name, name)) for name in ELEMENTS}
            return {**seen, UPLINK: self._uplink.addresses()}
        asked = list(rules)
        seen = {ADDRESSES: {rule.key: "" for rule in asked if rule.table == ADDRESSES and self._is_local(rule.key)}}
        seen[SERVERS], seen[DESTINATIONS] = {}, {}
        for place in {rule.key: None for rule in asked if rule.table == SERVERS}:
            if value := self._ipvs.server_at(place):
                seen[SERVERS][place] = value
                seen[DESTINATIONS].update(self._destinations(place))
        for name in ELEMENTS:
            keys = [rule.key for rule in asked if rule.table == name]
            seen[name] = dict(wire_words.looked_up(self._nft, self._table.name, name, keys)) if keys else {}
        own = self._uplink.addresses() if any(rule.table == UPLINK for rule in asked) else {}
        return {**seen, UPLINK: {rule.key: own[rule.key] for rule in asked if rule.table == UPLINK and rule.key in own}}

    def write(self, delete: Iterable[Rule], add: Iterable[Rule]) -> None:
        """Carry the changes out: what was there changes in place, new things come from the address up.

        Raises:
            OSError: the kernel refused one; the others are done.
        """
        delete, add = list(delete), list(add)
        gone = {(rule.table, rule.key): rule for rule in delete}
        new = {(rule.table, rule.key): rule for rule in add}
        changed = [new[which] for which in new if which in gone]
        moved = announcing.changes_of(delete, add)
        self._uplink.leave(moved)
        # what says that a server is ours stands before it and goes after it
        self._set_elements([rule for which, rule in gone.items() if which in new], [*new.values()])
        self._delete([rule for which, rule in gone.items() if which not in new])
        fresh = [rule for which, rule in new.items() if which not in gone]
        self._set_addresses([rule.key for rule in fresh if rule.table == ADDRESSES], NEW_ADDRESS, errno.EEXIST)
        self._ipvs.each(NEW_SERVER, [rule for rule in fresh if rule.table == SERVERS])
        self._ipvs.make_destinations([rule for rule in fresh if rule.table == DESTINATIONS])
        self._ipvs.each(SET_SERVER, [rule for rule in changed if rule.table == SERVERS])
        self._ipvs.each(SET_DEST, [rule for rule in changed if rule.table == DESTINATIONS])
        self._set_elements([rule for which, rule in gone.items() if which not in new], [])
        self._uplink.take(moved)

    def _delete(self, gone: list[Rule]) -> None:
        servers = [rule for rule in gone if rule.table == SERVERS]
        ended = {rule.key for rule in servers}
        ends = [rule for rule in gone if rule.table == DESTINATIONS and rule.key[:3] not in ended]
        busy = [rule._replace(value=0) for rule in ends if self._busy.get(rule.key) and rule.key[0] == PROTOCOLS["TCP"]]
        idle = [rule for rule in ends if rule._replace(value=0) not in busy]
        self._ipvs.each(SET_DEST, busy, missing=errno.ENOENT)
        self._ipvs.each(DELETE_DEST, idle, missing=errno.ENOENT)
        self._ipvs.each(DELETE_SERVER, servers, missing=errno.ESRCH)
        self._set_addresses([rule.key for rule in gone if rule.table == ADDRESSES], DELETE_ADDRESS, errno.EADDRNOTAVAIL)

    def _set_elements(self, delete: list[Rule], add: list[Rule]) -> None:
        changes = {name: Change(name, [], {}) for name in ELEMENTS}
        for rule in (each for each in delete if each.table in changes):
            changes[rule.table].delete.append(rule.key)
        for rule in (each for each in add if each.table in changes):
            changes[rule.table].add[rule.key] = rule.value
        chains = sorted(map(wire_words.chain_of, set(changes[GUARDED].add.values())))
        made = [name for name in chains if not self._table.is_right(name)]
        asked = [one for name in made for one in guard_messages(self._table.name, self._sources[name])]
        wire_words.commit(self._nft, asked + wire_words.element_messages(self._table.name, changes.values()))
        if made:
            self._table.learn(made)

    def tidy(self, rules: Rules) -> None:
        """Remove chains of ranges that no place leads to."""
        used = {wire_words.chain_of(value) for value in rules.get(GUARDED, {}).values()}
        idle = [name for name in self._table.seen if GUARD.fullmatch(name) and name not in used]
        wire_words.commit(self._nft, wire_words.deletion_messages(self._table.name, idle))

    def _servers(self) -> dict[Place, Value]:
        keys = {
            key for name in (MASKED_PLACES, KEPT_PLACES) for key in wire_words.listed(self._nft, self._table.name, name)
        }
        outside = {read_key(key) for key in keys}
        every = self._ipvs.servers().items()
        found = [(place, value) for place, value in every if family_of(place[1]) is self.family]
        return {place: value for place, value in found if place in outside or self._is_ours(place)}

    def _is_ours(self, place: Place) -> bool:
        at_node = place[1] == self._config["node_ip"] and place[2] in NODE_PORTS
        return at_node or ipaddress.ip_address(place[1]) in self._cidr

    def _destinations(self, place: Place) -> dict[Target, int]:
        found = self._ipvs.destinations(place)
        self._busy.update({target: count for target, (_, count) in found.items()})
        return {target: weight for target, (weight, _) in found.items()}

    # addresses

    def _rtnetlink(self, what: str, kind: int, flags: int, body: bytes) -> None:
        sequence = next_sequence()
        self._route.do(what, message(kind, flags | ACK, body, sequence), sequence)

    def _addresses(self) -> dict[str, str]:
        link, family = device(self._route, DEVICE), self.family
        found = {}
        for answer in self._route.dump(GET_ADDRESS, ADDRESS.pack(family.number, 0, 0, 0, 0)) if link else []:
            kind, *_, number = ADDRESS.unpack_from(answer.body)
            if (kind, number) == (family.number, link.number if link else 0):
                parts = dict(attributes(answer.body[ADDRESS.size :]))
                found[family.text(parts.get(2) or parts[1])] = ""  # IFA_LOCAL, which IPv6 leaves out, IFA_ADDRESS
        return found

    def _is_local(self, address: str) -> bool:
        """Return whether the kernel takes an address for its own; unlike a list of all it costs one look-up."""
        sequence = next_sequence()
        family = self.family
        head = ROUTE.pack(family.number, 8 * family.width, 0, 0, 0, 0, 0, 0, 0)
        body = head + attribute(ROUTE_TO, family.packed(address))
        answer = self._route.ask_each([message(GET_ROUTE, 0, body, sequence)], [sequence])[sequence]
        return answer.type != ERROR and ROUTE.unpack_from(answer.body)[7] == LOCAL_ROUTE

    def _set_addresses(self, addresses: list[str], kind: int, fine: int) -> None:
        link = device(self._route, DEVICE) if addresses else None
        for start in range(0, len(addresses) if link else 0, AT_ONCE):
            asked, sequences = list[bytes](), list[int]()
            for address in addresses[start : start + AT_ONCE]:
                sequences.append(next_sequence())
                packed, width = self.family.packed(address), 8 * self.family.width
                head = ADDRESS.pack(self.family.number, width, 0, HOST, link.number if link else 0)
                body = head + attribute(2, packed) + attribute(1, packed)
                body += b"" if self.family is IPV4 else announcing.QUIET
                asked.append(
                    message(kind, ACK | (CREATE | EXCLUSIVE if kind == NEW_ADDRESS else 0), body, sequences[-1])
                )
            for answer in self._route.ask_each(asked, sequences).values():
                if (code := error_of(answer)) not in (0, fine):
                    raise OSError(code, f"address on {DEVICE}: {os.strerror(code)}")


def _load(module: str) -> None:
    subprocess.run(["modprobe", module], capture_output=True, check=False)
