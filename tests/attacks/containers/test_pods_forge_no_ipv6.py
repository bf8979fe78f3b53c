"""A pod that may do what it likes in its own network sends with its own IPv6 address alone, and to its node alone."""

from __future__ import annotations

from pathlib import Path

from tests.support.dual_stack import Machine, two_machines


def test_a_pod_passes_as_nobody_else(tmp_path: Path) -> None:
    with two_machines(tmp_path) as (one, _two):
        _attack(one)


def _attack(one: Machine) -> None:
    one.run("network", one.network())
    one.start(7, 8)
    stolen = one.ip_of(9)
    assert one.pod(7, "ip", "-6", "addr", "add", f"{stolen}/128", "dev", "eth0", "nodad").returncode == 0
    one.inside("ip", "neigh", "add", stolen, "dev", "mk8t-br", "lladdr", "0a:58:0a:4d:01:07")
    assert one.reaches(7, one.ip_of(8), source=one.ip_of(7))
    assert one.is_cut_off(7, one.ip_of(8), source=stolen)
    # past the node, from port to port of its bridge
    one.pod(7, "ip", "-6", "route", "add", one.ip_of(8), "dev", "eth0")
    one.pod(7, "ip", "neigh", "add", one.ip_of(8), "dev", "eth0", "lladdr", "0a:58:0a:4d:01:08")
    assert one.is_cut_off(7, one.ip_of(8), source=one.ip_of(7))
