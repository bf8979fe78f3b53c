"""Custom kinds whose versions a webhook converts: a real HTTPS server is asked, answers, lies, hangs and goes."""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.apiserver.conftest import Namespace
from tests.integration.apiserver.extensions.test_custom_kinds import DEFINITIONS, holds
from tests.support.apiserver import Answer
from tests.support.etcd import free_port
from tests.support.waiting import until
from tests.support.webhook import WebhookServer, send

MERGE = {"Content-Type": "application/merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
Change = Callable[[dict[str, Any]], Any]


def convert(obj: dict[str, Any], wanted: str) -> dict[str, Any]:
    """Of v1's ``spec.address`` v2 makes host and port, and back."""
    found = dict(obj.get("spec") or {})
    if wanted.endswith("/v2") and "address" in found:
        host, _, port = found.pop("address").partition(":")
        found |= {"host": host, "port": int(port)}
    elif wanted.endswith("/v1") and "host" in found:
        found["address"] = f"{found.pop('host')}:{found.pop('port', 0)}"
    return {**obj, "apiVersion": wanted, "spec": found}


def honest(request: dict[str, Any]) -> dict[str, Any]:
    made = [convert(obj, request["desiredAPIVersion"]) for obj in request["objects"]]
    return {"result": {"status": "Success"}, "convertedObjects": made}


def lying(change: Change) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A converter whose every object is changed once more."""

    def respond(request: dict[str, Any]) -> dict[str, Any]:
        answer = honest(request)
        answer["convertedObjects"] = [change(each) for each in answer["convertedObjects"]]
        return answer

    return respond


def renamed(obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "name": "other"}}


class Hosts:
    """A kind in two versions: v1 is kept; v2 is made by the converter."""

    def __init__(self, namespace: Namespace, hook: WebhookServer, group: str) -> None:
        self.namespace, self.hook, self.group = namespace, hook, group
        self.server = namespace.server
        self.definition = f"{DEFINITIONS}/hosts.{group}"

    def path(self, version: str, name: str = "") -> str:
        """The path of the kind's objects, or of one."""
        return f"/apis/{self.group}/{version}/namespaces/{self.namespace.name}/hosts" + (f"/{name}" if name else "")

    def make(self, version: str, name: str, **spec: Any) -> Answer:
        """Create an object."""
        body = {"apiVersion": f"{self.group}/{version}", "kind": "Host", "metadata": {"name": name}, "spec": spec}
        return self.server.request("POST", self.path(version), body)

    def get(self, version: str, name: str) -> Answer:
        """Read an object."""
        return self.server.request("GET", self.path(version, name))

    def spec(self, version: str, name: str) -> Any:
        """The spec of an object."""
        answer = self.get(version, name)
        assert answer.code == 200, answer.json
        return answer.json["spec"]

    def watch(self, version: str, after: str) -> list[dict[str, Any]]:
        """The events after a revision; without one, of all objects first."""
        path = f"{self.path(version)}?watch=1&timeoutSeconds=2&resourceVersion={after}"
        return [json.loads(line) for line in self.server.request("GET", path).body.splitlines()]


def body_of(group: str, hook: WebhookServer) -> dict[str, Any]:
    def version(name: str, fields: dict[str, Any], *, storage: bool) -> dict[str, Any]:
        spec = {"type": "object", "properties": fields}
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
        return {"name": name, "served": True, "storage": storage, "schema": schema, "subresources": {"status": {}}}

    text, whole = {"type": "string"}, {"type": "integer", "maximum": 65535}
    client = {"url": hook.url("/convert"), "caBundle": hook.ca_bundle}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"hosts.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "hosts", "kind": "Host"},
            "versions": [
                version("v1", {"address": text, "zone": {**text, "default": "a"}}, storage=True),
                version("v2", {"host": text, "port": whole, "zone": text}, storage=False),
            ],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
            },
        },
    }


@pytest.fixture
def hosts(namespace: Namespace, tmp_path: Path) -> Iterator[Hosts]:
    """The kind, served, and its converter."""
    with WebhookServer(tmp_path) as hook:
        hook.answers["/convert"] = honest
        found = Hosts(namespace, hook, f"g{uuid.uuid4().hex[:8]}.example.com")
        assert namespace.server.request("POST", DEFINITIONS, body_of(found.group, hook)).code == 201
        until(lambda: holds(namespace.server.request("GET", found.definition), "Established"))
        yield found
        assert namespace.server.request("DELETE", found.definition).code in {200, 404}
        until(lambda: namespace.server.request("GET", found.definition).code == 404)


def test_objects_are_written_and_read_in_every_version(hosts: Hosts) -> None:
    assert hosts.make("v1", "a", address="one:1").code == 201
    assert hosts.make("v2", "b", host="two", port=2).json["spec"] == {"host": "two", "port": 2, "zone": "a"}
    assert hosts.spec("v2", "a") == {"host": "one", "port": 1, "zone": "a"}
    assert hosts.spec("v1", "b") == {"address": "two:2", "zone": "a"}
    listed = hosts.server.request("GET", hosts.path("v2")).json
    assert [each["spec"]["port"] for each in listed["items"]] == [1, 2]
    assert {each["apiVersion"] for each in listed["items"]} == {f"{hosts.group}/v2"}
    patched = hosts.server.request("PATCH", hosts.path("v2", "a"), {"spec": {"port": 7}}, headers=MERGE)
    assert patched.json["spec"]["port"] == 7
    assert hosts.spec("v1", "a")["address"] == "one:7"
    refused = hosts.server.request("PATCH", hosts.path("v2", "a"), {"spec": {"port": 70000}}, headers=MERGE)
    assert (refused.code, "spec.port" in refused.json["message"]) == (422, True)
    config = {"apiVersion": f"{hosts.group}/v2", "kind": "Host", "metadata": {"name": "a"}, "spec": {"port": 9}}
    applied = hosts.server.request(
        "PATCH", f"{hosts.path('v2', 'a')}?fieldManager=me&force=true", config, headers=APPLY
    )
    assert (applied.code, hosts.spec("v1", "a")["address"]) == (200, "one:9")
    assert hosts.server.request("DELETE", hosts.path("v2", "a")).code == 200
    assert hosts.get("v1", "a").code == 404


def test_the_review_is_what_converters_expect(hosts: Hosts) -> None:
    hosts.make("v1", "a", address="one:1")
    hosts.make("v1", "b", address="two:2")
    hosts.hook.reviews.clear()
    hosts.server.request("GET", hosts.path("v2"))
    (review,) = hosts.hook.reviews  # one question for the whole list
    assert (review["apiVersion"], review["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    request = review["request"]
    assert request["desiredAPIVersion"] == f"{hosts.group}/v2"
    assert [obj["metadata"]["name"] for obj in request["objects"]] == ["a", "b"]
    assert request["objects"][0]["spec"] == {"address": "one:1", "zone": "a"}
    hosts.server.request("GET", hosts.path("v2"))
    hosts.get("v2", "a")
    assert len(hosts.hook.reviews) == 1  # what is known is not asked again
    assert hosts.hook.paths[-1].endswith("?timeout=30s")


def test_watches_show_their_own_version(hosts: Hosts) -> None:
    after = hosts.server.request("GET", hosts.path("v2")).json["metadata"]["resourceVersion"]
    hosts.make("v1", "a", address="one:1")
    hosts.make("v2", "b", host="two", port=2)
    hosts.server.request("DELETE", hosts.path("v1", "a"))
    events = hosts.watch("v2", after)
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
        ("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a"),
    ]  # fmt: skip
    assert [event["object"]["spec"].get("host") for event in events] == ["one", "two", "one"]
    assert [event["object"]["spec"]["address"] for event in hosts.watch("v1", after)] == ["one:1", "two:2", "one:1"]


def test_labels_of_the_converter_count(hosts: Hosts) -> None:
    def labelled(obj: dict[str, Any]) -> dict[str, Any]:
        meta = {**obj["metadata"], "labels": {"made": "yes"}, "finalizers": ["no.example.com/x"], "generation": 99}
        return {**obj, "metadata": meta}

    hosts.make("v1", "a", address="one:1")
    hosts.hook.answers["/convert"] = lying(labelled)
    found = hosts.get("v2", "a").json["metadata"]
    assert (found["labels"], found["generation"], found.get("finalizers")) == ({"made": "yes"}, 1, None)
    chosen = hosts.server.request("GET", f"{hosts.path('v2')}?labelSelector=made=yes").json["items"]
    assert len(chosen) == 1
    assert hosts.server.request("GET", f"{hosts.path('v1')}?labelSelector=made=yes").json["items"] == []


LIES: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "drops": (lambda _: {"result": {"status": "Success"}, "convertedObjects": []}, "returned 0 objects, expected 1"),
    "renames": (lying(renamed), "returned invalid object: must have the same name: a != other"),
    "another uid": (
        lying(lambda obj: {**obj, "metadata": {**obj["metadata"], "uid": "x"}}), "must have the same UID",
    ),
    "another kind": (lying(lambda obj: {**obj, "kind": "Pod"}), "invalid kind (expected Host, received Pod)"),
    "not converted": (
        lying(lambda obj: {**obj, "apiVersion": "example.com/v9"}), "invalid groupVersion (expected ",
    ),
    "no object": (lying(lambda _: 7), "it must be an object"),
    "a number as label": (
        lying(lambda obj: {**obj, "metadata": {**obj["metadata"], "labels": {"a": 1}}}),
        "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
    ),
    "a bad label": (
        lying(lambda obj: {**obj, "metadata": {**obj["metadata"], "labels": {"a b": "c"}}}), "metadata.labels",
    ),
    "fails": (lambda _: {"result": {"status": "Failed", "message": "too old for me"}}, "failed: too old for me"),
    "fails silently": (lambda _: {"result": {"status": "Bad"}}, "response.result.status was 'Bad', not 'Success'"),
    "another answer": (lambda _: {"uid": "x", "result": {"status": "Success"}}, "expected response.uid="),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_converter_that_lies_is_not_believed(hosts: Hosts, lie: str) -> None:
    assert hosts.make("v1", "a", address="one:1").code == 201
    answer, result = LIES[lie]
    hosts.hook.answers["/convert"] = answer
    refused = hosts.get("v2", "a")
    assert (refused.code, refused.json["kind"]) == (500, "Status")
    assert refused.json["message"].startswith(f"conversion webhook for {hosts.group}/v1, Kind=Host ")
    assert result in refused.json["message"]
    assert hosts.server.request("GET", hosts.path("v2")).code == 500
    assert hosts.make("v2", "b", host="two", port=2).code == 500
    assert hosts.get("v1", "b").code == 404
    assert hosts.server.request("DELETE", hosts.path("v2", "a")).code == 500
    assert hosts.spec("v1", "a") == {"address": "one:1", "zone": "a"}
    assert [each["code"] for each in hosts.watch("v2", "")] == [500]
    hosts.hook.answers["/convert"] = honest
    assert hosts.spec("v2", "a")["host"] == "one"


def test_a_list_says_which_object_is_wrong(hosts: Hosts) -> None:
    for name in ("a", "b"):
        hosts.make("v1", name, address="one:1")
    hosts.hook.answers["/convert"] = lying(lambda obj: renamed(obj) if obj["metadata"]["name"] == "b" else obj)
    message = hosts.server.request("GET", hosts.path("v2")).json["message"]
    assert "returned invalid converted object at index 1: must have the same name: b != other" in message


def test_a_watch_ends_with_the_converters_failure(hosts: Hosts) -> None:
    after = hosts.server.request("GET", hosts.path("v2")).json["metadata"]["resourceVersion"]
    hosts.hook.answers["/convert"] = lying(renamed)
    hosts.make("v1", "a", address="one:1")
    (event,) = hosts.watch("v2", after)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 500)
    assert "must have the same name" in event["object"]["message"]
    assert [each["type"] for each in hosts.watch("v1", after)] == ["ADDED"]


def test_a_converter_that_is_gone_stops_no_write_of_the_stored_version(hosts: Hosts) -> None:
    meta = {"name": "a", "finalizers": ["example.com/held"]}
    body = {"apiVersion": f"{hosts.group}/v2", "kind": "Host", "metadata": meta, "spec": {"host": "one", "port": 1}}
    applied = hosts.server.request("PATCH", f"{hosts.path('v2', 'a')}?fieldManager=two", body, headers=APPLY)
    assert applied.code == 201, applied.json
    hosts.hook.raw["/convert"] = lambda handler, _: send(handler, b"{}", 503)
    path = hosts.path("v1", "a")
    patched = hosts.server.request("PATCH", path, {"spec": {"zone": "b"}}, headers=MERGE)
    assert (patched.code, patched.json.get("spec")) == (200, {"address": "one:1", "zone": "b"})
    put = hosts.server.request("PUT", path, {**patched.json, "spec": {"address": "two:2"}})
    assert put.code == 200, put.json
    kept = [each for each in put.json["metadata"]["managedFields"] if each["manager"] == "two"]
    assert kept == applied.json["metadata"]["managedFields"]
    assert hosts.server.request("PATCH", path, {"metadata": {"finalizers": None}}, headers=MERGE).code == 200
    assert hosts.server.request("DELETE", path).code == 200
    assert hosts.get("v1", "a").code == 404


def test_a_converter_that_hangs_holds_up_its_own_kind_alone(hosts: Hosts) -> None:
    released = threading.Event()
    server, after = hosts.server, hosts.server.request("GET", hosts.path("v2")).json["metadata"]["resourceVersion"]
    hosts.make("v1", "a", address="one:1")

    def hang(handler: Any, review: dict[str, Any]) -> None:
        released.wait(60)
        response = {**honest(review["request"]), "uid": review["request"]["uid"]}
        send(handler, json.dumps({**review, "response": response}).encode())

    hosts.hook.raw["/convert"] = hang
    asked = [threading.Thread(target=server.request, args=("GET", hosts.path("v2"))) for _ in range(12)]
    asked.append(threading.Thread(target=hosts.watch, args=("v2", after)))
    try:
        for each in asked:
            each.start()
        until(lambda: len(hosts.hook.reviews) >= 8)
        space = hosts.namespace
        revision = server.request("GET", space.path("configmaps")).json["metadata"]["resourceVersion"]
        assert space.create("other").code == 201
        path = f"{space.path('configmaps')}?watch=1&timeoutSeconds=1&resourceVersion={revision}"
        assert b'"other"' in server.request("GET", path).body
        assert hosts.make("v1", "b", address="two:2").code == 201
        assert [event["type"] for event in hosts.watch("v1", after)] == ["ADDED", "ADDED"]
    finally:
        released.set()
        for each in asked:
            each.join()


def test_a_converter_that_is_gone_is_named_and_one_that_is_back_is_asked(hosts: Hosts) -> None:
    assert hosts.make("v1", "a", address="one:1").code == 201

    def moved(url: str) -> None:
        change = {"spec": {"conversion": {"webhook": {"clientConfig": {"url": url}}}}}
        assert hosts.server.request("PATCH", hosts.definition, change, headers=MERGE).code == 200

    gone = f"https://127.0.0.1:{free_port()}/convert"
    moved(gone)
    until(lambda: hosts.get("v2", "a").code == 500)
    message = hosts.get("v2", "a").json["message"]
    assert message.startswith(f'conversion webhook for {hosts.group}/v1, Kind=Host failed: Post "{gone}?timeout=30s": ')
    assert message.endswith("connect: connection refused")
    assert hosts.spec("v1", "a")["address"] == "one:1"
    moved(hosts.hook.url("/convert"))
    until(lambda: hosts.get("v2", "a").code == 200)


def test_a_broken_converter_keeps_nothing_from_being_deleted(hosts: Hosts) -> None:
    for name in ("a", "b"):
        hosts.make("v1", name, address="one:1")
    hosts.hook.answers["/convert"] = lying(renamed)
    assert hosts.server.request("DELETE", hosts.path("v1", "a")).code == 200
    assert hosts.server.request("DELETE", hosts.definition).code == 200
    until(lambda: hosts.server.request("GET", hosts.definition).code == 404)


def test_a_plan_asks_the_converter_and_says_what_it_answers(hosts: Hosts) -> None:
    assert hosts.make("v1", "old", address="one:1").code == 201
    obj: dict[str, Any] = {
        "apiVersion": f"{hosts.group}/v2",
        "kind": "Host",
        "metadata": {"name": "new", "namespace": hosts.namespace.name},
        "spec": {"host": "two", "port": 2},
    }

    def planned(**fields: Any) -> Answer:
        return hosts.server.request("POST", "/apis/minik8s.io/v1/plans", {"spec": fields})

    (row,) = planned(objects=[obj]).json["status"]["objects"]
    assert (row["action"], row["after"]["spec"]) == ("create", {"host": "two", "port": 2, "zone": "a"})
    hosts.hook.answers["/convert"] = lying(renamed)
    gone = {**obj, "metadata": {**obj["metadata"], "name": "old"}}
    for field, wanted, at in (("objects", obj, "v2"), ("deleted", gone, "v1")):
        answer = planned(**{field: [wanted]})
        text = f"spec.{field}[0]: conversion webhook for {hosts.group}/{at}, Kind=Host returned invalid object: "
        assert (answer.code, answer.json["message"].startswith(text)) == (500, True), answer.json
    assert hosts.get("v1", "new").code == 404


def test_failures_are_counted_and_told(hosts: Hosts) -> None:
    hosts.make("v1", "a", address="one:1")
    hosts.hook.answers["/convert"] = lying(renamed)
    assert hosts.get("v2", "a").code == 500
    metrics = hosts.server.request("GET", "/metrics").body.decode()
    kind = "conversion_webhook_invalid_converted_object_failure"
    assert f'apiserver_conversion_webhook_request_total{{failure_type="{kind}",result="failure"}}' in metrics
    assert f'apiserver_crd_conversion_webhook_duration_seconds_count{{crd_name="hosts.{hosts.group}"' in metrics

    def is_reported() -> bool:
        found = hosts.server.request("GET", "/api/v1/namespaces/default/events").json["items"]
        return any(
            event["involvedObject"]["name"] == f"hosts.{hosts.group}" and event["reason"] == "FailedCallingWebhook"
            for event in found
        )

    until(is_reported)


def test_what_is_written_bad_is_refused(hosts: Hosts) -> None:
    group = f"g{uuid.uuid4().hex[:8]}.example.com"
    for change, each in (
        ({"conversionReviewVersions": ["v2"]}, "must include at least one of v1, v1beta1"),
        ({"conversionReviewVersions": []}, "spec.conversion.webhook.conversionReviewVersions: Required value"),
        ({"clientConfig": None}, "spec.conversion.webhook.clientConfig: Required value: required when strategy is set"),
        ({"clientConfig": {"url": "http://a.example.com"}}, "'https' is the only allowed URL scheme"),
        ({"clientConfig": {}}, "exactly one of url or service is required"),
    ):
        body = body_of(group, hosts.hook)
        body["spec"]["conversion"]["webhook"] |= change
        answer = hosts.server.request("POST", DEFINITIONS, body)
        assert answer.code == 422, answer.json
        assert each in answer.json["message"]


def test_the_converter_of_the_how_to_converts(hosts: Hosts) -> None:
    page = Path(__file__).parents[4] / "docs/how-to/custom-kinds.md"
    found = re.search(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    written: dict[str, Any] = {}
    exec(found[1], written)
    hosts.hook.answers["/convert"] = written["convert"]
    assert hosts.make("v2", "a", host="one", port=1).code == 201
    assert (hosts.spec("v1", "a")["address"], hosts.spec("v2", "a")["port"]) == ("one:1", 1)
