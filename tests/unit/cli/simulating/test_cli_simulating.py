"""``simulate``: a change of a cluster rehearsed beside the scheduler's and the controllers' own deciders."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.kinds import CONTROLLER_REVISION, NODE, POD, REPLICA_SET, SECRET, Kind
from minik8s_modules.api.quantities import to_milli
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.main import main
from minik8s_modules.cli.simulating import changes, description, reports
from minik8s_modules.cli.simulating.cluster import Simulation
from minik8s_modules.cli.simulating.snapshots import snapshot
from minik8s_modules.client.interface import ObjectList

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MARKER = "must-stay-here"


def nodes(name: str = "worker-{index}", count: int = 2, cpu: str = "4", **more: Any) -> Any:
    return {"nodes": [{"name": name, "count": count, "capacity": {"cpu": cpu, "memory": "8Gi", "pods": "110"}, **more}]}


def template(name: str, cpu: str, **more: Any) -> Any:
    container = {"name": "app", "image": "x:1", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **more}}


def workload(kind: str, name: str, cpu: str = "1", replicas: int | None = None, **more: Any) -> Any:
    spec: Any = {"selector": {"matchLabels": {"app": name}}, "template": template(name, cpu, **more)}
    if replicas is not None:
        spec["replicas"] = replicas
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def pod(name: str, cpu: str = "1", **more: Any) -> Any:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": template(name, cpu, **more)["spec"]}


def priority_class(name: str, value: int, **more: Any) -> Any:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
            **more}  # fmt: skip


def read(folder: Path, *documents: Any) -> description.Description:
    file = folder / "cluster.yml"
    file.write_text(yaml.safe_dump_all(documents))
    return description.read([str(file)], "default", NOW)


def settled(folder: Path, *documents: Any) -> Simulation:
    found = Simulation(read(folder, *documents).objects, NOW)
    assert found.settle()
    return found


def placed(simulation: Simulation) -> Counter[str]:
    return Counter(str(each["spec"].get("nodeName", "")) for each in simulation.world.all(POD))


def change(simulation: Simulation, nodes: str = "", replicas: str = "") -> reports.State:
    if nodes:
        changes.change_nodes(simulation, changes.parse("--nodes", nodes))
    if replicas:
        changes.change_replicas(simulation, changes.parse("--replicas", replicas))
    assert simulation.settle()
    return reports.state(simulation)


def test_a_deployment_is_spread_and_fills_its_nodes(tmp_path: Path) -> None:
    found = settled(tmp_path, nodes(), workload("Deployment", "web", replicas=4))
    assert placed(found) == {"worker-0": 2, "worker-1": 2}
    group = reports.state(found).groups["worker"]
    assert (group.nodes, group.pods, group.percent("cpu"), group.percent("memory")) == (2, 4, 50, 25)


def test_with_fewer_nodes_pods_move_until_none_has_room_and_the_scheduler_says_why(tmp_path: Path) -> None:
    found = settled(tmp_path, nodes(count=3), workload("Deployment", "web", replicas=9))
    after = change(found, "worker=-1")
    assert placed(found) == {"worker-0": 4, "worker-1": 4, "": 1}  # the last node goes, not the first
    assert [(one.workload, one.pods, one.reason) for one in after.waiting] == [
        ("deployment/web", 1, "0/2 nodes are available: 2 Insufficient cpu.")
    ]
    assert (after.made, after.ended) == (9 + 3, 3)


def test_new_nodes_are_as_those_of_their_group_and_get_what_waited(tmp_path: Path) -> None:
    taints = [{"key": "gpu", "value": "", "effect": "NoSchedule"}]
    tolerant: Any = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
    found = settled(
        tmp_path, nodes(count=1, taints=taints), workload("Deployment", "web", replicas=8, **tolerant), pod("shy")
    )
    after = change(found, "worker=x2")
    assert (after.groups["worker"].nodes, after.groups["worker"].pods) == (2, 8)
    assert [one.workload for one in after.waiting] == ["pod/shy"]
    assert "untolerated taint {gpu: }" in after.waiting[0].reason


def test_replicas_are_scaled_by_pattern_also_down(tmp_path: Path) -> None:
    others = workload("StatefulSet", "db", replicas=2)
    found = settled(tmp_path, nodes(cpu="32"), workload("Deployment", "web", replicas=3), others)
    assert change(found, replicas="default/*=x2").groups["worker"].pods == 10
    assert change(found, replicas="web=1").groups["worker"].pods == 5
    assert change(found, replicas="db=-9").groups["worker"].pods == 1


def test_daemon_sets_follow_the_nodes(tmp_path: Path) -> None:
    found = settled(tmp_path, nodes(count=2), workload("DaemonSet", "logs"))
    assert change(found, "worker=5").groups["worker"].pods == 5
    after = change(found, "worker=1")
    assert (after.groups["worker"].pods, after.pending, found.lost) == (1, 0, [])


def test_a_pod_of_its_own_is_lost_with_its_node(tmp_path: Path) -> None:
    found = settled(tmp_path, nodes(), pod("alone", nodeName="worker-1"))
    change(found, "worker=1")
    assert [str(key) for key in found.lost] == ["default/alone"]
    assert placed(found) == {}


def test_important_pods_come_first_and_take_the_room_of_others(tmp_path: Path) -> None:
    found = settled(
        tmp_path, nodes(count=1), priority_class("high", 1000), workload("Deployment", "web", replicas=4),
        workload("Deployment", "vip", replicas=1, priorityClassName="high"),
    )  # fmt: skip
    after = change(found, replicas="vip=3")
    names = Counter(each["metadata"]["labels"]["app"] for each in found.world.all(POD) if "nodeName" in each["spec"])
    assert names == {"vip": 3, "web": 1}
    assert [(one.workload, one.pods) for one in after.waiting] == [("deployment/web", 3)]


def test_a_default_priority_counts_and_an_unknown_class_is_told(tmp_path: Path) -> None:
    found = settled(
        tmp_path,
        nodes(),
        priority_class("usual", 5, globalDefault=True),
        pod("one"),
        pod("odd", priorityClassName="no"),
    )
    assert {each["metadata"]["name"]: each["spec"].get("priority") for each in found.world.all(POD)} == {
        "one": 5, "odd": None,
    }  # fmt: skip
    assert [one.reason for one in reports.state(found).waiting] == ["no PriorityClass with name no was found"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (nodes(cpu="four"), "Node worker-0: status.capacity.cpu"),
        (nodes(name="worker"), "must contain {index}"),
        (nodes(count=-1), "count must be from 0 to"),
        (nodes(speed="7"), "no such field: speed"),
        ({"nodes": ["worker"]}, "must be a mapping"),
        ({"nodes": [], "node": 1}, "no such field: node"),
        (nodes(taints=[{"key": "a", "effect": "Sometimes"}]), "Sometimes"),
        (workload("Deployment", "web", cpu="much"), "requests.cpu"),
        (workload("Deployment", "web", replicas=-1), "spec.replicas"),
        ({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": 1}, "spec"),
        ({"kind": "Deployment"}, "Deployment"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(tmp_path: Path, document: Any, message: str) -> None:
    with pytest.raises((UsageError, ConfigurationError)) as refused:
        read(tmp_path, document)
    assert message in str(refused.value)
    assert "cluster.yml" in str(refused.value)


@pytest.mark.parametrize("text", ["worker", "worker=", "=3", "worker=-", "worker=1.5", "worker=many", "worker=+-1"])
def test_a_change_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="TARGET=AMOUNT"):
        changes.parse("--nodes", text)


def test_a_change_of_what_is_not_there_names_what_is(tmp_path: Path) -> None:
    found = settled(tmp_path, nodes(), workload("Deployment", "web", replicas=1))
    with pytest.raises(UsageError, match="no group gpu; there is worker"):
        change(found, "gpu=1")
    with pytest.raises(UsageError, match="there is default/web"):
        change(found, replicas="shop/*=1")


def test_no_node_has_more_than_it_has_and_what_waits_fits_nowhere(tmp_path: Path) -> None:
    for seed in range(8):
        dice = random.Random(seed)
        documents = [
            nodes(f"n{group}-{{index}}", dice.randint(1, 4), str(dice.randint(1, 6)))
            for group in range(dice.randint(1, 3))
        ]
        documents += [
            workload("Deployment", f"d{number}", f"{dice.randint(1, 30)}00m", dice.randint(0, 9)) for number in range(4)
        ]
        found = settled(tmp_path, *documents)
        change(found, f"n0={dice.randint(0, 6)}", f"d1={dice.randint(0, 15)}")
        free = {info.name: info.has["cpu"] - info.requested.get("cpu", 0) for info in found.nodes()}
        assert min(free.values(), default=0) >= 0, seed
        waiting = [each for each in found.world.all(POD) if "nodeName" not in each["spec"]]
        asked = [to_milli(each["spec"]["containers"][0]["resources"]["requests"]["cpu"]) for each in waiting]
        room = [info.has["memory"] - info.requested.get("memory", 0) for info in found.nodes()]
        assert all(
            cpu > free_cpu or free_memory < 1 << 30
            for cpu in asked
            for free_cpu, free_memory in zip(free.values(), room, strict=True)
        ), seed


class Cluster:
    """Answers lists with the objects of a simulation, as a cluster would; Secrets are nobody's to ask for."""

    def __init__(self, simulation: Simulation) -> None:
        self._world = simulation.world

    def list(self, kind: Kind, *_: Any) -> ObjectList:
        """Return all objects of a kind."""
        assert kind not in {SECRET}
        return ObjectList(self._world.all(kind), "1")


def telling(kind: str, name: str, replicas: int | None = None, **more: Any) -> Any:
    """Return a workload that has something to hide wherever a template may have it."""
    made = workload(kind, name, replicas=replicas, **more)
    made["metadata"]["annotations"] = {"told": MARKER}
    inner = made["spec"]["template"]
    inner["metadata"]["annotations"] = {"told": MARKER}
    inner["spec"] |= {
        "serviceAccountName": MARKER, "imagePullSecrets": [{"name": MARKER}], "hostname": MARKER,
        "volumes": [{"name": "a", "secret": {"secretName": MARKER}}, {"name": "b", "hostPath": {"path": f"/{MARKER}"}}],
        "initContainers": [{"name": "first", "image": f"{MARKER}:1", "command": [MARKER]}],
    }  # fmt: skip
    probe = {"httpGet": {"path": f"/{MARKER}", "port": 80, "httpHeaders": [{"name": "x", "value": MARKER}]}}
    inner["spec"]["containers"][0] |= {
        "image": f"{MARKER}:1", "args": [MARKER], "workingDir": f"/{MARKER}", "livenessProbe": probe,
        "env": [{"name": "PASSWORD", "value": MARKER}],
        "envFrom": [{"secretRef": {"name": MARKER}}], "lifecycle": {"preStop": {"exec": {"command": [MARKER]}}},
    }  # fmt: skip
    return made


def running(folder: Path) -> Simulation:
    """Return a cluster whose Deployment and DaemonSet have had another environment before."""
    before = [telling(kind, kind.lower(), 3 if kind != "DaemonSet" else None)
              for kind in ("Deployment", "StatefulSet", "DaemonSet")]  # fmt: skip
    found = settled(folder, nodes(count=3, cpu="8"), pod("alone"), *before)
    for each in before:
        each["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = f"{MARKER}-2"
    for obj in read(folder, *before).objects:
        found.put(obj)
    assert found.settle()
    return found


def test_a_snapshot_has_names_and_sizes_and_nothing_that_was_meant_to_stay(tmp_path: Path) -> None:
    found = running(tmp_path)
    text = "\n".join(snapshot(Cluster(found)))
    assert MARKER in str(found.world.all(POD))
    assert MARKER not in text
    assert '"requests":{"cpu":"1","memory":"1Gi"}' in text


def test_nothing_happens_in_a_snapshot_that_did_not_happen_in_its_cluster(tmp_path: Path) -> None:
    found = running(tmp_path)
    assert [len(found.world.all(kind)) for kind in (REPLICA_SET, CONTROLLER_REVISION)] == [2, 4]
    file = tmp_path / "snapshot.json"
    file.write_text(f'{{"apiVersion": "v1", "kind": "List", "items": [{",".join(snapshot(Cluster(found)))}]}}')
    again = Simulation(description.read([str(file)], "default", NOW).objects, NOW)
    assert again.settle()
    assert (reports.state(again).made, reports.state(again).ended) == (0, 0)
    assert placed(again) == placed(found)
    assert [each["metadata"]["name"] for each in again.world.all(NODE)] == ["worker-0", "worker-1", "worker-2"]


def ask(*words: str) -> int:
    return main(["simulate", *words])


def test_the_command_shows_what_is_and_what_would_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, more = tmp_path / "cluster.yml", tmp_path / "more.yml"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    file.write_text(yaml.safe_dump_all([nodes(count=3), workload("Deployment", "web", replicas=9), secret]))
    assert ask(str(file)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "GROUP    NODES   PODS   CPU    MEMORY",
        "worker   3       9      75 %   38 %",
        "",
        "without a node: 0 Pods",
        "left out: 1 Secret",
    ]
    more.write_text(yaml.safe_dump_all([workload("Deployment", "new", replicas=2), nodes("big-{index}", 1, "2")]))
    assert ask(str(file), "--nodes", "worker=-1", "-f", str(more)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "GROUP    NODES   PODS     CPU            MEMORY",
        "big      0 → 1   0 → 2    - → 100 %      - → 25 %",
        "worker   3 → 2   9 → 8    75 % → 100 %   38 % → 50 %",
        "all      3       9 → 10   75 % → 100 %   38 % → 42 %",
        "",
        "without a node: 0 → 1 Pods",
        "Pods deleted: 3, created: 5",
        "default deployment/new: 1: 0/3 nodes are available: 3 Insufficient cpu.",
        "left out: 1 Secret",
    ]
    assert ask(str(file), "--replicas", "web=1", "-o", "json") == 0
    body = json.loads(capsys.readouterr().out)
    assert body["after"]["groups"][0]["resources"]["cpu"] == {"requested": "1", "allocatable": "12", "percent": 8}
    assert (body["podsEnded"], body["podsMade"], body["notes"]) == (8, 0, ["left out: 1 Secret"])


def test_the_command_says_what_is_wrong_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    absent = str(tmp_path / "no.yml")
    for words, message in (
        ([], "--snapshot >FILE"), (["--snapshot", "file"], "it only prints"), ([absent], "cannot read"),
    ):  # fmt: skip
        assert ask(*words) == 1
        assert message in capsys.readouterr().err


def test_folders_are_read_with_all_folders_in_them_where_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, document in (("nodes.yml", nodes(count=3)), ("in/a.yml", workload("Deployment", "web", replicas=9))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(yaml.safe_dump(document))
    for words, pods in (([], 0), (["-R"], 9)):
        assert ask(str(tmp_path), *words) == 0
        assert capsys.readouterr().out.splitlines()[1].split()[2] == str(pods)


@pytest.mark.parametrize("words", [["-n", "shop"], ["-R"]])
def test_a_snapshot_takes_no_option_about_files(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        ask("--snapshot", *words)
    assert end.value.code == 2
    assert "prints the whole cluster" in capsys.readouterr().err
