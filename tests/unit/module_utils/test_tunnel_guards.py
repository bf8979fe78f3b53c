"""The rules that guard tunnels: what nft prints of them is what was declared."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.network.tunnel_guard import declared, parse, script, table_of

LISTING = """table inet minik8s_tunnels {
    comment "minik8s/n1"
    set peers {
        type ipv6_addr
        elements = { 2001:db8::2,
                     2001:db8::3 }
    }

    chain input {
        type filter hook input priority mangle; policy accept;
        udp dport 8472 ct state invalid drop
        ip6 saddr != @peers udp dport 8472 @th,96,24 0x9 drop
    }

    chain forward {
        type filter hook forward priority -150; policy accept;
        ip6 daddr @peers udp dport 8472 @th,96,24 9 drop
    }
}
""".replace("    ", "\t")


def overlay(*addresses: str, own: str = "2001:db8::1") -> dict[str, Any]:
    peers = {f"n{at}": {"cidr": f"10.0.{at}.0/24", "address": one} for at, one in enumerate(addresses, 2)}
    return {"device": "mk8s-vx0", "vni": 9, "port": 8472, "address": own, "direct": False, "peers": peers}


def test_what_nft_lists_is_what_was_declared_however_it_prints_numbers() -> None:
    wanted = declared(overlay("2001:db8::3", "2001:db8::2"))
    assert parse(LISTING) == wanted
    assert wanted.startswith("peers: 2001:db8::2 2001:db8::3; forward: ip6 daddr @peers")


@pytest.mark.parametrize(
    ("harm", "instead"),
    [
        ("2001:db8::3 }", "2001:db8::9 }"),
        ("\t\tudp dport 8472 ct state invalid drop\n", ""),
        ("@th,96,24 0x9 drop", "@th,96,24 0x8 drop"),
        ("saddr != @peers", "saddr @peers"),
        ("hook input", "hook output"),
        (
            "chain forward {",
            "chain other {\n		type filter hook prerouting priority 0;\n	}\n	chain forward {\n		accept",
        ),
    ],
)
def test_what_somebody_changed_is_not(harm: str, instead: str) -> None:
    assert harm in LISTING
    assert parse(LISTING.replace(harm, instead)) != declared(overlay("2001:db8::3", "2001:db8::2"))


def test_without_peers_nothing_is_let_in_and_each_device_has_a_table() -> None:
    alone = script("n1", overlay(own="192.0.2.1"))
    assert "add element" not in alone
    assert "type ipv4_addr" in alone
    assert "ip saddr != @peers" in alone
    assert (table_of("mk8s-vx0"), table_of("other")) == ("minik8s_tunnels", "minik8s_tunnels_other")
