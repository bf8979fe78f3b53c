"""What a Node lists as volumes in use: from before a pod may have one until the node has it no more."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from minik8s_modules.api.kinds import NODE
from minik8s_modules.api.storage.attachments import attached, in_use, with_attached
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.module_utils.minik8s.volumes import csi
from minik8s_modules.reconcile.loop.nodestate import NodeState, Sent
from minik8s_modules.reconcile.loop.section_changes import full
from minik8s_modules.reconcile.nodes.registration import Registrar
from minik8s_modules.reconcile.values.items import Outcome
from tests.unit.reconcile.worlds import UID

NAME = "kubernetes.io/csi/d.example.com^h"
NONE: frozenset[str] = frozenset()
KEY = f"{UID}/data"
ENTRY = {"kind": "csi", "driver": "d.example.com", "handle": "h", "publish_context": {}}


def outcome(state: NodeState, entries: dict[str, Any], in_use: list[str] | None, **more: Any) -> None:
    """Have the node answer a pass over its volumes."""
    state.sent = Sent("i", {"volumes": full(entries)})
    result = {"digest": "d", "status": {}, "errors": {}, "due": [], "held": [], "steps": [], "changed": False}
    answer = {**result, "base_mismatch": False, "fenced": False, "in_use": in_use, **more}
    now = datetime(2026, 1, 1, tzinfo=UTC)
    state.on_outcome(Outcome("i", "n", "ok", {"volumes": answer}, ""), now, 0.0, lambda *_: None)


@pytest.fixture
def state() -> NodeState:
    return NodeState("n", lambda: 300.0)


def test_nothing_leaves_the_list_while_the_node_has_not_said_what_it_has(state: NodeState):
    assert state.volumes_in_use(frozenset({NAME})) == {NAME}
    outcome(state, {}, None, base_mismatch=True)
    assert state.volumes_in_use(frozenset({NAME})) == {NAME}
    outcome(state, {}, [])
    assert state.volumes_in_use(frozenset({NAME})) == NONE


def test_a_volume_is_listed_as_soon_as_a_pod_asks_for_it(state: NodeState):
    outcome(state, {}, [])
    state.volumes.used[UID] = frozenset({NAME})
    assert state.volumes_in_use(NONE) == {NAME}


def test_a_volume_stays_until_the_node_has_it_no_more(state: NodeState):
    outcome(state, {KEY: ENTRY}, [NAME])
    assert state.volumes_in_use(NONE) == {NAME}, "the pod is gone, and nobody has asked the node yet"
    state.sent = Sent("i", {"volumes": full({})})
    assert state.volumes_in_use(frozenset({NAME})) == {NAME}, "the node is about to take it away"
    refused = {KEY: {"reason": "FailedUnMount", "message": "busy"}}
    outcome(state, {}, [NAME], errors=refused)
    assert state.volumes_in_use(frozenset({NAME})) == {NAME}
    outcome(state, {}, [])
    assert state.volumes_in_use(frozenset({NAME})) == NONE


def test_what_is_attached_nowhere_is_not_listed(state: NodeState):
    outcome(state, {KEY: {name: ENTRY[name] for name in ("kind", "driver", "handle")}}, [])
    assert state.volumes_in_use(NONE) == NONE


def test_a_plan_takes_a_volume_for_attached():
    volume = {"spec": {"csi": {"driver": "d.example.com", "volumeHandle": "h"}}}
    node = {"status": {"volumesInUse": ["kubernetes.io/csi/other^h"], "phase": "kept"}}
    result = with_attached(node, [volume, {"spec": {"nfs": {}}}])
    assert in_use(result) == {NAME, "kubernetes.io/csi/other^h"}
    assert attached(result) == {NAME}
    assert result["status"]["phase"] == "kept"
    assert with_attached(node, []) is node


def test_the_node_is_told_and_told_again_when_the_list_changes():
    api = FakeApi()
    api.create(NODE, {"metadata": {"name": "n1"}, "status": {}})
    registrar = Registrar(api, lambda name: api.get(NODE, name), lambda _: None, "", SystemClock())
    for names, listed in (({NAME}, [NAME]), (set(), None)):
        registrar.on_volumes("n1", frozenset(names))
        registrar.write("n1")
        assert api.get(NODE, "n1")["status"].get("volumesInUse") == listed


def test_the_record_says_what_may_be_mounted(tmp_path):
    state_dir = str(tmp_path)
    for volume, said in (("a", {"attached": True}), ("b", {"attached": False}), ("c", {"driver": ""})):
        path = tmp_path / "csi" / UID / f"{volume}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        csi._note(str(path), {"driver": "d.example.com", "handle": "h", **said})
    assert csi.in_use(state_dir) == [NAME]
    assert csi.in_use(f"{state_dir}/none") == []
