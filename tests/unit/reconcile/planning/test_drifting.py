"""Drift is what somebody changed; what could never be realized stands apart from it."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.feeds.plan_subjects import Subjects
from minik8s_modules.reconcile.loop.basis import Basis
from minik8s_modules.reconcile.loop.section_changes import full
from minik8s_modules.reconcile.planning.drifting import drift_of
from minik8s_modules.reconcile.values.items import Outcome
from tests.unit.reconcile.worlds import NODE, UID, pod

HAD, WANTED = {"image": "a"}, {"image": "b"}
KEY = f"{UID}/app"
MISSING = {"reason": "HostPathMissing", "message": "/data is not there"}


def answer(
    realized: dict[str, Any] | None,
    *keys: str,
    errors: JsonObject | None = None,
    known: Any = None,
    policy: str = "heal",
    action: str = "create",
) -> JsonObject:
    """Return a node's part where the containers ``keys`` have steps and are WANTED."""
    result = {
        "changed": bool(keys),
        "differences": {"before": dict.fromkeys(keys), "after": {key: {"image": "b"} for key in keys}},
        "steps": [{"action": action, "key": key, "detail": ""} for key in keys],
        "errors": errors or {},
    }
    basis = Basis(
        node=marked(policy), pods=(pod(),), decisions={}, observed={}, confirmed={}, images=frozenset(), busy=False,
        realized={} if realized is None else {"containers": realized}, errors=known or {},
    )  # fmt: skip
    outcome = Outcome("i", "n1", "ok", {"containers": result}, "")
    wanted = full(dict.fromkeys([KEY, *keys], WANTED))
    subjects = Subjects("n1", {UID: pod()}, lambda _: ())
    found = drift_of("n1", outcome, {"containers": wanted}, basis, subjects)
    assert found.notes == ()
    assert found.plan is not None
    return found.plan


def marked(policy: str) -> JsonObject:
    meta = {"name": "n1", "annotations": {"minik8s.io/drift": f"containers={policy}"}}
    return {**NODE, "metadata": meta}


def test_of_what_is_held_a_report_is_told_as_such_and_nothing_is_told_of_what_is_ignored():
    (step,) = answer({KEY: WANTED}, KEY, policy="report")["steps"]
    assert step["policy"] == "report"
    for errors in ({}, {KEY: MISSING}):
        plan = answer({KEY: WANTED}, KEY, policy="ignore", errors=errors)
        assert (plan["steps"], plan["diff"], plan.get("faults")) == ([], {}, None)
    assert "faults" in answer({KEY: HAD}, KEY, policy="ignore")


def test_what_the_node_had_is_drift():
    plan = answer({KEY: WANTED}, KEY)
    assert [step["key"] for step in plan["steps"]] == [KEY]
    assert list(plan["diff"]) == ["containers"]
    assert "faults" not in plan


@pytest.mark.parametrize("realized", [None, {}, {KEY: WANTED}])
def test_what_we_left_ourselves_is_neither_drift_nor_a_fault(realized: Any):
    plan = answer(realized, KEY, action="tidy")
    assert (plan["steps"], plan["diff"], plan.get("faults")) == ([], {}, None)


def test_what_it_never_had_is_no_drift_but_a_fault():
    plan = answer({KEY: HAD}, KEY)
    assert (plan["steps"], plan["diff"]) == ([], {})
    about = [{"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "web"}]
    fields = {"reason": "Pending", "message": "it is declared and not yet realized", "about": about}
    assert plan["faults"] == [{"section": "containers", "key": KEY, **fields}]


@pytest.mark.parametrize("errors", [{}, {KEY: {"reason": "SandboxMissing", "message": "-"}}])
def test_a_fault_has_its_own_cause_or_that_of_its_pod(errors):
    plan = answer({}, KEY, errors=errors, known={f"volumes/{UID}/data": MISSING, "volumes/other/data": {}})
    reason = "SandboxMissing" if errors else "HostPathMissing"
    assert [fault["reason"] for fault in plan["faults"]] == [reason]
    assert plan["steps"] == []


def test_what_the_node_had_and_cannot_have_again_is_drift():
    plan = answer({KEY: WANTED}, KEY, errors={KEY: MISSING})
    assert plan["steps"] == []
    assert [(fault["reason"], fault["drifted"]) for fault in plan["faults"]] == [("HostPathMissing", True)]


def test_of_a_node_that_was_never_looked_at_everything_may_be_drift():
    assert [step["key"] for step in answer(None, KEY)["steps"]] == [KEY]


def test_a_node_that_fails_to_answer_is_told():
    outcome = Outcome("i", "n1", "unreachable", {}, "no route")
    basis = Basis(NODE, (), {}, {}, {}, frozenset(), busy=False)
    found = drift_of("n1", outcome, {}, basis, Subjects("n1", {}, lambda _: ()))
    assert found.plan is None
    assert [note.text for note in found.notes] == ["node n1: no route"]
