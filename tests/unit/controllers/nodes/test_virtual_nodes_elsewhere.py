"""What is said of machines is not said of virtual nodes: no nginx, no cAdvisor and no ssh is there."""

from __future__ import annotations

from typing import Any

from minik8s_modules.controllers.network.ingresses import node_addresses
from minik8s_modules.monitoring.targets import decide_node
from minik8s_modules.plugins.cluster.hosts import node_hosts


def _node(name: str, address: str, **labels: str) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"addresses": [{"type": "InternalIP", "address": address}], "conditions": conditions}
    return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status}


MACHINE, FAR = _node("n1", "192.0.2.1"), _node("far", "192.0.2.7", type="virtual-kubelet")


def test_a_host_is_not_answered_by_a_virtual_node() -> None:
    assert node_addresses([MACHINE, FAR]) == ["192.0.2.1"]


def test_prometheus_asks_no_virtual_node_for_cadvisor() -> None:
    assert decide_node(MACHINE).content
    assert not decide_node(FAR).content


def test_a_virtual_node_is_no_host_of_a_playbook() -> None:
    assert [host.name for host in node_hosts([MACHINE, FAR])] == ["n1"]
