"""The pressure that a real pod's cgroup tells: a container that may not run as much as it wants to waits for CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from minik8s_modules.gateway.inventory import NodeAddress
from minik8s_modules.gateway.links import LocalLink
from minik8s_modules.gateway.pod_pressure import PodPressures
from minik8s_modules.module_utils.minik8s.core.memory_events import ROOT
from tests.support.node import TestNode
from tests.support.waiting import until

TOLD = [Path(ROOT, "cgroup.controllers"), Path(ROOT, "unified", "cgroup.controllers")]


@pytest.mark.skipif(not Path("/proc/pressure").exists(), reason="this kernel tells no pressure")
def test_a_pod_that_may_use_little_cpu_waits_for_it(node: TestNode) -> None:
    pod = node.pod(7, cgroup={"cpu_shares": 2, "cpu_quota_us": 1000, "memory_bytes": 0, "pids": 0})
    busy = node.container(pod, entrypoint=["sh", "-c", "while :; do :; done"])
    uid = pod["pod"]["uid"]
    node.run("network", node.network())
    assert not node.run("sandboxes", {uid: pod})["errors"]
    assert not node.run("containers", {f"{uid}/app": busy})["errors"]
    read = LocalLink(NodeAddress(node.name, "warm_local")).read
    if not any(path.exists() for path in TOLD):
        assert PodPressures(node.name, read).of({uid}, 1.0) == {}
        return

    def waited_us() -> int:
        resources = PodPressures(node.name, read).of({uid}, 1.0)[uid].resources
        assert resources.keys() == {"cpu", "memory", "io"}
        return int(resources["cpu"]["some"]["total_us"])

    first = waited_us()
    until(lambda: waited_us() > first)
