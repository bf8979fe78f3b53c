"""The rules that keep the name server's port, in the kernel."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator

import pytest

from minik8s_modules.module_utils.minik8s.names.dns_guard import BROKEN, NOWHERE, Place, guard, observe, table_of

PLACES = (Place("169.254.77.7", 53), Place("fd00:169:254:77::7", 5353))


@pytest.fixture
def node() -> Iterator[str]:
    name = f"n-{uuid.uuid4().hex[:8]}"
    try:
        yield name
    finally:
        guard(name, NOWHERE)


def nft(*words: str) -> None:
    subprocess.run(["nft", *words], check=True)


@pytest.mark.parametrize("place", PLACES)
def test_only_whole_rules_of_its_port_count(node: str, place: Place) -> None:
    family = "ip6" if ":" in place.address else "ip"
    table, kept = (family, table_of(node)), f"{family} daddr {place.address}"
    rules = [f"{kept} {each} dport {place.port} dnat to {place.address}" for each in ("udp", "tcp")]
    assert observe(node) == NOWHERE
    hook = "type nat hook {} priority {}; policy accept;"
    spoilt = {
        "where others come first": ("prerouting", hook.format("prerouting", 50), rules),
        "where nothing passes": ("output", "", rules),
        "of one protocol": ("prerouting", hook.format("prerouting", -110), rules[:1]),
        "of all ports": ("output", hook.format("output", -110), [f"{kept} dnat to {place.address}"]),
    }
    for what, (chain, hanging, body) in spoilt.items():
        guard(node, place)
        assert observe(node) == place
        nft("delete", "chain", *table, chain)
        nft("add", "chain", *table, chain, *([f"{{ {hanging} }}"] if hanging else []))
        for rule in body:
            nft("add", "rule", *table, chain, *rule.split())
        assert observe(node) == BROKEN, what
    other = next(each for each in PLACES if each != place)
    guard(node, other)
    assert observe(node) == other, "that of the other family is gone"
    guard(node, NOWHERE)
    assert observe(node) == NOWHERE
