"""StatefulSets: every file of tests/cases/decide_stateful_set is one decision, and each is cut off after every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import CONTROLLER_REVISION, PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET
from minik8s_modules.api.schema.structural import unknown_fields
from minik8s_modules.controllers.core.steps import Create, Delete, Step, WriteStatus
from minik8s_modules.controllers.simulation.deciders import stateful_set_steps
from minik8s_modules.controllers.simulation.simulated_cluster import World
from minik8s_modules.controllers.workloads import history, stateful_pods
from tests.support.workloads import NOW, SPACE, cut_off, pod, template, words, workload

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_stateful_set").glob("*.yml"))
EACH = pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
KEY = objects.Key(SPACE, "web")
DEFAULTS = {
    "revisionHistoryLimit": 10,
    "serviceName": "peers",
    "podManagementPolicy": "OrderedReady",
    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
}


def made_set(fields: dict[str, Any]) -> dict[str, Any]:
    """``claims`` (names of templates); ``status.currentRevision`` may be a number."""
    fields = {**DEFAULTS, **fields}
    if "claims" in fields:
        fields["volumeClaimTemplates"] = [{"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"]}}
                                        for name in fields.pop("claims")]  # fmt: skip
    return workload(STATEFUL_SET, fields)


def revision(owner: dict[str, Any], number: int, image: str) -> dict[str, Any]:
    """The revision of a template with ``image``; all else is the owner's."""
    kept = {**owner["spec"]["template"], "spec": template(image=image)["spec"]}
    made = history.history(STATEFUL_SET, {**owner, "spec": {**owner["spec"], "template": kept}}, []).update
    return {**made, "metadata": {**made["metadata"], "uid": f"uid-revision-{number}"}, "revision": number}


def made_pod(fields: dict[str, Any], owner: dict[str, Any]) -> dict[str, Any]:
    """As ``pod``; ``at`` is its ordinal, ``image`` tells its revision."""
    name = fields.get("name") or f"web-{fields['at']}"
    made = pod({**fields, "name": name}, STATEFUL_SET, owner)
    labels = {stateful_pods.NAME_LABEL: name, stateful_pods.INDEX_LABEL: str(fields.get("at", ""))}
    of = objects.name(revision(owner, 1, fields.get("image", "web:1")))
    made["metadata"]["labels"] |= {**labels, history.HASH_LABEL: of}
    return made


def claim(fields: dict[str, Any]) -> dict[str, Any]:
    meta = {
        "name": fields["name"],
        "namespace": SPACE,
        "uid": fields["name"],
        "ownerReferences": fields.get("owners", []),
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": {}}


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    owner = made_set(case["set"])
    revisions = [revision(owner, **each) for each in case.get("revisions", [])]
    number = owner["status"].get("currentRevision")
    if number is not None:
        owner["status"]["currentRevision"] = objects.name(revisions[number - 1])
    pods = [made_pod(each, owner) for each in case.get("pods", [])]
    return case, [owner, *revisions, *map(claim, case.get("claims", [])), *pods]


def shown(step: Step) -> str:
    if isinstance(step, Delete) and step.kind == CONTROLLER_REVISION:
        return f"delete revision {step.obj['revision']}"
    if isinstance(step, Create) and step.kind == CONTROLLER_REVISION:
        return "create web-HASH"
    return words(step)


@EACH
def test_decide_stateful_set(path: Path):
    case, everything = read(path)
    world = World(everything, NOW)
    steps = stateful_set_steps(world, world.get(STATEFUL_SET, KEY) or {})
    assert [shown(step) for step in steps] == case["steps"]
    names = {each["revision"]: objects.name(each) for each in world.all(CONTROLLER_REVISION)}
    for step in steps:
        if isinstance(step, WriteStatus):
            assert step.status.items() >= case.get("status", {}).items()
            assert unknown_fields(STATEFUL_SET, {"status": step.status}) == []
            if "revisions-told" in case:
                status = [step.status["currentRevision"], step.status["updateRevision"]]
                assert status == [names[number] for number in case["revisions-told"]]
        if isinstance(step, Create):
            assert unknown_fields(step.kind, step.obj) == []
        if isinstance(step, Create) and step.kind == POD and "image" in case:
            assert step.obj["spec"]["containers"][0]["image"] == case["image"]


@EACH
def test_cut_off_after_any_step_it_comes_to_the_same(path: Path):
    ends = cut_off(lambda: read(path)[1], STATEFUL_SET, KEY, stateful_set_steps)
    assert len({str(summary(world)) for world in ends}) == 1
    for fact, wanted in read(path)[0].get("ends", {}).items():
        assert summary(ends[0])[fact] == wanted


def summary(world: World) -> dict[str, Any]:
    claims = world.all(PERSISTENT_VOLUME_CLAIM)
    owners = [f"{each['kind']}/{each['name']}" for one in claims for each in objects.owner_references(one)]
    return {
        "pods": sorted(map(objects.name, world.all(POD))),
        "claims": sorted(map(objects.name, claims)),
        "owners": owners,
        "status": sorted(objects.status(world.get(STATEFUL_SET, KEY) or {}).items()),
        "revisions": sorted(each["revision"] for each in world.all(CONTROLLER_REVISION)),
    }


def test_there_are_cases():
    assert len(CASES) >= 30


def test_a_pod_has_its_names_and_claims():
    owner = made_set({"replicas": 1, "claims": ["data"]})
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
    owner["spec"]["template"]["spec"]["volumes"] = volumes
    of = history.history(STATEFUL_SET, owner, []).update
    made = stateful_pods.new_pod(owner, of, 0).obj
    assert (made["metadata"]["name"], "generateName" in made["metadata"]) == ("web-0", False)
    assert (made["spec"]["hostname"], made["spec"]["subdomain"]) == ("web-0", "peers")
    assert objects.labels(made) == {
        "app": "web",
        "statefulset.kubernetes.io/pod-name": "web-0",
        "apps.kubernetes.io/pod-index": "0",
        "controller-revision-hash": objects.name(of),
    }
    claimed = {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0", "readOnly": False}}
    assert made["spec"]["volumes"] == [claimed, volumes[1]]


@pytest.mark.parametrize(
    ("name", "ordinal"),
    [("web-0", 0), ("web-12", 12), ("web", None), ("web-a", None), ("other-0", None), ("web-1-2", None),
     ("web-99999999999", None), ("web-\N{ARABIC-INDIC DIGIT ONE}", None)],
)  # fmt: skip
def test_ordinals_of_names(name: str, ordinal: int | None):
    assert stateful_pods.ordinal_of(made_set({}), {"metadata": {"name": name}}) == ordinal
