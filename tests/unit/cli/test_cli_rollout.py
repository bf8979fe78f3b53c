"""What ``minik8s rollout status`` draws: a bar, the revisions, and what keeps pods from being ready."""

from __future__ import annotations

import io
from typing import Any

from minik8s_modules.api.kinds import DEPLOYMENT
from minik8s_modules.cli.output import Paint
from minik8s_modules.cli.rollout_picture import REVISION, bar, picture

PLAIN = Paint(io.StringIO())


def workload(wanted: int = 3, strategy: Any = None, **status: Any) -> dict[str, Any]:
    spec = {"replicas": wanted, "updateStrategy": strategy or {"type": "RollingUpdate"}}
    meta = {"name": "web", "generation": 2}
    return {"metadata": meta, "spec": spec, "status": {"observedGeneration": 2, **status}}


def replica_set(number: int, there: int, able: int) -> dict[str, Any]:
    meta = {"name": f"web-{number}", "annotations": {REVISION: str(number)}}
    return {"metadata": meta, "spec": {}, "status": {"replicas": there, "availableReplicas": able}}


def test_the_bar_shows_available_begun_and_missing():
    assert bar(1, 2, 4, PLAIN, width=8) == "[██▒▒····]"
    assert bar(0, 0, 0, PLAIN, width=4) == "[████]"
    assert bar(9, 9, 4, PLAIN, width=4) == "[████]"


def test_the_picture_tells_revisions_and_troubles():
    obj = workload(4, updatedReplicas=2, replicas=5)
    sets = [replica_set(2, 3, 3), replica_set(3, 2, 1), replica_set(1, 0, 0)]
    lines = picture(DEPLOYMENT, obj, sets, ["pod a: no", "pod b: no", "pod c: no", "pod d: no"], PLAIN, width=40)
    assert lines[0].startswith("deployment/web  [███████▒▒▒▒▒▒▒▒")
    assert lines[0].endswith("1/4 new pods available")
    assert lines[1:3] == ["  new  revision 3   web-3  1 of 2 availa", "  old  revision 2   web-2  3 of 3 availa"]
    assert lines[3:] == ["  ! pod a: no", "  ! pod b: no", "  ! pod c: no", "  ! and 1 pods more"]
