"""Counted devices on real Docker: who has which, what drifts, what is not there."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core import labels
from tests.integration.library.test_containers_docker import only
from tests.support.node import TestNode

ZERO = os.makedev(1, 5)


@pytest.fixture
def zeros() -> Iterator[list[str]]:
    """Two devices of this test's own that are like /dev/zero, open to one group only."""
    paths = [f"/dev/minik8s-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    for path in paths:
        os.mknod(path, stat.S_IFCHR | 0o660, ZERO)
        Path(path).chmod(0o660)
        os.chown(path, 0, 4711)
    yield paths
    for path in paths:
        Path(path).unlink(missing_ok=True)


def of(paths: list[str], count: int = 1, **changes: Any) -> list[dict[str, Any]]:
    named = {"resource": "example.com/zero", "count": count, "paths": paths, "shared": False}
    return [{**named, "beside": [], "permissions": "rw", **changes}]


def devices(node: TestNode, status: Any) -> list[str]:
    found: Any = node.docker.inspect(status["id"])
    return [f"{each['PathOnHost']} {each['CgroupPermissions']}" for each in found["HostConfig"]["Devices"] or []]


def test_two_containers_never_have_one_device(node: TestNode, zeros: list[str]) -> None:
    pod = node.pod(7)
    uid = pod["pod"]["uid"]
    names = ("one", "two", "three")
    entries = {f"{uid}/{name}": node.container(pod, name, devices=of(zeros)) for name in names}
    for section, found in (("network", node.network()), ("sandboxes", {uid: pod})):
        node.run(section, found)
    planned = node.run("containers", entries, check=True)
    assert f"device {zeros[0]}: rw" in planned["diff"]["after"]
    result = node.run("containers", entries)
    late = f"{uid}/three"  # by the order in which they are declared
    assert {key: error["reason"] for key, error in result["errors"].items()} == {late: "DeviceMissing"}
    assert "2 of 2 are taken" in result["errors"][late]["message"]
    had = [devices(node, result["status"][f"{uid}/{name}"]) for name in ("one", "two")]
    assert had == [[f"{zeros[0]} rw"], [f"{zeros[1]} rw"]]
    del entries[f"{uid}/one"]
    leaving = node.run("containers", entries)
    # the removal may fail, or come after the start: until the next pass the device is not given
    assert ([step["action"] for step in leaving["steps"]], leaving["errors"]) == (["remove"], {})
    assert [(each["key"], each["reason"]) for each in leaving["due"]] == [(late, "DeviceInUse")]
    again = node.run("containers", entries)
    assert not again["errors"]
    assert devices(node, again["status"][late]) == [f"{zeros[0]} rw"]
    assert not node.run("containers", entries)["changed"]


def test_a_container_uses_its_device_without_being_root_and_no_other(node: TestNode, zeros: list[str]) -> None:
    _, containers = node.start_pod(7, devices=of(zeros[:1]), user="1000:1000")
    status = only(node.run("containers", containers)["status"])
    assert node.execute(status["id"], "sh", "-c", f"head -c 3 {zeros[0]} | wc -c").strip() == "3"
    there = node.execute(status["id"], "sh", "-c", f"test -e {zeros[1]} || echo no").strip()
    assert there == "no"


def test_a_next_attempt_keeps_the_device_also_if_another_is_free(node: TestNode, zeros: list[str]) -> None:
    pod, other = node.pod(7), node.pod(8)
    first, second = (f"{one['pod']['uid']}/app" for one in (pod, other))
    entries = {
        first: node.container(pod, devices=of(zeros)),
        second: node.container(other, devices=of(zeros)),
    }
    for section, found in (
        ("network", node.network()),
        ("sandboxes", {one["pod"]["uid"]: one for one in (pod, other)}),
    ):
        node.run(section, found)
    before = node.run("containers", entries)["status"]
    (moved,) = (key for key in entries if devices(node, before[key]) == [f"{zeros[1]} rw"])
    (left,) = entries.keys() - {moved}
    node.docker.kill(before[moved]["id"], "SIGKILL")
    kept = {moved: {**entries[moved], "attempt": 1}}
    after = node.run("containers", kept)  # the other one goes: its device is free
    assert left not in after["status"]
    assert after["status"][moved]["id"] != before[moved]["id"]
    assert devices(node, after["status"][moved]) == [f"{zeros[1]} rw"]


def test_a_delta_knows_what_containers_outside_of_it_have(node: TestNode, zeros: list[str]) -> None:
    _, containers = node.start_pod(7, devices=of(zeros))
    first = node.run("containers", containers)
    other = node.pod(8)
    uid = other["pod"]["uid"]
    node.run("sandboxes", {**{key.partition("/")[0]: node.pod(7) for key in containers}, uid: other})
    upsert = {f"{uid}/app": node.container(other, devices=of(zeros))}
    result = node.run("containers", mode="delta", base=first["digest"], upsert=upsert, delete=[])
    assert not result["errors"], result["errors"]
    assert devices(node, result["status"][f"{uid}/app"]) == [f"{zeros[1]} rw"]


def test_a_changed_setting_makes_the_container_again(node: TestNode, zeros: list[str]) -> None:
    _, containers = node.start_pod(7, devices=of(zeros[:1]))
    only(containers).update(devices=of(zeros[1:], permissions="r"))
    result = node.run("containers", containers)
    assert [step["action"] for step in result["steps"]] == ["remove", "create", "start"]
    assert f"device {zeros[0]}: rw" in result["diff"]["before"]
    assert devices(node, only(result["status"])) == [f"{zeros[1]} r"]
    assert node.docker.containers({labels.DEVICES: zeros[1]})


def test_a_device_that_is_gone_is_told_and_what_runs_stays(node: TestNode, zeros: list[str]) -> None:
    shared = of(zeros[:1], shared=True, beside=zeros[1:])
    _, containers = node.start_pod(7, devices=shared)
    before = only(node.run("containers", containers)["status"])
    Path(zeros[1]).unlink()
    result = node.run("containers", containers)
    assert only(result["errors"])["message"] == f"example.com/zero needs {zeros[1]}, which is no device of this node"
    assert (only(result["status"])["id"], only(result["status"])["state"]) == (before["id"], "running")


@pytest.mark.parametrize(
    "bad", [{"paths": ["/etc/shadow"]}, {"paths": []}, {"count": 0}, {"beside": [1]}, {"extra": 1}]
)
def test_an_entry_that_cannot_be_used_is_refused(node: TestNode, bad: dict[str, Any]) -> None:
    pod = node.pod(7)
    key = f"{pod['pod']['uid']}/app"
    result = node.run("containers", {key: node.container(pod, devices=[{**of(["/dev/zero"])[0], **bad}])}, check=True)
    assert result["errors"][key]["reason"] == "InvalidEntry"
