"""Every file of tests/cases/judge_nodes is what one plugin says of nodes; the file's name is the sentence.

Most facts are those of the plugins' own tests in kube-scheduler 1.32, others follow from their source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.scheduler.deciding.cycle import Judged, explain
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.framework.storage import Storage
from minik8s_modules.scheduler.profiles.building import bench
from minik8s_modules.scheduler.profiles.configuration import Enabled, PluginSet, ProfileSettings
from tests.unit.scheduler.worlds import (
    claim,
    csi_driver,
    csi_node,
    node,
    placed,
    pod,
    storage_capacity,
    storage_class,
    volume,
)

CASES = sorted((Path(__file__).parents[3] / "cases" / "judge_nodes").glob("*.yml"))


def test_there_are_cases():
    assert len(CASES) >= 150


def alone(plugin: str, arguments: Any) -> ProfileSettings:
    enabled = tuple(Enabled(name, 1) for name in ("PrioritySort", plugin, "DefaultBinder"))
    plugins = {"multiPoint": PluginSet(enabled, frozenset({"*"}))}
    return ProfileSettings(plugins=plugins, arguments={plugin: arguments or {}})


def of_node(name: str, fields: JsonObject) -> JsonObject:
    made = node(name, **fields)
    made["status"]["allocatable"] |= fields.get("more", {})
    made["status"]["images"] = [
        {"names": [image], "sizeBytes": size} for image, size in fields.get("images", {}).items()
    ]
    return made


def of_pod(number: int, fields: JsonObject) -> JsonObject:
    made = placed(number, fields)
    made["spec"]["volumes"] = fields.get("volumes", [])
    return made


def said(judged: Judged) -> str | int | None:
    if judged.status is not None:
        return judged.status.message
    return next(iter(judged.scores.values()))[0] if judged.scores else None


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_judge_nodes(path: Path):
    case = yaml.safe_load(path.read_text())
    storage = Storage.of(
        [claim(name, **each) for name, each in case.get("claims", {}).items()],
        [volume(name, **each) for name, each in case.get("volumes", {}).items()],
        [storage_class(name, **each) for name, each in case.get("classes", {}).items()],
        [csi_node(name, **each) for name, each in case.get("csi_nodes", {}).items()],
        [csi_driver(name, **each) for name, each in case.get("drivers", {}).items()],
        [storage_capacity(f"c{number}", **each) for number, each in enumerate(case.get("capacities", []))],
    )
    nodes = [of_node(name, each or {}) for name, each in case["nodes"].items()]
    pods = [of_pod(number, each) for number, each in enumerate(case.get("pods", []))]
    new = pod("new", **case.get("pod", {}))
    new["metadata"]["labels"] = case.get("labels", {})
    snapshot = Snapshot.of(nodes, pods, namespaces=case.get("namespaces"), storage=storage)
    judged = explain(new, snapshot, bench(alone(case["plugin"], case.get("args"))))
    assert {one.node: said(one) for one in judged} == case["expect"]
