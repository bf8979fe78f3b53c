"""Which servers a node's own one asks for other names."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.names.dns import _silence
from minik8s_modules.module_utils.minik8s.names.dns_entries import SERVER, check_entry
from minik8s_modules.module_utils.minik8s.names.dns_files import corefile, resolver_servers

OWN = "169.254.20.10"


def resolv_conf(*servers: str) -> str:
    return "".join(f"nameserver {one}\n" for one in servers) + "search example\noptions ndots:2\n"


@pytest.mark.parametrize(
    ("servers", "asked"),
    [
        (["192.0.2.53", "192.0.2.54"], ["192.0.2.53", "192.0.2.54"]),
        # as before there were others: those of IPv6 are of the same network
        (["fd00::53", "192.0.2.53"], ["192.0.2.53"]),
        (["fd00::53", "2001:db8::53"], ["fd00::53", "2001:db8::53"]),
        ([OWN, "fd00::53"], ["fd00::53"]),
        (["fe80::1%eth0", "fe80::1", "::53x"], []),
        (["fd00::1", "fd00::2", "fd00::3", "fd00::4"], ["fd00::1", "fd00::2", "fd00::3"]),
        ([], []),
    ],
)
def test_a_machine_without_ipv4_asks_its_servers_of_ipv6(servers: list[str], asked: list[str]) -> None:
    assert resolver_servers(resolv_conf(*servers), OWN) == asked


CONFIG: dict[str, Any] = {"listen": OWN, "port": 53, "domain": "cluster.local", "host_resolver": False}


def test_coredns_is_told_addresses_of_both_families() -> None:
    check_entry(SERVER, {**CONFIG, "forward": ["192.0.2.53", "fd00::53"]})
    assert "    forward . 192.0.2.53 fd00::53\n" in corefile(CONFIG, ["192.0.2.53", "fd00::53"], "/x")


@pytest.mark.parametrize(("listen", "place"), [(OWN, f"{OWN}:53"), ("fd00:169:254:20::10", "[fd00:169:254:20::10]:53")])
def test_where_no_server_answers_is_told_as_people_write_it(listen: str, place: str) -> None:
    assert f"no DNS server answers at {place}; " in _silence({**CONFIG, "listen": listen})


@pytest.mark.parametrize("server", ["fd00::53%eth0", "fd00::zz", "ns.example", "1.2.3"])
def test_what_is_no_address_is_refused(server: str) -> None:
    with pytest.raises(KeyFault, match="forward"):
        check_entry(SERVER, {**CONFIG, "forward": [server]})
