"""What a plan tells of a node's answer besides its steps."""

from __future__ import annotations

from minik8s_modules.reconcile.feeds.plan_subjects import Subjects
from minik8s_modules.reconcile.loop.section_changes import Request
from minik8s_modules.reconcile.planning.plan_requests import troubles
from minik8s_modules.reconcile.values.items import Outcome

MISSING = {"reason": "FailedMount", "message": "hostPath type check failed: /srv/v-1 is not a directory"}
VOLUME = {"kind": "hostPath", "path": "/srv/v-1", "type": "Directory"}


def texts_of(state: str, root: str) -> list[str]:
    folder = {"root": root, "name": "v-1", "owner": "u", "state": state}
    requests = {
        "folders": Request({"entries": {"v-1": folder}}, {}, None),
        "volumes": Request({"entries": {"p/data": VOLUME, "p/gone": None}}, {}, None),
    }
    results = {"volumes": {"errors": {"p/data": MISSING}}}
    outcome = Outcome(id="i", node="n", status="ok", message="", sections=results)
    return [note.text for note in troubles("n", outcome, Subjects("n", {}, lambda _: ()), requests)]


def test_a_folder_that_the_same_item_makes_is_not_missing() -> None:
    assert texts_of("present", "/srv") == []


def test_a_folder_that_nobody_makes_is_missing() -> None:
    said = f"node n: volumes p/data: FailedMount: {MISSING['message']}"
    assert texts_of("present", "/other") == [said]
    assert texts_of("absent", "/srv") == [said]
