"""The rules against forged sources in a kernel, in a network of the test's own: what is not as written is told.

All that follows is written by somebody else, and each lets pods forge, or may: with as many rules that drop as before.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.module_utils.minik8s.network import sources
from minik8s_modules.module_utils.minik8s.network.netlink import inside_of, netns_of
from minik8s_modules.module_utils.minik8s.network.nftables_wire import NEW_CHAIN, commit, fingerprints, named
from minik8s_modules.module_utils.minik8s.network.sources import Pair
from minik8s_modules.module_utils.minik8s.network.wire import CREATE, NETFILTER, Wire, attribute, message, text
from minik8s_modules.module_utils.minik8s.volumes import mounts

NODE, BRIDGE = "n1", "mk8s-br0"
FIRST, SECOND, THIRD = (Pair(f"mk8s-0000000{number}", f"10.244.0.{number}") for number in (1, 2, 3))
TABLE = f"bridge {sources.table_of(BRIDGE)}"
HOOK = "type filter hook prerouting priority"
WIDER = [rule.replace("arp }", "arp, vlan }") for rule in sources.RULES]
HARMS = {
    "switched off": [f"add table {TABLE} {{ flags dormant; }}"],
    "one kind of frame more": [
        f"flush chain {TABLE} arriving",
        *(f"add rule {TABLE} arriving {rule}" for rule in WIDER),
    ],
    "another policy": [f"add chain {TABLE} passing {{ type filter hook forward priority -300; policy drop; }}"],
    "another priority": [
        f"flush chain {TABLE} arriving",
        f"delete chain {TABLE} arriving",
        f"add chain {TABLE} arriving {{ {HOOK} 0; }}",
        *(f"add rule {TABLE} arriving {rule}" for rule in sources.RULES),
    ],
    "a chain in front": [
        f"add chain {TABLE} marks",
        f"add rule {TABLE} marks meta mark set {sources.REDIRECTED_BIT:#x}",
        f"add chain {TABLE} front {{ {HOOK} -400; }}",
        f"add rule {TABLE} front jump marks",
    ],
    "a rule in front": [f"insert rule {TABLE} arriving accept"],
    "switched off, and a chain less": [
        f"flush chain {TABLE} passing",
        f"delete chain {TABLE} passing",
        f"add table {TABLE} {{ flags dormant; }}",
    ],
    "a chain that a verdict map jumps to": [
        f"add chain {TABLE} other",
        f"add map {TABLE} leads {{ type ifname : verdict; }}",
        f'add element {TABLE} leads {{ "x" : jump other }}',
    ],
    "a chain that a rule alone has": [f'insert rule {TABLE} arriving iifname "x" jump {{ accept; }}'],
    "no table": [f"delete table {TABLE}"],
}


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    argv = ["unshare", "--net", "sh", "-c", "echo ready; exec sleep 60"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            with inside_of(netns_of(process.pid)):
                yield
        finally:
            process.kill()


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    texts = list[str]()
    write = sources._nft

    def writing(text: str) -> bool:
        texts.append(text)
        return write(text)

    monkeypatch.setattr(sources, "_nft", writing)
    return texts


def nft(*lines: str) -> str:
    done = subprocess.run(["nft", "-s", "-f", "-"], input="\n".join(lines), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rules() -> str:
    """Return the chains of the table, and whether it is switched off."""
    shown = nft(f"list table {TABLE}")
    return shown[: shown.index("set ")] + shown[shown.index("chain ") :]


def admit(folder: Path, pair: Pair) -> bool:
    return sources.admit(str(folder), NODE, BRIDGE, pair)


def holds(folder: Path, *pairs: Pair) -> bool:
    guard = sources.guard_of(str(folder), NODE, BRIDGE)
    assert guard is not None
    return all(guard.holds(pair) for pair in pairs)


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_what_is_not_as_it_was_written_is_told_and_put_right(
    tmp_path: Path, written: list[str], harm: list[str]
) -> None:
    assert admit(tmp_path, FIRST)
    as_written = rules()
    assert holds(tmp_path, FIRST)
    for line in harm:
        nft(line)
    assert not holds(tmp_path, FIRST)
    del written[:]
    assert admit(tmp_path, SECOND)
    assert written
    assert rules() == as_written
    assert holds(tmp_path, SECOND)
    assert admit(tmp_path, FIRST)  # the table may have been gone
    assert holds(tmp_path, FIRST, SECOND)
    del written[:]
    assert admit(tmp_path, THIRD)
    assert written == []
    assert holds(tmp_path, FIRST, SECOND, THIRD)


def test_what_cannot_be_deleted_keeps_no_rule_out_and_is_told(tmp_path: Path) -> None:
    assert admit(tmp_path, FIRST)
    as_written = rules()
    nft(f"flush chain {TABLE} arriving")
    with Wire(NETFILTER) as wire:  # nft takes no such name
        commit(wire, [message(NEW_CHAIN, CREATE, named(TABLE) + text(3, "drop"))])
    assert admit(tmp_path, SECOND)
    without = "".join(rules().split()).replace("chaindrop{}", "")
    assert without == "".join(as_written.split())
    assert not holds(tmp_path, SECOND)
    nft(f"delete table {TABLE}")
    assert admit(tmp_path, SECOND)
    assert holds(tmp_path, SECOND)


def test_a_table_that_cannot_be_written_admits_nobody(tmp_path: Path) -> None:
    nft(f"add table {TABLE}", f"add set {TABLE} own {{ type ipv4_addr; }}")
    assert not admit(tmp_path, FIRST)
    assert not holds(tmp_path, FIRST)


def test_an_address_beside_a_devices_own_is_told_and_forgotten(tmp_path: Path) -> None:
    dual = FIRST._replace(ipv6="fd00:1::1")
    others = [f'add element {TABLE} own {{ "{FIRST.device}" . 10.244.0.9 }}']
    others.append(f'add element {TABLE} own_ipv6 {{ "{FIRST.device}" . fd00:1::9 }}')
    assert admit(tmp_path, dual)
    assert admit(tmp_path, SECOND)
    for other in others:
        nft(other)
        assert not holds(tmp_path, dual)
        assert holds(tmp_path, SECOND)
        sources.dismiss_others(BRIDGE, dual)
        assert holds(tmp_path, dual, SECOND)
    nft(*others)
    sources.dismiss_others(BRIDGE, FIRST)  # that of IPv6 goes last, by a hand of its own
    assert sources.ipv6_of(BRIDGE, FIRST.device) == ["fd00:1::1", "fd00:1::9"]
    sources.dismiss_ipv6(BRIDGE, FIRST.device)
    assert holds(tmp_path, FIRST, SECOND)


def test_what_the_kernel_does_not_tell_is_no_drift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert admit(tmp_path, FIRST)
    with monkeypatch.context() as patched:
        patched.setattr(sources, "NETFILTER", 31)  # a kind of netlink that no kernel has
        assert sources._seen(BRIDGE) is None
        assert holds(tmp_path, FIRST)
        assert admit(tmp_path, SECOND)
    assert holds(tmp_path, FIRST, SECOND)


def test_where_nobody_noted_what_was_written_the_rules_that_drop_are_counted(tmp_path: Path) -> None:
    assert admit(tmp_path, FIRST)
    assert holds(tmp_path / "empty", FIRST)
    nft(f"flush chain {TABLE} arriving")
    assert not holds(tmp_path / "empty", FIRST)


def test_a_full_disk_fails_no_pod_and_the_next_one_writes_again(tmp_path: Path, written: list[str]) -> None:
    mounts.mount_tmpfs(str(tmp_path), "0700", os.sysconf("SC_PAGE_SIZE"))
    try:
        (tmp_path / "full").write_bytes(bytes(os.sysconf("SC_PAGE_SIZE")))
        for number, pair in enumerate((FIRST, SECOND), start=1):
            assert admit(tmp_path, pair)
            assert len(written) == number
            assert holds(tmp_path, pair)
        (tmp_path / "full").unlink()
        assert admit(tmp_path, THIRD)
        assert len(written) == 3
        assert admit(tmp_path, THIRD)
        assert len(written) == 3
        assert holds(tmp_path, FIRST, SECOND, THIRD)
        # there is no room for a second record beside the first, which is of other rules
        assert sources.admit(str(tmp_path), "n2", BRIDGE, FIRST)
        assert len(written) == 4
        guard = sources.guard_of(str(tmp_path), "n2", BRIDGE)
        assert guard is not None
        assert guard.holds(FIRST)
    finally:
        mounts.unmount(str(tmp_path))


def test_a_bridge_that_goes_is_noted_no_more(tmp_path: Path) -> None:
    assert admit(tmp_path, FIRST)
    assert sources.admit(str(tmp_path), NODE, "other", SECOND)
    sources.remove(str(tmp_path), BRIDGE)
    assert sources.found(BRIDGE) == sources.Guard()
    assert [*sources._known(str(tmp_path))] == ["other"]
    sources.remove(str(tmp_path), BRIDGE)
    sources.remove(str(tmp_path / "empty"), "other")
    assert not (tmp_path / "empty").exists()


def test_the_digest_of_one_chain_tells_of_its_table_and_its_sets_too() -> None:
    def seen() -> dict[str, str]:
        with Wire(NETFILTER) as wire:
            return fingerprints(wire, "bridge t", "c")

    nft("add table bridge t", "add chain bridge t c", "add rule bridge t c ether type vmap { ip : drop, arp : accept }")
    first = seen()
    nft("flush chain bridge t c", "add rule bridge t c ether type vmap { ip : accept, arp : accept }")
    second = seen()
    nft("add table bridge t { flags dormant; }")
    assert len({*first.values(), *second.values(), *seen().values()}) == 3
    nft("add table bridge t")
    assert seen() == second


def test_a_listing_that_ended_with_an_error_is_none() -> None:
    head = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, 0, 0, 0)
    with Wire(0) as wire:
        assert wire.dump(18, head)
        with pytest.raises(OSError, match="list: "):
            wire.dump(18, head + attribute(46, struct.pack("=i", 4242)))  # IFLA_TARGET_NETNSID


def test_an_answer_to_another_request_is_no_part_of_a_listing() -> None:
    head = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, 1, 0, 0)
    with Wire(0) as wire:
        wire.send(struct.pack("=IHHII", 16 + len(head), 18, 1, 2**31, 0) + head)  # the loopback's link, unread
        assert len(wire.dump(18, head)) == 1
