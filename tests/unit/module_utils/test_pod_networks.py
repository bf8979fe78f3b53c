"""What tells a pod's traffic from others': the table of sources, isolation in both families, neighbours, routes."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.core.keyed_documents import Ledger
from minik8s_modules.module_utils.minik8s.network import sources
from minik8s_modules.module_utils.minik8s.network.attachment import Attachment, forget, has_ipv6, mac_of, pair_seen
from minik8s_modules.module_utils.minik8s.network.isolation import FILTER, check_isolated
from minik8s_modules.module_utils.minik8s.network.overlay_links import OverlayNetlink
from minik8s_modules.module_utils.minik8s.network.sources import Pair

IPV4, IPV6 = "10.244.1.7", "fd00:1::7"
DUAL = Pair("mk8s-0badc0de", IPV4, IPV6)
LISTING = """table bridge minik8s_sources {{
\tset own {{
\t\ttype ifname . ipv4_addr
\t\telements = {{ "mk8s-0badc0de" . 10.244.1.7 }}
\t}}

\tset links {{
\t\ttype ifname
\t\telements = {{ "mk8s-0badc0de" }}
\t}}

\tset own_ipv6 {{
\t\ttype ifname . ipv6_addr
\t\telements = {{ "mk8s-0badc0de" . fd00:1::7 }}
\t}}

\tchain arriving {{
\t\ttype filter hook prerouting priority -300; policy accept;
{first}\t\tiifname @links ether type ip iifname . ip saddr != @own drop
\t\tiifname @links ether type arp arp saddr ip != 0.0.0.0 iifname . arp saddr ip != @own drop
\t}}

\tchain arriving_ipv6 {{
\t\ttype filter hook prerouting priority -300; policy accept;
\t\tiifname @links ether type ip6 iifname . ip6 saddr != @own_ipv6 drop
\t\tiifname @links ether type ip6 icmpv6 type 133-137 drop
\t}}

\tchain passing {{
\t\ttype filter hook forward priority -300; policy accept;
\t\tiifname @links ether type ip6 meta mark & 0x00002000 == 0x00000000 drop
\t\tiifname @links ether type ip6 meta pkttype multicast drop
\t}}
}}
"""
FIRST = "\t\tiifname @links ether type != { ip, arp, ip6 } drop\n"


@pytest.mark.parametrize("pair", [DUAL, DUAL._replace(ipv6="")], ids=["dual", "ipv4"])
def test_a_table_without_the_rule_for_tagged_frames_is_made_again(pair: Pair) -> None:
    # a table of pods that had IPv6 addresses once has enough rules all the same
    for first, holds in ((FIRST, True), ("", False)):
        found = sources.parse(LISTING.format(first=first))
        assert found.pairs == {DUAL}
        assert found._replace(pairs=frozenset({pair})).holds(pair) == holds


def test_a_table_that_lets_a_former_ipv6_address_pass_is_put_right() -> None:
    found = sources.parse(LISTING.format(first=FIRST))
    assert found.holds(DUAL)
    assert not found.holds(DUAL._replace(ipv6=""))
    # nor does one without rules of IPv6 hold back a pod that has no such address
    alone = DUAL._replace(ipv6="")
    assert not sources.Guard(frozenset({alone}), len(sources.RULES)).holds(alone)


def isolate(state: Path, **config: Any) -> None:
    """Have a policy isolate the pod, and its rules made."""
    own = {"address": IPV4, "groups": [], "ports": [], "ingress": ["policy/default/wall"], "egress": None}
    with Ledger(str(state), "policies") as ledger:
        ledger.replace({FILTER: {"table": "minik8s_policies", **config}, "pod/default/db": own})
        ledger.commit()


def test_an_isolated_pod_gets_no_address_of_a_family_without_rules(tmp_path: Path) -> None:
    entry = {"host_network": False, "ip": IPV4}
    dual = {**entry, "ipv6": {"ip": IPV6, "gateway": "fd00:1::1"}}
    isolate(tmp_path)
    check_isolated(str(tmp_path), "uid", entry)
    check_isolated(str(tmp_path), "uid", {**dual, "ip": "10.244.1.8"})  # that nobody isolates
    with pytest.raises(KeyFault, match="IPv4 alone"):
        check_isolated(str(tmp_path), "uid", dual)
    isolate(tmp_path, required=False)
    check_isolated(str(tmp_path), "uid", dual)
    isolate(tmp_path, ipv6=True)
    check_isolated(str(tmp_path), "uid", dual)


def test_an_address_that_a_pod_gave_itself_was_not_given_to_it() -> None:
    entry = {"ip": IPV4, "ipv6": {"ip": IPV6, "gateway": "fd00:1::1"}}
    gateway = "fd00:1::1 is 0a:58:0a:f4:01:01"
    assert not has_ipv6(Attachment(address=f"{IPV4}/24 {IPV6}/128", neighbours=gateway), entry)
    assert has_ipv6(Attachment(neighbours=f"{gateway}; {IPV6} is {mac_of(IPV4)}"), entry)
    assert has_ipv6(Attachment(), {"ip": IPV4})


Message = dict[str, Any]  # of rtnetlink: what it has is told as Message of rtnetlink.py tells it


class Kernel(OverlayNetlink):
    """A kernel without IPv6: it answers a dump of a family that it lacks with all families."""

    def __init__(self, *messages: Message) -> None:
        self._messages, self.deleted = messages, list[str]()

    def _dump(self, what: str, **about: Any) -> list[Any]:  # noqa: ARG002
        return list(self._messages)

    def _ask(self, what: str, command: str, **about: Any) -> list[Any]:  # noqa: ARG002
        if command == "del":
            self.deleted.append(about["dst"])
        return [Message(index=9, flags=0)]


def test_a_kernel_without_ipv6_shows_each_route_once() -> None:
    about: dict[str, Any] = {"family": socket.AF_INET, "table": 254, "proto": 78, "type": 1, "dst_len": 24}
    kernel = Kernel(Message(about, dst="10.244.2.0", gateway="10.244.2.0", oif=4))
    assert [each.destination for each in kernel.overlay_routes()] == ["10.244.2.0/24"]
    assert [each.destination for each in kernel.routes(ipv6=True)] == ["10.244.2.0/24"]


def test_a_pod_that_took_anothers_address_takes_nothing_of_it_along() -> None:
    other = "fd00:1::3"  # is before the pod's own in every list
    near = [Message(ifindex=9, state=0x80, dst=other, lladdr=mac_of("10.244.1.3"))]
    near += [Message(ifindex=9, state=0x80, dst=IPV6, lladdr=mac_of(IPV4))]
    kernel = Kernel(*near)
    attachment = Attachment(DUAL.device, "mk8s-br0", address=f"10.244.1.3/24 {IPV4}/24 {other}/128 {IPV6}/128")
    own = pair_seen(kernel, attachment, IPV4)
    assert own == DUAL
    forget(kernel, "mk8s-br0", own)
    assert kernel.deleted == [IPV6]
