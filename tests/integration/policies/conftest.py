"""A lab node with a kernel of its own, as for Services, and a network namespace with the nine Pods."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.policies.policed import ADDRESSES, Policed
from tests.integration.services.conftest import lab
from tests.integration.services.machines import namespace

__all__ = ["lab"]


@pytest.fixture(scope="module")
def machine() -> Iterator[Policed]:
    with namespace("nftables") as made:
        made.__class__ = Policed
        made.call("pods", bridge="mk8s-br0", gateway="10.32.0.1", pods=ADDRESSES)
        # else the kernel says once a second to each sender that UDP was refused, and tests wait for silence
        made.shell(["sysctl", "-w", "net.ipv4.icmp_ratelimit=0"])
        made.shell(["sysctl", "-w", "net.bridge.bridge-nf-call-iptables=0"])  # so that the bridge's own switch counts
        assert isinstance(made, Policed)
        yield made


@pytest.fixture
def policed(machine: Policed) -> Iterator[Policed]:
    yield machine
    machine.converge(entries={})
    assert machine.rules() == ""
