"""Lists: pages of one revision, selectors, resource versions, tables and metadata alone."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.integration.apiserver.conftest import Namespace, pod

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


def _names(items: list[dict[str, Any]]) -> list[str]:
    return [item["metadata"]["name"] for item in items]


def test_pages_together_are_the_list_at_one_revision(namespace: Namespace):
    for index in range(7):
        namespace.create(f"c{index}")
    path = namespace.path("configmaps")
    page = namespace.server.request("GET", f"{path}?limit=3").json
    assert page["metadata"]["remainingItemCount"] == 4
    revision, names = page["metadata"]["resourceVersion"], _names(page["items"])
    namespace.create("c9")
    namespace.server.request("DELETE", namespace.path("configmaps", "c5"))
    while token := page["metadata"].get("continue"):
        page = namespace.server.request("GET", f"{path}?limit=3&continue={quote(token)}").json
        assert page["metadata"]["resourceVersion"] == revision
        names += _names(page["items"])
    assert names == [f"c{index}" for index in range(7)]


def test_pages_of_a_selection_are_full(namespace: Namespace):
    for index in range(6):
        namespace.create(f"c{index}", metadata={"labels": {"odd": str(index % 2)}})
    path = namespace.path("configmaps") + "?labelSelector=odd%3D1&limit=2"
    first = namespace.server.request("GET", path).json
    second = namespace.server.request("GET", f"{path}&continue={quote(first['metadata']['continue'])}").json
    assert _names(first["items"]) + _names(second["items"]) == ["c1", "c3", "c5"]
    assert "continue" not in second["metadata"]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("continue=abc", 400),
        ("limit=-1", 400),
        ("limit=x", 400),
        ("resourceVersion=x", 400),
        ("resourceVersionMatch=Exact", 400),
        ("resourceVersion=1&resourceVersionMatch=Never", 400),
        ("labelSelector=a%3D%3D%3Db", 400),
        ("fieldSelector=spec.nothing%3Dx", 400),
        ("resourceVersion=99999999", 504),
    ],
)
def test_parameters_that_cannot_be_used_are_refused(namespace: Namespace, query: str, code: int):
    answer = namespace.server.request("GET", namespace.path("configmaps") + "?" + query)
    assert answer.code == code
    assert answer.json["kind"] == "Status"
    assert answer.json["message"]


def test_an_exact_revision_shows_the_past(namespace: Namespace):
    made = namespace.create("a").json
    namespace.server.request("DELETE", namespace.path("configmaps", "a"))
    query = f"?resourceVersion={made['metadata']['resourceVersion']}&resourceVersionMatch=Exact"
    assert _names(namespace.server.request("GET", namespace.path("configmaps") + query).json["items"]) == ["a"]


def test_field_selectors_select(namespace: Namespace):
    namespace.server.request("POST", namespace.path("pods"), pod("a", nodeName="n1"))
    namespace.server.request("POST", namespace.path("pods"), pod("b"))
    path = namespace.path("pods")
    assert _names(namespace.server.request("GET", path + "?fieldSelector=spec.nodeName%3Dn1").json["items"]) == ["a"]
    assert _names(namespace.server.request("GET", path + "?fieldSelector=metadata.name!%3Da").json["items"]) == ["b"]


def test_a_table_has_a_row_for_each_object_and_a_cell_for_each_column(namespace: Namespace):
    namespace.server.request("POST", namespace.path("pods"), pod("a"))
    table = namespace.server.request("GET", namespace.path("pods"), headers={"Accept": TABLE}).json
    assert table["kind"] == "Table"
    (row,) = table["rows"]
    assert len(row["cells"]) == len(table["columnDefinitions"])
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert "spec" not in row["object"]


def test_metadata_alone(namespace: Namespace):
    namespace.create("a", data={"k": "v"})
    headers = {"Accept": METADATA}
    listed = namespace.server.request("GET", namespace.path("configmaps"), headers=headers).json
    assert listed["kind"] == "PartialObjectMetadataList"
    assert set(listed["items"][0]) == {"kind", "apiVersion", "metadata"}


def test_a_form_that_is_not_served_is_not_acceptable(namespace: Namespace):
    answer = namespace.server.request("GET", namespace.path("configmaps"), headers={"Accept": "text/html"})
    assert answer.code == 406
