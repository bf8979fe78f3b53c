"""The life of Pods between an API and a provider; ported from virtual-kubelet's ``node/lifecycle_test.go``."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import EVENT, POD, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.virtual.contract import new_pod
from minik8s_modules.virtual.errors import InvalidInput, NotFound, ProviderError
from minik8s_modules.virtual.pods.deciding import PodKey
from minik8s_modules.virtual.provider import Provider
from tests.support.waiting import until
from tests.unit.virtual.world import World


@pytest.fixture(params=["told", "asked"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Yield a node whose provider tells of changes, then one whose provider is asked."""
    made = World(told=request.param == "told")
    yield made
    made.stop()


def test_a_pod_is_created_runs_and_is_deleted(world: World) -> None:
    world.start()
    world.create()
    until(lambda: world.phase() == "Running")
    assert world.backend.seen("create_pod") == ["one"]
    world.delete()
    until(lambda: world.phase() == "gone")
    assert world.backend.get_pods() == []
    until(lambda: ("Normal", "ProviderDeleteSuccess") in world.events())
    assert ("Normal", "ProviderCreateSuccess") in world.events()


def test_a_provider_for_thousands_of_pods_tells_failures_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Provider, "tells_success", False)
    world.backend.raises["delete_pod"] = ProviderError("random error")
    world.start()
    world.create()
    until(lambda: world.phase() == "Running")
    world.delete()
    until(lambda: ("Warning", "ProviderDeleteFailed") in world.events())
    del world.backend.raises["delete_pod"]
    until(lambda: world.phase() == "gone")
    assert not {reason for _, reason in world.events() if reason.endswith("Success")}


def test_a_pod_that_the_provider_has_lost_is_deleted_all_the_same(world: World) -> None:
    world.start()
    world.create()
    until(lambda: world.phase() == "Running")
    world.backend.raises["delete_pod"] = NotFound("gone already")
    world.delete()
    until(lambda: world.phase() == "gone")


def test_a_deletion_that_fails_is_tried_again(world: World) -> None:
    world.start()
    world.create()
    until(lambda: world.phase() == "Running")
    world.backend.raises["delete_pod"] = ProviderError("random error")
    world.delete()
    until(lambda: len(world.backend.seen("delete_pod")) > 2)
    assert world.phase() == "Running"
    until(lambda: ("Warning", "ProviderDeleteFailed") in world.events())
    del world.backend.raises["delete_pod"]
    until(lambda: world.phase() == "gone")


@pytest.mark.parametrize("marks", [{}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}], ids=["live", "deleting"])
def test_dangling_pods_are_deleted_at_the_provider(world: World, marks: dict[str, str]) -> None:
    stray = new_pod("stray")
    stray["metadata"].update(marks)
    world.backend.create_pod(stray)
    world.start()
    until(lambda: world.backend.seen("delete_pod") == ["stray"])
    until(lambda: world.backend.get_pods() == [])


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_pods_that_are_over_are_left_alone(world: World, phase: str) -> None:
    over = new_pod("over")
    over["status"] = {"phase": phase}
    world.api.create(POD, over)
    world.create("other")
    world.start()
    until(lambda: world.phase("other") == "Running")
    assert world.backend.seen("create_pod") == ["other"]
    assert world.phase("over") == phase


def test_a_running_pod_is_updated(world: World) -> None:
    world.start()
    world.create()
    until(lambda: world.phase() == "Running")
    world.api.patch(POD, "one", "default", {"metadata": {"annotations": {"a": "b"}}})
    until(lambda: world.backend.seen("update_pod") == ["one"])
    assert objects.annotations(world.backend.get_pod("default", "one")) == {"a": "b"}
    until(lambda: ("Normal", "ProviderUpdateSuccess") in world.events())


def test_a_status_that_changes_never_reaches_the_provider(world: World) -> None:
    world.start()
    world.create()
    until(lambda: world.phase() == "Running")
    world.api.patch(POD, "one", "default", {"status": {"message": "mine"}}, subresource="status")
    # and the provider's is written again: it overwrites as a whole
    until(lambda: "message" not in objects.status(world.pod() or {}))
    assert world.backend.seen("update_pod") == []
    assert world.backend.seen("create_pod") == ["one"]


def test_a_provider_that_fails_is_asked_again(world: World) -> None:
    world.backend.raises["create_pod"] = ProviderError("the back end is away")
    world.start()
    world.create()
    until(lambda: objects.status(world.pod() or {}).get("reason") == "ProviderFailed")
    assert world.phase() == "Pending"
    assert objects.status(world.pod() or {})["message"] == "the back end is away"
    until(lambda: ("Warning", "ProviderCreateFailed") in world.events())
    world.backend.raises.clear()
    until(lambda: world.phase() == "Running")
    assert "reason" not in objects.status(world.pod() or {})


def test_what_a_provider_does_otherwise_than_a_pod_says_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Provider, "remarks", lambda _self, pod: [f"{objects.name(pod)}: half of it"])
    world.start()
    world.create()
    until(lambda: ("Warning", "NotAsDeclared") in world.events())
    (told,) = (each for each in world.api.list(EVENT).items if each["reason"] == "NotAsDeclared")
    assert told["message"] == "one: half of it"


def test_what_was_not_told_before_a_kill_is_told_by_the_next_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start()
    world.create()
    until(lambda: world.phase() == "Running")
    world.stop()
    monkeypatch.setattr(Provider, "remarks", lambda _self, pod: [f"{objects.name(pod)}: half of it"])
    world.controller = world.fresh()
    world.start()
    until(lambda: ("Warning", "NotAsDeclared") in world.events())
    assert world.backend.seen("create_pod") == ["one"]


@pytest.mark.parametrize("error", [InvalidInput("a unit is not changed"), ProviderError("the back end is away")])
def test_a_running_pod_whose_update_fails_runs_on(world: World, error: Exception) -> None:
    """With restartPolicy Never it was Failed, and its program ran on unseen."""
    world.start()
    world.api.create(POD, new_pod("one", restartPolicy="Never"))
    until(lambda: world.phase() == "Running")
    world.backend.raises["update_pod"] = error
    world.api.patch(POD, "one", "default", {"metadata": {"annotations": {"a": "b"}}})
    until(lambda: ("Warning", "ProviderUpdateFailed") in world.events())
    world.create("later")
    until(lambda: world.phase("later") == "Running")
    assert world.phase() == "Running"
    assert "reason" not in objects.status(world.pod() or {})


def test_what_can_never_run_is_not_tried_again_until_it_changes(world: World) -> None:
    world.backend.raises["create_pod"] = InvalidInput("no images here")
    world.start()
    world.create()
    until(lambda: objects.status(world.pod() or {}).get("message") == "no images here")
    world.backend.raises.clear()
    world.create("later")
    until(lambda: world.phase("later") == "Running")
    assert world.backend.seen("create_pod").count("one") == 1
    world.api.patch(POD, "one", "default", {"metadata": {"labels": {"mended": "yes"}}})
    until(lambda: world.phase() == "Running")


def test_a_pod_that_never_restarts_has_failed(world: World) -> None:
    world.backend.raises["create_pod"] = ProviderError("no room")
    world.start()
    world.create(restartPolicy="Never")
    until(lambda: world.phase() == "Failed")


def test_a_pod_that_comes_back_under_its_name_is_not_touched_for_its_predecessor(world: World) -> None:
    """TestReCreatePodRace."""
    world.start()
    first = world.create()
    until(lambda: world.phase() == "Running")
    world.api.delete(POD, "one", "default", grace_s=0)
    second = world.create()
    until(lambda: objects.uid(_of(world)) == objects.uid(second))
    until(lambda: world.phase() == "Running")
    assert objects.uid(first) != objects.uid(second)
    # the removal of the first one comes late: its uid is not there any more
    world.controller._remove((PodKey("contract", "default", "one"), objects.uid(first)))
    assert world.phase() == "Running"


def test_a_restart_neither_loses_nor_doubles_a_pod(world: World) -> None:
    world.start()
    world.create()
    until(lambda: world.phase() == "Running")
    world.stop()
    world.create("meanwhile")
    world.api.delete(POD, "one", "default", grace_s=0)
    world.controller = world.fresh()
    world.start()
    until(lambda: world.phase("meanwhile") == "Running")
    until(lambda: [objects.name(pod) for pod in world.backend.get_pods()] == ["meanwhile"])
    assert world.backend.seen("create_pod") == ["one", "meanwhile"]


def test_a_provider_that_refuses_an_update_is_still_asked_how_the_pod_is() -> None:
    world = World(told=False)
    world.start()
    world.api.create(POD, new_pod("one", restartPolicy="Never"))
    until(lambda: world.phase() == "Running")
    world.backend.raises["update_pod"] = InvalidInput("a run that has begun is not changed")
    world.api.patch(POD, "one", "default", {"metadata": {"annotations": {"a": "b"}}})
    until(lambda: ("Warning", "ProviderUpdateFailed") in world.events())
    world.backend._pods.clear()
    until(lambda: world.phase() == "Failed")
    world.stop()


def test_a_pod_that_the_provider_lost_has_failed() -> None:
    world = World(told=False)
    world.start()
    world.create()
    until(lambda: world.phase() == "Running")
    world.backend._pods.clear()
    until(lambda: world.phase() == "Failed")
    assert objects.status(world.pod() or {})["reason"] == "NotFound"
    world.stop()


def test_a_deleted_pod_stays_until_a_provider_that_is_asked_says_that_it_has_ended() -> None:
    world = World(told=False)
    ends = world.backend.delete_pod
    world.backend.delete_pod = lambda pod: world.backend._count("delete_pod", pod)  # type: ignore[method-assign]
    world.start()
    world.create()
    until(lambda: world.phase() == "Running")
    world.delete()
    until(lambda: world.backend.seen("delete_pod") == ["one"])
    asked = threading.Event()
    status_of = world.backend.get_pod_status

    def answered(namespace: str, name: str) -> JsonObject:
        asked.set()
        return status_of(namespace, name)

    world.backend.get_pod_status = answered  # type: ignore[method-assign]
    assert asked.wait(60)
    assert world.phase() == "Running"
    ends(world.pod() or {})
    until(lambda: world.phase() == "gone")
    world.stop()


def test_a_pod_that_the_provider_deletes_is_deleted_in_the_api() -> None:
    world = World()
    world.start()
    pod = world.create()
    until(lambda: world.phase() == "Running")
    evicted = copy.deepcopy(world.backend.get_pod("default", "one"))
    evicted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.backend._tell(evicted)
    until(lambda: world.phase() == "gone")
    assert objects.uid(pod)
    world.stop()


def test_a_pod_without_a_status_from_its_provider_is_left_as_it_is() -> None:
    """TestUpdatePodStatusWithNilProviderStatus."""
    world = World()
    world.start()
    world.create()
    until(lambda: world.phase() == "Running")
    nothing: JsonObject = {**world.backend.get_pod("default", "one"), "status": None}
    world.backend._tell(nothing)
    world.create("two")
    until(lambda: world.phase("two") == "Running")
    assert world.phase() == "Running"
    world.stop()


def test_of_a_pod_its_status_alone_is_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[JsonObject] = []
    update = world.api.update

    def noted(kind: Kind, obj: JsonObject, **more: Any) -> JsonObject:
        sent.append(obj)
        return update(kind, obj, **more)

    monkeypatch.setattr(world.api, "update", noted)
    world.start()
    world.create()
    until(lambda: world.phase() == "Running")
    assert {field for body in sent for field in body} == {"apiVersion", "kind", "metadata", "status"}


def test_a_status_after_the_end_is_not_written() -> None:
    world = World()
    world.start()
    world.create()
    until(lambda: world.phase() == "Running")
    running = world.backend.get_pod("default", "one")
    world.backend._tell({**running, "status": {**running["status"], "phase": "Succeeded"}})
    until(lambda: world.phase() == "Succeeded")
    world.backend._tell(running)
    world.create("two")
    until(lambda: world.phase("two") == "Running")
    assert world.phase() == "Succeeded"
    world.stop()


def _of(world: World) -> JsonObject:
    pods = world.backend.get_pods()
    return pods[0] if pods else {}


def test_of_pods_elsewhere_a_process_with_many_nodes_keeps_only_where_they_are() -> None:
    """What it keeps grows with its own Pods, not with the cluster's; one that is bound here later is all there."""
    world = World(beside=("second",))
    world.start()
    try:
        world.create("later", nodeName="")
        world.create("elsewhere", nodeName="a-machine")
        informer = world.controller.informer
        until(lambda: informer.get("default", "elsewhere") is not None)
        for name in ("later", "elsewhere"):
            kept = informer.get("default", name)
            assert kept is not None
            assert objects.containers(kept) == []
        world.api.patch(POD, "later", "default", {"spec": {"nodeName": "contract"}})
        until(lambda: world.phase("later") == "Running")
        assert world.backend.seen("create_pod") == ["later"]
    finally:
        world.stop()
