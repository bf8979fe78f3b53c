"""Field selectors: what they match, and what is refused."""

from __future__ import annotations

import pytest

from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.field_selectors import EVERYTHING, exactly, parse_field_selector, terms, with_exact
from minik8s_modules.api.kinds import CONFIG_MAP, EVENT, EVENTS_EVENT, NAMESPACE, NODE, POD, SECRET

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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # the cases of apimachinery's fields/selector_test.go
        (r"x=a\,b", [("x", False, "a,b")]),
        (r"x=a\\,y!=b", [("x", False, "a\\"), ("y", True, "b")]),
        (r"x=a\\\,y", [("x", False, "a\\,y")]),
        (r"x==a\=b", [("x", False, "a=b")]),
        ("x!=", [("x", True, "")]),
        ("x=a!", [("x", False, "a!")]),
        ("!x=a", [("!x", False, "a")]),
        (",x=a,,y=b,", [("x", False, "a"), ("y", False, "b")]),
        (r"metadata.name!=x\,metadata.name=mounted", "unescaped character in value: ="),
        (r"metadata.name!=x\,metadata.name\=mounted", [("metadata.name", True, "x,metadata.name=mounted")]),
        ("x===a", "unescaped character in value: ="),
        ("x=a\\", "invalid escape sequence: \\"),
        (r"x=\a", r"invalid escape sequence: \a"),
        ("x=a,y", "can't understand 'y'"),
    ],
)
def test_terms(text, said):
    if isinstance(said, str):
        with pytest.raises(BadRequest) as refused:
            terms(text)
        assert said in refused.value.message
    else:
        assert terms(text) == said


@pytest.mark.parametrize("value", ["", "a", "a,b", "a=b", "a\\", "\\,", ",metadata.name!=x", "a!=b", "\\\\=", " a "])
def test_what_a_client_writes_is_read_as_it_was_meant(value):
    assert terms(exactly(metadata__name=value, type="x")) == [("metadata.name", False, value), ("type", False, "x")]


def test_what_a_selector_requires():
    selector = parse_field_selector(POD, r"metadata.name!=x,spec.nodeName=n,spec.nodeName=m")
    assert selector.exact("metadata.name") is None
    assert selector.exact("spec.nodeName") == "n"
    assert selector.requires("spec.nodeName", "m")
    assert not selector.requires("metadata.name", "x")
    assert not EVERYTHING.requires("spec.nodeName", "")


def test_one_more_requirement_holds_whatever_the_others_are():
    selector = with_exact(SECRET, parse_field_selector(SECRET, r"metadata.name!=x\,"), "metadata.name", r"a\,b=c")
    assert selector.exact("metadata.name") == r"a\,b=c"
    assert not selector.matches({"metadata": {"name": "a"}})
    assert selector.matches({"metadata": {"name": r"a\,b=c"}})


def test_equal_texts_are_equal_values():
    assert parse_field_selector(POD, "metadata.name==a") == parse_field_selector(POD, "metadata.name=a,")
    assert parse_field_selector(POD, "metadata.name=a") != parse_field_selector(POD, "metadata.name!=a")
    assert len({parse_field_selector(POD, "metadata.name=a"), parse_field_selector(POD, "metadata.name==a")}) == 1
