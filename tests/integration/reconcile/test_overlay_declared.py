"""With the driver vxlan, a Node that comes and goes changes every node's ways: the whole path, on a real kernel."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.kinds import NODE
from tests.integration.reconcile.conftest import Cluster
from tests.integration.reconcile.harming import Harm, healed, watching
from tests.support.etcd import free_port
from tests.support.node import command


class Overlaid(Cluster):
    """A cluster of two /24 whose nodes reach each other by VXLAN."""

    def _configs(self) -> dict[str, dict[str, Any]]:
        found = super()._configs()
        self.net, third = self.node.range.rsplit(".", 1)
        self.first = int(third) & ~1
        self.device = f"{self.node.bridge[:12]}vx"
        overlay = {"driver": "vxlan", "device": self.device, "port": free_port(), "vni": 77, "mtu": 1280}
        found["reconcile"].update(cluster_cidr=f"{self.net}.{self.first}.0/23", network=overlay)
        return found

    def ways(self) -> tuple[str, str]:
        """Return the forwarding table and the routes of the overlay's device."""
        fdb = command("bridge", "fdb", "show", "dev", self.device)
        return fdb, command("ip", "route", "show", "dev", self.device)

    def is_led(self, address: str) -> bool:
        """Return whether the kernel knows that the device's one next hop is on the machine ``address``."""
        hops = command("ip", "neigh", "show", "dev", self.device, "nud", "permanent")
        return address in self.ways()[0] and len(hops.splitlines()) == 1


@pytest.fixture
def cluster() -> Iterator[Overlaid]:
    made = Overlaid(Path(tempfile.mkdtemp(prefix="mk8s-")))
    try:
        made.start()
        made.until(made.registered, 60)
        yield made
    finally:
        made.close()
        shutil.rmtree(made.folder, ignore_errors=True)


def test_a_node_that_comes_is_reached_whatever_is_deleted_and_one_that_goes_is_forgotten(
    cluster: Overlaid,
) -> None:
    cluster.until(lambda: cluster.device in cluster.node.links(), 60)
    assert cluster.ways() == ("", "")
    cidr, address = f"{cluster.net}.{cluster.first + 1}.0/24", "198.51.100.7"
    cluster.admin.create(NODE, {"metadata": {"name": "far"}, "spec": {"podCIDR": cidr, "podCIDRs": [cidr]}})
    fields = {"status": {"addresses": [{"type": "InternalIP", "address": address}]}}
    cluster.admin.patch(NODE, "far", "", fields, subresource="status")
    cluster.until(lambda: address in cluster.ways()[0] and cidr in cluster.ways()[1], 60)
    cluster.until(lambda: watching(cluster), 120)
    forget = f"bridge fdb del $(bridge fdb show dev {cluster.device} | cut -d ' ' -f 1) dev {cluster.device}; "
    forget += f"ip neigh flush dev {cluster.device} nud permanent"
    assert not healed(cluster, "network")
    harm = Harm(lambda: cluster.is_led(address), "sh", "-c", forget)
    cluster.until(lambda: harm.done_until(cluster, "network"), 120)
    cluster.until(lambda: cluster.is_led(address), 60)
    cluster.admin.delete(NODE, "far")
    cluster.until(lambda: cluster.ways() == ("", ""), 60)
