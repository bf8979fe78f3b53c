"""Which CSI volumes are attached where: by what Pods there are, and never from under a mount."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.storage.attachments import attached, attachment_name
from minik8s_modules.controllers.core.steps import Again, Create, Delete, Patch, RecordEvent
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


def attachment(on: str, *, done: bool = False, **meta: Any) -> JsonObject:
    return {"metadata": {"name": f"csi-{on}", **meta}, "spec": {"nodeName": on}, "status": {"attached": done}}


NAME = "kubernetes.io/csi/d.example.com^h"


def lists(*fields: str) -> JsonObject:
    """Return the status of a node that answers and lists the volume in ``fields``."""
    rows: JsonObject = {"volumesInUse": [NAME], "volumesAttached": [{"name": NAME, "devicePath": ""}]}
    return READY | {field: rows[field] for field in fields}


NODES = dict([node("a", READY), node("b", READY)])


def around(pods: list[JsonObject], *there: JsonObject, driver: Any = None, nodes: Any = None) -> Attached:
    return Attached(driver, there, pods, NODES if nodes is None else nodes)


def shown(steps: list[Any]) -> list[str]:
    said = {
        Create: lambda step: f"create {step.obj['spec']['nodeName']}",
        RecordEvent: lambda step: step.reason,
        Delete: lambda step: f"delete {step.obj['spec']['nodeName']}",
        Again: lambda _step: "again",
        Patch: lambda step: f"{'list' if attached(step.body) else 'unlist'} {step.obj['metadata']['name']}",
    }
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
    both = attachment("a"), attachment("b")
    assert shown(decide_attachments(volume("ReadWriteMany"), around(leaving, *both))) == ["delete b"]
    using = dict([node("a", lists("volumesInUse")), node("b", lists("volumesInUse"))])
    assert shown(decide_attachments(volume("ReadWriteMany"), around(leaving, *both, nodes=using))) == []


def test_a_node_keeps_what_it_lists_as_used_unless_it_is_said_to_be_off():
    there = attachment("a")
    using = lists("volumesInUse", "volumesAttached")
    for status in (using, using | SILENT, lists("volumesInUse")):
        assert shown(decide_attachments(volume(), around([], there, nodes=dict([node("a", status)])))) == []
    off = dict([node("a", using | SILENT, OUT_OF_SERVICE)])
    assert shown(decide_attachments(volume(), around([], there, nodes=off))) == ["unlist a", "delete a"]
    assert shown(decide_attachments(volume(), around([], there, nodes={}))) == ["delete a"]


def test_a_volume_is_listed_while_it_is_attached_and_taken_from_the_list_before_it_is_detached():
    used, done = [pod("a")], attachment("a", done=True)
    (step,) = decide_attachments(volume(), around(used, done))
    assert isinstance(step, Patch)
    assert step.subresource == "status"
    assert step.body == {"status": {"volumesAttached": [{"name": NAME, "devicePath": ""}]}}
    assert decide_attachments(volume(), around(used, attachment("a"))) == []
    listing = dict([node("a", lists("volumesAttached"))])
    assert decide_attachments(volume(), around(used, done, nodes=listing)) == []
    steps = decide_attachments(volume(), around([], done, nodes=listing))
    assert shown(steps) == ["unlist a", "delete a"]
    assert isinstance(steps[0], Patch)
    assert steps[0].body == {"status": {"volumesAttached": None}}


def test_what_is_attached_no_more_leaves_the_list():
    listing = dict([node("a", lists("volumesAttached", "volumesInUse"))])
    going = attachment("a", done=True, deletionTimestamp="2026-01-01T00:00:00Z")
    assert shown(decide_attachments(volume(), around([pod("a")], going, nodes=listing))) == ["unlist a"]
    assert shown(decide_attachments(volume(), around([], nodes=listing))) == ["unlist a"]


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


@pytest.mark.parametrize(
    ("mine", "others", "there", "expected"),
    [
        (["b"], ["a"], ["a"], ["FailedAttachVolume", "again"]),
        ([], ["a"], ["a"], []),
        (["a"], ["a"], ["a"], []),
        ([], [], ["a"], ["delete a"]),
    ],
)
def test_two_volumes_of_one_handle_are_one_volume(mine: list[str], others: list[str], there: list[str], expected: Any):
    """Neither is attached where the other one is not, nor detached from under it."""
    seen = around([pod(name) for name in mine], *map(attachment, there))
    seen = seen._replace(others=[pod(name) for name in others])
    assert shown(decide_attachments(volume("ReadWriteOnce"), seen)) == expected
