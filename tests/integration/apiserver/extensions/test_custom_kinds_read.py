"""Custom kinds are paged, shown as metadata alone and noted in the audit log as built-in kinds are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.apiserver.access.test_audit_log import events
from tests.integration.apiserver.extensions.test_custom_kinds import DEFINITIONS, Widgets, widgets

__all__ = ["widgets"]
META = "application/json;as=%s;g=meta.k8s.io;v=v1"


def test_a_list_comes_in_pages_of_one_moment(widgets: Widgets) -> None:
    widgets.define()
    for number in range(5):
        assert widgets.create(f"w{number}", spec={"size": 1}).code == 201
    names: list[str] = []
    token, left = "", [3, 1, None]
    for remaining in left:
        page = widgets.server.request("GET", f"{widgets.path()}?limit=2&continue={token}").json
        names += [each["metadata"]["name"] for each in page["items"]]
        assert all(each["spec"]["color"] == "red" for each in page["items"])  # defaults are filled in on every page
        token = page["metadata"].get("continue", "")
        assert page["metadata"].get("remainingItemCount") == remaining
        widgets.create(f"later-{remaining}", spec={"size": 1})
    assert (names, token) == ([f"w{number}" for number in range(5)], "")


def test_a_page_of_another_kind_is_none(widgets: Widgets) -> None:
    widgets.define()
    for number in range(2):
        widgets.create(f"w{number}", spec={"size": 1})
    token = widgets.server.request("GET", f"{widgets.path()}?limit=1").json["metadata"]["continue"]
    answer = widgets.server.request("GET", f"/api/v1/namespaces/{widgets.namespace}/configmaps?continue={token}")
    assert (answer.code, "continue key is not valid" in answer.json["message"]) == (400, True)


def test_metadata_is_shown_alone(widgets: Widgets) -> None:
    widgets.define()
    widgets.create("a", spec={"size": 1})
    one = widgets.server.request("GET", widgets.path("a"), headers={"Accept": META % "PartialObjectMetadata"}).json
    assert (one["kind"], one["apiVersion"], "spec" in one) == ("PartialObjectMetadata", "meta.k8s.io/v1", False)
    assert one["metadata"]["name"] == "a"
    wanted = {"Accept": META % "PartialObjectMetadataList"}
    found = widgets.server.request("GET", widgets.path(), headers=wanted).json
    assert (found["kind"], [each["metadata"]["name"] for each in found["items"]]) == (
        "PartialObjectMetadataList",
        ["a"],
    )
    after = found["metadata"]["resourceVersion"]
    widgets.create("b", spec={"size": 1})
    path = f"{widgets.path()}?watch=1&timeoutSeconds=1&resourceVersion={after}"
    body = widgets.server.request("GET", path, headers={"Accept": META % "PartialObjectMetadata"}).body
    (event,) = (json.loads(line) for line in body.splitlines())
    assert (event["object"]["kind"], "spec" in event["object"]) == ("PartialObjectMetadata", False)


@pytest.mark.parametrize("verb", ["create", "get", "list", "patch", "delete"])
def test_requests_are_in_the_audit_log(widgets: Widgets, verb: str) -> None:
    widgets.define()
    made = widgets.create("a", spec={"size": 3})
    merge = {"Content-Type": "application/merge-patch+json"}
    asked: dict[str, Any] = {
        "create": lambda: made,
        "get": lambda: widgets.get("a"),
        "list": lambda: widgets.server.request("GET", widgets.path()),
        "patch": lambda: widgets.server.request("PATCH", widgets.path("a"), {"spec": {"size": 4}}, headers=merge),
        "delete": lambda: widgets.server.request("DELETE", widgets.path("a")),
    }
    (found,) = events(widgets.server, asked[verb]().headers["audit-id"])
    assert (found["verb"], found["objectRef"]["apiGroup"], found["objectRef"]["resource"]) == (
        verb, widgets.group, "widgets",
    )  # fmt: skip
    if verb in {"create", "patch"}:
        assert found["requestObject"]["spec"]["size"] == (3 if verb == "create" else 4)


def test_the_definition_itself_is_in_the_audit_log(widgets: Widgets) -> None:
    widgets.define()
    answer = widgets.server.request("DELETE", f"{DEFINITIONS}/widgets.{widgets.group}")
    (found,) = events(widgets.server, answer.headers["audit-id"])
    assert (found["verb"], found["objectRef"]["resource"]) == ("delete", "customresourcedefinitions")
