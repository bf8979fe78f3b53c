"""What somebody changes on a node is put right soon, because the node's kernel tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import EVENT, NETWORK_POLICY, POD
from minik8s_modules.module_utils.minik8s.network.attachment import link_name
from minik8s_modules.module_utils.minik8s.network.sources import table_of
from tests.integration.reconcile.conftest import Cluster, running
from tests.integration.reconcile.harming import Harm, command, watching


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster of its own, that has healed nothing yet."""
    with running() as made:
        yield made


def test_a_deleted_link_and_a_deleted_table_come_back_by_themselves(cluster: Cluster):
    cluster.create("linked")
    cluster.until(lambda: cluster.ready("linked"))
    wall = {"metadata": {"name": "wall", "namespace": "default"}, "spec": {"podSelector": {}}}
    cluster.admin.create(NETWORK_POLICY, wall)
    cluster.until(lambda: watching(cluster), 120)
    link = link_name(cluster.pod("linked")["metadata"]["uid"])
    table, policies = (f"minik8s_{each}{cluster.node.bridge}" for each in ("", "policies_"))
    for module, is_whole, argv in (
        ("sandboxes", lambda: link in command("ip", "-o", "link"), ("ip", "link", "del", link)),
        ("services", lambda: table in command("nft", "list", "tables"), ("nft", "delete", "table", "ip", table)),
        ("policies", lambda: policies in command("nft", "list", "tables"), ("nft", "delete", "table", "ip", policies)),
    ):
        harm = Harm(is_whole, *argv)
        cluster.until(partial(harm.done_until, cluster, module))
        cluster.until(is_whole)
    assert cluster.container("linked")["restartCount"] == 0
    cluster.admin.delete(NETWORK_POLICY, "wall", "default")
    cluster.delete("linked", grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])


def test_a_second_address_of_a_pods_device_goes_by_itself(cluster: Cluster):
    cluster.create("forging")
    cluster.until(lambda: cluster.ready("forging"))
    cluster.until(lambda: watching(cluster), 120)
    device, table = link_name(cluster.pod("forging")["metadata"]["uid"]), table_of(cluster.node.bridge)

    def is_whole() -> bool:
        return "192.0.2.99" not in command("nft", "list", "set", "bridge", table, "own")

    harm = Harm(is_whole, "nft", f'add element bridge {table} own {{ "{device}" . 192.0.2.99 }}')

    def is_put_right() -> bool:
        harm.done_until(cluster, "sandboxes")
        found = cluster.admin.list(EVENT, "default", field_selector="involvedObject.kind=Node,reason=DriftHealed").items
        return any(f"{device} sends as" in one["message"] for one in found)

    cluster.until(is_put_right)
    cluster.until(is_whole)
    cluster.delete("forging", grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])


def annotate(cluster: Cluster, name: str, policy: str) -> None:
    """Give a Pod a policy for drift."""
    cluster.admin.patch(POD, name, "default", {"metadata": {"annotations": {"minik8s.io/drift": policy}}})


def why_unready(cluster: Cluster, name: str) -> object:
    """Return the reason of the Pod's condition Ready while it is not."""
    ready = objects.condition(cluster.pod(name), "Ready") or {}
    return ready.get("reason") if ready.get("status") == "False" else None


def test_a_link_whose_loss_is_only_reported_stays_away_until_it_is_to_be_healed(cluster: Cluster):
    cluster.create("held")
    cluster.until(lambda: cluster.ready("held"))
    annotate(cluster, "held", "report")
    cluster.until(lambda: watching(cluster), 120)
    link = link_name(cluster.pod("held")["metadata"]["uid"])
    harm = Harm(lambda: link in command("ip", "-o", "link"), "ip", "link", "del", link)

    def is_reported() -> bool:
        harm.done_until(cluster, "sandboxes")
        found = cluster.admin.list(EVENT, "default", field_selector="involvedObject.kind=Pod,reason=DriftFound").items
        return any("left so by minik8s.io/drift: report" in one["message"] for one in found)

    cluster.until(is_reported)
    cluster.until(lambda: why_unready(cluster, "held") == "NetworkNotReady")
    cluster.create("beside")
    cluster.until(lambda: cluster.ready("beside"))
    assert link not in command("ip", "-o", "link"), "a pass for another Pod is no reason to heal"
    annotate(cluster, "held", "heal")
    cluster.until(lambda: cluster.ready("held"))
    assert link in command("ip", "-o", "link")
    for name in ("held", "beside"):
        cluster.delete(name, grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])
