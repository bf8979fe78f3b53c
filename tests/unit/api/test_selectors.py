"""Label and field selectors: what they match, and what is refused."""

from __future__ import annotations

import pytest

from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.kinds import CONFIG_MAP, EVENT, EVENTS_EVENT, NAMESPACE, NODE, POD, SECRET
from minik8s_modules.api.selectors import (
    describe,
    from_label_selector,
    from_map,
    parse_field_selector,
    parse_label_selector,
)

LABELS = {"app": "web", "tier": "front", "n": "5", "example.com/x": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True), ("app=web", True), ("app==web", True), ("app=db", False), ("app!=db", True), ("app!=web", False),
        ("nope!=web", True), ("app in (web,db)", True), ("app in (db)", False), ("app notin (db)", True),
        ("nope notin (db)", True), ("nope in (db)", False), ("app", True), ("nope", False), ("!nope", True),
        ("!app", False),
        ("n>4", True), ("n>5", False), ("n<6", True), ("app>1", False), ("app=web,tier=front", True),
        ("app=web,tier=back", False), (" app = web , tier ", True), ("example.com/x=", True), ("app=", False),
        ("app in (web, db),!nope", True), ("app in ()", False), ("example.com/x in ()", True),
    ],
)  # fmt: skip
def test_label_selectors(text, matches):
    assert parse_label_selector(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    "text",
    [
        "=",
        "app=web,",
        ",app",
        "app=web tier=x",
        "app in web",
        "app in (a",
        "a b",
        "n>x",
        "app=(",
        "-a=b",
        "a/b/c=d",
        "a=b=c",
        "a=b!",
        "(a)",
    ],
)
def test_a_broken_label_selector_is_a_bad_request(text):
    with pytest.raises(BadRequest, match="unable to parse requirement"):
        parse_label_selector(text)


def test_an_empty_selector_of_a_service_matches_nothing():
    assert not from_map({}).matches({"app": "web"})
    assert not from_map(None).matches({})
    assert from_map({"app": "web"}).matches(LABELS)


def test_label_selector_objects():
    selector = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["front"]},
            {"key": "nope", "operator": "DoesNotExist"},
        ],
    }
    assert from_label_selector(selector).matches(LABELS)
    assert from_label_selector({}).matches(LABELS)
    assert not from_label_selector(None).matches(LABELS)
    with pytest.raises(BadRequest, match='"Like" is not a valid label selector operator'):
        from_label_selector({"matchExpressions": [{"key": "a", "operator": "Like"}]})


POD_OBJECT = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"nodeName": "n1", "restartPolicy": "Always"},
    "status": {"phase": "Running", "podIP": "10.244.0.7"},
}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True), ("metadata.name=web", True), ("metadata.name!=web", False), ("spec.nodeName=n1", True),
        ("spec.nodeName=", False), ("status.phase=Running,spec.nodeName=n1", True), ("status.phase!=Running", False),
        ("status.podIP==10.244.0.7", True), ("spec.schedulerName=", True), ("spec.hostNetwork=false", True),
    ],
)  # fmt: skip
def test_field_selectors(text, matches):
    assert parse_field_selector(POD, text).matches(POD_OBJECT) is matches


@pytest.mark.parametrize(
    ("kind", "text", "obj"),
    [
        (NODE, "spec.unschedulable=true", {"spec": {"unschedulable": True}}),
        (NODE, "spec.unschedulable=false", {"spec": {}}),
        (SECRET, "type=Opaque", {"type": "Opaque"}),
        (NAMESPACE, "status.phase=Active", {"status": {"phase": "Active"}}),
        (EVENT, "involvedObject.name=web,type=Normal", {"involvedObject": {"name": "web"}, "type": "Normal"}),
        (EVENT, "source=kubelet", {"source": {"component": "kubelet"}}),
        (EVENTS_EVENT, "regarding.uid=1", {"regarding": {"uid": "1"}}),
    ],
)
def test_fields_of_other_kinds(kind, text, obj):
    assert parse_field_selector(kind, text).matches(obj)
    assert not parse_field_selector(kind, text).matches(
        {"metadata": {"name": "x"}, "spec": {"unschedulable": None}} | _other(obj)
    )


def _other(obj):
    return {"spec": {"unschedulable": not obj["spec"].get("unschedulable")}} if "spec" in obj else {}


def test_an_unknown_field_is_refused_with_kubernetes_words():
    with pytest.raises(BadRequest, match=r"field label not supported: spec\.image") as refused:
        parse_field_selector(POD, "spec.image=x")
    assert refused.value.message == "field label not supported: spec.image"  # kubectl puts the rest in front
    with pytest.raises(BadRequest):
        parse_field_selector(CONFIG_MAP, "data.a=b")


def test_a_field_selector_without_operator_is_refused():
    with pytest.raises(BadRequest, match=r"invalid selector: 'metadata\.name'"):
        parse_field_selector(POD, "metadata.name")


def test_escaped_values():
    selector = parse_field_selector(POD, r"metadata.name=a\,b,spec.nodeName=n")
    assert selector.exact("metadata.name") == "a,b"
    assert selector.exact("spec.nodeName") == "n"
    assert selector.exact("status.phase") is None


def test_a_selector_as_text():
    assert describe({"b": "y", "a": "x"}) == "a=x,b=y"
    assert describe({}) == "<none>"
