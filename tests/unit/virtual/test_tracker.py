"""PodsTracker: what it asks, what it tells, and what it deletes (VK-10 to VK-12)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject, key, name, uid
from minik8s_modules.virtual.contract import new_pod
from minik8s_modules.virtual.errors import NotFound, ProviderError
from minik8s_modules.virtual.tracker import PodsTracker, tracked_pod

NOW = "2026-01-01T00:00:00Z"


class _Backend:
    """Answers what it is told to; ``statuses`` by name, an exception is raised."""

    def __init__(
        self, statuses: dict[str, Any] | None = None, pods: list[JsonObject] | Exception | None = None
    ) -> None:
        self.statuses = statuses or {}
        self.pods = [] if pods is None else pods
        self.deleted: list[str] = []

    def get_pods(self) -> list[JsonObject]:
        if isinstance(self.pods, Exception):
            raise self.pods
        return self.pods

    def get_pod_status(self, _namespace: str, pod: str) -> JsonObject | None:
        answer = self.statuses.get(pod)
        if isinstance(answer, Exception):
            raise answer
        return copy.deepcopy(answer)

    def delete_pod(self, pod: JsonObject) -> None:
        self.deleted.append(name(pod))
        if name(pod) == "gone":
            raise ProviderError("the back end") from NotFound("no such group")


class _Cluster:
    def __init__(self, *pods: JsonObject) -> None:
        self._pods = list(pods)

    def pods(self) -> list[JsonObject]:
        return self._pods

    def config_map(self, _namespace: str, _name: str) -> None:
        return None

    def secret(self, _namespace: str, _name: str) -> None:
        return None

    def fill_config_map(self, config_map: JsonObject) -> None:
        raise AssertionError(config_map)


def _pod(pod: str, phase: str, **status: Any) -> JsonObject:
    return {**new_pod(pod), "status": {"phase": phase, **status}}


def notified(backend: _Backend, *pods: JsonObject) -> dict[str, JsonObject]:
    collected: list[JsonObject] = []
    PodsTracker(backend, _Cluster(*pods), collected.append).update_pods()
    return {name(each): each["status"] for each in collected}


def test_a_status_of_the_provider_is_told_with_the_whole_pod() -> None:
    pod = _pod("one", "Pending")
    collected: list[JsonObject] = []
    PodsTracker(_Backend({"one": {"phase": "Running"}}), _Cluster(pod), collected.append).update_pods()
    assert collected == [{**pod, "status": {"phase": "Running"}}]
    assert pod["status"] == {"phase": "Pending"}, "the lister's object was changed"


def test_pods_that_are_over_going_or_never_came_are_not_asked_about() -> None:
    going = _pod("going", "Running")
    going["metadata"]["deletionTimestamp"] = NOW
    pods = [_pod("a", "Succeeded"), _pod("b", "Failed"), going, _pod("d", "Pending", reason="ProviderFailed")]
    assert notified(_Backend({name(pod): {"phase": "Running"} for pod in pods}), *pods) == {}


@pytest.mark.parametrize("answer", [None, NotFound("no such group")])
def test_a_running_pod_that_the_provider_lost_has_failed(answer: Exception | None) -> None:
    containers = [
        {"name": "app", "containerID": "mock://1", "ready": True, "state": {"running": {"startedAt": NOW}}},
        {"name": "done", "state": {"terminated": {"exitCode": 3}}},
    ]
    result = notified(_Backend({"one": answer}), _pod("one", "Running", containerStatuses=containers))["one"]
    assert (result["phase"], result["reason"]) == ("Failed", "NotFound")
    assert "may have been deleted" in result["message"]
    ended = result["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["startedAt"], ended["containerID"]) == (-137, NOW, "mock://1")
    assert result["containerStatuses"][1]["state"] == {"terminated": {"exitCode": 3}}


def test_a_pod_that_has_not_run_yet_is_left_as_it_is() -> None:
    assert tracked_pod(_pod("one", "Pending"), None, NOW) is None


def test_one_pod_that_cannot_be_asked_about_keeps_no_other_from_it() -> None:
    backend = _Backend({"one": ProviderError("the back end is away"), "two": {"phase": "Running"}})
    assert notified(backend, _pod("one", "Running"), _pod("two", "Pending")) == {"two": {"phase": "Running"}}


def test_what_the_cluster_does_not_have_is_deleted_at_the_provider() -> None:
    known = _pod("known", "Running")
    again = _pod("again", "Running")
    before = {**copy.deepcopy(again), "metadata": {**again["metadata"], "uid": "another"}}
    backend = _Backend(pods=[known, _pod("stray", "Running"), _pod("gone", "Running"), before])
    PodsTracker(backend, _Cluster(known, again), lambda _: None).clean_up()
    assert backend.deleted == ["stray", "gone", "again"]
    assert uid(before) == "another"
    assert key(again).name == "again"


def test_a_provider_that_cannot_list_is_not_cleaned() -> None:
    backend = _Backend(pods=ProviderError("the back end is away"))
    PodsTracker(backend, _Cluster(), lambda _: None).clean_up()
    assert backend.deleted == []
