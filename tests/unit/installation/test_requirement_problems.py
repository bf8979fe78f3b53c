"""What a machine must have before anything on it is changed."""

from __future__ import annotations

import socket

import pytest

from minik8s_modules.module_utils.minik8s.requirements import Machine, Needed, observe_machine, problems

NEEDED = Needed(ports=(6443, 2379), memory_mb=900, python=(3, 11), debian=12)
GOOD = Machine(0, "debian", "12", (3, 11), 2000, {}, ())


@pytest.mark.parametrize(
    "machine",
    [GOOD, GOOD._replace(version="13"), GOOD._replace(listeners={2379: "/usr/bin/etcd -c /etc/minik8s/etcd.yml"})],
)
def test_a_machine_that_will_do(machine: Machine) -> None:
    assert problems(machine, NEEDED) == []


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (GOOD._replace(user_id=1000), "as root"),
        (GOOD._replace(distribution="ubuntu", version="24.04"), "ubuntu 24.04"),
        (GOOD._replace(version="11"), "debian 11"),
        (GOOD._replace(distribution="debian", version=""), "Debian 12"),
        (GOOD._replace(python=(3, 9)), "3.9"),
        (GOOD._replace(memory_mb=512), "512 MB"),
        (GOOD._replace(listeners={6443: "/usr/bin/k3s server"}), "port 6443 is taken by /usr/bin/k3s server"),
        (GOOD._replace(listeners={6443: ""}), "another process"),
        (GOOD._replace(missing=("veth devices",)), "lacks veth devices"),
    ],
)
def test_each_gap_is_told(machine: Machine, words: str) -> None:
    found = problems(machine, NEEDED)
    assert len(found) == 1
    assert words in found[0]


def test_all_gaps_are_told_at_once() -> None:
    assert len(problems(Machine(1, "", "", (3, 8), 1, {6443: "x", 2379: "y"}, ("nftables",)), NEEDED)) == 7


def test_the_listener_of_a_port_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert "python" in observe_machine([port, 1]).listeners[port]
    assert observe_machine([port]).listeners == {}
