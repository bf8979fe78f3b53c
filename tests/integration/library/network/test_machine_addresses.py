"""Which IPv6 address a machine tells, on a real kernel; and preflight sees one exactly where there is one."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node import command

ROOT = Path(__file__).resolve().parents[4]
TELL = """
from minik8s_modules.module_utils.minik8s.install.facts import internal_ip, internal_ipv6
from minik8s_modules.module_utils.minik8s.install.ranges import has_machine_address
print(internal_ip() or "-", internal_ipv6() or "-", has_machine_address())
"""
WITH_IPV4 = ("addr add 192.0.2.5/24 dev eth0", "route add default via 192.0.2.1 dev eth0")


@pytest.fixture
def machine() -> Iterator[str]:
    name = f"mk8t{uuid.uuid4().hex[:6]}"
    command("ip", "netns", "add", name)
    try:
        for device in ("eth0", "eth1"):
            command("ip", "-n", name, "link", "add", device, "type", "veth", "peer", f"{device}p")
            for end in (device, f"{device}p"):
                command("ip", "-n", name, "link", "set", end, "up")
        yield name
    finally:
        with contextlib.suppress(AssertionError):
            command("ip", "netns", "del", name)


LATER, SOON = "nodad valid_lft 900 preferred_lft 600", "nodad valid_lft 900 preferred_lft 0"
CASES: list[tuple[list[str], str]] = [
    ([], "- - False"),
    ([*WITH_IPV4], "192.0.2.5 - False"),  # link-local alone
    ([*WITH_IPV4, "addr add fd00::5/64 dev eth0 nodad"], "192.0.2.5 fd00::5 True"),
    ([*WITH_IPV4, "addr add fd00::5/64 dev eth1 nodad"], "192.0.2.5 - False"),
    (
        [
            *WITH_IPV4,
            "addr add fd00::5/64 dev eth0 nodad",
            "addr add fd00:1::6/64 dev eth1 nodad",
            "-6 route add default via fd00:1::1 dev eth1",
        ],
        "192.0.2.5 fd00:1::6 True",
    ),
    (
        [*WITH_IPV4, f"addr add fd00::5/64 dev eth0 {SOON}", f"addr add fd00::6/64 dev eth0 {LATER}"],
        "192.0.2.5 fd00::6 True",
    ),
    (
        [*WITH_IPV4, f"addr add fd00::5/64 dev eth0 {LATER}", "addr add fd00::6/64 dev eth0 nodad"],
        "192.0.2.5 fd00::6 True",
    ),
    (["addr add fd00::5/64 dev eth0 nodad", "-6 route add default via fd00::1 dev eth0"], "- fd00::5 True"),
    ([*WITH_IPV4, "-6 route add unreachable default metric 99"], "192.0.2.5 - False"),
]


@pytest.mark.parametrize(("made", "told"), CASES)
def test_a_machine_tells_an_address_that_others_can_know_it_by(machine: str, made: list[str], told: str) -> None:
    for line in made:
        command("ip", "-n", machine, *line.split())
    argv = ["ip", "netns", "exec", machine, sys.executable, "-c", TELL]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == told
