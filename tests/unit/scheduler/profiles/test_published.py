"""What a scheduler puts on its Lease says to others how it decides."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from minik8s_modules.api.kinds import POD
from minik8s_modules.scheduler.deciding.guard import Guard
from minik8s_modules.scheduler.framework.statuses import unschedulable
from minik8s_modules.scheduler.profiles import building, configuration, deciding
from minik8s_modules.scheduler.profiles.configuration import POLICIES, policy_settings, settings
from minik8s_modules.scheduler.profiles.deciding import Profiles, Scene, Unknown
from minik8s_modules.scheduler.profiles.located import parse
from minik8s_modules.scheduler.profiles.published import ANNOTATION, as_annotations, read_published
from tests.unit.scheduler.worlds import node, placed, pod

WRITTEN = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 30
profiles:
- schedulerName: pack
  plugins:
    multiPoint: {disabled: [{name: ImageLocality}]}
    score: {enabled: [{name: TaintToleration, weight: 9}], disabled: [{name: "*"}]}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"""


def lease(name: str, text: str) -> Any:
    return {"metadata": {"name": name, "namespace": "kube-system", "annotations": {ANNOTATION: text}}}


def comparable(profile: Any) -> Any:
    assert not isinstance(profile, str), profile
    sets = {
        point: ([(one.name, one.weight) for one in found.enabled], found.disabled)
        for point, found in profile.plugins.items()
    }
    return profile.name, profile.percentage, sets, profile.arguments


@pytest.mark.parametrize(
    "chosen", [*map(policy_settings, ("", *POLICIES)), settings(parse(WRITTEN, "f.yml"))], ids=lambda one: len(str(one))
)
def test_what_is_published_is_read_as_what_it_was(chosen: Any):
    read = read_published([lease("minik8s-scheduler", as_annotations(chosen)[ANNOTATION])])
    assert [comparable(one) for one in read.values()] == [comparable(one) for one in chosen.profiles]


def test_the_clusters_own_scheduler_comes_before_another_with_the_same_name():
    def saying(percentage: int) -> str:
        return as_annotations(settings(parse(WRITTEN.replace("30", str(percentage)), "f.yml")))[ANNOTATION]

    found = read_published([lease("a-second-one", saying(50)), lease("minik8s-scheduler", saying(60))])
    assert comparable(found["pack"])[1] == 60


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '"profiles"', '{"kind": "Else"}', "null"])
def test_nonsense_on_a_lease_is_told_and_stops_nothing(text: str):
    profiles = Profiles(read_published([lease("minik8s-scheduler", text)]))
    assert "annotation" in profiles.decide(pod("p"), Scene(profiles).snapshot(pod("p"), [node("a")], [])).message


@pytest.mark.parametrize("odd", [1, None, [], {}, {"schedulerName": 5}, {"schedulerName": {"a": "b"}}])
def test_profiles_that_are_none_stop_no_other(odd: Any):
    good = {"schedulerName": "good"}
    text = json.dumps({"apiVersion": configuration.API_VERSION, "kind": configuration.KIND, "profiles": [odd, good]})
    assert list(read_published([lease("x", text)])) == ["good"]


class Entry:
    """An entry point."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self.load = load


class Mine:
    """A plugin from elsewhere."""

    name = "Mine"
    ending = threading.Event()

    def __init__(self, arguments: Any, handle: Any) -> None:
        self.arguments, self.handle = arguments, handle

    def filter(self, _state: Any, info: Any, seen: Any) -> Any:
        """Do what the pod is called."""
        wanted = info.pod["metadata"]["name"]
        if wanted == "raises":
            raise ValueError("no idea")
        if wanted == "writes":
            self.handle.api.delete(POD, "p", "default")
        if wanted == "patches":
            self.handle.api.raw("PATCH", "/api/v1/pods")
        if wanted == "hangs":
            self.ending.wait(60)
        return None if seen.name == self.arguments["only"] else unschedulable("not that one")


class Api:
    """A client that may be asked for nothing here."""

    get = list = raw = delete = None


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> Profiles:
    entries = {"Mine": Entry(lambda: Mine)}
    monkeypatch.setattr(building, "foreign", lambda: entries)
    monkeypatch.setattr(configuration, "foreign", lambda: entries)
    monkeypatch.setattr(deciding, "_GUARD", Guard(0.5))
    own = {
        "schedulerName": "default-scheduler",
        "plugins": {"multiPoint": {"enabled": [{"name": "Mine"}]}},
        "pluginConfig": [{"name": "Mine", "args": {"only": "b"}}],
    }
    text = json.dumps({"apiVersion": configuration.API_VERSION, "kind": configuration.KIND, "profiles": [own]})
    return Profiles(read_published([lease("minik8s-scheduler", text)]), Api())


def decided(profiles: Profiles, name: str) -> Any:
    wanted = pod(name)
    return profiles.decide(wanted, Scene(profiles).snapshot(wanted, [node("a"), node("b")], []))


def test_a_plugin_from_elsewhere_decides_where_it_is_installed(mine: Profiles):
    assert decided(mine, "p").node == "b"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("raises", "ValueError: no idea"),
        ("writes", "has no attribute 'delete'"),
        ("patches", "PermissionError: PATCH"),
    ],
)
def test_a_plugin_that_fails_or_writes_is_told_and_others_are_decided(mine: Profiles, name: str, why: str):
    message = decided(mine, name).message
    assert message.startswith("the decision of scheduler default-scheduler cannot be predicted here: ")
    assert why in message
    assert decided(mine, "p").node == "b"


def test_a_plugin_that_hangs_is_asked_once(mine: Profiles):
    try:
        assert "did not return within 0.5 s" in decided(mine, "hangs").message
        assert "did not return within 0.5 s" in decided(mine, "p").message, "and for no other pod of the question"
    finally:
        Mine.ending.set()


def test_an_unknown_scheduler_explains_nothing():
    profiles, wanted = Profiles(), pod("p", schedulerName="mine")
    with pytest.raises(Unknown, match="it waits for a scheduler named mine"):
        profiles.explain(wanted, Scene(profiles).snapshot(wanted, [node("a")], []))


def test_a_scene_has_what_pods_are_spread_by_and_how_namespaces_are_labelled():
    labelled = {**pod("web-1"), "metadata": {"name": "web-1", "namespace": "default", "labels": {"app": "web"}}}
    service = {
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}},
    }
    nodes = [node("a", labels={"kubernetes.io/hostname": "a"}), node("b", labels={"kubernetes.io/hostname": "b"})]
    there = [placed(number, {"node": "a", "labels": {"app": "web"}}) for number in range(3)]
    # the other node is the fuller one
    there += [placed(9, {"node": "b", "requests": {"cpu": "1", "memory": "1Gi"}})]
    profiles = Profiles()
    alone = profiles.decide(labelled, Scene(profiles).snapshot(labelled, nodes, there))
    spread = profiles.decide(labelled, Scene(profiles, workloads=(service,)).snapshot(labelled, nodes, there))
    assert (alone.node, spread.node) == ("a", "b")
