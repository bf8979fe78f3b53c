"""What nodes can do: the self-test of both kinds, and Ansible on three nodes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import leftovers, selftest
from tests.lab.lab import Lab
from tests.lab.parts import kernels
from tests.lab.places import PROJECT
from tests.lab.records import Kind

# These come from the host's kernel, and may lack on another host; so may all of a native node's.
ALWAYS = {"systemd is PID 1 and content", "has no way out", "dockerd with overlay2", "memory limit kills"}
# Debian configures its UML kernels without nftables for IPv4.
NFTABLES = {"nftables DNAT", "nftables service map, random backend", "iptables on nftables"}


@pytest.mark.parametrize("kind", ["native", "uml"])
def test_nodes_can_do_what_their_kernel_has(lab: Lab, kind: Kind) -> None:
    lab.up(2, kind)
    found = {finding.ability: finding for finding in selftest.find(lab)}
    assert {name: one.output for name, one in found.items() if one.result == "FAILED"} == {}
    assert {name for name in ALWAYS if found[name].result != "yes"} == set()
    if kind == "uml":
        kernel = kernels.Kernel(Path(lab.machine("node1").node.kernel))
        lacking = NFTABLES if kernel.libraries else set()
        assert {name for name, one in found.items() if one.result == "no"} == lacking


@pytest.mark.parametrize("kind", ["native", "uml"])
def test_ansible_pings_three_nodes(lab: Lab, kind: Kind) -> None:
    lab.up(3, kind)
    done = subprocess.run(
        [
            Path(sys.executable).parent / "ansible",
            "-i",
            lab.inventory,
            "nodes",
            "-m",
            "ansible.builtin.ping",
        ],
        cwd=PROJECT,
        env={**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = sorted(line.split(" | ")[0] for line in done.stdout.splitlines() if "SUCCESS" in line)
    assert answers == ["node1", "node2", "node3"]
    lab.down()
    assert leftovers.find(lab.places, lab.name) == []
