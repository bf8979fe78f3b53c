"""A volume's status says where its size holds nobody back."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.core.steps import Patch
from minik8s_modules.controllers.storage.volumes import decide_volume

NOT_ENFORCED = "its size is not enforced: pods may write more than that"
NFS = {"nfs": {"server": "192.0.2.1", "path": "/srv"}}
HERE = {"hostPath": {"path": "/data"}}
CLAIM: JsonObject = {"metadata": {"name": "c", "namespace": "d", "uid": "u"}, "spec": {"volumeName": "v"}}


def message(source: dict[str, Any], **annotations: str) -> str | None:
    """Return what the status of a volume says once it is bound."""
    held = {"name": "c", "namespace": "d", "uid": "u"}
    volume = {"metadata": {"name": "v", "annotations": annotations}, "spec": {**source, "claimRef": held}}
    (step,) = decide_volume(volume, CLAIM)
    assert isinstance(step, Patch)
    assert step.body["status"]["phase"] == "Bound"
    said: str | None = step.body["status"]["message"]
    return said


@pytest.mark.parametrize("source", [NFS, HERE], ids=["nfs", "hostPath"])
def test_volumes_that_are_made_say_whether_they_are_limited(source: dict[str, Any]) -> None:
    maker = {"pv.kubernetes.io/provisioned-by": "minik8s.io/nfs"}
    assert message(source, **maker) == NOT_ENFORCED
    assert message(source, **maker, **{"minik8s.io/volume-quota": "project"}) is None


def test_a_volume_on_a_server_of_somebody_elses_says_it_too() -> None:
    assert message(NFS) == NOT_ENFORCED
    assert message(HERE) is None
    assert message({"csi": {"driver": "d", "volumeHandle": "h"}}) is None
