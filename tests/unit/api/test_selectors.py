"""Label selectors: what they match, and what is refused."""

from __future__ import annotations

import pytest

from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.selectors import (
    describe,
    from_label_selector,
    from_map,
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


def test_a_selector_as_text():
    assert describe({"b": "y", "a": "x"}) == "a=x,b=y"
    assert describe({}) == "<none>"
