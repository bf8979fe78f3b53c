"""CustomResourceDefinitions over HTTP: from a definition to objects that are served as built-in ones are, and back."""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import Answer
from tests.support.waiting import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1},
                "color": {"type": "string", "enum": ["red", "green", "="], "default": "red"},
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
                "port": {"x-kubernetes-int-or-string": True},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}},
                    },
                },
            },
        },
        "status": {
            "type": "object",
            "properties": {"size": {"type": "integer"}, "selector": {"type": "string"}, "note": {"type": "string"}},
        },
    },
}
COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


def definition(group: str, *, schema: dict[str, Any] = SCHEMA, **version: Any) -> dict[str, Any]:
    """A definition of widgets, namespaced, of one version."""
    first = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [first],
        },
    }


def holds(answer: Answer, kind: str) -> bool:
    """Return whether a condition of a definition is true."""
    found = answer.json.get("status", {}).get("conditions") or []
    return any(each["type"] == kind and each["status"] == "True" for each in found)


class Widgets:
    """Widgets of a group of their own, in a namespace."""

    def __init__(self, namespace: Namespace, group: str) -> None:
        self.server, self.namespace, self.group = namespace.server, namespace.name, group

    def path(self, *rest: str, version: str = "v1") -> str:
        """The path of the collection or an object."""
        return "/".join((f"/apis/{self.group}/{version}/namespaces/{self.namespace}/widgets", *rest))

    def define(self, **kwargs: Any) -> Answer:
        """Create the definition and wait until it is established."""
        made = self.server.request("POST", DEFINITIONS, definition(self.group, **kwargs))
        assert made.code == 201, made.body
        assert until(lambda: holds(self.definition(), "Established"))
        return self.definition()

    def definition(self) -> Answer:
        """Read the definition."""
        return self.server.request("GET", f"{DEFINITIONS}/widgets.{self.group}")

    def redefine(self, change: Callable[[dict[str, Any]], None]) -> Answer:
        """Change the definition."""
        present = self.definition().json
        change(present)
        return self.server.request("PUT", f"{DEFINITIONS}/widgets.{self.group}", present)

    def create(self, name: str, *, query: str = "", **fields: Any) -> Answer:
        """Create a widget."""
        body = {"apiVersion": f"{self.group}/v1", "kind": "Widget", "metadata": {"name": name}, **fields}
        return self.server.request("POST", self.path() + query, body)

    def get(self, name: str, **kwargs: Any) -> Answer:
        """Read a widget."""
        return self.server.request("GET", self.path(name, **kwargs))


@pytest.fixture
def widgets(namespace: Namespace) -> Iterator[Widgets]:
    """Widgets that are not defined yet, of a group of their own."""
    made = Widgets(namespace, f"g{uuid.uuid4().hex[:8]}.example.com")
    yield made
    made.server.request("DELETE", f"{DEFINITIONS}/widgets.{made.group}")


def test_a_definition_is_established_and_its_objects_live_and_die(widgets: Widgets):
    widgets.define()
    made = widgets.create("a", spec={"size": 3, "unknown": 1, "parts": [{"name": "x"}]})
    assert made.code == 201, made.body
    assert made.json["spec"] == {"size": 3, "color": "red", "parts": [{"name": "x", "count": 1}]}
    assert made.json["metadata"]["generation"] == 1
    assert widgets.get("a").json == made.json
    listed = widgets.server.request("GET", widgets.path()).json
    assert (listed["kind"], [each["metadata"]["name"] for each in listed["items"]]) == ("WidgetList", ["a"])
    assert widgets.server.request("DELETE", widgets.path("a")).code == 200
    assert widgets.get("a").code == 404


def faults(answer: Answer) -> list[str]:
    """Return the fields a refusal names."""
    return [each["field"] for each in answer.json["details"]["causes"]]


def test_what_the_schema_forbids_is_refused_with_its_fields(widgets: Widgets):
    widgets.define()
    answer = widgets.create("a", spec={"size": 0, "color": "blue", "name": "ABC", "port": True})
    assert answer.code == 422
    assert faults(answer) == ["spec.size", "spec.color", "spec.name", "spec.port"]
    assert answer.json["message"].startswith(f'Widget.{widgets.group} "a" is invalid: [')
    assert widgets.create("b", spec={"size": 1, "color": "="}).code == 201
    assert faults(widgets.create("c", spec={})) == ["spec.size"]


@pytest.mark.parametrize(("validation", "code"), [("Strict", 400), ("Warn", 201), ("Ignore", 201)])
def test_unknown_fields_are_refused_told_or_dropped(widgets: Widgets, validation: str, code: int):
    widgets.define()
    answer = widgets.create("a", query=f"?fieldValidation={validation}", spec={"size": 1, "x": 1, "free": {"y": 2}})
    assert answer.code == code
    if code == 400:
        assert 'unknown field "spec.x"' in answer.json["message"]
    else:
        assert answer.json["spec"] == {"size": 1, "color": "red", "free": {"y": 2}}
        assert ("spec.x" in answer.headers.get("warning", "")) == (validation == "Warn")


def test_status_is_apart_and_only_the_rest_counts_for_the_generation(widgets: Widgets):
    widgets.define(subresources={"status": {}})
    made = widgets.create("a", spec={"size": 1}, status={"size": 9}).json
    assert "status" not in made
    written = widgets.server.request(
        "PUT", widgets.path("a", "status"), {**made, "spec": {"size": 5}, "status": {"size": 1, "x": 2}}
    ).json
    assert (written["spec"]["size"], written["status"], written["metadata"]["generation"]) == (1, {"size": 1}, 1)
    changed = widgets.server.request("PUT", widgets.path("a"), {**written, "spec": {"size": 5}, "status": {}}).json
    assert (changed["spec"]["size"], changed["status"], changed["metadata"]["generation"]) == (5, {"size": 1}, 2)


MERGE = {"Content-Type": "application/merge-patch+json"}
SCALE = {
    "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.selector",
}  # fmt: skip


def test_a_scale_reads_and_writes_by_its_paths(widgets: Widgets):
    widgets.define(subresources={"status": {}, "scale": SCALE})
    made = widgets.create("a", spec={"size": 2}).json
    widgets.server.request("PUT", widgets.path("a", "status"), {**made, "status": {"size": 1, "selector": "app=a"}})
    scale = widgets.server.request("GET", widgets.path("a", "scale")).json
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale", {"replicas": 2}, {"replicas": 1, "selector": "app=a"},
    )  # fmt: skip
    answer = widgets.server.request("PATCH", widgets.path("a", "scale"), {"spec": {"replicas": 4}}, headers=MERGE)
    assert answer.json["spec"]["replicas"] == 4
    assert widgets.get("a").json["spec"]["size"] == 4


def test_tables_have_the_declared_columns(widgets: Widgets):
    widgets.define(additionalPrinterColumns=COLUMNS)
    widgets.create("a", spec={"size": 3})
    accept = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    table = widgets.server.request("GET", widgets.path(), headers=accept).json
    assert [(each["name"], each["type"]) for each in table["columnDefinitions"]] == [
        ("Name", "string"), ("Size", "integer"), ("Age", "date"),
    ]  # fmt: skip
    assert table["rows"][0]["cells"][:2] == ["a", 3]


def test_discovery_and_openapi_follow(widgets: Widgets):
    group = f"/apis/{widgets.group}"
    assert widgets.server.request("GET", group).code == 404
    widgets.define(subresources={"status": {}})
    listed = widgets.server.request("GET", f"{group}/v1").json["resources"]
    assert [(each["name"], each["kind"], each.get("shortNames")) for each in listed] == [
        ("widgets", "Widget", ["wd"]), ("widgets/status", "Widget", None),
    ]  # fmt: skip
    for version in ("v2", "v2beta1"):
        accept = {"Accept": f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"}
        items = widgets.server.request("GET", "/apis", headers=accept).json["items"]
        assert widgets.group in [each["metadata"]["name"] for each in items]
    schemas = widgets.server.request("GET", f"/openapi/v3{group}/v1").json["components"]["schemas"]
    name = ".".join([*reversed(widgets.group.split(".")), "v1", "Widget"])
    assert schemas[name]["properties"]["spec"]["properties"]["size"] == {"type": "integer", "minimum": 1}
    assert name in widgets.server.request("GET", "/openapi/v2").json["definitions"]
    widgets.server.request("DELETE", f"{DEFINITIONS}/widgets.{widgets.group}")
    until(lambda: widgets.server.request("GET", group).code == 404)
    assert f"apis/{widgets.group}/v1" not in widgets.server.request("GET", "/openapi/v3").json["paths"]


APPLY = {"Content-Type": "application/apply-patch+yaml"}


def test_lists_with_keys_are_merged_by_server_side_apply(widgets: Widgets):
    widgets.define()

    def apply(manager: str, *parts: str) -> Answer:
        spec = {"size": 1, "parts": [{"name": each} for each in parts]}
        config = {"apiVersion": f"{widgets.group}/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec}
        path = f"{widgets.path('a')}?fieldManager={manager}"
        return widgets.server.request("PATCH", path, json.dumps(config).encode(), headers=APPLY)

    assert apply("me", "x").code == 201
    both = apply("you", "y").json
    assert [each["name"] for each in both["spec"]["parts"]] == ["x", "y"]
    assert [each["name"] for each in apply("you").json["spec"]["parts"]] == ["x"]
    strategic = {"Content-Type": "application/strategic-merge-patch+json"}
    assert widgets.server.request("PATCH", widgets.path("a"), b"{}", headers=strategic).code == 415


def test_selectable_fields_select(widgets: Widgets):
    widgets.define(selectableFields=[{"jsonPath": ".spec.color"}])
    widgets.create("a", spec={"size": 1, "color": "green"})
    widgets.create("b", spec={"size": 1})
    found = widgets.server.request("GET", f"{widgets.path()}?fieldSelector=spec.color%3Dgreen").json["items"]
    assert [each["metadata"]["name"] for each in found] == ["a"]
    assert widgets.server.request("GET", f"{widgets.path()}?fieldSelector=spec.size%3D1").code == 400


def test_defaults_that_come_later_are_read_and_ratcheting_lets_the_old_stand(widgets: Widgets):
    widgets.define()
    widgets.create("a", spec={"size": 1, "name": "abc"})

    def change(present: dict[str, Any]) -> None:
        fields = present["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        fields["new"] = {"type": "string", "default": "here"}
        fields["name"]["maxLength"] = 2

    assert widgets.redefine(change).code == 200
    until(lambda: widgets.get("a").json["spec"].get("new") == "here")
    present = widgets.get("a").json
    present["spec"]["size"] = 2
    assert widgets.server.request("PUT", widgets.path("a"), present).code == 200
    present = widgets.get("a").json
    present["spec"]["name"] = "abcd"
    assert faults(widgets.server.request("PUT", widgets.path("a"), present)) == ["spec.name"]


def test_versions_differ_in_name_and_are_kept_in_one(widgets: Widgets):
    widgets.define()
    widgets.create("a", spec={"size": 1})

    def add(present: dict[str, Any]) -> None:
        first = present["spec"]["versions"][0]
        present["spec"]["versions"] = [{**first, "storage": False}, {**first, "name": "v2"}]

    assert widgets.redefine(add).code == 200
    until(lambda: widgets.get("a", version="v2").code == 200)
    assert widgets.get("a", version="v2").json["apiVersion"] == f"{widgets.group}/v2"
    assert widgets.get("a").json["apiVersion"] == f"{widgets.group}/v1"
    assert widgets.definition().json["status"]["storedVersions"] == ["v1", "v2"]
    preferred = widgets.server.request("GET", f"/apis/{widgets.group}").json["preferredVersion"]["version"]
    assert preferred == "v2"
    before = widgets.get("a").json
    after = widgets.server.request("PUT", widgets.path("a"), before).json
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]  # it is kept as v2 now
    again = widgets.server.request("PUT", widgets.path("a"), after).json
    assert again["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


def test_a_definition_goes_after_its_objects_and_takes_no_new_ones(widgets: Widgets):
    widgets.define()
    held = widgets.server.request(
        "POST", widgets.path(), {"metadata": {"name": "a", "finalizers": ["example.com/held"]}, "spec": {"size": 1}}
    )
    assert held.code == 201
    widgets.create("b", spec={"size": 1})
    widgets.server.request("DELETE", f"{DEFINITIONS}/widgets.{widgets.group}")
    until(lambda: widgets.get("b").code == 404)
    assert holds(widgets.definition(), "Terminating")
    assert until(lambda: widgets.create("c", spec={"size": 1}).code == 405)
    until(lambda: widgets.get("a").json["metadata"].get("deletionTimestamp"))
    free = {**widgets.get("a").json}
    free["metadata"]["finalizers"] = []
    assert widgets.server.request("PUT", widgets.path("a"), free).code == 200
    until(lambda: widgets.definition().code == 404)
    until(lambda: widgets.get("a").json["message"].startswith("the server could not find"))


def test_names_that_others_have_are_not_accepted(widgets: Widgets):
    widgets.define()
    other = definition(widgets.group)
    other["metadata"]["name"] = f"others.{widgets.group}"
    other["spec"]["names"] = {"plural": "others", "kind": "Widget", "shortNames": ["wd"]}
    path = f"{DEFINITIONS}/others.{widgets.group}"
    try:
        assert widgets.server.request("POST", DEFINITIONS, other).code == 201
        until(lambda: widgets.server.request("GET", path).json["status"].get("conditions"))
        conditions = widgets.server.request("GET", path).json["status"]["conditions"]
        found = {each["type"]: (each["status"], each["reason"]) for each in conditions}
        assert found == {
            "NamesAccepted": ("False", "ListKindConflict"), "Established": ("False", "NotAccepted"),
        }  # fmt: skip
    finally:
        widgets.server.request("DELETE", path)
        until(lambda: widgets.server.request("GET", path).code == 404)


def test_a_watch_sees_objects_and_ends_with_the_definition(widgets: Widgets):
    widgets.define()
    connection = widgets.server.connection(timeout_s=60.0)
    connection.request("GET", f"{widgets.path()}?watch=true&timeoutSeconds=60")
    lines = connection.getresponse()
    widgets.create("a", spec={"size": 1})
    first = json.loads(lines.readline())
    assert (first["type"], first["object"]["spec"]) == ("ADDED", {"size": 1, "color": "red"})
    widgets.server.request("DELETE", f"{DEFINITIONS}/widgets.{widgets.group}")
    assert json.loads(lines.read().splitlines()[-1])["type"] == "DELETED"
    connection.close()


def test_rules_in_cel_are_kept(widgets: Widgets):
    rules = [
        {"rule": "self.size <= 10 || self.color == 'red'", "message": "only red ones are large", "fieldPath": ".size"},
        {"rule": "self.size >= oldSelf.size", "messageExpression": "'not smaller, ' + self.color"},
    ]
    fields = {"size": {"type": "integer"}, "color": {"type": "string", "maxLength": 9, "default": "red"}}
    spec = {"type": "object", "required": ["size"], "properties": fields, "x-kubernetes-validations": rules}
    widgets.define(schema={"type": "object", "properties": {"spec": spec}})
    answer = widgets.create("a", spec={"size": 11, "color": "green"})
    assert (answer.code, faults(answer)) == (422, ["spec.size"])
    assert "only red ones are large" in answer.json["message"]
    assert "some validation rules were not checked" in widgets.create("a", spec={}).json["message"]
    made = widgets.create("a", spec={"size": 11}).json
    made["spec"]["size"] = 3
    answer = widgets.server.request("PUT", widgets.path("a"), made)
    assert (answer.code, faults(answer)) == (422, ["spec"])
    assert "not smaller, red" in answer.json["message"]


def test_a_plan_tells_what_a_definition_and_its_objects_come_to(widgets: Widgets):
    def widget(name: str, **spec: Any) -> dict[str, Any]:
        metadata = {"name": name, "namespace": widgets.namespace}
        return {"apiVersion": f"{widgets.group}/v1", "kind": "Widget", "metadata": metadata, "spec": spec}

    wanted = [definition(widgets.group), widget("a", size=1), widget("b", size=0)]
    answer = widgets.server.request("POST", "/apis/minik8s.io/v1/plans", {"spec": {"objects": wanted}})
    assert answer.code == 201, answer.body
    rows = answer.json["status"]["objects"]
    assert [(row["action"], row["name"]) for row in rows] == [
        ("create", f"widgets.{widgets.group}"), ("create", "a"), ("refuse", "b"),
    ]  # fmt: skip
    assert rows[1]["after"]["spec"] == {"size": 1, "color": "red"}
    assert "spec.size" in rows[2]["message"]
    assert widgets.definition().code == 404
    widgets.define()
    widgets.create("a", spec={"size": 1})
    answer = widgets.server.request("POST", "/apis/minik8s.io/v1/plans", {"spec": {"objects": [widget("a", size=2)]}})
    assert [(row["action"], row["before"]["spec"]["size"]) for row in answer.json["status"]["objects"]] == [
        ("update", 1)
    ]


def test_a_deprecated_version_says_so_on_every_answer(widgets: Widgets):
    widgets.define(deprecated=True, deprecationWarning="use gadgets")
    assert widgets.create("a", spec={"size": 1}).headers["warning"] == '299 - "use gadgets"'
    assert widgets.get("a").headers["warning"] == '299 - "use gadgets"'
    assert "warning" not in widgets.definition().headers


def test_a_scale_is_set_where_it_never_was(widgets: Widgets):
    widgets.define(subresources={"scale": {**SCALE, "specReplicasPath": ".spec.port"}})
    widgets.create("a", spec={"size": 1})
    assert widgets.server.request("GET", widgets.path("a", "scale")).code == 500
    scale = functools.partial(widgets.server.request, "PATCH", widgets.path("a", "scale"), headers=MERGE)
    assert scale(b"{}").json["message"] == 'the spec replicas field ".spec.port" cannot be empty'
    assert scale(b'{"spec":{"replicas":4}}').json["spec"]["replicas"] == widgets.get("a").json["spec"]["port"] == 4
