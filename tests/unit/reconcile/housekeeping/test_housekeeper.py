"""The shell of housekeeping with a world and a runner in memory: what is asked of a node, and when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS
from minik8s_modules.reconcile.housekeeping import pressure
from minik8s_modules.reconcile.housekeeping.eviction import Eviction
from minik8s_modules.reconcile.housekeeping.garbage import ContainerPolicy
from minik8s_modules.reconcile.housekeeping.housekeeper import Housekeeper
from minik8s_modules.reconcile.housekeeping.image_gc import Image, ImagePolicy
from minik8s_modules.reconcile.housekeeping.policies import Policies
from minik8s_modules.reconcile.main import _JITTER
from minik8s_modules.reconcile.pods.observed import ObservedContainer, observation
from minik8s_modules.reconcile.values.items import Outcome, WorkItem

START = datetime(2026, 1, 1, tzinfo=UTC)
DISK = {"capacity_bytes": 100, "available_bytes": 50, "inodes": 100, "inodes_free": 90}
MACHINE = {"memory_bytes": 1000, "memory_available_bytes": 900, "processes": 1, "most_processes": 100, "disk": DISK}


class _World:
    """See ``job.World``; also the runner."""

    def __init__(self) -> None:
        self.synced = True
        self.seen: list[ObservedContainer] | None = []
        self.api: list[JsonObject] = []
        self.told: list[str] = []
        self.evicted: list[str] = []
        self.pressures: list[frozenset[str]] = []
        self.statics: list[JsonObject] = []
        self.found: list[dict[str, JsonObject]] = []
        self.items: list[WorkItem] = []
        self.full: list[Mapping[tuple[str, str], Mapping[str, int]]] = []
        self.mirrored: list[str] = []

    def ready(self) -> bool:
        return self.synced

    def containers(self, _node: str) -> list[ObservedContainer] | None:
        return self.seen

    def pods(self, _node: str) -> list[JsonObject]:
        return self.api

    def node(self, name: str) -> JsonObject | None:
        return {"metadata": {"name": name}}

    def tell(self, _node: str, _kind: str, reason: str, _message: str) -> None:
        self.told.append(reason)

    def evict(self, found: Eviction) -> None:
        self.evicted.append(found.pod["metadata"]["name"])

    def pressed(self, _node: str, found: frozenset[str]) -> None:
        self.pressures.append(found)

    def images(self, _node: str, images: list[Image]) -> None:
        self.told.append(f"{len(images)} images")

    def drivers(self, _node: str, found: dict[str, JsonObject]) -> None:
        self.found.append(found)

    def rooms(self, _node: str, found: Mapping[tuple[str, str], Mapping[str, int]]) -> None:
        self.full.append(found)

    def static(self, _node: str, pods: list[JsonObject]) -> None:
        self.statics += pods

    def keep_mirrors(self, node: str) -> None:
        self.mirrored.append(node)

    def submit(self, item: WorkItem) -> None:
        self.items.append(item)


class _Kept:
    """A housekeeper of one node, looked at step by step."""

    def __init__(self, **policies: Any) -> None:
        self.clock, self.world = FakeClock(START), _World()
        runner: Any = self.world
        self.keeper = Housekeeper(
            ["n1"], self.world, lambda: runner, (1, 2), Policies(**policies), lambda: 300.0, self.clock
        )

    def tell(self, op: str, **fields: Any) -> None:
        assert self.keeper.on_gateway({"op": op, "node": "n1", **fields})

    def asked(self) -> list[str]:
        """Look; return the sections asked for since, and answer nothing."""
        before = len(self.world.items)
        self.keeper.look()
        return [section for item in self.world.items[before:] for section in item.sections]

    def options(self) -> JsonObject:
        (request,) = self.world.items[-1].sections.values()
        return request.options

    def answer(self, result: JsonObject, status: Any = "ok", at: int = -1) -> None:
        item = self.world.items[at]
        assert item.purpose == "housekeeping"
        self.keeper.on_outcome(Outcome(item.id, "n1", status, {next(iter(item.sections)): result}, "", item.purpose))
        self.keeper.look()

    def observed(self, status: Any, sections: Iterable[str]) -> None:
        self.keeper.on_item(Outcome("i", "n1", status, {section: {} for section in sections}, ""))


def dead(uid: str, name: str = "app") -> ObservedContainer:
    raw = {
        "id": f"{uid}-{name}", "type": "app", "pod_uid": uid, "pod_name": "p", "pod_namespace": "default",
        "container": name, "attempt": 0, "state": "exited", "exit_code": 0, "oom_killed": False, "error": "",
        "created_at": "2025-12-31T00:00:00Z", "started_at": "2025-12-31T00:00:00Z",
        "finished_at": "2025-12-31T00:00:01Z", "image": "i", "image_id": "used", "ip": "",
    }  # fmt: skip
    return observation(raw, START)


def pod(name: str, **spec: Any) -> JsonObject:
    return {"metadata": {"name": name, "uid": name}, "spec": {"containers": [{"name": "app"}], **spec}, "status": {}}


def test_nothing_is_done_without_a_policy():
    kept = _Kept()
    kept.world.seen = [dead("gone")]
    kept.tell("stats", machine=MACHINE, containers={})
    assert kept.asked() == []
    assert kept.world.pressures == []


def test_no_container_goes_before_the_pods_are_known():
    kept = _Kept(containers=ContainerPolicy())
    kept.world.seen, kept.world.synced = [dead("p")], False
    assert kept.asked() == []
    kept.world.synced, kept.world.api = True, [pod("p")]
    assert kept.asked() == []
    kept.clock.advance(61)
    kept.world.api = []
    assert kept.asked() == ["garbage"]
    assert kept.options() == {
        "node": "n1", "containers": ["p-app"], "images": [], "to_free_bytes": 0, "token": [1, 2]
    }  # fmt: skip


def test_images_go_when_the_disk_fills_and_a_shortfall_is_told():
    kept = _Kept(images=ImagePolicy(90, 80, 0))
    kept.tell("image-list", images=[{"id": "old", "names": ["a:1"], "size_bytes": 5}])
    kept.tell("stats", machine={**MACHINE, "disk": {**DISK, "available_bytes": 8}}, containers={})
    assert kept.asked() == ["garbage"]
    assert kept.options()["to_free_bytes"] == 12
    assert [one["id"] for one in kept.options()["images"]] == ["old"]
    kept.answer({"freed_bytes": 5, "errors": {}})
    assert kept.world.told == ["1 images", "FreeDiskSpaceFailed"]


def test_a_full_disk_gives_up_garbage_before_pods():
    kept = _Kept(thresholds=pressure.thresholds({"nodefs.available": "60%"}))
    kept.world.api, kept.world.seen = [pod("p")], [dead("other")]
    kept.tell("stats", machine=MACHINE, containers={})
    assert kept.asked() == ["garbage", "usage"]
    assert kept.world.evicted == []
    kept.answer({"freed_bytes": 0, "errors": {}}, at=0)
    kept.clock.advance(10)
    kept.tell("stats", machine=MACHINE, containers={})
    kept.keeper.look()
    assert kept.world.evicted == ["p"]
    assert kept.world.pressures == [{"DiskPressure"}]


def test_one_pod_is_given_up_at_a_time():
    kept = _Kept(thresholds=pressure.thresholds({"memory.available": "950"}))
    kept.world.api = [pod("a"), pod("b", priority=9)]
    for _ in range(2):
        kept.tell("stats", machine=MACHINE, containers={})
        kept.keeper.look()
    assert kept.world.evicted == ["a"]
    assert kept.world.told == ["EvictionThresholdMet"]


def test_what_pods_with_limits_use_is_counted_and_too_much_ends_them():
    kept = _Kept()
    scratch = {"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}
    kept.world.api = [pod("limited", volumes=[scratch]), pod("free")]
    assert kept.asked() == ["usage"]
    assert kept.options() == {"node": "n1", "pods": ["limited"], "volumes": ["limited/scratch"]}
    kept.answer({"containers": {}, "volumes": {"limited/scratch": 2**21}})
    assert kept.world.evicted == ["limited"]


def test_a_folder_that_cannot_be_read_is_read_again_and_its_pods_stay():
    kept = _Kept(manifests="/m")
    assert kept.asked() == ["static_pods"]
    kept.answer({}, status="failed")
    assert kept.world.statics == []
    kept.clock.advance(11)
    assert kept.asked() == ["static_pods"]
    kept.answer({"files": [{"name": "x", "data": "e30="}], "errors": {}})
    assert kept.world.told == ["FailedStaticPod"]
    assert kept.asked() == []


def test_a_folder_is_read_where_observations_fail_and_never_before_the_next_that_does_not() -> None:
    kept = _Kept(manifests="/m")
    assert kept.asked() == ["static_pods"]
    kept.answer({"files": [], "errors": {}})
    shortest_s, longest_s = 300.0 * (1 - _JITTER), 300.0 * (1 + _JITTER)
    kept.clock.advance(longest_s / shortest_s * 300.0 - 1)
    assert kept.asked() == []
    kept.observed("failed", SECTIONS[1:])
    assert kept.asked() == []
    kept.clock.advance(2)
    assert kept.asked() == ["static_pods"]


def test_a_folder_is_read_when_its_node_was_observed() -> None:
    kept = _Kept(manifests="/m")
    assert kept.asked() == ["static_pods"]
    kept.answer({"files": [], "errors": {}})
    kept.clock.advance(301)
    for status, sections in (("ok", SECTIONS[1:]), ("failed", SECTIONS)):
        kept.observed(status, sections)
        assert kept.asked() == []
    kept.observed("ok", SECTIONS)
    assert kept.asked() == ["static_pods"]
    kept.answer({"files": [], "errors": {}})
    assert kept.asked() == []


def test_a_folder_with_a_time_of_its_own_is_read_then() -> None:
    kept = _Kept(manifests="/m", manifests_every_s=20.0)
    assert kept.asked() == ["static_pods"]
    kept.answer({"files": [], "errors": {}})
    kept.observed("ok", SECTIONS)
    assert kept.asked() == []
    kept.clock.advance(21)
    assert kept.asked() == ["static_pods"]


def test_messages_for_others_are_left_alone():
    kept = _Kept()
    assert not kept.keeper.on_gateway({"op": "state", "node": "n1"})
    kept.keeper.keep_mirrors("n1")
    kept.keeper.keep_mirrors("elsewhere")
    kept.keeper.look()
    assert kept.world.mirrored == ["n1"]


@pytest.mark.parametrize("result", [{"volumes": 7}, {"volumes": {"limited/scratch": "much"}}, {"containers": None}])
def test_what_a_node_answers_is_data(result):
    kept = _Kept()
    kept.world.api = [pod("limited", volumes=[{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}])]
    kept.keeper.look()
    kept.answer(result)
    assert kept.world.evicted == []
