"""Garbage collection and eviction by the cases under tests/cases, and what pressure means for a node."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.reconcile.housekeeping import eviction, garbage, image_gc, pressure
from minik8s_modules.reconcile.housekeeping.eviction import Used
from minik8s_modules.reconcile.housekeeping.garbage import ContainerPolicy
from minik8s_modules.reconcile.housekeeping.image_gc import Image, ImagePlan, ImagePolicy, Record
from minik8s_modules.reconcile.housekeeping.pressure import Available
from minik8s_modules.reconcile.pods.observed import ObservedContainer, observation

CASES = Path(__file__).resolve().parents[3] / "cases"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def cases(name: str) -> list[Any]:
    return [
        pytest.param(yaml.safe_load(path.read_text()), id=path.stem) for path in sorted((CASES / name).glob("*.yml"))
    ]


def seen(kind: str, uid: str, name: str, ago_s: int, state: str, attempt: int) -> ObservedContainer:
    made = NOW - timedelta(seconds=ago_s)
    raw = {
        "id": f"{uid}/{name}@{ago_s}", "type": kind, "pod_uid": uid, "pod_name": "pod", "pod_namespace": "default",
        "container": name, "attempt": attempt, "state": state, "exit_code": 0, "oom_killed": False, "error": "",
        "created_at": made.isoformat(), "started_at": made.isoformat(), "finished_at": "", "image": "i",
        "image_id": "x", "ip": "",
    }  # fmt: skip
    return observation(raw, NOW)


def rows(case: JsonObject) -> list[ObservedContainer]:
    found = []
    for field, kind, state in (
        ("dead", "app", "exited"), ("running", "app", "running"), ("sandboxes", "sandbox", "exited")
    ):  # fmt: skip
        for unit, ages in (case.get(field) or {}).items():
            uid, _, name = unit.partition("/")
            found += [seen(kind, uid, name, age, state, number) for number, age in enumerate(ages)]
    return found


@pytest.mark.parametrize("case", cases("plan_container_gc"))
def test_containers(case):
    everything = rows(case)
    doomed = garbage.plan_containers(
        everything,
        frozenset(case["living"]),
        ContainerPolicy(**case["policy"]),
        NOW,
        sources_ready=case.get("sources_ready", True),
    )
    assert len(doomed) == len(set(doomed))
    left = sorted(one.id for one in everything if one.id not in doomed)
    expected = [(unit if "/" in unit else f"{unit}/", age) for unit, ages in case["left"].items() for age in ages]
    assert left == sorted(f"{unit}@{age}" for unit, age in expected)


@pytest.mark.parametrize("case", cases("plan_image_gc"))
def test_images(case):
    images, records = [], {}
    for name, row in case["images"].items():
        images.append(Image(name, tuple(row.get("names", [f"{name}:1"])), row["size"]))
        used = NOW - timedelta(seconds=row["used_ago"]) if "used_ago" in row else None
        records[name] = Record(NOW - timedelta(seconds=row.get("seen_ago", 1000)), used)
    in_use = frozenset(name for name, row in case["images"].items() if row.get("in_use"))
    records = image_gc.detect(records, images, in_use, NOW)
    plan = image_gc.plan_images(images, records, case["capacity"], case["usage"], ImagePolicy(**case["policy"]), NOW)
    assert (plan.to_free_bytes, list(plan.delete)) == (case["to_free"], case["delete"])
    assert (plan.problem[0] if plan.problem else None) == case.get("problem")


def test_records_of_images_that_are_gone_are_dropped_and_too_little_freed_is_told():
    records = image_gc.detect({"gone": Record(NOW)}, [Image("new", ("n:1",), 1)], frozenset(), NOW)
    assert records == {"new": Record(NOW)}
    assert image_gc.shortfall(ImagePlan(12), 12) is None
    text = "Failed to garbage collect required amount of images. Attempted to free 12 bytes"
    text += ", but only found 5 bytes eligible to free."
    assert image_gc.shortfall(ImagePlan(12), 5) == ("FreeDiskSpaceFailed", text)


def pod(name: str, row: JsonObject) -> JsonObject:
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "annotations": {"kubernetes.io/config.source": row.get("source", "api")},
        },
        "spec": {
            "priority": row["priority"],
            "containers": [{"name": "app", "resources": {"requests": _requests(row["request"])}}],
        },
        "status": {"phase": row.get("phase", "Running")},
    }


def _requests(amount: str) -> JsonObject:
    return {} if amount == "0" else {"memory": amount, "ephemeral-storage": amount}


@pytest.mark.parametrize("case", cases("rank_evictions"))
def test_evictions(case):
    pods = [pod(name, row) for name, row in case["pods"].items()]
    used = {
        name: Used(memory={"app": row.get("memory", 0) * 2**20}, storage={"app": row.get("storage", 0) * 2**20})
        for name, row in case["pods"].items()
    }
    (threshold,) = pressure.thresholds({case["signal"]: "100Mi"})
    chosen = None
    for order in (pods, pods[::-1]):
        chosen = eviction.choose(order, used, threshold, Available(50 * 2**20, 2**40))
        assert (chosen.pod["metadata"]["name"] if chosen else None) == case["evicted"]
    if "message" in case:
        assert chosen is not None
        assert chosen.message.strip() == case["message"]


def limited(**fields: Any) -> JsonObject:
    container = {"name": "app", "resources": {"limits": {"ephemeral-storage": fields.get("limit", "10Mi")}}}
    volumes = [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]
    return {
        "metadata": {"name": "p", "uid": "p"}, "spec": {"containers": [container], "volumes": volumes}, "status": {}
    }  # fmt: skip


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        (Used(volumes={"v": 2**20}), ""),
        (Used(volumes={"v": 2**20 + 1}), 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". '),
        (
            Used(storage={"app": 9 * 2**20}, volumes={"other": 2 * 2**20}),
            "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ",
        ),
    ],
)
def test_limits_of_local_storage(used, expected):
    found = eviction.over_limits(limited(), used)
    assert (found.message if found else "") == expected
    assert eviction.is_limited(limited())


def test_a_container_over_its_own_limit_beside_one_without():
    made = limited()
    made["spec"]["containers"].append({"name": "free"})
    found = eviction.over_limits(made, Used(storage={"app": 11 * 2**20}))
    assert found is not None
    assert found.message == 'Container app exceeded its local ephemeral storage limit "10Mi". '


MACHINE = {
    "memory_bytes": 1000 * 2**20,
    "memory_available_bytes": 50 * 2**20,
    "processes": 90,
    "most_processes": 100,
    "disk": {"capacity_bytes": 1000, "available_bytes": 90, "inodes": 0, "inodes_free": 0},
}


def test_thresholds_are_quantities_or_percentages():
    limits = pressure.thresholds({"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%"})
    assert [one.signal for one in pressure.met(limits, pressure.signals(MACHINE))] == [
        "memory.available", "nodefs.available"
    ]  # fmt: skip
    assert pressure.met(pressure.thresholds({"memory.available": "50Mi"}), pressure.signals(MACHINE)) == []
    for wrong in ({"memory": "1"}, {"memory.available": "much"}):
        with pytest.raises(ConfigurationError):
            pressure.thresholds(wrong)


def test_a_condition_outlasts_its_cause_and_taints_follow():
    last_met = {"memory.available": 100.0}
    assert pressure.under_pressure(last_met, 399.0) == {"MemoryPressure"}
    assert pressure.under_pressure(last_met, 400.0) == frozenset()
    node: JsonObject = {"spec": {"taints": [{"key": "own", "effect": "NoExecute"}]}}
    tainted = pressure.taints(node, frozenset({"MemoryPressure"}))
    assert tainted == [
        {"key": "own", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"},
    ]
    assert pressure.taints({"spec": {"taints": tainted}}, frozenset({"MemoryPressure"})) is None
    assert pressure.taints({"spec": {"taints": tainted}}, frozenset()) == node["spec"]["taints"]


def test_conditions_keep_their_times():
    first = pressure.conditions({}, frozenset(), "t1")
    assert [one["status"] for one in first] == ["False"] * 3
    node = {"status": {"conditions": first}}
    second = pressure.conditions(node, frozenset({"DiskPressure"}), "t2")
    assert [one["lastTransitionTime"] for one in second] == ["t1", "t2", "t1"]
    assert second[1]["reason"] == "KubeletHasDiskPressure"


def test_allocatable_is_capacity_less_what_is_kept():
    capacity = {"cpu": "4", "memory": "1048576Ki", "ephemeral-storage": "1000Ki", "pods": "110"}
    limits = pressure.thresholds({"memory.available": "100Mi", "nodefs.available": "10%"})
    kept = pressure.reserved({"cpu": "500m", "memory": "24Mi"}, limits)
    assert pressure.allocatable(capacity, kept) == {
        "cpu": "3500m", "memory": "921600Ki", "ephemeral-storage": "900Ki", "pods": "110"
    }  # fmt: skip
    assert pressure.allocatable(capacity, {}) == capacity


def test_huge_pages_are_taken_from_the_memory_of_a_node():
    capacity = {"cpu": "4", "memory": "1048576Ki", "hugepages-1Gi": "0", "hugepages-2Mi": "16Mi", "pods": "110"}
    assert pressure.allocatable(capacity, {"memory+": "1048576"}) == {**capacity, "memory": f"{1048576 - 17 * 1024}Ki"}
