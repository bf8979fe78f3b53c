"""Containers that the kernel kills for memory are told from others."""

from __future__ import annotations

import time
from typing import Any

from minik8s_modules.module_utils.minik8s.core import memory_events
from minik8s_modules.module_utils.minik8s.pods import pod_cgroup
from tests.support.node import TestNode

CGROUP = {"cpu_shares": 2, "cpu_quota_us": 0, "memory_bytes": 0, "pids": 0}


def test_a_container_killed_for_memory_is_told_from_one_that_was_killed(node: TestNode) -> None:
    pod = node.pod(7)
    hungry = {"memory_bytes": 16 << 20, "entrypoint": ["sh", "-c"]}
    ends = {
        "itself": (["exec tail /dev/zero"], (True, 137)),
        "again": (["exec tail /dev/zero"], (True, 137)),
        "child": (["tail /dev/zero; exit 3"], (True, 3)),
        "killed": (["exit 137"], (False, 137)),
        "well": (["true"], (False, 0)),
    }
    found = [node.container(pod, name, cmd=cmd, **hungry) for name, (cmd, _) in ends.items()]
    entries = {f"{pod['pod']['uid']}/{one['name']}": one for one in found}
    node.run("network", node.network())
    assert not node.run("sandboxes", {pod["pod"]["uid"]: {**pod, "cgroup": CGROUP}})["errors"]
    assert not node.run("containers", entries)["errors"]

    def reported() -> dict[str, Any]:
        status = node.run("containers", entries)["status"]
        return {one["container"]: one for one in status.values() if one["state"] == "exited"}

    end = time.monotonic() + 120
    while len(reported()) < len(ends):
        assert time.monotonic() < end, reported()
    ended = reported()
    assert {name: one["exit_code"] for name, one in ended.items()} == {
        name: code for name, (_, (_, code)) in ends.items()
    }
    killed = {name for name, one in ended.items() if one["oom_killed"]}
    wanted = {name for name, (_, (for_memory, _)) in ends.items() if for_memory}
    # on a busy machine Docker does not hear of each kill with version 1, see memory_events.py
    assert killed == wanted or (not memory_events.is_version_2() and killed and killed < wanted)
    # the next attempt of one that was killed starts from nothing
    again = node.container(pod, "itself", cmd=["true"], attempt=1, **hungry)
    node.run("containers", entries := {**entries, f"{pod['pod']['uid']}/itself": again})
    while "itself" not in reported():
        assert time.monotonic() < end, reported()
    assert not reported()["itself"]["oom_killed"]
    node.run("containers", {})
    node.run("sandboxes", {})
    assert pod_cgroup.left_over(node.name, []) == []
