"""What switches of IPv6 were before a node turned them is known until they are given back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minik8s_modules.module_utils.minik8s.network import ipv6_switches, switches

BEFORE = {"all": ("0", "1"), "default": ("0", "1"), "eth0": ("0", "1"), "eth1": ("1", "0"), "mk8s-br0": ("0", "1")}


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, (forwarding, accept_ra) in BEFORE.items():
        folder = tmp_path / "net/ipv6/conf" / name
        folder.mkdir(parents=True)
        (folder / "forwarding").write_text(forwarding)
        (folder / "accept_ra").write_text(accept_ra)
    for module in (ipv6_switches, switches):
        monkeypatch.setattr(module, "SYSCTL", f"{tmp_path}/net/")
    return tmp_path / "net/ipv6/conf"


def read(kernel: Path, name: str) -> str:
    return (kernel / name).read_text()


def test_what_was_turned_goes_back(kernel: Path, tmp_path: Path) -> None:
    ipv6_switches.forward(str(tmp_path), "mk8s-br0")
    assert (read(kernel, "all/forwarding"), read(kernel, "eth0/accept_ra")) == ("1", "2")
    assert read(kernel, "mk8s-br0/accept_ra") == "1"
    first = ipv6_switches.recorded(str(tmp_path))
    ipv6_switches.forward(str(tmp_path), "mk8s-br0")  # what it was at first counts
    assert ipv6_switches.recorded(str(tmp_path)) == first
    assert first == {
        "ipv6/conf/all/forwarding": "0",
        "ipv6/conf/eth0/accept_ra": "1",
        "ipv6/conf/eth1/forwarding": "1",
    }
    (kernel / "eth1/forwarding").write_text("0")  # as the switch of all does
    ipv6_switches.give_back(str(tmp_path))
    assert (read(kernel, "all/forwarding"), read(kernel, "eth0/accept_ra")) == ("0", "1")
    assert read(kernel, "eth1/forwarding") == "1"
    assert ipv6_switches.recorded(str(tmp_path)) == {}


def test_a_machine_that_forwarded_before_goes_on(kernel: Path, tmp_path: Path) -> None:
    (kernel / "all/forwarding").write_text("1")
    ipv6_switches.forward(str(tmp_path), "mk8s-br0")
    ipv6_switches.give_back(str(tmp_path))
    assert read(kernel, "all/forwarding") == "1"


def test_what_somebody_else_turned_meanwhile_stays(kernel: Path, tmp_path: Path) -> None:
    ipv6_switches.forward(str(tmp_path), "mk8s-br0")
    (kernel / "eth0/accept_ra").write_text("0")
    ipv6_switches.give_back(str(tmp_path))
    assert read(kernel, "eth0/accept_ra") == "0"


def test_a_record_leads_to_no_other_file(kernel: Path, tmp_path: Path) -> None:
    names = ["ipv6/conf/../forwarding", "ipv6/conf/a/../b/forwarding", "ipv4/ip_forward", "ipv6/conf/eth0/mtu"]
    known = {**dict.fromkeys(names, "0"), "ipv6/conf/eth0/accept_ra": 1, "ipv6/conf/eth1/accept_ra": "x"}
    (tmp_path / ipv6_switches.RECORD).write_text(json.dumps(known))
    assert ipv6_switches.recorded(str(tmp_path)) == {}
