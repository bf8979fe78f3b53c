"""A claim whose volume grew says so once its node has made the file system as large."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.kinds import PERSISTENT_VOLUME_CLAIM
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.reconcile.loop.volume_state import VolumeState
from minik8s_modules.reconcile.status.claim_sizes import ClaimSizes, finished
from tests.unit.reconcile.worlds import UID, inputs, pod

GIB = 1 << 30
POD = pod(spec={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "shop"}}]})
KEPT = {"type": "Other", "status": "True"}


def claim(size: str = "1Gi", *conditions: JsonObject, **status: Any) -> JsonObject:
    fields = {"phase": "Bound", "capacity": {"storage": size}, **({"conditions": [*conditions]} if conditions else {})}
    meta = {"name": "shop", "namespace": "default", "uid": "c1"}
    return {"metadata": meta, "spec": {"volumeName": "pv"}, "status": {**fields, **status}}


def changes(claim: JsonObject, sizes: dict[str, int], capacity: str = "2Gi") -> JsonObject | None:
    volume = {"metadata": {"name": "pv"}, "spec": {"capacity": {"storage": capacity}}}
    found = [*finished(POD, inputs({"claims": {"shop": claim}, "volumes": {"pv": volume}}), sizes)]
    return found[0][1] if found else None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (claim(), {"capacity": {"storage": "2Gi"}}),
        (
            claim("1Gi", {"type": "FileSystemResizePending", "status": "True"}, KEPT),
            {"capacity": {"storage": "2Gi"}, "conditions": [KEPT]},
        ),
        (claim("2Gi", {"type": "FileSystemResizePending", "status": "True"}), {"conditions": None}),
        (
            claim("2Gi", allocatedResourceStatuses={"storage": "NodeResizePending"}),
            {"allocatedResourceStatuses": {"storage": None}},
        ),
        (claim("2Gi", KEPT, allocatedResourceStatuses={"storage": "ControllerResizeInProgress"}), None),
        (claim("1Gi", phase="Lost"), None),
    ],
)
def test_what_was_pending_is_over(fields: JsonObject, expected: JsonObject | None):
    assert changes(fields, {"data": 2 * GIB}) == expected


def test_a_size_that_the_volume_has_outgrown_ends_nothing():
    assert changes(claim(), {"data": 2 * GIB}, "3Gi") is None
    assert changes(claim(), {}) is None


def test_a_node_tells_a_size_once():
    volumes = VolumeState()
    result = {"in_use": [], "status": {f"{UID}/data": {"state": "present", "size_bytes": GIB}, f"{UID}/tmp": None}}
    assert volumes.take(result) == {UID}
    assert volumes.take(result) == set()
    assert volumes.sizes == {UID: {"data": GIB}}


class Told:
    """A recorder."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def event(self, _about: JsonObject, _kind: str, reason: str, _message: str, **_: str) -> None:
        """Note the reason."""
        self.reasons.append(reason)


def test_it_is_written_unless_the_claim_has_changed_meanwhile():
    api, result = FakeApi(), Told()
    made = api.create(PERSISTENT_VOLUME_CLAIM, claim("1Gi", {"type": "FileSystemResizePending", "status": "True"}))
    sizes = ClaimSizes(api, result, SystemClock())  # type: ignore[arg-type]
    status = {"capacity": {"storage": "2Gi"}, "conditions": None}
    sizes.tell(made, status, "n1")
    sizes.write(Key("default", "shop"))
    now = api.get(PERSISTENT_VOLUME_CLAIM, "shop", "default")
    assert now["status"] == {"phase": "Bound", "capacity": {"storage": "2Gi"}}
    sizes.tell(made, {"capacity": {"storage": "9Gi"}}, "n1")
    sizes.write(Key("default", "shop"))
    assert api.get(PERSISTENT_VOLUME_CLAIM, "shop", "default") == now
    assert result.reasons == ["FileSystemResizeSuccessful"]
