"""Quotas: each file of tests/cases/decide_quota is one count; and what makes the controller count."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import CONFIG_MAP, KINDS, POD, RESOURCE_QUOTA, SERVICE, Kind
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.core.steps import Again, WriteStatus
from minik8s_modules.controllers.policy.quotas import decide_quota, frees
from minik8s_modules.controllers.simulation.simulated_cluster import World
from tests.support.workloads import NOW, SPACE, cut_off

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_quota").glob("*.yml"))
EACH = pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
KEY = objects.Key(SPACE, "quota")


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    spec = {"hard": case["hard"], "scopes": case.get("scopes", [])}
    if "selector" in case:
        spec["scopeSelector"] = {"matchExpressions": case["selector"]}
    meta = {"name": "quota", "namespace": SPACE, "uid": "uid-quota"}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": meta,
        "spec": spec,
        "status": case.get("status", {}),
    }
    return case, quota, [made(each) for each in case["objects"]]


def kind_of(obj: dict[str, Any]) -> Kind:
    kind = KINDS.by_api_version(obj["apiVersion"], obj["kind"])
    assert kind is not None
    return kind


def made(fields: dict[str, Any]) -> dict[str, Any]:
    kind = fields.get("kind", "Pod")
    meta: dict[str, Any] = {"name": fields["name"], "namespace": fields.get("namespace", SPACE)}
    if "annotations" in fields:
        meta["annotations"] = fields["annotations"]
    if "deleted" in fields:
        meta["deletionTimestamp"] = rfc3339(NOW - timedelta(seconds=fields["deleted"]))
        meta["deletionGracePeriodSeconds"] = 30
    spec = dict(fields.get("spec", {}))
    if kind == "Pod":
        resources = {side: fields[side] for side in ("requests", "limits") if side in fields}
        spec["containers"] = [{"name": "app", "resources": resources}]
        spec["initContainers"] = (
            [{"name": "init", "resources": {"requests": fields["init"]}}] if "init" in fields else []
        )
    version = "apps/v1" if kind == "Deployment" else "v1"
    status = {"phase": fields.get("phase", "Running")}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec, "status": status}


@EACH
def test_decide_quota(path: Path):
    case, quota, found = read(path)
    steps = decide_quota(quota, [(kind_of(obj), obj) for obj in found], NOW)
    written = [step.status for step in steps if isinstance(step, WriteStatus)]
    assert written == ([{"hard": case["hard"], "used": case["used"]}] if "used" in case else [])
    assert [step.after_s for step in steps if isinstance(step, Again)] == ([case["again"]] if "again" in case else [])


@EACH
def test_cut_off_after_any_step_it_comes_to_the_same(path: Path):
    case, quota, found = read(path)

    def decide(world: World, obj: dict[str, Any]) -> list[Any]:
        return decide_quota(obj, [(kind_of(each), each) for each in found], world.now)

    for world in cut_off(lambda: [quota], RESOURCE_QUOTA, KEY, decide):
        status = objects.status(world.get(RESOURCE_QUOTA, KEY) or {})
        assert status["used"] == case.get("used", status["used"])


def test_only_what_may_use_less_than_before_is_counted_anew():
    running, ended = made({"name": "a"}), made({"name": "a", "phase": "Failed"})
    going = made({"name": "a", "deleted": 0})
    assert frees(POD, running, ended)
    assert frees(POD, running, None)
    assert frees(POD, running, going)
    assert not frees(POD, running, running)
    assert not frees(POD, ended, ended)
    other = made({"kind": "Service", "name": "a", "spec": {"type": "NodePort"}})
    assert frees(SERVICE, other, made({"kind": "Service", "name": "a"}))
    assert not frees(CONFIG_MAP, running, running)


def test_there_are_cases():
    assert len(CASES) >= 15
