"""The status of a definition: names, establishment, approval, end."""

from __future__ import annotations

import copy

import pytest

from minik8s_modules.api.custom import conditions
from minik8s_modules.api.custom.conditions import Taken
from minik8s_modules.api.kinds import CUSTOM_RESOURCE_DEFINITION, KINDS
from minik8s_modules.api.objects import condition
from tests.unit.api import samples

NOW, LATER = "2026-01-01T12:00:00Z", "2026-01-01T12:00:05Z"
FREE = Taken(frozenset(), frozenset())


def made(**names):
    obj = samples.created(samples.sample(CUSTOM_RESOURCE_DEFINITION))
    obj["spec"]["names"].update(names)
    return obj


def decided(obj, having=FREE, now=NOW, *, served=False):
    return {**obj, "status": conditions.decide(obj, having, now, served=served)}


def found_condition(obj, kind):
    return condition(obj, kind) or {}


def state(obj, kind):
    found = found_condition(obj, kind)
    return (found["status"], found["reason"]) if found else None


def test_names_are_accepted_then_established_once_served():
    first = decided(made(shortNames=["wd"]))
    assert first["status"]["acceptedNames"] == {
        "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": ["wd"],
    }  # fmt: skip
    assert state(first, "NamesAccepted") == ("True", "NoConflicts")
    assert state(first, "Established") == ("False", "Installing")
    assert decided(first)["status"] is first["status"]
    second = decided(first, now=LATER, served=True)
    assert state(second, "Established") == ("True", "InitialNamesAccepted")
    assert found_condition(second, "NamesAccepted")["lastTransitionTime"] == NOW
    assert found_condition(second, "Established")["lastTransitionTime"] == LATER
    assert decided(second, served=False)["status"] is second["status"]


def test_nothing_is_established_before_its_names_are_stored():
    assert state(decided(made(), served=True), "Established") == ("False", "Installing")


@pytest.mark.parametrize(
    ("having", "reason", "field"),
    [
        (Taken(frozenset({"widgets"}), frozenset()), "PluralConflict", "plural"),
        (Taken(frozenset({"widget"}), frozenset()), "SingularConflict", "singular"),
        (Taken(frozenset({"wd"}), frozenset()), "ShortNamesConflict", "shortNames"),
        (Taken(frozenset(), frozenset({"Widget"})), "KindConflict", "kind"),
        (Taken(frozenset(), frozenset({"WidgetList"})), "ListKindConflict", "listKind"),
    ],
)
def test_a_name_that_another_has_is_not_accepted(having, reason, field):
    obj = decided(made(shortNames=["wd"]), having)
    assert state(obj, "NamesAccepted") == ("False", reason)
    assert state(obj, "Established") == ("False", "NotAccepted")
    assert field not in obj["status"]["acceptedNames"]
    assert not conditions.is_served(obj)
    free = decided(obj)
    assert conditions.is_served(free)


def test_names_of_the_same_group_are_taken_by_definitions_and_by_what_is_built_in():
    obj, other = made(), decided(made())
    other["metadata"] = {**other["metadata"], "name": "others.example.com"}
    elsewhere = copy.deepcopy(other)
    elsewhere["metadata"]["name"], elsewhere["spec"]["group"] = "widgets.example.org", "example.org"
    elsewhere["status"]["acceptedNames"]["plural"] = "elsewhere"
    found = conditions.taken(obj, [obj, other, elsewhere], KINDS.all())
    assert found == Taken(frozenset({"widgets", "widget"}), frozenset({"Widget", "WidgetList"}))
    obj["spec"]["group"] = "networking.k8s.io"
    assert {"ingresses", "ing"} <= conditions.taken(obj, [], KINDS.all()).resources
    assert "Ingress" in conditions.taken(obj, [], KINDS.all()).kinds


def test_a_definition_goes_after_its_objects():
    obj = conditions.marked(decided(decided(made()), served=True), LATER)
    assert state(obj, "Terminating") == ("True", "InstanceDeletionPending")
    obj["metadata"]["deletionTimestamp"] = NOW
    assert conditions.is_ending(obj)
    going = {"metadata": {"deletionTimestamp": NOW}}
    assert conditions.decide_end([{"metadata": {}}, going]) == "delete"
    assert conditions.decide_end([going]) == "wait"
    assert conditions.decide_end([]) == "finish"
    assert found_condition({"status": conditions.deleting_status(obj, LATER)}, "Terminating")["reason"] == (
        "InstanceDeletionInProgress"
    )
    done = conditions.finished(obj, LATER)
    assert (done["metadata"]["finalizers"], state(done, "Terminating")) == ([], ("False", "InstanceDeletionCompleted"))
    assert not conditions.is_ending(done)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ("False", "MissingAnnotation")),
        ("unapproved, for a test", ("False", "UnapprovedAnnotation")),
        ("https://example.com/approval", ("True", "ApprovedAnnotation")),
        ("yes", ("False", "InvalidAnnotation")),
    ],
)
def test_groups_of_kubernetes_need_approval(text, wanted):
    obj = made()
    obj["spec"]["group"] = "x.k8s.io"
    obj["metadata"]["annotations"] = {"api-approved.kubernetes.io": text}
    assert state(decided(obj), "KubernetesAPIApprovalPolicyConformant") == wanted
    assert state(decided(made()), "KubernetesAPIApprovalPolicyConformant") is None
