"""Which CSI volumes are attached where: by what Pods there are, and never from under a mount."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.storage.attachments import attachment_name
from minik8s_modules.controllers.core.steps import Again, Create, Delete, Tell
from minik8s_modules.controllers.storage.attachments import OUT_OF_SERVICE, Attached, decide_attachments

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
SILENT = {"conditions": [{"type": "Ready", "status": "Unknown"}]}


def volume(*modes: str, **meta: Any) -> JsonObject:
    source = {"driver": "d.example.com", "volumeHandle": "h"}
    return {"metadata": {"name": "pv", **meta}, "spec": {"csi": source, "accessModes": list(modes)}}


def pod(node: str, phase: str = "Running", **meta: Any) -> JsonObject:
    return {"metadata": {"name": f"on-{node}", **meta}, "spec": {"nodeName": node}, "status": {"phase": phase}}


def node(name: str, status: JsonObject, *taints: str) -> tuple[str, JsonObject]:
    spec = {"taints": [{"key": key, "effect": "NoExecute"} for key in taints]}
    return name, {"metadata": {"name": name}, "spec": spec, "status": status}


def attachment(on: str, **meta: Any) -> JsonObject:
    return {"metadata": {"name": f"csi-{on}", **meta}, "spec": {"nodeName": on}}


NODES = dict([node("a", READY), node("b", READY)])


def around(pods: list[JsonObject], *there: JsonObject, driver: Any = None, nodes: Any = None) -> Attached:
    return Attached(driver, there, pods, NODES if nodes is None else nodes)


def shown(steps: list[Any]) -> list[str]:
    said = {Create: lambda step: f"create {step.obj['spec']['nodeName']}", Tell: lambda step: step.reason,
            Delete: lambda step: f"delete {step.obj['spec']['nodeName']}", Again: lambda _step: "again"}  # fmt: skip
    return [said[type(step)](step) for step in steps]


def test_a_volume_is_attached_where_a_pod_wants_it():
    (step,) = decide_attachments(volume("ReadWriteOnce"), around([pod("a"), pod("")]))
    assert isinstance(step, Create)
    assert step.obj["metadata"]["name"] == attachment_name(volume(), "a")
    source = {"persistentVolumeName": "pv"}
    assert step.obj["spec"] == {"attacher": "d.example.com", "nodeName": "a", "source": source}


@pytest.mark.parametrize(
    ("modes", "pods", "there", "expected"),
    [
        (["ReadWriteOnce"], ["a"], ["a"], []),
        (["ReadWriteOnce"], ["a", "b"], [], ["create a", "FailedAttachVolume", "again"]),
        (["ReadWriteOnce"], ["b"], ["a"], ["delete a", "FailedAttachVolume", "again"]),
        (["ReadWriteMany"], ["a", "b"], ["a"], ["create b"]),
        (["ReadWriteOnce"], [], ["a"], ["delete a"]),
        (["ReadWriteOnce"], ["gone"], [], []),
    ],
)
def test_one_node_at_a_time_unless_it_may_be_shared(modes, pods, there, expected):
    steps = decide_attachments(volume(*modes), around([pod(one) for one in pods], *map(attachment, there)))
    assert shown(steps) == expected


def test_nothing_is_attached_for_who_ends_and_nothing_detached_before():
    leaving = [pod("a", deletionTimestamp="2026-01-01T00:00:00Z"), pod("b", "Succeeded")]
    assert shown(decide_attachments(volume("ReadWriteMany"), around(leaving))) == []
    assert shown(decide_attachments(volume("ReadWriteMany"), around(leaving, attachment("a"), attachment("b")))) == []


def test_a_node_that_does_not_answer_keeps_what_it_may_have_mounted():
    there = attachment("a")
    silent = dict([node("a", SILENT)])
    assert shown(decide_attachments(volume(), around([], there, nodes=silent))) == ["again"]
    off = dict([node("a", SILENT, OUT_OF_SERVICE)])
    assert shown(decide_attachments(volume(), around([], there, nodes=off))) == ["delete a"]
    assert shown(decide_attachments(volume(), around([], there, nodes={}))) == ["delete a"]


def test_what_is_being_detached_is_left_to_the_attacher():
    going = attachment("a", deletionTimestamp="2026-01-01T00:00:00Z")
    assert decide_attachments(volume(), around([], going)) == []


def test_a_driver_that_attaches_nothing_and_other_volumes_are_left_alone():
    none = {"spec": {"attachRequired": False}}
    assert decide_attachments(volume(), around([pod("a")], driver=none)) == []
    assert decide_attachments({"metadata": {"name": "pv"}, "spec": {"nfs": {}}}, around([pod("a")])) == []


def test_a_volume_that_goes_is_attached_nowhere_anew():
    going = volume(deletionTimestamp="2026-01-01T00:00:00Z")
    assert shown(decide_attachments(going, around([pod("a")], attachment("b")))) == ["delete b"]
