"""What ``minik8s rollout`` tells: kubectl's words, a bar, the revisions, and what keeps pods from being ready."""

from __future__ import annotations

import io
from typing import Any

import pytest

from minik8s_modules.api.kinds import DAEMON_SET, DEPLOYMENT, STATEFUL_SET, Kind
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.output import Paint
from minik8s_modules.cli.rollout import bare_template, chosen_revision
from minik8s_modules.cli.rollout_picture import REVISION, bar, picture, verdict

PLAIN = Paint(io.StringIO())


def workload(wanted: int = 3, strategy: Any = None, **status: Any) -> dict[str, Any]:
    spec = {"replicas": wanted, "updateStrategy": strategy or {"type": "RollingUpdate"}}
    meta = {"name": "web", "generation": 2}
    return {"metadata": meta, "spec": spec, "status": {"observedGeneration": 2, **status}}


def replica_set(number: int, there: int, able: int) -> dict[str, Any]:
    meta = {"name": f"web-{number}", "annotations": {REVISION: str(number)}}
    return {"metadata": meta, "spec": {}, "status": {"replicas": there, "availableReplicas": able}}


@pytest.mark.parametrize(
    ("kind", "obj", "told"),
    [
        (DEPLOYMENT, workload(observedGeneration=1), "spec update to be observed"),
        (DEPLOYMENT, workload(updatedReplicas=1, replicas=3), "1 out of 3 new replicas have been updated"),
        (DEPLOYMENT, workload(updatedReplicas=3, replicas=4), "1 old replicas are pending termination"),
        (DEPLOYMENT, workload(updatedReplicas=3, replicas=3, availableReplicas=2), "2 of 3 updated replicas"),
        (DEPLOYMENT, workload(updatedReplicas=3, replicas=3, availableReplicas=3), "successfully rolled out"),
        (DAEMON_SET, workload(desiredNumberScheduled=2, updatedNumberScheduled=1), "1 out of 2 new pods"),
        (DAEMON_SET, workload(desiredNumberScheduled=2, updatedNumberScheduled=2), "0 of 2 updated pods"),
        (DAEMON_SET, workload(strategy={"type": "OnDelete"}), "only available for RollingUpdate"),
        (STATEFUL_SET, workload(readyReplicas=1), "Waiting for 2 pods to be ready"),
        (STATEFUL_SET, workload(readyReplicas=3, updateRevision="b", currentRevision="a"), "at revision b"),
        (STATEFUL_SET, workload(readyReplicas=3, currentReplicas=3), "rolling update complete 3 pods"),
    ],
)
def test_the_words_are_kubectls(kind: Kind, obj: dict[str, Any], told: str):
    assert told in verdict(kind, obj).text


def test_a_deadline_that_passed_is_a_failure():
    obj = workload(conditions=[{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}])
    assert verdict(DEPLOYMENT, obj) == ('deployment "web" exceeded its progress deadline', True, True)


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


def test_undo_goes_to_the_revision_before_or_the_one_named():
    sets = [replica_set(number, 0, 0) for number in (1, 2, 4)]
    assert chosen_revision(sets, 0) is sets[1]
    assert chosen_revision(sets, 1) is sets[0]
    with pytest.raises(UsageError, match="no revision before"):
        chosen_revision(sets[:1], 0)
    with pytest.raises(UsageError, match="there are: 1, 2, 4"):
        chosen_revision(sets, 3)


def test_the_template_of_a_revision_is_without_its_hash():
    template = {"metadata": {"labels": {"app": "web", "pod-template-hash": "x"}}, "spec": {}}
    assert bare_template({"spec": {"template": template}})["metadata"]["labels"] == {"app": "web"}
