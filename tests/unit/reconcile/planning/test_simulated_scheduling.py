"""What a plan says of scheduling: who would have to go for a pod that fits nowhere, by which configuration."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from minik8s_modules.reconcile.planning.questions import Operation, Question
from minik8s_modules.reconcile.planning.simulation import planned_state
from minik8s_modules.scheduler.profiles.configuration import Enabled, PluginSet, ProfileSettings
from minik8s_modules.scheduler.profiles.deciding import Profiles, Scene
from minik8s_modules.scheduler.profiles.published import PublishedProfiles
from tests.unit.scheduler.worlds import node, placed, pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_plan_names_the_pods_that_would_be_preempted():
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    urgent = {"apiVersion": "v1", "kind": "Pod", **pod("urgent", containers=containers, priority=10)}
    low = placed(1, {"node": "a", "requests": {"cpu": "1"}})
    low["metadata"]["uid"] = "low"
    question = Question((Operation("create", urgent),), frozenset())
    found = planned_state(question, [low], [node("a", cpu="1")], NOW)
    assert [note.text for note in found.messages] == [
        "Pod default/urgent: 0/1 nodes are available: 1 Insufficient cpu.",
        "Pod default/urgent: it would preempt default/placed-1 on node a",
    ]
    # who may not read a victim does not hear of it
    assert [about.name for about in found.messages[1].about] == ["urgent", "placed-1"]


def test_victims_are_chosen_by_the_budgets_that_would_stand():
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    urgent = {"apiVersion": "v1", "kind": "Pod", **pod("urgent", containers=containers, priority=10)}
    lows = [placed(number, {"node": name, "requests": {"cpu": "1"}, "labels": {"app": name}})
            for number, name in enumerate(("a", "b"))]  # fmt: skip
    for low in lows:
        low["metadata"]["uid"] = low["metadata"]["name"]
    budget: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    budget |= {"metadata": {"name": "a", "namespace": "default"}, "status": {"disruptionsAllowed": 0}}
    budget |= {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}}
    nodes = [node("a", cpu="1"), node("b", cpu="1")]
    create, delete = Operation("create", urgent), Operation("delete", budget)

    def victim(*operations: Operation, scene: Scene) -> str:
        found = planned_state(Question(operations, frozenset()), lows, nodes, NOW, scene=scene)
        return next(note.text for note in found.messages if "preempt" in note.text)

    kept = Scene(Profiles(), budgets=(budget,))
    assert "preempt default/placed-1 on node b" in victim(create, scene=kept)
    without = victim(create, scene=Scene(Profiles()))
    assert "on node a" in without
    assert victim(create, delete, scene=kept) == without, "a budget that goes in the same plan protects nobody"


def test_a_plan_places_pods_as_the_clusters_scheduler_is_configured_and_says_where_it_cannot():
    own = ProfileSettings(plugins={"score": PluginSet((Enabled("LabelAffinity", 1),), frozenset({"*"}))})
    own = replace(own, plugins={**own.plugins, "preScore": own.plugins["score"]})
    nodes = [node("a"), node("b", labels={"app": "web"})]
    wanted = {"apiVersion": "v1", "kind": "Pod", **pod("web")}
    wanted["metadata"] = {**wanted["metadata"], "labels": {"app": "web"}}
    question = Question((Operation("create", wanted),), frozenset())

    def planned(known: PublishedProfiles) -> tuple[list[str], list[str]]:
        found = planned_state(question, [], nodes, NOW, scene=Scene(Profiles(known)))
        made = [one["spec"].get("nodeName", "") for one in found.pods.values() if one]
        return made, [note.text for note in found.messages]

    assert planned({"default-scheduler": own}) == (["b"], [])
    (where,), (why,) = planned({"default-scheduler": "there is no plugin X"})
    assert not where
    assert "cannot be predicted here: there is no plugin X" in why


def test_terms_that_select_namespaces_see_those_of_the_plan():
    far = {"labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "red"}}, "topologyKey": "host"}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [far]}}
    wanted = {"apiVersion": "v1", "kind": "Pod", **pod("web", affinity=anti)}
    nodes = [node("a", labels={"host": "a"}), node("b", labels={"host": "b"})]
    there = placed(1, {"node": "a", "namespace": "red"})
    there["metadata"]["uid"] = "there"
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "red", "labels": {"team": "red"}}}
    operations = (Operation("update", space), Operation("create", wanted))
    found = planned_state(Question(operations, frozenset()), [there], nodes, NOW, scene=Scene(Profiles()))
    assert [one["spec"]["nodeName"] for one in found.pods.values() if one] == ["b"]
