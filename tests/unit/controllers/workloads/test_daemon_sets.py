"""DaemonSets: every file of tests/cases/decide_daemon_set is one decision, and each is cut off after every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import CONTROLLER_REVISION, DAEMON_SET, POD
from minik8s_modules.api.schema.structural import unknown_fields
from minik8s_modules.controllers.core.steps import Create, Delete, Patch, Step, WriteStatus
from minik8s_modules.controllers.simulation.deciders import daemon_set_steps
from minik8s_modules.controllers.simulation.simulated_cluster import World
from minik8s_modules.controllers.workloads import daemon_pods, history
from tests.support.workloads import NOW, SPACE, cut_off, pod, template, words, workload

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_daemon_set").glob("*.yml"))
EACH = pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
KEY = objects.Key(SPACE, "web")
ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}


def made_set(fields: dict[str, Any]) -> dict[str, Any]:
    """``nodeSelector``, ``affinity`` (expressions) and ``tolerations`` go into the template."""
    fields = dict(fields)
    more: dict[str, Any] = {key: fields.pop(key) for key in ("nodeSelector", "tolerations") if key in fields}
    if "affinity" in fields:
        term = {"nodeSelectorTerms": [{"matchExpressions": fields.pop("affinity")}]}
        more["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    made = workload(DAEMON_SET, {"updateStrategy": ROLLING, "revisionHistoryLimit": 10, **fields})
    made["spec"]["template"]["spec"] |= more
    return made


def revision(owner: dict[str, Any], number: int, image: str) -> dict[str, Any]:
    """The revision of a template with ``image``; all else is the owner's."""
    kept = {**owner["spec"]["template"], "spec": {**owner["spec"]["template"]["spec"],
            "containers": template(image=image)["spec"]["containers"]}}  # fmt: skip
    step = history.history(DAEMON_SET, {**owner, "spec": {**owner["spec"], "template": kept}}, []).update
    meta = {**step["metadata"], "uid": f"uid-revision-{number}"}
    return {**step, "metadata": meta, "revision": number}


def node(fields: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": fields["name"], "uid": fields["name"], "labels": fields.get("labels", {})}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"taints": fields.get("taints", [])}}


def made_pod(fields: dict[str, Any], owner: dict[str, Any]) -> dict[str, Any]:
    made = pod(fields, DAEMON_SET, owner)
    made["metadata"]["labels"][history.HASH_LABEL] = history.hash_of(revision(owner, 1, fields["image"]))
    if "for" in fields:
        made["spec"] = daemon_pods._for_node({}, fields["for"])
    return made


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    owner = made_set(case["set"])
    owner["status"] = case.get("set-status", owner["status"])
    everything = [owner, *(revision(owner, **each) for each in case.get("revisions", []))]
    everything += [node(each) for each in case["nodes"]]
    return case, [*everything, *(made_pod(each, owner) for each in case.get("pods", []))]


def shown(step: Step, hash_value: str) -> str:
    if isinstance(step, Create) and step.kind == POD:
        return f"{words(step)} on {daemon_pods.node_of(step.obj)}"
    if isinstance(step, Delete) and step.kind == CONTROLLER_REVISION:
        return f"delete revision {step.obj['revision']}"
    return words(step).replace(hash_value, "HASH")


@EACH
def test_decide_daemon_set(path: Path):
    case, everything = read(path)
    world = World(everything, NOW)
    steps = daemon_set_steps(world, world.get(DAEMON_SET, KEY) or {})
    current = history.hash_of(history.history(DAEMON_SET, everything[0], []).update)
    assert [shown(step, current) for step in steps] == case["steps"]
    for step in steps:
        if isinstance(step, WriteStatus):
            assert step.status.items() >= case.get("status", {}).items()
            assert unknown_fields(DAEMON_SET, {"status": step.status}) == []
        if isinstance(step, Create) and step.kind == CONTROLLER_REVISION:
            assert step.obj["revision"] == case.get("number", 1)
            assert unknown_fields(CONTROLLER_REVISION, step.obj) == []
        if isinstance(step, Create) and step.kind == POD:
            assert objects.labels(step.obj)[history.HASH_LABEL] == current
            assert unknown_fields(POD, step.obj) == []
        if isinstance(step, Patch):
            assert step.body == case["body"]


@EACH
def test_cut_off_after_any_step_it_comes_to_the_same(path: Path):
    ends = cut_off(lambda: read(path)[1], DAEMON_SET, KEY, daemon_set_steps)
    assert len({str(summary(world)) for world in ends}) == 1
    for fact, wanted in read(path)[0].get("ends", {}).items():
        assert summary(ends[0])[fact] == wanted


def summary(world: World) -> dict[str, Any]:
    revisions = {(each["metadata"]["name"], each["revision"]) for each in world.all(CONTROLLER_REVISION)}
    return {
        "pods": sorted(daemon_pods.node_of(each) for each in world.all(POD)),
        "status": sorted(objects.status(world.get(DAEMON_SET, KEY) or {}).items()),
        "revisions": sorted(revisions),
    }


def test_there_are_cases():
    assert len(CASES) >= 25


def test_a_pod_is_bound_to_its_node_in_every_term_and_keeps_what_the_template_wants():
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {"matchFields": [{"key": "x"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    owner = made_set({})
    owner["spec"]["template"]["spec"] |= {"affinity": {"nodeAffinity": required}, "hostNetwork": True}
    made = daemon_pods.new_pod(owner, "n1", "h").obj
    field = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    found = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert found == {"nodeSelectorTerms": [{**terms[0], "matchFields": field}, {"matchFields": field}]}
    keys = {each["key"] for each in made["spec"]["tolerations"]}
    assert keys == {f"node.kubernetes.io/{name}" for name in ("not-ready", "unreachable", "disk-pressure",
                    "memory-pressure", "pid-pressure", "unschedulable", "network-unavailable")}  # fmt: skip
