"""A plan shows the units that Pods of virtual nodes become, and says of other Pods there that it does not know."""

from __future__ import annotations

from typing import Any

from minik8s_modules.api.pods.slurm import PARTITION, RESULTS, RESULTS_TO
from minik8s_modules.reconcile.planning.simulated_services import Cluster
from minik8s_modules.reconcile.planning.virtual_pods import on_virtual_nodes, unit_plans

NODES: list[dict[str, Any]] = [
    {"metadata": {"name": "n1"}},
    {"metadata": {"name": "far", "labels": {"type": "virtual-kubelet"}}},
]


def _pod(name: str, node: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": name, "uid": name}, "spec": {"nodeName": node}}


def test_pods_on_machines_are_not_spoken_of() -> None:
    assert [*on_virtual_nodes({"a": _pod("a", "n1"), "gone": None, "waits": _pod("waits", "")}, NODES)] == []


def test_there_is_one_message_a_node() -> None:
    pods: dict[str, Any] = {name: _pod(name, "far") for name in "edcba"}
    (note,) = on_virtual_nodes(pods, NODES)
    assert note.text == (
        "node far is virtual: what its provider does about Pod shop/a, shop/b, shop/c and 2 more is unknown"
    )
    assert len(note.about) >= 5


def test_results_of_slurm_jobs_are_told_with_the_config_map_that_they_would_be_copied_to() -> None:
    slurm = {"metadata": {"name": "far", "labels": {**NODES[1]["metadata"]["labels"], PARTITION: "batch"}}}
    wishes = {"a": "*.csv,plots/*.png", "b": "*.csv,plots/*.png", "c": "x", "d": "x", "e": "x", "f": "x"}
    pods = {name: _pod(name, "far") for name in (*wishes, "plain", "wrong", "ended")}
    for name, patterns in {**wishes, "wrong": "x", "ended": "x"}.items():
        to = "pvc/sums" if name == "wrong" else "sums"
        pods[name]["metadata"]["annotations"] = {RESULTS: patterns, RESULTS_TO: to}
    pods["ended"]["status"] = {"phase": "Succeeded"}
    _, wrong, *found = on_virtual_nodes(pods, [slurm])
    assert wrong.text.startswith("Pod shop/wrong: node far does not take it: annotation slurm.minik8s.io/results-to")
    where = "would be copied to ConfigMap shop/sums once the program has ended, if that takes results"
    assert [note.text for note in found] == [
        f"files *.csv, plots/*.png of Pod shop/a, shop/b {where}",
        f"files x of Pod shop/c, shop/d, shop/e and 1 more {where}",
    ]
    assert {about.name for about in found[0].about} == {"a", "b"}
    assert len([*on_virtual_nodes(pods, NODES)]) == 1  # another provider's


WEB: dict[str, Any] = {
    "metadata": {
        "name": "web",
        "labels": {"type": "virtual-kubelet", "ansible.minik8s.io/group": "web"},
        "annotations": {"ansible.minik8s.io/users": "app,www"},
    }
}


def _unit(name: str, **container: Any) -> dict[str, Any]:
    made = _pod(name, "web")
    made["spec"]["containers"] = [{"name": "app", "image": "minik8s/host", "command": ["sleep", "1"], **container}]
    return made


def _cluster(*pods: dict[str, Any]) -> Cluster:
    return Cluster(pods, (*NODES, WEB), ("n1",))


def test_units_that_come_and_go_are_shown_without_their_values() -> None:
    env = [{"name": "PASSWORD", "value": "hidden"}, {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s"}}}]
    new, old, other = _unit("new", args=["$(PASSWORD)"], env=env), _unit("old"), _pod("far", "far")
    pods: dict[str, Any] = {"new": new, "old": None, "far": other}
    (plan,) = unit_plans(pods, _cluster(old)).values()
    assert [(step["action"], step["key"]) for step in plan["steps"]] == [
        ("write", "shop/new"), ("start", "shop/new"), ("stop", "shop/old"), ("remove", "shop/old"),
    ]  # fmt: skip
    facets = plan["diff"]["units"]["after"]["shop/new"]
    assert (facets["host"], facets["variables"]) == ("one of the group web", "KEY, PASSWORD")
    assert facets["program"] == '#!/bin/sh\nexec sleep 1 "${PASSWORD}"\n'
    assert "User=app\n" in facets["unit"]
    assert "pods/UID/program" in facets["unit"]
    assert "pods/old/program" in plan["diff"]["units"]["before"]["shop/old"]["unit"]
    assert "hidden" not in str(plan)
    assert plan["about"]["units"]["shop/new"] == [
        {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "new"}
    ]
    (note,) = on_virtual_nodes(pods, (*NODES, WEB))
    assert "Pod shop/far is unknown" in note.text
    assert unit_plans(pods, _cluster(old), {"n1"}) == {}


def test_what_would_be_no_unit_is_said_and_what_stays_is_not_shown() -> None:
    same = _unit("same")
    (note,) = on_virtual_nodes({"a": _unit("a", ports=[{"containerPort": 80}])}, [WEB])
    assert note.text.startswith("Pod shop/a: node web does not take it: spec.containers[0].ports")
    labelled = {**same, "metadata": {**same["metadata"], "labels": {"a": "b"}}}
    assert unit_plans({"same": labelled}, _cluster(same)) == {}
    role = _unit("role")
    role["metadata"]["annotations"] = {"ansible.minik8s.io/role": "web"}
    (note,) = on_virtual_nodes({"role": role}, [WEB])
    assert "is unknown" in note.text
    assert unit_plans({"role": role}, _cluster()) == {}
