"""The tables of host ports in the kernel."""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Iterator

import pytest

from minik8s_modules.module_utils.minik8s.pods import host_ports
from minik8s_modules.module_utils.minik8s.pods.host_ports import Ports, Row

NETWORK, FORMER = "10.99.8.0/24", "10.99.7.0/24"
ROWS = frozenset({
    Row("tcp", "192.0.2.77", 47001, "10.99.8.7", 80), Row("udp", "2001:db8::77", 47001, "fd00:99::7", 80),
})  # fmt: skip


@pytest.fixture
def node() -> Iterator[str]:
    name = f"n-{uuid.uuid4().hex[:8]}"
    host_ports.change(name, Ports({}, whole=False), "pod", ROWS, NETWORK)
    try:
        yield name
    finally:
        host_ports.change(name, Ports({}, whole=False), "pod", frozenset(), "")


def nft(*words: str) -> str:
    return subprocess.run(["nft", *words], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("family", ["ip", "ip6"])
def test_a_chain_that_hangs_elsewhere_or_nowhere_is_not_whole(node: str, family: str) -> None:
    table = (family, host_ports.table_of(node))
    listing, replaced = nft("list", "table", *table), []
    for chain, kind in re.findall(r"chain (\w+) \{\n\t\ttype (\w+) hook", listing):
        at = host_ports.HOOKS[chain].split()[3]
        for hook in (f"{{ type {kind} hook {at} priority 7; policy accept; }}", ""):
            replaced.append(chain)
            rules = re.findall(r"^\t\t(?!type)(.+)$", nft("list", "chain", *table, chain), re.MULTILINE)
            assert host_ports.observe(node) == Ports({"pod": ROWS}, whole=True, network=NETWORK)
            nft("delete", "chain", *table, chain)
            nft("add", "chain", *table, chain, *([hook] if hook else []))
            for rule in rules:
                nft("add", "rule", *table, chain, *rule.split())
            assert not host_ports.observe(node).whole, (chain, hook)
            host_ports.change(node, host_ports.observe(node), "pod", ROWS, NETWORK)
    assert {"prerouting", "output", "postrouting"} < set(replaced)


def test_a_change_by_a_pod_of_ipv6_keeps_all_networks_of_ipv4(node: str) -> None:
    table = ("ip", host_ports.table_of(node))
    nft("add", "element", *table, "near", "{", FORMER, "}")
    other = frozenset({Row("tcp", "", 47002, "fd00:99::8", 80)})
    host_ports.change(node, host_ports.observe(node), "other", other, "")
    near = nft("list", "set", *table, "near")
    assert NETWORK in near
    assert FORMER in near
    assert host_ports.observe(node).rows == {"pod": ROWS, "other": other}
