"""Deployments: every file of tests/cases/decide_deployment is one decision, and each is cut off after every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import DEPLOYMENT, POD, REPLICA_SET
from minik8s_modules.api.schema.structural import unknown_fields
from minik8s_modules.controllers.core.steps import Create, Patch, Step, WriteStatus, controller_reference
from minik8s_modules.controllers.simulation.deciders import deployment_steps
from minik8s_modules.controllers.simulation.simulated_cluster import World
from minik8s_modules.controllers.workloads import revisions
from minik8s_modules.controllers.workloads.deployments import replica_annotations
from tests.support.workloads import NOW, SPACE, cut_off, pod, template, words, workload

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_deployment").glob("*.yml"))
EACH = pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
KEY = objects.Key(SPACE, "web")


def made_set(fields: dict[str, Any], deployment: dict[str, Any]) -> dict[str, Any]:
    """``image``, ``size``, ``available`` (and all others: of its status), ``revision``, ``age``, ``owner``."""
    image, size = fields.get("image", "web:1"), fields.get("size", 0)
    made = template(image=image)
    value = fields.get("hash", image.replace(":", ""))
    noted = replica_annotations(deployment) if fields.get("noted", True) is True else fields["noted"]
    annotations = {**{key: str(count) for key, count in noted.items()}, **fields.get("annotations", {})}
    if "revision" in fields:
        annotations[revisions.REVISION] = str(fields["revision"])
    replicas = fields.get("actual", size)
    status = {"replicas": replicas, "observedGeneration": 1}
    able = fields.get("available", size)
    status |= {field: count for field, count in (("readyReplicas", able), ("availableReplicas", able)) if count}
    obj = workload(REPLICA_SET, {"age": fields.get("age", 500), "annotations": annotations, "status": status,
                                 "replicas": size}, f"web-{value}")  # fmt: skip
    obj["status"] |= {"conditions": fields["conditions"]} if "conditions" in fields else {}
    hashed = {"app": "web", revisions.HASH_LABEL: value}
    obj["metadata"]["labels"] = dict(hashed)
    obj["spec"]["template"] = {**made, "metadata": {"labels": dict(hashed)}}
    obj["spec"]["selector"] = {"matchLabels": dict(hashed)}
    if fields.get("owner", "self") == "self":
        obj["metadata"]["ownerReferences"] = [controller_reference(DEPLOYMENT, deployment)]
    elif fields["owner"] != "none":
        other = {"metadata": {"name": fields["owner"], "uid": f"uid-{fields['owner']}"}}
        obj["metadata"]["ownerReferences"] = [controller_reference(DEPLOYMENT, other)]
    return obj


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    fields = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600, **case["deployment"]}  # fmt: skip
    deployment = workload(DEPLOYMENT, fields)
    sets = [made_set(each, deployment) for each in case.get("sets", [])]
    pods = []
    for each, one in zip(case.get("sets", []), sets, strict=True):
        pods += [pod(about, REPLICA_SET, one) for about in each.get("pods", [])]
    return case, [deployment, *sets, *pods]


def decided(everything: list[dict[str, Any]]) -> list[Step]:
    world = World(everything, NOW)
    return deployment_steps(world, world.get(DEPLOYMENT, KEY) or {})


@EACH
def test_decide_deployment(path: Path):
    case, everything = read(path)
    steps = decided(everything)
    shown = [words(step) for step in steps]
    value = revisions.template_hash(
        revisions.template_of(everything[0]), objects.status(everything[0]).get("collisionCount", 0)
    )
    assert [each.replace(value, "HASH") for each in shown] == case["steps"]
    for step in steps:
        if isinstance(step, WriteStatus):
            assert step.status.items() >= case.get("status", {}).items()
            assert unknown_fields(DEPLOYMENT, {"status": step.status}) == []
            for kind, reason in case.get("conditions", {}).items():
                found = next((each for each in step.status["conditions"] if each["type"] == kind), None)
                assert (found["reason"] if found else None) == reason
        if isinstance(step, Create) and "made" in case:
            assert step.obj["spec"].items() >= case["made"].items()
        if isinstance(step, Patch) and step.kind == REPLICA_SET and "body" in case:
            assert step.body == case["body"]


@EACH
def test_cut_off_after_any_step_it_comes_to_the_same(path: Path):
    ends = cut_off(lambda: read(path)[1], DEPLOYMENT, KEY, deployment_steps)
    assert len({str(summary(world)) for world in ends}) == 1


def summary(world: World) -> Any:
    deployment = world.get(DEPLOYMENT, KEY) or {}
    sets = {objects.name(each): (each["spec"]["replicas"], objects.annotations(each).get(revisions.REVISION))
            for each in world.controlled(REPLICA_SET, deployment)}  # fmt: skip
    counts = {field: value for field, value in objects.status(deployment).items() if field != "conditions"}
    progressing = (objects.condition(deployment, "Progressing") or {}).get("status")
    return sorted(sets.items()), counts, progressing, objects.annotations(deployment), len(world.all(POD))


def test_there_are_cases():
    assert len(CASES) >= 20
